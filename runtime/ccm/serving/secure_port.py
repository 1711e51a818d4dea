# SPDX-License-Identifier: Apache-2.0
"""HTTPS on the secure port. Everyone may read the paths that are always allowed, by default `/healthz`, `/livez` and
`/readyz`. Everything else is for clients that the API server authorizes."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.exposition import choose_encoder

from ccm.options.config_file import CONFIGZ_KEY

from .access_reviews import RETRY_AFTER
from .certificates import ServingTls
from .connection_rules import Limits, peer_of
from .connections import Port
from .health import SLIS, Health

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Access(Protocol):
    """What this module needs of `authorization.Authorizer`."""

    async def check(
        self, path: str, authorization: str, certificate: Any, *, verb: str, peer: str
    ) -> tuple[int, str]: ...


def application(
    health: Health,
    access: Access,
    always_allow: tuple[str, ...],
    configz: Callable[[], dict[str, Any]],
    status: Handler | None = None,
) -> web.Application:
    """Return the application with `/healthz` `/livez` `/readyz`, each with `?verbose`, `?exclude=` and `/<check>`;
    `/metrics` `/metrics/slis` `/configz`, which shows what `configz` returns; and `/statusz` if `status` handles it."""

    async def ask(request: web.Request) -> tuple[int, str]:
        header = request.headers.get("Authorization", "")
        peer = peer_of(request.remote or "")
        return await access.check(request.path, header, _certificate(request), verb=request.method.lower(), peer=peer)

    @web.middleware
    async def authorize(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path not in always_allow:
            status, reason = await ask(request)
            if status != 200:
                later = {"Retry-After": str(RETRY_AFTER)} if status == 429 else {}
                return web.Response(status=status, text=reason + "\n", headers=later)
        return await handler(request)

    async def is_authorized(request: web.Request) -> bool:
        """Return whether the caller is authenticated and may read this path."""
        credentials = _certificate(request) or request.headers.get("Authorization")
        return bool(credentials) and (await ask(request))[0] == 200

    def whole(path: str) -> Handler:
        async def handle(request: web.Request) -> web.Response:
            query = request.query
            answer = health.look(path, exclude=query.getall("exclude", []))
            # Query the API server only if there are reasons to show, because anyone may ask here with any token.
            reasons = bool(answer.failed) and await is_authorized(request)
            return _plain(*answer.response(verbose="verbose" in query, reasons=reasons))

        return handle

    def single(path: str) -> Handler:
        async def handle(request: web.Request) -> web.Response:
            answer = health.one(path, request.match_info["check"])
            return _plain(*answer) if answer else _plain(404, f"{path} has no such check\n")

        return handle

    def metrics(registry: CollectorRegistry) -> Handler:
        async def handle(request: web.Request) -> web.Response:
            encode, content_type = choose_encoder(request.headers.get("Accept", ""))
            return web.Response(body=encode(registry), headers={"Content-Type": content_type})

        return handle

    async def show_options(request: web.Request) -> web.Response:
        return web.json_response({CONFIGZ_KEY: configz()})

    app = web.Application(middlewares=[authorize])
    for path in health.paths:
        app.router.add_get(f"/{path}", whole(path))
        app.router.add_get(f"/{path}/{{check}}", single(path))
    app.router.add_get("/metrics", metrics(REGISTRY))
    app.router.add_get("/metrics/slis", metrics(SLIS))
    app.router.add_get("/configz", show_options)
    if status is not None:
        app.router.add_get("/statusz", status)
    return app


def _certificate(request: web.Request) -> Any:
    """Return the client's certificate, if it was verified in the handshake of this connection."""
    if request.transport is None:
        return None
    tls = request.transport.get_extra_info("ssl_object")
    # A resumed session presents the certificate of an earlier handshake, which was not verified again.
    if tls is not None and tls.session_reused:
        return None
    return request.transport.get_extra_info("peercert")


def _plain(status: int, text: str) -> web.Response:
    return web.Response(status=status, text=text, headers={"X-Content-Type-Options": "nosniff"})


class Server:
    """An application being served; `cleanup` stops it."""

    def __init__(self, port: Port, runner: web.AppRunner) -> None:
        self._port, self._runner = port, runner

    async def cleanup(self) -> None:
        await self._port.close()
        await self._runner.cleanup()


async def serve(
    app: web.Application,
    address: str,
    port: int,
    tls: ServingTls,
    *,
    share_port: bool = False,
    limits: Limits | None = None,
    name: str = "secure",
) -> Server:
    """Start serving; the caller must clean up. `name`: the port's name in metrics. Raises OSError if the address or
    port cannot be used."""
    limits = limits or Limits()
    guarded = Port(name, limits)
    await guarded.listen(address, port, share_port=share_port)
    app.middlewares.insert(0, guarded.guard)
    runner = web.AppRunner(
        app,
        access_log=None,
        logger=_http_log,
        keepalive_timeout=limits.idle,
        max_headers=MAX_HEADERS,
        # No client sends a compressed body; a small one could be huge after decompression.
        auto_decompress=False,
        # A body that no handler needs is not read.
        lingering_time=0.0,
        # Work for a disconnected client is cancelled.
        handler_cancellation=True,
        shutdown_timeout=SHUTDOWN,
    )
    await runner.setup()
    assert runner.server is not None
    guarded.accept(runner.server, tls.context)
    return Server(guarded, runner)


#: Limits for headers. Each may have 8 KiB (aiohttp), so an unauthenticated connection uses at most half a MiB.
MAX_HEADERS = 64
#: How long requests in progress may take at shutdown, in seconds.
SHUTDOWN = 2.0
_http_log = logging.getLogger(f"{__name__}.http")


def _of_ours(record: logging.LogRecord) -> bool:
    """Return whether to log a record. Invalid HTTP is reported only to its sender, because it could fill the log."""
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, HttpProcessingError)


_http_log.addFilter(_of_ours)
