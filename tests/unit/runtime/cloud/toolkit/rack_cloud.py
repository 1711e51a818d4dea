# SPDX-License-Identifier: Apache-2.0
"""A machine rental company's API on loopback, and the failures that the kit can cause in it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from collections.abc import AsyncIterator
from typing import Any

from aiohttp import web

from ccm.conformance import NotRun, Trouble, World
from tests.listening import listening

TOKEN = "rack-secret-token"


def refused(status: int, code: str, **headers: str) -> web.Response:
    return web.json_response({"error": {"code": code, "message": "said the cloud"}}, status=status, headers=headers)


class RackApi:
    def __init__(self, machines: int = 5) -> None:
        self.machines: dict[int, dict[str, Any]] = {}
        self.trouble: Trouble | None = None
        self.asked: list[str] = []
        self._numbers = itertools.count(1)
        for number in range(machines):
            self.add(f"worker-{number}")

    def add(self, hostname: str) -> None:
        number = next(self._numbers)
        self.machines[number] = {
            "number": number,
            "hostname": hostname,
            "plan": "m2",
            "room": f"r{number % 2}",
            "site": "oslo",
            "private_ips": [f"10.1.0.{number}"],
            "public_ips": [f"198.51.100.{number}"] if number % 2 else [],
            "power": "on",
            "agent": number != 3,
            "labels": {"customer": "us"},
        }

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(f"{request.method} {request.path_qs}")
        answer = self._trouble() or self._answer(request)
        if self.trouble is Trouble.HANG:
            await asyncio.Event().wait()
        if self.trouble is Trouble.CUT_ANSWER:
            assert isinstance(answer.body, bytes)
            return web.Response(body=answer.body[: len(answer.body) // 2], content_type="application/json")
        return answer

    def _trouble(self) -> web.Response | None:
        match self.trouble:
            case Trouble.SERVER_ERROR:
                return refused(503, "maintenance")
            case Trouble.PROXY_PAGE:
                return web.Response(status=404, text="<html>404</html>", content_type="text/html")
            case Trouble.UNAUTHORIZED:
                return refused(401, "token_expired")
            case Trouble.RATE_LIMITED:
                return refused(429, "slow_down", **{"Retry-After": f"{World.RETRY_AFTER:.0f}"})
        return None

    def _answer(self, request: web.Request) -> web.Response:
        if request.headers.get("X-Rack-Token") != TOKEN:
            return refused(401, "wrong_token")
        if request.path == "/account":
            return web.json_response({"name": "us"})
        if request.path == "/machines":
            return self._list(request.query)
        number = request.path.removeprefix("/machines/")
        row = self.machines.get(int(number)) if number.isdigit() else None
        return web.json_response(row) if row else refused(404, "no_such_machine")

    def _list(self, query: Any) -> web.Response:
        """Return a page of machines. The parameter `hostname` selects all whose name begins with its value."""
        rows = [row for row in self.machines.values() if row["hostname"].startswith(query.get("hostname", ""))]
        size, page = int(query["per_page"]), int(query.get("page", 1))
        more = str(page + 1) if page * size < len(rows) else None
        shown = rows[(page - 1) * size : page * size]
        if self.trouble is Trouble.LATER_PAGE and page > 1:
            return refused(503, "maintenance")
        if self.trouble is Trouble.SHORT_LISTING:
            shown, more = shown[: len(shown) // 2], None
        body = {"machines": shown, "meta": {"next": more, "total": len(rows)}}
        return web.Response(text=json.dumps(body), content_type="application/json")


@contextlib.asynccontextmanager
async def running(cloud: RackApi) -> AsyncIterator[str]:
    """Serve the API while entered. Yields its URL."""
    async with listening(web.route("*", "/{path:.*}", cloud.handle), cancels=True) as url:
        yield url


class RackWorld(World):
    asking = frozenset({"instances"})

    def __init__(self, cloud: RackApi) -> None:
        self._cloud = cloud

    @contextlib.asynccontextmanager
    async def trouble(self, kind: Trouble) -> AsyncIterator[None]:
        if "load balancer" in kind.value:
            raise NotRun(kind.value)
        self._cloud.trouble = kind
        try:
            yield
        finally:
            self._cloud.trouble = None

    async def create_instance(self, name: str) -> None:
        self._cloud.add(name)

    async def delete_instance(self, provider_id: str) -> None:
        self._cloud.machines.pop(self._number(provider_id), None)

    async def stop_instance(self, provider_id: str) -> None:
        self._cloud.machines[self._number(provider_id)]["power"] = "off"

    async def untag_instance(self, provider_id: str) -> None:
        self._cloud.machines[self._number(provider_id)]["labels"].clear()

    def _number(self, provider_id: str) -> int:
        return int(provider_id.rpartition("/")[2])
