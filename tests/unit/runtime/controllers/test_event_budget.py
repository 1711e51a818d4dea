# SPDX-License-Identifier: Apache-2.0
"""How many Events about Nodes are sent, and how much memory the limit takes."""

import msgspec
import pytest

from ccm.controllers.shared.event_budget import EventBudget
from ccm.engine.objects import Node


class Told:
    """An event recorder that keeps (uid, reason) of each Event."""

    def __init__(self):
        self.events = []

    def event(self, node, type, reason, message):
        self.events.append((node.metadata.uid, reason))


@pytest.fixture
def recorder():
    return Told()


@pytest.fixture
def clock():
    return [0.0]


def node(number):
    return msgspec.convert({"metadata": {"name": f"n{number}", "uid": f"u{number}"}}, Node)


def test_a_fact_is_told_again_after_a_while_only(recorder, clock):
    budget = EventBudget(recorder, lambda: clock[0], repeat=300.0)
    for clock[0] in (0.0, 299.0, 300.0):
        budget.event(node(1), "Warning", "InstanceNotFound", "gone")
    assert recorder.events == [("u1", "InstanceNotFound")] * 2


def test_a_burst_is_told_in_part_and_the_rest_at_a_rate(recorder, clock):
    budget = EventBudget(recorder, lambda: clock[0], rate=5.0, burst=50)
    sent = [budget.event(node(number), "Warning", "CloudNotAvailable", "down") for number in range(200)]
    assert sent == [True] * 50 + [False] * 150
    clock[0] = 2.0
    assert sum(budget.event(node(number), "Warning", "CloudNotAvailable", "down") for number in range(50, 200)) == 10


def test_what_may_be_told_again_is_not_remembered(recorder, clock):
    """Nodes come and go for months, but only the last minutes are remembered."""
    budget = EventBudget(recorder, lambda: clock[0], repeat=300.0)
    for number in range(1000):
        clock[0] = number * 10.0
        assert budget.event(node(number), "Warning", "InstanceNotFound", "gone")
    assert len(budget._sent) <= 31


def test_and_never_more_than_a_bounded_number(recorder, clock, monkeypatch):
    monkeypatch.setattr(EventBudget, "REMEMBERED", 100)
    budget = EventBudget(recorder, lambda: clock[0], burst=1000)
    for number in range(500):
        budget.event(node(number), "Warning", "InstanceNotFound", "gone")
    assert len(budget._sent) == 100


@pytest.mark.threat("tenant-cannot-stop-the-controller")
def test_a_topic_of_any_length_takes_little_memory(recorder, clock):
    """A kubelet that keeps changing a long annotation must not fill our memory."""
    budget = EventBudget(recorder, lambda: clock[0], rate=1000.0, burst=1000)
    for number in range(500):
        assert budget.event(node(1), "Warning", "InitializationFailed", "m", topic=f"{number}" + "a" * 250_000)
    assert sum(len(topic) for _, _, topic in budget._sent) <= 500 * EventBudget.TOPIC
