# SPDX-License-Identifier: Apache-2.0
"""The calls that bring a load balancer to its desired state."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from ccm.providers.hetzner import load_balancer_steps as steps
from ccm.providers.hetzner.load_balancer_rules import DesiredState
from ccm.providers.hetzner.settings import Variables

from .wants import row, want


def calls(present: Any, wanted: DesiredState, servers: list[int], network: int = 5) -> list[tuple[str, Any]]:
    return [(each.action, each.body) for each in steps.changes(present, wanted, servers, network)]


def target(number: int, private: bool = False) -> dict[str, Any]:
    return {"type": "server", "server": {"id": number}, "use_private_ip": private}


def test_nothing_is_left_when_all_is_right() -> None:
    assert calls(row(), want(), [1, 2]) == []


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        ({"ipv4_rdns": "a.org"}, ("change_dns_ptr", {"ip": "203.0.113.7", "dns_ptr": "a.org"})),
        ({"ipv4_rdns": ""}, ("change_dns_ptr", {"ip": "203.0.113.7", "dns_ptr": None})),
        ({"ipv6_rdns": "a.org"}, ("change_dns_ptr", {"ip": "2001:db8::7", "dns_ptr": "a.org"})),
        ({"algorithm_type": "least_connections"}, ("change_algorithm", {"type": "least_connections"})),
        ({"type": "lb21"}, ("change_type", {"load_balancer_type": "lb21"})),
        ({"disable_public_network": "true"}, ("disable_public_interface", None)),
    ],
)
def test_a_setting_is_one_call(annotations: dict[str, str], expected: tuple[str, Any]) -> None:
    assert calls(row(), want(**annotations), [1, 2]) == [expected]


@pytest.mark.parametrize(
    "annotations",
    [{"ipv4_rdns": "old.example.org"}, {"ipv6_rdns": ""}, {"type": "lb11"}, {"disable_public_network": "false"}],
)
def test_a_setting_that_is_right_is_no_call(annotations: dict[str, str]) -> None:
    assert calls(row(), want(**annotations), [1, 2]) == []


def test_a_public_interface_is_switched_on() -> None:
    present = row(public_net=row()["public_net"] | {"enabled": False})
    assert calls(present, want(disable_public_network="false"), [1, 2]) == [("enable_public_interface", None)]
    assert calls(present, want(), [1, 2]) == []


def test_a_load_balancer_is_in_the_configured_network_only() -> None:
    attach = ("attach_to_network", {"network": 6})
    assert calls(row(), want(), [1, 2], 6) == [("detach_from_network", {"network": 5}), attach]
    assert calls(row(private_net=[]), want(), [1, 2], 6) == [attach]
    assert calls(row(), want(), [1, 2], 0) == []
    chosen = want(private_ipv4="10.0.1.9", private_subnet_ip_range="10.0.1.0/24")
    body = {"network": 5, "ip": "10.0.1.9", "ip_range": "10.0.1.0/24"}
    assert calls(row(), chosen, [1, 2]) == [("detach_from_network", {"network": 5}), ("attach_to_network", body)]
    there = row(private_net=[{"network": 5, "ip": "10.0.1.9"}])
    assert calls(there, chosen, [1, 2]) == []


def test_ports_are_added_changed_and_deleted() -> None:
    other = row()["services"][0] | {"listen_port": 81}
    found = calls(row(services=[other]), want(), [1, 2])
    assert [action for action, _ in found] == ["add_service", "delete_service"]
    assert found[0][1] == row()["services"][0] and found[1][1] == {"listen_port": 81}
    (changed,) = calls(row(), want(uses_proxyprotocol="true"), [1, 2])
    assert changed[0] == "update_service" and changed[1]["proxyprotocol"] is True


def test_what_nobody_asks_for_stays_as_it_is() -> None:
    service = row()["services"][0]
    by_hand = service | {"proxyprotocol": True, "health_check": service["health_check"] | {"interval": 3}}
    assert calls(row(services=[by_hand]), want(), [1, 2]) == []
    assert calls(row(services=[by_hand]), want(uses_proxyprotocol="false"), [1, 2])[0][0] == "update_service"


def test_a_check_over_http_is_complete_when_it_is_new() -> None:
    service = want(protocol="http", health_check_protocol="http", health_check_retries="5").services[0]
    assert steps.complete(service)["health_check"] == {
        "interval": 15,
        "timeout": 10,
        "retries": 5,
        "protocol": "http",
        "port": 30080,
        "http": {"domain": "", "path": "/"},
    }
    assert steps.complete(service)["proxyprotocol"] is False


@pytest.mark.parametrize(
    ("wanted", "present", "expected"),
    [
        ({"a": 1}, {"a": 1, "b": 2}, False),
        ({"a": 1}, {"a": 2}, True),
        ({"a": {"b": 1}}, {"a": None}, True),
        ({"a": ["x", "y"]}, {"a": ["y", "x"]}, False),
        ({"a": ["x"]}, {"a": ["x", "y"]}, True),
        ({"a": ["x"]}, {}, True),
        ("", None, False),
        (False, None, False),
        (True, None, True),
    ],
)
def test_only_what_is_wanted_is_compared(wanted: Any, present: Any, expected: bool) -> None:
    assert steps.differs(wanted, present) is expected


def test_new_targets_come_before_old_ones_leave_as_long_as_there_is_room() -> None:
    found = calls(row(), want(), [3, 4, 5])
    assert [(action, body["server"]["id"]) for action, body in found] == [
        ("add_target", 3),
        ("add_target", 4),
        ("remove_target", 1),
        ("remove_target", 2),
        ("add_target", 5),
    ]
    assert found[0][1] == target(3) and found[2][1] == {"type": "server", "server": {"id": 1}}
    assert all(each.settles for each in steps.changes(row(), want(), [3], 5))


def test_another_kind_of_address_makes_a_target_again() -> None:
    found = calls(row(), want(use_private_ip="true"), [1, 2])
    assert [(action, body["server"]["id"]) for action, body in found] == [
        ("remove_target", 1),
        ("add_target", 1),
        ("remove_target", 2),
        ("add_target", 2),
    ]
    assert found[1][1] == target(1, True)


def test_a_label_selector_replaces_servers_and_other_selectors() -> None:
    wanted = want(Variables(hcloud_network="kube", hcloud_load_balancers_target_selector="a=b"))
    other = {"type": "label_selector", "label_selector": {"selector": "x=y"}, "use_private_ip": False}
    own = other | {"label_selector": {"selector": "a=b"}}
    add = ("add_target", own)
    remove = ("remove_target", {"type": "label_selector", "label_selector": {"selector": "x=y"}})
    assert calls(row(targets=[other]), wanted, []) == [add, remove]
    assert calls(row(targets=[own]), wanted, []) == []
    found = calls(row(targets=[own | {"use_private_ip": True}]), wanted, [])
    assert [action for action, _ in found] == ["remove_target", "add_target"]
    assert [action for action, _ in calls(row(), wanted, [])] == ["add_target", "remove_target", "remove_target"]


def test_targets_that_are_addresses_take_room_and_stay() -> None:
    robot = {"type": "ip", "ip": {"ip": "192.0.2.1"}}
    present = row(targets=[*row()["targets"], robot])
    assert steps.capacity(present) == 3 and steps.capacity(row()) == 4
    assert calls(present, want(), [1, 2]) == []
    assert steps.capacity(row(targets=[robot] * 9)) == 0


def test_one_call_creates_everything() -> None:
    body = steps.create_body(want(location="fsn1", algorithm_type="round_robin"), [1, 2], 5, {"a": "b"})
    assert body == {
        "name": "a1234",
        "load_balancer_type": "lb11",
        "labels": {"a": "b"},
        "services": row()["services"],
        "targets": row()["targets"],
        "location": "fsn1",
        "algorithm": {"type": "round_robin"},
        "network": 5,
    }
    other = steps.create_body(want(network_zone="eu-central", type="lb21", disable_public_network="true"), [], 0, {})
    assert (other["network_zone"], other["load_balancer_type"], other["public_interface"]) == (
        "eu-central",
        "lb21",
        False,
    )
    assert "network" not in other and "location" not in other and "algorithm" not in other


def test_a_chosen_address_follows_and_targets_that_need_it() -> None:
    assert steps.in_one_call(want()) and not steps.in_one_call(want(ipv4_rdns="a.org"))
    for given in ({"private_ipv4": "10.0.1.9"}, {"private_subnet_ip_range": "10.0.1.0/24"}):
        assert not steps.in_one_call(want(**given))
        body = steps.create_body(want(**given), [1], 5, {})
        assert "network" not in body and body["targets"] == [target(1)]
        assert steps.create_body(want(use_private_ip="true", **given), [1], 5, {})["targets"] == []


@pytest.mark.parametrize(
    ("is_on", "flags", "protected", "expected"),
    [
        pytest.param(False, "", True, [("change_protection", {"delete": True})], id="the-service-asks-for-it"),
        pytest.param(True, "n", True, [], id="it-has-it"),
        pytest.param(True, "n", False, [("change_protection", {"delete": False})], id="the-service-no-longer-asks"),
        pytest.param(True, "", False, [], id="a-person-did-it"),
        pytest.param(False, "n", False, [], id="a-person-undid-it"),
    ],
)
def test_protection_follows_the_service_and_leaves_that_of_a_person(
    is_on: bool, flags: str, protected: bool, expected: list[Any]
) -> None:
    labels = {f"ccm-outoftree/{key}": text for key, text in (("cluster", "c"), ("uid", "u"), ("flags", flags)) if text}
    present = row(labels=labels, protection={"delete": is_on})
    assert calls(present, dataclasses.replace(want(), keep="n" if protected else ""), [1, 2]) == expected
