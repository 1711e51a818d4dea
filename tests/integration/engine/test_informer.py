# SPDX-License-Identifier: Apache-2.0
"""The informer on a real API server, with the faults that break other implementations."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from ccm.engine import informer as module
from ccm.engine import reconnecting
from ccm.engine.api_credentials import Access, Pem
from ccm.engine.client import KubeClient
from ccm.engine.informer import Informer
from ccm.engine.objects import PartialObject

from ..cluster import ApiServer
from .conftest import FaultProxy, eventually, running

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"


class Things:
    """ConfigMaps of one test, written directly, and an informer that follows them through the proxy."""

    def __init__(self, kube: KubeClient, through: KubeClient, read_timeout: float = 30.0, page: int = 500) -> None:
        self._kube = kube
        self._set = f"informer-{uuid.uuid4().hex[:8]}"
        self.seen: list[tuple[str, str]] = []
        self.informer = Informer(
            through,
            CONFIGMAPS,
            PartialObject,
            name="things",
            key=lambda thing: thing.metadata.name.removeprefix(self._set + "-"),
            params={"labelSelector": f"set={self._set}"},
            read_timeout=read_timeout,
            page=page,
        )
        self.informer.add_handler(self._handle)

    def _handle(self, old: PartialObject | None, new: PartialObject | None) -> None:
        kind = "added" if old is None else "deleted" if new is None else "changed"
        thing = new or old
        assert thing is not None
        self.seen.append((kind, thing.metadata.name.removeprefix(self._set + "-")))

    def present(self) -> set[str]:
        return {thing.metadata.name.removeprefix(self._set + "-") for thing in self.informer.items()}

    async def add(self, *names: str) -> None:
        for name in names:
            meta = {"name": f"{self._set}-{name}", "labels": {"set": self._set}}
            await self._kube.create(CONFIGMAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta})

    async def change(self, name: str) -> None:
        await self._kube.patch(f"{CONFIGMAPS}/{self._set}-{name}", {"data": {"x": uuid.uuid4().hex}})

    async def remove(self, *names: str) -> None:
        for name in names:
            await self._kube.delete(f"{CONFIGMAPS}/{self._set}-{name}")


@pytest.fixture
async def things(kube: KubeClient, through: KubeClient) -> Things:
    return Things(kube, through)


@contextlib.asynccontextmanager
async def followed(things: Things) -> AsyncIterator[None]:
    async with running(things.informer.run()):
        await asyncio.wait_for(things.informer.wait_synced(), 300)
        yield


@pytest.fixture
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten pauses, so that the end of a fault is noticed soon. Another test, with a fake clock, covers their
    growth."""
    monkeypatch.setattr(reconnecting, "BACKOFF_MAX", 0.5)


async def six_take(seconds: float, count: Callable[[], int]) -> None:
    """Wait for six more requests: three rounds of at most two, with pauses of 0.2 s, 0.4 s and so on between them.

    Only the minimum time is checked: a busy machine takes longer, but a loop without pauses is always too fast.
    """
    first, started = count(), time.monotonic()
    await eventually(lambda: count() >= first + 6)
    assert time.monotonic() - started >= seconds, "a hot loop"


def is_watch(request: web.Request) -> bool:
    return "watch" in request.query


async def test_it_follows(things: Things) -> None:
    await things.add("a", "b")
    async with followed(things):
        assert things.seen == [("added", "a"), ("added", "b")]
        await things.add("c")
        await things.change("a")
        await things.remove("b")
        await eventually(lambda: len(things.seen) == 5)
    assert things.seen[2:] == [("added", "c"), ("changed", "a"), ("deleted", "b")]
    assert things.present() == {"a", "c"}


async def test_a_dropped_watch_resumes_without_a_list(things: Things, proxy: FaultProxy) -> None:
    await things.add("a")
    async with followed(things):
        for number in range(3):
            await eventually(lambda: proxy._open)
            proxy.cut()
            await things.add(str(number))
            await eventually(lambda name=str(number): name in things.present())
    assert sum(1 for _, path in proxy.requests if "limit=" in path) == 1


