# SPDX-License-Identifier: Apache-2.0
"""The client against a small HTTP server, which answers, fails or hangs as the test says."""

import asyncio
import itertools
import json
import time

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from ccm.engine import client as module
from ccm.engine import list_pages
from ccm.engine.api_credentials import Access, FileText
from ccm.engine.api_errors import (
    ConflictError,
    NotFoundError,
    TooManyRequestsError,
    UnauthorizedError,
    UnavailableError,
)
from ccm.engine.client import KubeClient
from ccm.engine.encodings import split_lines
from ccm.engine.objects import Node, PartialObject
from ccm.engine.request_failures import pause_before_retry
from tests import later


def status(code, **headers):
    body = {"kind": "Status", "code": code, "reason": "R", "message": "m"}
    return web.json_response(body, status=code, headers={name.replace("_", "-"): v for name, v in headers.items()})


def meta(**fields):
    return web.json_response({"kind": "PartialObjectMetadata", "metadata": {"name": "n", **fields}})


class Server:
    """Answers requests with `answers` in turn, the last one for ever. `requests`: what it received."""

    def __init__(self):
        self.answers, self.requests = [], []

    async def handle(self, request):
        body = await request.text()
        self.requests.append((request.method, request.path_qs, dict(request.headers), body))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if asyncio.iscoroutinefunction(answer):
            return await answer(request)
        return web.Response(status=answer.status, headers=answer.headers, body=answer.body)  # sendable only once


@pytest.fixture
async def server():
    server = Server()
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", server.handle)
    async with TestServer(app) as running:
        server.url = str(running.make_url("")).rstrip("/")
        yield server


@pytest.fixture
async def kube(server, monkeypatch):
    monkeypatch.setattr(module, "RETRY_PAUSE", 0.01)
    client = KubeClient(Access(server.url, token="t"), user_agent="test")
    yield client
    await client.close()


async def test_get_sends_who_we_are(server, kube):
    server.answers = [web.json_response({"metadata": {"name": "n", "resourceVersion": "3"}})]
    node = await kube.get("/api/v1/nodes/n", Node, params={"a": "b c"})
    assert node.metadata.resource_version == "3"
    method, path, headers, _ = server.requests[0]
    assert (method, path) == ("GET", "/api/v1/nodes/n?a=b+c")
    assert (headers["Authorization"], headers["User-Agent"]) == ("Bearer t", "test")


@pytest.mark.parametrize("strategic", [False, True])
async def test_patch(server, kube, strategic):
    server.answers = [meta(resourceVersion="9")]
    assert (await kube.patch("/n", {"a": None}, strategic=strategic)).resource_version == "9"
    method, _, headers, body = server.requests[0]
    assert (method, json.loads(body)) == ("PATCH", {"a": None})
    kind = "strategic-merge-patch" if strategic else "merge-patch"
    assert headers["Content-Type"] == f"application/{kind}+json"
    assert "as=PartialObjectMetadata" in headers["Accept"]


async def test_delete_with_preconditions(server, kube):
    server.answers = [web.json_response({"kind": "Status", "status": "Success"})]
    await kube.delete("/n", uid="u")
    await kube.delete("/n")
    assert json.loads(server.requests[0][3])["preconditions"] == {"uid": "u"}
    assert "preconditions" not in json.loads(server.requests[1][3])


async def test_list_follows_the_pages_and_keeps_the_filter(server, kube):
    def page(names, cont=""):
        items = [{"metadata": {"name": name}} for name in names]
        return web.json_response({"metadata": {"resourceVersion": "5", "continue": cont}, "items": items})

    server.answers = [page("ab", "t1"), page("c")]
    items, version = await kube.list("/api/v1/nodes", PartialObject, page=2, params={"fieldSelector": "x"})
    assert ([item.metadata.name for item in items], version) == (["a", "b", "c"], "5")
    assert [path for _, path, *_ in server.requests] == [
        "/api/v1/nodes?fieldSelector=x&limit=2",
        "/api/v1/nodes?fieldSelector=x&limit=2&continue=t1",
    ]


@pytest.mark.parametrize("tokens", [itertools.repeat("same"), map(str, itertools.count())])
async def test_pages_that_do_not_end_are_unavailable(server, kube, monkeypatch, tokens):
    monkeypatch.setattr(module, "MOST_PAGES", 50)

    async def page(request):
        return web.json_response({"metadata": {"resourceVersion": "1", "continue": next(tokens)}, "items": []})

    server.answers = [page]
    with pytest.raises(UnavailableError, match="pages do not end"):
        await kube.list("/nodes", Node)
    assert len(server.requests) <= 50


