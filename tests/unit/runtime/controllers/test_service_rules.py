# SPDX-License-Identifier: Apache-2.0
"""Parity of the rules with upstream's service controller. The IDs are those of docs/reference/parity.md.

Where we differ on purpose, the row says "differs" and why.
"""

import copy

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccm.cloud import (
    Address,
    AddressType,
    Backend,
    Backends,
    Ingress,
    IngressPort,
    LoadBalancer,
    LoadBalancerSpec,
    Port,
)
from ccm.controllers.services import backend_rules, drain_rules
from ccm.controllers.services import service_rules as rules
from ccm.controllers.services.class_rules import UNDECLARED, ServedClasses
from ccm.controllers.services.service_state import ServiceState
from ccm.controllers.shared import limits
from ccm.engine.objects import IngressEntry, Node, Service

from .judges import believing


def service(spec=None, **metadata):
    document = {
        "metadata": {"name": "web", "namespace": "shop", "uid": "6f0c7a3e-1", **metadata},
        "spec": {"type": "LoadBalancer", **(spec or {})},
    }
    return msgspec.convert(document, Service)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param({"type": "ClusterIP"}, False, id="S1"),
        pytest.param({}, True, id="S2"),
        pytest.param({"loadBalancerClass": "any"}, False, id="S5"),
        pytest.param({"type": "NodePort"}, False, id="S10"),
    ],
)
def test_wants_load_balancer(spec, expected):
    assert UNDECLARED.include(service(spec)) is expected
    assert rules.concerns_us(service(spec), UNDECLARED) is expected


OLD, NEW = Backends(), Backends([Backend("node-1", "sim://1", ())])
WRITTEN = {"written.fingerprint": "web on OLD", "written.backends": OLD}
SETTLED = WRITTEN | {"polling.settled": True}
UNCONFIRMED, DUE = {"following.unconfirmed": True}, {"comparing.due": True}


@pytest.mark.parametrize(
    ("known", "fingerprint", "listed", "step"),
    [
        pytest.param({}, "web on NEW", "", rules.Step.ENSURE, id="never written, and not listed"),
        pytest.param({}, "web on NEW", "web on NEW", rules.Step.ADOPT, id="never written, listed as it should be"),
        pytest.param({}, "web on NEW", "web on OLD", rules.Step.ENSURE, id="never written, listed otherwise"),
        pytest.param({}, "", "", rules.Step.ENSURE, id="a listing without a fingerprint says nothing"),
        pytest.param({"polling.settled": True}, "web on NEW", "", rules.Step.ENSURE, id="it vanished in the cloud"),
        pytest.param(WRITTEN, "web on NEW", "", rules.Step.UPDATE, id="other backends"),
        pytest.param(WRITTEN, "other on NEW", "", rules.Step.ENSURE, id="the Service changed"),
        pytest.param(WRITTEN | UNCONFIRMED, "web on OLD", "", rules.Step.UPDATE, id="a failed update"),
        pytest.param(SETTLED | UNCONFIRMED, "web on OLD", "", rules.Step.UPDATE, id="also later"),
        pytest.param(WRITTEN, "web on OLD", "", rules.Step.LOOK, id="the cloud is at it"),
        pytest.param(WRITTEN | DUE, "web on OLD", "", rules.Step.LOOK, id="asked to compare too early"),
        pytest.param(SETTLED, "web on OLD", "", rules.Step.NOTHING, id="done"),
        pytest.param(SETTLED, "web on OLD", "web on NEW", rules.Step.NOTHING, id="an old listing"),
        pytest.param(SETTLED | DUE, "web on OLD", "", rules.Step.COMPARE, id="compared"),
        pytest.param(SETTLED | DUE, "web on NEW", "", rules.Step.UPDATE, id="first"),
    ],
)
def test_next_step(known, fingerprint, listed, step):
    def fingerprint_of(backends):
        assert backends is OLD
        # The fingerprint of the Service as it is now, with the backends that the cloud has.
        return f"{fingerprint.partition(' ')[0]} on OLD"

    state = ServiceState(service())
    for path, value in known.items():
        part, name = path.split(".")
        setattr(getattr(state, part), name, value)
    assert rules.next_step(state, fingerprint, fingerprint_of, listed) is step


