# SPDX-License-Identifier: Apache-2.0
"""Admission webhooks of a provider, on a port of their own (reference 7.8).

What is not a POST of an AdmissionReview in JSON is a 400, a handler that fails or answers nothing a 500. Every request
is counted; upstream counts failures only (W32).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from aiohttp import web
from prometheus_client import Counter, Histogram

from ccm.cloud import Webhook

from .names import select

log = logging.getLogger(__name__)

REQUESTS = Counter("cloud_provider_webhook_request", "Requests to webhooks, by status code.", ["code", "webhook"])
DURATION = Histogram(
    "cloud_provider_webhook_request_duration_seconds",
    "How long webhooks took to answer.",
    ["code", "webhook"],
    buckets=(0.25, 0.5, 0.7, 1, 1.5, 3, 5, 10),
)
#: Larger reviews are refused, in bytes; the API server takes objects of 3 MiB, and a review may hold two.
MAX_SIZE = 8 * 1024 * 1024
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
    """`--webhooks`. Raises ValueError naming every unknown one."""
    chosen, unknown = select(names, {name: name for name in offered})
    if unknown:
        known = ", ".join(offered) or "none"
        raise ValueError(f"--webhooks: unknown {', '.join(unknown)}: the provider offers {known}")
    return [name for name in offered if name in chosen]


def application(names: list[str], current: Callable[[], Mapping[str, Webhook]]) -> web.Application:
    """Serve these webhooks at their paths. `current`: what the provider offers now; it may have been reloaded."""
    app = web.Application(client_max_size=MAX_SIZE)
    for name, webhook in current().items():
        if name in names:
            app.router.add_route("*", webhook.path, _handler(name, current))
    return app


def _handler(name: str, current: Callable[[], Mapping[str, Webhook]]) -> Callable[[web.Request], Any]:
    async def handle(request: web.Request) -> web.Response:
        started, status = time.monotonic(), 500
        try:
            body = await _answer(request, current()[name])
            status = 200
            return web.Response(body=body, content_type="application/json")
        except _Refused as refusal:
            status = refusal.status
            return web.Response(status=status, text=f"{refusal}\n")
        except Exception as error:  # a provider may raise anything
            log.error("webhook %s failed: %s: %s", name, type(error).__name__, error)
            return web.Response(status=status, text=f"webhook {name} failed\n")
        finally:
            REQUESTS.labels(str(status), name).inc()
            DURATION.labels(str(status), name).observe(time.monotonic() - started)

    return handle


async def _answer(request: web.Request, webhook: Webhook) -> bytes:
    if request.method != "POST":
        raise _Refused(400, f"expected a POST, not a {request.method}")
    if request.headers.get("Content-Type") != "application/json":
        raise _Refused(400, f"expected Content-Type application/json, not {request.headers.get('Content-Type')!r}")
    try:
        text = await request.read()
        review = msgspec.json.decode(text, type=_Review)
        if (review.api_version, review.kind) != (_VERSION, _KIND):
            raise ValueError(f"expected an {_KIND} of {_VERSION}, not {review.kind} of {review.api_version}")
        uid = msgspec.json.decode(review.request, type=_Request).uid
        asked: dict[str, Any] = msgspec.json.decode(review.request)
    except (ValueError, web.HTTPRequestEntityTooLarge) as error:  # msgspec's errors are ValueErrors
        raise _Refused(400, f"this is no usable AdmissionReview: {error}") from None
    answer = await webhook.handle(asked)
    if not isinstance(answer, Mapping):
        raise TypeError(f"expected an AdmissionResponse as a mapping, got {type(answer).__name__}")
    return msgspec.json.encode({"apiVersion": _VERSION, "kind": _KIND, "response": {**answer, "uid": uid}})
