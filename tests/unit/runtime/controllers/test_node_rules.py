# SPDX-License-Identifier: Apache-2.0
"""Parity of the rules with upstream's node controller. The IDs are those of docs/reference/parity.md.

Upstream's instance interfaces V1 and V2 are one here, so N1-N12 and N13-N22 become the same cases. N7, N33-N35 (V1
sequences) and N39-N42 (call counts) need a cloud or a queue, so other tests cover them.
"""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccm.cloud import Address, AddressType, Instance, InstanceRef
from ccm.controllers.nodes import node_rules as rules
from ccm.controllers.nodes.node_label_rules import RECORD, Refresh
from ccm.controllers.shared.limits import NODE_TAINTS
from ccm.engine.objects import Node

UNINITIALIZED = {"key": rules.UNINITIALIZED_TAINT, "value": "true", "effect": "NoSchedule"}
OTHER = {"key": "ImproveCoverageTaint", "value": "true", "effect": "NoSchedule"}

HOSTNAME = ("Hostname", "node0.cloud.internal")
INTERNAL = ("InternalIP", "10.0.0.1")
EXTERNAL = ("ExternalIP", "132.143.154.163")
KUBELET = ("Hostname", "node0")


def node(
    *,
    taints=(UNINITIALIZED,),
    provider_id="",
    labels=None,
    addresses=(),
    node_ip=None,
    conditions=(),
    uid="",
    annotations=(),
):
    annotations = dict(annotations) | ({} if node_ip is None else {rules.PROVIDED_NODE_IP: node_ip})
    return msgspec.convert(
        {
            "metadata": {"name": "node0", "uid": uid, "labels": labels or {}, "annotations": annotations},
            "spec": {"providerID": provider_id, "taints": list(taints)},
            "status": {"addresses": wire(addresses), "conditions": list(conditions)},
        },
        Node,
    )


def wire(addresses):
    return [{"type": kind, "address": address} for kind, address in addresses]


def cloud(*addresses):
    return tuple(Address(AddressType(kind), address) for kind, address in addresses)


def instance(provider_id="fake://12345", addresses=(INTERNAL, EXTERNAL), **fields):
    return Instance(provider_id, "node0", addresses=cloud(*addresses), **fields)


def pairs(addresses):
    return [(address.type, address.address) for address in addresses]


ZONED = {
    "failure-domain.beta.kubernetes.io/zone": "us-west-1a",
    "topology.kubernetes.io/zone": "us-west-1a",
    "failure-domain.beta.kubernetes.io/region": "us-west",
    "topology.kubernetes.io/region": "us-west",
}
READY = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}


