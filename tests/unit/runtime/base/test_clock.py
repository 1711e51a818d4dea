# SPDX-License-Identifier: Apache-2.0
import asyncio

import pytest

from ccm.base.clock import SYSTEM_CLOCK, FakeClock, timeout


async def test_timers_fire_in_order_each_at_its_own_time():
    clock, fired = FakeClock(start=0), []
    clock.call_later(2, lambda: fired.append(("b", clock.monotonic())))
    clock.call_later(1, lambda: fired.append(("a", clock.monotonic())))
    clock.call_later(9, lambda: fired.append(("late", clock.monotonic())))
    cancelled = clock.call_later(1, lambda: fired.append(("cancelled", 0)))
    cancelled.cancel()
    await clock.advance(5)
    assert fired == [("a", 1.0), ("b", 2.0)]
    assert clock.monotonic() == 5.0
    assert clock.next_due == 4.0


async def test_a_sleeper_may_sleep_again_within_one_advance():
    clock, woken = FakeClock(start=0), []

    async def tick():
        while True:
            await clock.sleep(1)
            woken.append(clock.monotonic())

    task = asyncio.create_task(tick())
    await clock.advance(3.5)
    task.cancel()
    assert woken == [1.0, 2.0, 3.0]


async def test_the_wall_clock_moves_along_and_jumps_alone():
    clock = FakeClock()
    wall, monotonic = clock.now(), clock.monotonic()
    clock.jump(-3600)
    await clock.advance(10)
    assert (clock.now() - wall).total_seconds() == -3590
    assert clock.monotonic() - monotonic == 10


@pytest.mark.parametrize("kind", ["fake", "system"])
async def test_timeout_cancels_the_body_and_nothing_else(kind):
    clock = FakeClock() if kind == "fake" else SYSTEM_CLOCK
    seen = []

    async def body():
        with pytest.raises(TimeoutError):
            async with timeout(clock, 0.01):
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    seen.append("cancelled")
                    raise
        async with timeout(clock, 0.01):
            seen.append("in time")

    task = asyncio.create_task(body())
    if isinstance(clock, FakeClock):
        await clock.advance(1)
    await task
    assert seen == ["cancelled", "in time"]
