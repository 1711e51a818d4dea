# SPDX-License-Identifier: Apache-2.0
"""Every rule of Node deletion alone, at its edge, and all of them together. Upstream has none of them (W4)."""

import datetime
import itertools

import pytest

from ccm.controllers.node_lifecycle_rules import Missing, Safety, Verdict, Window, certain_age, decide

SAFETY = Safety(min_age=300, confirmations=2, interval=5, cap_share=0.10, cap_min=2, window=600)


def missing(confirmed=2, provider_id="fake://1"):
    return Missing("uid", provider_id, confirmed=confirmed)


def verdict(gone=None, *, age=300.0, candidates=1, recently=0, nodes=100, safety=SAFETY):
    decision = decide(gone or missing(), age=age, candidates=candidates, recently=recently, nodes=nodes, safety=safety)
    return decision.verdict, decision.reason


DELETE = (Verdict.DELETE, "")


def test_all_rules_fulfilled():
    assert verdict() == DELETE


@pytest.mark.parametrize(("confirmed", "expected"), [(0, False), (1, False), (2, True), (3, True)])
def test_confirmations(confirmed, expected):
    assert verdict(missing(confirmed)) == (DELETE if expected else (Verdict.WAIT, "Unconfirmed"))


def test_unconfirmed_says_how_far_it_is():
    decision = decide(missing(1), age=999, candidates=1, recently=0, nodes=9, safety=SAFETY)
    assert decision.message == "reported gone 1 of 2 times"


def test_reads_closer_than_the_interval_are_one_confirmation():
    gone = Missing("uid", "fake://1")
    counted = []
    for now in (100.0, 100.0, 104.9, 105.0, 109.9, 110.5):
        gone.confirm(now, interval=5.0)
        counted.append(gone.confirmed)
    assert counted == [1, 1, 1, 2, 2, 3]


def test_first_read_counts_at_any_time_of_the_clock():
    gone = Missing("uid", "fake://1")
    gone.confirm(0.0, interval=5.0)
    assert gone.confirmed == 1


@pytest.mark.parametrize(("age", "expected"), [(0.0, False), (299.9, False), (300.0, True), (1e6, True)])
def test_min_age(age, expected):
    assert verdict(age=age) == (DELETE if expected else (Verdict.WAIT, "TooYoung"))


@pytest.mark.parametrize(
    ("share", "minimum", "nodes", "cap"),
    [
        (0.10, 2, 0, 2),
        (0.10, 2, 29, 2),
        (0.10, 2, 30, 3),
        (0.10, 2, 39, 3),
        (0.10, 2, 1000, 100),
        (0.29, 2, 100, 29),  # as binary fractions 100 * 0.29 is 28.999...
        (1.0, 2, 7, 7),
        (0.0, 5, 1000, 5),
        (0.0, 0, 1000, 0),
    ],
)
def test_cap(share, minimum, nodes, cap):
    assert Safety(cap_share=share, cap_min=minimum).cap(nodes) == cap


@pytest.mark.parametrize(
    ("candidates", "recently", "nodes", "allowed"),
    [
        pytest.param(10, 0, 100, True, id="share-reached"),
        pytest.param(11, 0, 100, False, id="share-exceeded"),
        pytest.param(1, 9, 91, True, id="recent-ones-count-with-those-that-were-there"),
        pytest.param(2, 9, 91, False, id="recent-ones-exceed"),
        pytest.param(1, 10, 90, False, id="window-used-up"),
        pytest.param(2, 0, 3, True, id="minimum-in-a-small-cluster"),
        pytest.param(3, 0, 3, False, id="all-of-a-small-cluster"),
        pytest.param(2, 1, 2, False, id="minimum-used-up"),
    ],
)
def test_share_of_the_window(candidates, recently, nodes, allowed):
    found = verdict(candidates=candidates, recently=recently, nodes=nodes)
    assert found == (DELETE if allowed else (Verdict.HOLD, "TooManyMissing"))


