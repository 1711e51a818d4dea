# SPDX-License-Identifier: Apache-2.0
"""The Hetzner-shaped cloud over HTTP: tokens, pages, limits, and failures on request. It counts and keeps all calls.

It is our own code, held against the published API description and the vendor's Python client (`test_form.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import re
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from .facts import LOCATIONS, Refusal, Row
from .project import Project

TOKEN = "jEheVytlAoFl7F8MqUQ7jAo2hOXASztXjEheVytlAoFl7F8MqUQ7jAo2hOXASztX"
COLLECTIONS = ("servers", "networks", "load_balancers", "certificates")


@dataclass
class Fault:
    """`kind`: status, html, truncate, half (of a listing), hang, drop (the connection). `late`: after the call had its
    effect. `times`: how often, -1 for always. `later`: only later pages of listings."""

    kind: str
    method: str = ""
    path: str = ""
    status: int = 503
    code: str = "service_error"
    headers: dict[str, str] = field(default_factory=dict)
    late: bool = False
    times: int = -1
    later: bool = False

    def meets(self, request: web.Request) -> bool:
        path = request.path.removeprefix("/v1")
        if self.later and request.query.get("page", "1") == "1":
            return False
        met = self.times != 0 and self.method in ("", request.method) and re.fullmatch(self.path or ".*", path)
        if met:
            self.times -= 1
        return bool(met)


@dataclass
class Exchange:
    """One call, for checks of its form."""

    method: str
    path: str
    query: dict[str, str]
    body: Any
    status: int
    answer: Any

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


class Face:
    def __init__(self, project: Project) -> None:
        self.project = project
        self.faults: list[Fault] = []
        self.exchanges: list[Exchange] = []
        self.url = ""
        self.tokens = {TOKEN: "write"}

    def calls(self, since: int = 0) -> list[str]:
        return [str(each) for each in self.exchanges[since:]]

    @contextlib.contextmanager
    def fault(self, fault: Fault) -> Any:
        self.faults.append(fault)
        try:
            yield
        finally:
            self.faults.remove(fault)

    # HTTP

    async def handle(self, request: web.Request) -> web.StreamResponse:
        fault = next((each for each in self.faults if each.meets(request)), None)
        raw = await request.read()
        body = json.loads(raw) if raw else None
        if fault is not None and not fault.late and (answer := await self._early(fault)) is not None:
            self._keep(request, body, answer.status, None)
            return answer
        status, content = self._answer(request, body)
        if fault is not None and fault.kind == "half" and isinstance(content, dict):
            content = {key: rows[: len(rows) // 2] if isinstance(rows, list) else rows for key, rows in content.items()}
        self._keep(request, body, status, content)
        headers = {
            "RateLimit-Limit": str(self.project.limit),
            "RateLimit-Remaining": str(self.project.remaining),
            "RateLimit-Reset": str(math.ceil(time.time()) + self.project.limit - self.project.remaining),
        }
        if fault is not None and fault.late:
            if fault.kind == "drop":
                assert request.transport is not None
                request.transport.close()
            return _error(fault.status, fault.code, "later", fault.headers)
        text = "" if content is None else json.dumps(content)
        if fault is not None and fault.kind == "truncate":
            text = text[: len(text) // 2]
        return web.Response(status=status, text=text, content_type="application/json", headers=headers)

    async def _early(self, fault: Fault) -> web.Response | None:
        match fault.kind:
            case "status":
                return _error(fault.status, fault.code, "on request", fault.headers)
            case "html":
                return web.Response(status=fault.status, text="<html>no</html>", content_type="text/html")
            case "hang":
                await asyncio.sleep(3600)
        return None

    def _keep(self, request: web.Request, body: Any, status: int, answer: Any) -> None:
        path = request.path.removeprefix("/v1")
        copied = json.loads(json.dumps(answer))
        self.exchanges.append(Exchange(request.method, path, dict(request.query), body, status, copied))

    def _answer(self, request: web.Request, body: Any) -> tuple[int, Any]:
        try:
            token = request.headers.get("Authorization", "").removeprefix("Bearer ")
            if token not in self.tokens:
                raise Refusal(401, "unauthorized", "unable to authenticate")
            if self.tokens[token] == "read" and request.method != "GET":
                raise Refusal(403, "token_readonly", "the token may only read")
            if self.project.remaining <= 0:
                raise Refusal(429, "rate_limit_exceeded", "limit of 3600 requests per hour reached")
            self.project.remaining -= 1
            parts = request.path.removeprefix("/v1").strip("/").split("/")
            return self._route(request.method, parts, request, body or {})
        except Refusal as refusal:
            details = {"fields": [{"name": name, "messages": [text]} for name, text in refusal.fields.items()]}
            error = {"code": refusal.code, "message": refusal.message, "details": details if refusal.fields else {}}
            return refusal.status, {"error": error}

    # Paths

    def _route(self, method: str, parts: list[str], request: web.Request, body: Row) -> tuple[int, Any]:
        match method, parts:
            case "GET", ["locations"]:
                return 200, self._page("locations", [Project.location(name) for name in LOCATIONS], request)
            case "GET", ["load_balancer_types"]:
                rows = [Project.balancer_type(name) for name in ("lb11", "lb21", "lb31")]
                return 200, self._page("load_balancer_types", rows, request)
            case "GET", [name] if name in COLLECTIONS:
                return 200, self._page(name, list(getattr(self.project, name).values()), request)
            case "POST", ["load_balancers"]:
                row, action = self.project.create_load_balancer(body)
                return 201, {"load_balancer": row, "action": action}
            case "POST", ["certificates"]:
                row = self.project.create_certificate(body)
                return 201, {"certificate": row, "action": self.project.start("create_certificate", "certificate", row)}
            case "DELETE", ["certificates", number]:
                del self.project.certificates[self._row("certificates", number)["id"]]
                return 204, None
            case "GET", ["actions", number]:
                return 200, {"action": self._action(number)}
            case "GET", ["actions"]:
                rows = [self._action(number) for number in request.query.getall("id")]
                return 200, {"actions": rows}
            case "GET", [name, number] if name in COLLECTIONS:
                return 200, {name.removesuffix("s"): self._row(name, number)}
            case "GET", ["load_balancers", number, "actions"]:
                return 200, self._page("actions", self.project.actions_of("load_balancer", int(number)), request)
            case "PUT", ["load_balancers", number]:
                row = self._row("load_balancers", number)
                return 200, {"load_balancer": self.project.change_load_balancer(row, body)}
            case "DELETE", ["load_balancers", number]:
                self.project.delete_load_balancer(self._row("load_balancers", number))
                return 204, None
            case "POST", ["load_balancers", number, "actions", command]:
                return 201, {"action": self.project.act(self._row("load_balancers", number), command, body)}
            case "POST", ["networks", number, "actions", "add_route" | "delete_route" as command]:
                return 201, {"action": getattr(self.project, command)(self._row("networks", number), body)}
        raise Refusal(404, "not_found", f"no such path: {request.path}")

    def _row(self, name: str, number: str) -> Row:
        found = getattr(self.project, name).get(int(number)) if number.isdigit() else None
        if found is None:
            raise Refusal(404, "not_found", f"{name.removesuffix('s')} with ID '{number}' not found")
        return dict(found) if name == "servers" else found

    def _action(self, number: str) -> Row:
        action = next((each for each in self.project.actions if each["id"] == int(number)), None)
        if action is None:
            raise Refusal(404, "not_found", "action not found")
        resource = action["resources"][0]
        found = self.project.actions_of(resource["type"], resource["id"])
        return next(each for each in found if each["id"] == action["id"])

    def _page(self, name: str, rows: list[Row], request: web.Request) -> Row:
        query = request.query
        if "name" in query:
            rows = [row for row in rows if row["name"] == query["name"]]
        if selector := query.get("label_selector", ""):
            key, _, value = selector.partition("=")
            rows = [row for row in rows if row["labels"].get(key) == value]
        size = min(int(query.get("per_page", 25)), self.project.page_limit)
        page = int(query.get("page", 1))
        last = max(1, math.ceil(len(rows) / size))
        pagination = {
            "page": page,
            "per_page": size,
            "previous_page": page - 1 if page > 1 else None,
            "next_page": page + 1 if page < last else None,
            "last_page": last,
            "total_entries": len(rows),
        }
        return {name: rows[(page - 1) * size : page * size], "meta": {"pagination": pagination}}


def _error(status: int, code: str, message: str, headers: dict[str, str]) -> web.Response:
    text = json.dumps({"error": {"code": code, "message": message, "details": {}}})
    headers = {name: value.format(now=math.ceil(time.time())) for name, value in headers.items()}
    if "RateLimit-In" in headers:
        headers["RateLimit-Reset"] = str(round(time.time() + float(headers.pop("RateLimit-In"))))
    return web.Response(status=status, text=text, content_type="application/json", headers=headers)


@contextlib.asynccontextmanager
async def running(project: Project) -> AsyncIterator[Face]:
    face = Face(project)
    app = web.Application()
    app.router.add_route("*", "/v1/{path:.*}", face.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    assert site._server is not None
    face.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    try:
        yield face
    finally:
        await runner.cleanup()