@pytest.mark.parametrize("how", ["http", "in-stream"])
async def test_410_relists_and_tells_of_what_was_deleted(things: Things, proxy: FaultProxy, how: str) -> None:
    status = {"kind": "Status", "apiVersion": "v1", "code": 410, "reason": "Expired", "message": "too old"}
    answered = []

    async def gone(request: web.Request) -> web.StreamResponse | None:
        if not is_watch(request) or answered:
            return None
        answered.append(request.path_qs)
        await things.remove("b")  # in the gap between two watches
        await things.add("c")
        await things.change("a")
        if how == "http":
            return web.json_response(status, status=410)
        line = json.dumps({"type": "ERROR", "object": status}) + "\n"
        return web.Response(text=line, content_type="application/json")

    await things.add("a", "b")
    proxy.fault = gone
    async with followed(things):
        await eventually(lambda: len(things.seen) == 5)
        assert things.seen[2:] == [("deleted", "b"), ("changed", "a"), ("added", "c")]
        await things.add("d")
        await eventually(lambda: "d" in things.present())


async def test_a_real_410_after_the_server_forgot(
    things: Things, proxy: FaultProxy, apiserver: ApiServer, short_pauses: None
) -> None:
    """etcd is compacted and the restarted server's watch cache is new, so the informer's version is too old."""
    await things.add("a", "b")
    async with followed(things):
        await eventually(lambda: proxy._open)
        proxy.cut()

        async def refuse(request: web.Request) -> web.StreamResponse | None:
            raise web.HTTPBadGateway

        proxy.fault = refuse
        await things.remove("b")
        await things.add("c")
        await asyncio.to_thread(apiserver.compact)
        await asyncio.to_thread(apiserver.stop)
        await asyncio.to_thread(apiserver.start)
        proxy.fault = None
        await eventually(lambda: things.present() == {"a", "c"})
    assert ("deleted", "b") in things.seen
    assert sum(1 for _, path in proxy.requests if "limit=" in path) >= 2, "it did not resume, it listed"


async def test_an_api_server_restart(things: Things, kube: KubeClient, apiserver: ApiServer) -> None:
    await things.add("a")
    async with followed(things):
        await asyncio.to_thread(apiserver.stop)
        await eventually(lambda: things.informer.last_error)
        stale = things.informer.last_contact
        await asyncio.to_thread(apiserver.start)
        await things.add("b")
        await eventually(lambda: "b" in things.present())
        assert things.informer.last_contact > stale and things.informer.last_error == ""


async def test_a_half_open_watch_is_noticed(kube: KubeClient, through: KubeClient, proxy: FaultProxy) -> None:
    things = Things(kube, through, read_timeout=0.5)
    await things.add("a")
    async with followed(things):
        await eventually(lambda: proxy._open)
        proxy.freeze()  # no byte and no FIN, as from a firewall that forgot the connection
        await things.add("b")
        await eventually(lambda: "b" in things.present())


@pytest.mark.parametrize("page", [500, 1], ids=["listed again", "watched again"])
async def test_a_new_leader_knows_what_a_frozen_watch_did_not_tell(
    kube: KubeClient, through: KubeClient, proxy: FaultProxy, page: int
) -> None:
    things = Things(kube, through, page=page)
    await things.add("a", "b")
    async with followed(things):
        await eventually(lambda: proxy._open)
        proxy.freeze()
        await things.remove("a")
        await things.add("c")
        lists = sum(1 for _, path in proxy.requests if "limit=" in path)
        things.informer.catch_up()
        await asyncio.wait_for(things.informer.wait_synced(), 300)
        assert things.present() == {"b", "c"}
        assert sum(1 for _, path in proxy.requests if "limit=" in path) == lists + 1
        assert proxy.count("GET", "watch=true") == (1 if page > 1 else 2)


