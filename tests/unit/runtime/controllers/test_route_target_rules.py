# SPDX-License-Identifier: Apache-2.0
"""Routes that the cloud lists with addresses instead of a providerID are matched to Nodes."""

import ipaddress

import msgspec
import pytest

from ccm.cloud import Address, AddressType, Instance, Route
from ccm.controllers.nodes.vouching_rules import Reason, Refused, judge
from ccm.controllers.routes import route_rules as rules
from ccm.controllers.shared import pod_network_rules
from ccm.engine.objects import Node

A4, B4, C4 = "10.120.0.0/24", "10.120.1.0/24", "10.120.2.0/24"
NETWORK = pod_network_rules.PodNetwork([ipaddress.ip_network("10.120.0.0/16")], {4: 24})


def node(name, *pod_cidrs):
    spec = {"providerID": f"fake://{name}", "podCIDRs": list(pod_cidrs)}
    return msgspec.convert({"metadata": {"name": name}, "spec": spec}, Node)


A, B = node("a", A4), node("b", B4)


def to(destination, *addresses, **fields):
    return Route(destination, "", id=f"r-{destination}", target_addresses=addresses, **fields)


def knowing(**known):
    """Return a judge. `known`: name of a Node -> its instance's addresses, or the Reason why the Node is not vouched
    for."""

    def verdict(node):
        said = known[node.metadata.name]
        if isinstance(said, Reason):
            return Refused(said, "not its machine")
        addresses = tuple(Address(AddressType.INTERNAL_IP, ip) for ip in said)
        status = {"addresses": [{"type": "InternalIP", "address": ip} for ip in said]}
        told = msgspec.structs.replace(node, status=msgspec.convert(status, NODE_STATUS))
        return judge(told, Instance(node.spec.provider_id, node.metadata.name, addresses=addresses), (), ())

    return verdict


NODE_STATUS = type(A.status)
BOTH = {"a": ["10.0.0.1"], "b": ["10.0.0.2", "fd00::2"]}


def planned(nodes, routes, owner="", **known):
    return rules.plan(nodes, routes, NETWORK, knowing(**(known or BOTH)), owner)


def created(plan):
    return [(node.metadata.name, route.destination) for node, route in plan.create]


def all_going(plan):
    return [route.destination for route in plan.delete] + [each.route.destination for each in plan.unclaimed]


@pytest.mark.parametrize("address", ["10.0.0.2", "fd00::2", "FD00:0::2"])
def test_a_route_to_an_address_of_the_nodes_instance_is_the_nodes(address):
    plan = planned([A, B], [to(A4, "10.0.0.1"), to(B4, address)])
    assert (created(plan), all_going(plan), plan.problems) == ([], [], [])
    assert plan.targets == {"fake://a", "fake://b"}


def test_a_route_to_another_nodes_address_is_replaced():
    plan = planned([A, B], [to(A4, "10.0.0.1"), to(B4, "10.0.0.1")])
    assert created(plan) == [("b", B4)]
    assert all_going(plan) == [B4]
    (removal,) = plan.unclaimed
    assert (removal.route.provider_id, removal.holder, removal.claimant) == ("fake://a", A, B)


def test_a_route_whose_addresses_are_of_two_machines_is_nobodys():
    plan = planned([A, B], [to(A4, "10.0.0.1"), to(B4, "10.0.0.1", "10.0.0.2")])
    assert created(plan) == [("b", B4)] and all_going(plan) == [B4]


def test_a_route_to_an_unknown_address_leads_nowhere_once_all_nodes_are_known():
    plan = planned([A, B], [to(A4, "10.0.0.1"), to(B4, "10.0.0.99")])
    assert created(plan) == [("b", B4)]
    assert [route.destination for route in plan.delete] == [B4]


@pytest.mark.parametrize(
    "of_c",
    [
        pytest.param(Reason.CLOUD_UNKNOWN, id="the cloud has not answered about a Node"),
        pytest.param([], id="the cloud names no addresses of a Node"),
    ],
)
def test_while_not_all_addresses_are_known_it_is_neither_deleted_nor_replaced(of_c):
    plan = planned([A, B, node("c", C4)], [to(B4, "10.0.0.99"), to(A4, "10.0.0.1")], **BOTH, c=of_c)
    assert all_going(plan) == []
    assert ("b", B4) not in created(plan)
    assert any(each is B and "10.0.0.99" in text for each, text in plan.problems)


@pytest.mark.parametrize("reason", [Reason.CLOUD_UNKNOWN, Reason.SAME_PROVIDER_ID, Reason.INSTANCE_NOT_FOUND])
def test_a_node_that_gets_no_new_route_keeps_the_one_to_its_cidr(reason):
    plan = planned([A, B], [to(A4, "10.0.0.1"), to(B4, "10.0.0.99")], a=["10.0.0.1"], b=reason)
    assert (created(plan), all_going(plan)) == ([], [])
    assert [each.metadata.name for each, _ in plan.kept] == ["b"]


def test_a_node_that_gets_no_new_route_does_not_keep_one_that_leads_to_another_machine_as_well():
    routes = [to(A4, "10.0.0.1"), to(B4, "10.0.0.1", "10.0.0.99")]
    plan = planned([A, B], routes, a=["10.0.0.1"], b=Reason.INSTANCE_NOT_FOUND)
    assert all_going(plan) == [B4]


def test_an_address_that_two_nodes_have_is_decided_by_the_cidr():
    """For example, both Nodes have a virtual address that moves between machines."""
    shared = {"a": ["10.0.0.1", "10.0.0.50"], "b": ["10.0.0.2", "10.0.0.50"]}
    plan = planned([A, B], [to(B4, "10.0.0.50"), to(A4, "10.0.0.1")], **shared)
    assert (created(plan), all_going(plan), plan.problems) == ([], [], [])
    assert plan.targets == {"fake://a", "fake://b"}


def test_an_address_that_two_nodes_have_and_whose_cidr_nobody_wants_is_left_alone():
    shared = {"a": ["10.0.0.1", "10.0.0.50"], "b": ["10.0.0.2", "10.0.0.50"]}
    plan = planned([A, B], [to(C4, "10.0.0.50"), to(A4, "10.0.0.1"), to(B4, "10.0.0.2")], **shared)
    assert (created(plan), all_going(plan)) == ([], [])


def test_blackholes_and_routes_without_addresses_are_as_before():
    nowhere, hole = Route(A4, ""), to(B4, "10.0.0.2", blackhole=True)
    plan = planned([A, B], [nowhere, hole])
    assert plan.delete == [nowhere, hole] and created(plan) == [("a", A4), ("b", B4)]


def test_a_route_that_names_its_instance_is_not_matched_by_addresses():
    named = Route(A4, "fake://a", target_addresses=("10.0.0.1",))
    plan = planned([A, B], [named, to(B4, "10.0.0.2")])
    assert (created(plan), all_going(plan)) == ([], [])


def test_a_route_of_another_cluster_is_not_touched():
    plan = planned([A, B], [to(A4, "10.0.0.1"), to(C4, "10.0.0.99", owner="other"), to(B4, "10.0.0.2")], owner="ours")
    assert (created(plan), all_going(plan)) == ([], [])
