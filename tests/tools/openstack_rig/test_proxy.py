# SPDX-License-Identifier: Apache-2.0
"""The proxy of the OpenStack services (tools/clouds/openstack/rig): what it counts, and how it breaks a call. Other
tests rely on its counts.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from rig import authority
from rig.control import Control
from rig.places import SERVICES
from rig.proxy import Call, Fault, Proxy, template

from tests.listening import listening
from tests.ports import free_port

ID = "8966d986-aa0d-4eb6-998f-b8d154778e3c"


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/v2.1/servers/detail", "/servers/detail"),
        (f"/v2.1/servers/{ID}", "/servers/{id}"),
        ("/v2.0/networks/8966d986aa0d4eb6998fb8d154778e3c", "/networks/{id}"),
        (f"/v2/lbaas/pools/{ID}/members", "/pools/{id}/members"),
        ("/v3/auth/tokens", "/auth/tokens"),
        ("/", "/"),
        ("/v2.1/", "/"),
        ("/v2.0/ports/not-an-id", "/ports/not-an-id"),
    ],
)
def test_calls_are_counted_by_what_they_ask_for(path: str, expected: str) -> None:
    assert template(path) == expected


def call(service: str = "network", method: str = "GET", path: str = "/ports", user: str = "") -> Call:
    return Call(service, method, path, "", 0, user)


def test_a_fault_takes_what_it_names_and_nothing_else() -> None:
    fault = Fault(service="network", method="PUT", path="/routers/*", status=409)
    assert fault.takes(call(method="PUT", path="/routers/{id}/add_extraroutes"))
    assert not fault.takes(call(path="/routers/{id}"))
    assert not fault.takes(call("compute", "PUT", "/routers/{id}"))
    assert not fault.takes(call(method="PUT", path="/ports/{id}"))
    assert not Fault(user="one").takes(call(user="other")) and Fault(user="one").takes(call(user="one"))
    assert Fault().takes(call()), "without words it takes every call"


def test_a_fault_lets_some_pass_breaks_some_and_ends() -> None:
    fault = Fault(path="/ports", skip=2, times=3)
    fault.takes(call(path="/other"))  # a call that does not match is not counted
    assert [fault.takes(call()) for _ in range(7)] == [False, False, True, True, True, False, False]


class Blocks:
    """Replaces `Ports` with single free ports, because a test has no block of ports."""

    def __init__(self) -> None:
        self._public = {service: free_port() for service in SERVICES}
        self._behind = {service: free_port() for service in SERVICES}
        self.control = free_port()
        self.address = "127.0.0.1"

    def public(self, service: str) -> int:
        return self._public[service]

    def behind(self, service: str) -> int:
        return self._behind[service]


class Service:
    """The service behind the proxy: it records each request, and returns the request's body."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.headers: list[dict[str, str]] = []

    async def answer(self, request: web.Request) -> web.Response:
        self.asked.append(f"{request.method} {request.path_qs}")
        self.headers.append(dict(request.headers))
        rows = [{"id": number} for number in range(4)]
        return web.json_response(
            {"ports": rows, "ports_links": [{"rel": "next"}], "body": (await request.read()).decode()},
            headers={"X-Openstack-Request-Id": "req-1"},
        )


def login(user: str) -> dict[str, Any]:
    return {"auth": {"identity": {"password": {"user": {"name": user}}}}}


async def log_in(request: web.Request) -> web.Response:
    """Answer as keystone does, with a token for the user"""
    user = (await request.json())["auth"]["identity"]["password"]["user"]["name"]
    return web.json_response({}, status=201, headers={"X-Subject-Token": f"token of {user}"})