async def test_a_restore_to_lower_revisions_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The API server accepts a watch from a revision that it does not have yet, sends nothing, and ends it later."""
    monkeypatch.setattr(module, "WATCH_SECONDS", (5, 5))
    monkeypatch.setattr(module, "SILENT", 4.0)
    apiserver = await asyncio.to_thread(ApiServer, tmp_path)
    kube = KubeClient(Access(apiserver.url, ca=Pem(file=apiserver.ca_file), token=apiserver.token))
    things = Things(kube, kube)
    try:
        await things.add("a")
        before = await asyncio.to_thread(apiserver.save)
        async with followed(things):
            await eventually(lambda: "a" in things.present())
            for _ in range(300):  # more than the new API server writes by itself
                await things.change("a")
            await things.add("lost")
            await eventually(lambda: "lost" in things.present())
            await asyncio.to_thread(apiserver.restore, before, bump=False)
            await eventually(lambda: "lost" not in things.present())
    finally:
        await kube.close()
        await asyncio.to_thread(apiserver.close)


async def html(request: web.Request) -> web.StreamResponse | None:
    return web.Response(status=502, text="<html>\n<h1>Bad Gateway</h1>\n</html>\n", content_type="text/html")


async def html_with_200(request: web.Request) -> web.StreamResponse | None:
    return web.Response(text="<html>\n<h1>Log in</h1>\n</html>\n", content_type="text/html")


async def html_404(request: web.Request) -> web.StreamResponse | None:
    return web.Response(status=404, text="<h1>Not Found</h1>\n", content_type="text/html")


async def reset(request: web.Request) -> web.StreamResponse | None:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


@pytest.mark.parametrize("page", [html, html_with_200, html_404, reset])
async def test_an_error_page_is_no_event_no_deletion_and_no_hot_loop(
    things: Things, proxy: FaultProxy, page: Callable[[web.Request], Awaitable[Any]], short_pauses: None
) -> None:
    await things.add("a")
    async with followed(things):
        await eventually(lambda: proxy._open)
        proxy.fault = page
        proxy.requests.clear()
        proxy.cut()
        await six_take(0.6, lambda: len(proxy.requests))
        assert things.seen == [("added", "a")] and things.informer.last_error
        proxy.fault = None
        await things.add("b")
        await eventually(lambda: "b" in things.present())
    assert things.seen == [("added", "a"), ("added", "b")]


async def test_a_refused_connection_is_no_hot_loop(
    things: Things, proxy: FaultProxy, through: KubeClient, short_pauses: None
) -> None:
    await things.add("a")
    attempts = 0
    send = through._send

    async def counted(*arguments: Any, **options: Any) -> Any:
        nonlocal attempts
        attempts += 1
        return await send(*arguments, **options)

    async with followed(things):
        await eventually(lambda: proxy._open)
        through._send = counted  # type: ignore[method-assign]
        await proxy.stop()
        await six_take(0.6, lambda: attempts)
        await proxy.start()
        await things.add("b")
        await eventually(lambda: "b" in things.present())


async def test_a_watch_that_ends_at_once_for_ever_is_no_hot_loop(
    things: Things, proxy: FaultProxy, short_pauses: None
) -> None:
    async def empty(request: web.Request) -> web.StreamResponse | None:
        return web.json_response(text="") if is_watch(request) else None

    proxy.fault = empty
    async with followed(things):
        await six_take(0.6, lambda: proxy.count("GET", "watch=true"))


async def test_garbage_in_the_stream_is_survived(things: Things, proxy: FaultProxy) -> None:
    await things.add("a")
    async with followed(things):
        await eventually(lambda: proxy._open)
        await proxy.inject(b"<html>\n")
        await things.add("b")
        await eventually(lambda: things.present() == {"a", "b"})
        assert ("deleted", "a") not in things.seen


async def test_an_unreadable_object_in_list_and_stream_stops_no_other(
    things: Things, kube: KubeClient, proxy: FaultProxy
) -> None:
    """A newer API server, or a bug on the way, might send such an object; upstream's decoder would list forever."""

    def spoil(thing: dict[str, Any]) -> dict[str, Any]:
        return {**thing, "metadata": {**thing["metadata"], "labels": ["no", "mapping"]}}

    things.informer._client.protobuf = False  # `inject` sends a line

    async def spoilt_list(request: web.Request) -> web.StreamResponse | None:
        if is_watch(request):
            return None
        listing = await kube.get(CONFIGMAPS, dict, params=dict(request.query))
        items = [spoil(each) if each["metadata"]["name"].endswith("-bad") else each for each in listing["items"]]
        return web.json_response({**listing, "items": items})

    proxy.fault = spoilt_list
    await things.add("a", "bad")
    async with followed(things):
        assert things.present() == {"a"}
        await eventually(lambda: proxy._open)
        live = await kube.get(f"{CONFIGMAPS}/{things._set}-a", dict)
        line = {"type": "MODIFIED", "object": spoil(live)}
        await proxy.inject(json.dumps(line).encode() + b"\n")
        await things.add("b")
        await eventually(lambda: things.present() == {"a", "b"})
        await things.change("bad")  # the watch sends it in readable form
        await eventually(lambda: things.present() == {"a", "b", "bad"})
        lists = sum(1 for _, path in proxy.requests if "limit=" in path)
        await things.remove("a")
        await eventually(lambda: things.present() == {"b", "bad"})
    assert lists == 1 and things.informer.last_error == ""


