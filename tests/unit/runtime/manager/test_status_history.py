# SPDX-License-Identifier: Apache-2.0
"""The ring buffer behind the plots of the status page: what it keeps, what it measures, and what it costs."""

from __future__ import annotations

import tracemalloc

import pytest

from ccm.controllers.shared.holds import Holds
from ccm.engine.metrics import REST_REQUESTS
from ccm.engine.queue import WorkQueue
from ccm.gateway.gateway import DURATION, REQUESTS
from ccm.manager.status_history import NAMES, SAMPLES, STEP, History, Sampler


def test_it_keeps_the_latest_samples_in_order():
    history = History(("a", "b"), size=3)
    assert history.series() == {"a": [], "b": []}
    for number in range(5):
        history.add((number, -number))
        assert len(history.series()["a"]) == min(number + 1, 3)
    assert history.series() == {"a": [2, 3, 4], "b": [-2, -3, -4]}


def test_a_sample_has_a_value_for_each_name():
    with pytest.raises(ValueError):
        History(("a", "b")).add((1.0,))


def test_it_covers_an_hour():
    assert STEP * SAMPLES == 3600


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def test_rates_are_per_minute_between_two_samples():
    clock, holds = Clock(), Holds()
    sampler = Sampler(holds, clock)
    REQUESTS.labels("instances.list", "success").inc(6)
    REQUESTS.labels("instances.list", "NotFound").inc(2)
    REQUESTS.labels("instances.get", "timeout").inc(4)
    for seconds in (1.0, 3.0):
        DURATION.labels("instances.list").observe(seconds)
    REST_REQUESTS.labels("200", "GET", "x").inc(10)
    holds.put("Node", "n", "TooYoung", "")
    clock.now += 120
    sampler.sample()
    clock.now += 60
    sampler.sample()
    series = sampler.history.series()
    assert list(series) == list(NAMES)
    assert series["cloud calls per minute"] == [6, 0]
    assert series["cloud failures per minute"] == [2, 0]
    assert series["mean seconds of a cloud call"] == [2, 0]
    assert series["API requests per minute"] == [5, 0]
    assert series["deletions held"] == [1, 1]


async def test_queues_are_measured():
    queue: WorkQueue[str] = WorkQueue("measured")
    sampler = Sampler(Holds())
    before = sampler.history
    queue.add("a")
    queue.add("b")
    sampler.sample()
    assert before.series()["objects waiting in queues"][-1] >= 2
    assert before.series()["seconds of the longest wait in a queue"][-1] > 0


def test_an_hour_of_samples_takes_less_than_200_kib():
    tracemalloc.start()
    try:
        empty, _ = tracemalloc.get_traced_memory()
        sampler = Sampler(Holds())
        for _ in range(SAMPLES + SAMPLES // 4):  # fills the ring buffer and overwrites a quarter of it
            sampler.sample()
        used = tracemalloc.get_traced_memory()[0] - empty
    finally:
        tracemalloc.stop()
    assert used < 200 * 1024
    assert used > 4 * SAMPLES * len(NAMES), "the measurement missed the samples"
