# SPDX-License-Identifier: Apache-2.0
"""Leader election on a Lease: at most one process of a group works, and another takes over when it stops.

It guarantees one thing: when another process may hold the Lease by our monotonic clock, our work is already cancelled.
Therefore the renew deadline counts from *before* the last successful renewal was sent, no request may outlast it, and
the Lease is released only after the work has ended. SIGSTOP or swapping can freeze a process while its clock continues.
When it wakes, others may already lead, so `expired` is called first. A timer of the event loop calls it before any task
that wakes. But if the process was frozen in the middle of an iteration of its event loop, that iteration is finished
before any timer: therefore `alarm` interrupts it and calls `expired`, too.

If a hypervisor pauses a machine, the monotonic clock may stop, too. Then the process cannot notice the pause. Its work
continues until the next renewal, `retry_period` later, finds another holder, or for `renew_deadline` if the API server
does not answer. Controllers write to the API server with a resourceVersion, so the server rejects writes to objects
that a new leader has written. It cannot reject writes to the cloud during that time. client-go behaves the same way.

Durations and defaults are those of client-go (`tools/leaderelection`). Timestamps of others are never compared with our
clock: a Lease expires when its record has not changed for its duration, as measured here.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import logging
import math
import random
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from ccm.base.clock import SYSTEM_CLOCK, Clock, timeout

from . import metrics
from .api_errors import ApiError, ConflictError, NotFoundError
from .client import KubeClient
from .informer import Informer
from .objects import Lease, LeaseSpec, ObjectMeta, ObjectRef

logger = logging.getLogger(__name__)


class LeadershipLost(Exception):
    """Another process leads, or may lead by now. This process should exit: its work is cancelled."""


class Recorder(Protocol):
    def event(self, obj: ObjectRef, type: str, reason: str, message: str) -> None: ...


class LeaderElector:
    """One candidate for the Lease `namespace/name`, under a unique `identity`. Use it once.

    `lease_duration`: how long others wait after our last renewal. `renew_deadline`: how long the work continues without
    a successful renewal. `retry_period`: the interval between renewals, and between attempts to acquire the Lease. All
    are in seconds, and each must be greater than the next (otherwise ValueError).
    `expired()` is called if the Lease expires while `lead` still runs: by a timer of the event loop, before any task
    that wakes at the same time. It must end the process if the process could still do harm. `alarm(seconds, callback)`,
    if given, sets a second timer, which interrupts running code to call `expired`, even while that code blocks the
    event loop. It returns a function that cancels this timer.
    `may_release()`: whether nothing that this process started can still take effect. If something can, the Lease is not
    released at the end but expires, which is late enough.
    `annotations()` is merged into the annotations of the Lease at each write; other annotations stay unchanged.
    """

    def __init__(
        self,
        client: KubeClient,
        *,
        namespace: str,
        name: str,
        identity: str,
        lease_duration: float = 15.0,
        renew_deadline: float = 10.0,
        retry_period: float = 2.0,
        annotations: Callable[[], dict[str, str]] | None = None,
        clock: Clock = SYSTEM_CLOCK,
        recorder: Recorder | None = None,
        expired: Callable[[], None] | None = None,
        alarm: Callable[[float, Callable[[], None]], Callable[[], None]] | None = None,
        may_release: Callable[[], bool] = lambda: True,
    ) -> None:
        if not identity:
            raise ValueError("the identity is empty: the Lease would look as if it had no holder")
        if not lease_duration > renew_deadline > retry_period > 0:
            raise ValueError(
                f"lease duration {lease_duration:g} s, renew deadline {renew_deadline:g} s and retry period "
                f"{retry_period:g} s: each must be greater than the next, the last greater than 0"
            )
        self.namespace, self.name, self.identity = namespace, name, identity
        self.holder = ""
        self.is_leader = False
        self.renewed_at = -math.inf
        self._client, self._clock, self._recorder = client, clock, recorder
        self._lease_duration, self._renew_deadline, self._retry_period = lease_duration, renew_deadline, retry_period
        self._annotations, self._may_release = annotations, may_release
        self._expired, self._alarm, self._tripwire = expired, alarm, contextlib.ExitStack()
        self._collection = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._path = f"{self._collection}/{name}"
        self._where = f"{namespace}/{name}"
        # The time limit of one request: if one hangs on a dead connection, others on new connections still have time.
        self._attempt = renew_deadline / 4
        self._meta = ObjectMeta()
        self._record = LeaseSpec()
        self._changed_at = -math.inf
        self._taking = False  # a request that takes the Lease has been sent and not answered
        metrics.LEADER.labels(name).set(0)
        metrics.LEADER_SLOWPATH.labels(name)

    def healthy(self, tolerance: float) -> bool:
        """Return False if this process still leads although its Lease expired more than `tolerance` seconds ago: it is
        stuck and should be restarted (client-go: HealthzAdaptor)."""
        return not self.is_leader or self._clock.monotonic() - self.renewed_at <= self._lease_duration + tolerance

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Wait for the Lease, then run `lead` while holding it.

        Returns when `lead` returns, and raises its exception; a cancellation cancels `lead`. However `lead` ends, the
        Lease is released afterwards, if `may_release` allows that. If the Lease is lost, cancels `lead` and raises
        LeadershipLost.
        """
        try:
            await self._acquire()
        except asyncio.CancelledError:
            await self._give_back()
            raise
        self._start_leading()
        work = asyncio.ensure_future(lead())
        renewal = asyncio.create_task(self._renew_for_ever(), name=f"renew Lease {self.name}")
        try:
            try:
                await asyncio.wait({work, renewal}, return_when=asyncio.FIRST_COMPLETED)
            except asyncio.CancelledError:
                # The renewal continues while the work ends, however long that takes.
                work.cancel()
                await asyncio.wait({work, renewal}, return_when=asyncio.FIRST_COMPLETED)
                await self._end(work, renewal)
                _log_failure(work)
                raise
            await self._end(work, renewal)
        finally:
            self._tripwire.close()
            renewal.cancel()  # a second cancellation gets here: the Lease is then not released
            self.is_leader = False
            metrics.LEADER.labels(self.name).set(0)
        await work

    async def _end(self, work: asyncio.Future[None], renewal: asyncio.Task[None]) -> None:
        """End what remains of the two after `work` or `renewal` has ended. If the work ended, release the Lease. If the
        renewal ended, raise its LeadershipLost."""
        if renewal.done():
            work.cancel()
            # Work that does not end before others may acquire the Lease is abandoned; the process must exit.
            with contextlib.suppress(TimeoutError):
                async with timeout(self._clock, self._lease_duration - self._renew_deadline):
                    await asyncio.wait({work})
            _log_failure(work)
            self._record_event("stopped leading")
            renewal.result()
        else:
            renewal.cancel()
            await asyncio.wait({renewal})
            await self._release()
            self._record_event("stopped leading")

    def _start_leading(self) -> None:
        self.is_leader = True
        self._set_tripwire()
        metrics.LEADER.labels(self.name).set(1)
        logger.info("%s holds the Lease %s", self.identity, self._where)
        self._record_event("became leader")

    def _set_tripwire(self) -> None:
        """Set a timer for the moment at which others may acquire the Lease. A timer's callback runs before tasks that
        wake in the same iteration of the event loop, so they cannot write anything any more."""
        self._tripwire.close()
        if self._expired is not None:
            left = self.renewed_at + self._lease_duration - self._clock.monotonic()
            self._tripwire.callback(self._clock.call_later(left, self._expired).cancel)
            if self._alarm is not None:
                self._tripwire.callback(self._alarm(left, self._expired))

    def _record_event(self, what: str) -> None:
        if self._recorder is not None:
            lease = ObjectRef("coordination.k8s.io/v1", "Lease", self.name, self.namespace, self._meta.uid)
            self._recorder.event(lease, "Normal", "LeaderElection", f"{self.identity} {what}")

    # Acquiring the Lease

    async def _acquire(self) -> None:
        """Wait until we hold the Lease: it was free, or its record has not changed for its duration."""
        changed = asyncio.Event()

        def on_lease(old: Lease | None, new: Lease | None) -> None:
            if new is None or old is None or old.spec.holder_identity != new.spec.holder_identity:
                changed.set()

        # Only a wake-up: the decision depends on what `_try_to_take` reads.
        watch = Informer(
            self._client,
            self._collection,
            Lease,
            name=f"lease {self.name}",
            clock=self._clock,
            params={"fieldSelector": f"metadata.name={self.name}"},
        )
        watch.add_handler(on_lease)
        watching = asyncio.create_task(watch.run(), name=f"watch Lease {self.name}")
        try:
            while not await self._try_to_take():
                wait = self._retry_period * random.uniform(1.0, 2.2)  # client-go: JitterFactor 1.2
                with contextlib.suppress(TimeoutError):
                    async with timeout(self._clock, wait):
                        await changed.wait()
                changed.clear()
        finally:
            watching.cancel()
            await asyncio.wait({watching})

    async def _try_to_take(self) -> bool:
        try:
            async with timeout(self._clock, self._renew_deadline):
                return await self._take_if_free()
        except (ApiError, TimeoutError) as error:
            if isinstance(error, ConflictError):
                logger.info("another candidate acquired the Lease %s first", self.name)
            else:
                logger.warning("cannot acquire the Lease %s: %s", self._where, error or "no answer")
            return False

    async def _take_if_free(self) -> bool:
        sent = self._clock.monotonic()
        exists = True
        try:
            await self._read()
        except NotFoundError:
            exists = False  # deleted, which its holder may not know yet: it is free when it expires
        if not free(self._record, self.identity, self._clock.monotonic() - self._changed_at, self._lease_duration):
            return False
        self._taking = True
        if exists:
            sent = self._clock.monotonic()
            await self._write(taken(self._record, self.identity, self._seconds, self._stamp()))
        else:
            await self._create()
        self.renewed_at = sent
        return True

    async def _give_back(self) -> None:
        """Release the Lease after a cancelled attempt, if we have it, also if the answer was not awaited."""
        if self._record.holder_identity != self.identity and self._taking:
            try:
                await self._read()
            except ApiError as error:
                logger.warning("cannot read the Lease %s, which may be ours and will expire: %s", self._where, error)
        if self._record.holder_identity == self.identity:
            await self._release()

    # Renewing the Lease

    async def _renew_for_ever(self) -> None:
        """Renew until cancelled. Raises LeadershipLost after the deadline, or if another process holds the Lease."""
        while True:
            deadline = self.renewed_at + self._renew_deadline
            await self._clock.sleep(min(self._retry_period, deadline - self._clock.monotonic()))
            last = "no answer"
            try:
                async with timeout(self._clock, deadline - self._clock.monotonic()):
                    while True:
                        sent = self._clock.monotonic()
                        if (failure := await self._try_to_renew()) is None:
                            break
                        last = failure
                        logger.warning("cannot renew the Lease %s: %s", self._where, failure)
                        # An attempt that hung has already waited; one that was rejected at once has not.
                        pause = self._retry_period / 4 * random.uniform(1.0, 1.5)
                        await self._clock.sleep(max(0.0, sent + pause - self._clock.monotonic()))
            except TimeoutError:
                raise LeadershipLost(
                    f"the Lease {self._where} could not be renewed for {self._renew_deadline:g} s: {last}"
                ) from None

    async def _try_to_renew(self) -> str | None:
        """Return None after a successful renewal, otherwise the reason. Raises LeadershipLost if another one holds the
        Lease.

        Each request has its own time limit. A common limit would discard the answer to the last request, and the next
        attempt would start with a conflict again.
        """
        sent = self._clock.monotonic()
        try:
            try:
                await self._write(renewed(self._record, self.identity, self._seconds, self._stamp()))
            except ConflictError:
                # Another write happened: an annotation, another holder, or our own request whose answer was lost.
                metrics.LEADER_SLOWPATH.labels(self.name).inc()
                await self._read()
                if self._record.holder_identity != self.identity:
                    how = f"taken by {self.holder}" if self.holder else "released by another process"
                    raise LeadershipLost(f"the Lease {self._where} was {how}") from None
                sent = self._clock.monotonic()
                await self._write(renewed(self._record, self.identity, self._seconds, self._stamp()))
            except NotFoundError:
                await self._create()
        except ApiError as error:
            return str(error)
        self.renewed_at = sent
        self._set_tripwire()
        return None

    # Releasing the Lease

    async def _release(self) -> None:
        """Release the Lease if we hold it and no write to the cloud may still happen, so that a standby need not wait.
        If that fails, the Lease expires."""
        if not self._may_release():
            logger.warning(
                "the Lease %s is not released but expires: a write to the cloud may still happen", self._where
            )
            return
        try:
            async with timeout(self._clock, self._attempt):
                try:
                    await self._write(released(self._record, self._stamp()))
                except ConflictError:  # a renewal was cancelled before its answer arrived
                    await self._read()
                    if self._record.holder_identity == self.identity:
                        await self._write(released(self._record, self._stamp()))
            logger.info("released the Lease %s", self._where)
        except (ApiError, TimeoutError) as error:
            logger.warning(
                "cannot release the Lease %s, it will expire: %s",
                self._where,
                error or "no answer",
            )

    # Requests

    @property
    def _seconds(self) -> int:
        return max(1, math.ceil(self._lease_duration))

    def _stamp(self) -> str:
        return micro_time(self._clock.now())

    async def _read(self) -> None:
        lease = await self._client.get(self._path, Lease, timeout=self._attempt)
        self._meta = lease.metadata
        self._observe(lease.spec)

    def _observe(self, record: LeaseSpec) -> None:
        if record != self._record:
            self._record, self._changed_at = record, self._clock.monotonic()
            self.holder = record.holder_identity or ""

    async def _write(self, record: LeaseSpec) -> None:
        """Send a merge patch, which keeps what others write. It is rejected if the Lease has changed since we last read
        or wrote it."""
        metadata = {"resourceVersion": self._meta.resource_version, **self._own_metadata()}
        patch = {"metadata": metadata, "spec": wire(record)}
        self._meta = await self._client.patch(self._path, patch, timeout=self._attempt)
        self._observe(record)

    async def _create(self) -> None:
        record = taken(LeaseSpec(), self.identity, self._seconds, self._stamp())
        lease = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self.name, "namespace": self.namespace, **self._own_metadata()},
            "spec": wire(record),
        }
        self._meta = await self._client.create(self._collection, lease, timeout=self._attempt)
        self._observe(record)

    def _own_metadata(self) -> dict[str, Any]:
        if self._annotations is None:
            return {}
        try:
            return {"annotations": self._annotations()}
        except Exception:
            logger.exception("cannot update the annotations of the Lease %s", self.name)
            return {}


