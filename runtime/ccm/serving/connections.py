# SPDX-License-Identifier: Apache-2.0
"""A port that cannot be flooded: accepts connections, limits them (`connection_rules`), and passes them to aiohttp.

aiohttp limits sizes and idle time. It does not see a connection before its TLS handshake ends, and has no limit for
connections. Therefore this module accepts them itself. The middleware `guard` tracks which of them are in use.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
import ssl
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, cast

from aiohttp import web
from prometheus_client import Counter

from .connection_rules import Limits, make_room, peer_of

log = logging.getLogger(__name__)

CLOSED = Counter(
    "ccm_serving_connections_closed_total",
    "Connections that were closed because the port or their peer had too many, or because their client was too slow.",
    ["port", "reason"],
)
#: How many connections the kernel queues until they are accepted.
BACKLOG = 128
#: The longest wait for a client that does not answer the end of TLS, in seconds.
TLS_SHUTDOWN = 2.0
#: The pause when the process has no file descriptor left, in seconds.
EXHAUSTED = 1.0
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Connection(asyncio.Protocol):
    """One accepted connection. Passes everything on to aiohttp's protocol `inner`."""

    def __init__(self, inner: web.RequestHandler, accepted: socket.socket, peer: str, port: Port) -> None:
        self.inner, self.peer, self._port = inner, peer, port
        self.busy, self.since = False, port.now()
        #: None once a transport owns the socket, because the transport then closes it.
        self.accepted: socket.socket | None = accepted
        self.handshake: asyncio.Task[None] | None = None
        self._transport: asyncio.Transport | None = None
        self._unread: asyncio.TimerHandle | None = None

    def abort(self) -> None:
        """Close the connection at once; pending output is dropped."""
        self._port.forget(self)
        if self._transport is not None:
            self._transport.abort()
            return
        if self.handshake is not None:
            self.handshake.cancel()
        if self.accepted is not None:
            self.accepted.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport, self.since = cast(asyncio.Transport, transport), self._port.now()
        self.inner.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._port.forget(self)
        self._end_patience()
        self.inner.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self.inner.data_received(data)

    def eof_received(self) -> None:
        self.inner.eof_received()

    def pause_writing(self) -> None:
        """Start the time limit `Limits.unread`, because the peer does not read the answer."""
        self._unread = asyncio.get_running_loop().call_later(self._port.limits.unread, self._never_read)
        self.inner.pause_writing()

    def resume_writing(self) -> None:
        self._end_patience()
        self.inner.resume_writing()

    def _end_patience(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _never_read(self) -> None:
        self._port.closed("unread")
        self.abort()


class Port:
    """One port with its connections: `listen`, `accept`, and finally `close`."""

    def __init__(self, name: str, limits: Limits) -> None:
        """`name`: the name of the port in the metric."""
        self.limits = limits
        self._name = name
        self._connections: set[Connection] = set()
        self._by_protocol: dict[object, Connection] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._sockets: list[socket.socket] = []

    async def listen(self, address: str, port: int, *, share_port: bool = False) -> None:
        """Bind the port. Raises OSError if the address or port cannot be used."""
        try:
            for family, *_, where in await asyncio.get_running_loop().getaddrinfo(
                address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            ):
                self._sockets.append(_listen(family, where, share_port))
        except OSError:
            await self.close()
            raise

    def accept(self, factory: Callable[[], web.RequestHandler], tls: ssl.SSLContext) -> None:
        """Accept connections from now on. `factory`: creates aiohttp's protocols."""
        for listening in self._sockets:
            self._run(self._accept(listening, factory, tls))

    async def close(self) -> None:
        """Stop accepting, and cancel handshakes in progress. aiohttp closes all other connections."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for listening in self._sockets:
            listening.close()

    @web.middleware
    async def guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Protect connections with a request in progress from displacement. Answer 504 if the request takes longer than
        `Limits.request`."""
        connection = self._by_protocol.get(request.protocol)
        if connection is None:
            return await handler(request)
        connection.busy = True
        try:
            async with asyncio.timeout(self.limits.request) as limit:
                return await handler(request)
        except TimeoutError:
            if not limit.expired():
                raise
            self.closed("request")
            late = web.Response(status=504, text=f"the request took longer than {self.limits.request:g} s\n")
            late.force_close()
            return late
        finally:
            connection.busy, connection.since = False, self.now()

    @staticmethod
    def now() -> float:
        return asyncio.get_running_loop().time()

    def forget(self, connection: Connection) -> None:
        self._connections.discard(connection)
        self._by_protocol.pop(connection.inner, None)

    def closed(self, reason: str) -> None:
        CLOSED.labels(self._name, reason).inc()

    def _run(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("port %s: %s: %s", self._name, type(error).__name__, error)

    async def _accept(
        self, listening: socket.socket, factory: Callable[[], web.RequestHandler], tls: ssl.SSLContext
    ) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, address = await loop.sock_accept(listening)
            except OSError as error:  # no file descriptor is left, or the peer has already disconnected
                if error.errno in _EXHAUSTED:
                    log.warning("port %s: cannot accept connections: %s", self._name, error.strerror)
                    await asyncio.sleep(EXHAUSTED)
                continue
            finally:
                await asyncio.sleep(0)  # an accept that does not wait would not let other tasks run
            peer = peer_of(address[0])
            admitted, loser = make_room(self._connections, peer, self.limits)
            if loser is not None:
                self.closed("displaced")
                loser.abort()
            if not admitted:
                self.closed("refused")
                accepted.close()
                continue
            connection = Connection(factory(), accepted, peer, self)
            self._connections.add(connection)
            self._by_protocol[connection.inner] = connection
            connection.handshake = self._run(self._shake_hands(connection, accepted, tls))

    async def _shake_hands(self, connection: Connection, accepted: socket.socket, tls: ssl.SSLContext) -> None:
        connection.accepted = None
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: connection,
                accepted,
                ssl=tls,
                ssl_handshake_timeout=self.limits.handshake,
                ssl_shutdown_timeout=TLS_SHUTDOWN,
            )
        except OSError as error:  # ssl.SSLError is one
            if isinstance(error, ConnectionAbortedError):  # asyncio and uvloop raise this on timeout
                self.closed("handshake")
            self.forget(connection)
        except BaseException:
            self.forget(connection)
            raise


def _listen(family: int, where: Any, share_port: bool) -> socket.socket:
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setblocking(False)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if share_port:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            # "::" includes all IPv4 addresses, as in Go.
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(where[0] != "::"))
        listening.bind(where)
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        raise OSError(error.errno, os.strerror(error.errno or 0).lower()) from None
    return listening
