# SPDX-License-Identifier: Apache-2.0
"""Every single rule of Node deletion at its boundary, and all together. Upstream has none of these rules (W4)."""

import datetime
import itertools

import pytest

from ccm.controllers.nodes.node_lifecycle_rules import Missing, Safety, Verdict, Window, certain_age, decide, turn
from ccm.controllers.nodes.node_witness_rules import Doubt

SAFETY = Safety(min_age=300, confirmations=2, interval=5, cap_share=0.10, cap_min=2, window=600)


def missing(confirmed=2, provider_id="fake://1"):
    return Missing("uid", provider_id, confirmed=confirmed)


def judge(gone=None, *, age=300.0, doubt=None, used=0, nodes=100, safety=SAFETY):
    cap = safety.cap(nodes)
    return decide(gone or missing(), age=age, doubt=doubt, used=used, nodes=nodes, cap=cap, safety=safety)


def verdict(*args, **facts):
    decision = judge(*args, **facts)
    return decision.verdict, decision.reason


DELETE = (Verdict.DELETE, "")


def test_all_rules_fulfilled():
    assert verdict() == DELETE


@pytest.mark.parametrize(("confirmed", "expected"), [(0, False), (1, False), (2, True), (3, True)])
def test_confirmations(confirmed, expected):
    assert verdict(missing(confirmed)) == (DELETE if expected else (Verdict.WAIT, "Unconfirmed"))


def test_unconfirmed_says_how_far_it_is():
    assert judge(missing(1), age=999).message == "reported gone 1 of 2 times"


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
        (0.29, 2, 100, 29),  # in binary floating point, 100 * 0.29 is 28.999...
        (1.0, 2, 7, 7),
        (0.0, 5, 1000, 5),
        (0.0, 0, 1000, 0),
    ],
)
def test_cap(share, minimum, nodes, cap):
    assert Safety(cap_share=share, cap_min=minimum).cap(nodes) == cap


@pytest.mark.parametrize(
    ("used", "nodes", "allowed"),
    [
        pytest.param(9, 100, True, id="the-last-of-the-share"),
        pytest.param(10, 100, False, id="share-used-up"),
        pytest.param(99, 100, False, id="many-go-first"),
        pytest.param(1, 3, True, id="minimum-in-a-small-cluster"),
        pytest.param(2, 3, False, id="minimum-used-up"),
    ],
)
def test_rate(used, nodes, allowed):
    assert verdict(used=used, nodes=nodes) == (DELETE if allowed else (Verdict.WAIT, "RateLimited"))


def test_the_rate_is_told_with_its_numbers():
    message = judge(used=11).message
    for part in (
        "11 other Nodes",
        "within 600 s",
        "at most 10 of 100",
        "--node-deletion-cap",
        "--node-deletion-window",
    ):
        assert part in message


@pytest.mark.parametrize(("lasting", "kind"), [(True, Verdict.HOLD), (False, Verdict.WAIT)])
def test_a_doubted_listing_deletes_none_and_is_an_alarm_when_it_lasts(lasting, kind):
    decision = judge(doubt=Doubt("why", lasting))
    assert (decision.verdict, decision.reason, decision.message) == (kind, "ListingDoubted", "why")


@pytest.mark.parametrize("used", [0, 1])
def test_a_cap_of_zero_turns_deletion_off(used):
    safety = Safety(cap_share=0.0, cap_min=0)
    assert verdict(safety=safety, used=used) == (Verdict.HOLD, "TurnedOff")
    assert "--node-deletion-cap=0" in judge(safety=safety).message


def test_whose_turn_it_is():
    """Nodes whose instance was seen go first, then those whose instance never was, and last those whose deletion was
    refused. Of each kind, the oldest go first.
    """
    nodes = [
        ("seen, young", dict(seen=True, created="2026-03-02T00:00:00Z"), 0),
        ("unseen, old", dict(seen=False, created="2025-01-01T00:00:00Z"), 0),
        ("refused, old", dict(seen=True, created="2024-01-01T00:00:00Z"), 1),
        ("seen, old", dict(seen=True, created="2026-03-01T00:00:00Z"), 0),
        ("unseen, young", dict(seen=False, created="2026-02-01T00:00:00Z"), 0),
        ("unseen, without a time", dict(seen=False, created=None), 0),
    ]
    found = sorted(nodes, key=lambda node: turn(Missing("u", "p", refused=node[2]), name=node[0], **node[1]))
    assert [name for name, *_ in found] == [
        "seen, old",
        "seen, young",
        "unseen, without a time",
        "unseen, old",
        "unseen, young",
        "refused, old",
    ]


