# SPDX-License-Identifier: Apache-2.0
"""The commands that bring a load balancer to its desired state, and their order."""

from __future__ import annotations

from typing import Any

import pytest

from ccm.cloud import Port
from ccm.providers.cloudstack import load_balancer_steps as steps
from ccm.providers.cloudstack.load_balancer_rules import admitted, desired_state
from ccm.providers.cloudstack.load_balancer_steps import Present, Stage, Texts

from .wants import ADDRESS, NETWORK, opened, rule, service

TEXTS = Texts("first", "others", "the-key")
HTTP, HTTPS = Port("http", "TCP", 80, 30080), Port("https", "TCP", 443, 30443)
MACHINES = ("m1", "m2")


def present(*rows: dict[str, Any], **changed: Any) -> Present:
    """Return what exists: these rules, each with two machines and an open firewall, except for `changed`."""
    found = {
        "associated": True,
        "rules": rows,
        "assigned": {row["id"]: frozenset(MACHINES) for row in rows},
        "firewall": [opened(int(row["publicport"])) for row in rows],
    }
    return Present(ADDRESS, "203.0.113.7", NETWORK, **(found | changed))


def left(there: Present, *ports: Port, machines: tuple[str, ...] = MACHINES, **more: Any) -> list[steps.Step]:
    want = desired_state(service(*(ports or (HTTP,)), **more))
    return steps.steps(there, want, admitted(want, there.firewall is not None), machines, TEXTS)


def commands(planned: list[steps.Step]) -> list[tuple[Stage, str, str]]:
    """Return stage, command and object of each step. The object is an ID, or the port of a new one."""
    keys = ("id", "publicport", "startport", "resourceids")
    return [(each.stage, each.command, next(each.fields[key] for key in keys if key in each.fields))
            for each in planned]


def test_nothing_is_left_when_all_is_right() -> None:
    assert left(present(rule(description="first"))) == []
    two = present(rule(80, description="first"), rule(443, description="others"))
    assert left(two, HTTP, HTTPS) == []


def test_a_new_load_balancer() -> None:
    found = left(present())
    assert commands(found) == [
        (Stage.CREATE, "createLoadBalancerRule", "80"),
        (Stage.CREATE, "createFirewallRule", "80"),
    ]
    created, open_ = (each.fields for each in found)
    assert created["description"] == "others", "only what is complete has the mark with the fingerprint"
    assert (created["publicipid"], created["networkid"], created["openfirewall"]) == (ADDRESS, NETWORK, "false")
    assert (created["privateport"], created["algorithm"], created["cidrlist"]) == ("30080", "roundrobin", "0.0.0.0/0")
    assert (open_["ipaddressid"], open_["protocol"], open_["endport"], open_["cidrlist"]) == (
        ADDRESS,
        "tcp",
        "80",
        "0.0.0.0/0",
    )


@pytest.mark.parametrize(
    ("changed", "more", "expected"),
    [
        ({"algorithm": "source"}, {}, [(Stage.CHANGE, "updateLoadBalancerRule", "rule-80")]),
        ({}, {"session_affinity": "ClientIP"}, [(Stage.CHANGE, "updateLoadBalancerRule", "rule-80")]),
        ({"description": "x"}, {}, [(Stage.MARK, "updateLoadBalancerRule", "rule-80")]),
        ({"cidrlist": "0.0.0.0/0"}, {}, []),
    ],
)
def test_what_can_be_changed_in_place_is(changed: dict[str, str], more: dict[str, Any], expected: Any) -> None:
    assert commands(left(present(rule(**{"description": "first"} | changed)), **more)) == expected


@pytest.mark.parametrize(
    "changed",
    [{"privateport": "31080"}, {"state": "Add"}, {"publicipid": "address-2"}, {"cidrlist": "10.0.0.0/8 10.1.0.0/16"}],
)
def test_what_cannot_be_changed_is_created_again_and_a_tag_keeps_the_address(changed: dict[str, str]) -> None:
    found = commands(left(present(rule(description="first", **changed))))
    assert found == [
        (Stage.INTENT, "createTags", NETWORK),
        (Stage.MAKE_ROOM, "deleteLoadBalancerRule", "rule-80"),
        (Stage.CREATE, "createLoadBalancerRule", "80"),
    ]


