# SPDX-License-Identifier: Apache-2.0
"""A connection to a port of a Pod through the API server: the subresource pods/portforward over a WebSocket.

The subprotocol is the one that kubelets and container runtimes serve (k8s.io/cri-streaming, portforward/websocket.go):
a message begins with the number of its channel, and each channel begins with the number of the port. kubectl's own
subprotocol needs SPDY inside the WebSocket.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from urllib.parse import quote

import aiohttp
from yarl import URL

from ccm.base.connection_problem import connection_problem
from ccm.base.text import shorten

from .api_credentials import Access
from .api_errors import UnavailableError, from_response

PROTOCOL = "v4.channel.k8s.io"
#: Channels of the first port.
DATA, ERROR = 0, 1
#: Bytes at the beginning of each channel: the port, in little endian.
HEAD = 2
#: Bytes to read at once.
STRETCH = 64 * 1024


class Tunnel:
    """An open connection to the port of a Pod. `socket`: leads to the port. `problem`: why the kubelet cannot reach the
    port, in its words; "" if it has not reported a problem."""

    def __init__(self, end: socket.socket) -> None:
        self.socket = end
        self.problem = ""


@contextlib.asynccontextmanager
async def port_forward(access: Access, namespace: str, pod: str, port: int) -> AsyncIterator[Tunnel]:
    """Yield a tunnel, whose socket in this process leads to the port on the Pod's loopback address.

    Nothing listens on this machine, so no other program can use the connection. The caller closes the socket, which
    reads the end of the stream when the context ends. The caller also limits the time. Raises ApiError.
    """
    path = f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(pod, safe='')}/portforward"
    context = f"GET {path}"

    async def check(response: aiohttp.ClientResponse) -> None:
        if response.status != 101:
            kind = response.content_type if "Content-Type" in response.headers else ""
            raise from_response(response.status, kind, await response.read(), None, context)

    async with aiohttp.ClientSession(raise_for_status=check, cookie_jar=aiohttp.DummyCookieJar()) as session:
        try:
            url = URL(access.server + path).with_query(ports=str(port))
            connection = await session.ws_connect(url, protocols=(PROTOCOL,), **await access.request_arguments())
        except (aiohttp.ClientError, OSError) as error:
            raise UnavailableError(0, type(error).__name__, f"{context}: {connection_problem(error)}") from error
        ours, theirs = socket.socketpair()
        reader, writer = await asyncio.open_connection(sock=theirs)
        tunnel = Tunnel(ours)
        tasks = [
            asyncio.create_task(each) for each in (_send(reader, connection), _receive(connection, writer, tunnel))
        ]
        try:
            yield tunnel
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            writer.close()
            await connection.close()


async def _send(reader: asyncio.StreamReader, connection: aiohttp.ClientWebSocketResponse) -> None:
    while data := await reader.read(STRETCH):
        await connection.send_bytes(bytes([DATA]) + data)


async def _receive(connection: aiohttp.ClientWebSocketResponse, writer: asyncio.StreamWriter, tunnel: Tunnel) -> None:
    """Pass on what the kubelet sends, until it closes the connection, which ends the stream."""
    heads = {DATA: HEAD, ERROR: HEAD}
    try:
        async for message in connection:
            if message.type is not aiohttp.WSMsgType.BINARY or not message.data or message.data[0] not in heads:
                continue
            channel, data = message.data[0], message.data[1:]
            skipped = min(heads[channel], len(data))
            heads[channel] -= skipped
            if channel == ERROR:
                tunnel.problem = shorten(tunnel.problem + data[skipped:].decode("utf-8", "replace"), STRETCH)
            else:
                writer.write(data[skipped:])
                await writer.drain()
    finally:
        writer.close()
