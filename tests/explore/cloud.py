# SPDX-License-Identifier: Apache-2.0
"""The simulated cloud (`ccm_simcloud`) without its sockets, behind the real provider `sim`.

`Session` replaces the provider's `aiohttp.ClientSession`. A call goes to the simulator's own handlers
(`Server._answer`), with the simulator's own faults (`ccm_simcloud.faults.Plan`).
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import aiohttp
import msgspec
from multidict import MultiDict

from ccm_simcloud import config as configuration
from ccm_simcloud.faults import Plan
from ccm_simcloud.model import Address, InstanceBody, InstancePatch
from ccm_simcloud.server import Server
from ccm_simcloud.world import Project

from . import faults
from .virtual_time import PART, WORLD

if TYPE_CHECKING:
    from .process import Process
    from .simulation import Simulation

#: The operation's name, the handler's name if it is a method of the simulator (else None), and the handler.
_Operation = tuple[str, str | None, Any]

PROJECT = "demo"
#: Seconds after which the provider gives up a request without an answer.
NO_ANSWER = 20.0
#: The names of the providers of a workload with two clouds. Behind both is the provider of the simulated cloud.
FIRST, SECOND = "sim", "static"


def _config(region: str, addresses: str) -> configuration.Config:
    return configuration.from_data(
        {
            "projects": [{"name": PROJECT, "token": "t", "region": region, "load_balancer_addresses": addresses}],
            "timing": {"load_balancer_create": 2.0, "load_balancer_update": 0.5, "load_balancer_delete": 1.0},
        }
    )


CONFIG = _config("north", "192.0.2.1-192.0.2.250")
CONFIGS = {FIRST: CONFIG, SECOND: _config("south", "198.51.100.1-198.51.100.250")}
#: Each cloud numbers its objects from here, so that no ID occurs in both clouds.
NUMBERS = {FIRST: 0, SECOND: 0x5000}
#: `listing_lag`: the provider declares that answers may be this stale. Wrong answers (empty or short listings) are
#: faults of their own.
CLOUD_CONF = f"""\
endpoint: http://cloud
project: demo
token: t
calls_per_second: 1000
burst: 1000
listing_lag: {faults.STALE:g}
"""


@functools.lru_cache(maxsize=4096)
def _shape(method: str, path: str) -> tuple[str, ...]:
    """Return the method and the parts of a path by which operations differ: projects, *, load-balancers, *, targets for
    /v1/projects/demo/load-balancers/lb-1/targets."""
    parts = path.strip("/").split("/")[1:]
    return (method, *(part if number % 2 == 0 else "*" for number, part in enumerate(parts)))


def _operations() -> dict[tuple[str, ...], _Operation]:
    """Return the simulator's own routes, by shape."""
    found: dict[tuple[str, ...], _Operation] = {}
    for route in Server(CONFIG).application().router.routes():
        arguments = getattr(route.handler, "args", ())
        if len(arguments) == 3 and route.resource is not None:
            operation, handler, _ = arguments
            name = handler.__name__ if hasattr(handler, "__self__") else None
            found[_shape(route.method, route.resource.canonical)] = (operation, name, handler)
    return found


OPERATIONS = _operations()


class _Request:
    """The parts of a request that `Server._answer` reads."""

    def __init__(self, method: str, path: str, options: dict[str, Any]) -> None:
        self.method, self.path, self.headers = method, path, options.get("headers", {})
        self.query = MultiDict(options.get("params") or ())
        self.data: bytes | None = options.get("data")
        self.part = PART.get()
        parts = path.strip("/").split("/")
        self.match_info = {"project": PROJECT, "id": parts[4] if len(parts) > 4 else ""}