@pytest.mark.parametrize(
    ("tainted", "machine", "status", "patch"),
    [
        pytest.param(
            {"addresses": [KUBELET]},
            instance(addresses=(HOSTNAME, INTERNAL, EXTERNAL)),
            [HOSTNAME, INTERNAL, EXTERNAL],
            {"spec": {"taints": None, "providerID": "fake://12345"}},
            id="N1-cloud-hostname-wins",
        ),
        pytest.param(
            {"addresses": [KUBELET]},
            instance(),
            [INTERNAL, EXTERNAL, KUBELET],
            {"spec": {"taints": None, "providerID": "fake://12345"}},
            id="N2-kubelet-hostname-last",
        ),
        pytest.param(
            {},
            instance(addresses=(HOSTNAME, INTERNAL, EXTERNAL)),
            [HOSTNAME, INTERNAL, EXTERNAL],
            {"spec": {"taints": None, "providerID": "fake://12345"}},
            id="N3-no-addresses-before",
        ),
        pytest.param(
            {"conditions": [READY]},
            instance("aws://12345", zone="us-west-1a", region="us-west"),
            [INTERNAL, EXTERNAL],
            {"spec": {"taints": None, "providerID": "aws://12345"}, "metadata": {"labels": ZONED}},
            id="N5-N15-four-topology-labels",
        ),
        pytest.param(
            {"taints": [OTHER, UNINITIALIZED]},
            instance(),
            [INTERNAL, EXTERNAL],
            {"spec": {"taints": [OTHER], "providerID": "fake://12345"}},
            id="N6-N16-other-taint-kept",
        ),
        pytest.param(
            {"node_ip": "10.0.0.1", "addresses": [KUBELET]},
            instance(addresses=(EXTERNAL, INTERNAL)),
            [INTERNAL, EXTERNAL, KUBELET],
            {"spec": {"taints": None, "providerID": "fake://12345"}},
            id="N8-N17-node-ip-first",
        ),
        pytest.param(
            {"provider_id": "test-provider-id", "taints": [OTHER, UNINITIALIZED]},
            instance("test-provider-id"),
            [INTERNAL, EXTERNAL],
            {"spec": {"taints": [OTHER]}},
            id="N11-N13-preset-id-is-not-written",
        ),
        pytest.param(
            {"labels": {"topology.kubernetes.io/zone": "old", "node.kubernetes.io/instance-type": "t1"}},
            instance(type="t1", zone="us-west-1a"),
            [INTERNAL, EXTERNAL],
            {
                "spec": {"taints": None, "providerID": "fake://12345"},
                "metadata": {
                    "labels": {
                        "failure-domain.beta.kubernetes.io/zone": "us-west-1a",
                        "topology.kubernetes.io/zone": "us-west-1a",
                        "beta.kubernetes.io/instance-type": "t1",
                    }
                },
            },
            id="2.3.3-zone-overwrites-and-what-is-right-is-not-sent",
        ),
        pytest.param(
            {},
            instance(labels={"topology.k8s.cp/zone-id": "a", "my.custom.label/foo": "bar"}),
            [INTERNAL, EXTERNAL],
            {
                "spec": {"taints": None, "providerID": "fake://12345"},
                "metadata": {"labels": {"topology.k8s.cp/zone-id": "a", "my.custom.label/foo": "bar"}},
            },
            id="N18-additional-labels",
        ),
        pytest.param(
            {"labels": {"my.custom.label/foo": "mine"}},
            instance(
                labels={
                    "topology.kubernetes.io/other": "x",
                    "topology.k8s.io/other": "x",
                    "kubernetes.io/other": "x",
                    "k8s.io/other": "x",
                    "my.custom.label/foo": "theirs",
                    "app.k8snio/bar": "y",
                    "k8snio/bar": "z",
                    "mykubernetes.io/bar": "w",
                }
            ),
            [INTERNAL, EXTERNAL],
            {
                "spec": {"taints": None, "providerID": "fake://12345"},
                "metadata": {"labels": {"app.k8snio/bar": "y", "k8snio/bar": "z", "mykubernetes.io/bar": "w"}},
            },
            id="N19-reserved-and-present-labels",
        ),
        pytest.param(
            {"provider_id": "fake://12345"},
            instance(provider_id=""),
            [INTERNAL, EXTERNAL],
            {"spec": {"taints": None}},
            id="N20-N38-cloud-without-id-but-node-has-one",
        ),
        pytest.param(
            {"addresses": [INTERNAL, EXTERNAL]},
            instance(),
            None,
            {"spec": {"taints": None, "providerID": "fake://12345"}},
            id="N36-addresses-right-already",
        ),
        pytest.param(
            {"addresses": [INTERNAL]},
            instance(addresses=()),
            None,
            {"spec": {"taints": None, "providerID": "fake://12345"}},
            id="2.4.1-cloud-without-addresses-keeps-the-kubelet's",
        ),
    ],
)
def test_initialisation(tainted, machine, status, patch):
    plan = rules.plan_initialisation(node(**tainted), machine)
    assert plan.status == (None if status is None else {"status": {"addresses": wire(status)}})
    assert plan.node == patch


def test_every_taint_of_the_key_goes_whatever_its_value_and_effect():
    tainted = node(taints=[UNINITIALIZED, {"key": rules.UNINITIALIZED_TAINT, "effect": "NoExecute"}])
    assert rules.plan_initialisation(tainted, instance()).node["spec"]["taints"] is None


@pytest.mark.parametrize(
    ("tainted", "machine", "message"),
    [
        pytest.param({"node_ip": "invalid-ip"}, instance(), "'invalid-ip' is not an IP", id="N9"),
        pytest.param(
            {"node_ip": "10.0.0.2"},
            instance(),
            r"--node-ip 10\.0\.0\.2 is not among .*\(10\.0\.0\.1, 132\.143\.154\.163\)",
            id="N10",
        ),
        pytest.param({"node_ip": "10.0.0.1"}, instance(addresses=()), r"\(none\)", id="2.2.5-no-addresses-at-all"),
        # N12 differs: upstream's V1 admits a Node without a providerID, so later nothing can find its instance.
        pytest.param({}, instance(provider_id=""), "the cloud returned no providerID", id="N12-N21-N37"),
    ],
)
def test_contradictions_leave_the_taint(tainted, machine, message):
    with pytest.raises(rules.NodeRuleError, match=message):
        rules.plan_initialisation(node(**tainted), machine)


