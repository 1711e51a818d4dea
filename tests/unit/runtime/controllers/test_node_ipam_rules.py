# SPDX-License-Identifier: Apache-2.0
"""Which pod CIDRs Nodes get: no two Nodes get the same range, whatever other Nodes claim."""

from __future__ import annotations

import ipaddress
import random
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ccm.controllers.pod_cidrs import node_ipam_rules as rules
from ccm.controllers.pod_cidrs.node_ipam_rules import (
    Allocator,
    BlockRange,
    ManagerContainer,
    ManagerPod,
    ManagerPodSpec,
)
from ccm.controllers.shared.pod_network_rules import Network
from ccm.engine.objects import Node, NodeSpec, ObjectMeta

from ..fuzzing import bounded


def network(text: str) -> Network:
    return ipaddress.ip_network(text)


def node(name: str, *cidrs: str, **meta: Any) -> Node:
    return Node(
        ObjectMeta(name, uid=name, resource_version="7", **meta), NodeSpec("", cidrs[0] if cidrs else "", list(cidrs))
    )


def allocator(*cluster: str, v4: int = 26, v6: int = 64, services: tuple[str, ...] = ()) -> Allocator:
    return Allocator([network(each) for each in cluster], {4: v4, 6: v6}, [network(each) for each in services])


def test_each_node_gets_the_next_block_of_each_range():
    found = allocator("10.0.0.0/24", "fd00::/62")
    assert found.assign("a") == ("10.0.0.0/26", "fd00::/64")
    assert found.assign("b") == ("10.0.0.64/26", "fd00:0:0:1::/64")
    assert found.assign("a") == ("10.0.0.0/26", "fd00::/64")
    assert [each.used for each in found.ranges] == [2, 2] and [each.size for each in found.ranges] == [4, 4]


@pytest.mark.parametrize(("count", "ending"), [(1, "n0"), (5, "n4"), (6, "n4 and 1 more"), (8, "n4 and 3 more")])
def test_a_message_names_five_greedy_nodes(count: int, ending: str):
    found = allocator("10.0.0.0/24")
    for number in range(count):
        found.observe(node(f"n{number}", "10.0.0.0/24"))
    assert found.greedy() == ", ".join([*(f"n{number}" for number in range(min(count, 5) - 1)), ending])


def test_what_was_freed_is_used_last():
    found = allocator("10.0.0.0/24")
    assert [found.assign(each) for each in "ab"] == [("10.0.0.0/26",), ("10.0.0.64/26",)]
    assert found.release("a") and not found.release("a")
    assert [found.assign(each) for each in "cd"] == [("10.0.0.128/26",), ("10.0.0.192/26",)]
    assert found.assign("e") == ("10.0.0.0/26",)
    assert found.assign("f") is None and (found.exhausted(), found.greedy()) == ("10.0.0.0/24", "")
    found.release("b")
    assert found.assign("f") == ("10.0.0.64/26",)


def test_what_nodes_have_at_start_is_respected():
    found = allocator("10.0.0.0/24")
    assert found.observe(node("a", "10.0.0.0/26")) == set()
    assert found.observe(node("b", "10.0.0.100/32")) == set()
    assert (
        found.observe(node("far", "192.168.0.0/24"))
        == found.observe(node("none"))
        == found.observe(node("x", "odd"))
        == set()
    )
    assert found.assign("c") == ("10.0.0.128/26",)
    assert found.ranges[0].used == 3


def test_a_node_that_changes_its_cidr_frees_the_former_one():
    found = allocator("10.0.0.0/24")
    found.observe(node("a", "10.0.0.0/26"))
    found.observe(node("a", "10.0.0.64/26"))
    assert found.assign("b") == ("10.0.0.0/26",)


def test_an_assignment_becomes_what_the_node_has():
    found = allocator("10.0.0.0/24")
    found.assign("a")
    found.observe(node("a", "10.0.0.192/26"))
    assert found.assign("b") == ("10.0.0.64/26",)
    assert found.assign("c") == ("10.0.0.128/26",)
    assert found.assign("d") == ("10.0.0.0/26",)


def test_a_block_that_two_claim_is_free_only_without_both():
    found = allocator("10.0.0.0/25")
    assert found.observe(node("a", "10.0.0.0/26")) == set()
    assert found.observe(node("b", "10.0.0.0/26")) == {"a"}
    found.release("a")
    assert (found.assign("c"), found.assign("d")) == (("10.0.0.64/26",), None)
    found.release("b")
    assert found.assign("d") == ("10.0.0.0/26",)


