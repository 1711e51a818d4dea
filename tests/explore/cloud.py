# SPDX-License-Identifier: Apache-2.0
"""The simulated cloud (`ccm_simcloud`) without its sockets, behind the real provider `sim`.

`Session` stands in the place of the provider's `aiohttp.ClientSession`; a call goes to the simulator's own handlers
(`Server._answer`), with the simulator's own faults (`faults.Plan`).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import aiohttp
import msgspec
from multidict import MultiDict

from ccm_simcloud import config as configuration
from ccm_simcloud.faults import Plan
from ccm_simcloud.server import Server
from ccm_simcloud.world import Project

from . import faults

if TYPE_CHECKING:
    from .process import Process
    from .simulation import Simulation

PROJECT = "demo"
CONFIG = configuration.from_data(
    {
        "projects": [
            {"name": PROJECT, "token": "t", "region": "north", "load_balancer_addresses": "192.0.2.1-192.0.2.250"}
        ],
        "timing": {"load_balancer_create": 2.0, "load_balancer_update": 0.5, "load_balancer_delete": 1.0},
    }
)
#: `listing_lag`: stale answers are no lies where the provider says so; that the cloud lies is a fault of its own.
CLOUD_CONF = f"""\
endpoint: http://cloud
project: demo
token: t
calls_per_second: 1000
burst: 1000
listing_lag: {faults.STALE:g}
"""


def _shape(method: str, path: str) -> tuple[str, ...]:
    """What tells operations apart: /v1/projects/demo/load-balancers/lb-1/targets -> load-balancers, *, targets."""
    parts = path.strip("/").split("/")[1:]
    return (method, *(part if number % 2 == 0 else "*" for number, part in enumerate(parts)))


def _operations() -> dict[tuple[str, ...], tuple[str, str | None, Any]]:
    """The simulator's own routes: shape -> operation, the name of a method, or else a function."""
    found: dict[tuple[str, ...], tuple[str, str | None, Any]] = {}
    for route in Server(CONFIG).application().router.routes():
        arguments = getattr(route.handler, "args", ())
        if len(arguments) == 3 and route.resource is not None:
            operation, handler, _ = arguments
            name = handler.__name__ if hasattr(handler, "__self__") else None
            found[_shape(route.method, route.resource.canonical)] = (operation, name, handler)
    return found


OPERATIONS = _operations()


class _Request:
    """What `Server._answer` looks at of a request."""

    def __init__(self, method: str, path: str, query: Any, headers: dict[str, str]) -> None:
        self.method, self.path, self.headers = method, path, headers
        self.query = MultiDict(query or ())
        parts = path.strip("/").split("/")
        self.match_info = {"project": PROJECT, "id": parts[4] if len(parts) > 4 else ""}


class Response:
    def __init__(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.status, self._body, self.headers = status, body, headers

    async def read(self) -> bytes:
        return self._body


class InProcessCloud:
    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.server = Server(CONFIG)
        self.server.world._clock = lambda: simulation.loop.now
        self.down_until = self.stale_until = self.throttled_until = 0.0

    @property
    def project(self) -> Project:
        self.server.world.tick()
        return self.server.world.projects[PROJECT]

    def go_down(self, seconds: float) -> None:
        self.down_until = self.simulation.loop.now + seconds

    async def serve(self, process: Process, method: str, path: str, options: dict[str, Any]) -> Response:
        simulation = self.simulation
        if not process.alive:
            raise aiohttp.ClientConnectionError("dead")
        operation, name, handler = OPERATIONS[_shape(method, path)]
        kind = simulation.reach(f"cloud {operation}", process)
        await asyncio.sleep(simulation.latency())
        if simulation.loop.now < self.down_until or not process.alive:
            raise aiohttp.ClientConnectionError("simulated: no connection")
        if not kind and simulation.loop.now < self.throttled_until:
            kind = "throttled"
        elif not kind and simulation.loop.now < self.stale_until and method == "GET":
            kind = "stale"
        match kind:
            case "error":
                return Response(500, b"<html>simulated</html>", {"Content-Type": "text/html"})
            case "throttled":
                return Response(429, b'{"error":{"code":"rate_limited","message":"simulated"}}', {"Retry-After": "3"})
            case "hang":
                await asyncio.sleep(20)
                raise TimeoutError
            case "kill-before":
                process.kill()
                raise aiohttp.ClientConnectionError("dead")
        request = _Request(method, path, options.get("params"), options.get("headers", {}))
        simulation.checks.before_cloud(process, operation, request.match_info["id"], options.get("data"), self)
        bound = getattr(self.server, name) if name else handler
        answer = self.server._answer(bound, request, options.get("data") or b"", _plan(kind), PROJECT)  # type: ignore[arg-type]
        body = answer.body
        match kind:
            case "truncated":
                body = body[: len(body) // 2]
            case "lost":
                raise aiohttp.ServerDisconnectedError
            case "lost-silently":
                await asyncio.sleep(20)
                raise TimeoutError
            case "kill":
                process.kill()
                raise aiohttp.ClientConnectionError("dead")
            case "shrunken":
                body = _shrunken(body)
        return Response(answer.status, body, {"Content-Type": answer.content_type, **answer.headers})


_NO_FAULT = Plan()
_PLANS = {
    "stale": Plan(stale=faults.STALE),
    "empty": Plan(spoil="empty_list"),
    "short": Plan(spoil="short_list"),
    "provision-error": Plan(provision_error=True),
}


def _plan(kind: str) -> Plan:
    return _PLANS.get(kind, _NO_FAULT)


def _shrunken(body: bytes) -> bytes:
    """Half of a listing that claims to be all: the cloud lies."""
    listing = msgspec.json.decode(body)
    if "items" not in listing:
        return body
    kept = listing["items"][: len(listing["items"]) // 2]
    return msgspec.json.encode({"items": kept, "total": len(kept), "next_page_token": None})


class _Call:
    """`async with session.request(...)`."""

    def __init__(self, work: Any) -> None:
        self._work = work

    async def __aenter__(self) -> Response:
        found: Response = await self._work
        return found

    async def __aexit__(self, *_: object) -> None:
        return None


class Session:
    """In the place of one process's `aiohttp.ClientSession`."""

    def __init__(self, cloud: InProcessCloud, process: Process) -> None:
        self._cloud, self._process = cloud, process

    def request(self, method: str, url: str, **options: Any) -> _Call:
        return _Call(self._cloud.serve(self._process, method, url.removeprefix("http://cloud"), options))

    async def close(self) -> None:
        return None
