# SPDX-License-Identifier: Apache-2.0
"""Rates and pauses of single groups of operations, in virtual time: a throttled group leaves the others alone."""

import asyncio

import pytest

from ccm.cloud import CloudError, Limits, Rate, RateLimited
from ccm.gateway.gateway import DEFAULT_PAUSE, MAX_PAUSE, Gateway

from .fake import FakeCloud
from .virtual import in_virtual_time, now

THROTTLED = RateLimited("the load balancer service is throttled", retry_after=30.0, scope="group")


def gateway(**limits):
    defaults = {"calls_per_second": 1e6, "burst": 10**6}
    return Gateway(FakeCloud(limits=Limits(**(defaults | limits))), clock=now)


def answer(value, calls=None):
    async def function():
        if calls is not None:
            calls.append(now())
        if isinstance(value, BaseException):
            raise value
        return value

    return function


async def refuse(gate, operation, error):
    with pytest.raises(CloudError):
        await gate.call(operation, answer(error))


@in_virtual_time
async def test_a_throttled_group_pauses_alone():
    gate = gateway()
    await refuse(gate, "load_balancers.list", THROTTLED)
    assert await gate.call("instances.list", answer(now())) == 1000.0
    assert now() == 1000.0
    calls = []
    await gate.call("load_balancers.list", answer([], calls))
    assert calls == [1030.0]


@in_virtual_time
async def test_without_a_scope_all_calls_pause():
    gate, calls = gateway(), []
    await refuse(gate, "load_balancers.list", RateLimited("too many", retry_after=30.0))
    await gate.call("instances.list", answer([], calls))
    assert calls == [1030.0]


@in_virtual_time
async def test_calls_that_wait_for_a_paused_group_take_no_slot_of_the_others():
    gate = gateway(concurrency=2)
    await refuse(gate, "load_balancers.list", THROTTLED)
    waiting = [asyncio.create_task(gate.call("load_balancers.list", answer([]))) for _ in range(10)]
    await asyncio.sleep(0)
    async with asyncio.timeout(1.0):
        await gate.call("instances.list", answer([]))
    assert now() == 1000.0
    await asyncio.gather(*waiting)
    assert now() == 1030.0


@in_virtual_time
async def test_a_pause_that_comes_while_a_call_waits_for_a_slot_holds_for_it():
    gate, calls = gateway(concurrency=1), []

    async def refused_late():
        await asyncio.sleep(1.0)
        raise THROTTLED

    async def first():
        with pytest.raises(RateLimited):
            await gate.call("load_balancers.list", refused_late)

    await asyncio.gather(first(), gate.call("load_balancers.get", answer(None, calls)), return_exceptions=True)
    assert calls == [1031.0]


@pytest.mark.parametrize(("asked", "pause"), [(None, DEFAULT_PAUSE), (10_000.0, MAX_PAUSE)])
def test_a_group_pauses_for_as_long_as_all_would(asked, pause):
    @in_virtual_time
    async def run():
        gate, calls = gateway(), []
        await refuse(gate, "routes.list", RateLimited("too many", retry_after=asked, scope="group"))
        await gate.call("routes.list", answer([], calls))
        assert calls == [1000.0 + pause]

    run()


@in_virtual_time
async def test_a_group_has_a_rate_of_its_own():
    gate, slow, fast = gateway(groups={"load_balancers": Rate(0.5, 2)}), [], []
    calls = [gate.call("load_balancers.list", answer([], slow)) for _ in range(4)]
    calls += [gate.call("instances.list", answer([], fast)) for _ in range(4)]
    await asyncio.gather(*calls)
    assert slow == pytest.approx([1000.0, 1000.0, 1002.0, 1004.0])
    assert fast == [1000.0] * 4


@in_virtual_time
async def test_a_group_that_waits_for_its_own_rate_takes_no_turn_of_the_others():
    gate, calls = gateway(calls_per_second=1.0, burst=2, groups={"routes": Rate(0.1, 1)}), []
    waiting = [asyncio.create_task(gate.call("routes.list", answer([]))) for _ in range(5)]
    await asyncio.sleep(0.5)
    await gate.call("instances.list", answer([], calls))
    assert calls == [1000.5]
    await asyncio.gather(*waiting)
    assert now() == 1040.0


@in_virtual_time
async def test_a_new_cloud_begins_without_the_pauses_of_the_former():
    gate, calls = gateway(), []
    await refuse(gate, "load_balancers.list", THROTTLED)
    await gate.replace(FakeCloud())
    await gate.call("load_balancers.list", answer([], calls))
    assert calls == [1000.0]
