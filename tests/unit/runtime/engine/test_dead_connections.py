# SPDX-License-Identifier: Apache-2.0
"""Connections that die silently, as after the failover of a load balancer: at most one request hangs."""

import asyncio
import contextlib

import pytest

from ccm.engine.api_credentials import Access
from ccm.engine.api_errors import UnavailableError
from ccm.engine.client import KubeClient
from ccm.engine.objects import PartialObject

ANSWER = b'{"kind":"PartialObjectMetadata","metadata":{"name":"n"}}'
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(ANSWER)
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"


class Server:
    """Answers on established connections until `fail_over`, then only on new ones. `together`: this many requests are
    answered at the same time, so that each has its own connection."""

    def __init__(self):
        self.together, self.waiting, self.go = 1, 0, asyncio.Event()
        self.generation, self.accepted, self.open = 0, 0, 0

    def fail_over(self):
        self.generation += 1

    async def serve(self, reader, writer):
        mine, self.accepted, self.open = self.generation, self.accepted + 1, self.open + 1
        try:
            while request := await reader.readuntil(b"\r\n\r\n"):
                if mine != self.generation:
                    await asyncio.Event().wait()
                if b"watch=true" in request:
                    writer.write(STREAM)
                    while True:
                        writer.write(b"2\r\n{}\r\n1\r\n\n\r\n")
                        await asyncio.sleep(0.02)
                self.waiting += 1
                if self.waiting >= self.together:
                    self.go.set()
                await self.go.wait()
                writer.write(HEAD + ANSWER)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.open -= 1
            writer.close()


@pytest.fixture
async def server():
    server = Server()
    running = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.url = f"http://127.0.0.1:{running.sockets[0].getsockname()[1]}"
    yield server
    running.close()


@pytest.fixture
async def kube(server):
    client = KubeClient(Access(server.url))
    yield client
    await client.close()


async def warm(server, kube, count):
    server.together = count
    await asyncio.gather(*(kube.get("/n", PartialObject) for _ in range(count)))
    assert server.accepted == count


@pytest.mark.parametrize("method", ["get", "patch", "create"])
@pytest.mark.parametrize("count", [1, 4, 30])
async def test_one_request_finds_out_and_those_that_follow_use_new_connections(server, kube, count, method):
    await warm(server, kube, count)
    server.fail_over()
    first = {"get": (PartialObject,), "patch": ({},), "create": ({},)}[method]
    with pytest.raises(UnavailableError, match="no answer in time"):
        await getattr(kube, method)("/n", *first, timeout=0.2)
    for _ in range(3):
        assert (await kube.get("/n", PartialObject, timeout=60.0)).metadata.name == "n"
    assert server.accepted == count + 1


async def test_idle_connections_are_closed(server, kube):
    await warm(server, kube, 10)
    server.fail_over()
    with pytest.raises(UnavailableError):
        await kube.get("/n", PartialObject, timeout=0.2)
    server.generation = 0  # the dead connections see the client close them
    async with asyncio.timeout(30.0):
        while server.open > 1:  # the connection whose request timed out stays open
            await asyncio.sleep(0.01)


async def test_requests_and_watches_in_progress_go_on(server, kube):
    async with contextlib.AsyncExitStack() as stack:
        lines = await stack.enter_async_context(kube.watch("/n", {}, read_timeout=60.0))
        assert await anext(lines) == b"{}"
        await warm_beside(server, kube)
        server.fail_over()  # the stream that is open continues
        with pytest.raises(UnavailableError):
            await kube.get("/n", PartialObject, timeout=0.2)
        await kube.get("/n", PartialObject, timeout=60.0)
        for _ in range(20):
            assert await anext(lines) == b"{}"


async def warm_beside(server, kube):
    server.together = 3
    await asyncio.gather(*(kube.get("/n", PartialObject) for _ in range(3)))


async def test_a_silent_watch_leads_to_new_connections_too(server, kube):
    await warm(server, kube, 4)
    server.fail_over()
    with pytest.raises(UnavailableError):
        async with kube.watch("/n", {}, read_timeout=0.2) as lines:
            await anext(lines)
    await kube.get("/n", PartialObject, timeout=60.0)


async def test_a_closed_client_can_be_used_again(server, kube):
    await warm(server, kube, 2)
    await kube.close()
    await kube.get("/n", PartialObject)
    assert server.accepted == 3
