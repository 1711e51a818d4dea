# SPDX-License-Identifier: Apache-2.0
"""``python -m rig.proxy``: a proxy in front of every service; it counts calls, and breaks them on demand.

keystone's catalog sends clients to the proxy's ports. The services call one another directly, so the proxy counts and
breaks only clients' calls. It is controlled at the control port (`rig.control` is the client):

- GET /calls returns the journal, which has service, method, path template, query, status and user of each call.
  DELETE /calls empties the journal.
- POST /faults adds a `Fault`. DELETE /faults removes all of them.

With ?user=NAME, each of these requests leaves alone the calls, or the faults, of other users.
"""

from __future__ import annotations

import asyncio
import fnmatch
import json
import re
import ssl
from dataclasses import asdict, dataclass, field
from typing import Any

from aiohttp import ClientSession, ClientTimeout, DummyCookieJar, TCPConnector, web
from multidict import CIMultiDict
from yarl import URL

from rig import authority
from rig.places import LOOPBACK, SERVICES, TLS, Ports, recorded

HANG_SECONDS = 3600.0
HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "te", "trailer", "upgrade"}
OURS = {*HOP_BY_HOP, "x-forwarded-proto"}  # headers that the proxy does not pass on from the client
_ID = re.compile(r"^([0-9a-f]{32}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})$")
_VERSION = re.compile(r"^v\d+(\.\d+)?$")


@dataclass
class Call:
    """A request. `path`: its path as a template (see `template`). `status`: the answer's status; 0 if no complete
    answer was sent. `user`: who logged in for it, with a password; "" if unknown.
    """

    service: str
    method: str
    path: str
    query: str
    status: int
    user: str = ""


@dataclass
class Fault:
    """What happens to calls that match.

    `path` is a pattern for templates (``/servers/*``), `query` one for what follows the question mark, and `user` one
    for who asks. The first
    `skip` matching calls pass, then `times` calls are broken (None: all). With `status`, the client gets this status
    with `headers` and `body`. Otherwise `kind` says what happens:

        hang      no answer at all
        drop      the connection is closed
        truncate  half of the real answer's bytes
        half      half of the real answer's list, as if it were complete
        slow      the real answer, `seconds` late

    With `late` the service carries the call out before the client gets the error.
    """

    service: str = "*"
    method: str = "*"
    path: str = "*"
    query: str = "*"
    user: str = "*"
    status: int = 0
    kind: str = "status"
    headers: dict[str, str] = field(default_factory=dict)
    body: str = "{}"
    times: int | None = None
    skip: int = 0
    seconds: float = 0.0
    late: bool = False

    def takes(self, call: Call) -> bool:
        """Return whether to break this call. A matching call uses up one of `skip`, then one of `times`."""
        pairs = [(getattr(call, name), getattr(self, name)) for name in _NAMES]
        if self.times == 0 or not all(fnmatch.fnmatchcase(value, pattern) for value, pattern in pairs):
            return False
        if self.skip:
            self.skip -= 1
            return False
        if self.times is not None:
            self.times -= 1
        return True


#: What a fault compares of a call.
_NAMES = ("service", "method", "path", "query", "user")


def template(path: str) -> str:
    """Return ``/servers/{id}`` for ``/v2.1/servers/5a6f...``, without the prefixes of octavia and neutron."""
    parts = [part for part in path.split("/") if part]
    if parts and _VERSION.match(parts[0]):
        parts = parts[1:]
    if parts and parts[0] == "lbaas":
        parts = parts[1:]
    return "/" + "/".join("{id}" if _ID.match(part) else part for part in parts)


