# SPDX-License-Identifier: Apache-2.0
"""A stand-in for the Acme cloud, to try the provider and to test it: python acme_cloud.py [PORT]. Nothing is kept."""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

KEY = "acme-secret-key"
PAGE = 3

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def refused(status: int, code: str, **headers: str) -> web.Response:
    return web.json_response({"error": code}, status=status, headers=headers)


class Acme:
    """The cloud's state. `trouble` answers instead of it while it is set; it is given what the answer would be."""

    def __init__(self) -> None:
        self.servers: dict[str, dict[str, Any]] = {}
        self.balancers: dict[str, dict[str, Any]] = {}
        self.trouble: Callable[[web.Request, Handler], Awaitable[web.StreamResponse]] | None = None
        self._numbers = itertools.count(1)
        self._addresses = itertools.count(10)

    def add_server(self, hostname: str) -> dict[str, Any]:
        number = next(self._numbers)
        server = {"id": f"srv-{number}", "hostname": hostname, "plan": "s1", "site": f"berlin-{number % 2 + 1}"}
        self.servers[server["id"]] = server | {"private_ip": f"10.7.0.{number}", "public_ip": "", "power": "on"}
        return self.servers[server["id"]]

    def application(self) -> web.Application:
        app = web.Application(middlewares=[self._guard])
        app.add_routes(
            [
                web.get("/account", self._account),
                web.get("/servers", self._list_servers),
                web.post("/servers", self._create_server),
                web.get("/servers/{id}", self._get_server),
                web.get("/balancers", self._list_balancers),
                web.get("/balancers/{name}", self._get_balancer),
                web.put("/balancers/{name}", self._put_balancer),
                web.delete("/balancers/{name}", self._delete_balancer),
            ]
        )
        return app

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if self.trouble is not None:
            return await self.trouble(request, handler)
        if request.headers.get("X-Acme-Key") != KEY:
            return refused(401, "wrong_key")
        return await handler(request)

    async def _account(self, request: web.Request) -> web.Response:
        return web.json_response({"name": "example"})

    async def _list_servers(self, request: web.Request) -> web.Response:
        """Pages of three; `hostname` finds all that begin so."""
        prefix, after = request.query.get("hostname", ""), request.query.get("after", "")
        rows = [row for row in self.servers.values() if row["hostname"].startswith(prefix)]
        start = int(after or 0)
        following = str(start + PAGE) if start + PAGE < len(rows) else None
        return web.json_response({"servers": rows[start : start + PAGE], "next": following, "count": len(rows)})

    async def _create_server(self, request: web.Request) -> web.Response:
        return web.json_response(self.add_server((await request.json())["hostname"]), status=201)

    async def _get_server(self, request: web.Request) -> web.Response:
        row = self.servers.get(request.match_info["id"])
        return web.json_response(row) if row else refused(404, "no_such_server")

    async def _list_balancers(self, request: web.Request) -> web.Response:
        return web.json_response({"balancers": list(self.balancers.values())})

    async def _get_balancer(self, request: web.Request) -> web.Response:
        row = self.balancers.get(request.match_info["name"])
        return web.json_response(row) if row else refused(404, "no_such_balancer")

    async def _put_balancer(self, request: web.Request) -> web.Response:
        name, body = request.match_info["name"], await request.json()
        ip = self.balancers[name]["ip"] if name in self.balancers else f"203.0.113.{next(self._addresses)}"
        self.balancers[name] = {"name": name, "ip": ip, **body}
        return web.json_response(self.balancers[name])

    async def _delete_balancer(self, request: web.Request) -> web.Response:
        row = self.balancers.pop(request.match_info["name"], None)
        return web.json_response({}) if row else refused(404, "no_such_balancer")


async def run(port: int) -> None:
    cloud = Acme()
    for number in range(1, 4):
        cloud.add_server(f"worker-{number}")
    runner = web.AppRunner(cloud.application())
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    print(json.dumps({"url": f"http://127.0.0.1:{port}", "key": KEY}), flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(run(int(sys.argv[1]) if sys.argv[1:] else 9450))
