# SPDX-License-Identifier: Apache-2.0
"""What the lifecycle controller learns from listings that others asked for."""

import pytest

from ccm.controllers.nodes.node_witness import Witnesses
from ccm.engine.objects import Node, NodeCondition, NodeSpec, NodeStatus, ObjectMeta
from ccm.gateway.instance_snapshot import Snapshot

from .nodes_harness import machine


def node(name, provider_id="", *, ready=True):
    return Node(
        metadata=ObjectMeta(name=name, uid=f"uid-{name}"),
        spec=NodeSpec(provider_id=provider_id),
        status=NodeStatus(conditions=[NodeCondition(type="Ready", status="True" if ready else "Unknown")]),
    )


def listing(began, *names):
    return Snapshot.of([machine(name) for name in names], began, 1)


@pytest.fixture
def witnesses():
    return Witnesses(lambda node: node.spec.provider_id.startswith("fake://"))


def test_a_node_that_got_its_provider_id_after_the_listing_was_made(witnesses):
    made = listing(10.0, "n0", "n1")
    witnesses.overhear([node("n0", "fake://n0"), node("n1")], made)
    assert witnesses.last_seen("uid-n1", "fake://n1") is None
    witnesses.overhear([node("n0", "fake://n0"), node("n1", "fake://n1")], made)
    assert witnesses.last_seen("uid-n1", "fake://n1") == 10.0


def test_what_is_overheard_costs_something_only_when_it_is_new(witnesses):
    asked = []
    witnesses._is_ours = lambda node: not asked.append(node.metadata.name)
    nodes = [node("n0", "fake://n0"), node("foreign", "other://1"), node("unidentified")]
    for began in (10.0, 10.0, 5.0, 20.0):
        witnesses.overhear(nodes, listing(began, "n0"))
    witnesses.overhear(nodes, None)
    assert asked == ["n0", "foreign"] * 2


def test_an_older_listing_changes_nothing(witnesses):
    nodes = [node("n0", "fake://n0"), node("n1", "fake://n1")]
    witnesses.hear(nodes, listing(20.0, "n0", "n1"))
    told = witnesses.hear(nodes, listing(10.0, "n0"))
    assert (told.listed, [each.since for each in told.absent.values()]) == (1, [None])
    assert witnesses.last_seen("uid-n1", "fake://n1") == 20.0


def test_what_a_listing_cannot_say_is_no_evidence(witnesses):
    """No evidence: another spelling of a providerID, another provider's Node, an empty or a partly unusable listing."""
    told = witnesses.hear([node("n0", "fake://N0"), node("n1", "other://n1")], listing(10.0, "n0"))
    assert (told.listed, told.absent) == (0, {})
    told = witnesses.hear([node("n0", "fake://n0")], listing(20.0))
    assert (told.listed, told.absent) == (0, {})
    told = witnesses.hear([node("n1", "fake://n1")], Snapshot.of([machine("n0")], 30.0, 1, unusable="junk"))
    assert (told.listed, told.absent) == (0, {})


def test_those_that_no_longer_exist_are_forgotten(witnesses):
    nodes = [node("n0", "fake://n0"), node("n1", "fake://n1")]
    witnesses.hear(nodes, listing(10.0, "n0", "n1"))
    witnesses.keep_only(nodes[1:])
    assert witnesses.last_seen("uid-n0", "fake://n0") is None and witnesses.last_seen("uid-n1", "fake://n1") == 10.0
