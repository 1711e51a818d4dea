# SPDX-License-Identifier: Apache-2.0
"""Routes in several tables: which ones lead to Nodes, and from which tables one is missing."""

from __future__ import annotations

from typing import Any

import pytest

from ccm.cloud import Route, Transient
from ccm.providers.aws import route_rules as rules
from ccm.providers.aws.route_rules import Entry

from .rows import interface, machine

POD = "10.244.1.0/24"
ZONES = {"i-0a1b2c3d": "eu-central-1a", "i-0b2": "eu-central-1b"}


def table(id: str, *routes: dict[str, Any]) -> dict[str, Any]:
    return {"RouteTableId": id, "Routes": list(routes)}


def to(instance: str = "i-0a1b2c3d", destination: str = POD, **more: str) -> dict[str, str]:
    return {"DestinationCidrBlock": destination, "InstanceId": instance, "State": "active", **more}


def listed(*tables: dict[str, Any], **interfaces: str) -> list[Route]:
    return rules.routes(rules.entries(tables), len(tables), ZONES, interfaces)


def test_a_route_in_all_tables_is_one_route():
    assert listed(table("rtb-2", to()), table("rtb-1", to())) == [
        Route(POD, "aws:///eu-central-1a/i-0a1b2c3d", id="rtb-1,rtb-2")
    ]


@pytest.mark.parametrize("target", sorted(rules.FOREIGN))
def test_routes_to_anything_else_are_left_out_also_as_blackholes(target):
    for state in ("active", "blackhole"):
        assert listed(table("rtb-1", {"DestinationCidrBlock": POD, target: "x-1", "State": state})) == []


def test_routes_without_a_cidr_are_left_out():
    route = {"DestinationPrefixListId": "pl-1", "InstanceId": "i-0a1b2c3d", "State": "active"}
    assert listed(table("rtb-1", route)) == []


def test_blackholes_and_routes_to_instances_that_are_gone():
    blackhole = {"DestinationCidrBlock": POD, "State": "blackhole"}
    assert listed(table("rtb-1", blackhole)) == [Route(POD, "", id="rtb-1", blackhole=True)]
    assert listed(table("rtb-1", to("i-0dead"))) == [Route(POD, "", id="rtb-1", blackhole=True)]
    assert listed(table("rtb-1", to(State="blackhole")), table("rtb-2")) == [Route(POD, "", id="rtb-1", blackhole=True)]


def test_a_route_that_one_table_lacks_is_created_there():
    assert listed(table("rtb-1", to()), table("rtb-2")) == []


def test_two_targets_for_one_destination_are_both_shown():
    found = listed(table("rtb-1", to()), table("rtb-2", to("i-0b2")))
    assert [(each.provider_id, each.id) for each in found] == [
        ("aws:///eu-central-1a/i-0a1b2c3d", "rtb-1"),
        ("aws:///eu-central-1b/i-0b2", "rtb-2"),
    ]


def test_a_route_to_an_interface_leads_to_its_instance():
    row = {"DestinationIpv6CidrBlock": "2001:db8::/64", "NetworkInterfaceId": "eni-7", "State": "active"}
    (found,) = listed(table("rtb-1", row), **{"eni-7": "i-0b2"})
    assert (found.destination, found.provider_id) == ("2001:db8::/64", "aws:///eu-central-1b/i-0b2")
    (unknown,) = listed(table("rtb-1", row))
    assert (unknown.provider_id, unknown.blackhole) == ("", False)


HOLE = Route(POD, "", id="rtb-1", blackhole=True)
LIVE = Route(POD, "aws:///eu-central-1a/i-0a1b2c3d", id="rtb-1")
UNKNOWN = Route(POD, "", id="rtb-1")
ENI = {"DestinationCidrBlock": POD, "NetworkInterfaceId": "eni-7", "State": "active"}


@pytest.mark.parametrize(
    ("route", "now", "interfaces", "is_deleted"),
    [
        (HOLE, to(), {}, False),
        (HOLE, to("i-0dead"), {}, True),
        (HOLE, to(State="blackhole"), {}, True),
        (HOLE, {"DestinationCidrBlock": POD, "State": "blackhole"}, {}, True),
        (HOLE, ENI, {"eni-7": "i-0b2"}, False),
        (HOLE, ENI, {"eni-7": "i-0dead"}, True),
        (HOLE, ENI, {}, False),
        (LIVE, to(), {}, True),
        (LIVE, to("i-0b2"), {}, False),
        (LIVE, to("i-0b2", State="blackhole"), {}, True),
        (LIVE, ENI, {"eni-7": "i-0a1b2c3d"}, True),
        (LIVE, ENI, {"eni-7": "i-0b2"}, False),
        (LIVE, ENI, {}, False),
        (UNKNOWN, ENI, {}, True),
        (UNKNOWN, ENI, {"eni-7": "i-0b2"}, False),
        (UNKNOWN, to(), {}, False),
    ],
)
def test_only_what_was_listed_or_leads_nowhere_is_deleted(route, now, interfaces, is_deleted):
    entries = rules.listed_as(route, rules.entries([table("rtb-1", now)]))
    alive = set(rules.targets(entries, interfaces)) & ZONES.keys()
    assert rules.to_delete(route, entries, interfaces, alive) == (entries if is_deleted else [])


def test_other_tables_and_destinations_are_not_asked_about():
    tables = [table("rtb-1", to(), to(destination="10.9.0.0/24")), table("rtb-2", to())]
    assert [each.table for each in rules.listed_as(LIVE, rules.entries(tables))] == ["rtb-1"]


def test_another_shape_is_transient():
    with pytest.raises(Transient, match="form"):
        rules.entries([{"RouteTableId": "rtb-1"}])


def test_the_interface_with_the_nodes_address_is_the_target():
    row = machine(NetworkInterfaces=[interface(1, "10.0.1.7", ipv6=("2001:db8::1",)), interface(0, "10.0.0.7")])
    for addresses, expected in ((None, "eni-0"), (["10.0.1.7"], "eni-1"), (["2001:db8::1"], "eni-1"), (["::"], None)):
        found = rules.interface_of(row, addresses)
        assert (found and found["NetworkInterfaceId"]) == expected


def test_which_tables_lack_a_route_and_what_is_in_its_way():
    here = Entry("rtb-1", POD, "i-0a1b2c3d", "", False)
    by_interface = Entry("rtb-2", POD, "", "eni-0", False)
    other, hole = Entry("rtb-3", POD, "i-0b2", "eni-9", False), Entry("rtb-4", POD, "i-0a1b2c3d", "", True)
    elsewhere = Entry("rtb-5", "10.244.2.0/24", "i-0b2", "", False)
    target = {"InstanceId": "i-0a1b2c3d", "NetworkInterfaceId": "eni-0"}
    tables = [f"rtb-{number}" for number in range(1, 6)]
    missing, others = rules.missing_from(tables, [here, by_interface, other, hole, elsewhere], POD, target)
    assert missing == ["rtb-3", "rtb-4", "rtb-5"]
    assert others == [other, hole]