@pytest.mark.parametrize(
    ("address", "metadata", "fingerprint", "works"),
    [
        pytest.param("192.0.2.1", {}, "web on OLD", True, id="only the Nodes or the Service may have changed"),
        pytest.param("", {}, "web on OLD", False, id="its user has no address yet"),
        pytest.param("192.0.2.1", {}, "", False, id="failed, or only partly written"),
        pytest.param("192.0.2.1", {}, None, False, id="the cloud has none"),
        pytest.param("192.0.2.1", {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "web on OLD", False, id="deleted"),
    ],
)
def test_works(address, metadata, fingerprint, works):
    balancer = {"ingress": [{"ip": address}] if address else []}
    document = {"metadata": metadata, "spec": {"type": "LoadBalancer"}, "status": {"loadBalancer": balancer}}
    listed = None if fingerprint is None else LoadBalancer("uid", "web", (), fingerprint)
    assert rules.works(msgspec.convert(document, Service), listed) is works


@pytest.mark.parametrize(
    ("spec", "metadata", "expected"),
    [
        pytest.param({"type": "NodePort"}, {}, False, id="S43"),
        pytest.param({"type": "NodePort"}, {"finalizers": [rules.FINALIZER]}, True, id="S44"),
        pytest.param({}, {"finalizers": [rules.FINALIZER]}, False, id="S45"),
        pytest.param(
            {}, {"finalizers": [rules.FINALIZER], "deletionTimestamp": "2026-01-01T00:00:00Z"}, True, id="S46"
        ),
        pytest.param({}, {"deletionTimestamp": "2026-01-01T00:00:00Z"}, False, id="going-without-our-finalizer"),
        pytest.param({}, {"finalizers": ["a/b", rules.FINALIZER], "deletionTimestamp": "x"}, True, id="S149-several"),
        pytest.param({"type": "NodePort"}, {"finalizers": ["a/b"]}, False, id="S149-others-only"),
    ],
)
def test_needs_cleanup(spec, metadata, expected):
    assert rules.needs_cleanup(service(spec, **metadata)) is expected


@pytest.mark.parametrize(
    ("spec", "metadata", "confirmed"),
    [
        pytest.param({"type": "ClusterIP"}, {"uid": "u"}, True, id="of another type"),
        pytest.param({"loadBalancerClass": "any"}, {"uid": "u"}, True, id="of a class"),
        pytest.param({}, {"uid": "u"}, False, id="it wants one"),
        pytest.param({}, {"uid": "u", "deletionTimestamp": "2026-01-01T00:00:00Z"}, True, id="being deleted"),
        pytest.param({"type": "ClusterIP"}, {"uid": "v"}, False, id="another one of the name"),
        pytest.param({}, {"uid": "v", "deletionTimestamp": "2026-01-01T00:00:00Z"}, False, id="another, being deleted"),
    ],
)
def test_is_still_unwanted(spec, metadata, confirmed):
    cached = service({"type": "ClusterIP"}, uid="u")
    assert rules.is_still_unwanted(cached, service(spec, **metadata), UNDECLARED) is confirmed


def test_a_service_of_another_type_with_our_finalizer_concerns_us():
    assert rules.concerns_us(service({"type": "ClusterIP"}, finalizers=[rules.FINALIZER]), UNDECLARED)
    assert not rules.concerns_us(service({"loadBalancerClass": "other"}, finalizers=[rules.FINALIZER]), UNDECLARED)


BASE = {
    "metadata": {
        "name": "web",
        "namespace": "shop",
        "uid": "1",
        "annotations": {"a": "1"},
        "labels": {"l": "1"},
        "resourceVersion": "1",
    },
    "spec": {
        "type": "LoadBalancer",
        "ports": [
            {
                "name": "http",
                "protocol": "TCP",
                "port": 80,
                "targetPort": 8080,
                "nodePort": 30080,
                "appProtocol": "http",
            }
        ],
        "externalIPs": ["192.0.2.1"],
        "loadBalancerSourceRanges": ["10.0.0.0/8", "192.0.2.0/24"],
        "sessionAffinity": "ClientIP",
        "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 60}},
        "externalTrafficPolicy": "Local",
        "internalTrafficPolicy": "Cluster",
        "healthCheckNodePort": 31000,
        "ipFamilies": ["IPv4"],
        "clusterIP": "10.96.0.9",
        "allocateLoadBalancerNodePorts": True,
    },
    "status": {"loadBalancer": {"ingress": []}},
}


def changed(changes):
    """Return BASE decoded, with values set at dotted paths. None removes the field."""
    document = copy.deepcopy(BASE)
    for path, value in changes.items():
        *parents, last = path.split(".")
        place = document
        for name in parents:
            place = place[int(name) if name.isdigit() else name]
        if value is None:
            place.pop(last)
        else:
            place[last] = value
    return msgspec.convert(document, Service)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param({"spec.type": "ClusterIP"}, True, id="S48"),
        pytest.param({"spec.ports.0.port": 81}, True, id="S49-port"),
        pytest.param({"spec.ports.0.name": "web"}, True, id="S49-name"),
        pytest.param({"spec.ports.0.protocol": "UDP"}, True, id="S49-protocol"),
        pytest.param({"spec.ports.0.nodePort": 30081}, True, id="S49-nodePort"),
        pytest.param({"spec.ports": []}, True, id="S49-count"),
        pytest.param({"spec.externalIPs": ["192.0.2.1", "192.0.2.2"]}, True, id="S50"),
        pytest.param({"spec.externalIPs": ["192.0.2.2"]}, True, id="S51"),
        pytest.param({"metadata.uid": "2"}, True, id="S52"),
        pytest.param({"spec.externalTrafficPolicy": "Cluster"}, True, id="S53"),
        pytest.param({"spec.healthCheckNodePort": 31001}, True, id="S54"),
        pytest.param({"spec.ports.0.targetPort": 8081}, True, id="S55"),
        pytest.param({"spec.ports.0.targetPort": "http"}, True, id="S56"),
        pytest.param({"spec.ipFamilies": ["IPv4", "IPv6"]}, True, id="S57"),
        pytest.param({"spec.ipFamilies": []}, True, id="S58"),
        pytest.param({"spec.ports.0.appProtocol": None}, True, id="S59"),
        pytest.param({"spec.ports.0.appProtocol": "h2c"}, True, id="S60"),
        pytest.param({}, False, id="S61"),
        pytest.param({"spec.ipFamilies": ["IPv6"]}, False, id="S62-same-number"),
        pytest.param({"spec.loadBalancerSourceRanges": ["192.0.2.0/24", "10.0.0.0/8"]}, True, id="4.2-range-order"),
        pytest.param({"spec.sessionAffinity": "None"}, True, id="4.2-affinity"),
        pytest.param({"spec.sessionAffinityConfig.clientIP.timeoutSeconds": 61}, True, id="4.2-affinity-config"),
        pytest.param({"spec.loadBalancerIP": "192.0.2.9"}, True, id="S35-loadBalancerIP"),
        pytest.param({"metadata.annotations": {"a": "2"}}, True, id="W14-any-annotation"),
        pytest.param({"spec.loadBalancerClass": "other"}, True, id="4.2-class"),
        pytest.param({"metadata.labels": {"l": "2"}}, False, id="4.2-labels"),
        pytest.param({"metadata.resourceVersion": "2"}, False, id="4.2-resourceVersion"),
        pytest.param({"status.loadBalancer.ingress": [{"ip": "192.0.2.7"}]}, False, id="4.2-status"),
        pytest.param({"spec.internalTrafficPolicy": "Local"}, False, id="4.2-internalTrafficPolicy"),
        pytest.param({"spec.allocateLoadBalancerNodePorts": False}, False, id="4.2-allocate"),
        pytest.param({"spec.publishNotReadyAddresses": True}, False, id="4.2-publishNotReady"),
        pytest.param({"metadata.finalizers": [rules.FINALIZER]}, False, id="4.2-our-own-finalizer"),
        pytest.param(
            {"metadata.finalizers": [rules.FINALIZER], "metadata.deletionTimestamp": "x"}, True, id="4.2-deletion"
        ),
    ],
)
def test_needs_update(changes, expected):
    assert rules.needs_update(changed({}), changed(changes), UNDECLARED) is expected


