# SPDX-License-Identifier: Apache-2.0
"""An event loop without I/O whose time jumps to the next timer, and a system clock that follows it.

Everything that runs in it is in this process, so nothing ever waits for a descriptor: the loop makes no system call.
It does what asyncio's own loop does, in the same order, without what only real time, threads and debugging need: a
run of the explorer is many thousands of turns, and asyncio's bookkeeping took a quarter of its time.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import datetime
import heapq
import itertools
import selectors
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from ccm.base.clock import SystemClock

#: Where virtual time starts, in seconds of the monotonic clock, and what the wall clock shows then.
EPOCH = 100_000.0
START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
#: Turns of the loop without time passing after which something spins.
TURNS = 200_000


class Stuck(Exception):
    """The run cannot go on: something spins, or every task waits and no timer is set."""


class _Selector(selectors.SelectSelector):
    """Nothing is ever waited for."""

    def select(self, timeout: float | None = None) -> list[Any]:
        return []


class _Handle(asyncio.TimerHandle):
    """For callbacks at once and later ones alike."""

    __slots__ = ()

    def __init__(
        self,
        when: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        loop: VirtualLoop,
        context: contextvars.Context | None,
    ) -> None:
        self._context = contextvars.copy_context() if context is None else context
        self._loop, self._callback, self._args = loop, callback, args
        self._cancelled, self._repr, self._source_traceback = False, None, None
        self._when, self._scheduled = when, True

    def cancel(self) -> None:
        self._cancelled, self._callback, self._args = True, _nothing, ()


def _nothing() -> None: ...


class VirtualLoop(asyncio.SelectorEventLoop):
    _ready: deque[asyncio.Handle]
    _stopping: bool

    def __init__(self) -> None:
        self.now, self.turns = EPOCH, 0
        #: When, the order in which they were set, and the timer.
        self._timers: list[tuple[float, int, _Handle]] = []
        self._order = itertools.count()
        super().__init__(_Selector())

    def time(self) -> float:
        return self.now

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> asyncio.Handle:
        handle = _Handle(self.now, callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> asyncio.TimerHandle:
        timer = _Handle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, next(self._order), timer))
        return timer

    def call_later(self, delay: float, callback: Any, *args: Any, context: Any = None) -> asyncio.TimerHandle:
        return self.call_at(self.now + delay, callback, *args, context=context)

    def _run_once(self) -> None:
        """One turn: what is due at the present time; if nothing is, time jumps to the next timer."""
        ready, timers = self._ready, self._timers
        while timers and timers[0][2]._cancelled:
            heapq.heappop(timers)
        self.turns += 1
        if not ready and not self._stopping:
            if not timers:
                raise Stuck("deadlock: every task waits and no timer is set")
            if timers[0][0] > self.now:
                self.now, self.turns = timers[0][0], 0
        if self.turns > TURNS:
            raise Stuck(f"livelock: {TURNS} turns of the event loop in one moment")
        now = self.now
        while timers and timers[0][0] <= now:
            ready.append(heapq.heappop(timers)[2])
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle._cancelled:
                try:
                    handle._context.run(handle._callback, *handle._args)
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as error:
                    self.call_exception_handler({"message": "exception in a callback", "exception": error})


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