def test_too_many_names_numbers_and_ways_out():
    decision = decide(missing(), age=999, candidates=11, recently=3, nodes=97, safety=SAFETY)
    for part in ("11 Nodes", "3 went", "last 600 s", "at most 10 of 100", "--node-deletion-cap", "by hand"):
        assert part in decision.message


def test_a_cap_of_zero_turns_deletion_off():
    assert verdict(safety=Safety(cap_share=0.0, cap_min=0)) == (Verdict.HOLD, "TooManyMissing")


def test_a_node_that_never_had_a_provider_id_is_never_deleted():
    assert verdict(missing(99, provider_id=""), age=1e9) == (Verdict.HOLD, "NoProviderID")


@pytest.mark.parametrize("broken", list(itertools.product([False, True], repeat=4)))
def test_every_combination_tells_the_first_reason(broken):
    no_id, unconfirmed, young, many = broken
    found = verdict(
        missing(1 if unconfirmed else 2, "" if no_id else "fake://1"),
        age=10 if young else 900,
        candidates=50 if many else 1,
    )
    reasons = [
        (no_id, (Verdict.HOLD, "NoProviderID")),
        (unconfirmed, (Verdict.WAIT, "Unconfirmed")),
        (young, (Verdict.WAIT, "TooYoung")),
        (many, (Verdict.HOLD, "TooManyMissing")),
    ]
    assert found == next((reason for is_broken, reason in reasons if is_broken), DELETE)


def test_window_forgets():
    window = Window(600.0, {"a": 0.0, "b": 10.0, "c": 599.0})
    assert [window.count(now) for now in (599.0, 600.0, 610.0, 1198.9, 1199.0)] == [3, 2, 1, 1, 0]
    assert window.times == {}


def test_window_counts_a_node_once_and_not_what_failed():
    window = Window(600.0)
    for now in (1.0, 2.0):
        window.add("a", now)
    window.add("b", 3.0)
    assert window.count(4.0) == 2
    assert window.count(4.0, without={"a"}) == 1
    window.remove("b")
    assert window.count(4.0) == 1


WALL = datetime.datetime(2026, 3, 1, 12, 0, 0, tzinfo=datetime.UTC)


def test_the_next_leader_is_told_what_went_when():
    """Its monotonic clock is another one."""
    window = Window(600.0, {"old": 0.0, "a": 500.0, "b": 500.2, "c": 990.0})
    told = window.told(1000.0, WALL)
    assert told == '{"2026-03-01T11:51:40Z":2,"2026-03-01T11:59:50Z":1}'
    later = Window(600.0)
    later.recall(told, 7.0, WALL + datetime.timedelta(seconds=30))
    assert [later.count(now) for now in (7.0, 76.0, 78.0, 566.0, 568.0)] == [3, 3, 1, 1, 0]


def test_a_deletion_told_of_the_future_counts_as_now_and_one_of_long_ago_not():
    window = Window(600.0)
    window.recall('{"2026-03-01T13:00:00Z":1,"2026-03-01T11:00:00Z":5}', 0.0, WALL)
    assert [window.count(now) for now in (0.0, 599.0, 601.0)] == [1, 1, 0]


@pytest.mark.parametrize("told", ["", "[]", "{", '{"yesterday":1}', '{"2026-03-01T11:00:00Z":null}', "3"])
def test_a_note_that_says_no_deletions_is_refused(told):
    window = Window(600.0)
    with pytest.raises(ValueError, match="does not tell deletions"):
        window.recall(told, 0.0, WALL)
    assert window.times == {}


@pytest.mark.parametrize(
    ("by_creation", "watched_for", "age"),
    [
        pytest.param(900.0, None, 900.0, id="there-before-us"),
        pytest.param(10.0, 10.0, 10.0, id="clocks-agree"),
        pytest.param(3610.0, 10.0, 10.0, id="the-api-server's-clock-was-an-hour-late"),
        pytest.param(0.0, 400.0, 0.0, id="our-clock-jumped-back"),
    ],
)
def test_the_age_that_can_be_relied_upon(by_creation, watched_for, age):
    assert certain_age(by_creation, watched_for) == age
