# SPDX-License-Identifier: Apache-2.0
"""Two priorities: keys for which a user waits go first, and periodic refreshes are not starved."""

import asyncio
import itertools

import pytest

from ccm.base.clock import FakeClock
from ccm.engine.queue import LOW_TURN, Priority, Requeue, WorkQueue

from .test_queue import workers


@pytest.fixture
def clock():
    return FakeClock()


def recorder(seen):
    async def process(key):
        seen.append(key)

    return process


async def test_keys_of_normal_priority_go_first(clock):
    queue, seen = WorkQueue("q", clock=clock), []
    for number in range(50):
        queue.add(f"low{number}", Priority.LOW)
    queue.add("a")
    queue.add("b")
    async with workers(queue, recorder(seen)):
        await clock.settle()
        await clock.settle()
        await clock.settle()
    assert seen[:2] == ["a", "b"] and seen[2:] == [f"low{number}" for number in range(50)]


async def test_a_higher_priority_moves_a_waiting_key_and_a_lower_one_does_not(clock):
    queue, seen = WorkQueue("q", clock=clock), []
    queue.add("first", Priority.LOW)
    queue.add("moved", Priority.LOW)
    queue.add("stays")
    queue.add("moved")
    queue.add("stays", Priority.LOW)
    assert queue.depth == 3, "no key waits twice"
    async with workers(queue, recorder(seen)):
        await clock.settle()
    assert seen == ["stays", "moved", "first"]


async def test_low_keys_get_their_share_however_many_others_come(clock):
    queue, seen = WorkQueue("q", clock=clock), []

    async def process(key):
        seen.append(key)
        queue.add(f"n{len(seen)}")  # another key always waits
        await clock.sleep(1)

    queue.add("n0")
    for number in range(5):
        queue.add(f"low{number}", Priority.LOW)
    async with workers(queue, process):
        await clock.advance(6 * LOW_TURN)
    assert [key for key in seen if key.startswith("low")] == [f"low{number}" for number in range(5)]
    turns = [turn for turn, key in enumerate(seen) if key.startswith("low")]
    assert {after - before for before, after in itertools.pairwise(turns)} == {LOW_TURN}


async def test_a_key_that_is_added_while_it_runs_waits_with_the_priority_it_was_added_with(clock):
    queue, seen = WorkQueue("q", clock=clock), []

    async def process(key):
        seen.append(key)
        await clock.sleep(1)

    queue.add("a")
    queue.add("b", Priority.LOW)
    async with workers(queue, process):
        await clock.settle()
        queue.add("a", Priority.LOW)
        await clock.advance(1.5)
        assert seen == ["a", "b"], "b waited before a came again"
        queue.add("b")  # `a` waits with LOW
        await clock.advance(5)
    assert seen == ["a", "b", "b", "a"]


@pytest.mark.parametrize("error", [Requeue(1), ValueError("busy")])
async def test_a_key_comes_back_with_the_priority_it_ran_with(clock, error):
    queue, seen = WorkQueue("q", base_delay=1, clock=clock), []

    async def process(key):
        seen.append(key)
        if key in ("urgent", "patient") and seen.count(key) == 1:
            raise error
        await clock.sleep(3)

    queue.add("patient", Priority.LOW)
    async with workers(queue, process, on_error=lambda key, error: None):
        await clock.settle()
        queue.add("urgent")
        queue.add("holds the worker")
        await clock.advance(2)
        for number in range(3):
            queue.add(f"low{number}", Priority.LOW)
        queue.add("normal")
        await clock.advance(30)
    assert seen[:3] == ["patient", "urgent", "holds the worker"]
    assert seen.index("urgent", 3) < seen.index("normal") < seen.index("low2")
    assert seen.index("patient", 3) > seen.index("urgent", 3)


async def test_of_several_delays_the_shortest_and_the_highest_priority_count(clock):
    queue, seen = WorkQueue("q", clock=clock), []
    queue.add_after("a", 3, Priority.LOW)
    queue.add_after("a", 10)
    queue.add_after("b", 3, Priority.LOW)
    queue.add_after("b", 2, Priority.LOW)
    queue.add_after("c", 10)
    queue.add_after("c", 3, Priority.LOW)
    await clock.advance(2.5)
    assert queue.depth == 1
    await clock.advance(1)
    async with workers(queue, recorder(seen)):
        await clock.settle()
        await clock.advance(20)
    assert seen == ["a", "c", "b"]


async def test_workers_that_wait_are_woken_for_either_priority(clock):
    queue, seen = WorkQueue("q", clock=clock), []
    async with workers(queue, recorder(seen), n=3):
        await clock.settle()
        queue.add("a", Priority.LOW)
        queue.add("b")
        queue.add("a")  # moved to the higher priority before a worker took it
        await clock.settle()
        assert (sorted(seen), queue.depth) == (["a", "b"], 0)
        queue.add("c", Priority.LOW)
        await asyncio.sleep(0)
        await clock.settle()
    assert seen[-1] == "c"
