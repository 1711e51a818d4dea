# SPDX-License-Identifier: Apache-2.0
"""Leader election on a Lease: at most one process of a group does the work, and another takes over when it stops.

The one promise: when somebody else may hold the Lease by our monotonic clock, our work has been cancelled. So the renew
deadline is counted from *before* the last good renewal was sent, no request may outlast it, and the Lease is given up
only after the work has ended. A process that was frozen while its clock went on, by SIGSTOP or by swapping, wakes when
others lead already: then `expired` is called before any of its tasks can go on. A timer of the event loop calls it, and
`alarm` as well: a process that was frozen in the middle of a turn of its event loop ends that turn before any timer.

A machine whose hypervisor paused it may wake with a monotonic clock that stood still, too. Then nothing here knows of
the pause: the work goes on until the next renewal, `retry_period` later, finds another holder, and for `renew_deadline`
if the API server does not answer. What controllers write to the API server names a resourceVersion, so it is refused
where a new leader wrote; what they write to the cloud in that time is not. client-go is no different.

Durations and defaults are client-go's (`tools/leaderelection`). Times of others are never compared with our clock: a
Lease expires when its record has not changed for its duration, as measured here.
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
    """Another process leads, or may lead by now. This one should exit: its work has been cancelled."""


class Recorder(Protocol):
    def event(self, obj: ObjectRef, type: str, reason: str, message: str) -> None: ...


class LeaderElector:
    """One candidate for the Lease `namespace/name`, under a unique `identity`. Use it once.

    `lease_duration`: how long others wait after our last renewal. `renew_deadline`: how long we go on without a good
    one. `retry_period`: between renewals, and between attempts to take the Lease. All in seconds, each greater than the
    next (ValueError otherwise).
    `expired()` is called, from the event loop and not from a task, when the Lease has run out although `lead` has not
    ended; a process that can do harm then ends itself in it. `alarm(seconds, callback)` sets another timer for it, one
    that interrupts running code, and returns what cancels that timer.
    `annotations()` is merged into the Lease's annotations at each renewal; those of others are left alone.
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
    ) -> None:
        if not identity:
            raise ValueError("the identity is empty: it would look like a Lease that nobody holds")
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
        self._annotations = annotations
        self._expired, self._alarm, self._tripwire = expired, alarm, contextlib.ExitStack()
        self._collection = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._path = f"{self._collection}/{name}"
        self._where = f"{namespace}/{name}"
        # A quarter: when two attempts hang on dead connections, another one still fits on a new one.
        self._attempt = renew_deadline / 4
        self._meta = ObjectMeta()
        self._record = LeaseSpec()
        self._changed_at = -math.inf
        metrics.LEADER.labels(name).set(0)
        metrics.LEADER_SLOWPATH.labels(name)

    def healthy(self, tolerance: float) -> bool:
        """False when this process believes to lead although its Lease expired more than `tolerance` seconds ago: it is
        stuck and should be restarted (client-go: HealthzAdaptor)."""
        return not self.is_leader or self._clock.monotonic() - self.renewed_at <= self._lease_duration + tolerance

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Wait for the Lease, then run `lead` for as long as it is held.

        Ends when `lead` ends, with its result or exception; cancelled, it cancels `lead`. Either way the Lease is
        released once `lead` has really ended. Raises LeadershipLost, with `lead` cancelled, when the Lease is lost.
        """
        try:
            await self._acquire()
        except asyncio.CancelledError:
            if self._record.holder_identity == self.identity:  # taken in the very moment
                await self._release()
            raise
        self._lead_begins()
        work = asyncio.ensure_future(lead())
        renewal = asyncio.create_task(self._renew_for_ever(), name=f"renew Lease {self.name}")
        try:
            try:
                await asyncio.wait({work, renewal}, return_when=asyncio.FIRST_COMPLETED)
            except asyncio.CancelledError:
                # The Lease is still renewed while the work ends, however long that takes.
                work.cancel()
                await asyncio.wait({work, renewal}, return_when=asyncio.FIRST_COMPLETED)
                await self._end(work, renewal)
                _log_failure(work)
                raise
            await self._end(work, renewal)
        finally:
            self._tripwire.close()
            renewal.cancel()  # for the impatient, who cancel twice: then nothing is released
            self.is_leader = False
            metrics.LEADER.labels(self.name).set(0)
        await work

    async def _end(self, work: asyncio.Future[None], renewal: asyncio.Task[None]) -> None:
        """Work or renewal has ended: end the other; release the Lease if it is still ours. Raises LeadershipLost."""
        if renewal.done():
            work.cancel()
            # What does not end before others may take the Lease is left behind; the process is to exit.
            with contextlib.suppress(TimeoutError):
                async with timeout(self._clock, self._lease_duration - self._renew_deadline):
                    await asyncio.wait({work})
            _log_failure(work)
            self._tell("stopped leading")
            renewal.result()
        else:
            renewal.cancel()
            await asyncio.wait({renewal})
            await self._release()
            self._tell("stopped leading")

    def _lead_begins(self) -> None:
        self.is_leader = True
        self._set_tripwire()
        metrics.LEADER.labels(self.name).set(1)
        logger.info("%s holds the Lease %s", self.identity, self._where)
        self._tell("became leader")

    def _set_tripwire(self) -> None:
        """For the moment at which others may take the Lease. A timer's callback runs before the tasks that the same
        turn of the event loop wakes, so what they were about to write is not written."""
        self._tripwire.close()
        if self._expired is not None:
            left = self.renewed_at + self._lease_duration - self._clock.monotonic()
            self._tripwire.callback(self._clock.call_later(left, self._expired).cancel)
            if self._alarm is not None:
                self._tripwire.callback(self._alarm(left, self._expired))

    def _tell(self, what: str) -> None:
        if self._recorder is not None:
            lease = ObjectRef("coordination.k8s.io/v1", "Lease", self.name, self.namespace, self._meta.uid)
            self._recorder.event(lease, "Normal", "LeaderElection", f"{self.identity} {what}")

    # Taking it

    async def _acquire(self) -> None:
        """Return when we hold the Lease: it was free, or its record has not changed for its duration."""
        changed = asyncio.Event()

        def on_lease(old: Lease | None, new: Lease | None) -> None:
            if new is None or old is None or old.spec.holder_identity != new.spec.holder_identity:
                changed.set()

        # Only a wake-up: what counts is what `_try_to_take` reads.
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
            async with timeout(self._clock, self._attempt):
                return await self._take_if_free()
        except (ApiError, TimeoutError) as error:
            if isinstance(error, ConflictError):
                logger.info("another candidate was faster for the Lease %s", self.name)
            else:
                logger.warning("cannot take the Lease %s: %s", self._where, error or "no answer")
            return False

    async def _take_if_free(self) -> bool:
        sent = self._clock.monotonic()
        exists = True
        try:
            await self._read()
        except NotFoundError:
            exists = False  # its holder may not know yet, so it is not free before its time
        if not free(self._record, self.identity, self._clock.monotonic() - self._changed_at, self._lease_duration):
            return False
        if exists:
            sent = self._clock.monotonic()
            await self._write(taken(self._record, self.identity, self._seconds, self._stamp()))
        else:
            await self._create()
        self.renewed_at = sent
        return True

    # Keeping it

    async def _renew_for_ever(self) -> None:
        """Renew until cancelled; LeadershipLost when that did not succeed before the deadline, or at a theft."""
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
                        logger.warning("the Lease %s is not renewed: %s", self._where, failure)
                        # An attempt that hung has waited long enough; one that was refused at once has not.
                        pause = self._retry_period / 4 * random.uniform(1.0, 1.5)
                        await self._clock.sleep(max(0.0, sent + pause - self._clock.monotonic()))
            except TimeoutError:
                raise LeadershipLost(
                    f"the Lease {self._where} could not be renewed for {self._renew_deadline:g} s: {last}"
                ) from None

    async def _try_to_renew(self) -> str | None:
        """None after a good renewal, else why not. Raises LeadershipLost when another holds the Lease."""
        sent = self._clock.monotonic()
        try:
            async with timeout(self._clock, self._attempt):
                try:
                    await self._write(renewed(self._record, self.identity, self._seconds, self._stamp()))
                except ConflictError:
                    # Somebody wrote: an annotation, a thief, or ourselves in a request whose answer was lost.
                    metrics.LEADER_SLOWPATH.labels(self.name).inc()
                    await self._read()
                    if self._record.holder_identity != self.identity:
                        how = f"taken by {self.holder}" if self.holder else "emptied by somebody else"
                        raise LeadershipLost(f"the Lease {self._where} was {how}") from None
                    sent = self._clock.monotonic()
                    await self._write(renewed(self._record, self.identity, self._seconds, self._stamp()))
                except NotFoundError:
                    await self._create()
        except TimeoutError:
            return "no answer in time"
        except ApiError as error:
            return str(error)
        self.renewed_at = sent
        self._set_tripwire()
        return None

    # Giving it up

    async def _release(self) -> None:
        """Empty the Lease if it is ours, so that a standby need not wait; whoever fails here just lets it expire."""
        try:
            async with timeout(self._clock, self._attempt):
                try:
                    await self._write(released(self._record, self._stamp()))
                except ConflictError:  # a renewal was cut off when its answer was on the way
                    await self._read()
                    if self._record.holder_identity == self.identity:
                        await self._write(released(self._record, self._stamp()))
            logger.info("the Lease %s is released", self._where)
        except (ApiError, TimeoutError) as error:
            logger.warning(
                "the Lease %s is not released and expires by itself: %s",
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
        """A merge patch, so that what others put on the Lease stays; refused when it changed since we saw it."""
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
            logger.exception("the annotations of the Lease %s are not up to date", self.name)
            return {}


def _log_failure(work: asyncio.Future[None]) -> None:
    """Say how the work ended where something graver is raised instead."""
    if not work.done():
        logger.error("the work did not end in time after it was cancelled, and is left behind")
    elif not work.cancelled() and (error := work.exception()) is not None:
        logger.error("the work failed while it ended", exc_info=error)


def free(record: LeaseSpec, identity: str, unchanged: float, default_duration: float) -> bool:
    """Whether a Lease with this record, unchanged for so many seconds, may be taken by `identity`. Pure."""
    if not record.holder_identity or record.holder_identity == identity:
        return True
    duration = record.lease_duration_seconds
    return unchanged > (default_duration if duration is None else float(duration))


def taken(record: LeaseSpec, identity: str, seconds: int, now: str) -> LeaseSpec:
    """The record after `identity` took the Lease. A first record counts no transition (client-go)."""
    if record.holder_identity == identity:
        return renewed(record, identity, seconds, now)
    fresh = record.acquire_time is None and record.renew_time is None
    transitions = 0 if fresh else (record.lease_transitions or 0) + 1
    return LeaseSpec(identity, seconds, acquire_time=now, renew_time=now, lease_transitions=transitions)


def renewed(record: LeaseSpec, identity: str, seconds: int, now: str) -> LeaseSpec:
    return LeaseSpec(identity, seconds, record.acquire_time or now, now, record.lease_transitions or 0)


def released(record: LeaseSpec, now: str) -> LeaseSpec:
    """No holder, and a duration so short that no clock can matter (client-go: 1 s)."""
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
    """metav1.MicroTime: UTC with six digits, whatever zone `when` is in."""
    return when.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
