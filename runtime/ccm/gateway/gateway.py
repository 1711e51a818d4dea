# SPDX-License-Identifier: Apache-2.0
"""The gateway to the cloud, shared by all controllers.

Every call to the current cloud goes through `Gateway.call`. It makes the call wait for its turn (token bucket,
concurrency, a pause that the cloud requested), limits its duration (deadline), rejects it while the cloud is known to
be down (`ccm.gateway.breaker`), and counts it. Every failure becomes a `CloudError`. Queries for instances go through
`Gateway.instances`, which answers many of them with one listing (`ccm.gateway.instance_directory`).

`Gateway.replace` can replace the cloud with one that has newer credentials. Therefore no caller may keep one of the
cloud's capabilities: read it from `Gateway.cloud` for each use.
"""

from __future__ import annotations

import asyncio
import datetime
import itertools
import logging
import math
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import msgspec

from ccm.base import log_context, tracing
from ccm.base.cloud_metrics import CloudCounter, CloudGauge, CloudHistogram
from ccm.base.log_context import about
from ccm.base.rounds import namespace_of
from ccm.cloud import Cloud, LoadBalancer, Quota, Route
from ccm.cloud.errors import CloudError, ConfigError, Conflict, RateLimited, Transient, Unauthorized

from .breaker import BREAKER_MAX, Breaker, HeldBack, Pass, Subject
from .candidate_listing import Listing, listing_of
from .gateway_state import BreakerState, GatewayState
from .instance_directory import InstanceDirectory
from .slots import Slots
from .turns import Turns

log = logging.getLogger(__name__)

T = TypeVar("T")