@pytest.mark.parametrize("stretch", [1, 10**6])
async def test_of_each_page_only_what_is_to_be_kept_is_in_memory(server, kube, monkeypatch, stretch):
    """A list of unchanged objects takes no more memory than the cache, because `keep` replaces each object at once."""
    monkeypatch.setattr(list_pages, "STRETCH", stretch)
    known, asked = PartialObject(), []

    def keep(item):
        asked.append((item.metadata.name, len(server.requests)))
        return known

    def page(name, cont=""):
        return web.json_response({"metadata": {"continue": cont}, "items": [{"metadata": {"name": name}}]})

    server.answers = [page("a", "t1"), page("b")]
    items, _ = await kube.list("/n", PartialObject, page=1, keep=keep)
    assert asked == [("a", 1), ("b", 2)] and all(item is known for item in items)


async def test_an_expired_continue_token_restarts_the_list_unpaged(server, kube):
    def page(cont, version):
        return web.json_response(
            {"metadata": {"resourceVersion": version, "continue": cont}, "items": [{"metadata": {"name": "a"}}]}
        )

    server.answers = [page("t1", "5"), status(410), page("", "8")]
    items, version = await kube.list("/n", PartialObject, page=1)
    assert (len(items), version) == (1, "8"), "nothing of the first reading is left"
    assert "limit" not in server.requests[2][1] and "continue" not in server.requests[2][1]


@pytest.mark.parametrize("method", ["get", "patch", "create", "delete"])
async def test_429_is_waited_out_for_every_method(server, kube, method):
    server.answers = [status(429, Retry_After="0"), meta()]
    await {
        "get": lambda: kube.get("/n", PartialObject),
        "patch": lambda: kube.patch("/n", {}),
        "create": lambda: kube.create("/n", {}),
        "delete": lambda: kube.delete("/n"),
    }[method]()
    assert len(server.requests) == 2


async def test_retry_after_is_honoured(server, kube):
    server.answers = [status(429, Retry_After="1"), meta()]
    started = time.monotonic()
    await kube.patch("/n", {})
    assert time.monotonic() - started >= 1.0


async def test_a_pause_beyond_the_deadline_is_the_callers(server, kube):
    server.answers = [status(429, Retry_After="600")]
    with pytest.raises(TooManyRequestsError) as caught:
        await asyncio.wait_for(kube.patch("/n", {}, timeout=500), 300)
    assert caught.value.retry_after == 600
    assert len(server.requests) == 1


async def test_a_server_that_only_says_429_ends_with_the_deadline(server, kube, monkeypatch):
    def over_at_once(*args):
        wait = pause_before_retry(*args)
        asyncio.get_running_loop().call_soon(later.jump, wait)
        return wait

    monkeypatch.setattr(module, "RETRY_PAUSE", 1.0)
    monkeypatch.setattr(module, "pause_before_retry", over_at_once)
    server.answers = [status(429)]
    with pytest.raises(TooManyRequestsError):
        await kube.get("/n", PartialObject, timeout=60)
    assert len(server.requests) == 6, "the pauses grow: 1, 2, 4, 8, 16 s"


async def test_503_with_retry_after_is_repeated_but_never_for_a_post(server, kube):
    server.answers = [status(503, Retry_After="0"), meta()]
    await kube.patch("/n", {})
    assert len(server.requests) == 2
    server.answers = [status(503, Retry_After="0"), meta()]
    with pytest.raises(UnavailableError):
        await kube.create("/n", {})
    assert len(server.requests) == 3


@pytest.mark.parametrize(("code", "kind"), [(409, ConflictError), (404, NotFoundError), (500, UnavailableError)])
async def test_the_rest_is_for_the_caller_at_once(server, kube, code, kind):
    server.answers = [status(code)]
    with pytest.raises(kind, match=f"PATCH /n: {code} R: m"):
        await kube.patch("/n", {"metadata": {"resourceVersion": "1"}})
    assert len(server.requests) == 1


async def test_a_patch_without_a_precondition_is_sent_again_if_others_are_faster(server, kube):
    """The API server gives up after five attempts of its own, for every kind of patch without a resourceVersion."""
    server.answers = [status(409), status(409), status(409), meta(resourceVersion="9")]
    assert (await kube.patch("/n", {"metadata": {"uid": "u"}})).resource_version == "9"
    server.answers = [status(409)]
    with pytest.raises(ConflictError):
        await kube.patch("/n", {}, strategic=True)
    assert len(server.requests) == 2 * module.RACES


