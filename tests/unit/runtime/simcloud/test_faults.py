# SPDX-License-Identifier: Apache-2.0
"""Every way in which the simulated cloud can be made to fail, as a client sees it."""

from __future__ import annotations

import asyncio
import json
import time

import aiohttp
import pytest

from ccm_simcloud.faults import FaultBook, Match, Rule
from ccm_simcloud.testing import running_simulator

HEADERS = {"Authorization": "Bearer demo-token", "Connection": "close"}
PATH = "/v1/projects/demo/instances"


async def test_status_by_operation_and_count() -> None:
    async with running_simulator() as cloud, aiohttp.ClientSession(cloud.url, headers=HEADERS) as http:
        rule = {"action": "status", "status": 503, "code": "down", "retry_after": 7, "count": 2}
        async with http.post("/admin/faults", json=rule | {"match": {"operation": "instances.*"}}) as answer:
            assert (answer.status, await answer.json()) == (201, {"ids": ["f-1"]})
        for expected in (503, 503, 200):
            async with http.get(PATH) as answer:
                assert answer.status == expected
                if expected == 503:
                    assert answer.headers["Retry-After"] == "7"
                    assert (await answer.json())["error"]["code"] == "down"
        async with http.get("/admin/faults") as answer:
            assert (await answer.json())["rules"][0]["hits"] == 2
        assert [entry.faults for entry in cloud.journal("instances.list")] == [("f-1",), ("f-1",), ()]


async def test_html_of_a_proxy() -> None:
    async with running_simulator() as cloud, aiohttp.ClientSession(cloud.url, headers=HEADERS) as http:
        cloud.fault(action="status", status=404, body="html")
        async with http.get(PATH) as answer:
            assert (answer.status, answer.content_type) == (404, "text/html")


async def test_a_call_without_an_answer() -> None:
    async with running_simulator() as cloud, aiohttp.ClientSession(cloud.url, headers=HEADERS) as http:
        cloud.fault(action="timeout", count=1)
        with pytest.raises(asyncio.TimeoutError):
            await http.get(PATH, timeout=aiohttp.ClientTimeout(total=0.05))
        cloud.fault(action="hang_up", count=2)  # two, because aiohttp itself repeats a GET once
        with pytest.raises(aiohttp.ServerDisconnectedError):
            await http.get(PATH)
        async with http.get(PATH) as answer:
            assert answer.status == 200
        assert [entry.status for entry in cloud.journal("instances.list")] == [0, 0, 0, 200]


async def test_the_effect_happens_and_the_answer_is_lost() -> None:
    async with running_simulator() as cloud, aiohttp.ClientSession(cloud.url, headers=HEADERS) as http:
        cloud.fault(action="hang_up", after_effect=True, match={"method": "post"})
        with pytest.raises(aiohttp.ServerDisconnectedError):
            await http.post(PATH, json={"name": "w1"})
        assert [row.name for row in cloud.project().instances.rows.values()] == ["w1"]
        cloud.clear_faults()
        cloud.fault(action="hang_up", match={"method": "POST"})
        with pytest.raises(aiohttp.ServerDisconnectedError):
            await http.post(PATH, json={"name": "w2"})
        assert len(cloud.project().instances.rows) == 1


async def test_delay_and_latency() -> None:
    async with running_simulator() as cloud, aiohttp.ClientSession(cloud.url, headers=HEADERS) as http:
        async with http.patch("/admin/timing", json={"latency": 0.05}) as answer:
            assert answer.status == 200
        cloud.fault(action="delay", seconds=0.1, match={"path": "/instances$"})
        started = time.monotonic()
        async with http.get(PATH) as answer:
            assert answer.status == 200
        assert time.monotonic() - started >= 0.15
        assert cloud.journal("instances.list")[0].duration >= 0.15


async def test_listings_that_lie() -> None:
    async with running_simulator() as cloud, aiohttp.ClientSession(cloud.url, headers=HEADERS) as http:
        cloud.add_instances(10)

        async def listing() -> bytes:
            async with http.get(PATH) as answer:
                assert answer.status == 200
                return await answer.read()

        cloud.fault(action="empty_list", count=1)
        assert json.loads(await listing()) == {"items": [], "total": 0, "next_page_token": None}
        cloud.fault(action="short_list", count=1)
        short = json.loads(await listing())
        assert (len(short["items"]), short["total"], short["next_page_token"]) == (5, 10, None)
        cloud.fault(action="truncate", count=1)
        with pytest.raises(ValueError):
            json.loads(await listing())
        assert len(json.loads(await listing())["items"]) == 10