def test_needs_update_of_what_is_not_ours():
    cluster_ip = {"spec.type": "ClusterIP"}
    assert not rules.needs_update(changed(cluster_ip), changed(cluster_ip | {"spec.ports.0.port": 81}), UNDECLARED)
    assert rules.needs_update(changed(cluster_ip), changed({}), UNDECLARED)
    # Each resync of a Service that waits for its clean-up leads to a sync.
    waiting = cluster_ip | {"metadata.finalizers": [rules.FINALIZER]}
    assert rules.needs_update(changed(waiting), changed(waiting), UNDECLARED)


def test_load_balancer_spec_carries_everything():
    assert rules.load_balancer_spec(changed({"spec.loadBalancerIP": "192.0.2.9"}), "prod") == LoadBalancerSpec(
        cluster="prod",
        uid="1",
        namespace="shop",
        name="web",
        ports=(Port("http", "TCP", 80, 30080, "http"),),
        annotations={"a": "1"},
        ip_families=("IPv4",),
        source_ranges=("10.0.0.0/8", "192.0.2.0/24"),
        load_balancer_ip="192.0.2.9",
        session_affinity="ClientIP",
        session_affinity_timeout=60,
        external_traffic_policy="Local",
        health_check_node_port=31000,
    )


def test_load_balancer_spec_of_a_bare_service():
    spec = rules.load_balancer_spec(service({"ports": [{"port": 80}]}), "kubernetes")
    assert spec == LoadBalancerSpec("kubernetes", "6f0c7a3e-1", "shop", "web", ports=(Port("", "TCP", 80, 0),))


LONGEST = ":".join(["ffff"] * 6) + ":255.255.255.255"
TOO_BAD = [
    "0.0.0.0/33",
    "foo.bar",
    "foo.bar/24",
    "*",
    "10.0.0.1/32,",
    "10.0.0.1/32, ",
    "10.0.0.1",
    "fe80::1%eth0/64",
    LONGEST + "/0128",
]


@pytest.mark.parametrize("text", TOO_BAD)
@pytest.mark.parametrize("where", ["annotation", "field"])
def test_s132_bad_ranges(where, text):
    if where == "annotation":
        desired = service(annotations={rules.SOURCE_RANGES_ANNOTATION: text})
    else:
        desired = service({"loadBalancerSourceRanges": text.split(",")})
    place = "spec.loadBalancerSourceRanges" if where == "field" else f"annotation {rules.SOURCE_RANGES_ANNOTATION}"
    with pytest.raises(rules.ServiceRuleError) as caught:
        rules.source_ranges(desired)
    wrong = (text.strip() if where == "annotation" else text).split(",")[-1]
    assert str(caught.value).startswith(f"{place}: {wrong!r} is not a CIDR such as 10.0.0.0/8 (")
    with pytest.raises(rules.ServiceRuleError):
        rules.load_balancer_spec(desired, "c")


