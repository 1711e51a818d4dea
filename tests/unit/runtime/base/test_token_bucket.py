# SPDX-License-Identifier: Apache-2.0
"""The token bucket that limits requests, calls, reviews and Events."""

from __future__ import annotations

import pytest

from ccm.base.token_bucket import TokenBucket


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def bucket(clock: Clock) -> TokenBucket:
    return TokenBucket(4.0, 3, clock)


def test_it_gives_the_burst_then_the_rate(bucket: TokenBucket):
    assert [bucket.reserve() for _ in range(6)] == [0.0, 0.0, 0.0, 0.25, 0.5, 0.75]


def test_it_fills_up_to_the_burst_and_pays_debts_first(bucket: TokenBucket, clock: Clock):
    for _ in range(5):
        bucket.reserve()  # two on credit
    clock.now += 0.5
    assert bucket.reserve() == 0.25  # the two tokens repaid the debt; this one is borrowed again
    clock.now += 1000.0
    assert [bucket.reserve() for _ in range(4)] == [0.0, 0.0, 0.0, 0.25]


def test_take_waits_for_nothing_and_a_refusal_costs_nothing(bucket: TokenBucket, clock: Clock):
    assert [bucket.take() for _ in range(5)] == [True, True, True, False, False]
    clock.now += 0.24
    assert not bucket.take()
    clock.now += 0.01
    assert [bucket.take(), bucket.take()] == [True, False]


def test_take_leaves_what_others_reserved(bucket: TokenBucket, clock: Clock):
    for _ in range(4):
        bucket.reserve()
    clock.now += 0.25
    assert not bucket.take()
    clock.now += 0.25
    assert bucket.take()


@pytest.mark.parametrize("rate", [0.0, -1.0])
def test_without_a_rate_there_is_no_limit(clock: Clock, rate: float):
    bucket = TokenBucket(rate, 1, clock)
    assert [bucket.reserve() for _ in range(3)] == [0.0, 0.0, 0.0]
    assert all(bucket.take() for _ in range(3)) and bucket.full


def test_a_burst_of_none_is_one_at_a_time(clock: Clock):
    bucket = TokenBucket(2.0, 0, clock)
    assert [bucket.reserve() for _ in range(3)] == [0.0, 0.5, 1.0]


def test_a_pause_stops_everybody_and_the_longest_counts(bucket: TokenBucket, clock: Clock):
    bucket.pause(10.0)
    bucket.pause(2.0)
    clock.now += 4.0
    assert (bucket.reserve(), bucket.paused_for, bucket.take(), bucket.full) == (6.0, 6.0, False, False)
    clock.now += 7.0
    assert (bucket.reserve(), bucket.paused_for, bucket.take(), bucket.full) == (0.0, 0.0, True, False)


def test_a_pause_holds_also_where_there_is_no_limit(clock: Clock):
    bucket = TokenBucket(clock=clock)
    bucket.pause(5.0)
    assert (bucket.reserve(), bucket.take(), bucket.full) == (5.0, False, False)


def test_full_is_as_good_as_new(bucket: TokenBucket, clock: Clock):
    assert bucket.full
    bucket.reserve()
    assert not bucket.full
    clock.now += 0.2
    assert not bucket.full
    clock.now += 0.05
    assert bucket.full
