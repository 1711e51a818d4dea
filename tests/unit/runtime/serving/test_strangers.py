# SPDX-License-Identifier: Apache-2.0
"""A client without rights causes few requests to the API server, from a budget that serves nothing else."""

import asyncio
import contextlib
import ssl
import types

import aiohttp
import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from ccm.base.clock import FakeClock
from ccm.base.token_bucket import TokenBucket
from ccm.engine.api_credentials import Access
from ccm.engine.client import KubeClient
from ccm.manager import room_settings
from ccm.manager.connect import create_client
from ccm.options.command_line import parse
from ccm.serving import ports
from ccm.serving.access_reviews import KNOWN, STRANGERS
from ccm.serving.authorization import Authorizer, Lifetimes
from ccm.serving.certificates import ServingTls
from ccm.serving.health import Health
from ccm.serving.secure_port import application, serve
from tests.ports import free_port

TOKENS = "/apis/authentication.k8s.io/v1/tokenreviews"
ACCESS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
ADMIN = {"subject": ((("commonName", "admin"),),)}


class ApiServer:
    """Knows the tokens `good` and `pod-...`. The users `good` and `admin` may read everything. Records its requests."""

    def __init__(self):
        self.asked = []
        self.wait = asyncio.Event()
        self.wait.set()
        self.allows = lambda spec: spec["user"] in ("good", "admin")

    def count(self, path):
        return len([each for each, _ in self.asked if each == path])

    async def ask(self, path, body, type, **_):
        self.asked.append((path, body["spec"]))
        await self.wait.wait()
        return msgspec.convert({"status": self.status(path, body["spec"])}, type)

    def status(self, path, spec):
        if path == ACCESS:
            return {"allowed": self.allows(spec)}
        token = spec["token"]
        known = token == "good" or token.startswith("pod-")
        return {"authenticated": known, "user": {"username": token if known else ""}}


@pytest.fixture
def api():
    return ApiServer()


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def authorizer(api, clock):
    return Authorizer(api, clock=clock)


MADE_UP = {
    "tokens": lambda n: {"path": "/metrics", "authorization": f"Bearer made-up-{n}"},
    "paths": lambda n: {"path": f"/{n}"},
    "paths-as-a-pod": lambda n: {"path": f"/{n}", "authorization": "Bearer pod-1"},
    "paths-with-a-certificate": lambda n: {"path": f"/{n}", "certificate": ADMIN},
    "verbs": lambda n: {"path": "/metrics", "verb": f"verb-{n}"},
}


@pytest.mark.threat("peer-cannot-spend-the-api-budget")
@pytest.mark.parametrize("request_of", MADE_UP.values(), ids=MADE_UP.keys())
async def test_one_peer_has_a_share_of_the_reviews(authorizer, api, clock, request_of):
    statuses = []
    for second in range(10):
        for number in range(100):
            statuses.append((await authorizer.check(**request_of(second * 100 + number), peer="192.0.2.1"))[0])
        await clock.advance(1)
    most = KNOWN.peer_burst + 10 * KNOWN.peer_rate + STRANGERS.peer_burst
    assert 0 < len(api.asked) <= most
    assert statuses.count(429) >= 1000 - most


@pytest.mark.threat("peer-cannot-spend-the-api-budget")
async def test_many_peers_share_one_budget(authorizer, api, clock):
    for second in range(10):
        for number in range(100):
            await authorizer.check("/metrics", f"Bearer {second}-{number}", peer=f"192.0.2.{number}")
        await clock.advance(1)
    assert len(api.asked) <= STRANGERS.burst + 10 * STRANGERS.rate


@pytest.mark.threat("peer-cannot-spend-the-api-budget")
async def test_prometheus_is_not_kept_out_by_strangers(authorizer, api, clock):
    """Prometheus was known before, and answers about made-up tokens do not evict its cached answers."""
    assert (await authorizer.check("/metrics", "Bearer good", peer="prometheus"))[0] == 200
    for second in range(60):
        for number in range(100):
            await authorizer.check("/metrics", f"Bearer {second}-{number}", peer=f"192.0.2.{number}")
        assert (await authorizer.check("/metrics", "Bearer good", peer="prometheus"))[0] == 200, second
        await clock.advance(1)