@pytest.mark.parametrize(
    ("taints", "expected"),
    [
        pytest.param([UNINITIALIZED], True, id="N1"),
        pytest.param([], False, id="N4"),
        pytest.param([OTHER], False, id="N14"),
        pytest.param([OTHER, {"key": rules.UNINITIALIZED_TAINT, "effect": "NoExecute"}], True, id="by-key-alone"),
    ],
)
def test_is_uninitialized(taints, expected):
    assert rules.is_uninitialized(node(taints=taints)) is expected


@pytest.mark.parametrize(
    ("old", "new", "again"),
    [
        pytest.param({}, {}, False, id="nothing-changed"),
        pytest.param({}, {"conditions": [READY]}, False, id="what-does-not-matter-changed"),
        pytest.param({"uid": "a"}, {"uid": "b"}, True, id="another-node-of-the-name"),
        pytest.param({"taints": []}, {}, True, id="tainted-just-now"),
        pytest.param({}, {"provider_id": "fake://1"}, True, id="providerID"),
        pytest.param({"node_ip": "10.0.0.1"}, {"node_ip": "10.0.0.2"}, True, id="node-ip"),
    ],
)
def test_when_a_tainted_node_is_looked_at_again(old, new, again):
    assert rules.may_succeed_now(node(**old), node(**new)) is again


def test_an_error_with_a_reason_says_its_message_alone():
    assert str(rules.NodeRuleError("there is no such thing", "SomeReason")) == "there is no such thing"


@pytest.mark.parametrize(("number", "refused"), [(NODE_TAINTS, False), (NODE_TAINTS + 1, True)])
def test_the_most_taints_that_are_written(number, refused):
    assert bool(rules.too_many_taints(node(taints=[OTHER] * number))) is refused


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ([{"type": "Ready", "status": "True"}], True),
        ([{"type": "Ready", "status": "False"}], False),
        ([{"type": "Ready", "status": "Unknown"}], False),
        ([{"type": "DiskPressure", "status": "True"}], False),
        ([], False),
    ],
)
def test_is_ready(conditions, expected):
    assert rules.is_ready(node(conditions=conditions)) is expected


def test_instance_ref():
    assert rules.instance_ref(node()) == InstanceRef("node0", None)
    assert rules.instance_ref(node(provider_id="fake://1")) == InstanceRef("node0", "fake://1")


BETA = "failure-domain.beta.kubernetes.io/zone"
ZONE = "topology.kubernetes.io/zone"


@pytest.mark.parametrize(
    ("present", "changes"),
    [
        pytest.param(
            {
                BETA: "foo",
                "failure-domain.beta.kubernetes.io/region": "bar",
                "beta.kubernetes.io/instance-type": "baz",
                "kubernetes.io/os": "linux",
            },
            {ZONE: "foo", "topology.kubernetes.io/region": "bar", "node.kubernetes.io/instance-type": "baz"},
            id="N23",
        ),
        pytest.param({BETA: "foo", ZONE: "foo"}, {}, id="N24"),
        pytest.param({BETA: "foo", ZONE: "old"}, {ZONE: "foo"}, id="N25"),
        pytest.param({ZONE: "only"}, {}, id="W12-without-the-deprecated-label-nothing-is-known"),
    ],
)
def test_reconciled_labels(present, changes):
    assert rules.reconciled_labels(present) == changes


@pytest.mark.parametrize(
    ("old", "new", "changed"),
    [
        pytest.param([INTERNAL, EXTERNAL], [INTERNAL, EXTERNAL], False, id="N26"),
        pytest.param([INTERNAL, EXTERNAL], [INTERNAL, ("ExternalIP", "10.0.0.9")], True, id="N27"),
        pytest.param([INTERNAL, EXTERNAL], [INTERNAL], True, id="N28"),
        pytest.param([INTERNAL], [INTERNAL, EXTERNAL], True, id="N29"),
        pytest.param([INTERNAL, EXTERNAL], [("ExternalIP", INTERNAL[1]), ("InternalIP", EXTERNAL[1])], True, id="N30"),
        # Differs (W9): upstream compares by type and patches dual-stack Nodes for ever, but misses a changed order.
        pytest.param([INTERNAL, ("InternalIP", "fd00::1")], [INTERNAL, ("InternalIP", "fd00::1")], False, id="W9-dual"),
        pytest.param([INTERNAL, EXTERNAL], [EXTERNAL, INTERNAL], True, id="W9-order"),
    ],
)
def test_status_patch(old, new, changed):
    patch = rules.status_patch(node(taints=(), addresses=old), instance(addresses=new))
    assert patch == ({"status": {"addresses": wire(new)}} if changed else None)


