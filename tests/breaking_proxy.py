# SPDX-License-Identifier: Apache-2.0
"""A proxy in front of a cloud: it counts calls, and breaks them on demand. Each cloud names and refuses calls in its
own way.

It runs in a thread of its own, so that a test may block, or call through the proxy from its own event loop.
"""

from __future__ import annotations

import abc
import asyncio
import contextlib
import fnmatch
import ssl
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from aiohttp import ClientSession, ClientTimeout, DummyCookieJar, TCPConnector, web
from multidict import CIMultiDict

from tests.listening import listening
from tests.ports import free_port

HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "te", "trailer", "upgrade"}
HANG_SECONDS = 3600.0


@dataclass
class Fault:
    """What happens to the calls whose name matches the pattern `call`.

    `kind`: status, hang, drop (the connection), truncate (the answer), slow (by `seconds`), lost (the call is carried
    out and answered with 503), or one that the cloud adds. The first `skip` calls that match pass, and the next `times`
    are broken (None: all).
    """

    kind: str
    call: str = "*"
    status: int = 503
    headers: dict[str, str] = field(default_factory=dict)
    body: str = ""
    seconds: float = 0.0
    times: int | None = None
    skip: int = 0

    def takes(self, call: str) -> bool:
        """Return whether to break this call. Count a call that fits against `skip` or `times`."""
        if self.times == 0 or not fnmatch.fnmatchcase(call, self.call):
            return False
        if self.skip:
            self.skip -= 1
            return False
        if self.times is not None:
            self.times -= 1
        return True


class BreakingProxy(abc.ABC):
    """The proxy. `behind`: the cloud's URL. `tls`: the TLS context with which the proxy serves, None for plain HTTP."""

    def __init__(self, behind: str, tls: ssl.SSLContext | None = None) -> None:
        self.port, self._behind, self._tls = free_port(), behind, tls
        self._calls: list[str] = []
        self._faults: list[Any] = []
        self._running = contextlib.AsyncExitStack()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(10)

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    # For tests.

    @property
    def calls(self) -> list[str]:
        """Return the names of all calls."""
        return list(self._calls)

    def counted(self, since: int = 0) -> Counter[str]:
        return Counter(self._calls[since:])

    @contextlib.contextmanager
    def broken(self, *faults: Fault) -> Iterator[None]:
        self._faults += faults
        try:
            yield
        finally:
            self._faults = [each for each in self._faults if not any(each is one for one in faults)]

    # For clouds.

    @abc.abstractmethod
    def name_of(self, request: web.Request, body: bytes) -> str:
        """Return the name under which a call is counted and broken."""

    def fault_of(self, name: str, body: bytes) -> Any:
        """Return the first fault that breaks this call, or None."""
        return next((each for each in self._faults if each.takes(name)), None)

    def refusal(self, request: web.Request, body: bytes, fault: Any) -> web.Response:
        """Return the answer of a fault of the kind `status`."""
        return web.Response(status=fault.status, headers=fault.headers, text=fault.body)

    async def break_otherwise(self, request: web.Request, body: bytes, fault: Any) -> web.Response | None:
        """Return the answer of a kind of fault that only this cloud has, None for other kinds."""
        return None

    async def carry_out(self, request: web.Request, body: bytes) -> web.Response:
        """Pass the call on, and return the cloud's own answer."""
        url = f"{self._behind}{request.raw_path}"
        headers = {name: value for name, value in request.headers.items() if name.lower() not in HOP_BY_HOP}
        async with self._session.request(request.method, url, headers=headers, data=body or None) as answer:
            kept = [(name, value) for name, value in answer.headers.items() if name.lower() not in HOP_BY_HOP]
            return web.Response(status=answer.status, headers=CIMultiDict(kept), body=await answer.read())

    # HTTP.

    async def _start(self) -> None:
        options: dict[str, Any] = {"auto_decompress": False, "cookie_jar": DummyCookieJar()}
        connector = TCPConnector(limit=0, ssl=False)
        session = ClientSession(connector=connector, timeout=ClientTimeout(total=None), **options)
        self._session = await self._running.enter_async_context(session)
        route = web.route("*", "/{path:.*}", self._handle)
        await self._running.enter_async_context(listening(route, tls=self._tls, port=self.port))

    async def _stop(self) -> None:
        await self._running.aclose()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        name = self.name_of(request, body)
        self._calls.append(name)
        fault = self.fault_of(name, body)
        try:
            return await (self.carry_out(request, body) if fault is None else self._break(request, body, fault))
        except OSError:  # there is no cloud
            return _drop(request)

    async def _break(self, request: web.Request, body: bytes, fault: Fault) -> web.StreamResponse:
        match fault.kind:
            case "status":
                return self.refusal(request, body, fault)
            case "hang":
                await asyncio.sleep(HANG_SECONDS)
            case "slow":
                await asyncio.sleep(fault.seconds)
                return await self.carry_out(request, body)
            case "truncate":
                return await _half(request, await self.carry_out(request, body))
            case "lost":
                await self.carry_out(request, body)
                return web.Response(status=503, text="")
            case _ if (answer := await self.break_otherwise(request, body, fault)) is not None:
                return answer
        return _drop(request)


def _drop(request: web.Request) -> web.Response:
    if request.transport is not None:
        request.transport.abort()
    return web.Response(status=500)


async def _half(request: web.Request, answer: web.Response) -> web.StreamResponse:
    """Send the length of the whole answer, but only half of its bytes."""
    content = answer.body if isinstance(answer.body, bytes) else b""
    response = web.StreamResponse(status=answer.status, headers=answer.headers)
    response.content_length = len(content)
    await response.prepare(request)
    await response.write(content[: len(content) // 2])
    return _drop(request)
