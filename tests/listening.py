# SPDX-License-Identifier: Apache-2.0
"""The server over HTTP that stand-ins and proxies of tests run on this machine."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import AsyncIterator, Sequence

from aiohttp import web


@contextlib.asynccontextmanager
async def listening(
    *routes: web.RouteDef,
    tls: ssl.SSLContext | None = None,
    cancels: bool = False,
    port: int = 0,
    hosts: Sequence[str] = ("127.0.0.1",),
) -> AsyncIterator[str]:
    """Run a server with these routes; yield its URL, that of the first host. `cancels`: handlers end when the client
    goes. `port`: 0 takes a free one."""
    application = web.Application(client_max_size=64 * 2**20)
    application.add_routes(routes)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.01, handler_cancellation=cancels)
    await runner.setup()
    try:
        for host in hosts:
            await web.TCPSite(runner, host, port, ssl_context=tls).start()
        yield f"{'https' if tls else 'http'}://{hosts[0]}:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