class Proxy:
    def __init__(self, ports: Ports) -> None:
        self.ports = ports
        self.calls: list[Call] = []
        self.faults: list[Fault] = []
        self._users: dict[str, str] = {}  # by token

    async def serve(self, context: ssl.SSLContext | None = None) -> None:
        """Serve until cancelled. `context`: TLS for clients; the control port has none."""
        connector = TCPConnector(limit=0)
        options: dict[str, Any] = {"auto_decompress": False, "cookie_jar": DummyCookieJar()}
        async with ClientSession(connector=connector, timeout=ClientTimeout(total=None), **options) as self._session:
            for service in SERVICES:
                routes = [web.route("*", "/{path:.*}", self._handler(service))]
                await _listen(self.ports.public(service), routes, self.ports.address, context)
            await _listen(
                self.ports.control,
                [
                    web.get("/calls", self._get_calls),
                    web.delete("/calls", self._forget_calls),
                    web.post("/faults", self._add_fault),
                    web.delete("/faults", self._end_faults),
                ],
            )
            await asyncio.Event().wait()

    def _handler(self, service: str) -> Any:
        async def handle(request: web.Request) -> web.StreamResponse:
            call = Call(service, request.method, template(request.path), request.query_string, 0)
            logs_in = (service, call.method, call.path) == ("identity", "POST", "/auth/tokens")
            token = request.headers.get("X-Auth-Token", "")
            call.user = _user_in(await request.read()) if logs_in else self._users.get(token, "")
            self.calls.append(call)
            fault = next((fault for fault in self.faults if fault.takes(call)), None)
            answer = await (self._pass(request, service) if fault is None else self._break(request, service, fault))
            if logs_in and (token := answer.headers.get("X-Subject-Token", "")):
                self._users[token] = call.user
            gone = request.transport is None or request.transport.is_closing()
            call.status = 0 if gone else answer.status
            return answer

        return handle

    async def _pass(self, request: web.Request, service: str) -> web.Response:
        # Keep the client's Host header: the services use it in their links.
        url = URL(f"http://127.0.0.1:{self.ports.behind(service)}{request.raw_path}", encoded=True)
        headers = {name: value for name, value in request.headers.items() if name.lower() not in OURS}
        headers["X-Forwarded-Proto"] = request.scheme
        body = await request.read() or None  # aiohttp would send a Content-Type with b"", which nova refuses
        try:
            asked = self._session.request(request.method, url, headers=headers, data=body, allow_redirects=False)
            async with asked as answer:
                kept = [(name, value) for name, value in answer.headers.items() if name.lower() not in HOP_BY_HOP]
                content = await answer.read()
                return web.Response(status=answer.status, headers=CIMultiDict(kept), body=content)
        except OSError as error:
            return web.json_response({"error": {"message": f"{service}: {error}"}}, status=502)

    async def _break(self, request: web.Request, service: str, fault: Fault) -> web.StreamResponse:
        await asyncio.sleep(fault.seconds)
        if fault.status:
            if fault.late:
                await self._pass(request, service)
            headers = {"Content-Type": "application/json", **fault.headers}
            return web.Response(status=fault.status, headers=headers, text=fault.body)
        if fault.kind == "slow":
            return await self._pass(request, service)
        if fault.kind == "half":
            return _half_of_the_list(await self._pass(request, service))
        answer = await self._pass(request, service) if fault.late or fault.kind == "truncate" else None
        if fault.kind == "hang":
            await asyncio.sleep(HANG_SECONDS)
        if fault.kind == "truncate" and answer is not None:
            await _half(request, answer)
        if request.transport is not None:
            request.transport.abort()
        return web.Response(status=500)

    async def _get_calls(self, request: web.Request) -> web.Response:
        return web.json_response([asdict(call) for call in self.calls if _concerns(request, call)])

    async def _forget_calls(self, request: web.Request) -> web.Response:
        self.calls = [call for call in self.calls if not _concerns(request, call)]
        return web.Response(status=204)

    async def _add_fault(self, request: web.Request) -> web.Response:
        try:
            self.faults.append(Fault(**await request.json()))
        except (TypeError, ValueError) as error:
            return web.Response(status=400, text=str(error))
        return web.Response(status=204)

    async def _end_faults(self, request: web.Request) -> web.Response:
        self.faults = [fault for fault in self.faults if not _concerns(request, fault)]
        return web.Response(status=204)


def _user_in(body: bytes) -> str:
    """Return the user's name in a login with a password; "" in any other."""
    try:
        return str(json.loads(body)["auth"]["identity"]["password"]["user"]["name"])
    except (ValueError, LookupError, TypeError):
        return ""


def _concerns(request: web.Request, what: Call | Fault) -> bool:
    return request.query.get("user", what.user) == what.user


async def _half(request: web.Request, answer: web.Response) -> None:
    """Send the length of the whole answer, but only half of its bytes."""
    content = answer.body if isinstance(answer.body, bytes) else b""
    response = web.StreamResponse(status=answer.status, headers=answer.headers)
    response.content_length = len(content)
    await response.prepare(request)
    await response.write(content[: len(content) // 2])


def _half_of_the_list(answer: web.Response) -> web.Response:
    """Return a well-formed answer with half of the list and without a next page, as if the service saw only a part."""
    content = json.loads(answer.body) if isinstance(answer.body, bytes) else {}
    halved = {name: rows[: len(rows) // 2] for name, rows in content.items() if not name.endswith("_links")}
    return web.json_response(halved, status=answer.status)


async def _listen(
    port: int, routes: list[web.RouteDef], address: str = LOOPBACK, context: ssl.SSLContext | None = None
) -> None:
    application = web.Application(client_max_size=64 * 2**20)
    application.add_routes(routes)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, address, port, ssl_context=context).start()


def main() -> None:
    ports = recorded().ports
    asyncio.run(Proxy(ports).serve(authority.server(TLS, ports.address) if ports.tls else None))


if __name__ == "__main__":
    main()
