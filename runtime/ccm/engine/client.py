# SPDX-License-Identifier: Apache-2.0
"""Requests to the API server: one class, typed answers, typed errors.

It knows HTTP and Status objects, but not the meaning of other objects. Measurements led to aiohttp and msgspec without
model classes: a patch costs about 0.5 ms of CPU.
"""

# ruff: noqa: ASYNC109 -- each request has its own timeout: it covers retries, but not our own rate limit
from __future__ import annotations

import asyncio
import builtins
import contextlib
import logging
import platform
import random
import re
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, TypeVar
from urllib.parse import urlsplit

import aiohttp
import msgspec
from yarl import URL

from ccm import __version__
from ccm.base import tracing
from ccm.base.cancellation import is_requested
from ccm.base.clock import SYSTEM_CLOCK, Clock
from ccm.base.token_bucket import TokenBucket

from . import encodings, metrics
from .api_credentials import Access
from .api_errors import (
    ApiError,
    ConflictError,
    ForbiddenError,
    GoneError,
    InvalidError,
    KubeConfigError,
    NotFoundError,
    TooManyRequestsError,
    UnauthorizedError,
    UnavailableError,
    from_response,
    not_understood,
)
from .connection_pool import ConnectionPool
from .encodings import JSON, MEDIA_TYPES, PROTOBUF
from .kubeconfig import load as load_access
from .list_pages import read_page
from .metrics import labelled
from .objects import UNREADABLE, ObjectMeta, PartialObject, object_path
from .request_failures import pause_before_retry, unavailable, was_closed

logger = logging.getLogger(__name__)

T = TypeVar("T")

MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"

#: Seconds for a whole request with its retries, without the wait for our own rate limit.
DEFAULT_TIMEOUT = 30.0
CONNECT_TIMEOUT = 5.0
#: First pause before a retry if the server requests none, in seconds; doubled each time.
RETRY_PAUSE = 0.25
#: How many times a patch without a resourceVersion is sent if other writers change the object meanwhile.
RACES = 4
#: No list has more pages than this. A server that sends more repeats itself.
MOST_PAGES = 100_000

#: Writes that traces do not show, because there are many of them, and they do not belong to the work on a Node or a
#: Service.
_UNTRACED = re.compile(r"/apis/coordination\.k8s\.io/|/api/v1/namespaces/[^/]+/events(/|$)")

#: The limits of one attempt; the timeout of the request applies as well.
_LIMITS = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT)
_encode = msgspec.json.Encoder().encode