class Rig:
    """A running proxy, the service behind it, and the proxy's control as tests use it."""

    def __init__(self, ports: Blocks, service: Service, data: Path) -> None:
        self.ports, self.service = ports, service
        self.url = f"http://127.0.0.1:{ports.public('network')}"
        (data / "world.json").write_text(json.dumps({"control": f"http://127.0.0.1:{ports.control}"}))
        (data / "run").mkdir()
        self.control = Control(data)

    async def tell(self, method: str, *args: Any, **named: Any) -> Any:
        """Call a method of `Control` in a thread, because it blocks and the proxy runs in this event loop."""
        return await asyncio.to_thread(lambda: getattr(self.control, method)(*args, **named))

    async def get(self, path: str = "/v2.0/ports", **more: Any) -> tuple[int, Any]:
        timeout = aiohttp.ClientTimeout(total=more.pop("timeout", 60))
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.request(more.pop("method", "GET"), self.url + path, **more) as answer,
        ):
            return answer.status, json.loads(await answer.read())


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    ports, service = Blocks(), Service()
    running = Rig(ports, service, tmp_path)
    async with (
        listening(web.route("*", "/{path:.*}", service.answer), port=ports.behind("network")),
        listening(web.post("/v3/auth/tokens", log_in), port=ports.behind("identity")),
    ):
        proxy = asyncio.create_task(Proxy(ports).serve())  # type: ignore[arg-type]
        async with asyncio.timeout(60):
            while True:
                with contextlib.suppress(OSError):
                    await running.tell("journal")
                    break
                await asyncio.sleep(0.02)
        yield running
        proxy.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await proxy


async def test_a_call_passes_as_it_is_and_is_noted(rig: Rig) -> None:
    status, answer = await rig.get(f"/v2.0/ports/{ID}?limit=2", method="PUT", data=b"{}")
    assert status == 200 and answer["body"] == "{}"
    assert [each.partition("?")[0] for each in rig.service.asked] == [f"PUT /v2.0/ports/{ID}"]
    assert "limit=2" in rig.service.asked[0]
    assert rig.service.headers[0]["Host"] == rig.url.removeprefix("http://"), "links are made of it"
    assert await rig.tell("calls") == {"network PUT /ports/{id}": 1}
    (noted,) = await rig.tell("journal")
    assert noted["status"] == 200 and "limit=2" in noted["query"]


async def test_services_learn_by_which_scheme_a_client_came(tmp_path: Path) -> None:
    proxy, headers = Proxy(Blocks()), []  # type: ignore[arg-type]

    async def answer(request: web.Request) -> web.Response:
        headers.extend(request.headers.getall("X-Forwarded-Proto"))
        return web.Response()

    serving = asyncio.create_task(proxy.serve(authority.server(tmp_path, "127.0.0.1")))
    trust = ssl.create_default_context(cafile=tmp_path / "ca.crt")
    behind = listening(web.get("/", answer), port=proxy.ports.behind("network"))
    async with behind, aiohttp.ClientSession() as session:
        url = f"https://127.0.0.1:{proxy.ports.public('network')}/"
        async with asyncio.timeout(60):
            while not headers:
                with contextlib.suppress(aiohttp.ClientConnectionError):
                    # The proxy ignores what a client says about its own scheme.
                    async with session.get(url, ssl=trust, headers={"x-forwarded-proto": "gopher"}) as found:
                        assert found.status == 200
                await asyncio.sleep(0.02)
    serving.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await serving
    assert headers == ["https"]


async def test_what_was_counted_is_forgotten_on_reset(rig: Rig) -> None:
    await rig.tell("fault", status=500)
    await rig.get()
    await rig.tell("reset")
    assert await rig.tell("calls") == {}
    assert (await rig.get())[0] == 200, "and nothing is broken any more"


async def test_a_status_is_given_in_place_of_the_services_answer(rig: Rig) -> None:
    await rig.tell("fault", status=429, headers={"Retry-After": "7"}, body='{"overLimit": {}}', times=1)
    assert await rig.get() == (429, {"overLimit": {}})
    assert rig.service.asked == [], "the service never saw it"
    assert (await rig.get())[0] == 200
    assert [each["status"] for each in await rig.tell("journal")] == [429, 200]


async def test_a_late_refusal_is_carried_out_first(rig: Rig) -> None:
    await rig.tell("fault", status=504, late=True, times=1)
    assert (await rig.get(method="POST"))[0] == 504
    assert rig.service.asked == ["POST /v2.0/ports"]


async def test_a_late_fault_is_carried_out_first(rig: Rig) -> None:
    await rig.tell("fault", kind="drop", late=True, times=1)
    with pytest.raises(aiohttp.ClientError):
        await rig.get(method="POST")
    assert rig.service.asked == ["POST /v2.0/ports"]
    assert [each["status"] for each in await rig.tell("journal")] == [0]


