# SPDX-License-Identifier: Apache-2.0
"""Runs blocking client libraries (boto3, hcloud, openstacksdk, ...) outside the event loop.

calls = BlockingCalls("acme", threads=10, deadline=30, translate=_cloud_error)
servers = await calls.run(client.list_servers, project, page=2)

Nothing can stop a thread from outside. A call that exceeds its deadline, or whose caller was cancelled, is therefore
*left behind*: its thread continues, a new thread replaces it, and its result is discarded. The number of hung threads
is limited; at the limit, calls fail at once. Otherwise a library that never returns would exhaust the process.

A call left behind may still take effect in the cloud. Providers must handle this case anyway: an answer can also get
lost on the network, so `ensure` and `create` have to be idempotent.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any, ParamSpec, TypeVar

from prometheus_client import Counter, Gauge

from .errors import CloudError, Transient

P = ParamSpec("P")
T = TypeVar("T")

LEFT_BEHIND = Counter(
    "ccm_blocking_calls_left_behind", "Calls whose thread was left behind because the caller stopped waiting.", ["pool"]
)
HUNG = Gauge("ccm_blocking_calls_hung", "Threads left behind that have not returned yet.", ["pool"])
THREADS = Gauge("ccm_blocking_threads", "Threads in the pool, idle or busy, without those left behind.", ["pool"])


class BlockingCalls:
    """A pool of at most `threads` threads for one provider. Use it from one event loop.

    `deadline`: seconds for one call, including the wait for a thread. Keep it below `Limits.deadline`, and the timeouts
    of the library below it, so that threads return.
    `set_by`: the configuration key that sets `deadline`, for messages.
    `hung_limit`: the number of threads left behind at which all calls fail at once; defaults to `threads`.
    `translate`: converts an exception of the library to a CloudError.

    All threads share a client object. If the library's client is not thread-safe, keep one per thread
    (`threading.local`) or set `threads=1`.
    """

    def __init__(
        self,
        name: str,
        *,
        threads: int = 10,
        deadline: float = 25.0,
        set_by: str = "",
        hung_limit: int | None = None,
        translate: Callable[[Exception], CloudError] | None = None,
    ) -> None:
        self.name = name
        self._threads = threads
        self._deadline, self._set_by = deadline, set_by
        self._hung_limit = threads if hung_limit is None else hung_limit
        self._translate = translate
        self._slots = asyncio.Semaphore(threads)
        self._idle: list[_Worker] = []
        self._closed = False
        self.hung = 0

    async def run(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run the function in a thread and return its result.

        Raises Transient after the deadline, if too many calls hang, and after `close`. CloudErrors pass unchanged, and
        `translate` converts other exceptions. A result that is an iterator raises TypeError, because it would block
        when it is read: collect it inside `function`.
        """
        if self._closed:
            raise Transient(f"{self.name}: the provider is closed and makes no more calls")
        if self.hung >= self._hung_limit:
            raise Transient(f"{self.name}: call not made: {self.hung} earlier calls hang in the client library")
        job: _Job | None = None
        try:
            async with asyncio.timeout(self._deadline), self._slots:
                job = self._start(functools.partial(function, *args, **kwargs))
                try:
                    outcome = await job.outcome
                finally:
                    self._leave(job)
        except TimeoutError:
            raise Transient(self._too_late(job)) from None
        result: T = self._result(outcome)
        return result

    def close(self) -> None:
        """Stop idle threads now, and busy ones when they return."""
        self._closed = True
        for worker in self._idle:
            self._dismiss(worker)
        self._idle.clear()

    def _start(self, function: Callable[[], Any]) -> _Job:
        if self._idle:
            worker = self._idle.pop()
        else:
            worker = _Worker(f"{self.name}-blocking")
            worker.start()
            THREADS.labels(self.name).inc()
        job = _Job(function, worker, self._came_back)
        worker.jobs.put(job)
        return job

    def _leave(self, job: _Job) -> None:
        """Stop waiting for a job. If its thread is still busy, the thread leaves the pool."""
        if job.ended:
            return
        job.left_behind = True
        self.hung += 1
        LEFT_BEHIND.labels(self.name).inc()
        HUNG.labels(self.name).inc()
        self._dismiss(job.worker)

    def _came_back(self, job: _Job) -> None:
        job.ended = True
        if job.left_behind:
            self.hung -= 1
            HUNG.labels(self.name).dec()
        elif self._closed:
            self._dismiss(job.worker)
        else:
            self._idle.append(job.worker)

    def _dismiss(self, worker: _Worker) -> None:
        worker.jobs.put(None)
        THREADS.labels(self.name).dec()

    def _too_late(self, job: _Job | None) -> str:
        if job is None:
            return f"{self.name}: none of {self._threads} threads became free within {self._deadline:g} s"
        late = Transient.late(self.name, self._deadline, self._set_by)
        return f"{late}; the call was left behind ({self.hung} hang)"

    def _result(self, outcome: tuple[bool, Any]) -> Any:
        succeeded, value = outcome
        if not succeeded:
            if self._translate is None or isinstance(value, CloudError) or not isinstance(value, Exception):
                raise value
            raise self._translate(value) from value
        if isinstance(value, Iterator):
            raise TypeError(f"{self.name}: a {type(value).__name__} would block when it is read: return a list instead")
        return value


class _Job:
    """One call. `outcome` is (True, result) or (False, exception), because a future cannot hold every exception."""

    def __init__(self, function: Callable[[], Any], worker: _Worker, came_back: Callable[[_Job], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._function = function
        self._context = contextvars.copy_context()
        self._came_back = came_back
        self.worker = worker
        self.outcome: asyncio.Future[tuple[bool, Any]] = self._loop.create_future()
        self.ended = False
        self.left_behind = False

    def run(self) -> None:
        """Run the function in the worker's thread, and pass its outcome to the event loop."""
        try:
            outcome = True, self._context.run(self._function)
        except (SystemExit, KeyboardInterrupt) as error:  # raised from a coroutine, they would stop the event loop
            outcome = False, RuntimeError(f"{type(error).__name__}: {error}")
        except BaseException as error:
            outcome = False, error
        with contextlib.suppress(RuntimeError):  # the event loop is closed: nobody waits for the result
            self._loop.call_soon_threadsafe(self._settle, outcome)

    def _settle(self, outcome: tuple[bool, Any]) -> None:
        self._came_back(self)
        if not self.outcome.done():
            self.outcome.set_result(outcome)


class _Worker(threading.Thread):
    """A daemon thread: the process exits without waiting for a call that hangs."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()

    def run(self) -> None:
        while (job := self.jobs.get()) is not None:
            job.run()
            del job  # release the function's arguments while idle
