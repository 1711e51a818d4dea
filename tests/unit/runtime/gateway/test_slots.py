# SPDX-License-Identifier: Apache-2.0
"""Slow calls of one group or one namespace leave slots for the others."""

import asyncio

import pytest

from ccm.base.log_context import about
from ccm.base.rounds import Rounds, namespace_of
from ccm.cloud import Limits
from ccm.gateway.gateway import Gateway
from ccm.gateway.slots import Slots

from .fake import FakeCloud
from .virtual import in_virtual_time, now


def gateway(concurrency):
    limits = Limits(calls_per_second=1e6, burst=10**6, concurrency=concurrency, deadline=1000.0)
    return Gateway(FakeCloud(limits=limits), clock=now)


async def slow():
    await asyncio.sleep(60.0)


async def served_after(gate, operation, key=""):
    started = now()
    with about(object=key):
        await gate.call(operation, lambda: asyncio.sleep(0.0))
    return now() - started


def start(gate, operation, count, key="busy/{}"):
    async def call(number):
        with about(object=key.format(number)):
            await gate.call(operation, slow)

    return [asyncio.create_task(call(number)) for number in range(count)]


@in_virtual_time
@pytest.mark.threat("tenant-cannot-stop-the-controller")
@pytest.mark.parametrize("concurrency", [2, 3, 4, 5, 10, 20])
@pytest.mark.parametrize(
    "busy", [["services.make"], ["routes.create"], ["services.make", "routes.create", "instance_tags.add"]]
)
async def test_slow_calls_of_other_groups_leave_slots_to_the_instances(busy, concurrency):
    gate = gateway(concurrency)
    waiting = [task for operation in busy for task in start(gate, operation, 100)]
    await asyncio.sleep(1.0)
    for _ in range(40):
        assert await served_after(gate, "instances.list") == 0.0
    assert await served_after(gate, "instances.get", "node-1") == 0.0
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert gate.state.under_way == 0


@in_virtual_time
@pytest.mark.parametrize("concurrency", [3, 4, 10, 20])
async def test_a_group_holds_three_quarters_of_the_slots_at_most(concurrency):
    gate = gateway(concurrency)
    start(gate, "instances.get", 100, "node-{}")
    await asyncio.sleep(1.0)
    assert gate.state.under_way == concurrency * 3 // 4
    assert await served_after(gate, "services.make", "a/b") == 0.0


@in_virtual_time
@pytest.mark.threat("tenant-cannot-stop-the-controller")
@pytest.mark.parametrize("concurrency", [3, 4, 10, 20])
async def test_a_namespace_leaves_a_slot_to_the_others(concurrency):
    gate = gateway(concurrency)
    start(gate, "services.make", 100)
    await asyncio.sleep(1.0)
    assert await served_after(gate, "services.make", "a/b") == 0.0


@in_virtual_time
async def test_with_one_slot_everybody_has_a_turn():
    gate = gateway(1)
    start(gate, "services.make", 5)
    waiting = [
        asyncio.create_task(served_after(gate, operation, "a/b")) for operation in ("services.make", "instances.get")
    ]
    assert await asyncio.gather(*waiting) == [120.0, 120.0]


@in_virtual_time
async def test_those_who_wait_take_turns_by_namespace():
    slots, served = Slots(4), []  # at most three for one group, two for one namespace

    async def work(namespace):
        await slots.acquire("services", namespace)
        served.append(namespace)
        await asyncio.sleep(1.0)
        slots.release("services", namespace)

    await asyncio.gather(*(work(namespace) for namespace in ["a"] * 6 + ["b"] * 2 + ["c"]))
    assert served == ["a", "a", "b", "a", "b", "c", "a", "a", "a"]


@in_virtual_time
async def test_whoever_is_cancelled_takes_no_slot():
    slots = Slots(2)
    await slots.acquire("services", "")
    waiting = [asyncio.create_task(slots.acquire("services", "")) for _ in range(3)]
    await asyncio.sleep(0.0)
    waiting[0].cancel()
    slots.release("services", "")  # before the cancelled task runs
    waiting[1].cancel()  # this task already owns the slot but has not resumed
    await asyncio.gather(*waiting, return_exceptions=True)
    assert [each.cancelled() for each in waiting] == [True, True, False]
    slots.release("services", "")
    await asyncio.wait_for(slots.acquire("services", ""), 1.0)


def test_lanes_take_turns_and_an_item_waits_once():
    rounds = Rounds()
    for lane, item in [("a", 1), ("a", 2), ("a", 1), ("b", 3), ("c", 4)]:
        rounds.add(lane, item)
    rounds.discard("c", 4)
    rounds.discard("c", 4)
    rounds.discard("a", 9)
    assert len(rounds) == 3
    assert rounds.take(lambda lane: lane == "b") == ("b", 3)
    assert [rounds.take(), rounds.take(), rounds.take()] == [("a", 1), ("a", 2), None]
    assert len(rounds) == 0


@pytest.mark.parametrize(("key", "namespace"), [("a/b", "a"), ("node-1", ""), ("", ""), (7, ""), (("a", "b"), "")])
def test_the_namespace_of_a_key(key, namespace):
    assert namespace_of(key) == namespace