REQUESTS = CloudCounter("ccm_cloud_requests", "Calls to the cloud by operation and outcome.", ["operation", "result"])
DURATION = CloudHistogram(
    "ccm_cloud_request_duration_seconds",
    "How long the cloud took to answer, without the wait in our own queue.",
    ["operation"],
    buckets=(0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
)
WAITING = CloudHistogram(
    "ccm_cloud_rate_limiter_duration_seconds",
    "How long calls waited for our own rate limit, concurrency limit, or a pause that the cloud requested.",
    buckets=(0.001, 0.01, 0.1, 0.5, 1, 5, 15, 60),
)
BREAKER_OPEN = CloudGauge(
    "ccm_cloud_breaker_open", "1 while calls of this group are rejected because the cloud fails.", ["group"]
)
ABANDONED = CloudCounter(
    "ccm_cloud_calls_abandoned", "Calls that did not end after their cancellation and were abandoned.", ["operation"]
)
LAST_SUCCESS = CloudGauge(
    "ccm_cloud_last_success_timestamp_seconds", "Unix time of the last call that the cloud answered."
)

#: The longest accepted pause, and the pause after a 429 that names no time, in seconds.
MAX_PAUSE = 300.0
DEFAULT_PAUSE = 5.0
#: How long a cancelled call may take to end, and a cloud to close, in seconds. After that they are abandoned.
GRACE = 1.0
#: Attributes of `Cloud` that a provider may enable and disable by its configuration.
CAPABILITIES = ("instances", "load_balancers", "routes", "volumes", "instance_tags")
#: Operation -> the type of its answer, or of the items of its answer. `instance_directory` checks instances itself.
_ONE: dict[str, type] = {
    **{f"load_balancers.{verb}": LoadBalancer for verb in ("get", "ensure", "update_backends")},
    "volumes.labels": Mapping,
    "instance_tags.list": Mapping,
}
_MANY: dict[str, type] = {"load_balancers.list": LoadBalancer, "routes.list": Route, "quotas.list": Quota}
#: Groups of calls about what belongs to this cluster. They are held back while `Gateway.doubt` is set.
_OF_CLUSTER = frozenset({"load_balancers", "routes", "instance_tags"})
#: Endings of operations that are about no single object, whichever object made them necessary.
_ABOUT_ALL = (".list", ".kept", ".start")
#: Verbs of calls that change nothing in the cloud.
_READS = frozenset({"list", "kept", "get", "labels", "deviations", "start"})
#: Numbers of calls. They start at random, so that the numbers of two processes differ in a common log.
_requests = itertools.count(random.getrandbits(31))


class _Connection(msgspec.Struct):
    """One cloud, and the state that belongs to it alone."""

    cloud: Cloud
    turns: Turns
    slots: Slots
    breakers: dict[str, Breaker] = msgspec.field(default_factory=dict)
    under_way: int = 0
    idle: asyncio.Event = msgspec.field(default_factory=asyncio.Event)

    @classmethod
    def to(cls, cloud: Cloud, clock: Callable[[], float]) -> _Connection:
        return cls(cloud, Turns(cloud.limits, clock), Slots(cloud.limits.concurrency))

    async def take_slot(self, group: str, namespace: str) -> None:
        """Wait until calls of this group are not paused, then take a slot. A call that waits for the end of a pause
        holds no slot, so that a paused group leaves all slots to the others."""
        while True:
            while (wait := self.turns.paused_for(group)) > 0:
                await asyncio.sleep(wait)
            if self.slots.take(group, namespace):
                return
            await self.slots.acquire(group, namespace)
            if self.turns.paused_for(group) <= 0:
                return
            self.slots.release(group, namespace)  # a 429 arrived while this call waited

    def breaker(self, group: str) -> Breaker:
        if (breaker := self.breakers.get(group)) is None:
            breaker = self.breakers[group] = Breaker(group)
        return breaker


class Gateway:
    """All calls to one cloud. Create it inside the running event loop. `name`: the cloud's name if the process has
    several clouds, otherwise "".

    `last_success`: when the cloud last answered. `failing_since`: monotonic seconds of the first failure after that,
    None while the cloud answers. `last_error`: the text of the latest failure. `under_way`: operations of calls in
    progress. `doubt`: why the cloud may be another project than the one before, "" for no doubt.
    """

    def __init__(self, cloud: Cloud, *, clock: Callable[[], float] = time.monotonic, name: str = "") -> None:
        self._clock, self.name = clock, name
        self._current = _Connection.to(cloud, clock)
        self._retiring: set[asyncio.Task[None]] = set()
        self.last_success: datetime.datetime | None = None
        self.failing_since: float | None = None
        self.last_error = self.doubt = ""
        self.under_way: list[str] = []
        self._unanswered_write = -math.inf  # when a write was last given up without an answer
        instances = cloud.instances
        self.instances = InstanceDirectory(instances, self.call, clock=clock, name=name) if instances else None
        self._replaced: list[Callable[[], None]] = []
        self._recovered: dict[str, list[Callable[[str], None]]] = {}

    @property
    def cloud(self) -> Cloud:
        """The current cloud; do not keep it, or any part of it, across an await."""
        return self._current.cloud

    def is_held_back(self, group: str) -> bool:
        """Return whether the cloud fails (`failing_since`) or asked for a pause, so no quick answer can be expected."""
        return self.failing_since is not None or self._current.turns.paused_for(group) > 0

    async def call(self, operation: str, function: Callable[[], Awaitable[T]]) -> T:
        """Make one call. `operation` is `group.verb`, e.g. `instances.list`; each group has its own breaker.

        Raises CloudError only. An answer such as NotFound, Conflict or Forbidden proves that the cloud works. A
        timeout, a 5xx and rejected credentials count as failures of the object that the caller works on
        (`log_context`); those of a listing count as failures about no object.
        """
        group = operation.partition(".")[0]
        subject = _subject(operation)
        namespace = "" if subject is None else namespace_of(subject.key)
        queued_at = self._clock()
        while True:
            connection = self._current
            if self.doubt and group in _OF_CLUSTER:
                raise HeldBack(self.doubt, retry_after=BREAKER_MAX)
            breaker = connection.breaker(group)
            kind = breaker.check(subject, self._clock())
            try:
                if (wait := connection.turns.reserve_in_group(group)) > 0:
                    await asyncio.sleep(wait)
                if (wait := connection.turns.reserve()) > 0:
                    await asyncio.sleep(wait)
                await connection.take_slot(group, namespace)
                try:
                    # During the wait, the cloud may have failed or been replaced.
                    if connection is not self._current:
                        continue
                    now = self._clock()
                    WAITING.of(self.name).observe(now - queued_at)
                    kind = breaker.check(subject, now) if kind is Pass.FREE else kind
                    judge = partial(self._conclude, connection, breaker, subject, kind)
                    return await self._judged(operation, function, connection, judge)
                finally:
                    connection.slots.release(group, namespace)
            finally:
                breaker.ended(kind)  # also if it was cancelled without a result

    @property
    def has_unfinished_writes(self) -> bool:
        """Whether a write is in progress, or one was given up so recently that it may still happen in the cloud,
        because a thread cannot be stopped, and a request that was sent cannot be taken back."""
        recent = self._clock() - self._unanswered_write < self.cloud.limits.deadline
        return recent or any(writes(each) for each in self.under_way)

    @property
    def state(self) -> GatewayState:
        """The present state of the budgets and the breakers, for people."""
        now, connection, limit = self._clock(), self._current, self._current.cloud.limits.concurrency
        breakers = [
            BreakerState(
                each.group, each.failures, each.is_open_for_all, max(0.0, each.open_until - now), each.last_error
            )
            for each in connection.breakers.values()
            if each.failures
        ]
        return GatewayState(connection.turns.budgets(), breakers, connection.under_way, limit)

    def on_replace(self, handler: Callable[[], None]) -> None:
        """Call `handler` whenever another cloud replaces the current one. The handler must not block or raise."""
        self._replaced.append(handler)

    def on_recovery(self, group: str, handler: Callable[[str], None]) -> None:
        """When calls of this group are no longer held back, call `handler` with the key of each object that waited. The
        handler must not block or raise."""
        self._recovered.setdefault(group, []).append(handler)

    async def replace(self, cloud: Cloud, refusal: Callable[[Listing], Awaitable[str]] | None = None) -> None:
        """Start `cloud` and replace the current cloud with it. The old cloud is closed when its calls have ended.

        `refusal` lists the new cloud's instances and returns why the cloud cannot be used, "" if it can: nothing
        happens between that answer and the replacement. Raises CloudError if the new cloud does not start, is refused
        (Conflict), or lacks a capability that the current one has; then the new cloud is closed, and nothing changes.
        """
        connection = _Connection.to(cloud, self._clock)
        try:
            missing = [name for name in CAPABILITIES if getattr(self.cloud, name) and not getattr(cloud, name)]
            if missing:
                raise ConfigError(
                    [f"it no longer offers {name.replace('_', ' ')}: restart to continue without" for name in missing]
                )
            await self._timed("cloud.start", cloud.start, connection)
            if refusal is not None and cloud.instances is not None:
                call = partial(self._timed, connection=connection)
                if problem := await refusal(partial(listing_of, cloud.instances, call, connection.turns, self._clock)):
                    raise Conflict(problem)
        except BaseException:
            await _close(cloud)
            raise
        old, self._current = self._current, connection
        for group in old.breakers:
            BREAKER_OPEN.of(self.name).labels(group).set(0)
        if self.instances is not None and cloud.instances is not None:
            self.instances.replace(cloud.instances)
        for handler in self._replaced:
            handler()
        task = asyncio.create_task(self._retire(old), name="retire the old cloud")
        self._retiring.add(task)
        task.add_done_callback(self._retiring.discard)
        self._answered(connection.breaker("cloud"), None)

    async def close(self) -> None:
        """Cancel the reads of instances in progress. Close the cloud, and replaced clouds that are still open."""
        if self.instances is not None:
            await self.instances.close()
        for task in list(self._retiring):
            task.cancel()
        await asyncio.gather(*self._retiring, return_exceptions=True)
        await _close(self.cloud)

    async def _retire(self, connection: _Connection) -> None:
        try:
            while connection.under_way:
                connection.idle.clear()
                await connection.idle.wait()
        finally:
            await _close(connection.cloud)

    async def _judged(
        self,
        operation: str,
        function: Callable[[], Awaitable[T]],
        connection: _Connection,
        judge: Callable[[CloudError | None], None],
    ) -> T:
        """Make the call and return its result. Raises CloudError. Unless the cloud was replaced meanwhile, call
        `judge` first: with the error, or with None for a success and for an error that concerns only one object."""
        try:
            result = await self._timed(operation, function, connection)
        except CloudError as error:
            if connection is self._current:
                judge(None if _concerns_one_object(operation, error) else error)
            raise
        if connection is self._current:
            judge(None)
        return result

    def _conclude(
        self, connection: _Connection, breaker: Breaker, subject: Subject | None, kind: Pass, error: CloudError | None
    ) -> None:
        if isinstance(error, RateLimited):
            alone = breaker.group if error.scope == "group" else None
            connection.turns.pause(min(MAX_PAUSE, error.retry_after or DEFAULT_PAUSE), alone)
            self.last_error = str(error)
            breaker.succeeded()  # the cloud is up, but it did not answer about the subject
        elif isinstance(error, (Transient, Unauthorized)):
            self.last_error = str(error)
            self.failing_since = self._clock() if self.failing_since is None else self.failing_since
            if not isinstance(error, ProviderBug):
                breaker.failed(error, subject, self._clock(), kind)
        else:
            self._answered(breaker, subject)
        for key in breaker.take_waiting():
            for handler in self._recovered.get(breaker.group, ()):
                handler(key)
        if breaker.is_open_for_all is not breaker.shown_open:
            breaker.shown_open = breaker.is_open_for_all
            BREAKER_OPEN.of(self.name).labels(breaker.group).set(breaker.shown_open)

    async def _timed(self, operation: str, function: Callable[[], Awaitable[T]], connection: _Connection) -> T:
        """Make the call under a number of its own, by which logs and traces identify it. Return its result. Raises
        CloudError."""
        named = {"call": operation, "request": f"{next(_requests):08x}"}
        with about(**named), tracing.span(operation, named, outgoing=True) as span:
            return await self._counted(operation, function, connection, span)

    async def _counted(
        self, operation: str, function: Callable[[], Awaitable[T]], connection: _Connection, span: tracing.Span
    ) -> T:
        started, outcome = self._clock(), "cancelled"
        connection.under_way += 1
        self.under_way.append(operation)
        try:
            result = await self._bounded(operation, function, connection.cloud.limits.deadline)
            _check(operation, result)
            outcome = "success"
            return result
        except TimeoutError:
            outcome = "timeout"
            limits = connection.cloud.limits
            raise Transient.late(operation, limits.deadline, limits.set_by) from None
        except CloudError as error:
            outcome = type(error).__name__
            raise
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # a provider's bug, even a SystemExit
            outcome = "bug"
            what = (
                "cancelled its own call" if isinstance(error, _Cancelled) else f"raised {type(error).__name__}: {error}"
            )
            kind = Transient if isinstance(error, OSError) else ProviderBug
            raise kind(f"{operation}: provider {connection.cloud.name!r} {what}") from error
        finally:
            if outcome in ("cancelled", "timeout") and writes(operation):
                self._unanswered_write = self._clock()
            REQUESTS.of(self.name).labels(operation, outcome).inc()
            seconds = self._clock() - started
            DURATION.of(self.name).labels(operation).observe(seconds)
            log.debug("the call to the cloud ended after %.3f s: %s", seconds, outcome)
            span.note({"result": outcome})
            self.under_way.remove(operation)
            connection.under_way -= 1
            connection.idle.set()

    async def _bounded(self, operation: str, function: Callable[[], Awaitable[T]], deadline: float) -> T:
        """Return the result, or raise what `function` raises; RuntimeError for SystemExit and KeyboardInterrupt.

        Raises TimeoutError after `deadline` seconds, even if the provider ignores the cancellation, and _Cancelled if
        the provider cancelled its own call.
        """

        async def call() -> T:
            try:
                return await function()
            except (SystemExit, KeyboardInterrupt) as error:  # leaving a task, these would stop the event loop
                raise RuntimeError(f"{type(error).__name__}: {error}") from error

        task = asyncio.create_task(call(), name=f"cloud: {operation}")
        try:
            await asyncio.wait({task}, timeout=deadline)
        except asyncio.CancelledError:
            await _end(task, operation, self.name)
            raise
        if not task.done():
            await _end(task, operation, self.name)
            raise TimeoutError
        if task.cancelled():  # not by us: some inner task was cancelled, which would silently end the caller
            raise _Cancelled
        return task.result()

    def _answered(self, breaker: Breaker, subject: Subject | None) -> None:
        breaker.succeeded(subject)
        self.failing_since = None
        self.last_success = datetime.datetime.now(datetime.UTC)
        LAST_SUCCESS.of(self.name).set(self.last_success.timestamp())


class ProviderBug(Transient):
    """The provider raised an exception that is not a CloudError, or returned a wrong type.

    It does not affect other calls, because one object that triggers the bug must not block the others. An OSError from
    a provider is not such a bug: it means that the cloud is unreachable.
    """


class _Cancelled(Exception):
    """The provider cancelled its own call."""


async def _end(task: asyncio.Task[Any], operation: str, cloud: str) -> None:
    """Cancel the call and wait for its end. A call that does not end within `GRACE` seconds is abandoned, because it
    would block its caller forever."""
    task.cancel()
    await asyncio.wait({task}, timeout=GRACE)
    if task.done():
        _ = task.cancelled() or task.exception()
        return
    ABANDONED.of(cloud).labels(operation).inc()
    log.error("%s ignored its cancellation and is abandoned: this is a bug of the provider", operation)
    task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())