def test_a_claim_of_many_blocks_is_respected_and_named():
    found = allocator("10.0.0.0/24")
    assert found.observe(node("wide", "10.0.0.0/25")) == set()
    assert found.observe(node("a", "10.0.0.64/26")) == {"wide"}
    assert found.observe(node("wider", "10.0.0.0/8")) == {"wide", "a"}
    assert found.assign("b") is None and found.ranges[0].used == 4
    found.release("wider")
    assert found.assign("b") == ("10.0.0.128/26",)


@pytest.mark.threat("kubelet-routes-inside-cluster-cidr")
def test_a_node_that_claims_a_whole_range_is_named():
    for claim in ("10.0.0.0/24", "10.0.0.0/8", "0.0.0.0/0"):
        found = allocator("10.0.0.0/24")
        found.observe(node("ordinary", "10.0.0.0/26"))
        found.observe(node("greedy", claim))
        assert found.assign("a") is None
        assert (found.exhausted(), found.greedy()) == ("10.0.0.0/24", "greedy")
        assert found.release(node("greedy").metadata.uid)
        assert found.greedy() == "" and found.assign("a") is not None


def test_the_largest_range_is_searched_quickly_beside_claims():
    found = allocator("10.0.0.0/10")
    found.observe(node("wide", "10.0.0.0/11"))
    assert found.assign("a") == ("10.32.0.0/26",)
    assert found.ranges[0].size == 2**16


def test_services_keep_their_range():
    found = allocator("10.0.0.0/24", services=("10.0.0.0/25", "fd00::/112"))
    assert (found.assign("a"), found.assign("b"), found.assign("c")) == (("10.0.0.128/26",), ("10.0.0.192/26",), None)
    assert found.observe(node("odd", "10.0.0.0/26")) == set()


def test_nothing_is_held_if_one_family_has_none():
    found = allocator("10.0.0.0/24", "fd00::/64")
    assert found.assign("a") == ("10.0.0.0/26", "fd00::/64")
    assert found.assign("b") is None and (found.exhausted(), found.greedy()) == ("fd00::/64", "")
    assert [each.used for each in found.ranges] == [1, 1]


def test_ranges_that_cannot_be_cut():
    with pytest.raises(ValueError, match="does not fit"):
        BlockRange(network("10.0.0.0/27"), 26)
    with pytest.raises(ValueError, match=r"more than 2\^16"):
        BlockRange(network("fd00::/40"), 64)
    assert BlockRange(network("10.0.0.0/26"), 26).size == 1
    assert BlockRange(network("fd00::/48"), 64).size == 2**16


def test_ranges_of_a_flag():
    assert rules.parse_ranges("--x", "") == ()
    assert rules.parse_ranges("--x", "10.0.0.1/24, fd00::/64") == (network("10.0.0.0/24"), network("fd00::/64"))
    with pytest.raises(ValueError, match=r"^--x: 'no'"):
        rules.parse_ranges("--x", "no")


def test_which_nodes_need_cidrs():
    assert rules.needs_cidrs(node("a"))
    assert not rules.needs_cidrs(node("a", "10.0.0.0/26"))
    assert not rules.needs_cidrs(Node(ObjectMeta("a"), NodeSpec(pod_cidr="10.0.0.0/26")))
    assert not rules.needs_cidrs(node("a", deletion_timestamp="2026-01-01T00:00:00Z"))
    assert rules.pod_networks(Node(ObjectMeta("a"), NodeSpec(pod_cidr="10.0.0.0/26"))) == (network("10.0.0.0/26"),)


def test_the_patch_is_for_what_was_looked_at():
    assert rules.patch(node("a"), ("10.0.0.0/26", "fd00::/64")) == {
        "metadata": {"uid": "a", "resourceVersion": "7"},
        "spec": {"podCIDR": "10.0.0.0/26", "podCIDRs": ["10.0.0.0/26", "fd00::/64"]},
    }