def _log_failure(work: asyncio.Future[None]) -> None:
    """Log what went wrong with the work, because another exception is raised instead."""
    if not work.done():
        logger.error("the work did not end in time after it was cancelled, and is abandoned")
    elif not work.cancelled() and (error := work.exception()) is not None:
        logger.error("the work failed while it was ending", exc_info=error)


def free(record: LeaseSpec, identity: str, unchanged: float, default_duration: float) -> bool:
    """Return whether `identity` may acquire a Lease with this record, unchanged for `unchanged` seconds. Pure."""
    if not record.holder_identity or record.holder_identity == identity:
        return True
    duration = record.lease_duration_seconds
    return unchanged > (default_duration if duration is None else float(duration))


def taken(record: LeaseSpec, identity: str, seconds: int, now: str) -> LeaseSpec:
    """Return the record after `identity` acquires the Lease. A first record counts no transition (client-go)."""
    if record.holder_identity == identity:
        return renewed(record, identity, seconds, now)
    fresh = record.acquire_time is None and record.renew_time is None
    transitions = 0 if fresh else (record.lease_transitions or 0) + 1
    return LeaseSpec(identity, seconds, acquire_time=now, renew_time=now, lease_transitions=transitions)


def renewed(record: LeaseSpec, identity: str, seconds: int, now: str) -> LeaseSpec:
    return LeaseSpec(identity, seconds, record.acquire_time or now, now, record.lease_transitions or 0)


def released(record: LeaseSpec, now: str) -> LeaseSpec:
    """Return a record without a holder, and with a duration so short that clocks do not matter (client-go: 1 s)."""
    return LeaseSpec("", 1, now, now, record.lease_transitions or 0)


def wire(record: LeaseSpec) -> dict[str, Any]:
    return {
        "holderIdentity": record.holder_identity,
        "leaseDurationSeconds": record.lease_duration_seconds,
        "acquireTime": record.acquire_time,
        "renewTime": record.renew_time,
        "leaseTransitions": record.lease_transitions,
    }


def micro_time(when: datetime.datetime) -> str:
    """Return metav1.MicroTime: UTC with six digits, whatever zone `when` is in."""
    return when.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
