# SPDX-License-Identifier: Apache-2.0
"""What the cloud vouches for: a table of cases for each rule."""

import msgspec
import pytest

from ccm.cloud import Address, AddressType, Conflict, Instance, InstanceState, NotFound, Transient
from ccm.controllers.nodes import vouching_rules as rules
from ccm.controllers.nodes.vouching_rules import Reason, Refused, Vouched
from ccm.engine.objects import Node, NodeCondition

OLD, NEW = "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z"


def node(name="n", *addresses, provider_id="fake://n", created=OLD, labels=None):
    return msgspec.convert(
        {
            "metadata": {"name": name, "uid": f"uid-of-{name}", "creationTimestamp": created, "labels": labels or {}},
            "spec": {"providerID": provider_id},
            "status": {"addresses": [{"type": kind, "address": address} for kind, address in addresses]},
        },
        Node,
    )


def instance(name="n", *addresses, provider_id="fake://n", **fields):
    return Instance(provider_id, name, addresses=tuple(Address(AddressType(k), a) for k, a in addresses), **fields)


def internal(*ips):
    return [("InternalIP", ip) for ip in ips]


@pytest.mark.threat("kubelet-own-addresses-only")
@pytest.mark.parametrize(
    ("claimed", "named", "used", "ignored"),
    [
        pytest.param(internal("10.0.0.1"), internal("10.0.0.1"), internal("10.0.0.1"), (), id="its-own"),
        pytest.param(internal("10.0.0.9"), internal("10.0.0.1"), internal("10.0.0.1"), ("10.0.0.9",), id="invented"),
        pytest.param(
            internal("10.0.0.9", "10.0.0.1"),
            internal("10.0.0.1"),
            internal("10.0.0.1"),
            ("10.0.0.9",),
            id="one-of-them-invented",
        ),
        pytest.param(internal("10.0.0.2"), internal("10.0.0.1", "10.0.0.2"), internal("10.0.0.2"), (), id="node-ip"),
        pytest.param(internal("FD00:0::1"), internal("fd00::1"), internal("fd00::1"), (), id="spelling"),
        pytest.param(internal("10.0.0.001"), internal("10.0.0.1"), internal("10.0.0.1"), ("10.0.0.001",), id="no-ip"),
        pytest.param(internal("10.0.0.9"), [], internal("10.0.0.9"), (), id="the-cloud-names-none"),
        pytest.param([], internal("10.0.0.1"), [], (), id="none-yet"),
        pytest.param(
            [*internal("10.0.0.1"), ("ExternalIP", "192.0.2.9")],
            [*internal("10.0.0.1"), ("ExternalIP", "192.0.2.1")],
            internal("10.0.0.1"),
            ("192.0.2.9",),
            id="external",
        ),
        pytest.param(
            [("ExternalIP", "192.0.2.9"), ("Hostname", "n")],
            [*internal("10.0.0.1"), ("ExternalIP", "192.0.2.1")],
            [*internal("10.0.0.1"), ("ExternalIP", "192.0.2.1"), ("Hostname", "n")],
            ("192.0.2.9",),
            id="all-of-the-instance-when-none-is-left",
        ),
        pytest.param(
            [("Hostname", "N"), ("Hostname", "machine"), ("Hostname", "db.example.com"), ("InternalDNS", "n.internal")],
            [*internal("10.0.0.1"), ("InternalDNS", "n.internal")],
            [("Hostname", "N"), ("Hostname", "machine"), ("InternalDNS", "n.internal")],
            (),
            id="names",
        ),
        pytest.param([("ExternalDNS", "db.example.com")], internal("10.0.0.1"), [], (), id="dns-name-of-another"),
        pytest.param(
            internal("10.0.0.9"), [("InternalDNS", "n.internal")], internal("10.0.0.9"), (), id="the-cloud-names-no-ip"
        ),
        pytest.param([("CiliumInternalIP", "10.9.9.9")], internal("10.0.0.1"), [], (), id="unknown-type"),
    ],
)
def test_addresses(claimed, named, used, ignored):
    found = rules.judge(node("n", *claimed), instance("machine", *named), (), ())
    assert isinstance(found, Vouched)
    assert [(each.type.value, each.address) for each in found.addresses] == used
    assert found.ignored == ignored


@pytest.mark.threat("kubelet-own-addresses-only")
@pytest.mark.parametrize(
    ("me", "others", "name", "holder"),
    [
        pytest.param(node("n"), [], "n", "", id="alone"),
        pytest.param(node("n"), [], "another-name", "", id="alone-with-another-name"),
        pytest.param(node("n", created=NEW), [node("evil", created=OLD)], "n", "", id="the-name-decides"),
        pytest.param(node("evil", created=OLD), [node("n", created=NEW)], "n", "n", id="and-against-the-older"),
        pytest.param(node("a", created=OLD), [node("b", created=NEW)], "else", "", id="otherwise-the-older"),
        pytest.param(node("a", created=NEW), [node("b", created=OLD)], "else", "b", id="against-the-younger"),
        pytest.param(node("b"), [node("a"), node("c")], "else", "a", id="of-the-same-age-the-first"),
        pytest.param(node("n"), [node("n", created=NEW)], "n", "", id="itself-as-it-was"),
    ],
)
def test_one_machine_one_node(me, others, name, holder):
    found = rules.judge(me, instance(name), others, ())
    if holder:
        assert isinstance(found, Refused) and found.reason is Reason.SAME_PROVIDER_ID
        why = "has the instance's name" if holder == name else "is older"
        assert f"fake://n also belongs to node {holder}, which keeps it because it {why}" in found.message
    else:
        assert isinstance(found, Vouched)


