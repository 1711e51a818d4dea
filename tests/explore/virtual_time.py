# SPDX-License-Identifier: Apache-2.0
"""An event loop without I/O whose time jumps to the next timer, and a system clock that follows it.

Everything that runs in the loop is in this process, so nothing waits for a descriptor: the loop makes no system call.
It does what asyncio's own loop does, in the same order, without the parts for real time, threads and debugging. A run
of the explorer has many thousands of turns, and asyncio's bookkeeping took a quarter of the time.

A task or callback belongs to an owner, by its context: to a process of the runtime, or to nobody. Servers and people
have no owner.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import datetime
import functools
import itertools
from collections.abc import Coroutine, Iterator
from contextvars import copy_context
from heapq import heappop, heappush
from typing import Any, Protocol

from ccm.base.clock import SystemClock

#: Where virtual time starts, in seconds of the monotonic clock, and what the wall clock shows then.
EPOCH = 100_000.0
START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
#: This many turns of the loop at one moment mean that something spins.
TURNS = 200_000
#: When an owner has this many tasks, finished ones are removed from its list.
TASKS = 256


class Stuck(Exception):
    """The run cannot go on: something spins, or every task waits and no timer is set."""


class Owner(Protocol):
    tasks: list[asyncio.Task[Any]]

    def wake(self) -> None:
        """Let the owner continue."""


#: The owner whose code is running.
OWNER: contextvars.ContextVar[Owner | None] = contextvars.ContextVar("owner", default=None)
#: The cloud whose controllers send a request, "" if the process has one cloud, or for what all of its clouds share.
PART: contextvars.ContextVar[str] = contextvars.ContextVar("part", default="")
#: The context of callbacks that belong to nobody.
WORLD = contextvars.Context()


class _Handle(list[Any]):
    """A handle of a callback or a timer: callback (None once it is cancelled), arguments, context, and whether it is a
    timer. asyncio only needs to cancel handles. A handle is a list because a run makes very many handles, and a
    constructor in Python would take a thirtieth of the run's time."""

    __slots__ = ()

    def cancel(self) -> None:
        self[0], self[1] = None, ()


class _Stop:
    """The callbacks of a stopped owner, in the order in which they run when it continues."""

    def __init__(self) -> None:
        self.ready: list[_Handle] = []
        self.timers: list[_Handle] = []
        self.woken: list[_Handle] = []

    def hold(self, handle: _Handle) -> None:
        (self.timers if handle[3] else self.woken).append(handle)


class VirtualLoop(asyncio.BaseEventLoop):
    _ready: Any
    _stopping: bool
    #: `bool()` is False, and calls no Python code: each task and each future calls this.
    get_debug: Any = bool
    _asyncgen_firstiter_hook: Any = None

    def __init__(self) -> None:
        self.now, self.turns = EPOCH, 0
        #: The timers, as a heap: when each is due, the order in which it was set, and its handle.
        self._timers: list[tuple[float, int, _Handle]] = []
        self._order = itertools.count()
        self._stopped: dict[Owner, _Stop] = {}
        super().__init__()
        self.create_future: Any = functools.partial(asyncio.Future, loop=self)

    def time(self) -> float:
        return self.now

    def create_task(
        self, coro: Coroutine[Any, Any, Any], *, name: Any = None, context: Any = None
    ) -> asyncio.Task[Any]:
        """Create a task, which belongs to the owner that creates it."""
        task = asyncio.Task(coro, loop=self, name=name, context=context)
        owner = OWNER.get() if context is None else context.get(OWNER)
        if owner is not None:
            owner.tasks.append(task)
            if len(owner.tasks) > TASKS:
                owner.tasks = [each for each in owner.tasks if not each.done()]
        return task

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> Any:
        handle = _Handle((callback, args, copy_context() if context is None else context, False))
        self._ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon  # there is one thread

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> Any:
        timer = _Handle((callback, args, copy_context() if context is None else context, True))
        heappush(self._timers, (when, next(self._order), timer))
        return timer

    def call_later(self, delay: float, callback: Any, *args: Any, context: Any = None) -> Any:
        timer = _Handle((callback, args, copy_context() if context is None else context, True))
        heappush(self._timers, (self.now + delay, next(self._order), timer))
        return timer

    # Owners that are stopped

    def stop_owner(self, owner: Owner, seconds: float) -> None:
        """Stop an owner as SIGSTOP does, and continue it after `seconds`, as SIGCONT does. The owner's clock goes on.

        Afterwards the owner's callbacks run in the order of asyncio and uvloop: first the rest of the turn in which it
        was stopped, then the timers that are due, and then the tasks that answers woke. Signals precede all of these.
        """
        if owner in self._stopped:
            return
        stop = self._stopped[owner] = _Stop()
        ready = list(self._ready)
        self._ready.clear()
        for handle in ready:
            (stop.ready if handle[2].get(OWNER) is owner else self._ready).append(handle)
        self.call_later(seconds, self.continue_owner, owner, stop, context=WORLD)

    def continue_owner(self, owner: Owner, stop: _Stop | None = None) -> None:
        """Continue a stopped owner. `stop`: do so only if this stop still lasts."""
        found = self._stopped.get(owner)
        if found is not None and stop in (None, found):
            del self._stopped[owner]
            owner.wake()
            self._ready.extend((*found.ready, *found.timers, *found.woken))

    # Turns

    def _run_once(self) -> None:
        """Run turns until the loop must stop. A turn runs everything that is due now; if nothing is due, time jumps to
        the next timer."""
        ready, timers, stopped, take = self._ready, self._timers, self._stopped, self._ready.popleft
        while True:
            while timers and timers[0][2][0] is None:
                heappop(timers)
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
                ready.append(heappop(timers)[2])
            for _ in range(len(ready)):
                if not ready:  # its owner was stopped meanwhile
                    break
                callback, args, context, _ = handle = take()
                if callback is None:
                    continue
                if stopped and (stop := stopped.get(context.get(OWNER))) is not None:
                    stop.hold(handle)
                    continue
                try:
                    context.run(callback, *args)
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as error:
                    self.call_exception_handler({"message": "exception in a callback", "exception": error})
            if self._stopping:
                return


def wall_clock(seconds: float) -> datetime.datetime:
    """Return what the wall clock shows when the monotonic clock shows `seconds`."""
    return START + datetime.timedelta(seconds=seconds - EPOCH)


@contextlib.contextmanager
def _unregistered_tasks() -> Iterator[None]:
    """Switch off the registry of `asyncio.all_tasks`, which nothing uses here because owners know their tasks. Its weak
    references take a twentieth of a run's time."""
    registry = vars(asyncio.tasks).get("_all_tasks")  # in Python 3.11; later versions have a cheaper registry
    if registry is None:
        yield
        return
    registry.add = lambda task: None
    try:
        yield
    finally:
        del registry.add


@contextlib.contextmanager
def virtual_time() -> Iterator[VirtualLoop]:
    """Yield a loop; meanwhile the engine's `SYSTEM_CLOCK` shows the loop's time."""
    loop = VirtualLoop()
    before = SystemClock.monotonic, SystemClock.now
    SystemClock.monotonic = lambda self: loop.now  # type: ignore[method-assign]
    SystemClock.now = lambda self: wall_clock(loop.now)  # type: ignore[method-assign]
    asyncio.set_event_loop(loop)
    try:
        with _unregistered_tasks():
            yield loop
    finally:
        SystemClock.monotonic, SystemClock.now = before  # type: ignore[method-assign]
        asyncio.set_event_loop(None)
        loop.close()