def test_the_tag_is_written_once_and_only_for_an_address_that_is_the_services() -> None:
    row = rule(privateport="31080")
    for there in (present(row, intent=True), present(row, associated=False)):
        assert (Stage.INTENT, "createTags", NETWORK) not in commands(left(there))


def test_the_tag_goes_when_the_rules_are_there() -> None:
    there = present(rule(description="first"), intent=True)
    assert commands(left(there)) == [(Stage.MARK, "deleteTags", NETWORK)]
    assert (Stage.MARK, "deleteTags", NETWORK) not in commands(left(there, HTTP, HTTPS))


def test_a_port_that_is_lost_goes_after_a_new_one_came() -> None:
    assert commands(left(present(rule(80, description="first")), HTTPS)) == [
        (Stage.CREATE, "createLoadBalancerRule", "443"),
        (Stage.CREATE, "createFirewallRule", "443"),
        (Stage.CLEAN_UP, "deleteLoadBalancerRule", "rule-80"),
        (Stage.CLEAN_UP, "deleteFirewallRule", "open-80"),
    ]


def test_another_protocol_on_the_same_port_needs_its_room() -> None:
    found = commands(left(present(rule(description="first")), annotations={"proxy-protocol": "true"}))
    assert found[:2] == [(Stage.INTENT, "createTags", NETWORK), (Stage.MAKE_ROOM, "deleteLoadBalancerRule", "rule-80")]
    udp = Port("dns", "UDP", 80, 30081)
    found = commands(left(present(rule(description="first")), HTTP, udp))
    assert [each for each in found if each[0] is Stage.MAKE_ROOM] == []


def test_targets() -> None:
    found = left(present(rule(description="first")), machines=("m2", "m3"))
    assert [(each.command, each.fields["virtualmachineids"]) for each in found] == [
        ("assignToLoadBalancerRule", "m3"),
        ("removeFromLoadBalancerRule", "m1"),
    ]


@pytest.mark.parametrize(
    ("firewall", "more", "expected"),
    [
        ([], {}, [(Stage.CREATE, "createFirewallRule", "80")]),
        (
            [opened(80)],
            {"source_ranges": ("10.0.0.0/8",)},
            [(Stage.MAKE_ROOM, "deleteFirewallRule", "open-80"), (Stage.CREATE, "createFirewallRule", "80")],
        ),
        ([opened(80, "10.0.0.0/8")], {"source_ranges": ("10.0.0.0/8",)}, []),
        ([opened(80), opened(80, id="again")], {}, [(Stage.MAKE_ROOM, "deleteFirewallRule", "again")]),
        ([opened(80), opened(8080, id="by hand")], {}, []),
        ([opened(80), opened(80, protocol="udp", id="by hand")], {}, []),
        ([opened(80), opened(80, endport=90, id="by hand")], {}, []),
        ([opened(80), {"id": "ping", "protocol": "icmp", "cidrlist": "0.0.0.0/0"}], {}, []),
    ],
)
def test_the_firewall_admits_whom_the_service_names_and_other_rules_stay(
    firewall: Any, more: Any, expected: Any
) -> None:
    there = present(rule(description="first"), firewall=firewall)
    assert commands(left(there, **more)) == expected


def test_without_a_firewall_the_rules_admit_whom_the_service_names() -> None:
    there = present(rule(description="first", cidrlist="10.0.0.0/8"), firewall=None)
    assert left(there, source_ranges=("10.0.0.0/8",)) == []
    again = commands(left(there))
    assert (Stage.MAKE_ROOM, "deleteLoadBalancerRule", "rule-80") in again


def test_a_load_balancer_on_a_shared_address_is_deleted_rule_by_rule() -> None:
    found = list(steps.deletions([rule(80)], [opened(80), opened(443), opened(80, protocol="udp", id="other")]))
    assert [(each.command, each.fields["id"]) for each in found] == [
        ("deleteFirewallRule", "open-80"),
        ("deleteLoadBalancerRule", "rule-80"),
    ]
