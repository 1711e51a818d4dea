# SPDX-License-Identifier: Apache-2.0
"""A stand-in for the Acme cloud, to try and test the provider: python acme_cloud.py [PORT]. Its state is in memory.

For a real cluster, let it listen on an address that the nodes can reach, and give it the addresses of the nodes:
python acme_cloud.py 9450 --listen 10.0.0.2 --server NODE=10.0.0.11 ... --balancer 10.0.0.200 ...
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import itertools
import json
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

from aiohttp import web

KEY = "acme-secret-key"
PAGE = 3

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def refused(status: int, code: str, **headers: str) -> web.Response:
    return web.json_response({"error": code}, status=status, headers=headers)


class Acme:
    """The state of the cloud. While `trouble` is set, this function answers all requests; its second argument is the
    original handler.

    A balancer is "active", "building" or "failed". A PUT makes it active, or building while `slow` is set.

    If there are `addresses`, which must be this machine's, each balancer gets one of them and forwards connections.
    Otherwise, a balancer is only recorded.
    """

    def __init__(self, addresses: Sequence[str] = ()) -> None:
        self.servers: dict[str, dict[str, Any]] = {}
        self.balancers: dict[str, dict[str, Any]] = {}
        self.trouble: Callable[[web.Request, Handler], Awaitable[web.StreamResponse]] | None = None
        self.slow = False
        self._numbers = itertools.count(1)
        self._carrier = Carrier() if addresses else None
        self._addresses = addresses or [f"203.0.113.{number}" for number in range(10, 255)]

    def add_server(self, hostname: str, private_ip: str = "") -> dict[str, Any]:
        number = next(self._numbers)
        server = {"id": f"srv-{number}", "hostname": hostname, "plan": "s1", "site": f"berlin-{number % 2 + 1}"}
        server["private_ip"] = private_ip or f"10.7.0.{number}"
        self.servers[server["id"]] = server | {"public_ip": "", "power": "on"}
        return self.servers[server["id"]]

    def application(self) -> web.Application:
        app = web.Application(middlewares=[self._guard])
        app.add_routes(
            [
                web.get("/account", self._account),
                web.get("/servers", self._list_servers),
                web.post("/servers", self._create_server),
                web.get("/servers/{id}", self._get_server),
                web.delete("/servers/{id}", self._delete_server),
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
        """Return a page of up to three servers; `hostname` is a prefix filter."""
        prefix, after = request.query.get("hostname", ""), request.query.get("after", "")
        rows = [row for row in self.servers.values() if row["hostname"].startswith(prefix)]
        start = int(after or 0)
        following = str(start + PAGE) if start + PAGE < len(rows) else None
        return web.json_response({"servers": rows[start : start + PAGE], "next": following, "count": len(rows)})

    async def _create_server(self, request: web.Request) -> web.Response:
        body = await request.json()
        return web.json_response(self.add_server(body["hostname"], body.get("private_ip", "")), status=201)

    async def _get_server(self, request: web.Request) -> web.Response:
        row = self.servers.get(request.match_info["id"])
        return web.json_response(row) if row else refused(404, "no_such_server")

    async def _delete_server(self, request: web.Request) -> web.Response:
        row = self.servers.pop(request.match_info["id"], None)
        return web.json_response({}) if row else refused(404, "no_such_server")

    async def _list_balancers(self, request: web.Request) -> web.Response:
        return web.json_response({"balancers": list(self.balancers.values())})

    async def _get_balancer(self, request: web.Request) -> web.Response:
        row = self.balancers.get(request.match_info["name"])
        return web.json_response(row) if row else refused(404, "no_such_balancer")

    async def _put_balancer(self, request: web.Request) -> web.Response:
        name, body = request.match_info["name"], await request.json()
        taken = {row["ip"] for row in self.balancers.values()}
        mine = self.balancers.get(name, {}).get("ip") or next((ip for ip in self._addresses if ip not in taken), None)
        if mine is None:
            return refused(422, "no_address_left")
        state = "building" if self.slow else "active"
        self.balancers[name] = {"name": name, "ip": mine, "state": state, **body}
        await self._carry()
        return web.json_response(self.balancers[name])

    async def _delete_balancer(self, request: web.Request) -> web.Response:
        row = self.balancers.pop(request.match_info["name"], None)
        await self._carry()
        return web.json_response({}) if row else refused(404, "no_such_balancer")

    async def _carry(self) -> None:
        if self._carrier is not None:
            await self._carrier.carry(self.balancers.values())


class Carrier:
    """Forwards connections from a balancer's address to its targets in turn; skips targets that do not accept."""

    def __init__(self) -> None:
        self._listening: dict[tuple[str, int], asyncio.Server] = {}
        #: (address, port) -> the port of the nodes, and their addresses.
        self._targets: dict[tuple[str, int], tuple[int, list[str]]] = {}
        self._turns = itertools.count()

    async def carry(self, balancers: Iterable[dict[str, Any]]) -> None:
        self._targets = {
            (row["ip"], port): (node_port, row["targets"]) for row in balancers for port, node_port in row["ports"]
        }
        for place in self._listening.keys() - self._targets.keys():
            self._listening.pop(place).close()
        for place in self._targets.keys() - self._listening.keys():
            self._listening[place] = await asyncio.start_server(functools.partial(self._serve, place), *place)

    async def _serve(self, place: tuple[str, int], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        node_port, targets = self._targets.get(place, (0, []))
        turn = next(self._turns) % max(len(targets), 1)
        for target in targets[turn:] + targets[:turn]:
            try:
                there = await asyncio.wait_for(asyncio.open_connection(target, node_port), 1)
            except (OSError, TimeoutError):
                continue
            await asyncio.gather(_copy(reader, there[1]), _copy(there[0], writer))
            there[1].close()
            break
        writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy one direction and pass on its end; the other direction continues."""
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.write_eof()
    except OSError:
        writer.close()


async def run(arguments: argparse.Namespace) -> None:
    cloud = Acme(arguments.balancer)
    for server in arguments.server or ("worker-1", "worker-2", "worker-3"):
        hostname, _, address = server.partition("=")
        cloud.add_server(hostname, address)
    runner = web.AppRunner(cloud.application())
    await runner.setup()
    await web.TCPSite(runner, arguments.listen, arguments.port).start()
    print(json.dumps({"url": f"http://{arguments.listen}:{arguments.port}", "key": KEY}), flush=True)
    await asyncio.Event().wait()


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(description="A stand-in for the Acme cloud.")
    options.add_argument("port", nargs="?", type=int, default=9450)
    options.add_argument("--listen", default="127.0.0.1", metavar="ADDRESS", help="listen here, default: %(default)s")
    options.add_argument("--server", action="append", metavar="NAME[=ADDRESS]", help="default: worker-1 to worker-3")
    options.add_argument(
        "--balancer", action="append", default=[], metavar="ADDRESS", help="use this local address for a balancer"
    )
    return options


if __name__ == "__main__":
    asyncio.run(run(parser().parse_args()))