async def test_bookmarks_carry_the_version_past_what_others_write(
    things: Things, kube: KubeClient, proxy: FaultProxy, apiserver: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without bookmarks, the version of a quiet kind would be compacted, and each new watch would need a list."""
    monkeypatch.setattr(module, "WATCH_SECONDS", (5, 5))  # a bookmark comes shortly before the end
    await things.add("a")
    async with followed(things):
        before = int(things.informer._resource_version)
        others = Things(kube, kube)
        await others.add("x", "y", "z")
        await eventually(lambda: int(things.informer._resource_version) >= before + 3)
        await asyncio.to_thread(apiserver.compact)
        await eventually(lambda: proxy.count("GET", "watch=true") >= 3)
        await things.add("b")
        await eventually(lambda: "b" in things.present())
    assert sum(1 for _, path in proxy.requests if "limit=" in path) == 1


async def test_a_very_slow_api_server_is_waited_for(things: Things, proxy: FaultProxy) -> None:
    async def slow(request: web.Request) -> web.StreamResponse | None:
        await asyncio.sleep(1.5)
        return None

    proxy.fault = slow
    await things.add("a")
    async with followed(things):
        assert things.present() == {"a"} and proxy.count("GET") <= 2
        await things.add("b")
        await eventually(lambda: "b" in things.present())
        proxy.cut()
        await things.remove("a")
        await eventually(lambda: things.present() == {"b"})
    assert proxy.count("GET") == 3, "a list and two watches: nothing was asked twice because it was slow"


async def test_429_with_retry_after_is_heeded_by_list_and_watch(things: Things, proxy: FaultProxy) -> None:
    """The 429 is plain text, as API priority and fairness sends it."""
    refused: list[tuple[bool, float]] = []
    times: list[float] = []

    async def busy(request: web.Request) -> web.StreamResponse | None:
        times.append(asyncio.get_running_loop().time())
        if len([watch for watch, _ in refused if watch == is_watch(request)]) >= 1:
            return None
        refused.append((is_watch(request), times[-1]))
        return web.Response(status=429, text="Too many requests", headers={"Retry-After": "1"})

    proxy.fault = busy
    await things.add("a")
    async with followed(things):
        await eventually(lambda: proxy._open)
        assert [watch for watch, _ in refused] == [False, True] and len(times) == 4
        assert times[1] - times[0] >= 1.0 and times[3] - times[2] >= 1.0
        assert things.present() == {"a"}


async def test_an_event_larger_than_every_buffer(things: Things, kube: KubeClient) -> None:
    async with followed(things):
        await things.add("big")
        await kube.patch(f"{CONFIGMAPS}/{things._set}-big", {"data": {"x": "y" * 900_000}})
        await eventually(lambda: ("changed", "big") in things.seen)


async def test_cancelling_leaves_nothing_behind(things: Things, proxy: FaultProxy) -> None:
    async with followed(things):
        await eventually(lambda: proxy._open)
    await eventually(lambda: not proxy._open)  # the connection of the watch is closed
    assert not [task for task in asyncio.all_tasks() if "Informer" in repr(task.get_coro())]
