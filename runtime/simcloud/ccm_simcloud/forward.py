# SPDX-License-Identifier: Apache-2.0
"""Forwards TCP and UDP from a load balancer's port to the node ports of its targets. Independent of the cloud."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import ipaddress
import logging
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

log = logging.getLogger("ccm_simcloud")

#: Times in seconds. `CONNECT`: timeout of a connection to a backend. `EJECTION`: how long to avoid a failed backend.
#: `CHECK_EVERY`: interval of health checks.
CONNECT, EJECTION, CHECK_EVERY = 1.0, 5.0, 2.0
#: Seconds until an idle UDP flow ends; the maximum number of flows per port, and of datagrams kept for a first reply.
UDP_IDLE, UDP_FLOWS, UDP_UNANSWERED = 30.0, 256, 8
CHUNK = 256 * 1024


@dataclass(frozen=True)
class Rules:
    """The behaviour of a port. `backends` are (address, node port). `health_port`: for HTTP GET /healthz. `passes`: the
    clients' packets go to the backends unchanged. `draining`: addresses that get no new connections."""

    backends: tuple[tuple[str, int], ...]
    source_ranges: tuple[str, ...] = ()
    sticky: bool = False
    health_port: int | None = None
    passes: bool = False
    draining: frozenset[str] = frozenset()


@dataclass
class Backend:
    """One backend of a port. `healthy`: result of the last check; `ejected_until` (monotonic): set by the last failed
    use."""

    address: str
    port: int
    healthy: bool = True
    ejected_until: float = 0.0


