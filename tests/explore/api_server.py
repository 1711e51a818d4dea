# SPDX-License-Identifier: Apache-2.0
"""An API server that is called where `KubeClient` would call aiohttp, so everything above aiohttp is the real code.

`connections.Session` replaces `aiohttp.ClientSession`. The server has the semantics of the real one on which the
runtime relies: optimistic concurrency, preconditions, the status subresource, finalizers (`tests/kube_store.py`),
watches that send bookmarks and end after a time, 410 after a compaction. `faults` lists what may go wrong.
"""

from __future__ import annotations

import asyncio
import functools
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING, Any

import aiohttp
import msgspec
from yarl import URL

from tests.kube_store import Change, Document, Refusal, Store, named

from . import faults
from .virtual_time import PART, WORLD

if TYPE_CHECKING:
    from .process import Process
    from .simulation import Simulation

_encode = msgspec.json.encode
JSON = {"Content-Type": "application/json"}
#: Seconds between two bookmarks of a watch.
BOOKMARKS = 60.0
#: Seconds from a watch's last bookmark to its end.
LAST_BOOKMARK = 2.0


class Response:
    def __init__(self, status: int, body: bytes, headers: Mapping[str, str] = JSON, stream: Any = None) -> None:
        self.status, self._body, self.headers, self.content = status, body, headers, stream
        self.content_type = headers.get("Content-Type", "application/octet-stream")

    async def read(self) -> bytes:
        return self._body

    async def __aenter__(self) -> Response:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self.content is not None:
            self.content.close()


def refused(status: int, reason: str, message: str, *, retry_after: str = "") -> Response:
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": status}
    headers = {**JSON, "Retry-After": retry_after} if retry_after else JSON
    return Response(status, _encode({**body, "reason": reason, "message": message}), headers)


def unreachable() -> Exception:
    return aiohttp.ClientConnectionError("connection refused")


def hung_up() -> Exception:
    return aiohttp.ServerDisconnectedError()


class Request:
    """The parts of a request. `key` is "" for a collection."""

    def __init__(self, method: str, url: URL, data: bytes | None, headers: list[tuple[str, str]]) -> None:
        self.namespace, self.resource, self.key, self.status = named(url.raw_path)
        self.query: Mapping[str, str] = url.query if url.raw_query_string else {}
        self.only_name = self.query.get("fieldSelector", "").removeprefix("metadata.name=")
        self.verb = "WATCH" if "watch" in self.query else "LIST" if method == "GET" and not self.key else method
        self.body: Document = msgspec.json.decode(data) if data else {}
        self.part = PART.get()
        self.is_strategic = any(name == "Content-Type" and "strategic" in value for name, value in headers)

    @property
    def what(self) -> str:
        if self.resource == "events":
            return f"{self.verb} events"  # Events: their names are random
        end = "/status" if self.status else ""
        name = self.key or (self.body.get("metadata", {}).get("name", "") if self.verb == "POST" else "")
        return f"{self.verb} {self.resource}{'/' + name if name else ''}{end}"

    def selects(self, document: Document) -> bool:
        meta = document["metadata"]
        return (not self.namespace or meta.get("namespace") == self.namespace) and (
            not self.only_name or meta["name"] == self.only_name
        )


