# SPDX-License-Identifier: Apache-2.0
"""The one door to the cloud, shared by all controllers.

Every call passes `Gateway.call`, which makes sure that it waits its turn (token bucket, concurrency, the pause a cloud
asked for), ends (deadline), is not made while the cloud is known to be down (circuit breaker), and is counted. Whatever
goes wrong leaves it as a `CloudError`. Questions about instances go through `Gateway.instances`, which answers many of
them with one listing (`ccm.cloud.directory`).
"""

from __future__ import annotations

import asyncio
import datetime
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from prometheus_client import Counter, Gauge, Histogram

from .contract import Cloud
from .directory import InstanceDirectory
from .errors import CloudError, RateLimited, Transient, Unauthorized

T = TypeVar("T")

REQUESTS = Counter("ccm_cloud_requests", "Calls to the cloud by operation and outcome.", ["operation", "result"])
DURATION = Histogram(
    "ccm_cloud_request_duration_seconds",
    "How long the cloud took to answer, without waiting in our own queue.",
    ["operation"],
    buckets=(0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
)
WAITING = Histogram(
    "ccm_cloud_rate_limiter_duration_seconds",
    "How long calls waited for our own rate limit, concurrency limit, or a pause that the cloud asked for.",
    buckets=(0.001, 0.01, 0.1, 0.5, 1, 5, 15, 60),
)
BREAKER_OPEN = Gauge(
    "ccm_cloud_breaker_open", "1 while calls of this group are held back because the cloud fails.", ["group"]
)
LAST_SUCCESS = Gauge("ccm_cloud_last_success_timestamp_seconds", "Unix time of the last call that the cloud answered.")

#: Consecutive failures of one group after which its calls are held back.
BREAKER_THRESHOLD = 5
#: First and longest time for which they are held back, in seconds; doubled by each failed probe.
BREAKER_FIRST, BREAKER_MAX = 1.0, 30.0
#: The pause after a 429 that names no time, in seconds.
DEFAULT_PAUSE = 5.0


class TokenBucket:
    """`rate` calls a second, `burst` at once; `pause` stops everything for a while."""

    def __init__(self, rate: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._burst, self._clock = rate, float(burst), clock
        self._tokens, self._filled = self._burst, clock()
        self._paused_until = 0.0

    def reserve(self) -> float:
        """Take a token, if need be from the future; seconds until the holder may go."""
        now = self._clock()
        self._tokens = min(self._burst, self._tokens + (now - self._filled) * self._rate)
        self._filled = now
        self._tokens -= 1
        return max(0.0, -self._tokens / self._rate, self._paused_until - now)

    def pause(self, seconds: float) -> None:
        self._paused_until = max(self._paused_until, self._clock() + seconds)

    @property
    def paused_for(self) -> float:
        """Seconds of a pause that are left."""
        return max(0.0, self._paused_until - self._clock())


@dataclass
class Breaker:
    """Holds back the calls of one group after repeated failures, then lets one through as a probe."""

    group: str
    failures: int = 0
    held: float = 0.0
    open_until: float = 0.0
    probing: bool = False
    last_error: str = ""

    def check(self, now: float) -> bool:
        """Raises Transient while the group is held back; otherwise the caller may go: True, as the probe."""
        if self.failures < BREAKER_THRESHOLD:
            return False
        if now < self.open_until or self.probing:
            wait = max(self.open_until - now, BREAKER_FIRST)
            raise Transient(
                f"not asked: the cloud failed {self.failures} times in a row, last with: {self.last_error}",
                retry_after=wait,
            )
        self.probing = True
        return True

    def succeeded(self) -> None:
        self.failures, self.held, self.probing = 0, 0.0, False
        BREAKER_OPEN.labels(self.group).set(0)

    def failed(self, error: CloudError, now: float, *, probe: bool) -> None:
        """A call failed. Only the failure that opens it and failed probes set the time: calls that were under way
        together fail together and tell nothing new."""
        self.failures += 1
        self.last_error = str(error)
        if self.failures == BREAKER_THRESHOLD or (probe and self.failures > BREAKER_THRESHOLD):
            self.held = min(BREAKER_MAX, self.held * 2 or BREAKER_FIRST)
            self.open_until = now + self.held
            BREAKER_OPEN.labels(self.group).set(1)


class Gateway:
    """All calls to one cloud. Create it inside the running event loop."""

    def __init__(self, cloud: Cloud, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.cloud = cloud
        self._clock = clock
        self._bucket = TokenBucket(cloud.limits.calls_per_second, cloud.limits.burst, clock)
        self._slots = asyncio.Semaphore(cloud.limits.concurrency)
        self._breakers: dict[str, Breaker] = {}
        self.last_success: datetime.datetime | None = None
        self.last_error: str = ""
        self.instances = InstanceDirectory(cloud.instances, self.call, clock=clock) if cloud.instances else None

    async def call(self, operation: str, function: Callable[[], Awaitable[T]]) -> T:
        """Make one call. `operation` is `group.verb`, e.g. `instances.list`; groups have a breaker each.

        Raises CloudError only. An answer such as NotFound or Conflict proves that the cloud works; time-outs, 5xx and
        refused credentials count against it.
        """
        group = operation.partition(".")[0]
        breaker = self._breakers.setdefault(group, Breaker(group))
        asked = self._clock()
        probe = breaker.check(asked)
        try:
            if (wait := self._bucket.reserve()) > 0:
                await asyncio.sleep(wait)
            async with self._slots:
                # While we waited, a 429 may have come in, or the cloud have been found to be down.
                while (wait := self._bucket.paused_for) > 0:
                    await asyncio.sleep(wait)
                WAITING.observe(self._clock() - asked)
                probe = probe or breaker.check(self._clock())
                return await self._judged(operation, function, breaker, probe)
        finally:
            if probe:  # also when it was cancelled and told nothing
                breaker.probing = False

    async def _judged(self, operation: str, function: Callable[[], Awaitable[T]], breaker: Breaker, probe: bool) -> T:
        """Make the call and draw the conclusions from its outcome."""
        try:
            result = await self._timed(operation, function)
        except RateLimited as error:
            self._bucket.pause(error.retry_after or DEFAULT_PAUSE)
            self.last_error = str(error)
            breaker.succeeded()  # it is up, but this was no answer
            raise
        except (Transient, Unauthorized) as error:
            self.last_error = str(error)
            breaker.failed(error, self._clock(), probe=probe)
            raise
        except CloudError:
            self._answered(breaker)
            raise
        self._answered(breaker)
        return result

    async def _timed(self, operation: str, function: Callable[[], Awaitable[T]]) -> T:
        started, outcome = self._clock(), "cancelled"
        try:
            async with asyncio.timeout(self.cloud.limits.deadline):
                result = await function()
            outcome = "success"
            return result
        except TimeoutError:
            outcome = "timeout"
            raise Transient(f"{operation}: no answer within {self.cloud.limits.deadline:g} s") from None
        except CloudError as error:
            outcome = type(error).__name__
            raise
        except asyncio.CancelledError:
            if (task := asyncio.current_task()) is None or task.cancelling():
                raise
            outcome = "bug"  # nobody cancelled us: it is some inner task's, and would end our caller silently
            raise Transient(f"{operation}: provider {self.cloud.name!r} cancelled its own call") from None
        except Exception as error:
            outcome = "bug"
            raise Transient(
                f"{operation}: provider {self.cloud.name!r} raised {type(error).__name__}: {error}"
            ) from error
        finally:
            REQUESTS.labels(operation, outcome).inc()
            DURATION.labels(operation).observe(self._clock() - started)

    def _answered(self, breaker: Breaker) -> None:
        breaker.succeeded()
        self.last_success = datetime.datetime.now(datetime.UTC)
        LAST_SUCCESS.set(self.last_success.timestamp())