@pytest.mark.parametrize("nodes", [11, 12, 20, 29, 30, 39, 40, 100, 300, 1000])
def test_the_figures_of_the_defaults(nodes):
    """Ten missing Nodes, or a third of all, go in at most five batches, the last at most 12 minutes after the first."""
    safety, left, batches = Safety(), max(10, nodes // 3), 0
    while left > 0:
        gone = min(left, safety.cap(nodes))
        left, nodes, batches = left - gone, nodes - gone, batches + 1
    assert (batches - 1) * safety.window <= 12 * 60


def test_a_node_that_never_had_a_provider_id_is_never_deleted():
    assert verdict(missing(99, provider_id=""), age=1e9) == (Verdict.HOLD, "NoProviderID")


@pytest.mark.parametrize("broken", list(itertools.product([False, True], repeat=5)))
def test_every_combination_tells_the_first_reason(broken):
    no_id, unconfirmed, young, doubted, many = broken
    found = verdict(
        missing(1 if unconfirmed else 2, "" if no_id else "fake://1"),
        age=10 if young else 900,
        doubt=Doubt("why", True) if doubted else None,
        used=50 if many else 0,
    )
    reasons = [
        (no_id, (Verdict.HOLD, "NoProviderID")),
        (unconfirmed, (Verdict.WAIT, "Unconfirmed")),
        (young, (Verdict.WAIT, "TooYoung")),
        (doubted, (Verdict.HOLD, "ListingDoubted")),
        (many, (Verdict.WAIT, "RateLimited")),
    ]
    assert found == next((reason for is_broken, reason in reasons if is_broken), DELETE)


def test_window_forgets():
    window = Window(600.0, {"a": 0.0, "b": 10.0, "c": 599.0})
    assert [len(window.within(now)) for now in (599.0, 600.0, 610.0, 1198.9, 1199.0)] == [3, 2, 1, 1, 0]
    assert window.times == {}


def test_window_counts_a_node_once_and_not_what_failed():
    window = Window(600.0)
    for now in (1.0, 2.0):
        window.add("a", now)
    window.add("b", 3.0)
    assert window.within(4.0) == {"a", "b"}
    window.remove("b")
    assert window.within(4.0) == {"a"}


@pytest.mark.parametrize(("now", "seconds"), [(100.0, 510.0), (610.0, 0.0), (900.0, 0.0)])
def test_when_the_window_frees_a_turn(now, seconds):
    assert Window(600.0, {"b": 200.0, "a": 10.0}).frees(now) == seconds
    assert Window(600.0).frees(now) == 0.0


WALL = datetime.datetime(2026, 3, 1, 12, 0, 0, tzinfo=datetime.UTC)


def test_the_next_leader_is_told_what_went_when():
    """The next leader has another monotonic clock, so the note has wall-clock times."""
    window = Window(600.0, {"old": 0.0, "just-out": 400.0, "a": 500.0, "b": 500.2, "c": 990.0})
    record = window.record(1000.0, WALL)
    assert record == '{"2026-03-01T11:51:40Z":2,"2026-03-01T11:59:50Z":1}'
    later = Window(600.0)
    later.recall(record, 7.0, WALL + datetime.timedelta(seconds=30))
    assert [len(later.within(now)) for now in (7.0, 76.0, 78.0, 566.0, 568.0)] == [3, 3, 1, 1, 0]


def test_a_deletion_told_of_the_future_counts_as_now_and_one_of_long_ago_not():
    window = Window(600.0)
    record = '{"2026-03-01T13:00:00Z":1,"2026-03-01T11:00:00Z":5,"2026-03-01T11:50:00Z":7}'
    window.recall(record, 0.0, WALL)
    assert len(window.times) == 1  # deletions outside of the window are dropped, so that memory is bounded
    assert [len(window.within(now)) for now in (0.0, 599.0, 601.0)] == [1, 1, 0]


@pytest.mark.parametrize("note", ["", "[]", "{", '{"yesterday":1}', '{"2026-03-01T11:00:00Z":null}', "3"])
def test_a_note_that_says_no_deletions_is_refused(note):
    window = Window(600.0)
    with pytest.raises(ValueError, match="is not a record of deletions"):
        window.recall(note, 0.0, WALL)
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
