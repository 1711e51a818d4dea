# SPDX-License-Identifier: Apache-2.0
"""A server over HTTP on this machine, for tests."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import AsyncIterator

from aiohttp import web


@contextlib.asynccontextmanager
async def listening(
    *routes: web.RouteDef, tls: ssl.SSLContext | None = None, cancels: bool = False
) -> AsyncIterator[str]:
    """Run a server with these routes on a free port; yield its URL. `cancels`: handlers end when the client goes."""
    application = web.Application(client_max_size=64 * 2**20)
    application.add_routes(routes)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.01, handler_cancellation=cancels)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
        yield f"{'https' if tls else 'http'}://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