V4, V4B, V6 = ("InternalIP", "10.0.0.1"), ("InternalIP", "10.0.0.2"), ("InternalIP", "fd00:1::1")
OUT, OUT_B, OUT6 = ("ExternalIP", "55.55.55.55"), ("ExternalIP", "55.55.55.56"), ("ExternalIP", "2001:db8::1")
DNS, DNS_OUT, HOST = ("InternalDNS", "a.internal"), ("ExternalDNS", "a.example"), ("Hostname", "node0.cloud")


@pytest.mark.parametrize(
    ("node_ip", "listed", "expected"),
    [
        pytest.param("10.0.0.1", [V4, HOST], [V4, HOST], id="A1"),
        pytest.param("55.55.55.55", [V4, OUT, HOST], [OUT, V4, HOST], id="A2"),
        pytest.param(
            "10.0.0.1",
            [V4, ("ExternalIP", "10.0.0.1"), V4B, OUT, HOST],
            [V4, ("ExternalIP", "10.0.0.1"), HOST],
            id="A3",
        ),
        pytest.param("10.0.0.1", [DNS, V4, DNS_OUT, HOST], [V4, DNS, DNS_OUT, HOST], id="A4"),
        pytest.param("10.0.0.1", [V4B, V4, OUT, HOST], [V4, OUT, HOST], id="A5"),
        pytest.param("fd00:1:0::01", [V6, V4, HOST], [V6, HOST], id="A7"),
        pytest.param(
            "fd00:1::1",
            [("InternalIP", "fd00:0001:0:0::1"), HOST],
            [("InternalIP", "fd00:0001:0:0::1"), HOST],
            id="A7-cloud-text-kept",
        ),
        pytest.param("10.0.0.1,fd00:1::1", [V4, V6, HOST], [V4, V6, HOST], id="A9"),
        pytest.param("10.0.0.1,fd00:1::1", [V6, V4, HOST], [V4, V6, HOST], id="A10"),
        pytest.param("10.0.0.1,fd00:1::1", [V4B, V6, V4, HOST], [V4, V6, HOST], id="A11"),
        pytest.param("10.0.0.1,fd00:1::1", [V4, V6, OUT, HOST], [V4, V6, OUT, HOST], id="A12"),
        pytest.param(
            "fd00:1::1,10.0.0.1", [V4, V6, OUT6, OUT, OUT_B, HOST], [V6, V4, OUT6, OUT, OUT_B, HOST], id="A13"
        ),
        pytest.param("55.55.55.55,fd00:1::1", [V4, V6, OUT, OUT_B, OUT6, HOST], [OUT, V6, HOST], id="A14"),
        pytest.param("010.000.0.01", [V4, HOST], [V4, HOST], id="2.4.3-leading-zeros"),
    ],
)
def test_provided_node_ip(node_ip, listed, expected):
    assert pairs(rules.node_addresses(node(node_ip=node_ip), cloud(*listed))) == expected


@pytest.mark.parametrize(
    ("node_ip", "listed", "message"),
    [
        pytest.param("10.0.0.9", [V4, HOST], "10.0.0.9 is not among", id="A6"),
        pytest.param("10.0.0.1,fd00:1::1", [V4, HOST], "fd00:1::1 is not among", id="A8"),
        pytest.param("", [V4], "'' is not an IP", id="empty"),
        pytest.param("10.0.0.1, fd00:1::1", [V4, V6], "is not an IP or a dual-stack pair", id="blank"),
        pytest.param("10.0.0.1,10.0.0.2", [V4, V4B], "is not one IPv4 and one IPv6", id="two-of-a-family"),
        pytest.param("10.0.0.1,fd00:1::1,10.0.0.2", [V4, V6], "is not one IPv4 and one IPv6", id="three"),
        pytest.param("10.0.0.1,fd00:1::1,10.0.0.2,10.0.0.3", [V4, V6], "is not an IP", id="four"),
        pytest.param("0.0.0.0,fd00:1::1", [V4, V6], "is not one IPv4 and one IPv6", id="unspecified-in-a-pair"),
        pytest.param("10.0.0.256", [V4], "'10.0.0.256' is not an IP", id="octet"),
        pytest.param("\u0661\u0660.0.0.1", [V4], "is not an IP", id="digits-of-another-script"),
        pytest.param("1" * 5000 + ".0.0.1", [V4], "is not an IP", id="beyond-what-int-takes"),
    ],
)
def test_bad_node_ip(node_ip, listed, message):
    with pytest.raises(rules.NodeRuleError, match=message):
        rules.node_addresses(node(node_ip=node_ip), cloud(*listed))