class ApiServer:
    """The API server. `store`: the true cluster. `shown`: the cluster that answers at the address now, which may be
    another one for a while."""

    def __init__(self, simulation: Simulation, store: Store) -> None:
        self.simulation = simulation
        self.store = self.shown = store
        self.streams: list[Stream] = []
        self.down_until = self.paused_until = self.throttled_until = self.behind_until = self.behind_since = 0.0
        self.spoil_next_list: dict[str, str] = {}
        #: An older state of this cluster, from a backup, and when it started and stopped answering.
        self.restored: Store | None = None
        self._restored_since = self._restored_until = 0.0
        store.listeners.append(functools.partial(self._on_change, store))

    # Faults of the whole server

    def go_down(self, seconds: float) -> None:
        self.down_until = self._now() + seconds
        self.break_streams()

    def pause(self, seconds: float) -> None:
        self.paused_until = self._now() + seconds

    def fall_behind(self, seconds: float) -> None:
        """Let reads come from a replica that lags: they show an older state, and watches show nothing new."""
        self.behind_since, self.behind_until = self._now() - faults.STALE, self._now() + seconds
        self.break_streams()

    def become(self, other: Store, seconds: float) -> None:
        """Let another cluster, or another state of this one, answer for a while. Watches break at both changes."""
        self.shown = other
        other.listeners.append(functools.partial(self._on_change, other))
        self.break_streams()
        self.simulation.loop.call_later(seconds, self._come_back, other, context=WORLD)

    def restore(self, older: Store, seconds: float) -> None:
        """Let an older state of this cluster answer for a while."""
        self.restored, self._restored_since, self._restored_until = older, self._now(), self._now() + seconds
        self.become(older, seconds)

    def was_restored(self, moment: float) -> bool:
        return self._restored_since <= moment < self._restored_until + faults.AFTERWARDS

    @property
    def restored_now(self) -> Store | None:
        """Return the restored etcd while it answers, and while writes may still be based on its content; else None."""
        return self.restored if self.was_restored(self._now()) else None

    def make_list_again(self, spoilt: str) -> None:
        """End all watches, so that everything is listed again. The next lists of Nodes and of Services are wrong."""
        self.spoil_next_list = {"nodes": spoilt, "services": spoilt}
        self.shown.compact()
        self.break_streams()

    def _come_back(self, other: Store) -> None:
        if self.shown is other:
            self.shown = self.store
            self.store.compact()  # a resourceVersion of another cluster means nothing here
            self.break_streams()

    @property
    def is_genuine(self) -> bool:
        return self.shown is self.store

    def break_streams(self) -> None:
        for stream in list(self.streams):
            stream.break_off()

    def _correct_lists(self) -> None:
        """Make the readers of a wrong list read it again, because nothing else would ever correct them."""
        self.shown.compact()
        self.break_streams()

    def _on_change(self, store: Store, change: Change) -> None:
        for stream in list(self.streams):
            if stream.store is store:
                stream.offer(change)

    def _now(self) -> float:
        return self.simulation.loop.now

    # One request

    def serve(self, process: Process, request: Request, read_timeout: float | None) -> asyncio.Future[Response]:
        """Carry out a request that was sent, even if the process no longer waits for the answer."""
        loop, answer = self.simulation.loop, self.simulation.loop.create_future()
        if not process.alive:
            answer.set_exception(unreachable())
            return answer
        kind = ""
        if request.resource != "events":
            kind = self.simulation.reach(f"api {request.what}", process)
        due = loop.now + self.simulation.latency()
        loop.call_at(due, self._arrive, answer, kind, process, request, read_timeout, context=WORLD)
        return answer

    def _arrive(
        self,
        answer: asyncio.Future[Response],
        kind: str,
        process: Process,
        request: Request,
        read_timeout: float | None,
    ) -> None:
        now = self._now()
        if now < self.paused_until:
            loop = self.simulation.loop
            loop.call_at(self.paused_until, self._arrive, answer, kind, process, request, read_timeout, context=WORLD)
            return
        try:
            if now < self.down_until:
                raise unreachable()
            if not kind and now < self.throttled_until:
                kind = "throttled"
            response = self._with(kind, process, request, read_timeout)
        except Exception as error:
            if not answer.done():
                answer.set_exception(error)
        else:
            if response is not None and not answer.done():
                answer.set_result(response)

    def _with(self, kind: str, process: Process, request: Request, read_timeout: float | None) -> Response | None:
        """Return the answer, or what a fault of this kind makes of the answer; None if no answer ever comes."""
        match kind:
            case "":
                return self._answer(process, request, kind, read_timeout)
            case "error":
                return refused(500, "InternalError", "simulated: etcdserver: request timed out")
            case "throttled":
                return refused(429, "TooManyRequests", "simulated", retry_after="2")
            case "hang":
                return None
            case "kill-before":
                process.kill()
                raise unreachable()
            case "late":
                loop = self.simulation.loop
                loop.call_later(faults.LATE, self._answer, process, request, "late", None, context=WORLD)
                return None
            case "conflict":
                self.shown.touch(request.resource, request.key)
            case "gone" if request.verb == "WATCH":
                return refused(410, "Expired", "simulated: too old resource version")
        response = self._answer(process, request, kind, read_timeout)
        match kind:
            case "lost":
                raise hung_up()
            case "lost-silently":
                return None
            case "kill":
                process.kill()
                raise unreachable()
        return response

    def _answer(self, process: Process, request: Request, kind: str, read_timeout: float | None) -> Response:
        try:
            if kind != "late":  # a late request was sent in time, when its process still led
                self.simulation.checks.before_api(process, request, self)
            return self._do(process, request, kind, read_timeout)
        except Refusal as refusal:
            return refused(refusal.status, refusal.reason, str(refusal))

    def _do(self, process: Process, request: Request, kind: str, read_timeout: float | None) -> Response:
        store, resource, key = self.shown, request.resource, request.key
        if resource == "events":
            self.simulation.checks.hear(request)
            return _metadata({"metadata": {"name": "event", "resourceVersion": str(store.version)}})
        match request.verb:
            case "GET":
                seen_at = self._seen_at(kind)
                table = None if seen_at is None else store.as_of(resource, seen_at)[0]
                if table is not None and key not in table:
                    raise Refusal(404, "NotFound", f'{resource} "{key}" not found')
                return Response(200, _encode(table[key] if table is not None else store.get(resource, key)))
            case "LIST":
                return self._list(process, request, kind)
            case "WATCH":
                return self._watch(process, request, read_timeout)
            case "POST":
                body = request.body
                if request.namespace:
                    body = {**body, "metadata": {"namespace": request.namespace, **body["metadata"]}}
                return _metadata(store.create(resource, body), 201)
            case "PATCH":
                done = store.patch(
                    resource, key, request.body, is_strategic=request.is_strategic, status=request.status
                )
                return _metadata(done)
            case "DELETE":
                conditions = request.body.get("preconditions", {})
                store.delete(resource, key, version=conditions.get("resourceVersion"), uid=conditions.get("uid"))
                return _metadata({"metadata": {}})
        raise Refusal(405, "MethodNotAllowed", request.verb)

    def _seen_at(self, kind: str) -> float | None:
        """Return the moment whose state a read shows; None for the present."""
        if kind == "stale":
            return self._now() - faults.STALE
        return self.behind_since if self._now() < self.behind_until else None

    def _list(self, process: Process, request: Request, kind: str) -> Response:
        kind = self.spoil_next_list.pop(request.resource, kind)
        seen_at = self._seen_at(kind)
        is_right = self.is_genuine and kind not in ("empty", "shrunken") and seen_at is None
        process.first_list_right.setdefault(request.resource, is_right)
        if seen_at is not None:
            table, version = self.shown.as_of(request.resource, seen_at)
        else:
            table, version = self.shown.table(request.resource), self.shown.version
        items = [each for each in table.values() if request.selects(each)]
        if kind in ("empty", "shrunken"):
            items = items[-max(1, len(items) // 4) :] if kind == "shrunken" else []
            self.simulation.loop.call_later(faults.WRONG_FOR, self._correct_lists, context=WORLD)
        return Response(200, _encode({"metadata": {"resourceVersion": str(version)}, "items": items}))

    def _watch(self, process: Process, request: Request, read_timeout: float | None) -> Response:
        version = int(request.query.get("resourceVersion", "0"))
        stream = Stream(self, process, request, read_timeout or 90.0)
        self.streams.append(stream)
        if version < self.shown.compacted or version > self.shown.version:
            stream.refuse(f"too old resource version: {version} ({self.shown.compacted})")
            return Response(200, b"", JSON, stream)
        for change in self.shown.since(request.resource, version):
            stream.offer(change)
        return Response(200, b"", JSON, stream)


def _metadata(document: Document, status: int = 200) -> Response:
    """Return the answer to a write: only the metadata, as the client requests."""
    return Response(status, _encode({"metadata": document["metadata"]}))


def _expired(message: str) -> bytes:
    status = {"kind": "Status", "code": 410, "reason": "Expired", "message": message}
    return _encode({"type": "ERROR", "object": status}) + b"\n"


class Stream:
    """The body of a watch."""

    def __init__(self, server: ApiServer, process: Process, request: Request, read_timeout: float) -> None:
        self._server, self._process, self._request, self._read_timeout = server, process, request, read_timeout
        self.store = server.shown
        self._lines: deque[tuple[float, bytes]] = deque()
        self._error: Callable[[], Exception] | None = None
        self._lag, self._silent = 0.0, False
        self._wake: asyncio.Future[None] | None = None
        self._ends = server._now() + float(request.query.get("timeoutSeconds", "400"))

    def offer(self, change: Change) -> None:
        """Send a change to this watch if the watch is for the changed object, unless a fault is due."""
        if change.resource != self._request.resource or self._error is not None:
            return
        narrow = self._request.only_name or self._request.namespace
        if narrow and not self._request.selects(msgspec.json.decode(change.line)["object"]):
            return
        server, line = self._server, change.line
        kind = server.simulation.reach(f"api EVENT {change.resource}", self._process)
        match kind:
            case "cut":
                self.break_off()
            case "gone" | "gone-then-empty" | "gone-then-shrunken":
                server.shown.compact()
                if kind != "gone":
                    server.spoil_next_list[change.resource] = kind.removeprefix("gone-then-")
                line = _expired("simulated: compacted")
            case "skipped":  # the event is lost; later all readers must list again
                server.simulation.loop.call_later(faults.WRONG_FOR, server._correct_lists, context=WORLD)
                return
            case "lag":
                self._lag = faults.LAG
            case "silent":
                self.fall_silent()
        due = max(server._now(), server.behind_until) + server.simulation.latency() + self._lag
        self._lines.append((max(due, self._lines[-1][0]) if self._lines else due, line))
        self._wake_up()

    def refuse(self, message: str) -> None:
        """End this watch with an error as its only event."""
        self._lines.append((self._server._now(), _expired(message)))
        self._ends = self._server._now()

    def break_off(self) -> None:
        self._error = lambda: aiohttp.ClientPayloadError("simulated: the connection broke")
        self._wake_up()

    def fall_silent(self) -> None:
        self._silent = True
        self._wake_up()

    def close(self) -> None:
        if self in self._server.streams:
            self._server.streams.remove(self)

    def _wake_up(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    async def iter_any(self) -> AsyncIterator[bytes]:
        loop = self._server.simulation.loop
        heard, bookmark = loop.now, min(loop.now + BOOKMARKS, self._ends - LAST_BOOKMARK)
        while True:
            now = loop.now
            if self._error is not None:
                raise self._error()
            if not self._process.alive:
                raise unreachable()
            if self._silent or now < self._server.paused_until:
                due = heard + self._read_timeout if self._silent else self._server.paused_until
                if self._silent and now >= due:
                    raise aiohttp.ServerTimeoutError("simulated: silence")
            elif self._lines and self._lines[0][0] <= now:
                ready = []
                while self._lines and self._lines[0][0] <= now:
                    ready.append(self._lines.popleft()[1])
                heard = now
                yield b"".join(ready)
                continue
            elif now >= self._ends:
                return
            elif now >= bookmark and not self._lines:
                heard, bookmark = now, now + BOOKMARKS
                if bookmark > (last := self._ends - LAST_BOOKMARK) > now:
                    bookmark = last
                version = str(self._server.shown.version)
                yield _encode({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": version}}}) + b"\n"
                continue
            else:
                due = min(self._ends, self._lines[0][0] if self._lines else bookmark)
            self._wake = loop.create_future()
            timer = loop.call_at(due, self._wake_up)
            try:
                await self._wake
            finally:
                timer.cancel()


__all__ = ["ApiServer", "Request"]