@pytest.mark.parametrize(
    "page",
    [
        web.Response(status=502, text="<html>Bad Gateway</html>", content_type="text/html"),
        web.Response(status=200, text="<html>Please log in</html>", content_type="text/html"),
        web.Response(status=302, headers={"Location": "http://elsewhere.invalid/"}),
        web.Response(status=200, text="{", content_type="application/json"),
        web.Response(status=200, text='{"metadata": 5}', content_type="application/json"),
    ],
    ids=["502", "captive-portal", "redirect", "cut-json", "strange-json"],
)
async def test_a_proxys_answer_is_unavailable(server, kube, page):
    server.answers = [page]
    with pytest.raises(UnavailableError):
        await kube.get("/n", PartialObject)


async def test_a_portals_page_does_not_pass_for_a_deletion(server, kube):
    server.answers = [web.Response(text="<html>Please log in</html>", content_type="text/html")]
    with pytest.raises(UnavailableError):
        await kube.delete("/n")


async def test_no_answer_ends_with_the_time_out(server, kube):
    asked = asyncio.Event()

    async def hang(request):
        asked.set()
        await asyncio.Event().wait()

    server.answers = [hang]
    with pytest.raises(UnavailableError, match="no answer in time") as caught:
        await later.late(kube.get("/n", PartialObject, timeout=90), asked.wait(), 90)
    assert caught.value.status == 0


@pytest.mark.parametrize("watch", [False, True])
async def test_a_cancellation_by_the_http_library_is_a_failed_request(server, kube, watch, monkeypatch):
    async def request(*_, **__):
        (gone := asyncio.get_running_loop().create_future()).cancel()
        await gone

    monkeypatch.setattr(aiohttp.ClientSession, "request", request)
    with pytest.raises(UnavailableError, match="CancelledError"):
        if watch:
            async with kube.watch("/api/v1/nodes", {}, read_timeout=1):
                pass
        else:
            await kube.get("/api/v1/nodes/n", PartialObject)


async def test_a_cancelled_task_is_no_failed_request(server, kube):
    asked = asyncio.Event()

    async def hang(request):
        asked.set()
        await asyncio.Event().wait()

    server.answers = [hang]
    waiting = asyncio.create_task(kube.get("/n", PartialObject))
    await asked.wait()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_an_answer_that_stops_half_way_ends_with_the_time_out(server, kube):
    sent = asyncio.Event()

    async def half(request):
        response = web.StreamResponse(headers={"Content-Type": "application/json", "Content-Length": "100"})
        await response.prepare(request)
        await response.write(b"{")
        sent.set()
        await asyncio.Event().wait()

    server.answers = [half]
    with pytest.raises(UnavailableError, match="no answer in time"):
        await later.late(kube.get("/n", PartialObject, timeout=90), sent.wait(), 90)


async def test_a_refused_connection_is_unavailable(unused_tcp_port_factory):
    client = KubeClient(Access(f"http://127.0.0.1:{unused_tcp_port_factory()}"))
    with pytest.raises(UnavailableError) as caught:
        await client.get("/n", PartialObject)
    assert caught.value.status == 0
    await client.close()


@pytest.mark.parametrize(("method", "attempts"), [("patch", 2), ("create", 1)])
async def test_a_kept_alive_connection_that_was_closed_is_replaced_once_but_not_for_a_post(
    server, kube, method, attempts
):
    async def close(request):
        request.transport.abort()
        await asyncio.sleep(0.05)
        return web.Response()

    server.answers = [close, meta()] if method == "patch" else [close]
    if method == "patch":
        await kube.patch("/n", {})
    else:
        with pytest.raises(UnavailableError):
            await kube.create("/n", {})
    assert len(server.requests) == attempts


async def test_a_401_reads_the_token_afresh_once(server, tmp_path):
    file = tmp_path / "token"
    file.write_text("old")
    client = KubeClient(Access(server.url, token_file=FileText(file)))

    async def only_new(request):
        if request.headers["Authorization"] == "Bearer new":
            return meta()
        file.write_text("new")
        return status(401)

    server.answers = [only_new]
    await client.get("/n", PartialObject)
    assert len(server.requests) == 2
    server.answers = [status(401)]
    with pytest.raises(UnauthorizedError):
        await client.get("/n", PartialObject)
    assert len(server.requests) == 4, "twice is enough"
    await client.close()


async def test_a_401_of_a_watch_discards_the_credentials_too(server, monkeypatch):
    """Credentials of a plugin that have no expiry are valid until a 401, and a quiet informer sends only watches."""
    discarded = []
    monkeypatch.setattr(Access, "invalidate", lambda access: discarded.append(access))
    client = KubeClient(Access(server.url, token="old"))
    server.answers = [status(401)]
    with pytest.raises(UnauthorizedError):
        async with client.watch("/n", {}, read_timeout=5):
            pytest.fail("a refusal is no watch")
    assert discarded == [client.access]
    await client.close()