@pytest.mark.parametrize(
    ("present", "listed", "expected"),
    [
        # Upstream's helper merges two lists; here the cloud's list is merged with the kubelet's Hostname.
        pytest.param([V4, HOST], [V4, HOST], [V4, HOST], id="A15-nothing-to-add"),
        pytest.param([], [V4, OUT], [V4, OUT], id="A16-to-an-empty-list"),
        pytest.param([], [V4, OUT, V4, OUT], [V4, OUT], id="A17-what-comes-twice-is-there-once"),
        pytest.param([V4], [V4, V4B, V4], [V4, V4B], id="A18-one-new-and-one-there-already"),
        pytest.param([KUBELET, KUBELET], [V4], [V4, KUBELET], id="the-hostname-once"),
        pytest.param([KUBELET], [], [], id="cloud-names-none"),
        pytest.param([KUBELET, OUT], [V4], [V4, KUBELET], id="only-the-hostname-is-carried-over"),
        pytest.param([KUBELET], [V4, HOST], [V4, HOST], id="the-clouds-hostname-replaces"),
    ],
)
def test_what_is_taken_over_and_nothing_twice(present, listed, expected):
    assert pairs(rules.node_addresses(node(addresses=present), cloud(*listed))) == expected


IPS = st.sampled_from(["10.0.0.1", "10.0.0.2", "010.0.0.1", "fd00::1", "fd00:0::1", "fd00::2", "node", "node.example"])
ADDRESSES = st.lists(st.tuples(st.sampled_from([kind.value for kind in AddressType]), IPS), max_size=8)
NODE_IPS = st.sampled_from([None, "10.0.0.1", "fd00::1", "10.0.0.2,fd00::2", "fd00::1,10.0.0.1"])


def canonical(text):
    try:
        return rules._parse_ip(text)
    except ValueError:
        return text


@given(present=ADDRESSES, listed=ADDRESSES, node_ip=NODE_IPS)
def test_addresses_are_the_clouds_and_settle(present, listed, node_ip):
    before = node(addresses=present, node_ip=node_ip)
    asked = [] if node_ip is None else [canonical(ip) for ip in node_ip.split(",")]
    has_hostname = any(kind == "Hostname" for kind, _ in listed)
    carried = [a for a in present if a[0] == "Hostname"] if listed and not has_hostname else []
    source = list(dict.fromkeys(listed + carried))
    try:
        found = pairs(rules.node_addresses(before, cloud(*listed)))
    except rules.NodeRuleError:
        assert not all(any(canonical(text) == ip for _, text in source) for ip in asked)
        return
    claimed = {kind for kind, text in source if canonical(text) in asked}
    leading = [a for ip in asked for a in source if canonical(a[1]) == ip]
    assert len(set(found)) == len(found)  # the API server refuses duplicates
    # Types that --node-ip claims keep only its IPs, in its order. Everything else stays in the cloud's order.
    assert found == leading + [a for a in source if a[0] not in claimed]
    # A Node that has these addresses needs no patch, and the same input gives the same result.
    after = node(addresses=found, node_ip=node_ip)
    assert pairs(rules.node_addresses(after, cloud(*listed))) == found
    assert rules.status_patch(after, instance(addresses=listed)) is None


@given(st.text() | st.from_regex(r"[0-9a-f:.,%]{0,40}", fullmatch=True) | st.ip_addresses().map(str))
def test_any_annotation_is_ips_or_refused(value):
    try:
        ips = rules.parse_provided_ips(value)
    except rules.NodeRuleError as error:
        assert rules.PROVIDED_NODE_IP in str(error)
        return
    assert 1 <= len(ips) <= 2
    assert rules.parse_provided_ips(",".join(ips)) == ips


