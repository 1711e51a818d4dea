# SPDX-License-Identifier: Apache-2.0
"""Runs the conformance kit with a cloud that fails on request, and tests that cloud: python -m pytest test_acme.py"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator

import pytest
from acme_cloud import KEY, Acme, Carrier, Handler, refused
from aiohttp import web
from ccm_provider_acme import AcmeCloud

from ccm.cloud import ProviderConfig
from ccm.conformance import CASES, Case, Listener, Outcome, Result, Subject, Trouble, World, check


class AcmeWorld(World):
    """Hooks for events that the kit cannot cause itself.

    This cloud lists balancers without pages, so LATER_PAGE breaks only the listing of servers.
    """

    def __init__(self, cloud: Acme) -> None:
        self._cloud = cloud

    @contextlib.asynccontextmanager
    async def trouble(self, kind: Trouble) -> AsyncIterator[None]:
        async def trouble(request: web.Request, handler: Handler) -> web.StreamResponse:
            match kind:
                case Trouble.SERVER_ERROR:
                    return refused(503, "maintenance")
                case Trouble.PROXY_PAGE:
                    return web.Response(text="<html>404</html>", status=404, content_type="text/html")
                case Trouble.UNAUTHORIZED:
                    return refused(401, "key_expired")
                case Trouble.RATE_LIMITED:
                    return refused(429, "slow_down", **{"Retry-After": f"{self.RETRY_AFTER:.0f}"})
                case Trouble.REFUSED if request.method == "PUT":
                    return refused(412, "odd_request")
                case Trouble.HANG:
                    await asyncio.Event().wait()
                case Trouble.LATER_PAGE if request.query.get("after"):
                    return refused(503, "maintenance")
            answer = await handler(request)
            if kind is Trouble.HALF_MADE and request.method == "PUT":
                self._cloud.trouble = None
                self._cloud.balancers[request.match_info["name"]]["state"] = "failed"
                return refused(500, "out_of_order")
            assert isinstance(answer, web.Response) and isinstance(answer.body, bytes)
            if kind is Trouble.CUT_ANSWER:
                return web.Response(body=answer.body[: len(answer.body) // 2], content_type="application/json")
            if kind is Trouble.SHORT_LISTING and request.path == "/servers":
                listing = json.loads(answer.body)
                return web.json_response(listing | {"servers": listing["servers"][:1], "next": None})
            if kind is Trouble.LOST_ANSWER and request.method == "PUT":
                self._cloud.trouble = None
                return refused(502, "bad_gateway")
            return answer

        if kind is Trouble.SLOW_LOAD_BALANCERS:
            self._cloud.slow = True
        else:
            self._cloud.trouble = trouble
        try:
            yield
        finally:
            self._cloud.slow, self._cloud.trouble = False, None
            for row in self._cloud.balancers.values():
                row["state"] = "active" if row["state"] == "building" else row["state"]

    async def create_instance(self, name: str) -> None:
        self._cloud.add_server(name)

    async def delete_instance(self, provider_id: str) -> None:
        self._cloud.servers.pop(provider_id.rpartition("/")[2], None)

    async def load_balancer_listeners(self, name: str) -> tuple[Listener, ...]:
        row = self._cloud.balancers[name]
        return tuple(
            Listener(port, "TCP", frozenset((target, node_port) for target in row["targets"]))
            for port, node_port in row["ports"]
        )

    async def load_balancer_parts(self) -> frozenset[str]:
        return frozenset(self._cloud.balancers)

    async def break_load_balancer(self, name: str) -> None:
        self._cloud.balancers[name]["state"] = "failed"

    async def stop_instance(self, provider_id: str) -> None:
        self._cloud.servers[provider_id.rpartition("/")[2]]["power"] = "off"


async def examine(case: Case) -> Result:
    cloud = Acme()
    for number in range(5):
        cloud.add_server(f"worker-{number}")
    runner = web.AppRunner(cloud.application(), handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        conf = f"[acme]\nurl = http://127.0.0.1:{runner.addresses[0][1]}\nkey = {KEY}\ntimeout = 1\n"
        config = ProviderConfig(conf, "acme.conf")
        return await check(case, Subject("acme", AcmeCloud, config, allow_writes=True, world=AcmeWorld(cloud)))
    finally:
        await runner.cleanup()


#: What this cloud does not have: tags of servers, and pages of balancers.
NOT_PROVEN = {
    "instances.a_lost_tag_changes_no_instance",
    "later_pages.all_load_balancers_are_listed",
    "later_pages.a_failure_among_load_balancers_is_transient",
}


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case.name))
def test_acme_conforms(case: Case) -> None:
    result = asyncio.run(examine(case))
    expected = Outcome.NOT_RUN if case.name in NOT_PROVEN else Outcome.PASSED
    if case.needs in ("routes", "volumes", "instance_tags", "quotas", "kept_load_balancers", "draining_load_balancers"):
        expected = Outcome.NOT_APPLICABLE
    assert result.outcome is expected, result.detail


async def carried() -> tuple[bytes, bytes]:
    """Return the answers to two connections through a balancer; the second of its targets does not accept any."""

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello " + await reader.read())
        writer.close()

    server = await asyncio.start_server(greet, "127.0.0.2", 0)
    node_port = server.sockets[0].getsockname()[1]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    carrier, answers = Carrier(), []
    await carrier.carry([{"ip": "127.0.0.1", "ports": [[port, node_port]], "targets": ["127.0.0.2", "127.0.0.3"]}])
    for word in (b"one", b"two"):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(word)
        writer.write_eof()
        answers.append(await reader.read())
        writer.close()
    await carrier.carry([])
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)
    server.close()
    return answers[0], answers[1]


def test_the_stand_ins_balancers_carry_connections() -> None:
    assert asyncio.run(carried()) == (b"hello one", b"hello two")
