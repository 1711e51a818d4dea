# SPDX-License-Identifier: Apache-2.0
"""Time as a dependency, so that tests of back-off, deadlines and leases are fast and deterministic.

Durations are measured on the monotonic clock. The wall clock is for timestamps that others read (Lease, Events) or
wrote, such as when a credential expires.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import heapq
import itertools
import time
from collections.abc import AsyncIterator, Callable
from typing import Protocol


class Timer(Protocol):
    def cancel(self) -> None: ...


class Clock(Protocol):
    """A source of time and of timers. All durations are in seconds."""

    def monotonic(self) -> float:
        """Return the seconds since a fixed moment; never decreases."""
        ...

    def now(self) -> datetime.datetime:
        """Return the time of the wall clock, timezone-aware and in UTC."""
        ...

    async def sleep(self, seconds: float) -> None: ...

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        """Call `callback` once, from the event loop, unless the timer is cancelled first."""
        ...


class SystemClock:
    """The system clocks and the timers of the running event loop."""

    def monotonic(self) -> float:
        return time.monotonic()

    def now(self) -> datetime.datetime:
        return datetime.datetime.now(datetime.UTC)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        return asyncio.get_running_loop().call_later(seconds, callback)


#: The default of every `clock` parameter; it has no state.
SYSTEM_CLOCK = SystemClock()


@contextlib.asynccontextmanager
async def timeout(clock: Clock, seconds: float) -> AsyncIterator[None]:
    """Like `asyncio.timeout`, on any clock: cancel the body after `seconds` and raise TimeoutError."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(None) as scope:
        timer = clock.call_later(max(0.0, seconds), lambda: scope.reschedule(loop.time()))
        try:
            yield
        finally:
            timer.cancel()


class _FakeTimer:
    def __init__(self, callback: Callable[[], object]) -> None:
        self.callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        self.callback = None


class FakeClock:
    """A clock that moves only when a test advances it.

    `wall` is the initial time of the wall clock. `jump` moves only the wall clock, like NTP or an administrator.
    """

    #: Event loop iterations after each timer: enough for a chain of awaits without I/O.
    TURNS = 20

    def __init__(self, start: float = 1000.0, wall: datetime.datetime | None = None) -> None:
        self._now = start
        self._wall = wall or datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
        self._timers: list[tuple[float, int, _FakeTimer]] = []
        self._order = itertools.count()

    def monotonic(self) -> float:
        return self._now

    def now(self) -> datetime.datetime:
        return self._wall

    def jump(self, seconds: float) -> None:
        self._wall += datetime.timedelta(seconds=seconds)

    async def sleep(self, seconds: float) -> None:
        done = asyncio.Event()
        timer = self.call_later(seconds, done.set)
        try:
            await done.wait()
        finally:
            timer.cancel()

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        timer = _FakeTimer(callback)
        heapq.heappush(self._timers, (self._now + max(0.0, seconds), next(self._order), timer))
        return timer

    @property
    def next_due(self) -> float | None:
        """Seconds until the next timer, None if there is none."""
        while self._timers and self._timers[0][2].callback is None:
            heapq.heappop(self._timers)
        return self._timers[0][0] - self._now if self._timers else None

    async def settle(self) -> None:
        """Let all tasks run until they wait for time or for I/O."""
        for _ in range(self.TURNS):
            await asyncio.sleep(0)

    async def advance(self, seconds: float) -> None:
        """Advance by `seconds` and fire the timers that become due, in order, each at its own time."""
        await self.settle()
        end = self._now + seconds
        while (due := self.next_due) is not None and self._now + due <= end:
            when, _, timer = heapq.heappop(self._timers)
            self._move(when)
            callback, timer.callback = timer.callback, None
            if callback is not None:
                callback()
            await self.settle()
        self._move(end)
        await self.settle()

    def _move(self, when: float) -> None:
        self._wall += datetime.timedelta(seconds=when - self._now)
        self._now = when