@pytest.mark.parametrize(
    ("field", "annotation", "expected"),
    [
        pytest.param(["10.0.0.0/8", "10.0.0.0/8", "10.1.2.3/8"], None, ("10.0.0.0/8",), id="S133"),
        pytest.param([], " 192.168.0.1/32 , 10.0.0.0/8 ", ("192.168.0.1/32", "10.0.0.0/8"), id="S134"),
        pytest.param([" 10.0.0.0/8 "], None, ("10.0.0.0/8",), id="S134-field"),
        pytest.param([], None, (), id="S135"),
        pytest.param([], "", (), id="S135-empty-annotation"),
        pytest.param([], "  ", (), id="S135-blank-annotation"),
        pytest.param(["0.0.0.0/0"], None, (), id="S135-said-outright"),
        pytest.param([], "192.168.0.0/0", (), id="S136"),
        pytest.param(["0.0.0.0/0", "2001:db8::/32"], None, ("0.0.0.0/0", "2001:db8::/32"), id="S136-both-families"),
        pytest.param(["0.0.0.0/0", "10.0.0.0/8"], None, (), id="S136-and-a-part-of-it"),
        pytest.param(["0.0.0.0/0", "::/0"], None, (), id="S136-everybody-of-both-families"),
        pytest.param(["::/0"], None, ("::/0",), id="S136-everybody-of-ipv6-alone"),
        pytest.param(["10.0.0.0/8"], "foo", ("10.0.0.0/8",), id="4.6-field-wins"),
        pytest.param([LONGEST + "/128"], None, (":".join(["ffff"] * 8) + "/128",), id="longest-spelling"),
    ],
)
def test_source_ranges(field, annotation, expected):
    annotations = {} if annotation is None else {rules.SOURCE_RANGES_ANNOTATION: annotation}
    found = rules.source_ranges(service({"loadBalancerSourceRanges": field}, annotations=annotations))
    assert found == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        ("192.0.2.9", "192.0.2.9"),
        ("2001:DB8:0::9", "2001:db8::9"),
        (LONGEST, ":".join(["ffff"] * 8)),
        ("::ffff:192.0.2.9", None),
        ("fe80::1%eth0", None),
        ("192.0.2.0/24", None),
        ("one", None),
        ("1" * 5000, None),
    ],
)
def test_load_balancer_ip(text, expected):
    desired = service({"loadBalancerIP": text})
    if expected is not None:
        assert rules.load_balancer_ip(desired) == expected
    else:
        with pytest.raises(rules.ServiceRuleError, match=r"spec\.loadBalancerIP: .* is not an IP address"):
            rules.load_balancer_ip(desired)


def test_the_most_ports_and_source_ranges_of_one_service():
    ports = [{"port": number + 1} for number in range(limits.PORTS)]
    assert len(rules.load_balancer_spec(service({"ports": ports}), "c").ports) == limits.PORTS
    with pytest.raises(rules.ServiceRuleError, match="more than 250 ports"):
        rules.load_balancer_spec(service({"ports": [*ports, {"port": 999}]}), "c")
    ranges = [f"10.0.{number // 256}.{number % 256}/32" for number in range(limits.SOURCE_RANGES)]
    assert len(rules.source_ranges(service({"loadBalancerSourceRanges": ranges}))) == limits.SOURCE_RANGES
    with pytest.raises(rules.ServiceRuleError, match="more than 1000 CIDRs"):
        rules.source_ranges(service({"loadBalancerSourceRanges": [*ranges, "10.1.0.0/32"]}))


def owns(provider_id):
    return provider_id.startswith("fake://")


judge = believing(owns)


def node(name="node0", *, provider_id="fake://1", labels=None, taints=(), ready="True", conditions=(), **metadata):
    ready_condition = [] if ready is None else [{"type": "Ready", "status": ready}]
    return msgspec.convert(
        {
            "metadata": {"name": name, "labels": labels or {}, **metadata},
            "spec": {"providerID": provider_id, "taints": list(taints)},
            "status": {
                "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}, {"type": "Else", "address": "x"}],
                "conditions": ready_condition + list(conditions),
            },
        },
        Node,
    )