@pytest.mark.threat("peer-cannot-spend-the-api-budget")
async def test_made_up_tokens_push_no_good_answer_out(api):
    """Made-up tokens evict neither the cached user nor the cached permission, however many there are."""
    clock = FakeClock()
    authorizer = Authorizer(api, lifetimes=Lifetimes(token=1e6, allowed=1e6, refused=1e6), clock=clock)
    assert (await authorizer.check("/metrics", "Bearer good"))[0] == 200
    for number in range(1500):
        await clock.advance(1)
        assert (await authorizer.check("/metrics", f"Bearer {number}", peer=str(number)))[0] == 401
        assert (await authorizer.check(f"/{number}", "Bearer pod-1", peer=str(number)))[0] == 403
    api.asked.clear()
    assert (await authorizer.check("/metrics", "Bearer good"))[0] == 200
    assert api.asked == []


@pytest.mark.threat("peer-cannot-spend-the-api-budget")
async def test_anonymous_requests_are_answered_from_what_is_known(authorizer, api, clock):
    for _ in range(100):
        assert (await authorizer.check("/metrics", peer="192.0.2.1"))[0] == 403
        await clock.advance(0.1)
    assert len(api.asked) == 1


@pytest.mark.threat("peer-cannot-spend-the-api-budget")
async def test_an_unknown_token_is_remembered_as_unknown(authorizer, api):
    for _ in range(100):
        assert (await authorizer.check("/metrics", "Bearer made-up"))[0] == 401
    assert len(api.asked) == 1


@pytest.mark.threat("peer-cannot-spend-the-api-budget")
async def test_the_same_question_is_asked_once_at_a_time(authorizer, api):
    """Concurrent callers share one review, even if the first caller disconnects."""
    api.wait.clear()
    asking = [asyncio.create_task(authorizer.check("/metrics", "Bearer good")) for _ in range(50)]
    await asyncio.sleep(0)
    asking.pop(0).cancel()
    await asyncio.sleep(0)
    api.wait.set()
    assert {status for status, _ in await asyncio.gather(*asking)} == {200}
    assert (api.count(TOKENS), api.count(ACCESS)) == (1, 1)


@pytest.mark.threat("peer-cannot-spend-the-api-budget")
async def test_few_reviews_at_a_time_when_the_api_server_is_slow(authorizer, api):
    api.wait.clear()
    asking = [
        asyncio.create_task(authorizer.check("/metrics", f"Bearer {number}", peer=str(number))) for number in range(50)
    ]
    done: list[asyncio.Task] = []
    while len(done) < 50 - STRANGERS.at_a_time:
        await asyncio.sleep(0)
        done = [task for task in asking if task.done()]
    assert len(api.asked) == STRANGERS.at_a_time
    assert [task.result()[0] for task in done] == [429] * (50 - STRANGERS.at_a_time)
    api.wait.set()
    assert [status for status, _ in await asyncio.gather(*asking)].count(401) == STRANGERS.at_a_time


async def test_a_permission_is_for_the_whole_question(api, clock):
    """A token may be allowed less than its user, because of scopes in its `extra`."""
    scopes = {"full": ["all"], "restricted": ["read"]}

    async def ask(path, body, type, **_):
        if path == TOKENS:
            user = {"username": "jane", "extra": {"scopes": scopes[body["spec"]["token"]]}}
            return msgspec.convert({"status": {"authenticated": True, "user": user}}, type)
        return msgspec.convert({"status": {"allowed": body["spec"]["extra"]["scopes"] == ["all"]}}, type)

    authorizer = Authorizer(types.SimpleNamespace(ask=ask), clock=clock)
    for _ in range(2):
        assert (await authorizer.check("/metrics", "Bearer full"))[0] == 200
        assert (await authorizer.check("/metrics", "Bearer restricted"))[0] == 403


@pytest.mark.parametrize("token", ["\udcff", "é", "a\x00b", "a\x7fb"])
async def test_a_token_that_is_none_is_not_asked_about(authorizer, api, token):
    assert (await authorizer.check("/metrics", f"Bearer {token}"))[0] == 401
    assert api.asked == []


@contextlib.asynccontextmanager
async def client_of(authorizer, failing=None):
    health = Health(healthz={"ping": lambda: None}, readyz={"cloud": lambda: failing})
    async with TestClient(TestServer(application(health, authorizer, ("/healthz", "/readyz"), dict))) as client:
        yield client


@pytest.mark.threat("peer-cannot-spend-the-api-budget")
@pytest.mark.parametrize("path", ["/healthz", "/healthz?verbose", "/readyz", "/readyz?verbose&exclude=cloud"])
async def test_health_asks_nobody(authorizer, api, path):
    async with client_of(authorizer) as client:
        for number in range(50):
            async with client.get(path, headers={"Authorization": f"Bearer {number}"}) as response:
                assert response.status == 200
    assert api.asked == []


