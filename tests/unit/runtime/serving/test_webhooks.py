# SPDX-License-Identifier: Apache-2.0
"""C9-C13 of docs/reference/parity.md, and W32: every request is counted."""

import asyncio
import contextlib
import json

import pytest
from aiohttp.test_utils import TestClient, TestServer
from prometheus_client import REGISTRY

from ccm.cloud import Webhook
from ccm.serving import webhooks
from ccm.serving.webhooks import application, choose
from tests.later import late


async def label(request):
    if request["operation"] == "DELETE":
        raise KeyError("s3cret")
    return {"allowed": True, "uid": "not yours to say", "warnings": [request["name"]]}


async def silent(request):
    return None


OFFERED = {"one": Webhook("/one", label), "two": Webhook("/two", silent)}


@pytest.mark.parametrize(
    ("names", "chosen"),
    [
        pytest.param(("one", "two"), ["one", "two"], id="C9-both"),
        pytest.param(("two",), ["two"], id="C10-one"),
        pytest.param(("one", "-two"), ["one"], id="C11-one-and-not-the-other"),
        pytest.param(("-two",), [], id="C12-only-a-negation"),
        pytest.param(("*",), ["one", "two"], id="C13-all"),
        pytest.param(("*", "-one"), ["two"], id="all-but-one"),
        pytest.param((), [], id="none"),
    ],
)
def test_choice(names, chosen):
    assert choose(names, OFFERED) == chosen


def test_unknown_webhooks():
    with pytest.raises(ValueError, match="unknown 'three', '-four': with this provider, there are one, two"):
        choose(("three", "-four"), OFFERED)
    with pytest.raises(ValueError, match="there are none"):
        choose(("x",), {})


@pytest.fixture
def offered():
    return dict(OFFERED)


@pytest.fixture
async def client(offered):
    async with contextlib.AsyncExitStack() as stack:
        yield await stack.enter_async_context(TestClient(TestServer(application(["one", "two"], lambda: offered))))


def review(**changes):
    request = {"uid": "u-1", "name": "pv-1", "operation": "CREATE"}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request} | changes


async def post(client, path, body, content_type="application/json"):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    async with client.post(path, data=data, headers={"Content-Type": content_type}) as response:
        return response.status, await response.text()


def count(code, webhook="one"):
    labels = {"code": str(code), "webhook": webhook}
    assert (REGISTRY.get_sample_value("cloud_provider_webhook_request_duration_seconds_count", labels) or 0) == (
        REGISTRY.get_sample_value("cloud_provider_webhook_request_total", labels) or 0
    )
    return REGISTRY.get_sample_value("cloud_provider_webhook_request_total", labels) or 0


async def test_an_answer(client):
    before = count(200)
    status, text = await post(client, "/one", review())
    assert status == 200
    assert json.loads(text) == {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": {"allowed": True, "uid": "u-1", "warnings": ["pv-1"]},
    }
    assert count(200) == before + 1


@pytest.mark.parametrize(
    ("body", "content_type", "reason"),
    [
        (review(), "text/json", "expected Content-Type application/json, not 'text/json'"),
        (review(), "application/json; charset=utf-8", "expected Content-Type application/json"),
        (b"", "application/json", "invalid AdmissionReview"),
        (b"{", "application/json", "invalid AdmissionReview"),
        ([], "application/json", "invalid AdmissionReview"),
        (review(kind="Pod"), "application/json", "not Pod of admission.k8s.io/v1"),
        (review(apiVersion="admission.k8s.io/v1beta1"), "application/json", "of admission.k8s.io/v1beta1"),
        (review(request=None), "application/json", "invalid AdmissionReview"),
        (review(request={"name": "x"}), "application/json", "invalid AdmissionReview"),
        (b" " * (9 * 1024 * 1024), "application/json", "invalid AdmissionReview"),
    ],
)
async def test_bad_requests(client, body, content_type, reason):
    before = count(400)
    status, text = await post(client, "/one", body, content_type)
    assert (status, reason in text) == (400, True), text
    assert count(400) == before + 1


async def test_other_methods_and_paths(client):
    async with client.get("/one") as response:
        assert response.status == 400
    assert (await post(client, "/three", review()))[0] == 404


async def test_a_handler_that_fails_or_says_nothing(client):
    before = count(500), count(500, "two")
    request = {"uid": "u-1", "name": "x", "operation": "DELETE"}
    status, text = await post(client, "/one", review(request=request))
    assert (status, text) == (500, "webhook one failed\n")
    assert (await post(client, "/two", review()))[0] == 500
    assert (count(500), count(500, "two")) == (before[0] + 1, before[1] + 1)


async def test_a_reloaded_provider_answers(client, offered):
    async def newer(request):
        return {"allowed": False}

    offered["one"] = Webhook("/one", newer)
    assert json.loads((await post(client, "/one", review()))[1])["response"] == {"allowed": False, "uid": "u-1"}


