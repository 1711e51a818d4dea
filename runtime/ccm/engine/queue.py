# SPDX-License-Identifier: Apache-2.0
"""A work queue like client-go's, native to asyncio. It contains keys, never objects or changes.

A key waits at most once; a key added while a worker processes it runs again afterwards, never concurrently. Therefore a
worker may read the latest state from the cache, and is the only one that processes the object.

Keys have one of two priorities, as in controller-runtime's priority queue: work that a user waits for precedes
refreshes. But here, the low priority gets a share of the turns, so that it never starves. Namespaces take turns,
and one namespace leaves workers to the others: a Service need not wait for 500 new Services of another tenant.
"""

from __future__ import annotations

import asyncio
import enum
import logging
import random
import weakref
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from ccm.base import tracing
from ccm.base.cancellation import TaskGroup, is_requested
from ccm.base.clock import SYSTEM_CLOCK, Clock, Timer
from ccm.base.log_context import about
from ccm.base.rounds import Rounds, namespace_of
from ccm.base.text import shorten

from . import metrics
from .api_errors import ApiError, ConflictError, NotFoundError

logger = logging.getLogger(__name__)

K = TypeVar("K", bound=Hashable)

#: The queues of this process, for its health checks and its status page.
QUEUES: weakref.WeakSet[WorkQueue[Any]] = weakref.WeakSet()


#: The maximum number of characters of an error that a queue remembers.
LONGEST_ERROR = 400
#: While keys of both priorities wait, one in this many turns goes to the low priority.
LOW_TURN = 4
#: The share of the workers that a namespace leaves to the others: one in LEFT_TO_OTHERS, but at least one worker. A
#: queue with one worker leaves none.
LEFT_TO_OTHERS = 8
#: A key that is requeued because of an error waits up to this many times as long as requested, at random, so that keys
#: that failed together do not return together.
SPREAD = 1.25


class Priority(enum.IntEnum):
    """How urgent a key is. `NORMAL`: a user waits for the result. `LOW`: refreshes an object that already works."""

    LOW = 0
    NORMAL = 1


_NORMAL_FIRST, _LOW_FIRST = (Priority.NORMAL, Priority.LOW), (Priority.LOW, Priority.NORMAL)


class _Pending(NamedTuple):
    """A delayed key; `due` in monotonic seconds."""

    due: float
    priority: Priority
    timer: Timer


class Failing(msgspec.Struct, frozen=True):
    """A key whose last attempt failed. `since`: monotonic seconds of the first failure in a row; `tries`: how many."""

    key: str
    error: str
    since: float
    tries: int


#: The shortest time until a requeued key runs again, in seconds. A cloud may say `Retry-After: 0` each time.
SOONEST = 0.1


#: The shortest time until a key runs again after a conflict with another writer, in seconds. The cache catches up then.
LOST_RACE = 0.2
#: The same time, after the API server answered that the object does not exist. If it was deleted, the cache knows it by
#: then. If the cache keeps it, the API server showed a past state: etcd was restored, or a proxy led to another cluster
#: for a moment.
NOT_THERE = 5.0


class Requeue(Exception):
    """Raised by a worker: run this key again in `after` seconds, `SOONEST` at least. Keeps the failure count.

    Its `__cause__` is the error for which it is raised; without one, nothing is wrong.
    """

    def __init__(self, after: float) -> None:
        super().__init__(f"again in {after:g} s")
        self.after = after


class Blocked(Exception):
    """Raised by a worker: the key fails until its object changes, so it is not retried. Its text is the reason."""


