# SPDX-License-Identifier: Apache-2.0
"""A proxy in front of the real API server; tests can make the proxy misbehave."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable

import aiohttp
import pytest
from aiohttp import web

from ccm.engine.api_credentials import Access
from ccm.engine.client import KubeClient
from tests.listening import listening
from tests.ports import free_port

from ..cluster import ApiServer

Fault = Callable[[web.Request], Awaitable[web.StreamResponse | None]]


class FaultProxy:
    """A proxy that accepts plain HTTP, and calls the API server as admin.

    `fault` gets each request first, and answers it, or returns None to pass it on. `freeze` stops all bytes of open
    answers, without closing anything; `cut` closes all connections; `inject` inserts bytes into open answers.
    """

    def __init__(self, apiserver: ApiServer) -> None:
        self._server = apiserver
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.fault: Fault | None = None
        self.requests: list[tuple[str, str]] = []
        self._open: dict[web.StreamResponse, asyncio.Event] = {}
        self._transports: set[asyncio.Transport] = set()
        self._running = contextlib.AsyncExitStack()
        self._session: aiohttp.ClientSession | None = None
        self._ssl = ssl.create_default_context(cafile=str(apiserver.ca_file))

    async def start(self) -> None:
        session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None), auto_decompress=False)
        self._session = await self._running.enter_async_context(session)
        route = web.route("*", "/{tail:.*}", self._handle)
        await self._running.enter_async_context(listening(route, port=self.port, cancels=True))

    async def stop(self) -> None:
        """Refuse connections until `start`."""
        self.cut()
        await self._running.aclose()

    def cut(self) -> None:
        for transport in self._transports:
            transport.abort()
        self._transports.clear()

    def freeze(self) -> None:
        for event in self._open.values():
            event.clear()

    async def inject(self, data: bytes) -> None:
        for response in list(self._open):
            await response.write(data)

    def count(self, method: str, part: str = "") -> int:
        return sum(1 for verb, path in self.requests if verb == method and part in path)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append((request.method, request.path_qs))
        if isinstance(request.transport, asyncio.Transport):
            self._transports.add(request.transport)
        if self.fault is not None and (answer := await self.fault(request)) is not None:
            return answer
        headers = {k: v for k, v in request.headers.items() if k not in ("Host", "Content-Length", "Authorization")}
        assert self._session is not None
        try:
            async with self._session.request(
                request.method,
                self._server.url + request.path_qs,
                data=await request.read(),
                headers={**headers, "Authorization": f"Bearer {self._server.token}"},
                ssl=self._ssl,
            ) as upstream:
                return await self._pass_on(request, upstream)
        except aiohttp.ClientConnectorError:
            assert request.transport is not None
            request.transport.close()  # as if nothing listened here
            return web.Response(status=500)

    async def _pass_on(self, request: web.Request, upstream: aiohttp.ClientResponse) -> web.StreamResponse:
        hop = ("Transfer-Encoding", "Connection", "Content-Length")
        headers = {k: v for k, v in upstream.headers.items() if k not in hop}
        response = web.StreamResponse(status=upstream.status, headers=headers)
        await response.prepare(request)
        flowing = self._open[response] = asyncio.Event()
        flowing.set()
        try:
            async for chunk in upstream.content.iter_any():
                await flowing.wait()
                await response.write(chunk)
        except (aiohttp.ClientError, ConnectionError):
            if request.transport is not None:
                request.transport.abort()
        finally:
            del self._open[response]
        return response


@pytest.fixture
async def proxy(apiserver: ApiServer) -> AsyncIterator[FaultProxy]:
    proxy = FaultProxy(apiserver)
    await proxy.start()
    yield proxy
    proxy.fault = None
    await proxy.stop()


@pytest.fixture
async def through(proxy: FaultProxy) -> AsyncIterator[KubeClient]:
    """Yield a client that calls the API server through the proxy."""
    client = KubeClient(Access(proxy.url))
    yield client
    await client.close()


async def eventually(condition: Callable[[], object], seconds: float = 300.0) -> None:
    """Wait until `condition()` is true. Raises TimeoutError after `seconds`."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def running(*coroutines: Awaitable[None]) -> AsyncIterator[list[asyncio.Future[None]]]:
    """Run coroutines as tasks; at the end, cancel them and wait until they have ended."""
    tasks = [asyncio.ensure_future(coroutine) for coroutine in coroutines]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
