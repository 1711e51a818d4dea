# SPDX-License-Identifier: Apache-2.0
"""The forwarder before several API servers skips a server that is down, and each direction ends by itself."""

import asyncio
import contextlib
import importlib.util
from types import ModuleType

from bed import paths
from tests.ports import free_port

FILE = paths.BED / "gateway" / "forward.py"


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("forward", FILE)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def until_open(port: int) -> None:
    async with asyncio.timeout(60):
        while True:
            with contextlib.suppress(ConnectionRefusedError):
                (await asyncio.open_connection("127.0.0.1", port))[1].close()
                return
            await asyncio.sleep(0.01)


async def test_a_dead_server_is_passed_over_and_a_half_closed_stream_answered() -> None:
    async def echo_all(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"got " + await reader.read())
        writer.write_eof()

    backend = await asyncio.start_server(echo_all, "127.0.0.1", 0)
    alive = backend.sockets[0].getsockname()[1]
    port = free_port()
    forwarder = asyncio.create_task(load().main(port, [("127.0.0.1", free_port()), ("127.0.0.1", alive)]))
    try:
        await until_open(port)
        for _ in range(4):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"hello")
            writer.write_eof()
            assert await asyncio.wait_for(reader.read(), 60) == b"got hello"
            writer.close()
    finally:
        forwarder.cancel()
        backend.close()