@pytest.mark.threat("tenant-cannot-stop-the-controller")
@pytest.mark.parametrize(
    "body",
    [
        b"[" * 1_000_000,
        b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":' + b"[" * 1_000_000,
        b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","a":' + b'{"a":' * 200_000,
        b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","a":' + b"9" * 1_000_000,
        b"\xff\xfe" * 1000,
    ],
    ids=["deep", "deep-request", "deep-within", "long-number", "no-text"],
)
async def test_bombs_are_bad_requests(client, body, caplog):
    status, text = await post(client, "/one", body)
    assert (status, "invalid AdmissionReview" in text, len(text) < 500) == (400, True, True), text[:200]
    assert not caplog.records


async def test_the_length_is_announced(client):
    async def chunks():
        yield json.dumps(review()).encode()

    headers = {"Content-Type": "application/json"}
    async with client.post("/one", data=chunks(), headers=headers) as response:
        assert response.status == 411


@pytest.mark.threat("tenant-cannot-stop-the-controller")
async def test_a_handler_that_hangs_has_a_deadline(client, offered, monkeypatch, caplog):
    begun, ended = [], []

    async def hang(request):
        begun.append(request["uid"])
        try:
            await asyncio.sleep(3600)
        finally:
            ended.append(request["uid"])

    async def all_have_begun():
        while len(begun) < 30:
            await asyncio.sleep(0.01)

    monkeypatch.setattr(webhooks, "DEADLINE", 60)
    offered["one"] = Webhook("/one", hang)
    before, tasks = count(504), len(asyncio.all_tasks())
    asking = asyncio.gather(*(post(client, "/one", review()) for _ in range(30)))
    answers = await late(asking, all_have_begun(), 60)
    assert set(answers) == {(504, "webhook one did not answer within 60 s\n")}
    assert count(504) == before + 30 and len(ended) == 30
    assert len(asyncio.all_tasks()) <= tasks + 35  # one for each open connection


@pytest.mark.threat("tenant-cannot-stop-the-controller")
async def test_reviews_at_a_time_hold_no_more_than_there_is_room_for(client, offered):
    release, under_way = asyncio.Event(), 0

    async def wait(request):
        nonlocal under_way
        under_way += 1
        await release.wait()
        return {"allowed": True}

    offered["one"] = Webhook("/one", wait)
    request = {"uid": "u-1", "name": "x" * 4_000_000, "operation": "CREATE"}
    asking = [asyncio.create_task(post(client, "/one", review(request=request))) for _ in range(10)]
    while under_way < 4:
        await asyncio.sleep(0.01)
    assert (await post(client, "/two", review(request=request)))[0] == 429
    async with client.post(
        "/one", data=json.dumps(review(request=request)), headers={"Content-Type": "application/json"}
    ) as response:
        assert (response.status, response.headers["Retry-After"]) == (429, "1")
    release.set()
    assert sorted([status for status, _ in await asyncio.gather(*asking)]) == [200] * 4 + [429] * 6
    assert (await post(client, "/one", review(request=request)))[0] == 200


async def test_what_is_logged_of_an_error_is_short(client, offered, caplog):
    async def fail(request):
        raise ValueError(request["name"])

    offered["one"] = Webhook("/one", fail)
    request = {"uid": "u-1", "name": "x" * 100_000, "operation": "CREATE"}
    assert await post(client, "/one", review(request=request)) == (500, "webhook one failed\n")
    [record] = caplog.records
    assert len(record.getMessage()) < 500


@pytest.mark.threat("tenant-cannot-stop-the-controller")
async def test_a_body_that_does_not_come_takes_no_room_for_long(client, monkeypatch):
    monkeypatch.setattr(webhooks, "BODY_DEADLINE", 0.1)
    head = "POST /one HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 8000000\r\n\r\n{"
    opened = [await asyncio.open_connection(client.host, client.port) for _ in range(2)]
    for _, writer in opened:
        writer.write(head.encode())
    for reader, _ in opened:
        assert (await reader.readline()).startswith(b"HTTP/1.1 408 ")
    monkeypatch.setattr(webhooks, "BODY_DEADLINE", 60)
    request = {"uid": "u", "name": "x" * 4_000_000, "operation": "CREATE"}
    assert (await post(client, "/one", review(request=request)))[0] == 200
    for _, writer in opened:
        writer.close()


@pytest.mark.threat("tenant-cannot-stop-the-controller")
@pytest.mark.parametrize("strangers", [2, 20])
async def test_a_length_that_is_only_announced_keeps_nobody_out(client, strangers):
    lines = ["POST /one HTTP/1.1", "Host: x", "Content-Type: application/json", f"Content-Length: {webhooks.MAX_SIZE}"]
    head = "\r\n".join([*lines, "", "{"])
    opened = [await asyncio.open_connection(client.host, client.port) for _ in range(strangers)]
    for _, writer in opened:
        writer.write(head.encode())
    await asyncio.gather(*(writer.drain() for _, writer in opened))
    for _ in range(5):
        assert (await post(client, "/one", review()))[0] == 200
    for _, writer in opened:
        writer.close()