class Pool:
    """Selects backends: working ones in turn (if `sticky`: by the client's address), then the others. Backends that
    drain are left out."""

    def __init__(self, rules: Rules, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._turn = 0
        self.backends: dict[tuple[str, int], Backend] = {}
        self.update(rules)

    def update(self, rules: Rules) -> None:
        """Replace the rules. Backends that remain keep their health state."""
        self.rules = rules
        self.backends = {key: self.backends.get(key) or Backend(*key) for key in rules.backends}
        self._networks = [ipaddress.ip_network(text) for text in rules.source_ranges]

    def allows(self, client: str) -> bool:
        """Return whether the source ranges allow this client. Without ranges, every client is allowed."""
        return not self._networks or any(ipaddress.ip_address(client) in network for network in self._networks)

    def order(self, client: str) -> list[Backend]:
        """Return the backends for a new connection of this client, in the order to try."""
        now = self._clock()
        able = [backend for backend in self.backends.values() if backend.address not in self.rules.draining]
        good = [each for each in able if each.healthy and now >= each.ejected_until]
        doubtful = [each for each in able if not (each.healthy and now >= each.ejected_until)]
        if self.rules.sticky:
            good.sort(key=lambda each: hashlib.md5(f"{client} {each.address}".encode()).digest())
        elif good:
            self._turn += 1
            start = self._turn % len(good)
            good = good[start:] + good[:start]
        return good + doubtful

    def eject(self, backend: Backend) -> None:
        backend.ejected_until = self._clock() + EJECTION


class Listener(Protocol):
    """An open port."""

    pool: Pool

    def update(self, rules: Rules) -> None: ...

    async def close(self) -> None: ...


async def listen(protocol: str, address: str, port: int, rules: Rules) -> Listener:
    """Open a port. Raises OSError if the address or the port cannot be used."""
    listener = TcpListener(rules) if protocol == "TCP" else UdpListener(rules)
    await listener.open(address, port)
    return listener


class TcpListener:
    """A TCP port. Connections end with the port, and when their backend is removed: then clients see a reset.
    Connections to a backend that drains go on."""

    def __init__(self, rules: Rules) -> None:
        self.pool = Pool(rules)
        self._server: asyncio.Server | None = None
        self._connections: dict[asyncio.Task[Any], Backend | None] = {}
        self._checker: asyncio.Task[None] | None = None

    async def open(self, address: str, port: int) -> None:
        self._server = await asyncio.start_server(self._accept, address, port, limit=CHUNK, backlog=1024)
        self._checker = asyncio.create_task(check_health(self.pool, tcp=True), name=f"health {address}:{port}")

    def update(self, rules: Rules) -> None:
        self.pool.update(rules)
        for task, backend in list(self._connections.items()):
            if backend is not None and (backend.address, backend.port) not in self.pool.backends:
                task.cancel()

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        await end_tasks([*self._connections, *([self._checker] if self._checker else [])])

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer), name="forward")
        self._connections[task] = None
        task.add_done_callback(self._connections.pop)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers = [writer]
        peer = writer.get_extra_info("peername")  # None if the client has already disconnected
        try:
            backend = await self._connect(peer[0]) if peer and self.pool.allows(peer[0]) else None
            if backend is not None:
                writers.append(backend[1])
                await forward(reader, writer, *backend)
        except OSError as error:
            log.debug("connection of %s: %s", peer, error)
        finally:
            for each in writers:
                each.transport.abort()

    async def _connect(self, client: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        """Return a connection to the first backend that accepts it, None if no backend does."""
        for backend in self.pool.order(client):
            try:
                async with asyncio.timeout(CONNECT):
                    opened = await asyncio.open_connection(backend.address, backend.port, limit=CHUNK)
            except (OSError, TimeoutError) as error:
                log.info("backend %s:%d: %s; trying the next", backend.address, backend.port, str(error) or "timeout")
                self.pool.eject(backend)
                continue
            if (task := asyncio.current_task()) is not None:
                self._connections[task] = backend
            return opened
        return None


async def forward(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    backend_reader: asyncio.StreamReader,
    backend_writer: asyncio.StreamWriter,
) -> None:
    """Copy both directions until both have ended. Raises OSError if either side fails."""
    for each in (writer, backend_writer):
        sock = each.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(pump(reader, backend_writer))
            group.create_task(pump(backend_reader, writer))
    except* OSError as errors:
        raise OSError(str(errors.exceptions[0])) from None
    for each in (writer, backend_writer):  # all data is written; let the kernel deliver it
        each.close()
        await each.wait_closed()


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy one direction, at the pace of the receiver; pass on its end as a half-close."""
    while data := await reader.read(CHUNK):
        writer.write(data)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()


class UdpListener(asyncio.DatagramProtocol):
    """A UDP port. Each client (address and port) has a flow to a backend, until the flow is idle or refused, or the
    backend is removed."""

    def __init__(self, rules: Rules, *, idle: float = UDP_IDLE) -> None:
        self.pool = Pool(rules)
        self.flows: dict[Any, UdpFlow] = {}
        self._idle = idle
        self.transport: Any = None
        self._tasks: list[asyncio.Task[None]] = []

    async def open(self, address: str, port: int) -> None:
        loop = asyncio.get_running_loop()
        await loop.create_datagram_endpoint(lambda: self, local_addr=(address, port))
        self._tasks = [
            asyncio.create_task(check_health(self.pool, tcp=False), name=f"health {address}:{port}/udp"),
            asyncio.create_task(self._sweep(), name=f"flows {address}:{port}/udp"),
        ]

    def update(self, rules: Rules) -> None:
        self.pool.update(rules)
        for flow in list(self.flows.values()):
            if (flow.backend.address, flow.backend.port) not in self.pool.backends:
                flow.close()

    async def close(self) -> None:
        if self.transport is not None:
            self.transport.close()
        for flow in list(self.flows.values()):
            flow.close()
        await end_tasks(self._tasks)

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def datagram_received(self, data: bytes, client: Any) -> None:
        if not self.pool.allows(client[0]):
            return
        flow = self.flows.get(client)
        if flow is None:
            flow = UdpFlow(self, client)
            if len(self.flows) >= UDP_FLOWS:
                min(self.flows.values(), key=lambda each: each.last).close()
            self.flows[client] = flow
        flow.send(data)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(self._idle / 2)
            oldest = time.monotonic() - self._idle
            for flow in [each for each in self.flows.values() if each.last < oldest]:
                flow.close()


class UdpFlow:
    """The datagrams of one client. The last UDP_UNANSWERED are kept until the backend's first reply, so that the next
    backend gets them if the first one refuses."""

    def __init__(self, listener: UdpListener, client: Any) -> None:
        self._listener, self._client = listener, client
        self._candidates = listener.pool.order(client[0])
        self._unanswered: list[bytes] | None = []
        self._socket: socket.socket | None = None
        self.backend = Backend("", 0)
        self.last = time.monotonic()

    def send(self, data: bytes) -> None:
        self.last = time.monotonic()
        if self._unanswered is not None:
            self._unanswered = [*self._unanswered, data][-UDP_UNANSWERED:]
        if self._socket is None:
            self._try_next()
            return
        try:
            self._socket.send(data)
        except BlockingIOError:
            pass  # dropped, as by any router with a full queue
        except OSError:
            self._refused()

    def _try_next(self) -> None:
        """Send the unanswered datagrams to the next candidate; without one, the flow ends."""
        while self._candidates:
            self.backend = self._candidates.pop(0)
            family = socket.AF_INET6 if ":" in self.backend.address else socket.AF_INET
            self._socket = socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
            try:
                self._socket.connect((self.backend.address, self.backend.port))
                for data in self._unanswered or ():
                    self._socket.send(data)
            except OSError:
                self._forget_socket()
                self._listener.pool.eject(self.backend)
                continue
            asyncio.get_running_loop().add_reader(self._socket, self._receive)
            return
        self.close()

    def _receive(self) -> None:
        assert self._socket is not None
        try:
            data = self._socket.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            self._refused()
            return
        self.last, self._unanswered = time.monotonic(), None
        self._listener.transport.sendto(data, self._client)

    def _refused(self) -> None:
        """Handle the report of the backend's host that nothing listens on the port: try the next backend if none has
        replied yet, otherwise end the flow."""
        self._listener.pool.eject(self.backend)
        self._forget_socket()
        if self._unanswered is None:
            self.close()  # the client's next datagram starts a new flow
        else:
            self._try_next()

    def _forget_socket(self) -> None:
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()
            self._socket = None

    def close(self) -> None:
        self._forget_socket()
        self._listener.flows.pop(self._client, None)


async def check_health(pool: Pool, *, tcp: bool) -> None:
    """Keep `healthy` of the backends up to date until cancelled. `tcp`: whether a backend of a port without a health
    port is checked by a TCP connection; otherwise it counts as healthy."""
    while True:
        port = pool.rules.health_port
        if tcp or port is not None:
            await asyncio.gather(*(_check(backend, port) for backend in list(pool.backends.values())))
        else:
            for backend in pool.backends.values():
                backend.healthy = True
        await asyncio.sleep(CHECK_EVERY)


async def _check(backend: Backend, health_port: int | None) -> None:
    healthy = await (
        answers(backend.address, backend.port) if health_port is None else is_200(backend.address, health_port)
    )
    if healthy != backend.healthy:
        log.info("backend %s:%d is %s", backend.address, backend.port, "healthy" if healthy else "not healthy")
    backend.healthy = healthy


async def answers(address: str, port: int) -> bool:
    """Return whether a TCP connection is accepted."""
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(CONNECT):
            _, writer = await asyncio.open_connection(address, port)
            writer.close()
            return True
    return False


async def is_200(address: str, port: int) -> bool:
    """Return whether GET /healthz answers 200, as kube-proxy does on nodes with Pods of the Service."""
    with contextlib.suppress(OSError, TimeoutError, ValueError):
        async with asyncio.timeout(CONNECT):
            reader, writer = await asyncio.open_connection(address, port)
            try:
                writer.write(f"GET /healthz HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n".encode())
                return (await reader.readline()).split()[1:2] == [b"200"]
            finally:
                writer.close()
    return False


async def end_tasks(tasks: Sequence[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def explain(error: OSError) -> str:
    """Return why a port could not be opened."""
    if error.errno == errno.EADDRINUSE:
        return "another process listens on it"
    return error.strerror or str(error)
