# SPDX-License-Identifier: Apache-2.0
"""Admission webhooks of the framework and the provider, on a separate port.

A request that is not a POST of an AdmissionReview in JSON gets 400, and one without a length 411. A handler that fails
or returns nothing causes 500, and one that takes too long 504. All requests are counted; upstream counts only failures.

By default the API server presents no client certificate, so anyone who reaches the port can send requests. Therefore
the cost of one request and of all together is limited, and a handler must not disclose secrets.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec
from aiohttp import web
from prometheus_client import Counter, Histogram

from ccm.cloud import Webhook
from ccm.options.controller_names import select

log = logging.getLogger(__name__)

REQUESTS = Counter("cloud_provider_webhook_request", "Requests to webhooks, by status code.", ["code", "webhook"])
DURATION = Histogram(
    "cloud_provider_webhook_request_duration_seconds",
    "How long webhooks took to answer.",
    ["code", "webhook"],
    buckets=(0.25, 0.5, 0.7, 1, 1.5, 3, 5, 10),
)
#: The maximum size of a review, in bytes. The API server accepts objects of 3 MiB, and a review may contain two.
MAX_SIZE = 8 * 1024 * 1024
#: The maximum total size of the reviews in progress, in bytes. Decoded, they may be 40 times as large.
MAX_TOGETHER = 2 * MAX_SIZE
#: Seconds for the body of a request; the API server sends it at once.
BODY_DEADLINE = 5.0
#: Seconds for one review with its handler. The API server waits no longer (`timeoutSeconds`).
DEADLINE = 30.0
#: Seconds after which a client may retry a review for which there was no memory.
RETRY_AFTER = 1
_VERSION, _KIND = "admission.k8s.io/v1", "AdmissionReview"


class _Request(msgspec.Struct):
    uid: str


class _Review(msgspec.Struct, rename="camel"):
    api_version: str
    kind: str
    request: msgspec.Raw


class _Refused(Exception):
    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


def choose(names: tuple[str, ...], offered: Mapping[str, Webhook]) -> list[str]:
    """Return the names of the webhooks that `--webhooks` selects. Raises ValueError that names every unknown one."""
    chosen, unknown = select(names, {name: name for name in offered})
    if unknown:
        known = ", ".join(offered) or "none"
        raise ValueError(f"--webhooks: unknown {', '.join(unknown)}: with this provider, there are {known}")
    return [name for name in offered if name in chosen]


def application(names: list[str], current: Callable[[], Mapping[str, Webhook]]) -> web.Application:
    """Return the application that serves the webhooks in `names` at their paths. `current` returns the present webhooks
    by name, because the provider may be reloaded."""
    app, room = web.Application(client_max_size=MAX_SIZE), _Room(MAX_TOGETHER)
    for name, webhook in current().items():
        if name in names:
            app.router.add_route("*", webhook.path, _handler(name, current, room))
    return app


class _Room:
    """The bytes that all reviews in progress share. `free`: how many of them no review has taken."""

    def __init__(self, size: int) -> None:
        self.free = size

    @contextlib.contextmanager
    def hold(self) -> Iterator[_Held]:
        """Yield what one review takes of the shared bytes; they are free again when the context ends. Only bytes that
        have arrived count. An announced length does not, because a client could announce one and send nothing, which
        would keep others out."""
        held = _Held(self)
        try:
            yield held
        finally:
            self.free += held.size


class _Held(msgspec.Struct):
    """What one review takes of the bytes that all reviews share. `size`: bytes so far."""

    room: _Room
    size: int = 0

    def grow(self, size: int) -> None:
        """Take `size` more of the shared bytes. Raises _Refused if fewer are free."""
        if size > self.room.free:
            raise _Refused(429, f"too many reviews in progress: try again in {RETRY_AFTER} s")
        self.room.free -= size
        self.size += size


def _handler(name: str, current: Callable[[], Mapping[str, Webhook]], room: _Room) -> Callable[[web.Request], Any]:
    async def handle(request: web.Request) -> web.Response:
        started, status = time.monotonic(), 500
        try:
            async with asyncio.timeout(DEADLINE) as limit:
                _check_length(request)
                with room.hold() as held:
                    body = await _answer(request, current()[name], held)
            status = 200
            return web.Response(body=body, content_type="application/json")
        except _Refused as refusal:
            status = refusal.status
            later = {"Retry-After": str(RETRY_AFTER)} if status == 429 else {}
            return web.Response(status=status, text=f"{refusal}\n", headers=later)
        except Exception as error:  # a provider may raise anything
            if isinstance(error, TimeoutError) and limit.expired():
                status = 504
                log.error("webhook %s did not answer within %g s", name, DEADLINE)
                return web.Response(status=status, text=f"webhook {name} did not answer within {DEADLINE:g} s\n")
            log.error("webhook %s failed: %s: %s", name, type(error).__name__, str(error)[:_SHOWN])
            return web.Response(status=status, text=f"webhook {name} failed\n")
        finally:
            REQUESTS.labels(str(status), name).inc()
            DURATION.labels(str(status), name).observe(time.monotonic() - started)

    return handle


#: Maximum characters of an error to log, because the error may quote the request.
_SHOWN = 300


def _check_length(request: web.Request) -> None:
    """Check the method and the announced length, which the API server always sends. Raises _Refused for another method,
    a missing length, or a length above MAX_SIZE."""
    if request.method != "POST":
        raise _Refused(400, f"expected a POST, not a {request.method}")
    if request.content_length is None:
        raise _Refused(411, "expected a Content-Length")
    if request.content_length > MAX_SIZE:
        raise _Refused(400, f"invalid AdmissionReview: it is larger than {MAX_SIZE} bytes")


async def _answer(request: web.Request, webhook: Webhook, held: _Held) -> bytes:
    if request.headers.get("Content-Type") != "application/json":
        raise _Refused(400, f"expected Content-Type application/json, not {request.headers.get('Content-Type')!r}")
    try:
        async with asyncio.timeout(BODY_DEADLINE):
            text = bytearray()
            async for piece in request.content.iter_any():
                held.grow(len(piece))
                text += piece
    except TimeoutError:
        raise _Refused(408, f"the body did not arrive within {BODY_DEADLINE:g} s") from None
    try:
        review = msgspec.json.decode(text, type=_Review)
        if (review.api_version, review.kind) != (_VERSION, _KIND):
            raise ValueError(f"expected an {_KIND} of {_VERSION}, not {review.kind} of {review.api_version}")
        uid = msgspec.json.decode(review.request, type=_Request).uid
        admission_request: dict[str, Any] = msgspec.json.decode(review.request)
    except RecursionError:
        raise _Refused(400, "invalid AdmissionReview: it is nested too deeply") from None
    except ValueError as error:  # msgspec's errors are ValueErrors
        raise _Refused(400, f"invalid AdmissionReview: {error}") from None
    answer = await webhook.handle(admission_request)
    if not isinstance(answer, Mapping):
        raise TypeError(f"expected an AdmissionResponse as a mapping, got {type(answer).__name__}")
    return msgspec.json.encode({"apiVersion": _VERSION, "kind": _KIND, "response": {**answer, "uid": uid}})
