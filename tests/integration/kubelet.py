# SPDX-License-Identifier: Apache-2.0
"""A stand-in for the parts of a kubelet that forward ports and run commands: HTTPS on loopback, without machines.

It serves WebSockets with the subprotocol v4.channel.k8s.io as a kubelet and its container runtime do
(k8s.io/cri-streaming, portforward/websocket.go and remotecommand/websocket.go). Its Pods use this machine's network. It
answers no other requests.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from aiohttp import WSMsgType, web

from tests.listening import listening
from tests.ports import free_port

from .cluster import Authority

PROTOCOL = "v4.channel.k8s.io"
DATA, ERROR = b"\0", b"\1"
#: Channels of a command: standard output, standard error, and its end.
OUT, ERR, END = b"\1", b"\2", b"\3"
#: If status.declaredFeatures of the Node has this feature, the API server passes WebSockets on to the kubelet
#: (KEP-4006).
FEATURE = "ExtendWebSocketsToKubelet"
#: Runs a command of a Pod: exit status, standard output, standard error.
Command = Callable[[str, list[str]], Awaitable[tuple[int, bytes, bytes]]]


class Kubelet:
    """A kubelet. `port`: its port, for status.daemonEndpoints of its Node. `forwarded`: "NAMESPACE/POD:PORT" of each
    forwarding request. `command`: the function that runs commands of Pods."""

    def __init__(self) -> None:
        self.port = free_port()
        self.forwarded: list[str] = []
        self.command: Command | None = None

    async def execute(self, request: web.Request) -> web.StreamResponse:
        assert self.command is not None, "this kubelet runs no commands"
        socket = web.WebSocketResponse(protocols=["v5.channel.k8s.io", PROTOCOL])
        await socket.prepare(request)
        assert socket.ws_protocol
        status, out, err = await self.command(request.match_info["pod"], request.query.getall("command"))
        for channel, data in ((OUT, out), (ERR, err)):
            if data:
                await socket.send_bytes(channel + data)
        cause = {"reason": "ExitCode", "message": str(status)}
        failed = {"status": "Failure", "reason": "NonZeroExitCode", "details": {"causes": [cause]}}
        end: dict[str, Any] = failed if status else {"status": "Success"}
        await socket.send_bytes(END + json.dumps({"metadata": {}, **end}).encode())
        await socket.close()
        return socket

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
async def running_kubelet(
    authority: Authority, folder: Path, hosts: Sequence[str] = ("127.0.0.1",)
) -> AsyncIterator[Kubelet]:
    """Run a kubelet. `folder`: for its certificate and key. `hosts`: the addresses of its Nodes."""
    for name, data in zip(("kubelet.crt", "kubelet.key"), authority.issue("kubelet", hosts=hosts), strict=True):
        (folder / name).write_bytes(data)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(folder / "kubelet.crt", folder / "kubelet.key")
    kubelet = Kubelet()
    forward = web.get("/portForward/{namespace}/{pod}", kubelet.handle)
    execute = web.get("/exec/{namespace}/{pod}/{container}", kubelet.execute)
    async with listening(forward, execute, tls=context, port=kubelet.port, hosts=hosts):
        yield kubelet