@pytest.mark.threat("kubelet-own-addresses-only")
@pytest.mark.parametrize(
    ("known", "namesakes", "doubt", "reason"),
    [
        pytest.param(instance("n"), None, None, None, id="its-name-needs-no-question"),
        pytest.param(instance("else"), [], None, None, id="nobody-else-has-its-name"),
        pytest.param(
            instance("else"),
            [instance("n", provider_id="fake://2")],
            None,
            Reason.OTHER_MACHINE,
            id="somebody-else-has",
        ),
        pytest.param(instance("else"), None, None, Reason.CLOUD_UNKNOWN, id="not-asked-who-has"),
        pytest.param(None, [], None, Reason.CLOUD_UNKNOWN, id="not-asked"),
        pytest.param(None, [], Transient("down"), Reason.CLOUD_UNKNOWN, id="no-answer"),
        pytest.param(None, [], Conflict("two"), Reason.CLOUD_UNKNOWN, id="ambiguous"),
        pytest.param(None, [], NotFound("none"), Reason.INSTANCE_NOT_FOUND, id="not-there"),
    ],
)
def test_whose_machine_it_is(known, namesakes, doubt, reason):
    found = rules.judge(node("n"), known, (), namesakes, doubt)
    assert (found.reason if isinstance(found, Refused) else None) is reason
    if reason is not None:
        assert "fake://n" in found.message and str(doubt or "") in found.message


@pytest.mark.threat("kubelet-own-addresses-only")
def test_labels_of_the_cloud_are_the_instances_and_others_the_nodes():
    zone, old = "topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"
    kind, region = "node.kubernetes.io/instance-type", "topology.kubernetes.io/region"
    restricted = "node-restriction.kubernetes.io/tier"
    mine = {zone: "b", kind: "huge", region: "mine", "rack": "9", "team": "blue", restricted: "front"}
    labels = {"rack": "7", restricted: "back"}  # providers may not set labels in Kubernetes' domains
    found = rules.own_labels(mine, instance(zone="a", type="small", labels=labels))
    assert found == {zone: "a", kind: "small", region: "mine", "rack": "7", "team": "blue", restricted: "front"}
    assert rules.own_labels({old: "b"}, instance(zone="a")) == {old: "a", zone: "a"}


def test_right_labels_are_not_copied():
    labels = {"topology.kubernetes.io/zone": "a", "x": "y"}
    assert rules.own_labels(labels, instance(zone="a")) is labels


@pytest.mark.parametrize(
    ("listed", "ready", "expected"),
    [(0, 0, True), (1, 1, True), (0, 1, False), (1, 2, True), (1, 3, False), (2, 3, True), (50, 100, True)],
)
def test_a_first_listing_is_believed_with_half_of_the_ready_nodes(listed, ready, expected):
    assert rules.is_plausible(listed, ready) is expected


@pytest.mark.parametrize("gone_for", [None, rules.GONE_FOR])
def test_an_instance_that_was_not_just_reported_gone_may_get_a_node(gone_for):
    assert rules.former_machine(instance(), gone_for) == ""


@pytest.mark.parametrize("gone_for", [0.0, rules.GONE_FOR - 1])
def test_an_instance_that_was_just_reported_gone_gets_no_new_node(gone_for):
    message = rules.former_machine(instance(), gone_for)
    assert f"fake://n, which it reported gone {gone_for:.0f} s ago" in message and "120 s in all" in message


@pytest.mark.parametrize(
    ("ready", "state", "refused"),
    [
        (None, InstanceState.SHUTDOWN, False),  # the kubelet has not reported yet
        ("Unknown", InstanceState.SHUTDOWN, False),  # it registered, and its machine was then switched off
        ("False", InstanceState.RUNNING, False),
        ("True", InstanceState.RUNNING, False),
        ("False", InstanceState.SHUTDOWN, True),  # new Nodes are not Ready until they have a network
        ("True", InstanceState.SHUTDOWN, True),
        ("True", InstanceState.SUSPENDED, True),
    ],
)
def test_a_kubelet_that_runs_is_not_on_a_machine_that_does_not(ready, state, refused):
    conditions = [NodeCondition("Ready", ready)] if ready else []
    status = msgspec.structs.replace(node().status, conditions=conditions)
    new = msgspec.structs.replace(node(provider_id=""), status=status)
    found = rules.stopped_namesake(new, instance(state=state))
    assert (found is not None) is refused
    if found is not None:
        assert found.reason is Reason.OTHER_MACHINE
        assert f"fake://n, which has the Node's name, as {state.value}" in found.message