async def _close(cloud: Cloud) -> None:
    try:
        async with asyncio.timeout(GRACE):
            await cloud.close()
    except Exception:
        log.exception("provider %r failed to close", cloud.name)


def writes(operation: str) -> bool:
    """Return whether a call may change something in the cloud. Commands only read, so they refuse such calls."""
    return operation.rpartition(".")[2] not in _READS


def _concerns_one_object(operation: str, error: CloudError) -> bool:
    """Return whether the cloud answered about one object. A listing is about no object, even if the error says so."""
    return getattr(error, "scope", "") == "object" and not operation.endswith(_ABOUT_ALL)


def _subject(operation: str) -> Subject | None:
    """Return the object that the caller works on; None if it works on none, or if the call is about all objects."""
    key = log_context.fields().get("object")
    return None if key is None or operation.endswith(_ABOUT_ALL) else Subject.of(key)


def _check(operation: str, result: Any) -> None:
    """Raises TypeError if the type of the provider's answer violates the contract."""
    if (kind := _ONE.get(operation)) is not None and not isinstance(result, kind):
        raise TypeError(f"expected {kind.__name__}, got {type(result).__name__}")
    if (kind := _MANY.get(operation)) is None:
        return
    if not isinstance(result, Sequence) or not all(isinstance(item, kind) for item in result):
        raise TypeError(f"expected a sequence of {kind.__name__}")