class Response:
    def __init__(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.status, self._body, self.headers = status, body, headers

    async def read(self) -> bytes:
        return self._body


def _refusal(status: int, code: str) -> Response:
    body = msgspec.json.encode({"error": {"code": code, "message": "simulated, about this object"}})
    return Response(status, body, {"Content-Type": "application/json"})


#: How the cloud refuses the changes of one Service; `failure` is an error of the cloud that only this object has.
REFUSALS = {
    "invalid": _refusal(422, "invalid"),
    "conflict": _refusal(409, "conflict"),
    "quota": _refusal(403, "quota_exceeded"),
    "failure": _refusal(500, "internal"),
}


class InProcessCloud:
    def __init__(self, simulation: Simulation, name: str = FIRST) -> None:
        self.simulation, self.name = simulation, name
        self.server = Server(CONFIGS[name])
        self.server.world._number = NUMBERS[name]
        self.point = "cloud" if name == FIRST else f"cloud@{name}"
        self.server.world._clock = lambda: simulation.loop.now
        self.down_until = self.stale_until = self.throttled_until = 0.0
        #: UID of a Service -> the refusal of changes of its load balancer. Changes of its targets succeed.
        self.refused: dict[str, str] = {}
        #: UID of a Service -> the seconds by which its requests are delayed.
        self.slow: dict[str, float] = {}
        #: Groups of operations that fail.
        self.broken: set[str] = set()
        #: Until when the instances of another project are shown, and that project.
        self.elsewhere_until = 0.0
        self._elsewhere: Project | None = None

    def about(self, operation: str, request: _Request) -> str:
        """Return the UID of the Service whose load balancer a request reads or writes, "" for other requests."""
        if not operation.startswith("load_balancers."):
            return ""
        if request.match_info["id"]:
            row = self.server.world.projects[PROJECT].load_balancers.rows.get(request.match_info["id"])
            return row.tags.get("service_uid", "") if row is not None else ""
        if request.data:
            return str(msgspec.json.decode(request.data).get("tags", {}).get("service_uid", ""))
        return next((tag[12:] for tag in request.query.getall("tag", ()) if tag.startswith("service_uid:")), "")

    @property
    def project(self) -> Project:
        self.server.world.tick()
        return self.server.world.projects[PROJECT]

    def go_down(self, seconds: float) -> None:
        self.down_until = self.simulation.loop.now + seconds

    def show_another(self, seconds: float, names: Iterable[str], state: str) -> None:
        """Show the instances of another project, as credentials of another tenant do. `names`: the names of that
        project's machines, which all have this state."""
        world = Server(CONFIG).world
        world._number = 1_000_000  # projects share no IDs
        self.show(world.projects[PROJECT], seconds)
        for number, name in enumerate(names, 1):
            address = Address("InternalIP", f"10.9.0.{number}")
            made = world.projects[PROJECT].create_instance(
                InstanceBody(name=name, zone="north-1", addresses=(address,))
            )
            world.projects[PROJECT].change_instance(made.id, InstancePatch(state=state))

    def show(self, project: Project, seconds: float) -> None:
        """Show the instances of `project` instead of the cloud's own for this many seconds."""
        self._elsewhere, self.elsewhere_until = project, self.simulation.loop.now + seconds

    def serve(self, process: Process, method: str, path: str, options: dict[str, Any]) -> asyncio.Future[Response]:
        """Carry out a request that was sent, even if the process no longer waits for the answer."""
        loop, answer = self.simulation.loop, self.simulation.loop.create_future()
        if not process.alive:
            answer.set_exception(aiohttp.ClientConnectionError("dead"))
            return answer
        call = OPERATIONS[_shape(method, path)]
        kind = self.simulation.reach(f"{self.point} {call[0]}", process)
        request = _Request(method, path, options)
        due = loop.now + self.simulation.latency()
        if self.slow:
            due += self.slow.get(self.about(call[0], request), 0.0)
        loop.call_at(due, self._arrive, answer, kind, process, call, request, context=WORLD)
        return answer

    def _arrive(
        self, answer: asyncio.Future[Response], kind: str, process: Process, call: _Operation, request: _Request
    ) -> None:
        try:
            response = self._with(kind, process, call, request)
        except Exception as error:
            if not answer.done():
                answer.set_exception(error)
        else:
            if response is None:
                self.simulation.loop.call_later(NO_ANSWER, _time_out, answer, context=WORLD)
            elif not answer.done():
                answer.set_result(response)

    def _with(self, kind: str, process: Process, call: _Operation, request: _Request) -> Response | None:
        """Return the answer, or what a fault of this kind makes of the answer; None if there is no answer."""
        now = self.simulation.loop.now
        if now < self.down_until:
            raise aiohttp.ClientConnectionError("simulated: no connection")
        if not kind and now < self.throttled_until:
            kind = "throttled"
        elif not kind and now < self.stale_until and request.method == "GET":
            kind = "stale"
        match kind:
            case "error":
                return Response(500, b"<html>simulated</html>", {"Content-Type": "text/html"})
            case "throttled":
                return Response(429, b'{"error":{"code":"rate_limited","message":"simulated"}}', {"Retry-After": "3"})
            case "hang":
                return None
            case "kill-before":
                process.kill()
                raise aiohttp.ClientConnectionError("dead")
        operation, name, handler = call
        if self.broken and operation.partition(".")[0] in self.broken:
            return Response(503, b"<html>simulated</html>", {"Content-Type": "text/html"})
        is_change = operation in ("load_balancers.create", "load_balancers.update")
        if self.refused and is_change and (how := self.refused.get(self.about(operation, request))):
            return REFUSALS[how]
        self.simulation.checks.before_cloud(process, operation, request, self)
        bound = getattr(self.server, name) if name else handler
        projects, own = self.server.world.projects, self.server.world.projects[PROJECT]
        self.server.world.tick()  # before another project takes the place of ours: what is due belongs to ours
        if now < self.elsewhere_until and self._elsewhere is not None and operation.startswith("instances."):
            projects[PROJECT] = self._elsewhere
        answer = self.server._answer(bound, request, request.data or b"", _plan(kind), PROJECT)  # type: ignore[arg-type]
        body = answer.body
        if (shown := projects[PROJECT]) is not own:  # the provider makes providerIDs of the region
            body = body.replace(f'"region":"{shown.region}"'.encode(), f'"region":"{own.region}"'.encode())
            projects[PROJECT] = own
        match kind:
            case "truncated":
                body = body[: len(body) // 2]
            case "lost":
                raise aiohttp.ServerDisconnectedError
            case "lost-silently":
                return None
            case "kill":
                process.kill()
                raise aiohttp.ClientConnectionError("dead")
            case "shrunken":
                body = _shrunken(body)
        return Response(answer.status, body, {"Content-Type": answer.content_type, **answer.headers})


def _time_out(answer: asyncio.Future[Response]) -> None:
    """End a request without an answer, as the client's own timeout does."""
    if not answer.done():
        answer.set_exception(TimeoutError())


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
    """Return half of a listing as if it were the whole listing. Other answers are returned unchanged."""
    listing = msgspec.json.decode(body)
    if "items" not in listing:
        return body
    kept = listing["items"][: len(listing["items"]) // 2]
    return msgspec.json.encode({"items": kept, "total": len(kept), "next_page_token": None})


class _Call:
    """The context manager of `async with session.request(...)`."""

    def __init__(self, answer: asyncio.Future[Response]) -> None:
        self._answer = answer

    async def __aenter__(self) -> Response:
        return await self._answer

    async def __aexit__(self, *_: object) -> None:
        return None


class Session:
    """Replaces the `aiohttp.ClientSession` of one process."""

    def __init__(self, cloud: InProcessCloud, process: Process) -> None:
        self._cloud, self._process = cloud, process

    def request(self, method: str, url: str, **options: Any) -> _Call:
        return _Call(self._cloud.serve(self._process, method, url.removeprefix("http://cloud"), options))

    async def close(self) -> None:
        return None