class KubeClient:
    """All requests to one API server. Safe to share between tasks of one event loop; close it at the end.

    Paths are absolute API paths, e.g. `/api/v1/nodes/n1`. Requests raise ApiError only, and CancelledError if the task
    is cancelled; see also `watch`.
    `timeout` is in seconds for one request and its repetitions, without the wait for our own rate limit. `list` and
    `patch` may make several such requests.

    The client repeats a request in three cases: after a 429 or, except for a POST, a 503 with Retry-After, while the
    pause fits into the timeout; once after a 401 if the credential can be read again; and, except for a POST, once if a
    kept-alive connection was already closed. `list` and `patch` add one case each. The caller retries everything else.
    """

    def __init__(self, access: Access, *, user_agent: str = "", clock: Clock = SYSTEM_CLOCK) -> None:
        self.access = access
        self.server = access.server
        #: `--kube-api-content-type`: whether to ask for protobuf where a type has it.
        self.protobuf = True
        self._clock = clock
        self._host = urlsplit(access.server).netloc
        self._limit = TokenBucket()
        self._pool = ConnectionPool(user_agent or f"outoftree-ccm/{__version__} ({platform.system().lower()})")

    @classmethod
    def from_config(cls, *, kubeconfig: str = "", master: str = "", user_agent: str = "") -> KubeClient:
        """Return a client for upstream's flags `--kubeconfig` and `--master`; without both, for the Pod's
        ServiceAccount.

        Does no network I/O. Raises KubeConfigError, whose message names file, field and remedy.
        """
        return cls(load_access(kubeconfig, master), user_agent=user_agent)

    def set_rate_limit(self, qps: float, burst: int) -> None:
        """Apply `--kube-api-qps` and `--kube-api-burst`. A rate of 0 or less removes the limit. Leases are never
        delayed, because a queue of patches must not cost the leadership."""
        self._limit = TokenBucket(qps, burst, self._clock.monotonic)

    async def get(
        self,
        path: str,
        type: type[T],
        *,
        params: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> T:
        accept = encodings.accepted(type, self.protobuf)
        return await self._read(
            type, await self._request("GET", path, params=params, accept=accept, timeout=timeout), path
        )

    async def exists(self, collection: str, meta: ObjectMeta) -> bool:
        """Return whether the object with this UID exists now, without caches. `collection`: the path of its list."""
        try:
            present = await self.get(object_path(collection, meta), PartialObject)
        except NotFoundError:
            return False
        return present.metadata.uid == meta.uid

    async def list(
        self,
        path: str,
        type: type[T],
        *,
        page: int = 500,
        params: Mapping[str, str] | None = None,
        timeout: float | None = None,
        unreadable: Callable[[bytes], None] | None = None,
        keep: Callable[[T], T] = lambda item: item,
    ) -> tuple[builtins.list[T], str]:
        """Return all items, and the resourceVersion of this consistent state, from which a watch can start.

        The list is read in pages. If the continue token expires meanwhile, everything is read once more without pages,
        as in client-go, because such a list cannot expire. `timeout` is for each page. An item that cannot be decoded
        as `type` fails the list, unless there is `unreadable`, which then receives the item. `keep` is called for each
        item before the next page is read, and returns the object to keep: a caller that already has an equal object
        returns that one, so the list needs no second copy.
        """
        try:
            return await self._list_pages(path, type, page, dict(params or {}), timeout, unreadable, keep)
        except GoneError:
            logger.info("listing %s outlasted the API server's continue token; reading it without pages", path)
            return await self._list_pages(path, type, 0, dict(params or {}), timeout, unreadable, keep)

    async def _list_pages(
        self,
        path: str,
        type_: type[T],
        page: int,
        params: dict[str, str],
        timeout: float | None,
        unreadable: Callable[[bytes], None] | None,
        keep: Callable[[T], T],
    ) -> tuple[builtins.list[T], str]:
        items: builtins.list[T] = []
        if page > 0:
            params["limit"] = str(page)
        for _ in range(MOST_PAGES):
            accept = encodings.accepted(type_, self.protobuf, verb="LIST")
            body = await self._request("GET", path, params=params, accept=accept, timeout=timeout, verb="LIST")
            objects, metadata = await read_page(body, type_, path, unreadable, keep)
            items += objects
            if not metadata.continue_:
                return items, metadata.resource_version
            if metadata.continue_ == params.get("continue"):
                break
            params["continue"] = metadata.continue_
        raise UnavailableError(200, "EndlessList", f"LIST {path}: its pages do not end: the server repeats them")

    async def patch(
        self, path: str, patch: Mapping[str, Any], *, strategic: bool = False, timeout: float | None = None
    ) -> ObjectMeta:
        """Send a merge patch, or a strategic merge patch. Return the new metadata.

        For a precondition, put `metadata.resourceVersion` into the patch. A precondition that fails raises
        ConflictError. A patch whose `metadata.uid` differs from the object's raises InvalidError. A patch without such
        a precondition may raise ConflictError, too, while others change the object all the time.
        """
        kind = STRATEGIC_PATCH if strategic else MERGE_PATCH
        for race in range(RACES):
            try:
                answer = await self._write("PATCH", path, body=patch, content_type=kind, timeout=timeout)
                break
            except ConflictError:
                if race == RACES - 1 or "resourceVersion" in patch.get("metadata", {}):
                    raise
            await self._clock.sleep(RETRY_PAUSE * random.uniform(0.5, 1.0))
        return await self._metadata(answer, path)

    async def replace(
        self,
        path: str,
        type: type[Any],
        data: bytes,
        change: Mapping[str, Any],
        *,
        last: bool = False,
        timeout: float | None = None,
    ) -> bytes:
        """PUT an object: its bytes as they were read (`AsRead`), with a change in the form of a merge patch. A PUT
        costs the API server less than a patch.

        Return the object's bytes after the write, for the next write; b"" if `last` says that none follows. Raises
        ConflictError if the object has changed since it was read.
        """
        from .protobuf import changes

        accept = encodings.accepted_metadata(True)
        try:
            body = changes.changed(type, data, change)
            answer = await self._write("PUT", path, body=body, content_type=PROTOBUF, accept=accept, timeout=timeout)
            return b"" if last else changes.with_metadata(type, data, answer)
        except UNREADABLE as error:
            raise not_understood(path, error) from None

    async def create(self, path: str, body: Mapping[str, Any], *, timeout: float | None = None) -> ObjectMeta:
        """POST to a collection. Return the new object's metadata. After UnavailableError the object may exist."""
        return await self._metadata(await self._write("POST", path, body=body, timeout=timeout), path)

    async def ask(self, path: str, body: Mapping[str, Any], type: type[T], *, timeout: float | None = None) -> T:
        """POST a review that is not stored (a TokenReview, an access review). Return the answer with its status."""
        return await self._read(type, await self._request("POST", path, body=body, accept=JSON, timeout=timeout), path)

    async def delete(
        self, path: str, *, uid: str | None = None, resource_version: str | None = None, timeout: float | None = None
    ) -> None:
        """Delete the object, if it still has this UID and resourceVersion, where they are given. Raises ConflictError
        if it has others, and NotFoundError if it is gone."""
        wanted = {"uid": uid, "resourceVersion": resource_version}
        body: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if any(wanted.values()):
            body["preconditions"] = {name: value for name, value in wanted.items() if value}
        await self._write("DELETE", path, body=body, timeout=timeout)

    @contextlib.asynccontextmanager
    async def watch(
        self, path: str, params: Mapping[str, str], *, read_timeout: float, type: type[Any] | None = None
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Yield the frames of a watch, each for `encodings.read_event`. `type`: what the caller reads the objects as;
        without it, the server sends JSON. The status is checked before the first frame.

        Silence for `read_timeout` seconds is UnavailableError, as is a broken connection; if the server closes the
        stream, the frames end without an error. A frame that claims to be too long raises msgspec.DecodeError.
        """
        limits = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT, sock_read=read_timeout)
        await self._wait_turn("WATCH", path)
        context = f"WATCH {path}"
        try:
            async with self._pool.session() as session, asyncio.timeout(DEFAULT_TIMEOUT) as until_headers:
                query = {**params, "watch": "true"}
                accept = encodings.accepted(type, self.protobuf, verb="WATCH")
                response = await self._send(session, "GET", path, query, None, accept, limits, verb="WATCH")
                async with response:
                    if response.status == 401:
                        self.access.invalidate()  # the informer watches again
                    if response.status != 200 or response.content_type not in MEDIA_TYPES:
                        raise await self._error(response, context)
                    until_headers.reschedule(None)
                    yield encodings.frames(response.content_type, response.content.iter_any())
        except (aiohttp.ClientError, OSError, asyncio.CancelledError) as error:  # TimeoutError is an OSError
            if isinstance(error, asyncio.CancelledError) and is_requested():
                raise
            await self._renew_after(error)
            raise unavailable(context, error) from error

    async def _renew_after(self, error: BaseException) -> None:
        """Replace all connections after a timeout, because what made one of them silent has probably cut the others,
        too."""
        if isinstance(error, TimeoutError):
            await self._pool.renew()

    async def close(self) -> None:
        """Close all connections. The client remains usable and then opens new ones."""
        await self._pool.close()

    async def _write(self, method: str, path: str, **how: Any) -> bytes:
        """Send a request that changes an object. Traces show the request without its body; they leave out requests for
        Leases and Events."""
        if _UNTRACED.match(path):
            return await self._request(method, path, **how)
        with tracing.span(method, {"http.request.method": method, "url.path": path}, outgoing=True) as span:
            return await self._request(method, path, **how, span=span)

    async def _request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | bytes | None = None,
        content_type: str = JSON,
        accept: str = "",
        timeout: float | None = None,
        verb: str = "",
        span: tracing.Span = tracing.NOTHING,
    ) -> bytes:
        """Send the request, with retries where that is safe. Return the body of a successful answer."""
        verb = verb or method
        context = f"{verb} {path}"
        await self._wait_turn(verb, path)
        data = body if body is None or isinstance(body, bytes) else _encode(body)
        if data is not None:
            labelled(metrics.REST_REQUEST_SIZE, verb, self._host).observe(len(data))
        accept = accept or encodings.accepted_metadata(self.protobuf)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + (DEFAULT_TIMEOUT if timeout is None else timeout)
        refreshed, reconnected, pause = False, False, RETRY_PAUSE
        while True:
            try:
                async with self._pool.session() as session, asyncio.timeout_at(deadline):
                    response = await self._send(
                        session, method, path, params, data, accept, _LIMITS, content_type=content_type, verb=verb
                    )
                    span.note({"http.response.status_code": response.status})
                    async with response:
                        if 200 <= response.status < 300 and response.content_type in MEDIA_TYPES:
                            answer = await response.read()
                            labelled(metrics.REST_RESPONSE_SIZE, verb, self._host).observe(len(answer))
                            return answer
                        error = await self._error(response, context)
            except (aiohttp.ClientError, OSError, asyncio.CancelledError) as failed:
                if isinstance(failed, asyncio.CancelledError) and is_requested():
                    raise
                if method != "POST" and not reconnected and was_closed(failed):
                    reconnected = True
                    continue
                await self._renew_after(failed)
                raise unavailable(context, failed) from failed
            if error.status == 401 and self.access.renewable and not refreshed:
                refreshed = True
                self.access.invalidate()
            else:
                wait = pause_before_retry(method, error, pause)
                if wait is None or loop.time() + wait >= deadline:
                    raise error
                pause *= 2
                await asyncio.sleep(wait)
            labelled(metrics.REST_RETRIES, str(error.status), verb, self._host).inc()

    async def _send(
        self,
        session: aiohttp.ClientSession,
        method: str,
        path: str,
        params: Mapping[str, str] | None,
        data: bytes | None,
        accept: str,
        limits: aiohttp.ClientTimeout,
        *,
        verb: str,
        content_type: str = JSON,
    ) -> aiohttp.ClientResponse:
        """Make one attempt. Return the response as soon as its headers have arrived."""
        headers = [("Accept", accept)]
        if data is not None:
            headers.append(("Content-Type", content_type))
        url = URL(self.server + path)
        how = await self.access.request_arguments(headers)
        started, code = self._clock.monotonic(), "<error>"
        try:
            response = await session.request(
                method,
                url.with_query(params) if params else url,
                data=data,
                timeout=limits,
                allow_redirects=False,
                **how,
            )
            code = str(response.status)
            return response
        finally:
            labelled(metrics.REST_REQUESTS, code, method, self._host).inc()
            labelled(metrics.REST_DURATION, verb, self._host).observe(self._clock.monotonic() - started)

    async def _wait_turn(self, verb: str, path: str) -> None:
        if path.startswith("/apis/coordination.k8s.io/"):
            return
        wait = self._limit.reserve()
        if wait > 0:
            labelled(metrics.REST_LIMITER, verb, self._host).observe(wait)
            await self._clock.sleep(wait)

    async def _error(self, response: aiohttp.ClientResponse, context: str) -> ApiError:
        return from_response(
            response.status,
            response.content_type if "Content-Type" in response.headers else "",
            await response.read(),
            response.headers.get("Retry-After"),
            context,
        )

    async def _read(self, type: type[T], body: bytes, path: str) -> T:
        try:
            return await encodings.read_deep(type, body)
        except UNREADABLE as error:
            raise not_understood(path, error) from None

    async def _metadata(self, body: bytes, path: str) -> ObjectMeta:
        return (await self._read(PartialObject, body, path)).metadata


__all__ = [
    "ApiError",
    "ConflictError",
    "ForbiddenError",
    "GoneError",
    "InvalidError",
    "KubeClient",
    "KubeConfigError",
    "NotFoundError",
    "TooManyRequestsError",
    "UnauthorizedError",
    "UnavailableError",
]