async def test_a_dropped_call_is_never_carried_out(rig: Rig) -> None:
    await rig.tell("fault", kind="drop", times=1)
    with pytest.raises(aiohttp.ClientError):
        await rig.get(method="POST")
    assert rig.service.asked == []
    assert [each["status"] for each in await rig.tell("journal")] == [0]


async def test_half_of_an_answer_breaks_in_the_middle(rig: Rig) -> None:
    await rig.tell("fault", kind="truncate", times=1)
    with pytest.raises((aiohttp.ClientError, ValueError)):
        await rig.get()


async def test_half_of_a_list_looks_whole(rig: Rig) -> None:
    await rig.tell("fault", kind="half", times=1)
    status, answer = await rig.get()
    assert status == 200 and [row["id"] for row in answer["ports"]] == [0, 1]
    assert "ports_links" not in answer


async def test_a_hanging_call_hangs_and_a_slow_one_comes(rig: Rig) -> None:
    await rig.tell("fault", kind="hang", times=1)
    hangs = asyncio.ensure_future(rig.get())
    async with asyncio.timeout(60):
        while await rig.tell("calls") != {"network GET /ports": 1}:
            await asyncio.sleep(0.02)
    await asyncio.wait({hangs}, timeout=0.3)
    assert not hangs.done() and rig.service.asked == []
    hangs.cancel()
    await rig.tell("fault", kind="slow", seconds=0.3, times=1)
    started = asyncio.get_running_loop().time()
    assert (await rig.get())[0] == 200
    assert asyncio.get_running_loop().time() - started >= 0.3


async def test_the_first_fault_that_matches_counts(rig: Rig) -> None:
    await rig.tell("fault", path="/routers", status=500)
    await rig.tell("fault", path="/ports", status=503)
    await rig.tell("fault", path="/ports", status=409)
    assert (await rig.get())[0] == 503


async def test_a_fault_that_nobody_knows_is_refused(rig: Rig) -> None:
    with pytest.raises(OSError, match="400"):
        await rig.tell("fault", no_such_word=1)


async def test_a_service_that_is_not_there_is_a_bad_gateway(rig: Rig) -> None:
    rig.url = f"http://127.0.0.1:{rig.ports.public('image')}"
    status, answer = await rig.get("/v2/images")
    assert status == 502 and answer["error"]["message"].startswith("image: ")


async def test_logins_are_counted_apart(rig: Rig) -> None:
    rig.url = f"http://127.0.0.1:{rig.ports.public('identity')}"
    await rig.get("/v3/auth/tokens", method="POST", json=login("one"))
    assert await rig.tell("logins") == 1 and await rig.tell("calls") == {}


async def test_the_desired_state_of_load_balancers_is_a_file(rig: Rig) -> None:
    await rig.tell("load_balancers", 3.0, ["web"])
    assert json.loads((rig.control.data / "run" / "load-balancers.json").read_text()) == {
        "delay": 3.0,
        "errors": ["web"],
    }


async def test_what_concerns_one_user_leaves_the_others_alone(rig: Rig) -> None:
    identity = f"http://127.0.0.1:{rig.ports.public('identity')}/v3/auth/tokens"
    async with aiohttp.ClientSession() as session:
        for user in ("one", "other"):
            async with session.post(identity, json=login(user)) as answer:
                assert answer.headers["X-Subject-Token"] == f"token of {user}"
    controls = {user: Control(rig.control.data, user) for user in ("one", "other")}

    async def statuses() -> dict[str, int]:
        return {user: (await rig.get(headers={"X-Auth-Token": f"token of {user}"}))[0] for user in controls}

    await asyncio.to_thread(controls["one"].fault, status=503)
    assert await statuses() == {"one": 503, "other": 200}
    assert await asyncio.to_thread(controls["one"].calls) == {"network GET /ports": 1}
    await asyncio.to_thread(controls["other"].reset)
    assert await asyncio.to_thread(controls["other"].calls) == {}
    assert await statuses() == {"one": 503, "other": 200}
    await asyncio.to_thread(controls["one"].end_faults)
    assert await statuses() == {"one": 200, "other": 200}
    assert await asyncio.to_thread(controls["one"].logins) == 1