AUTOSCALER = {"key": drain_rules.AUTOSCALER_TAINT, "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        # Differs (W18): upstream's list, which only its tests use, accepts Nodes without a providerID. With them, each
        # new Node would cause two updates.
        pytest.param({"provider_id": ""}, False, id="S77-without-providerID-differs"),
        pytest.param({"provider_id": "other://1"}, False, id="S77-foreign-providerID-differs"),
        pytest.param({}, True, id="S77-ready"),
        # Differs from S77, as upstream itself does since KEP-3458: the cloud's health checks find who is ready.
        pytest.param({"ready": "False"}, True, id="S77-not-ready-differs"),
        pytest.param({"ready": None}, True, id="S77-no-condition-differs"),
        pytest.param({"labels": {backend_rules.EXCLUDE_LABEL: ""}}, False, id="S77-exclude-empty"),
        pytest.param({"labels": {backend_rules.EXCLUDE_LABEL: "true"}}, False, id="S77-exclude-true"),
        pytest.param({"labels": {backend_rules.EXCLUDE_LABEL: "foo"}}, False, id="S77-exclude-foo"),
        pytest.param({"labels": {backend_rules.EXCLUDE_LABEL: "false"}}, True, id="S77-exclude-false"),
        pytest.param({"labels": {backend_rules.EXCLUDE_LABEL: "0"}}, True, id="4.4-exclude-0"),
        pytest.param({"labels": {backend_rules.EXCLUDE_LABEL: "fAlse"}}, False, id="4.4-exclude-unparsable"),
        pytest.param({"taints": [AUTOSCALER]}, False, id="S77-autoscaler-S20"),
        pytest.param({"taints": [{"key": "else", "effect": "NoSchedule"}]}, True, id="S25-other-taint"),
        pytest.param({"deletionTimestamp": "2026-01-01T00:00:00Z"}, False, id="S24-going"),
    ],
)
def test_is_backend(fields, expected):
    assert backend_rules.is_backend(node(**fields), judge) is expected


@pytest.mark.parametrize(
    ("owned", "expected"),
    [
        pytest.param("abc", ["a", "b", "c"], id="S78"),
        pytest.param("ac", ["a", "c"], id="S79"),
        pytest.param("", [], id="S80"),
    ],
)
def test_backends_are_chosen_and_sorted(owned, expected):
    nodes = [node(name, provider_id=f"fake://{name}") for name in "cab"]
    found = backend_rules.backends(nodes, believing(lambda provider_id: provider_id[-1:] in owned))
    assert [backend.node_name for backend in found] == expected


def test_a_backend_has_the_nodes_known_addresses():
    assert backend_rules.backends([node()], judge) == (
        Backend("node0", "fake://1", (Address(AddressType.INTERNAL_IP, "10.0.0.1"),)),
    )
    assert backend_rules.backends([node()], judge)[0].internal_ip == "10.0.0.1"
    assert Backend("n", "fake://1", (Address(AddressType.EXTERNAL_IP, "192.0.2.1"),)).internal_ip is None


EXCLUDED = {"labels": {backend_rules.EXCLUDE_LABEL: ""}}
TAINTED = {"taints": [{"key": "else", "effect": "NoSchedule"}]}
PRESSURE = {"conditions": [{"type": "DiskPressure", "status": "True"}]}


CORDONED = drain_rules.Mode.CORDONED


def shapes(nodes, **options):
    """Return the backends of each kind of load balancer: the Nodes' names, with a minus sign if they drain."""
    sets = backend_rules.backend_sets(nodes, judge, **options)
    return [
        " ".join(("-" if each.draining else "") + each.node_name for each in found)
        for found in (sets.undrained, sets.cluster, sets.local)
    ]


def test_each_kind_of_load_balancer_gets_its_nodes():
    going = node("a", taints=[AUTOSCALER])
    spot = node("b", taints=[{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}])
    nodes = [node("c"), spot, going]
    assert shapes(nodes) == ["b c"] * 3, "as upstream"
    assert shapes(nodes, drains=CORDONED) == ["b c", "-a -b c", "-a b c"]
    assert shapes([going, spot], drains=CORDONED) == ["b", "a b", "-a b"], "never the last one"
    assert shapes([going], drains=CORDONED) == ["", "a", "a"]
    out = node("d", labels={backend_rules.EXCLUDE_LABEL: ""}, taints=[AUTOSCALER])
    assert shapes([*nodes, out], drains=CORDONED) == shapes(nodes, drains=CORDONED)


def test_readiness_does_not_take_a_draining_node_out():
    down = node("a", ready="False", taints=[AUTOSCALER])
    options = {"ready_only": True, "drains": CORDONED}
    assert shapes([down, node("b"), node("c", ready="False")], **options) == ["b", "-a b", "-a b"]
    assert shapes([down, node("c", ready="False")], **options) == ["c", "-a c", "-a c"], "unless none is Ready"


def test_equal_sets_stay_the_same_objects():
    calm = backend_rules.backend_sets([node("a"), node("b")], judge, drains=CORDONED)
    assert calm.undrained is calm.cluster is calm.local
    again = backend_rules.backend_sets([node("a"), node("b")], judge, drains=CORDONED).or_same(calm)
    assert again.cluster is calm.cluster
    other = [node("a"), node("b", labels={"x": "y"})]
    assert backend_rules.backend_sets(other, judge, drains=CORDONED).or_same(calm).cluster is not calm.cluster
    spot = node("b", taints=[{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}])
    moved = backend_rules.backend_sets([node("a"), spot], judge, drains=CORDONED).or_same(calm)
    assert moved.undrained is moved.local is calm.local and moved.cluster is not calm.cluster


