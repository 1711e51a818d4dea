# SPDX-License-Identifier: Apache-2.0
"""An event loop without I/O whose time jumps to the next timer, and a system clock that follows it.

Everything that runs in it is in this process, so nothing ever waits for a descriptor: the loop makes no system call.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import selectors
from collections.abc import Iterator
from typing import Any

from ccm.engine.clock import SystemClock

#: Where virtual time starts, in seconds of the monotonic clock, and what the wall clock shows then.
EPOCH = 100_000.0
START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
#: Turns of the loop without time passing after which something spins.
TURNS = 200_000


class Stuck(Exception):
    """The run cannot go on: something spins, or every task waits and no timer is set."""


class _Selector(selectors.SelectSelector):
    """Instead of waiting for `timeout` it moves the loop's time by it."""

    loop: VirtualLoop

    def select(self, timeout: float | None = None) -> list[Any]:
        loop = self.loop
        if timeout is None:
            raise Stuck("deadlock: every task waits and no timer is set")
        if timeout > 0:
            loop.now += timeout
            loop.turns = 0
        else:
            loop.turns += 1
            if loop.turns > TURNS:
                raise Stuck(f"livelock: {TURNS} turns of the event loop in one moment")
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self.now, self.turns = EPOCH, 0
        selector = _Selector()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        return self.now


def wall_clock(seconds: float) -> datetime.datetime:
    """The wall clock when the monotonic one shows `seconds`."""
    return START + datetime.timedelta(seconds=seconds - EPOCH)


@contextlib.contextmanager
def virtual_time() -> Iterator[VirtualLoop]:
    """A loop, and `SYSTEM_CLOCK` of the engine on it."""
    loop = VirtualLoop()
    before = SystemClock.monotonic, SystemClock.now
    SystemClock.monotonic = lambda self: loop.now  # type: ignore[method-assign]
    SystemClock.now = lambda self: wall_clock(loop.now)  # type: ignore[method-assign]
    asyncio.set_event_loop(loop)
    try:
        yield loop
    finally:
        SystemClock.monotonic, SystemClock.now = before  # type: ignore[method-assign]
        asyncio.set_event_loop(None)
        loop.close()
