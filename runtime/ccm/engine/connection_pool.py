# SPDX-License-Identifier: Apache-2.0
"""Kept-alive connections to the API server, and how to drop those that died silently.

A load balancer in front of the API servers may drop its flows silently when it fails over. Each request then hangs on
the next idle connection, until it gives up. So after a request without an answer, no further request uses the present
connections; requests and watches in progress keep theirs.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import aiohttp
import msgspec

#: Seconds for which an unused connection is kept. Less than client-go's 90 s and than the API server's idle limit, so
#: that we rarely write to a connection that was just closed.
KEEP_ALIVE = 60.0


class _Generation(msgspec.Struct, eq=False):
    session: aiohttp.ClientSession
    users: int = 0


class ConnectionPool:
    """Shared connections, for one event loop. `close` it at the end; if it is used again, it opens new ones."""

    def __init__(self, user_agent: str) -> None:
        self._user_agent = user_agent
        self._present: _Generation | None = None
        self._former: set[_Generation] = set()

    @contextlib.asynccontextmanager
    async def session(self) -> AsyncIterator[aiohttp.ClientSession]:
        """Yield the session for one request, until its answer is read."""
        mine = self._present = self._present or self._open()
        mine.users += 1
        try:
            yield mine.session
        finally:
            mine.users -= 1
            if mine in self._former and not mine.users:
                self._former.discard(mine)
                await mine.session.close()

    async def renew(self) -> None:
        """Start no further request on the present connections, and close them when no request uses any of them."""
        former, self._present = self._present, None
        if former is not None and former.users:
            self._former.add(former)
        elif former is not None:
            await former.session.close()

    async def close(self) -> None:
        generations = {*self._former, self._present}
        self._former, self._present = set(), None
        for generation in generations - {None}:
            await generation.session.close()  # type: ignore[union-attr]

    def _open(self) -> _Generation:
        # No limit of connections, because each watch occupies one permanently, and the number of workers bounds the
        # rest.
        session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE),
            headers={"User-Agent": self._user_agent, "Accept-Encoding": "gzip"},
            cookie_jar=aiohttp.DummyCookieJar(),
            read_bufsize=256 * 1024,
        )
        return _Generation(session)