async def test_a_401_with_a_fixed_token_is_final(server, kube):
    server.answers = [status(401)]
    with pytest.raises(UnauthorizedError):
        await kube.get("/n", PartialObject)
    assert len(server.requests) == 1


async def test_redirects_do_not_carry_the_token_elsewhere(server, kube):
    server.answers = [web.Response(status=307, headers={"Location": f"{server.url}/stolen"})]
    with pytest.raises(UnavailableError):
        await kube.get("/n", PartialObject)
    assert len(server.requests) == 1


async def test_a_path_prefix_of_the_server_stays(server):
    server.answers = [meta()]
    client = KubeClient(Access(server.url + "/k8s/clusters/c1"))
    await client.get("/api/v1/nodes/n", PartialObject)
    assert server.requests[0][1] == "/k8s/clusters/c1/api/v1/nodes/n"
    await client.close()


async def test_watch_gives_lines_and_checks_the_status_first(server, kube):
    server.answers = [web.Response(text='{"a":1}\n\n{"b":2}\n{"cut', content_type="application/json")]
    async with kube.watch("/n", {"resourceVersion": "5"}, read_timeout=5) as lines:
        assert [line async for line in lines] == [b'{"a":1}', b'{"b":2}']
    assert server.requests[0][1] == "/n?resourceVersion=5&watch=true"
    for answer, kind in [
        (web.Response(status=502, text="<html>\n</html>\n", content_type="text/html"), UnavailableError),
        (web.Response(status=200, text="<html>\n</html>\n", content_type="text/html"), UnavailableError),
        (status(404), NotFoundError),
    ]:
        server.answers = [answer]
        with pytest.raises(kind):
            async with kube.watch("/n", {}, read_timeout=5):
                pytest.fail("a page is no watch")


async def test_a_silent_watch_is_unavailable(server, kube):
    async def silent(request):
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        await response.write(b'{"a":1}\n')
        await asyncio.Event().wait()

    server.answers = [silent]
    seen = []
    with pytest.raises(UnavailableError, match="no answer in time"):
        async with kube.watch("/n", {}, read_timeout=90) as lines:
            async for line in lines:
                seen.append(line)
                later.jump(90)
    assert seen == [b'{"a":1}']


async def test_lines_of_any_length_and_cut():
    async def chunks(*parts):
        for part in parts:
            yield part

    huge = b"x" * 3_000_000
    parts = [b"a\nb", b"", b"c\n\n", huge[:1_000_000], huge[1_000_000:], b"\nend\nunfinished"]
    assert [line async for line in split_lines(chunks(*parts))] == [b"a", b"bc", huge, b"end"]


async def test_leases_are_not_held_back_by_the_rate_limit(server, kube):
    server.answers = [meta()]
    kube.set_rate_limit(0.001, 1)
    await kube.patch("/api/v1/nodes/n", {})
    held = asyncio.create_task(kube.patch("/api/v1/nodes/n", {}))
    await asyncio.wait_for(kube.patch("/apis/coordination.k8s.io/v1/namespaces/s/leases/l", {}), 60)
    assert not held.done() and len(server.requests) == 2
    held.cancel()


async def test_cancelling_a_request_is_a_cancellation(server, kube):
    asked = asyncio.Event()

    async def hang(request):
        asked.set()
        await asyncio.Event().wait()

    server.answers = [hang]
    task = asyncio.create_task(kube.get("/n", PartialObject))
    await asyncio.wait_for(asked.wait(), 60)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.threat("tenant-cannot-stop-the-controller")
@pytest.mark.parametrize("stretch", [1, 10**9], ids=["in-pieces", "at-once"])
async def test_a_large_list_is_decoded_in_pieces(server, kube, monkeypatch, stretch):
    monkeypatch.setattr(list_pages, "STRETCH", stretch)
    items = [{"metadata": {"name": f"n{number}"}} for number in range(50)]
    items[7] = {"metadata": {"name": 7}}
    server.answers = [web.json_response({"metadata": {"resourceVersion": "5"}, "items": items})]
    unreadable, turns = [], []

    async def somebody_else():
        while True:
            turns.append(1)
            await asyncio.sleep(0)

    other = asyncio.create_task(somebody_else())
    found, version = await kube.list("/api/v1/nodes", Node, unreadable=unreadable.append)
    assert (len(found), version, unreadable) == (49, "5", [b'{"metadata": {"name": 7}}'])
    assert stretch > 1 or len(turns) >= 49
    other.cancel()
    with pytest.raises(UnavailableError, match="unexpected answer"):
        await kube.list("/api/v1/nodes", Node)