async def test_stale_reads_show_an_older_state() -> None:
    async with running_simulator() as cloud, aiohttp.ClientSession(cloud.url, headers=HEADERS) as http:
        old = cloud.add_instance("old")
        kept = cloud.add_instance("kept")
        cloud.advance(100)
        cloud.project().delete_instance(old.id)
        new = cloud.add_instance("new")
        async with http.patch(f"{PATH}/{kept.id}", json={"name": "renamed"}) as answer:
            assert answer.status == 200

        async def names() -> list[str]:
            async with http.get(PATH) as answer:
                return [item["name"] for item in (await answer.json())["items"]]

        assert await names() == ["renamed", "new"]
        cloud.fault(action="stale", seconds=60)
        assert await names() == ["old", "kept"]
        async with http.get(f"{PATH}/{new.id}") as answer:
            assert answer.status == 404
        async with http.get(f"{PATH}/{old.id}") as answer:
            assert answer.status == 200
        cloud.advance(61)
        assert await names() == ["renamed", "new"]


async def test_a_rate_limit_for_some_calls() -> None:
    async with running_simulator() as cloud, aiohttp.ClientSession(cloud.url, headers=HEADERS) as http:
        cloud.fault(action="rate_limit", per_second=0.5, burst=1, retry_after=2, match={"operation": "instances.list"})
        seen = []
        for path in (PATH, PATH, "/v1/projects/demo/routes"):
            async with http.get(path) as answer:
                seen.append((answer.status, answer.headers.get("Retry-After")))
        assert seen == [(200, None), (429, "2"), (200, None)]


async def test_a_load_balancer_that_fails_to_be_provisioned() -> None:
    async with running_simulator() as cloud, aiohttp.ClientSession(cloud.url, headers=HEADERS) as http:
        cloud.fault(action="provision_error", match={"operation": "load_balancers.create"})
        body = {"name": "web", "ports": [{"port": 80, "node_port": 30080}]}
        async with http.post("/v1/projects/demo/load-balancers", json=body) as answer:
            assert answer.status == 201
            assert (await answer.json())["state"] == "error"


async def test_wrong_rules_are_refused_and_none_of_them_is_in_force() -> None:
    async with running_simulator() as cloud, aiohttp.ClientSession(cloud.url) as http:
        rules = [{"action": "hang_up"}, {"action": "explode"}, {"action": "delay", "match": {"path": "("}}]
        async with http.post("/admin/faults", json=rules) as answer:
            message = (await answer.json())["error"]["message"]
            assert answer.status == 400
        assert "rules[1].action" in message and "rules[2].match: path: '('" in message
        assert not cloud.server.faults.active


async def test_faults_end_when_they_are_removed() -> None:
    async with running_simulator() as cloud, aiohttp.ClientSession(cloud.url, headers=HEADERS) as http:
        first = cloud.fault(action="status", status=500)
        cloud.fault(action="status", status=502)
        for expected, path in ((500, f"/admin/faults/{first}"), (502, "/admin/faults")):
            async with http.get(PATH) as answer:
                assert answer.status == expected
            async with http.delete(path) as answer:
                assert answer.status == 204
        async with http.get(PATH) as answer:
            assert answer.status == 200
        async with http.delete("/admin/faults/f-99") as answer:
            assert answer.status == 404


def test_a_fault_for_some_time_and_with_some_probability() -> None:
    now = 0.0
    book = FaultBook(clock=lambda: now, chance=iter([0.4, 0.6, 0.4]).__next__)
    book.add([Rule("hang_up", Match(), probability=0.5, for_seconds=10)])
    hits = [book.plan("GET", "/", "instances.list", "demo").fatal is not None for _ in range(3)]
    assert hits == [True, False, True]
    now = 10.0
    assert book.plan("GET", "/", "instances.list", "demo").fatal is None


def test_of_two_fatal_rules_the_first_counts_and_the_second_keeps_its_count() -> None:
    book = FaultBook()
    book.add([Rule("status", status=500, count=1), Rule("status", status=502, count=1), Rule("delay", seconds=1.0)])
    plans = [book.plan("GET", "/", "routes.list", "demo") for _ in range(3)]
    assert [plan.fatal.status if plan.fatal else None for plan in plans] == [500, 502, None]
    assert [plan.delay for plan in plans] == [1.0, 1.0, 1.0]