class WorkQueue(Generic[K]):
    """A queue of keys. `name` is the label of the `workqueue_*` metrics. Times are in seconds.

    After its n-th failure in a row a key waits `base_delay * 2**(n-1)`, at most `max_delay`, minus up to a quarter at
    random, so that keys that failed together do not return together.

    Keys `namespace/name` of one priority run in the order of their addition within their namespace, and the namespaces
    take turns; all other keys count as one namespace. Adding a waiting key again can only raise its priority.
    `jitter(least, most)` returns a random factor.
    """

    def __init__(
        self,
        name: str,
        *,
        base_delay: float = 0.005,
        max_delay: float = 1000.0,
        clock: Clock = SYSTEM_CLOCK,
        metrics: metrics.QueueMetrics | None = None,
        jitter: Callable[[float, float], float] | None = None,
    ) -> None:
        self.name = name
        self._jitter = jitter or random.uniform
        self._base, self._max, self._clock = base_delay, max_delay, clock
        self._ready: dict[Priority, Rounds[K]] = {priority: Rounds() for priority in Priority}
        self._idle: deque[asyncio.Future[None]] = deque()  # workers that wait for a key
        self._most_of_namespace = 1
        self._running_of: dict[str, int] = defaultdict(int)  # by namespace
        self._normal_turns = 0  # since the last turn of a LOW key
        self._added_at: dict[K, float] = {}  # keys to run, also ones still being processed; in the order of addition
        self._priorities: dict[K, Priority] = {}  # of the same keys
        self._running: dict[K, float] = {}
        self._failures: dict[K, int] = {}
        self._timers: dict[K, _Pending] = {}
        self._failing: dict[K, Failing] = {}
        self._measure(metrics)
        QUEUES.add(self)

    def _measure(self, queue_metrics: metrics.QueueMetrics | None) -> None:
        families = queue_metrics or metrics.QUEUES
        self._adds = families.adds.labels(self.name)
        self._retries = families.retries.labels(self.name)
        self._queue_duration = families.queue_duration.labels(self.name)
        self._work_duration = families.work_duration.labels(self.name)
        families.depth.labels(self.name).set_function(lambda: float(self.depth))
        families.unfinished.labels(self.name).set_function(lambda: sum(self._running_ages()))
        families.longest.labels(self.name).set_function(lambda: max(self._running_ages(), default=0.0))

    def _running_ages(self) -> list[float]:
        now = self._clock.monotonic()
        return [now - started for started in list(self._running.values())]

    @property
    def depth(self) -> int:
        """How many keys wait for a worker, without delayed ones and those being processed."""
        return sum(map(len, self._ready.values()))

    @property
    def oldest_age(self) -> float:
        """The age of the key that has waited longest, perhaps for its own processing to end; 0 for none."""
        oldest = next(iter(self._added_at.values()), None)
        return 0.0 if oldest is None else self._clock.monotonic() - oldest

    @property
    def running(self) -> dict[K, float]:
        """The keys being processed -> for how many seconds."""
        now = self._clock.monotonic()
        return {key: now - started for key, started in self._running.items()}

    @property
    def delayed(self) -> int:
        """How many keys wait for a time, such as that of a retry."""
        return len(self._timers)

    @property
    def failing(self) -> list[Failing]:
        """The keys whose last attempt failed, the one that has failed for the longest time first."""
        return sorted(self._failing.values(), key=lambda each: each.since)

    @property
    def failures_now(self) -> int:
        """The number of keys whose last attempt failed."""
        return len(self._failing)

    def age(self, moment: float) -> float:
        """Return the seconds since a moment of this queue's monotonic clock."""
        return self._clock.monotonic() - moment

    def _failed(self, key: K, error: BaseException, span: tracing.Span) -> None:
        span.failed(error)
        before = self._failing.get(key)
        since, tries = (before.since, before.tries) if before else (self._clock.monotonic(), 0)
        text = shorten(str(error) or type(error).__name__, LONGEST_ERROR)
        self._failing[key] = Failing(str(key), text, since, tries + 1)

    def add(self, key: K, priority: Priority = Priority.NORMAL) -> None:
        """Run `key` when its turn comes. A key that already waits moves only if `priority` is higher."""
        if key in self._added_at:
            self._raise(key, priority)
            return
        self._adds.inc()
        self._added_at[key] = self._clock.monotonic()
        self._priorities[key] = priority
        if key not in self._running:
            self._make_ready(key)

    def _raise(self, key: K, priority: Priority) -> None:
        before = self._priorities[key]
        if priority <= before:
            return
        self._priorities[key] = priority
        if key not in self._running:
            self._ready[before].discard(namespace_of(key), key)
            self._ready[priority].add(namespace_of(key), key)

    def _make_ready(self, key: K) -> None:
        self._ready[self._priorities[key]].add(namespace_of(key), key)
        self._wake()

    def _wake(self) -> None:
        """Let an idle worker look for a key."""
        while self._idle:
            worker = self._idle.popleft()
            if not worker.done():
                worker.set_result(None)
                return

    def _next(self) -> tuple[str, K, Priority] | None:
        """Return namespace, key and priority of the ready key whose turn it is; None if no key may run now."""
        normal, low = self._ready[Priority.NORMAL], self._ready[Priority.LOW]
        for priority in _NORMAL_FIRST if normal and (not low or self._normal_turns < LOW_TURN - 1) else _LOW_FIRST:
            if (chosen := self._ready[priority].take(self._may_run)) is not None:
                self._normal_turns = 0 if priority is Priority.LOW else self._normal_turns + 1
                return *chosen, self._priorities.pop(chosen[1])
        return None

    def _may_run(self, namespace: str) -> bool:
        return not namespace or self._running_of.get(namespace, 0) < self._most_of_namespace

    def add_after(self, key: K, seconds: float, priority: Priority = Priority.NORMAL) -> None:
        """Add `key` in `seconds`. Of several pending delays, the shortest and the highest priority win."""
        if seconds <= 0:
            self.add(key, priority)
            return
        self._retries.inc()
        due = self._clock.monotonic() + seconds
        pending = self._timers.get(key)
        if pending is not None:
            priority = max(priority, pending.priority)
            if pending.due <= due:
                self._timers[key] = pending._replace(priority=priority)
                return
            pending.timer.cancel()
        self._timers[key] = _Pending(due, priority, self._clock.call_later(seconds, lambda: self._due(key)))

    def _due(self, key: K) -> None:
        self.add(key, self._timers.pop(key).priority)

    def retry(self, key: K, priority: Priority = Priority.NORMAL) -> float:
        """Count a failure of `key` and add it after a back-off delay, which is returned."""
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        # 2**1000 seconds exceeds any max_delay, and more would not fit into a float
        delay = min(self._base * 2.0 ** min(failures - 1, 1000), self._max) * self._jitter(0.75, 1.0)
        self.add_after(key, delay, priority)
        return delay

    def forget(self, key: K) -> None:
        """Reset what is known about the failures of the key."""
        self._failures.pop(key, None)
        self._failing.pop(key, None)

    def failures(self, key: K) -> int:
        """Return the number of failures in a row."""
        return self._failures.get(key, 0)

    async def run_workers(
        self,
        n: int,
        process: Callable[[K], Awaitable[None]],
        *,
        on_error: Callable[[K, Exception], None] | None = None,
    ) -> None:
        """Run `n` workers until cancelled; a cancellation also cancels the processing.

        If `process` returns, the failure count of the key is reset. If it raises Requeue, the key runs again after that
        time; if it raises Blocked, only when it is added again. ConflictError and NotFoundError are not failures: the
        object has changed or is gone, so the key runs again soon, however often that happens. Any other exception calls
        `on_error`, which replaces the logging, and retries with back-off. A key keeps its priority in these cases.
        Raises ValueError if `n` is below 1.
        """
        if n < 1:
            raise ValueError(f"queue {self.name}: {n} workers cannot process anything, at least 1 is required")
        self._most_of_namespace = max(1, n - max(1, n // LEFT_TO_OTHERS))
        async with TaskGroup() as group:
            for number in range(n):
                group.create_task(self._work(process, on_error or self._log), name=f"{self.name}-worker-{number}")

    async def _work(self, process: Callable[[K], Awaitable[None]], on_error: Callable[[K, Exception], None]) -> None:
        while True:
            while (chosen := self._next()) is None:
                self._idle.append(asyncio.get_running_loop().create_future())
                await self._idle[-1]
            namespace, key, priority = chosen
            self._running_of[namespace] += 1
            started = self._running[key] = self._clock.monotonic()
            self._queue_duration.observe(started - self._added_at.pop(key))
            try:
                with tracing.span(self.name, {"queue": self.name, "object": str(key)}) as span:
                    await self._process(key, priority, process, on_error, span)
            finally:
                del self._running[key]
                self._running_of[namespace] -= 1
                if not self._running_of[namespace]:
                    del self._running_of[namespace]
                self._work_duration.observe(self._clock.monotonic() - started)
                if key in self._added_at:  # added again meanwhile
                    self._make_ready(key)
                elif self._idle and self.depth:
                    self._wake()  # a key of this namespace may run now
            # Nothing above waits while thousands of ready keys need no request, as after a restart with many Services.
            # So let other tasks run here.
            await asyncio.sleep(0)

    async def _process(
        self,
        key: K,
        priority: Priority,
        process: Callable[[K], Awaitable[None]],
        on_error: Callable[[K, Exception], None],
        span: tracing.Span,
    ) -> None:
        try:
            with about(queue=self.name, object=str(key)):
                await process(key)
            self.forget(key)
            return
        except Requeue as later:
            after = max(SOONEST, later.after)
            if later.__cause__ is not None:
                self._failed(key, later.__cause__, span)
                after *= self._jitter(1.0, SPREAD)
            else:
                self._failing.pop(key, None)
            self.add_after(key, after, priority)
            return
        except Blocked as reason:
            self._failures.pop(key, None)
            self._failed(key, reason, span)
            return
        except (ConflictError, NotFoundError) as lost:
            logger.debug("%s: %s runs again soon: %s", self.name, key, lost)
            self._failing.pop(key, None)
            after = LOST_RACE if isinstance(lost, ConflictError) else NOT_THERE
            self.add_after(key, after * self._jitter(1.0, 2.0), priority)
            return
        except asyncio.CancelledError:
            if is_requested():
                raise
            # Without this, the key would be lost silently.
            error: Exception = RuntimeError("a task that the work waited for was cancelled")
        except Exception as raised:
            error = raised
        self._failed(key, error, span)
        try:
            with about(queue=self.name, object=str(key)):
                on_error(key, error)
        except Exception:
            logger.exception("%s: the error handler failed for %s", self.name, key)
        self.retry(key, priority)

    def _log(self, key: K, error: Exception) -> None:
        if isinstance(error, ApiError):
            logger.warning("%s: %s: %s", self.name, key, error)
        else:
            logger.error("%s: %s failed", self.name, key, exc_info=error)
