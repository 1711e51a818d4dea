# SPDX-License-Identifier: Apache-2.0
"""Steps to Octavia for one listener: who owns it, and what is written again, deleted or left alone."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from ccm.cloud import Conflict
from ccm.cloud.toolkit.steps import Step
from ccm.providers.openstack.load_balancers import load_balancer_steps as diff
from ccm.providers.openstack.load_balancers.listener_rules import XFF, Listener, Member, Monitor, Pool

ONE, TWO = Member("a", "10.0.0.1", 30080, "s"), Member("b", "10.0.0.2", 30080, "s")
MONITOR = Monitor("m", "TCP", {"delay": 5})
POOL = Pool("p", "TCP", {"lb_algorithm": "ROUND_ROBIN"}, (ONE, TWO), MONITOR)
WEB = Listener("l", "TCP", 80, {"connection_limit": -1, "tags": ["mine"]}, POOL)


def member_row(number: int, **more: Any) -> dict[str, Any]:
    row = {"id": f"m{number}", "name": "a", "address": f"10.0.0.{number}", "protocol_port": 30080, "subnet_id": "s"}
    return row | more


def listener_row(**more: Any) -> dict[str, Any]:
    row = {"id": "l1", "protocol": "TCP", "protocol_port": 80, "default_pool_id": "p1"}
    return row | {"connection_limit": -1, "tags": ["mine"]} | more


def steps(
    listener: dict[str, Any], pool: dict[str, Any] | None = None, monitor: dict[str, Any] | None = None
) -> list[Step]:
    """Return the remaining steps for WEB, which has all of its members."""
    pools = [{"id": "p0"}, {"id": "p1", "protocol": "TCP", "lb_algorithm": "ROUND_ROBIN"} | (pool or {})]
    monitors = {"p1": {"id": "h1", "type": "TCP", "delay": 5} | (monitor or {})}
    seen = diff.Observed([listener], pools, {"p1": [member_row(1), member_row(2)]}, monitors)
    return diff.steps("lb", "mine", (WEB,), seen, owner=True)


def test_nothing_is_left_to_do() -> None:
    assert steps(listener_row()) == []


@pytest.mark.parametrize(
    ("tags", "owner", "ours"),
    [
        (["mine"], False, True),
        (["x", "mine"], True, True),
        (["other"], True, False),
        ([], True, True),
        (None, True, True),
        ([], False, False),
    ],
)
def test_whose_listener_it_is(tags: list[str] | None, owner: bool, ours: bool) -> None:
    row = listener_row(tags=tags, default_tls_container_ref="secret")
    assert diff.is_ours(row, "mine", owner=owner) is ours
    without = listener_row(tags=tags, default_tls_container_ref=None)
    assert diff.certificates([row, without], "mine", owner=owner) == ({"secret"} if ours else set())


def test_a_port_of_another_services_listener_is_a_conflict() -> None:
    message = "port 80/TCP of load balancer lb is already used by listener l1, which belongs to another Service"
    with pytest.raises(Conflict, match=message):
        steps(listener_row(tags=["other"]))
    with pytest.raises(Conflict):
        steps(listener_row(tags=["other"], protocol="HTTP"))
    assert [step.method for step in steps(listener_row(tags=["other"], protocol="UDP"))] == ["POST"]


def test_a_part_in_error_is_written_whole_and_named() -> None:
    error = {"provisioning_status": "ERROR"}
    whole = {"listener": dict(WEB.settings)}
    assert steps(listener_row(**error)) == [Step("PUT", "/listeners/l1", whole, "listener l1")]
    assert steps(listener_row(), pool=error) == [Step("PUT", "/pools/p1", {"pool": dict(POOL.settings)}, "pool p1")]
    body = {"healthmonitor": {"delay": 5}}
    assert steps(listener_row(), monitor=error) == [Step("PUT", "/healthmonitors/h1", body, "monitor h1")]


def test_what_differs_is_written_alone_and_repairs_nothing() -> None:
    other = {"provisioning_status": "ACTIVE"}
    change = Step("PUT", "/listeners/l1", {"listener": {"connection_limit": -1}})
    assert steps(listener_row(connection_limit=7, **other)) == [change]
    assert steps(listener_row(), monitor={"delay": 6, "max_retries": 3}) == [
        Step("PUT", "/healthmonitors/h1", {"healthmonitor": {"delay": 5}})
    ]


def test_tags_of_others_stay() -> None:
    (change,) = diff.steps(
        "lb", "mine", (WEB,), diff.Observed([listener_row(tags=[], default_pool_id="p1")], [], {}, {}), owner=True
    )[:1]
    assert change.body == {"listener": {"tags": ["mine"]}}
    error = steps(listener_row(tags=["x", "mine"], provisioning_status="ERROR"))
    assert error[0].body["listener"]["tags"] == ["mine", "x"]


def test_what_cannot_be_changed_is_deleted() -> None:
    listener, pool = Step("DELETE", "/listeners/l1"), Step("DELETE", "/pools/p1")
    assert steps(listener_row(protocol="HTTP")) == [pool, listener]
    assert steps(listener_row(protocol="HTTP", default_pool_id=None)) == [listener]
    assert steps(listener_row(), pool={"protocol": "PROXY"}) == [pool]
    assert steps(listener_row(), monitor={"type": "HTTP"}) == [Step("DELETE", "/healthmonitors/h1")]


@pytest.mark.parametrize(
    ("row", "order"),
    [
        ({"protocol_port": 8080}, ["POST /listeners", "DELETE /pools/p1", "DELETE /listeners/l1"]),
        ({"protocol": "UDP"}, ["POST /listeners", "DELETE /pools/p1", "DELETE /listeners/l1"]),
        ({"protocol": "HTTP"}, ["DELETE /pools/p1", "DELETE /listeners/l1"]),  # two cannot have one port
    ],
)
def test_a_former_port_serves_until_its_successor_is_accepted(row: dict[str, Any], order: list[str]) -> None:
    assert [f"{step.method} {step.path}" for step in steps(listener_row(**row))] == order


P1: dict[str, Any] = {"id": "p1"}
BOTH = {"members": [ONE.body(), TWO.body()]}


@pytest.mark.parametrize(
    ("present", "serial", "expected"),
    [
        ([member_row(1), member_row(2)], False, []),
        ([member_row(1)], False, [Step("PUT", "/pools/p1/members", BOTH)]),
        ([member_row(1), member_row(2, provisioning_status="PENDING_DELETE")], False, [
            Step("PUT", "/pools/p1/members", BOTH)]),
        ([member_row(1), member_row(2, provisioning_status="ERROR")], False, [
            Step("PUT", "/pools/p1/members", BOTH, "members of pool p1")]),
        ([member_row(1), member_row(2, provisioning_status="ERROR")], True, [
            Step("DELETE", "/pools/p1/members/m2", None, "member m2")]),
        ([member_row(1), member_row(3)], True, [
            Step("DELETE", "/pools/p1/members/m3"), Step("POST", "/pools/p1/members", {"member": TWO.body()})]),
        ([member_row(1, monitor_port=1), member_row(2)], True, [
            Step("DELETE", "/pools/p1/members/m1"), Step("POST", "/pools/p1/members", {"member": ONE.body()})]),
    ],
)  # fmt: skip
def test_members(present: list[dict[str, Any]], serial: bool, expected: list[Step]) -> None:
    assert diff.member_steps(POOL, P1, present, serial) == expected


def test_a_member_that_drains_is_written_with_all_others() -> None:
    one, two = (dataclasses.replace(each, weighs=True) for each in (ONE, TWO))
    drains = dataclasses.replace(POOL, members=(dataclasses.replace(one, draining=True), two))
    serves = dataclasses.replace(POOL, members=(one, two))
    heavy, light = ([member_row(1, weight=weight), member_row(2, weight=1)] for weight in (5, 0))
    (step,) = diff.member_steps(drains, P1, heavy, False)
    assert [each["weight"] for each in step.body["members"]] == [0, 1]
    assert diff.member_steps(drains, P1, light, False) == diff.member_steps(serves, P1, heavy, False) == []
    (step,) = diff.member_steps(serves, P1, light, False)
    assert [each["weight"] for each in step.body["members"]] == [1, 1]


@pytest.mark.parametrize(
    ("key", "wanted", "present", "same"),
    [
        ("tags", ["a"], ["a", "b"], True),
        ("tags", ["a"], None, False),
        ("allowed_cidrs", ["0.0.0.0/0", "10.0.0.0/8"], None, True),
        ("allowed_cidrs", ["0.0.0.0/1"], None, False),
        ("allowed_cidrs", ["10.0.0.0/8"], ["10.0.0.1/8"], True),
        ("allowed_cidrs", ["10.0.0.0/8"], ["10.0.0.0/8", "192.0.2.0/24"], False),
        ("insert_headers", {XFF: "true"}, {XFF: "True", "X-Other": "1"}, True),
        ("insert_headers", {XFF: "true"}, None, False),
        ("insert_headers", {}, {XFF: "false"}, True),
        ("insert_headers", None, {XFF: "true"}, False),
        ("session_persistence", {"type": "SOURCE_IP"}, {"type": "SOURCE_IP", "cookie_name": None}, True),
        ("session_persistence", None, {"type": "SOURCE_IP"}, False),
        ("session_persistence", {"type": "SOURCE_IP"}, None, False),
        ("delay", 5, 5, True),
        ("delay", 5, None, False),
    ],
)
def test_what_is_the_same_in_the_cloud(key: str, wanted: Any, present: Any, same: bool) -> None:
    assert diff._same(key, wanted, present) is same


def test_a_member_is_known_by_its_address_and_ports() -> None:
    row = {"address": "10.0.0.1", "protocol_port": "30080", "monitor_port": 7}
    assert repr(diff._member(row, True)) == repr(Member("", "10.0.0.1", 30080, "", 7))
    named = diff._member(row | {"name": "a", "subnet_id": "s"}, True)
    assert repr(named) == repr(Member("a", "10.0.0.1", 30080, "s", 7))
    for weight, weighs, draining in ((0, True, True), (0, False, False), (1, True, False), (7, True, False)):
        assert diff._member(row | {"weight": weight}, weighs).draining is draining
