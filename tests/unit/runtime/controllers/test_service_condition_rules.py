# SPDX-License-Identifier: Apache-2.0
"""What the condition of a waiting Service says, and which changes of it are written."""

import msgspec
import pytest

from ccm.controllers.services import service_condition_rules as rules
from ccm.engine.objects import Service, ServiceCondition

NOW, LATER = "2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z"


def service(type="LoadBalancer", conditions=(), **metadata):
    spec = {"type": type} | ({"loadBalancerClass": metadata.pop("cls")} if "cls" in metadata else {})
    return msgspec.convert({"metadata": metadata, "spec": spec, "status": {"conditions": list(conditions)}}, Service)


OURS = {"type": rules.WAITING, "status": "True", "reason": "R", "message": "m", "lastTransitionTime": NOW}


def test_it_says_why_since_when_and_what_comes_next():
    first = rules.waiting(None, "SyncLoadBalancerFailed", "Error syncing load balancer: 403.", NOW)
    assert first == ServiceCondition(
        rules.WAITING, "True", "SyncLoadBalancerFailed", f"Error syncing load balancer: 403. {rules.NEXT_TRY}", NOW
    )
    assert rules.waiting(first, "Other", "b", LATER).last_transition_time == NOW
    off = msgspec.structs.replace(first, status="False")
    assert rules.waiting(off, "Other", "b", LATER).last_transition_time == LATER
    assert len(rules.waiting(None, "R", "x" * 5000, NOW).message) < 1200
    assert rules.waiting(None, "R", "red\x1b[31m", NOW).message.isprintable()


@pytest.mark.parametrize(
    ("reason", "text", "news"),
    [
        ("R", "no answer to request 8f1c-22 after 7 s", False),
        ("R", "no answer to request 9a2b-33 after 12 s", False),
        ("R", "no answer to request", True),
        ("S", "no answer to request 8f1c-22 after 7 s", True),
    ],
)
def test_another_number_is_no_news(reason, text, news):
    before = rules.waiting(None, "R", "no answer to request 8f1c-22 after 7 s", NOW)
    assert rules.is_news(before, rules.waiting(before, reason, text, LATER)) is news
    assert rules.is_news(None, before)
    assert rules.is_news(msgspec.structs.replace(before, status="False"), before)


@pytest.mark.parametrize(
    ("it", "left"),
    [
        (service("ClusterIP", [OURS]), True),
        (service("ClusterIP", [{**OURS, "type": "Another"}]), False),
        (service("LoadBalancer", [OURS]), False),
        (service("ClusterIP", [OURS], cls="example.com/other"), False),
        (service("ClusterIP", [OURS], deletionTimestamp=NOW), False),
    ],
)
def test_left_behind(it, left):
    assert rules.is_left_behind(it) is left


def test_patches_name_no_other_condition():
    assert rules.set_patch(rules.shown(service(conditions=[{**OURS, "type": "A"}, OURS]))) == {
        "status": {"conditions": [OURS]}
    }
    assert rules.removal_patch() == {"status": {"conditions": [{"$patch": "delete", "type": rules.WAITING}]}}
