# SPDX-License-Identifier: Apache-2.0
"""What controllers hold back, as the status page shows it."""

from __future__ import annotations

from ccm.controllers.shared.holds import LONGEST, MOST, Hold, Holds


def at(seconds: list[float]) -> Holds:
    return Holds(monotonic=lambda: seconds[-1])


def test_time_counts_from_the_first_report_of_the_same_rule():
    now = [10.0]
    holds = at(now)
    holds.put("Node", "a", "TooYoung", "60 s old")
    now.append(15.0)
    holds.put("Node", "a", "TooYoung", "65 s old")
    assert list(holds.all()) == [Hold("Node", "a", "TooYoung", "65 s old", 10.0)]
    holds.put("Node", "a", "RateLimited", "others go first")
    assert list(holds.all()) == [Hold("Node", "a", "RateLimited", "others go first", 15.0)]


def test_the_oldest_comes_first_and_kinds_are_apart():
    now = [1.0]
    holds = at(now)
    holds.put("Route", "x", "Unclaimed", "")
    now.append(2.0)
    holds.put("Node", "x", "TooYoung", "")
    assert [hold.kind for hold in holds.all()] == ["Route", "Node"] and holds.count == 2
    holds.drop("Node", "x")
    holds.drop("Node", "never held")
    assert [hold.kind for hold in holds.all()] == ["Route"]


def test_keep_forgets_those_that_are_held_no_more():
    holds = Holds()
    for name in ("a", "b"):
        holds.put("Node", name, "TooYoung", "")
    holds.put("Route", "b", "Unclaimed", "")
    holds.keep("Node", lambda name: name == "a")
    assert {(hold.kind, hold.name) for hold in holds.all()} == {("Node", "a"), ("Route", "b")}


def test_replace_is_all_of_a_kind():
    now = [1.0]
    holds = at(now)
    holds.replace("Route", {"a": ("Unclaimed", ""), "b": ("Unclaimed", "")})
    now.append(9.0)
    holds.replace("Route", {"b": ("Unclaimed", ""), "c": ("Unclaimed", "")})
    assert [(hold.name, hold.since) for hold in holds.all()] == [("b", 1.0), ("c", 9.0)]


def test_it_is_bounded_whatever_strangers_write():
    holds = Holds()
    for number in range(MOST + 50):
        holds.put("Node", f"n{number}", "TooYoung", "x" * 1_000_000)
    assert holds.count == MOST
    assert all(len(hold.message) < LONGEST + 50 for hold in holds.all())
    holds.put("Node", "n0", "RateLimited", "still updated")
    assert "RateLimited" in {hold.rule for hold in holds.all()}


def test_a_part_replaces_and_drops_its_own_alone():
    holds = Holds()
    north, metal = holds.part(), holds.part()
    north.put("Orphan", "a", "ReportOnly", "")
    metal.put("Orphan", "a", "ReportOnly", "of the other cloud")
    holds.put("Node", "n", "TooYoung", "")
    north.replace("Orphan", {})
    assert holds.count == 2 and {(hold.kind, hold.message) for hold in holds.all()} == {
        ("Orphan", "of the other cloud"),
        ("Node", ""),
    }
