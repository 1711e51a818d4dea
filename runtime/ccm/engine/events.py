# SPDX-License-Identifier: Apache-2.0
"""Kubernetes Events, which `kubectl describe` shows below an object.

Events are best effort: recording one never blocks and never fails, and under load they are dropped and counted. A
repeated event increases the count of the first one instead of creating another. Many events that differ only in their
message are combined into one (client-go: EventCorrelator).
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import logging
import os
import random
import secrets
from collections import OrderedDict
from typing import Any

import msgspec

from ccm.base.clock import SYSTEM_CLOCK, Clock
from ccm.base.text import printable, shorten
from ccm.base.token_bucket import TokenBucket

from . import metrics
from .api_errors import ApiError, ConflictError, ForbiddenError, NotFoundError, TooManyRequestsError, UnavailableError
from .client import KubeClient
from .objects import Node, ObjectRef, Service

logger = logging.getLogger(__name__)

#: A repetition within this time of the last event only increases its count, in seconds (client-go: 10 min).
SAME_WITHIN = 600.0
#: From this number on, the different messages about one object, with one type and reason, each within `SAME_WITHIN` of
#: the one before, are combined into one Event (client-go: 10).
SIMILAR = 10
COMBINED = "(combined from similar events): "
#: Rate limit of Events about one object: `BURST` at once, then one every `REFILL` seconds (as in client-go).
BURST, REFILL = 25, 300.0
#: `QUEUE`: how many different events may wait. `REMEMBERED`: how many sent events are remembered.
QUEUE, REMEMBERED = 1000, 4096
#: How many attempts to send an event while the API server does not answer.
ATTEMPTS = 5
MESSAGE_LIMIT = 1024

#: The object of the Event, type and reason.
_Kind = tuple[ObjectRef, str, str]
#: The object of the Event, type, reason and message; the message is "" for combined events.
_Key = tuple[ObjectRef, str, str, str]


class _Series(msgspec.Struct):
    """One Event object. `name`: its name in the API server, also before it is created there. `created`: whether it
    was."""

    ref: ObjectRef
    type: str
    reason: str
    message: str
    first: datetime.datetime
    last: datetime.datetime
    seen_at: float
    name: str
    count: int = 0
    created: bool = False


class _Similar(msgspec.Struct):
    """The different messages of one kind so far, at most SIMILAR."""

    messages: set[str]
    seen_at: float


class EventRecorder:
    """Events of one source: `component`, e.g. "service-controller", on `host`."""

    def __init__(self, client: KubeClient, component: str, *, host: str = "", clock: Clock = SYSTEM_CLOCK) -> None:
        self._client, self._component, self._host, self._clock = client, component, host or os.uname().nodename, clock
        self._series: OrderedDict[_Key, _Series] = OrderedDict()
        self._similar: OrderedDict[_Kind, _Similar] = OrderedDict()
        self._buckets: OrderedDict[ObjectRef, TokenBucket] = OrderedDict()
        self._pending: OrderedDict[_Key, _Series] = OrderedDict()
        self._wake = asyncio.Event()
        self._sending = asyncio.Lock()

    def event(self, obj: Node | Service | ObjectRef, type: str, reason: str, message: str) -> None:
        """Record an Event about `obj`. `type` is "Normal" or "Warning", `reason` one CamelCase word.

        Never blocks, never raises. The message becomes one printable line (`ccm.base.text`) of at most 1,024 bytes,
        as the API server requires.
        """
        try:
            self._record(reference(obj), type, reason, _cut(message))
        except Exception:
            logger.exception("cannot record event %s", reason)

    def _record(self, ref: ObjectRef, type_: str, reason: str, message: str) -> None:
        if not self._allowed(ref):
            metrics.EVENTS_DROPPED.labels("spam").inc()
            return
        now, monotonic = self._clock.now(), self._clock.monotonic()
        key = (ref, type_, reason, message)
        if self._are_many((ref, type_, reason), message, monotonic):
            key, message = (ref, type_, reason, ""), _cut(COMBINED + message)
        if key not in self._pending and len(self._pending) >= QUEUE:
            metrics.EVENTS_DROPPED.labels("queue-full").inc()
            return
        series = self._series.get(key)
        if series is None or monotonic - series.seen_at > SAME_WITHIN:
            series = _Series(ref, type_, reason, message, now, now, monotonic, _event_name(ref))
        self._series[key] = series
        self._series.move_to_end(key)
        _trim(self._series, REMEMBERED)
        _forget(self._series, monotonic)
        series.count, series.last, series.seen_at, series.message = series.count + 1, now, monotonic, message
        self._pending[key] = series
        self._wake.set()

    def _are_many(self, kind: _Kind, message: str, now: float) -> bool:
        """Remember the message. Return whether it belongs in a combined Event, because this kind has had `SIMILAR`
        different messages.
        """
        similar = self._similar.get(kind)
        if similar is None or now - similar.seen_at > SAME_WITHIN:
            similar = self._similar[kind] = _Similar(set(), now)
        self._similar.move_to_end(kind)
        _trim(self._similar, REMEMBERED)
        similar.seen_at = now
        _forget(self._similar, now)
        if len(similar.messages) < SIMILAR:
            similar.messages.add(message)
        return len(similar.messages) >= SIMILAR

    def _allowed(self, ref: ObjectRef) -> bool:
        """Take a token of the object, and return whether it had one, because a controller that fails in a loop must not
        fill etcd."""
        bucket = self._buckets.get(ref)
        if bucket is None:
            bucket = self._buckets[ref] = TokenBucket(1 / REFILL, BURST, self._clock.monotonic)
        self._buckets.move_to_end(ref)
        _trim(self._buckets, REMEMBERED)
        while (oldest := next(iter(self._buckets.values()))).full and oldest is not bucket:
            self._buckets.popitem(last=False)  # a full bucket is equivalent to none
        return bucket.take()

    async def run(self) -> None:
        """Send recorded events, in order, until cancelled. API errors and bugs do not stop it."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self._drain()

    async def flush(self, timeout: float) -> None:  # noqa: ASYNC109 -- best effort: a timeout is not an error
        """Send the events in the queue, for at most `timeout` seconds; whether or not `run` is running."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._drain()

    async def _drain(self) -> None:
        async with self._sending:
            while self._pending:
                _, series = self._pending.popitem(last=False)
                try:
                    await self._send(series)
                except Exception:  # a bug; it costs only this Event
                    logger.exception("dropped event %s about %s", series.reason, series.ref.name)
                    metrics.EVENTS_DROPPED.labels("bug").inc()

    async def _send(self, series: _Series) -> None:
        pause = 0.25
        for attempt in range(ATTEMPTS):
            try:
                await self._write(series)
                return
            except (UnavailableError, TooManyRequestsError, ConflictError) as error:
                last: ApiError = error
            except ApiError as error:
                # Forbidden, invalid, a namespace in deletion: it would always fail.
                level = logging.DEBUG if _is_namespace_going(error) else logging.INFO
                ref = series.ref
                logger.log(level, "dropped event %s about %s %s: %s", series.reason, ref.kind, ref.name, error)
                metrics.EVENTS_DROPPED.labels("refused").inc()
                return
            if attempt < ATTEMPTS - 1:
                await self._clock.sleep(max(last.retry_after or 0.0, pause) * random.uniform(1.0, 1.25))
                pause *= 4
        logger.warning("dropped event %s about %s: %s", series.reason, series.ref.name, last)
        metrics.EVENTS_DROPPED.labels("unavailable").inc()

    async def _write(self, series: _Series) -> None:
        collection = f"/api/v1/namespaces/{series.ref.namespace or 'default'}/events"
        if series.created:
            try:
                patch = {"count": series.count, "lastTimestamp": _time(series.last), "message": series.message}
                await self._client.patch(f"{collection}/{series.name}", patch)
                return
            except NotFoundError:  # the API server deletes Events after an hour
                series.name, series.first, series.count = _event_name(series.ref), series.last, 1
                series.created = False
        # ConflictError: it exists, because an earlier request succeeded although its answer was lost.
        with contextlib.suppress(ConflictError):
            await self._client.create(collection, self._body(series))
        series.created = True

    def _body(self, series: _Series) -> dict[str, Any]:
        ref = series.ref
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": series.name, "namespace": ref.namespace or "default"},
            "involvedObject": {
                "apiVersion": ref.api_version,
                "kind": ref.kind,
                "name": ref.name,
                **({"namespace": ref.namespace} if ref.namespace else {}),
                **({"uid": ref.uid} if ref.uid else {}),
            },
            "type": series.type,
            "reason": series.reason,
            "message": series.message,
            "count": series.count,
            "firstTimestamp": _time(series.first),
            "lastTimestamp": _time(series.last),
            "source": {"component": self._component, "host": self._host},
            "reportingComponent": self._component,
            "reportingInstance": self._host,
        }


def _is_namespace_going(error: ApiError) -> bool:
    """Return whether the namespace of an Event is being deleted, or gone. Everybody expects Events to be lost then.

    The API server's words are those of its admission plugin NamespaceLifecycle.
    """
    return isinstance(error, NotFoundError) or (
        isinstance(error, ForbiddenError) and "because it is being terminated" in error.message
    )


def reference(obj: Node | Service | ObjectRef) -> ObjectRef:
    """Return `involvedObject` of an Event about `obj`."""
    if isinstance(obj, ObjectRef):
        return obj
    meta = obj.metadata
    return ObjectRef("v1", "Node" if isinstance(obj, Node) else "Service", meta.name, meta.namespace, meta.uid)


def _event_name(ref: ObjectRef) -> str:
    return f"{ref.name[:200]}.{secrets.token_hex(8)}"


def _cut(message: str) -> str:
    """Return the message as one printable line within the limit. The message is shortened before it is escaped, too,
    because escaping a mebibyte takes time."""
    message = printable(shorten(message, MESSAGE_LIMIT))
    data = message.encode()
    return message if len(data) <= MESSAGE_LIMIT else data[: MESSAGE_LIMIT - 3].decode(errors="ignore") + "..."


def _trim(cache: OrderedDict[Any, Any], size: int) -> None:
    while len(cache) > size:
        cache.popitem(last=False)


def _forget(cache: OrderedDict[Any, Any], now: float) -> None:
    """Drop entries that are too old for counting; the oldest come first."""
    while cache and now - next(iter(cache.values())).seen_at > SAME_WITHIN:
        cache.popitem(last=False)


def _time(when: datetime.datetime) -> str:
    return when.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