@pytest.mark.parametrize(
    ("arguments", "allocates"),
    [
        (["kube-controller-manager", "--allocate-node-cidrs=true"], True),
        (["kube-controller-manager", "--allocate-node-cidrs"], True),
        (["--allocate-node-cidrs=false"], False),
        (["kube-controller-manager"], False),
        (["--allocate-node-cidrs=true", "--controllers=*,-nodeipam"], False),
        (["--allocate-node-cidrs=true", "--controllers=*, -node-ipam-controller"], False),
        (["--allocate-node-cidrs=true", "--controllers=*,-route"], True),
        (["--allocate-node-cidrs=true", "--controllers=deployment,replicaset"], False),
        (["--allocate-node-cidrs=true", "--controllers=deployment,node-ipam-controller"], True),
        (["--allocate-node-cidrs=true", "--controllers=nodeipam"], True),
    ],
)
def test_another_allocator_is_seen(arguments, allocates):
    def pod(container: ManagerContainer) -> ManagerPod:
        return ManagerPod(ObjectMeta("kcm-1"), ManagerPodSpec([container]))

    expected = "kcm-1" if allocates else ""
    assert rules.other_allocator([pod(ManagerContainer(command=arguments))]) == expected
    assert rules.other_allocator([pod(ManagerContainer(["kube-controller-manager"], arguments))]) == expected
    assert rules.other_allocator([]) == ""


CIDRS = st.sampled_from(["10.0.0.0/28", "10.0.0.16/28", "10.0.0.48/28", "10.0.0.0/26", "10.0.0.33/32", "172.16.0.0/16"])
NAMES = st.sampled_from("abcdefgh")


class Cluster(RuleBasedStateMachine):
    """Nodes come, claim any range, and go: an assigned range never overlaps with another Node's."""

    def __init__(self) -> None:
        super().__init__()
        self.allocator = allocator("10.0.0.0/26", v4=28, services=("10.0.0.16/29",))
        self.claimed: dict[str, Network] = {}
        self.assigned: dict[str, Network] = {}

    @rule(name=NAMES, cidr=CIDRS)
    def claim(self, name: str, cidr: str) -> None:
        self.allocator.observe(node(name, cidr))
        self.assigned.pop(name, None)
        self.claimed[name] = network(cidr)

    @rule(name=NAMES)
    def assign(self, name: str) -> None:
        if name in self.claimed:
            return
        others = [*self.claimed.values(), *(each for key, each in self.assigned.items() if key != name)]
        found = self.allocator.assign(name)
        if found is None:
            blocks = network("10.0.0.0/26").subnets(new_prefix=28)
            taken = [*others, network("10.0.0.16/29")]
            assert all(any(block.overlaps(each) for each in taken) for block in blocks)
            return
        if name not in self.assigned:
            assert not any(network(found[0]).overlaps(each) for each in others)
        self.assigned[name] = network(found[0])

    @rule(name=NAMES)
    def go(self, name: str) -> None:
        self.allocator.release(name)
        self.claimed.pop(name, None)
        self.assigned.pop(name, None)

    @invariant()
    def no_two_have_one(self) -> None:
        values = list(self.assigned.values())
        assert len(set(values)) == len(values) and network("10.0.0.16/28") not in values


TestCluster = Cluster.TestCase
TestCluster.settings = bounded(100)


@pytest.mark.parametrize("seed", range(20))
def test_a_range_of_blocks_agrees_with_a_list_of_claims(seed: int):
    """Claims of one block and of several, in any order. `take` returns the next block without a claim."""
    rand, blocks = random.Random(seed), BlockRange(network("10.1.0.0/24"), 28)
    claims, following = set[tuple[str, int, int]](), 0

    def claim() -> tuple[str, int, int, Network]:
        prefix = rand.choice([24, 26, 27, 27, 28, 28, 28, 30])
        chosen = ipaddress.ip_interface(f"10.1.0.{rand.randrange(16) << 4}/{prefix}").network
        first, last = ((int(end) & 255) >> 4 for end in (chosen[0], chosen[-1]))
        return rand.choice("abc"), first, last, chosen

    for _ in range(60):
        holder, first, last, chosen = claim()
        match rand.choice(["hold", "free", "free", "take"]):
            case "hold" if (holder, first, last) not in claims and first + 8 > last:
                assert blocks.hold(holder, chosen) is (last > first)
                claims.add((holder, first, last))
            case "free":
                blocks.free(holder, chosen)
                claims.discard((holder, first, last))
            case "take":
                held = {number for _, begin, end in claims for number in range(begin, end + 1)}
                number = next((each % 16 for each in range(following, following + 16) if each % 16 not in held), None)
                assert blocks.take(holder) == (None if number is None else network(f"10.1.0.{number << 4}/28"))
                if number is not None:
                    claims.add((holder, number, number))
                    following = number + 1
        holder, first, last, chosen = claim()
        overlapping = {other for other, begin, end in claims if begin <= last and first <= end}
        assert blocks.others(holder, chosen) == overlapping - {holder}
        single = {begin for _, begin, end in claims if begin == end}
        wide = sum(end - begin + 1 for _, begin, end in claims if end > begin)
        assert blocks.used == min(len(single) + wide, 16)