@pytest.mark.parametrize(
    ("old", "new", "alike"),
    [
        ({}, {"taints": [{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]}, False),
        ({"taints": [AUTOSCALER]}, {"taints": [AUTOSCALER, {"key": "karpenter.sh/disrupted"}]}, True),
        ({"taints": [AUTOSCALER]}, {"taints": [AUTOSCALER], "deletionTimestamp": "2026-01-01T00:00:00Z"}, True),
        (EXCLUDED, EXCLUDED | {"taints": [AUTOSCALER]}, True),
        ({}, {"ready": "False"}, True),
    ],
)
def test_which_changes_of_a_node_change_what_drains(old, new, alike):
    assert backend_rules.serves_alike(node(**old), node(**new), judge, drains=CORDONED) is alike
    assert backend_rules.serves_alike(None, node(**new), judge, drains=CORDONED) is ("labels" in new)


@pytest.mark.parametrize(
    ("old", "new", "relevant"),
    [
        pytest.param({}, EXCLUDED, True, id="S81-exclude-F-T"),
        pytest.param(EXCLUDED, {}, True, id="S82-exclude-T-F"),
        pytest.param({"provider_id": ""}, {}, True, id="S83-S100-providerID-set"),
        pytest.param({}, {"provider_id": ""}, True, id="S84-providerID-unset"),
        pytest.param({}, {"provider_id": "fake://2"}, True, id="S85-providerID-changed"),
        pytest.param({}, {}, False, id="S86-nothing"),
        pytest.param(EXCLUDED, {"labels": {backend_rules.EXCLUDE_LABEL: "true"}}, False, id="S87-exclude-T-T"),
        pytest.param({}, TAINTED, False, id="S88-other-taint-added"),
        pytest.param(TAINTED, {}, False, id="S89-other-taint-removed"),
        pytest.param({}, {"labels": {"a": "b"}}, False, id="S90-other-label-added"),
        pytest.param({"labels": {"a": "b"}}, {}, False, id="S91-other-label-removed"),
        pytest.param({"ready": "False"}, {"ready": "False"}, False, id="S92-readiness-F-F"),
        pytest.param({"ready": "False"}, {"ready": None}, False, id="S93-readiness-F-unset"),
        pytest.param({"ready": None}, {"ready": "False"}, False, id="S94-readiness-unset-F"),
        pytest.param({"ready": None}, {"ready": None}, False, id="S95-readiness-unset"),
        pytest.param({"ready": "True"}, {"ready": "False"}, False, id="S19-readiness-T-F"),
        pytest.param({}, PRESSURE, False, id="S96-other-condition-added"),
        pytest.param(PRESSURE, {}, False, id="S97-other-condition-removed"),
        pytest.param({"ready": "False"}, {"ready": "False"} | PRESSURE, False, id="S98-condition-added-not-ready"),
        pytest.param({"ready": "False"} | PRESSURE, {"ready": "False"}, False, id="S99-condition-removed-not-ready"),
        pytest.param(
            PRESSURE,
            {"conditions": [{"type": "DiskPressure", "status": "False"}]},
            False,
            id="other-condition-changed",
        ),
        # Differs (W18): these changes alone start no sync upstream. They count at the next sync with another cause.
        pytest.param({}, {"deletionTimestamp": "2026-01-01T00:00:00Z"}, True, id="S101-deletion-differs"),
        pytest.param({}, {"taints": [AUTOSCALER]}, True, id="S20-autoscaler-differs"),
        # Two conditions at once: a Node that is not a backend causes nothing, whatever else changes.
        pytest.param(EXCLUDED, EXCLUDED | {"taints": [AUTOSCALER]}, False, id="S109-excluded-stays-out"),
        pytest.param({"taints": [AUTOSCALER]}, {"taints": [AUTOSCALER]} | EXCLUDED, False, id="S102-differs"),
        pytest.param({"provider_id": ""}, {"provider_id": ""} | EXCLUDED, False, id="S123-differs"),
        pytest.param({"ready": "False"}, {"ready": "False"} | EXCLUDED, True, id="S118-not-ready-excluded"),
    ],
)
def test_which_changes_of_a_node_change_its_backends(old, new, relevant):
    assert (backend_rules.backends([node(**old)], judge) != backend_rules.backends([node(**new)], judge)) is relevant
    assert backend_rules.serves_alike(node(**old), node(**new), judge) is not relevant


def test_a_node_that_comes_or_goes_changes_backends_if_it_is_one():
    for one, alike in ((node(), False), (node(**EXCLUDED), True), (node(provider_id=""), True)):
        assert backend_rules.serves_alike(None, one, judge) is backend_rules.serves_alike(one, None, judge) is alike


def test_readiness_counts_only_when_asked_for():
    up, down = node("a"), node("b", ready="False")
    assert [backend.node_name for backend in backend_rules.backends([up, down], judge)] == ["a", "b"]
    assert [backend.node_name for backend in backend_rules.backends([up, down], judge, ready_only=True)] == ["a"]
    assert [backend.node_name for backend in backend_rules.backends([down], judge, ready_only=True)] == ["b"]
    assert not backend_rules.serves_alike(node(), node(ready="False"), judge, ready_only=True)
    assert backend_rules.serves_alike(node(), node(), judge, ready_only=True)


@pytest.mark.parametrize(
    ("kind", "policy", "expected"),
    [
        pytest.param("", "", False, id="S137-no-type"),
        pytest.param("ClusterIP", "", False, id="S138-cluster-ip"),
        pytest.param("NodePort", "", False, id="S139-node-port-default"),
        pytest.param("NodePort", "Cluster", False, id="S140-node-port-cluster"),
        pytest.param("NodePort", "Local", True, id="S141-node-port-local"),
        pytest.param("LoadBalancer", "", False, id="load-balancer-default"),
        pytest.param("LoadBalancer", "Cluster", False, id="S142-load-balancer-cluster"),
        pytest.param("LoadBalancer", "Local", True, id="S143-load-balancer-local"),
    ],
)
def test_requests_only_local_traffic(kind, policy, expected):
    desired = service({"type": kind, "externalTrafficPolicy": policy})
    assert rules.requests_only_local_traffic(desired) is expected


@pytest.mark.parametrize(
    ("kind", "policy", "expected"),
    [
        pytest.param("ClusterIP", "", ("", 0), id="S144-cluster-ip"),
        pytest.param("NodePort", "Cluster", ("", 0), id="S145-node-port-cluster"),
        pytest.param("NodePort", "Local", ("", 0), id="S146-node-port-local"),
        pytest.param("LoadBalancer", "", ("", 0), id="load-balancer-default"),
        pytest.param("LoadBalancer", "Cluster", ("", 0), id="S147-load-balancer-cluster"),
        pytest.param("LoadBalancer", "Local", ("/healthz", 31000), id="S148-load-balancer-local"),
    ],
)
def test_health_check(kind, policy, expected):
    desired = service({"type": kind, "externalTrafficPolicy": policy, "healthCheckNodePort": 31000})
    assert rules.health_check(desired) == expected
    assert rules.load_balancer_spec(desired, "c").health_check_node_port == expected[1]


def test_a_message_names_twenty_nodes():
    many = tuple(Backend(f"n{number}", "fake://x") for number in range(21))
    assert rules.some_names(many[:2]) == "[n0, n1]"
    assert rules.some_names(many[:20]).endswith("n19]")
    assert rules.some_names(many).endswith("n19, ... (21 in total)]")


CHANGES = st.dictionaries(
    st.sampled_from(
        [
            "spec.type",
            "spec.loadBalancerClass",
            "spec.sessionAffinity",
            "spec.loadBalancerIP",
            "metadata.uid",
            "metadata.resourceVersion",
            "spec.internalTrafficPolicy",
        ]
    ),
    st.sampled_from(["LoadBalancer", "ClusterIP", "NodePort", "x", ""]),
    max_size=3,
)
FINALIZERS = st.lists(st.sampled_from([rules.FINALIZER, "a/b"]), unique=True)


@given(before=CHANGES, after=CHANGES, had=FINALIZERS, has=FINALIZERS)
def test_needs_update_is_the_same_from_both_sides_and_misses_nothing(before, after, had, has):
    old, new = (changed(c | {"metadata.finalizers": f}) for c, f in ((before, had), (after, has)))
    assert not rules.needs_update(old, old, UNDECLARED) or rules.needs_cleanup(old)
    if UNDECLARED.include(old) != UNDECLARED.include(new):
        assert rules.needs_update(old, new, UNDECLARED) and rules.needs_update(new, old, UNDECLARED)
    if rules.concerns_us(new, UNDECLARED) and not rules.needs_update(old, new, UNDECLARED):
        assert spec_or_problem(old) == spec_or_problem(new)


def spec_or_problem(desired):
    try:
        return rules.load_balancer_spec(desired, "c")
    except rules.ServiceRuleError as error:
        return str(error)


def entries(*documents):
    return msgspec.convert(list(documents), list[IngressEntry])


IP, NAME = Ingress(ip="192.0.2.1"), Ingress(hostname="lb.example")
PORTS = Ingress(ip="192.0.2.1", ports=(IngressPort(80, "TCP"), IngressPort(81, "UDP", "example.com/busy")))
PORTS_WIRE = [{"port": 80, "protocol": "TCP"}, {"port": 81, "protocol": "UDP", "error": "example.com/busy"}]


@pytest.mark.parametrize(
    ("ingress", "wire"),
    [
        ([], []),
        ([IP], [{"ip": "192.0.2.1", "ipMode": "VIP"}]),
        ([Ingress(ip="192.0.2.1", ip_mode="Proxy")], [{"ip": "192.0.2.1", "ipMode": "Proxy"}]),
        ([NAME, IP], [{"hostname": "lb.example"}, {"ip": "192.0.2.1", "ipMode": "VIP"}]),
        ([Ingress(hostname="lb.example", ip_mode="Proxy")], [{"hostname": "lb.example"}]),
        ([PORTS], [{"ip": "192.0.2.1", "ipMode": "VIP", "ports": PORTS_WIRE}]),
    ],
)
def test_ingress_wire(ingress, wire):
    assert rules.ingress_wire(ingress) == wire
    # The status that the API server returns counts as the same, so it is not written twice (W20).
    assert rules.same_ingress(entries(*wire), wire)


@pytest.mark.parametrize(
    ("current", "wanted", "same"),
    [
        pytest.param([], [], True, id="S152-S75-empty"),
        pytest.param([{"ip": "192.0.2.1", "ipMode": "VIP"}], [IP], True, id="S152-S73-ip"),
        pytest.param([{"ip": "192.0.2.2", "ipMode": "VIP"}], [IP], False, id="S152-S74-ip-differs"),
        pytest.param([], [IP], False, id="S152-S74-new"),
        pytest.param([{"ip": "192.0.2.1"}], [], False, id="S152-S76-clear"),
        # Differs (W20): a missing mode equals the default mode.
        pytest.param([{"ip": "192.0.2.1"}], [IP], True, id="S152-ipMode-default-differs"),
        pytest.param([{"ip": "192.0.2.1", "ipMode": "Proxy"}], [IP], False, id="S152-ipMode"),
        pytest.param([{"ip": "192.0.2.1", "ports": PORTS_WIRE}], [PORTS], True, id="S152-ports"),
        pytest.param([{"ip": "192.0.2.1", "ports": PORTS_WIRE[:1]}], [PORTS], False, id="S152-ports-differ"),
        pytest.param([{"ip": "192.0.2.1", "ports": PORTS_WIRE}], [IP], False, id="S152-ports-go"),
        pytest.param([{"hostname": "lb.example"}], [NAME], True, id="S152-hostname"),
        pytest.param([{"hostname": "other.example"}], [NAME], False, id="S152-hostname-differs"),
        pytest.param([{"ip": "192.0.2.1"}, {"hostname": "lb.example"}], [NAME, IP], False, id="S152-order"),
    ],
)
def test_same_ingress(current, wanted, same):
    assert rules.same_ingress(entries(*current), rules.ingress_wire(wanted)) is same


def test_default_name():
    spec = rules.load_balancer_spec(service(uid="6f0c7a3e-1111-2222-3333-444455556666"), "c")
    assert spec.default_name == "a6f0c7a3e111122223333444455556666"[:32]
    assert len(spec.default_name) == 32


def test_a_spec_has_the_addresses_of_the_status_but_equality_ignores_them() -> None:
    """Providers that store nothing use the addresses of the status. Equality and repr, on which fingerprints depend,
    ignore them.
    """
    before = rules.load_balancer_spec(changed({"status": {}}), "c")
    after = rules.load_balancer_spec(changed({"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}}), "c")
    assert [entry.ip for entry in after.ingress] == ["192.0.2.1"]
    assert before == after and repr(before) == repr(after)


@pytest.mark.parametrize(
    ("addresses", "warns"),
    [
        (["10.0.0.1"], True),
        (["10.0.0.1", ""], False),  # the second one's addresses are unknown
        (["10.0.0.1", "fd00::1"], False),
        (["fd00::1"], False),
        ([], False),
        (["", ""], False),
    ],
)
def test_a_service_without_a_backend_of_its_family_is_warned(addresses: list[str], warns: bool):
    backends = [
        Backend(f"n{number}", "fake://1", (Address(AddressType.INTERNAL_IP, each),) if each else ())
        for number, each in enumerate(addresses)
    ]
    spec = LoadBalancerSpec("prod", "u1", "shop", "web", ports=(), ip_families=("IPv6",))
    assert bool(rules.without_family(spec, Backends(backends))) is warns


@pytest.mark.parametrize(("load_balancer_class", "ours", "ingress", "finalizers"), [
    ("", [Ingress(ip="192.0.2.1")], None, None),
    ("theirs", [Ingress(ip="192.0.2.1")], [{"hostname": "lb.example.com"}], "kept"),
    ("theirs", [Ingress(hostname="lb.example.com")], [{"ip": "192.0.2.1", "ipMode": "VIP"}], "kept"),
    ("theirs", [Ingress(ip="192.0.2.1"), Ingress(hostname="lb.example.com")], None, None),
    ("theirs", [], "kept", "kept"),
])  # fmt: skip
def test_a_release_leaves_another_controllers_addresses(load_balancer_class, ours, ingress, finalizers):
    document = {
        "metadata": {"name": "web", "uid": "u", "finalizers": [rules.FINALIZER], "resourceVersion": "7"},
        "spec": {"type": "LoadBalancer"} | ({"loadBalancerClass": load_balancer_class} if load_balancer_class else {}),
        "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}, {"hostname": "lb.example.com"}]}},
    }
    patch = rules.release_patch(msgspec.convert(document, Service), ours, ServedClasses(frozenset({"mine"})))
    status = {"loadBalancer": {"ingress": ingress} if ingress else None}
    released = {} if finalizers == "kept" else {"metadata": {"finalizers": None, "resourceVersion": "7"}}
    assert patch == ({} if ingress == "kept" else {"status": status}) | released
