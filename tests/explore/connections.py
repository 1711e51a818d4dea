# SPDX-License-Identifier: Apache-2.0
"""The connections that a process keeps to the API server, and what happens to requests when connections die silently.

A load balancer before the API servers forgets its flows when it fails over, and reports that to nobody. Requests on
older connections are never answered, and new connections work.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from yarl import URL

from ccm.engine.connection_pool import KEEP_ALIVE

from .api_server import ApiServer, Request

if TYPE_CHECKING:
    from .process import Process


class Session:
    """Replaces one `aiohttp.ClientSession` with its pool of connections."""

    def __init__(self, server: ApiServer, process: Process) -> None:
        self._server, self._process = server, process
        self._dead, self._dead_until = 0, 0.0
        process.sessions.append(self)

    def lose(self, idle: int) -> None:
        self._dead, self._dead_until = idle, self._server.simulation.loop.now + KEEP_ALIVE

    def request(self, method: str, url: URL, *, data: bytes | None, headers: Any, **options: Any) -> Any:
        if self._dead and self._server.simulation.loop.now < self._dead_until:
            self._dead -= 1
            return _never()
        return self._server.serve(self._process, Request(method, url, data, headers), options["timeout"].sock_read)

    async def close(self) -> None:
        self._process.sessions.remove(self)


async def _never() -> Any:
    await asyncio.get_running_loop().create_future()


def lose_all(server: ApiServer, idle: int) -> None:
    """Let all watches die, and `idle` of the idle connections of each process's session."""
    for process in server.simulation.processes:
        for session in process.sessions:
            session.lose(idle)
    for stream in list(server.streams):
        stream.fall_silent()
