# SPDX-License-Identifier: Apache-2.0
"""When an eventually consistent cloud may show what no longer exists."""

from __future__ import annotations

import math

import pytest

from ccm.cloud import LoadBalancer
from ccm.controllers.services import late_answer_rules as rules

NEVER = -math.inf


@pytest.mark.parametrize(
    ("now", "left"),
    [(100.0, 20.0), (105.5, 14.5), (119.0, 1.0), (120.0, 0.0), (500.0, 0.0)],
)
def test_a_deleted_load_balancer_may_be_shown_for_the_lag(now, left):
    deletions = rules.Deletions()
    deletions.add("a", 100.0, 20.0)
    assert deletions.left("a", now, 20.0) == left
    assert deletions.left("b", now, 20.0) == 0.0


def test_a_short_lag_counts_too():
    deletions = rules.Deletions()
    deletions.add("a", 100.0, 1.0)
    assert deletions.left("a", 100.25, 1.0) == 0.75


def test_the_last_request_to_delete_it_counts():
    deletions = rules.Deletions()
    deletions.add("a", 100.0, 20.0)
    deletions.add("a", 110.0, 20.0)
    assert deletions.left("a", 125.0, 20.0) == 5.0


def test_a_consistent_cloud_shows_nothing_that_was_deleted():
    deletions = rules.Deletions()
    deletions.add("a", 100.0, 0.0)
    assert deletions.left("a", 100.0, 0.0) == 0.0
    assert len(deletions) == 0


def test_only_deletions_that_may_still_be_hidden_are_remembered():
    deletions = rules.Deletions()
    for number in range(100):
        deletions.add(f"uid-{number}", float(number), 20.0)
    assert len(deletions) == 20
    assert deletions.left("uid-80", 99.0, 20.0) == 1.0


@pytest.mark.parametrize(
    ("late_until", "now", "late"), [(NEVER, 0.0, False), (120.0, 119.9, True), (120.0, 120.0, False)]
)
def test_an_answer_is_late_until_the_lag_after_the_write_is_over(late_until, now, late):
    assert rules.is_late(late_until, now) is late


@pytest.mark.parametrize(
    ("fingerprint", "ready", "late_until", "asked", "overtaken"),
    [
        pytest.param("old", True, 120.0, 120.0, True, id="another state, and answers are no longer late"),
        pytest.param("old", True, 120.0, 119.9, False, id="the answer may be late"),
        pytest.param("old", False, 120.0, 130.0, False, id="the cloud is still working on it"),
        pytest.param("new", True, 120.0, 130.0, False, id="as it was written"),
        pytest.param("", True, 120.0, 130.0, False, id="a provider without fingerprints"),
        pytest.param("old", True, NEVER, 130.0, False, id="a consistent cloud"),
    ],
)
def test_what_a_write_left_is_compared_when_answers_are_no_longer_late(
    fingerprint, ready, late_until, asked, overtaken
):
    found = LoadBalancer("uid", "web", fingerprint=fingerprint, ready=ready)
    assert rules.is_overtaken(found, "new", late_until, asked) is overtaken
