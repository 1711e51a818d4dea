# SPDX-License-Identifier: Apache-2.0
"""The HTTP server of the simulated cloud: its API under /v1, its admin API under /admin.

Every operation under /v1 goes through `Server._serve`, which adds it to the journal, and applies faults and latency.
Then, except for /v1/tokens, come credentials, the rate limit, and a `Handler` that turns a `Call` into an `Answer`.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeVar

import msgspec
from aiohttp import web
from msgspec import Meta, Struct

from . import strict
from .config import Config, Quota, Timing
from .faults import Bucket, FaultBook, Plan, Rule
from .journal import Journal
from .model import (
    InstanceBody,
    InstancePatch,
    LabelsBody,
    LoadBalancerBody,
    LoadBalancerPatch,
    RouteBody,
    TargetsBody,
    VolumeBody,
)
from .storage import Storage
from .world import Project, Refusal, Table, World

T = TypeVar("T")
log = logging.getLogger("ccm_simcloud")

#: The answer of a proxy in front of a cloud.
HTML = b"<html><head><title>%d</title></head><body><h1>%d</h1><hr>gateway</body></html>"
#: How long an unanswered call is held if the rule does not set a time, in seconds.
FOREVER = 3600.0


@dataclass
class Answer:
    status: int
    body: bytes = b""
    content_type: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)

    def response(self) -> web.Response:
        headers = {**self.headers, "Content-Type": self.content_type} if self.body else self.headers
        return web.Response(status=self.status, body=self.body, headers=headers)


@dataclass(frozen=True)
class Call:
    """An authenticated call. `ids` are the variable parts of the path."""

    project: Project
    ids: Mapping[str, str]
    query: Mapping[str, str]
    tags: Mapping[str, str]
    raw: bytes
    plan: Plan
    now: float

    def body(self, type_: type[T]) -> T:
        return _decode(self.raw, type_)

    def read(self, table: Table[Any]) -> Table[Any]:
        """Return the table as this call sees it: an eventually consistent cloud shows an older one."""
        return table.as_of(self.now - self.plan.stale) if self.plan.stale else table


Handler = Callable[[Call], Answer]


class Server:
    """The cloud and its APIs. `application()` returns the aiohttp application."""

    def __init__(self, config: Config, state: str | None = None) -> None:
        self.world = World(config, Storage(state))
        self.journal = Journal()
        self.faults = FaultBook()
        self.faults.add(config.faults.rules)
        self.latency = config.timing.latency
        self._static = {project.token: project.name for project in config.projects}
        self._issued: dict[str, tuple[str, float]] = {}
        limits = config.limits
        self._buckets = {
            name: Bucket(limits.calls_per_second, limits.burst) if limits.calls_per_second else None
            for name in self.world.projects
        }
        self._changed = asyncio.Event()
        self.world.subscribe(self._changed.set)

    # Life cycle

    def application(self) -> web.Application:
        application = web.Application(client_max_size=64 * 2**20)
        application.cleanup_ctx.append(self._run_clock)

        def serve(method: str, path: str, operation: str, handler: Handler) -> None:
            write = method != "GET"
            application.router.add_route(method, path, functools.partial(self._serve, operation, handler, write))

        project = "/v1/projects/{project}"
        serve("GET", project, "project.get", get_project)
        serve("GET", f"{project}/quotas", "quotas.list", get_quotas)
        serve("GET", f"{project}/instances", "instances.list", self._list_instances)
        serve("POST", f"{project}/instances", "instances.create", create_instance)
        serve("GET", f"{project}/instances/{{id}}", "instances.get", get_instance)
        serve("PUT", f"{project}/instances/{{id}}", "instances.replace", replace_instance)
        serve("PATCH", f"{project}/instances/{{id}}", "instances.update", patch_instance)
        serve("POST", f"{project}/instances/{{id}}/labels", "instances.add_labels", add_labels)
        serve("DELETE", f"{project}/instances/{{id}}", "instances.delete", delete_instance)
        serve("GET", f"{project}/load-balancers", "load_balancers.list", self._list_load_balancers)
        serve("POST", f"{project}/load-balancers", "load_balancers.create", create_load_balancer)
        serve("GET", f"{project}/load-balancers/{{id}}", "load_balancers.get", get_load_balancer)
        serve("PATCH", f"{project}/load-balancers/{{id}}", "load_balancers.update", patch_load_balancer)
        serve("PUT", f"{project}/load-balancers/{{id}}/targets", "load_balancers.set_targets", set_targets)
        serve("DELETE", f"{project}/load-balancers/{{id}}", "load_balancers.delete", delete_load_balancer)
        serve("GET", f"{project}/routes", "routes.list", self._list_routes)
        serve("POST", f"{project}/routes", "routes.create", create_route)
        serve("DELETE", f"{project}/routes/{{id}}", "routes.delete", delete_route)
        serve("GET", f"{project}/volumes", "volumes.list", self._list_volumes)
        serve("POST", f"{project}/volumes", "volumes.create", create_volume)
        serve("GET", f"{project}/volumes/{{id}}", "volumes.get", get_volume)
        serve("DELETE", f"{project}/volumes/{{id}}", "volumes.delete", delete_volume)
        application.router.add_post("/v1/tokens", functools.partial(self._serve, "tokens.create", None, True))

        application.router.add_get("/healthz", self._healthz)
        admin = application.router
        admin.add_get("/admin/faults", self._get_faults)
        admin.add_post("/admin/faults", self._add_faults)
        admin.add_delete("/admin/faults", self._clear_faults)
        admin.add_delete("/admin/faults/{id}", self._remove_fault)
        admin.add_get("/admin/journal", self._get_journal)
        admin.add_get("/admin/journal/summary", self._get_summary)
        admin.add_delete("/admin/journal", self._clear_journal)
        admin.add_get("/admin/timing", self._get_timing)
        admin.add_patch("/admin/timing", self._change_timing)
        admin.add_patch("/admin/quotas", self._change_quotas)
        admin.add_post("/admin/clock/advance", self._advance_clock)
        admin.add_delete("/admin/tokens", self._expire_tokens)
        admin.add_put("/admin/projects/{project}/token", self._rotate_token)
        admin.add_post("/admin/projects/{project}/load-balancers/{id}/break", self._break_load_balancer)
        application.router.add_route("*", "/{rest:.*}", self._unknown)
        return application

    async def _run_clock(self, _: web.Application) -> Any:
        task = asyncio.create_task(self._tick(), name="simcloud: clock")
        yield
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        self.world.close()

    async def _tick(self) -> None:
        """Finish the work of the cloud when it is due, until cancelled."""
        while True:
            self._changed.clear()
            self.world.tick()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.world.next_due()):
                    await self._changed.wait()

    # One call

    async def _serve(
        self, operation: str, handler: Handler | None, write: bool, request: web.Request
    ) -> web.StreamResponse:
        project = request.match_info.get("project", "")
        entry = self.journal.begin(request.method, request.path_qs, operation, project, write)
        started = time.monotonic()
        try:
            plan = self.faults.plan(request.method, request.path_qs, operation, project)
            entry.faults = plan.ids
            if self.latency or plan.delay:
                await asyncio.sleep(self.latency + plan.delay)
            if plan.fatal is None or plan.fatal.after_effect:
                answer = self._answer(handler, request, await request.read(), plan, project)
                if plan.spoil == "truncate":
                    answer.body = answer.body[: len(answer.body) // 2]
            if plan.fatal is not None:
                answer = await self._fail(request, plan.fatal)
            entry.status = answer.status
            return answer.response()
        finally:
            entry.duration = time.monotonic() - started
            log.debug("%s %s %s: %d", entry.method, entry.path, operation, entry.status)

    async def _fail(self, request: web.Request, rule: Rule) -> Answer:
        """Return the answer of a rule in place of the real one. An answer with status 0 is never sent."""
        if rule.action == "timeout":
            await asyncio.sleep(FOREVER if rule.seconds is None else rule.seconds)
        if rule.action in ("timeout", "hang_up"):
            if request.transport is not None:
                request.transport.abort()
            return Answer(0)
        if rule.action == "rate_limit":
            return _refused(
                Refusal(429, "rate_limited", "too many calls (simulated)", retry_after=rule.retry_after or 1.0)
            )
        if rule.body == "html":
            return Answer(rule.status, HTML % (rule.status, rule.status), "text/html")
        return _refused(Refusal(rule.status, rule.code, rule.message, retry_after=rule.retry_after))

    def _answer(self, handler: Handler | None, request: web.Request, raw: bytes, plan: Plan, name: str) -> Answer:
        try:
            self.world.tick()
            if handler is None:
                return self._issue_token(raw)
            project = self._authenticate(request.headers.get("Authorization", ""), name)
            bucket = self._buckets[name]
            if bucket is not None and (wait := bucket.take()):
                raise Refusal(429, "rate_limited", f"project {name}: too many calls", retry_after=wait)
            tags = dict(_tag(text) for text in request.query.getall("tag", []))
            call = Call(project, request.match_info, request.query, tags, raw, plan, self.world.now())
            return handler(call)
        except Refusal as refusal:
            return _refused(refusal)
        except strict.Invalid as invalid:
            return _refused(Refusal(400, "invalid", str(invalid)))
        except Exception:
            log.exception("%s %s", request.method, request.path)
            return _refused(Refusal(500, "internal", "the simulator failed; see its log"))

    # Credentials

    def _issue_token(self, raw: bytes) -> Answer:
        body = _decode(raw, TokenBody)
        if self._static.get(body.token) != body.project:
            raise Refusal(401, "unauthorized", f"the token is not valid for project {body.project!r}")
        token, lifetime, now = secrets.token_urlsafe(24), self.world.timing.token_lifetime, self.world.now()
        self._issued = {key: value for key, value in self._issued.items() if value[1] > now}
        self._issued[token] = (body.project, now + lifetime)
        return _json(201, {"access_token": token, "expires_in": lifetime})

    def _authenticate(self, header: str, name: str) -> Project:
        scheme, _, token = header.partition(" ")
        if scheme != "Bearer" or not token:
            raise Refusal(401, "unauthorized", "the header `Authorization: Bearer TOKEN` is missing")
        known = self._static.get(token)
        if known is None and token in self._issued:
            known, expires = self._issued[token]
            if expires <= self.world.now():
                raise Refusal(401, "token_expired", "the access token has expired: get a new one from /v1/tokens")
        if known is None:
            raise Refusal(401, "unauthorized", "the token is unknown")
        if known != name:
            raise Refusal(403, "forbidden", f"the token is not for project {name!r}")
        return self.world.projects[name]

    # Listings

    def _list_instances(self, call: Call) -> Answer:
        table = call.read(call.project.instances)
        if name := call.query.get("name"):
            return self._page(call, table, [row.id for row in table.rows.values() if row.name == name])
        return self._page(call, table)

    def _list_load_balancers(self, call: Call) -> Answer:
        table = call.read(call.project.load_balancers)
        name = call.query.get("name")
        wanted = call.tags.items()
        return self._page(
            call,
            table,
            [row.id for row in table.rows.values() if name in (None, row.name) and wanted <= row.tags.items()],
        )

    def _list_routes(self, call: Call) -> Answer:
        return self._page(call, call.read(call.project.routes))

    def _list_volumes(self, call: Call) -> Answer:
        return self._page(call, call.read(call.project.volumes))

    def _page(self, call: Call, table: Table[Any], selected: list[str] | None = None) -> Answer:
        """Return one page of the table, or of the selected ids. The page token is the last id of the previous page.
        Raises Refusal for an invalid page size."""
        largest = self.world.limits.page_size
        try:
            size = min(int(call.query.get("page_size", largest)), largest)
        except ValueError:
            size = 0
        if size < 1:
            raise Refusal(400, "invalid", f"page_size: {call.query['page_size']!r} is not a number from 1 to {largest}")
        ids = table.ids if selected is None else sorted(selected)
        token = call.query.get("page_token", "")
        start = table.after(token) if selected is None else sum(1 for id_ in ids if id_ <= token)
        page, total = ids[start : start + size], len(ids)
        following = page[-1] if page and start + size < total else None
        if call.plan.spoil == "empty_list":
            page, total, following = [], 0, None
        elif call.plan.spoil == "short_list":
            page, following = page[: len(page) // 2], None
        items = b",".join(map(table.encoded.__getitem__, page))
        rest = msgspec.json.encode({"total": total, "next_page_token": following})
        return Answer(200, b'{"items":[' + items + b"]," + rest[1:])

    # Admin

    async def _healthz(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _unknown(self, request: web.Request) -> web.Response:
        self.journal.begin(request.method, request.path_qs, "unknown", "", request.method != "GET").status = 404
        return _refused(
            Refusal(404, "no_such_operation", f"{request.method} {request.path} is not an operation of this cloud")
        ).response()

    async def _get_faults(self, _: web.Request) -> web.Response:
        rules = [
            {"id": active.id, "hits": active.hits, "rule": msgspec.to_builtins(active.rule)}
            for active in self.faults.active.values()
        ]
        return _json(200, {"rules": rules}).response()

    async def _add_faults(self, request: web.Request) -> web.Response:
        """Add one rule, or a list of rules."""

        def add(raw: bytes) -> Answer:
            data = _parse(raw)
            if not isinstance(data, list):
                return _json(201, {"ids": self.faults.add([strict.convert(data, Rule, "")])})
            return _json(201, {"ids": self.faults.add(strict.convert(data, tuple[Rule, ...], "rules"))})

        return _guarded(add, await request.read())

    async def _clear_faults(self, _: web.Request) -> web.Response:
        self.faults.clear()
        return Answer(204).response()

    async def _remove_fault(self, request: web.Request) -> web.Response:
        if self.faults.active.pop(request.match_info["id"], None) is None:
            return _refused(
                Refusal(404, "fault_not_found", f"fault {request.match_info['id']} is not active")
            ).response()
        return Answer(204).response()

    async def _get_journal(self, request: web.Request) -> web.Response:
        query = request.query
        since = query.get("since", "0")
        if not since.isdigit():
            return _refused(Refusal(400, "invalid", f"since: {since!r} is not a sequence number")).response()
        entries = self.journal.select(
            operation=query.get("operation", ""),
            project=query.get("project", ""),
            since=int(since),
            writes=query.get("writes", "") in ("1", "true"),
        )
        return _json(200, {"items": entries, "total": len(entries), "last": self.journal.sequence}).response()

    async def _get_summary(self, _: web.Request) -> web.Response:
        counts = dict(sorted(self.journal.counts.items()))
        return _json(200, {"calls": sum(counts.values()), "operations": counts}).response()

    async def _clear_journal(self, _: web.Request) -> web.Response:
        self.journal.clear()
        return Answer(204).response()

    async def _get_timing(self, _: web.Request) -> web.Response:
        return _json(200, self.timing).response()

    @property
    def timing(self) -> Timing:
        return msgspec.structs.replace(self.world.timing, latency=self.latency)

    @timing.setter
    def timing(self, timing: Timing) -> None:
        self.world.timing, self.latency = timing, timing.latency

    async def _change_timing(self, request: web.Request) -> web.Response:
        """Change only the given times, and answer with all of them."""

        def change(raw: bytes) -> Answer:
            given = _parse(raw)
            merged = {**msgspec.to_builtins(self.timing), **given} if isinstance(given, dict) else given
            self.timing = strict.convert(merged, Timing, "")
            return _json(200, self.timing)

        return _guarded(change, await request.read())

    async def _change_quotas(self, request: web.Request) -> web.Response:
        """Change only the given quotas, for all projects, and answer with all of them."""

        def change(raw: bytes) -> Answer:
            limits = self.world.limits
            given = _parse(raw)
            now = {name: getattr(limits, name) for name in QuotaBody.__struct_fields__}
            body = strict.convert({**now, **given} if isinstance(given, dict) else given, QuotaBody, "")
            self.world.limits = msgspec.structs.replace(limits, **msgspec.structs.asdict(body))
            return _json(200, body)

        return _guarded(change, await request.read())

    async def _advance_clock(self, request: web.Request) -> web.Response:
        def advance(raw: bytes) -> Answer:
            self.world.advance(_decode(raw, AdvanceBody).seconds)
            return _json(200, {"now": self.world.now()})

        return _guarded(advance, await request.read())

    def expire_tokens(self) -> None:
        """Reject all access tokens issued so far."""
        self._issued = {token: (project, 0.0) for token, (project, _) in self._issued.items()}

    def rotate_token(self, project: str, token: str) -> None:
        """Replace the token of the project with `token`: the previous one and all access tokens are rejected."""
        self._static = {known: name for known, name in self._static.items() if name != project} | {token: project}
        self.expire_tokens()

    async def _expire_tokens(self, _: web.Request) -> web.Response:
        self.expire_tokens()
        return Answer(204).response()

    async def _rotate_token(self, request: web.Request) -> web.Response:
        name = request.match_info["project"]

        def rotate(raw: bytes) -> Answer:
            if name not in self.world.projects:
                raise Refusal(404, "project_not_found", f"project {name!r} does not exist")
            self.rotate_token(name, _decode(raw, RotateBody).token)
            return Answer(204)

        return _guarded(rotate, await request.read())

    async def _break_load_balancer(self, request: web.Request) -> web.Response:
        name, id_ = request.match_info["project"], request.match_info["id"]

        def break_it(_: bytes) -> Answer:
            if name not in self.world.projects:
                raise Refusal(404, "project_not_found", f"project {name!r} does not exist")
            return _json(200, self.world.projects[name].break_load_balancer(id_, "broken by the admin"))

        return _guarded(break_it, b"")


class TokenBody(Struct, frozen=True):
    project: str
    token: str


class RotateBody(Struct, frozen=True):
    token: Annotated[str, Meta(min_length=1)]


class QuotaBody(Struct, frozen=True):
    """The quotas to set, with the meaning that they have in `Limits`."""

    instances: Quota | None = None
    load_balancers: Quota | None = None
    routes: Quota | None = None
    volumes: Quota | None = None


class AdvanceBody(Struct, frozen=True):
    seconds: float

    def __post_init__(self) -> None:
        if self.seconds < 0:
            raise ValueError("seconds: must not be negative, time only moves forward")


def get_project(call: Call) -> Answer:
    project = call.project
    mode = project.config.load_balancer_mode
    return _json(200, {"name": project.name, "region": project.region, "load_balancer_mode": mode})


def create_instance(call: Call) -> Answer:
    return _json(201, call.project.create_instance(call.body(InstanceBody)))


def get_instance(call: Call) -> Answer:
    return _json(200, call.read(call.project.instances).get(call.ids["id"]))


def replace_instance(call: Call) -> Answer:
    return _json(200, call.project.change_instance(call.ids["id"], call.body(InstanceBody)))


def patch_instance(call: Call) -> Answer:
    return _json(200, call.project.change_instance(call.ids["id"], call.body(InstancePatch)))


def add_labels(call: Call) -> Answer:
    return _json(200, call.project.add_labels(call.ids["id"], call.body(LabelsBody).labels))


def delete_instance(call: Call) -> Answer:
    call.project.delete_instance(call.ids["id"])
    return Answer(204)


def create_load_balancer(call: Call) -> Answer:
    body = call.body(LoadBalancerBody)
    return _json(201, call.project.create_load_balancer(body, fails=call.plan.provision_error))


def get_load_balancer(call: Call) -> Answer:
    return _json(200, call.read(call.project.load_balancers).get(call.ids["id"]))


def patch_load_balancer(call: Call) -> Answer:
    body = call.body(LoadBalancerPatch)
    return _json(200, call.project.change_load_balancer(call.ids["id"], body, fails=call.plan.provision_error))


def set_targets(call: Call) -> Answer:
    body = call.body(TargetsBody)
    return _json(200, call.project.change_load_balancer(call.ids["id"], body, fails=call.plan.provision_error))


def delete_load_balancer(call: Call) -> Answer:
    row = call.project.delete_load_balancer(call.ids["id"])
    return _json(202, row) if row is not None else Answer(204)


def get_quotas(call: Call) -> Answer:
    return _json(200, {"items": call.project.quotas()})


def create_route(call: Call) -> Answer:
    return _json(201, call.project.create_route(call.body(RouteBody)))


def delete_route(call: Call) -> Answer:
    call.project.delete_route(call.ids["id"])
    return Answer(204)


def create_volume(call: Call) -> Answer:
    return _json(201, call.project.create_volume(call.body(VolumeBody)))


def get_volume(call: Call) -> Answer:
    return _json(200, call.read(call.project.volumes).get(call.ids["id"]))


def delete_volume(call: Call) -> Answer:
    call.project.delete_volume(call.ids["id"])
    return Answer(204)


def _tag(text: str) -> tuple[str, str]:
    key, colon, value = text.partition(":")
    if not colon:
        raise Refusal(400, "invalid", f"tag: {text!r} is not KEY:VALUE")
    return key, value


def _parse(raw: bytes) -> Any:
    try:
        return msgspec.json.decode(raw)
    except msgspec.DecodeError as error:
        raise strict.Invalid([f"the body is not JSON: {error}"]) from None


def _decode(raw: bytes, type_: type[T]) -> T:
    return strict.convert(_parse(raw), type_, "")


def _json(status: int, value: Any) -> Answer:
    return Answer(status, msgspec.json.encode(value))


def _refused(refusal: Refusal) -> Answer:
    answer = _json(refusal.status, {"error": {"code": refusal.code, "message": refusal.message}})
    if refusal.retry_after is not None:
        answer.headers["Retry-After"] = f"{refusal.retry_after:.3f}".rstrip("0").rstrip(".")
    return answer


def _guarded(function: Callable[[bytes], Answer], raw: bytes) -> web.Response:
    """Return the answer of `function` to the body `raw` of an admin call; a Refusal and an Invalid become answers."""
    try:
        return function(raw).response()
    except Refusal as refusal:
        return _refused(refusal).response()
    except strict.Invalid as invalid:
        return _refused(Refusal(400, "invalid", str(invalid))).response()