KEY = "node.cloudprovider.kubernetes.io/shutdown"
MATCH = {"key": KEY, "value": "v", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"}
OTHER_KEY, OTHER_EFFECT = {"key": "other", "effect": "NoSchedule"}, {"key": KEY, "effect": "NoExecute"}


@pytest.mark.parametrize(
    ("taints", "expected"),
    [
        pytest.param([{"key": KEY, "effect": "NoSchedule"}], True, id="T1"),
        pytest.param([OTHER_KEY], False, id="T2"),
        pytest.param([OTHER_EFFECT], False, id="T3"),
    ],
)
def test_has_taint(taints, expected):
    assert rules.has_taint(node(taints=taints).spec.taints, KEY, "NoSchedule") is expected


@pytest.mark.parametrize(
    ("taints", "kept"),
    [
        pytest.param([MATCH], None, id="T5-T9-present"),
        pytest.param([OTHER_KEY], [OTHER_KEY], id="T4-T7-other-key"),
        pytest.param([OTHER_EFFECT], [OTHER_EFFECT], id="T8-other-effect"),
        pytest.param([OTHER_KEY, MATCH, OTHER_EFFECT], [OTHER_KEY, OTHER_EFFECT], id="T9-among-others"),
        pytest.param([], None, id="T6-T10-none"),
    ],
)
def test_taints_without(taints, kept):
    assert rules.taints_without(node(taints=taints).spec.taints, KEY, "NoSchedule") == kept


def test_a_kept_taint_keeps_all_its_fields():
    assert rules.taints_without(node(taints=[MATCH]).spec.taints, "other") == [MATCH]


TAINTS = st.lists(
    st.fixed_dictionaries(
        {"key": st.sampled_from([KEY, rules.UNINITIALIZED_TAINT, "other"])},
        optional={
            "value": st.sampled_from(["", "v"]),
            "effect": st.sampled_from(["NoSchedule", "NoExecute", "PreferNoSchedule"]),
            "timeAdded": st.just("2026-01-01T00:00:00Z"),
        },
    ),
    max_size=6,
)


@given(taints=TAINTS, effect=st.sampled_from([None, "NoSchedule", "NoExecute"]))
def test_exactly_the_asked_taints_go_and_the_others_stay_as_they_are(taints, effect):
    def goes(taint):
        return taint["key"] == KEY and effect in (None, taint.get("effect", ""))

    kept = [{name: value for name, value in taint.items() if value} for taint in taints if not goes(taint)]
    assert rules.taints_without(node(taints=taints).spec.taints, KEY, effect) == (kept or None)


# --- labels ---------------------------------------------------------------------------------------------------------

LEGACY = list(rules.LABEL_PAIRS)
CURRENT = list(rules.LABEL_PAIRS.values())
OURS = {"provider_id": "fake://12345", "taints": ()}


def zoned(**fields):
    return instance(**{"zone": "z1", "region": "r", "type": "t", **fields})


BOTH = dict(zip([*LEGACY, *CURRENT], ["z1", "r", "t"] * 2, strict=True))
GA = dict(zip(CURRENT, ["z1", "r", "t"], strict=True))


@pytest.mark.parametrize(
    ("labels", "machine", "legacy", "changes"),
    [
        pytest.param(BOTH, zoned(), True, None, id="nothing-differs"),
        pytest.param(BOTH | {ZONE: "z9", BETA: "z9"}, zoned(), True, {ZONE: "z1", BETA: "z1"}, id="W12-drifted-zone"),
        pytest.param(BOTH | {BETA: "z9"}, zoned(), True, {BETA: "z1"}, id="W12-the-cloud-leads-not-the-deprecated"),
        pytest.param(GA, zoned(), True, dict(zip(LEGACY, ["z1", "r", "t"], strict=True)), id="W12-GA-only-node"),
        pytest.param(GA, zoned(), False, None, id="W12-GA-only-node-stays-so-without-legacy"),
        pytest.param(GA | {BETA: "z9"}, zoned(), False, None, id="W12-without-legacy-deprecated-ones-are-left-alone"),
        pytest.param(BOTH, zoned(zone=""), True, None, id="a-zone-the-cloud-does-not-name-stays"),
        pytest.param(BOTH, zoned(labels={"rack/row": "4"}), True, {"rack/row": "4"}, id="W12-providers-label-missing"),
        pytest.param(BOTH | {"rack/row": "5"}, zoned(labels={"rack/row": "4"}), True, None, id="W12-by-hand"),
        pytest.param({BETA: "foo"}, None, True, {ZONE: "foo"}, id="N23-without-an-instance"),
        pytest.param(
            {BETA: "foo"}, zoned(provider_id="fake://another"), True, {ZONE: "foo"}, id="another-instance-says-nothing"
        ),
    ],
)
def test_repair_of_labels(labels, machine, legacy, changes):
    one = node(labels=labels, addresses=[INTERNAL, EXTERNAL], **OURS)
    plan = rules.plan_repair(one, machine, legacy=legacy, refresh=Refresh.ALWAYS)
    assert (plan.node or {"metadata": {}})["metadata"].get("labels") == changes and plan.status is None


@pytest.mark.parametrize(
    ("labels", "machine", "legacy", "changes"),
    [
        pytest.param(BOTH, zoned(), True, None, id="nothing-differs"),
        pytest.param(BOTH | {ZONE: "z9", BETA: "z9"}, zoned(), True, None, id="zone-by-hand"),
        pytest.param(BOTH | {BETA: "z9"}, zoned(), True, {ZONE: "z9"}, id="N25-the-deprecated-label-leads"),
        pytest.param(BOTH | {ZONE: "z9"}, zoned(), True, {ZONE: "z1"}, id="N25-and-today's-follows"),
        pytest.param(GA | {ZONE: "z9"}, zoned(), True, {LEGACY[2]: "t", LEGACY[1]: "r"}, id="only-today's-by-hand"),
        pytest.param(GA | {ZONE: "z9"}, zoned(), False, None, id="by-hand-without-legacy"),
        pytest.param(GA | {BETA: "z9"}, zoned(), False, None, id="without-legacy-deprecated-ones-are-left-alone"),
        pytest.param({BETA: "z9"}, zoned(), False, GA, id="nor-do-they-lead-anything"),
        pytest.param(GA, zoned(), True, dict(zip(LEGACY, ["z1", "r", "t"], strict=True)), id="missing-spelling"),
        pytest.param({}, zoned(), False, GA, id="all-missing"),
        pytest.param(BOTH, zoned(type="t2"), True, None, id="the-cloud-changed-the-type"),
        pytest.param(BOTH, zoned(zone=""), True, None, id="a-zone-the-cloud-does-not-name-stays"),
        pytest.param(BOTH, zoned(labels={"rack/row": "4"}), True, {"rack/row": "4"}, id="providers-label-missing"),
    ],
)
def test_labels_that_a_node_has_stay_unless_a_refresh_of_them_is_asked_for(labels, machine, legacy, changes):
    one = node(labels=labels, addresses=[INTERNAL, EXTERNAL], **OURS)
    plan = rules.plan_repair(one, machine, legacy=legacy)
    assert plan == rules.Plan(node={"metadata": {"labels": changes}} if changes else None)


def test_repair_of_addresses_goes_with_the_labels():
    plan = rules.plan_repair(node(addresses=[KUBELET], **OURS), zoned())
    assert plan.status == {"status": {"addresses": wire([INTERNAL, EXTERNAL, KUBELET])}}
    assert plan.node == {"metadata": {"labels": BOTH}}


def test_addresses_that_contradict_the_node_do_not_keep_its_labels_from_repair():
    plan = rules.plan_repair(node(addresses=[KUBELET], node_ip="10.9.9.9", **OURS), zoned())
    assert (plan.status, plan.node) == (None, {"metadata": {"labels": BOTH}})
    assert "--node-ip 10.9.9.9 is not among" in plan.problem


def test_N31_N32_a_tainted_node_is_never_repaired():
    """Upstream has this test for each of its two interfaces."""
    tainted = node(addresses=[KUBELET], provider_id="fake://12345", labels={BETA: "foo"})
    assert rules.plan_repair(tainted, zoned()).is_empty


@pytest.mark.parametrize("legacy", [True, False])
def test_legacy_labels_at_initialisation(legacy):
    plan = rules.plan_initialisation(node(), zoned(), legacy=legacy)
    assert plan.node["metadata"]["labels"] == (BOTH if legacy else GA)


@pytest.mark.parametrize(
    ("label", "usable"),
    [
        (("rack.example.com/row", "4"), True),
        (("row", ""), True),
        (("row", "x" * 63), True),
        (("row", "x" * 64), False),
        (("row", "a b"), False),
        (("row", "-a"), False),
        (("row", "a\n"), False),
        (("x" * 63, "a"), True),
        (("x" * 64, "a"), False),
        (("", "a"), False),
        (("/row", "a"), False),
        (("a/b/c", "a"), False),
        (("Rack.example.com/row", "a"), False),
        (("x" * 253 + "/row", "a"), True),
        (("x" * 254 + "/row", "a"), False),
    ],
    ids=str,
)
def test_labels_that_the_api_server_would_refuse_are_left_out_and_told(label, usable):
    key, value = label
    machine = zoned(labels={key: value, "fine": "yes"})
    assert rules.cloud_labels(machine, {}) == BOTH | {"fine": "yes"} | ({key: value} if usable else {})
    assert rules.unusable_labels(machine) == ([] if usable else [f"{key}={value!r}"])


def test_a_zone_that_cannot_be_a_label_is_left_out_and_told():
    machine = zoned(type="m1 (large)")
    assert rules.cloud_labels(machine, {}) == {key: value for key, value in BOTH.items() if value != "t"}
    assert rules.unusable_labels(machine) == ["node.kubernetes.io/instance-type='m1 (large)'"]


def test_labels_that_steer_are_the_clouds_in_both_spellings_and_none_that_is_reserved():
    machine = zoned(labels={"rack": "4", "kubernetes.io/x": "no"})
    assert rules.all_instance_labels(machine) == BOTH | {"rack": "4"}


def test_an_instance_that_cannot_be_described_takes_no_label_from_its_node():
    recorded = {RECORD: '{"rack":"4"}'}
    one = node(labels=GA | {"rack": "4"}, annotations=recorded, addresses=[INTERNAL, EXTERNAL], **OURS)
    known, unknown = zoned(), zoned(incomplete="no name of its zone yet")
    plan = rules.plan_repair(one, known, legacy=False, refresh=Refresh.ALWAYS)
    assert plan.node == {"metadata": {"labels": {"rack": None}, "annotations": {RECORD: None}}}
    assert rules.plan_repair(one, unknown, legacy=False, refresh=Refresh.ALWAYS).is_empty


KEYS = st.sampled_from([*LEGACY, *CURRENT, "rack/row", "kubernetes.io/x", "not a key", "x.k8s.io/y"])
LABELS = st.dictionaries(KEYS, st.sampled_from(["z1", "z2", "", "not a value"]), max_size=6)


ZONES = st.sampled_from(["", "z1", "z2", "no zone"])


@given(present=LABELS, named=LABELS, zone=ZONES, legacy=st.booleans(), refresh=st.sampled_from(Refresh))
def test_repaired_labels_settle(present, named, zone, legacy, refresh):
    machine = instance(zone=zone, labels=named)
    before = node(labels=present, addresses=[INTERNAL, EXTERNAL], **OURS)
    plan = rules.plan_repair(before, machine, legacy=legacy, refresh=refresh)
    metadata = plan.node["metadata"] if plan.node else {}
    changes = metadata.get("labels", {})
    after = present | changes
    annotations = metadata.get("annotations", {})
    again = node(labels=after, annotations=annotations, addresses=[INTERNAL, EXTERNAL], **OURS)
    assert rules.plan_repair(again, machine, legacy=legacy, refresh=refresh).is_empty
    if zone in ("z1", "z2") and refresh is not Refresh.NEVER and (
        refresh is Refresh.ALWAYS or not {ZONE, BETA} & present.keys()
    ):
        assert after[ZONE] == zone
    if refresh is not Refresh.ALWAYS:  # existing labels stay, except that today's spelling follows the deprecated one
        assert not set(changes) & present.keys() - set(CURRENT)
        assert legacy or not changes.keys() & present.keys()
    if not legacy:
        assert not set(changes) & set(LEGACY)
    # The provider's own labels never replace others, are not in Kubernetes' own domains, and are valid.
    assert not set(changes) & {"kubernetes.io/x", "x.k8s.io/y", "not a key"}
    assert "rack/row" not in changes or "rack/row" not in present


PROVIDER_IDS = st.sampled_from(["", "fake://1", "FAKE://1", "fake://2", "garbage", "://", "fake://1\n"])


@given(preset=PROVIDER_IDS, named=PROVIDER_IDS, node_ip=NODE_IPS, listed=ADDRESSES)
def test_no_node_is_let_in_without_a_provider_id_and_none_is_changed(preset, named, node_ip, listed):
    before = node(provider_id=preset, node_ip=node_ip)
    try:
        plan = rules.plan_initialisation(before, instance(named, addresses=listed))
    except rules.NodeRuleError:
        return
    assert plan.node["spec"].get("providerID", preset) == (preset or named) != ""
    assert ("providerID" in plan.node["spec"]) is (not preset)


def test_a_system_uuid_finds_only_a_node_without_provider_id():
    info = {"systemUUID": "422E4956"}
    reported = msgspec.convert({"metadata": {"name": "node0"}, "status": {"nodeInfo": info}}, Node)
    assert rules.instance_ref(reported) == InstanceRef("node0", None, "422E4956")
    with_id = msgspec.structs.replace(reported, spec=node(provider_id="fake://1").spec)
    assert rules.instance_ref(with_id) == InstanceRef("node0", "fake://1")


def test_an_incomplete_instance_initialises_no_node():
    found = Instance("fake://1", "node0", incomplete="its guest tools are silent")
    with pytest.raises(rules.NodeRuleError, match="its guest tools are silent") as raised:
        rules.plan_initialisation(node(), found)
    assert raised.value.reason == "InstanceIncomplete"
