# SPDX-License-Identifier: Apache-2.0
"""An object that is new while the cloud seems to fail gets a turn to probe soon, or not at all."""

import math

import pytest

from ccm.gateway.newcomers import EVERY, EXPIRED, LONGEST_WAIT, REMEMBERED, Newcomers

NONE = math.inf


def waits(asked):
    """Return the seconds from each request (key, time) until its turn. The owner is the key's first letter."""
    newcomers, found = Newcomers(), []
    for key, moment in asked:
        newcomers.asks(key, f"of-{key[:1]}", moment)
        found.append(newcomers.wait(key, moment))
    return found


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        pytest.param([("a", 9.0)], [0.0], id="one"),
        pytest.param([("a", 9.0), ("b", 9.0), ("c", 9.0)], [0.0, EVERY, 2 * EVERY], id="three-at-once"),
        pytest.param([(each, 9.0) for each in "abcde"], [0.0, EVERY, 2 * EVERY, NONE, NONE], id="too-many-at-once"),
        pytest.param([("a", 9.0), ("b", 9.0 + EVERY)], [0.0, 0.0], id="as-fast-as-may-be"),
        pytest.param([("a", 9.0), ("b", 10.0)], [0.0, EVERY - 1.0], id="faster"),
        pytest.param([("a", 9.0), ("b", 9.0), ("b", 10.0)], [0.0, EVERY, EVERY - 1.0], id="it-keeps-its-turn"),
        pytest.param([*((each, 0.0) for each in "abcd"), ("d", 900.0)], [0.0, 4.0, 8.0, NONE, NONE], id="new-once"),
        pytest.param([*((each, 0.0) for each in "abcd"), ("e", 900.0)], [0.0, 4.0, 8.0, NONE, 0.0], id="new-later"),
        pytest.param([*((f"a{each}", 9.0) for each in range(4)), ("b", 9.0)], [0.0, 4.0, NONE, NONE, 8.0], id="of-one"),
        pytest.param([("a0", 9.0), ("b", 9.0), ("a1", 9.0), ("c", 9.0)], [0.0, 4.0, NONE, 8.0], id="the-last-place"),
        pytest.param([("a", 0.0), ("b", 900.0), ("a", 900.0)], [0.0, 0.0, NONE], id="its-turn-expired"),
    ],
)
def test_who_gets_which_turn(asked, expected):
    assert waits(asked) == expected


def test_the_next_turn_may_be_too_late():
    newcomers = Newcomers()
    newcomers.asks("a", "of-a", 0.0)
    newcomers.asks("b", "of-b", 1.0, longest=0.0)
    newcomers.asks("c", "of-c", EVERY, longest=0.0)
    assert newcomers.wait("b", 1.0) == NONE and newcomers.wait("c", EVERY) == 0.0


def test_a_failed_probe_puts_off_the_next_turn():
    newcomers = Newcomers()
    newcomers.asks("a", "of-a", 0.0)
    newcomers.failed(3.0)
    newcomers.asks("b", "of-b", 3.0)
    assert newcomers.wait("b", 3.0) == EVERY


def test_who_was_answered_is_new_again():
    newcomers = Newcomers()
    newcomers.asks("a", "of-a", 0.0)
    assert not newcomers.is_new("a")
    newcomers.answered("a")
    assert newcomers.is_new("a") and newcomers.wait("a", 0.0) == NONE


@pytest.mark.threat("tenant-cannot-stop-the-controller")
def test_objects_that_come_and_go_do_not_pile_up():
    newcomers = Newcomers()
    for number in range(3 * REMEMBERED):
        newcomers.asks(str(number), "one", number * EVERY)
    assert len(newcomers._remembered) == REMEMBERED and len(newcomers._turns) <= EXPIRED / EVERY + 1
    assert LONGEST_WAIT < EXPIRED
