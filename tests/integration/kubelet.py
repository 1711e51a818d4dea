# SPDX-License-Identifier: Apache-2.0
"""The part of a kubelet that forwards ports, for tests without machines: HTTPS on loopback, which the API server uses.

It serves WebSockets with the subprotocol v4.channel.k8s.io as a kubelet and its container runtime do
(k8s.io/cri-streaming, portforward/websocket.go). Its Pods have the network of this machine. It knows no other request.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

from aiohttp import WSMsgType, web

from tests.ports import free_port

from .cluster import Authority

PROTOCOL = "v4.channel.k8s.io"
DATA, ERROR = b"\0", b"\1"


class Kubelet:
    """`port`: for status.daemonEndpoints of its Node. `forwarded`: "NAMESPACE/POD:PORT" of each request."""

    def __init__(self) -> None:
        self.port = free_port()
        self.forwarded: list[str] = []

    async def handle(self, request: web.Request) -> web.StreamResponse:
        namespace, pod, port = request.match_info["namespace"], request.match_info["pod"], int(request.query["port"])
        self.forwarded.append(f"{namespace}/{pod}:{port}")
        socket = web.WebSocketResponse(protocols=[PROTOCOL])
        await socket.prepare(request)
        assert socket.ws_protocol == PROTOCOL
        for channel in (DATA, ERROR):
            await socket.send_bytes(channel + port.to_bytes(2, "little"))
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError as error:
            text = f"error forwarding port {port} to pod 5ca1ab1e, uid : failed to connect to localhost:{port}: {error}"
            await socket.send_bytes(ERROR + text.encode())
            await socket.close()
            return socket

        async def back() -> None:
            with contextlib.suppress(ConnectionError):
                while data := await reader.read(32 * 1024):
                    await socket.send_bytes(DATA + data)
            await socket.close()

        task = asyncio.create_task(back())
        try:
            async for message in socket:
                assert message.type is WSMsgType.BINARY and message.data[:1] == DATA, message
                writer.write(message.data[1:])
        finally:
            task.cancel()
            writer.close()
        return socket


@contextlib.asynccontextmanager
async def running_kubelet(authority: Authority, folder: Path) -> AsyncIterator[Kubelet]:
    """`folder`: for its key."""
    for name, data in zip(("kubelet.crt", "kubelet.key"), authority.issue("kubelet", hosts=["127.0.0.1"]), strict=True):
        (folder / name).write_bytes(data)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(folder / "kubelet.crt", folder / "kubelet.key")
    kubelet, app = Kubelet(), web.Application()
    app.router.add_get("/portForward/{namespace}/{pod}", kubelet.handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", kubelet.port, ssl_context=context).start()
        yield kubelet
    finally:
        await runner.cleanup()
