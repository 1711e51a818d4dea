# SPDX-License-Identifier: Apache-2.0
"""HTTPS on the secure port: health for everybody, the rest for those whom the API server lets read it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from aiohttp import web
from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.exposition import choose_encoder

from .configuration import CONFIGZ_KEY
from .health import SLIS, Health
from .tls import ServingTls

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Access(Protocol):
    """`auth.Authorizer`."""

    async def check(self, path: str, authorization: str, certificate: Any, *, verb: str) -> tuple[int, str]: ...


def application(
    health: Health, access: Access, always_allow: tuple[str, ...], configz: Callable[[], dict[str, Any]]
) -> web.Application:
    """`/healthz` `/livez` `/readyz`, each with `?verbose`, `?exclude=` and `/<check>`; `/metrics` `/metrics/slis`
    `/configz`."""

    async def ask(request: web.Request) -> tuple[int, str]:
        certificate = request.transport.get_extra_info("peercert") if request.transport else None
        header = request.headers.get("Authorization", "")
        return await access.check(request.path, header, certificate, verb=request.method.lower())

    @web.middleware
    async def authorize(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path not in always_allow:
            status, reason = await ask(request)
            if status != 200:
                return web.Response(status=status, text=reason + "\n")
        return await handler(request)

    async def known(request: web.Request) -> bool:
        """Whether somebody asks who says who they are, and may read this."""
        peer = request.transport and request.transport.get_extra_info("peercert")
        return bool(peer or request.headers.get("Authorization")) and (await ask(request))[0] == 200

    def whole(path: str) -> Handler:
        async def handle(request: web.Request) -> web.Response:
            query = request.query
            status, text = health.all(
                path,
                verbose="verbose" in query,
                exclude=query.getall("exclude", []),
                reasons=await known(request),
            )
            return _plain(status, text)

        return handle

    def single(path: str) -> Handler:
        async def handle(request: web.Request) -> web.Response:
            found = health.one(path, request.match_info["check"])
            return _plain(*found) if found else _plain(404, f"there is no such check of {path}\n")

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
    return app


def _plain(status: int, text: str) -> web.Response:
    return web.Response(status=status, text=text, headers={"X-Content-Type-Options": "nosniff"})


async def serve(
    app: web.Application, address: str, port: int, tls: ServingTls, *, share_port: bool = False
) -> web.AppRunner:
    """Start serving; the caller cleans the runner up. Raises OSError when the port is taken."""
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, address, port, ssl_context=tls.context, reuse_port=share_port or None)
    try:
        await site.start()
    except OSError:
        await runner.cleanup()
        raise
    return runner
