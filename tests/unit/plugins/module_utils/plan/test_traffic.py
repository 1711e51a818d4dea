# SPDX-License-Identifier: Apache-2.0
"""What a traffic check creates, how long it waits for an address, and when it asks again."""

from __future__ import annotations

from typing import Any, Dict, List

import pytest

from ansible_collections.outoftree.ccm.plugins.module_utils.plan import traffic

WAITS = {"address": "", "class": "", "events": []}
LEADS = {"leads": True, "offers": None}
QUOTA = {"type": "Warning", "reason": "SyncLoadBalancerFailed", "message": "QuotaExceeded: the limit is 0"}
OTHER = {"type": "Warning", "reason": "SyncLoadBalancerFailed", "message": "the cloud answered 500"}
FREED = {"type": "Normal", "reason": "EnsuringLoadBalancer", "message": "again"}


@pytest.mark.parametrize(
    ("served", "name"),
    [
        ({"names": [], "without": True}, None),
        ({"names": ["fast"], "without": True}, None),
        ({"names": ["fast", "slow"], "without": False}, "fast"),
    ],
)
def test_the_service_is_one_that_the_controller_serves(served: Any, name: Any):
    created = traffic.service({"key": "value"}, served)
    assert created["spec"].get("loadBalancerClass") == name
    assert created["spec"]["type"] == "LoadBalancer" and created["metadata"]["annotations"] == {"key": "value"}


def waited(limit: float, service: Dict[str, Any], controller: Dict[str, Any], step: float = 0.5) -> float:
    """Return the seconds until the wait ends if nothing changes."""
    patience, now = traffic.Patience(limit, 1000.0), 1000.0
    while not patience.is_over(now, service, controller):
        now += step
    return now - 1000.0


@pytest.mark.parametrize(
    ("service", "controller", "seconds"),
    [
        ({}, {}, 180.5),
        ({"address": "192.0.2.1"}, {}, 0),
        ({"class": "example.com/other"}, {}, 0),
        ({}, {"offers": False}, 0),
        ({}, {"offers": True}, 180.5),
        ({"events": [OTHER]}, {}, 180.5),
        ({"events": [QUOTA]}, {}, traffic.CERTAIN + 0.5),
        ({"events": [OTHER, QUOTA, FREED]}, {}, traffic.CERTAIN + 0.5),
        ({"events": [QUOTA, OTHER]}, {}, 180.5),
        ({}, {"leads": False}, traffic.CERTAIN + 0.5),
    ],
)
def test_it_waits_while_an_address_may_come(service: Dict[str, Any], controller: Dict[str, Any], seconds: float):
    assert waited(180, {**WAITS, **service}, {**LEADS, **controller}) == seconds


def test_a_limit_below_half_a_minute_is_kept():
    assert waited(6, WAITS, {**LEADS, "leads": False}) == 6.5


@pytest.mark.parametrize("good", [{}, {"events": [QUOTA, OTHER]}])
def test_a_change_of_leaders_and_a_quota_that_is_free_again_end_no_wait(good: Dict[str, Any]):
    patience = traffic.Patience(600, 0.0)
    bad = {**LEADS, "leads": False}
    answers: List[bool] = []
    for now in range(0, 600, 10):
        lapses = now % 40 != 0  # three bad reads in a row, then a good one
        answers.append(patience.is_over(now, {**WAITS, **good}, bad if lapses else LEADS))
    assert not any(answers)


def test_the_newest_warning_counts():
    assert traffic.last_warning([OTHER, QUOTA, FREED]) == "SyncLoadBalancerFailed: QuotaExceeded: the limit is 0"
    assert traffic.last_warning([FREED]) == traffic.last_warning([]) == ""


def test_events_are_read_in_the_order_of_their_times():
    newer = {"eventTime": "2026-11-02T00:00:00Z", "type": "Normal", "reason": "B", "message": "two\n lines"}
    older = {"lastTimestamp": "2026-11-01T00:00:00Z", "type": "Warning", "reason": "A"}
    assert traffic.events([newer, older]) == [
        {"type": "Warning", "reason": "A", "message": ""},
        {"type": "Normal", "reason": "B", "message": "two lines"},
    ]


def hoped(address: str, scores: Dict[int, int], limit: float = 180) -> float:
    """Return the seconds until no better answer is expected. `scores`: second -> the score of the answers from then on."""
    hope, now = traffic.Hope(limit, address, 0.0), 0.0
    while not hope.is_over(now, (max([0] + [score for since, score in scores.items() if since <= now]),)):
        now += 0.5
    return now


