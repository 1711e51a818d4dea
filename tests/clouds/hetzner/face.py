# SPDX-License-Identifier: Apache-2.0
"""A stand-in for Hetzner Cloud over HTTP: tokens, pages, rate limits, and failures on request.

It is our own code; `test_form.py` compares it with the published API description and the vendor's Python client.
"""

from __future__ import annotations

import contextlib
import json
import math
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from tests.clouds import stand_in
from tests.clouds.stand_in import Exchange, StandIn, answered, drop
from tests.listening import listening

from .facts import LOCATIONS, Refusal, Row
from .project import Project

TOKEN = "jEheVytlAoFl7F8MqUQ7jAo2hOXASztXjEheVytlAoFl7F8MqUQ7jAo2hOXASztX"
COLLECTIONS = ("servers", "networks", "load_balancers", "certificates")


@dataclass
class Fault(stand_in.Fault):
    method: str = ""
    path: str = ""
    status: int = 503
    code: str = "service_error"
    headers: dict[str, str] = field(default_factory=dict)

    def concerns(self, request: web.Request) -> bool:
        path, first_page = request.path.removeprefix("/v1"), request.query.get("page", "1") == "1"
        return self.method in ("", request.method) and self.due(self.path, path, first_page=first_page)


class Face(StandIn[Fault, Exchange]):
    def __init__(self, project: Project) -> None:
        super().__init__()
        self.project = project
        self.tokens = {TOKEN: "write"}

    # HTTP

    async def handle(self, request: web.Request) -> web.StreamResponse:
        fault = self.fault_for(lambda each: each.concerns(request))
        raw = await request.read()
        body = json.loads(raw) if raw else None
        if fault is not None and not fault.late and (answer := await _early(fault, request)) is not None:
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
                drop(request)
            return _error(fault.status, fault.code, "later", fault.headers)
        return answered(content, fault, status=status, headers=headers)

    def _keep(self, request: web.Request, body: Any, status: int, answer: Any) -> None:
        path = request.path.removeprefix("/v1")
        copied = json.loads(json.dumps(answer))
        self.exchanges.append(Exchange(request.method, path, dict(request.query), status, copied, body))

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


async def _early(fault: Fault, request: web.Request) -> web.Response | None:
    if fault.kind == "status":
        return _error(fault.status, fault.code, "on request", fault.headers)
    return await stand_in.instead(fault, fault.status, request)


def _error(status: int, code: str, message: str, headers: dict[str, str]) -> web.Response:
    text = json.dumps({"error": {"code": code, "message": message, "details": {}}})
    headers = {name: value.format(now=math.ceil(time.time())) for name, value in headers.items()}
    if "RateLimit-In" in headers:
        headers["RateLimit-Reset"] = str(round(time.time() + float(headers.pop("RateLimit-In"))))
    return web.Response(status=status, text=text, content_type="application/json", headers=headers)


@contextlib.asynccontextmanager
async def running(project: Project) -> AsyncIterator[Face]:
    face = Face(project)
    async with listening(web.route("*", "/v1/{path:.*}", face.handle)) as url:
        face.url = f"{url}/v1"
        yield face