@pytest.mark.threat("peer-cannot-spend-the-api-budget")
async def test_health_is_told_without_reasons_when_the_budget_is_spent(authorizer, api):
    async with client_of(authorizer, failing="because") as client:
        for number in range(50):
            async with client.get("/readyz", headers={"Authorization": f"Bearer {number}"}) as response:
                assert (response.status, "because" in await response.text()) == (500, False)
        async with client.get("/metrics", headers={"Authorization": "Bearer 51"}) as response:
            assert (response.status, response.headers["Retry-After"]) == (429, "1")
    assert len(api.asked) <= STRANGERS.burst


@pytest.mark.threat("peer-reads-no-metrics")
async def test_a_stranger_reads_health_and_nothing_else(authorizer):
    """Another spelling, method or token does not help, nor a path below an open one."""
    async with client_of(authorizer) as client:
        async with client.get("/healthz") as response:
            assert (response.status, await response.text()) == (200, "ok")
        closed = ("/metrics", "/metrics/slis", "/configz", "/healthz/ping", "/readyz/cloud", "/", "/healthz/../metrics")
        for path in (*closed, "/%6detrics", "/metrics?x=/healthz", "/healthz/%2e%2e/metrics", "/METRICS"):
            for method in ("GET", "HEAD", "POST"):
                for token in ("", "Bearer made-up", "Basic Z29vZDo="):
                    headers = {"Authorization": token} if token else {}
                    async with client.request(method, path, headers=headers) as response:
                        assert response.status in (401, 403, 429), (method, path)
                        assert "python_info" not in await response.text()


async def test_what_is_no_text_is_no_error_of_ours(authorizer, caplog):
    app, port = application(Health(), authorizer, (), dict), free_port()
    server = await serve(app, "127.0.0.1", port, ServingTls(parse(["--cloud-provider=sim"]).tls()))
    tls = ssl.create_default_context()
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    try:
        for path, token in ((b"/\xff\xfe", b"x"), (b"/%ff", b"x"), (b"/metrics", b"\xff\xfe"), (b"/\xed\xb2\x80", b"")):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
            writer.write(b"GET %b HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %b\r\n\r\n" % (path, token))
            assert (await reader.readline()).split()[1] in (b"400", b"401", b"403"), path
            writer.close()
    finally:
        await server.cleanup()
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


@pytest.mark.threat("peer-cannot-spend-the-api-budget")
async def test_the_controllers_requests_do_not_wait_for_strangers(tmp_path):
    """A flood against a whole process, with real sockets and clients, leaves the controllers' request budget alone."""
    reviews = []

    async def answer(request):
        body = await request.json()
        reviews.append(request.path)
        status = {"authenticated": False, "allowed": False}
        return web.json_response({"kind": body["kind"], "status": status}, status=201)

    api = web.Application()
    api.router.add_post(TOKENS, answer)
    api.router.add_post(ACCESS, answer)
    async with TestServer(api) as server, contextlib.AsyncExitStack() as cleanup:
        port = free_port()
        options = parse(
            [
                "--cloud-provider=sim",
                f"--master=http://{server.host}:{server.port}",
                f"--secure-port={port}",
                "--authentication-skip-lookup",
                "--kube-api-qps=20",
                "--kube-api-burst=30",
            ]
        )
        controllers = KubeClient(Access(f"http://{server.host}:{server.port}"))
        limiter = controllers._limit = CountingLimit(20, 30)
        cleanup.push_async_callback(controllers.close)
        api_server = room_settings.api_server(options)
        servers = ports.Serving(room_settings.serving(options), lambda _: create_client(api_server), dict, cleanup)
        await servers.start(Health(healthz={"ping": lambda: None}))
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=20)) as session:

            async def stranger(number):
                headers = {"Authorization": f"Bearer {number}"}
                url = f"https://127.0.0.1:{port}/{'metrics' if number % 2 else number}"
                async with session.get(url, headers=headers, ssl=False) as response:
                    return response.status

            statuses = await asyncio.gather(*map(stranger, range(300)))
        assert limiter.taken == 0
        assert 0 < len(reviews) <= 20
        assert set(statuses) == {401, 429}


class CountingLimit(TokenBucket):
    taken = 0

    def reserve(self):
        self.taken += 1
        return super().reserve()