@pytest.mark.parametrize(
    ("address", "scores", "seconds"),
    [
        ("192.0.2.1", {}, traffic.SETTLED + 0.5),
        ("2001:db8::1", {}, traffic.SETTLED + 0.5),
        ("lb.example.com", {}, 180.5),
        ("192.0.2.1", {20: 1}, 20 + traffic.SETTLED + 0.5),
        ("192.0.2.1", {20: 1, 25: 0}, 20 + traffic.SETTLED + 0.5),
        ("192.0.2.1", {30: 1, 60: 2, 90: 3, 120: 4, 150: 5}, 180.5),
    ],
)
def test_it_asks_again_while_answers_get_better(address: str, scores: Dict[int, int], seconds: float):
    assert hoped(address, scores) == seconds


def test_a_better_answer_has_more_health_ports_then_nodes_then_requests():
    def score(health: int, nodes: List[str], answered: int) -> Any:
        results = [{"name": "health:w", "answered": 1}] * health + [{"name": "health:w", "answered": 0}, {"name": "pod:w", "answered": 1}]
        return traffic.score({"answered": answered, "nodes": dict.fromkeys(nodes, 1)}, ["w-1", "w-2"], {"w-1": results})

    assert score(1, [], 0) > score(0, ["w-1", "w-2"], 40) > score(0, ["w-1"], 48) > score(0, ["w-1"], 40)
    assert score(0, ["w-1", "another"], 0) == score(0, ["w-1"], 0)


def one(name: str, answered: int, asked: int = 5) -> Dict[str, Any]:
    return {"name": name, "asked": asked, "answered": answered}


@pytest.mark.parametrize(("name", "answered", "is_asked_again"), [
    ("service:", 4, True), ("balancer:", 1, True), ("service:", 5, False), ("service:", 0, False), ("pod:w-1", 4, False), ("health:w-1", 4, False),
])  # fmt: skip
def test_a_pod_asks_again_where_some_requests_were_lost(name: str, answered: int, is_asked_again: bool):
    targets = [{"name": "pod:w-2", "host": "192.0.2.1", "port": 1, "count": 3}, {"name": name, "host": "192.0.2.2", "port": 2, "count": 5}]
    results = [one("pod:w-2", 3, 3), one(name, answered)]
    expected = {"w-1": [dict(targets[1], count=traffic.AGAIN)]} if is_asked_again else {}
    # A Node whose Pod could not ask has targets and no results.
    assert traffic.lossy({"w-1": targets, "w-2": targets}, {"w-1": results}) == expected


def test_nobody_asks_again_if_a_pod_is_not_reached():
    """The route to w-3 is missing, so requests to the Service get lost everywhere, and each takes as long as a request may."""
    targets = [{"name": name, "host": "192.0.2.1", "port": 1, "count": 5} for name in ("pod:w-3", "service:")]
    results = {"w-1": [one("pod:w-3", 0, 3), one("service:", 4)], "w-2": [one("pod:w-3", 3, 3), one("service:", 4)]}
    assert traffic.lossy({"w-1": targets, "w-2": targets}, results) == {}


@pytest.mark.parametrize(("pod", "service", "is_reached"), [(3, 1, True), (3, 0, False), (0, 0, True)])
def test_the_service_is_reached_if_it_answers_each_pod_or_never_will(pod: int, service: int, is_reached: bool):
    inside = {"w-1": [one("pod:w-2", pod, 3), one("service:", service)], "w-2": [one("pod:w-1", 3, 3), one("service:", 5)]}
    assert traffic.is_reached(inside) == is_reached


def test_what_a_pod_asked_again_is_kept_beside_its_first_result():
    results = [one("pod:w-2", 3, 3), one("service:", 4)]
    assert traffic.asked_again(results, [one("service:", 20, 20)]) == [results[0], dict(results[1], again=one("service:", 20, 20))]
    assert traffic.asked_again(results, []) == results


def test_enough_requests_that_a_random_choice_leaves_no_node_out():
    for expected in range(1, 100):
        requests = traffic.requests_for(expected)
        assert expected == 1 or traffic.left_out_by_chance(expected, requests) <= traffic.CHANCE
    assert [traffic.requests_for(expected) for expected in (0, 1, 4, 50, 5000)] == [40, 40, 40, 536, 1200]
