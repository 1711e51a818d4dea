# SPDX-License-Identifier: Apache-2.0
"""Namespaces take turns: many or slow keys of one namespace do not delay another namespace."""

import asyncio

import pytest

from ccm.base.clock import FakeClock
from ccm.engine.queue import LOW_TURN, SPREAD, Priority, Requeue, WorkQueue

from .test_queue import workers


@pytest.fixture
def clock():
    return FakeClock()


def working(clock, started, seconds=5.0):
    async def process(key):
        started[key] = clock.monotonic()
        await clock.sleep(seconds)

    return process


@pytest.mark.threat("tenant-cannot-stop-the-controller")
@pytest.mark.parametrize("seconds", [5.0, 60.0])
@pytest.mark.parametrize("n", [2, 4, 8, 20])
@pytest.mark.parametrize("at", [0.0, 7.0])
async def test_500_keys_of_one_namespace_do_not_delay_another(clock, n, at, seconds):
    queue, started = WorkQueue("q", clock=clock), {}
    for number in range(500):
        queue.add(f"busy/{number}")
    async with workers(queue, working(clock, started, seconds), n=n):
        await clock.advance(at)
        added = clock.monotonic()
        queue.add("quiet/service")
        await clock.settle()
        assert started["quiet/service"] == added


async def test_namespaces_take_turns_whatever_their_number_of_keys(clock):
    queue, started = WorkQueue("q", clock=clock), {}
    for namespace, count in (("a", 50), ("b", 3), ("c", 1)):
        for number in range(count):
            queue.add(f"{namespace}/{number}")
    async with workers(queue, working(clock, started, 1.0)):
        await clock.advance(9.5)
    assert list(started) == ["a/0", "b/0", "c/0", "a/1", "b/1", "a/2", "b/2", "a/3", "a/4", "a/5"]


async def test_refreshes_take_turns_too_and_keep_their_share(clock):
    queue, started = WorkQueue("q", clock=clock), {}
    for number in range(20):
        queue.add(f"a/{number}")
        queue.add(f"a/low{number}", Priority.LOW)
    queue.add("b/low", Priority.LOW)
    async with workers(queue, working(clock, started, 1.0)):
        await clock.advance(2 * LOW_TURN - 0.5)
    assert [key for key in started if "low" in key] == ["a/low0", "b/low"]


async def test_a_namespace_at_its_limit_lets_refreshes_of_others_go_first(clock):
    queue, started = WorkQueue("q", clock=clock), {}
    for number in range(10):
        queue.add(f"a/{number}")
    queue.add("b/low", Priority.LOW)
    async with workers(queue, working(clock, started), n=4):
        await clock.settle()
        assert set(started) == {"a/0", "a/1", "a/2", "b/low"}


@pytest.mark.parametrize(("n", "together"), [(1, 1), (2, 1), (4, 3), (8, 7), (20, 18)])
async def test_a_namespace_leaves_workers_to_others(clock, n, together):
    queue, started = WorkQueue("q", clock=clock), {}
    for number in range(100):
        queue.add(f"a/{number}")
    async with workers(queue, working(clock, started), n=n):
        await clock.settle()
        assert len(started) == together
        await clock.advance(5.0)
        assert len(started) == 2 * together, "a worker that is free takes the next one"


async def test_keys_without_a_namespace_have_all_workers(clock):
    queue, started = WorkQueue("q", clock=clock), {}
    for number in range(100):
        queue.add(f"node-{number}")
    async with workers(queue, working(clock, started), n=20):
        await clock.settle()
        assert len(started) == 20


async def test_an_idle_worker_takes_what_its_namespace_may_run_again(clock):
    """The worker that finished takes a key of another namespace, so the idle worker must wake up for `a/2`."""
    queue, started = WorkQueue("q", clock=clock), {}
    durations = {"a/0": 1.0, "b/0": 9.0}

    async def process(key):
        started[key] = clock.monotonic()
        await clock.sleep(durations.get(key, 5.0))
        if key == "a/0":
            queue.add("b/0")

    for number in range(3):
        queue.add(f"a/{number}")
    began = clock.monotonic()
    async with workers(queue, process, n=3):
        await clock.advance(1.5)
    assert {key: at - began for key, at in started.items()} == {"a/0": 0.0, "a/1": 0.0, "a/2": 1.0, "b/0": 1.0}


async def test_keys_that_failed_together_do_not_return_together(clock):
    factors = iter([1.0, 1.1, SPREAD])
    queue, seen = WorkQueue("q", clock=clock, jitter=lambda least, most: next(factors)), []
    began = clock.monotonic()

    async def process(key):
        seen.append((key, clock.monotonic() - began))
        if len(seen) <= 3:
            raise Requeue(100.0) from OSError("down")

    for key in "abc":
        queue.add(key)
    async with workers(queue, process):
        for _ in range(14):
            await clock.advance(10.0)
    assert seen[3:] == [("a", 100.0), ("b", pytest.approx(110.0)), ("c", 125.0)]


async def test_a_wait_for_something_that_goes_on_is_exact(clock):
    queue, seen = WorkQueue("q", clock=clock, jitter=lambda least, most: most), []

    async def process(key):
        seen.append(clock.monotonic())
        if len(seen) == 1:
            raise Requeue(2.0)

    queue.add("a")
    async with workers(queue, process):
        await clock.advance(3.0)
    assert seen[1] - seen[0] == 2.0


async def test_workers_that_are_cancelled_leave_nothing_behind(clock):
    queue, started = WorkQueue("q", clock=clock), {}
    async with workers(queue, working(clock, started), n=4):
        await clock.settle()
    queue.add("a/0")
    async with workers(queue, working(clock, started), n=4):
        await clock.settle()
        assert list(started) == ["a/0"]
    assert queue.running == {} and not queue._running_of
    await asyncio.sleep(0)
