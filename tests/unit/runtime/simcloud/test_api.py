# SPDX-License-Identifier: Apache-2.0
"""The simulated cloud's API over real HTTP: credentials, pages, instances, load balancers, routes, volumes, quotas."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from ccm_simcloud.testing import Simulator, running_simulator

CONFIG: dict[str, Any] = {
    "projects": [
        {
            "name": "demo",
            "token": "demo-token",
            "region": "north",
            "load_balancer_addresses": "10.89.77.200-10.89.77.201",
            "instances": [
                {"name": "cp1", "zone": "north-a", "addresses": [{"type": "InternalIP", "address": "10.89.77.11"}]},
                {"name": "w1", "zone": "north-b", "addresses": [{"type": "InternalIP", "address": "10.89.77.12"}]},
            ],
            "volumes": [{"name": "data", "zone": "north-a", "size_gb": 10}],
        },
        {"name": "other", "token": "other-token", "region": "south"},
    ]
}
BALANCER = {
    "name": "web",
    "ports": [{"port": 80, "node_port": 30080}],
    "tags": {"cluster": "c1", "service_uid": "u1"},
}


class Client:
    """`await client("GET", "/instances")` returns the status and the decoded answer."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self.session, self.url = session, url
        self.headers: dict[str, str] = {"Authorization": "Bearer demo-token"}

    async def __call__(self, method: str, path: str, json: Any = None, **more: Any) -> tuple[int, Any]:
        status, answer, _ = await self.full(method, path, json, **more)
        return status, answer

    async def full(self, method: str, path: str, json: Any = None, **more: Any) -> tuple[int, Any, Any]:
        url = self.url + (path if path.startswith(("/v1", "/admin")) else f"/v1/projects/demo{path}")
        headers = more.pop("headers", self.headers)
        async with self.session.request(method, url, json=json, headers=headers, **more) as answer:
            return answer.status, (await answer.json() if answer.content_length else None), answer.headers


@contextlib.asynccontextmanager
async def cloud(**changes: Any) -> AsyncIterator[tuple[Simulator, Client]]:
    async with running_simulator(CONFIG | changes) as simulator, aiohttp.ClientSession() as session:
        yield simulator, Client(session, simulator.url)


async def test_instances_live_and_die_and_ids_are_never_used_again() -> None:
    async with cloud() as (_, call):
        status, created = await call("POST", "/instances", {"name": "w2", "labels": {"a": "b"}})
        assert status == 201
        assert created["region"] == "north" and created["state"] == "running"
        path = f"/instances/{created['id']}"
        assert await call("GET", path) == (200, created)
        status, patched = await call("PATCH", path, {"name": "w2-renamed", "state": "stopped"})
        assert (patched["name"], patched["state"], patched["labels"]) == ("w2-renamed", "stopped", {"a": "b"})
        status, replaced = await call("PUT", path, {"name": "w2"})
        assert (replaced["id"], replaced["state"], replaced["labels"]) == (created["id"], "running", {})
        assert await call("DELETE", path) == (204, None)
        status, gone = await call("GET", path)
        assert (status, gone["error"]["code"]) == (404, "instance_not_found")
        _, again = await call("POST", "/instances", {"name": "w2"})
        assert again["id"] > created["id"]


async def test_a_listing_comes_in_pages_that_add_up() -> None:
    async with cloud() as (simulator, call):
        simulator.add_instances(23)
        found, query = [], {"page_size": "10"}
        for _ in range(3):
            _, page = await call("GET", "/instances", params=query)
            assert page["total"] == 25
            found += [item["name"] for item in page["items"]]
            query["page_token"] = page["next_page_token"] or ""
        assert page["next_page_token"] is None
        assert len(found) == len(set(found)) == 25
        assert simulator.calls("instances.list") == 3


async def test_a_listing_that_changes_while_it_is_read_misses_nobody_who_stays() -> None:
    async with cloud() as (simulator, call):
        names = [row.name for row in simulator.add_instances(10)]
        _, page = await call("GET", "/instances", params={"page_size": "6"})
        first = page["items"]
        simulator.project().delete_instance(first[2]["id"])
        simulator.add_instance("late")
        _, page = await call("GET", "/instances", params={"page_token": page["next_page_token"]})
        assert {item["name"] for item in first + page["items"]} >= {*names, "late"}


async def test_several_instances_may_have_one_name() -> None:
    async with cloud() as (_, call):
        await call("POST", "/instances", {"name": "w1"})
        _, page = await call("GET", "/instances", params={"name": "w1"})
        assert page["total"] == 2


@pytest.mark.parametrize(
    ("headers", "project", "status", "code"),
    [
        ({}, "demo", 401, "unauthorized"),
        ({"Authorization": "Bearer wrong"}, "demo", 401, "unauthorized"),
        ({"Authorization": "Bearer other-token"}, "demo", 403, "forbidden"),
        ({"Authorization": "Bearer demo-token"}, "nowhere", 403, "forbidden"),
    ],
)
async def test_credentials(headers: dict[str, str], project: str, status: int, code: str) -> None:
    async with cloud() as (_, call):
        got, answer = await call("GET", f"/v1/projects/{project}/instances", headers=headers)
        assert (got, answer["error"]["code"]) == (status, code)


async def test_access_tokens_expire() -> None:
    async with cloud(timing={"token_lifetime": 60}) as (simulator, call):
        status, answer = await call("POST", "/v1/tokens", {"project": "demo", "token": "demo-token"})
        assert (status, answer["expires_in"]) == (201, 60)
        headers = {"Authorization": f"Bearer {answer['access_token']}"}
        assert (await call("GET", "/instances", headers=headers))[0] == 200
        simulator.advance(61)
        status, answer = await call("GET", "/instances", headers=headers)
        assert (status, answer["error"]["code"]) == (401, "token_expired")
        status, _ = await call("POST", "/v1/tokens", {"project": "demo", "token": "other-token"})
        assert status == 401


async def test_a_rotated_token_ends_the_former_one() -> None:
    async with cloud() as (_, call):
        issued = (await call("POST", "/v1/tokens", {"project": "demo", "token": "demo-token"}))[1]["access_token"]
        assert (await call("PUT", "/admin/projects/demo/token", {"token": "new-token"}))[0] == 204
        for token, expected in (("demo-token", 401), (issued, 401), ("new-token", 200)):
            assert (await call("GET", "/instances", headers={"Authorization": f"Bearer {token}"}))[0] == expected, token
        assert (await call("PUT", "/admin/projects/demo/token", {"token": ""}))[0] == 400
        assert (await call("PUT", "/admin/projects/nowhere/token", {"token": "x"}))[0] == 404


async def test_a_load_balancer_goes_through_its_states_and_refuses_writes_meanwhile() -> None:
    timing = {"load_balancer_create": 10, "load_balancer_update": 5, "load_balancer_delete": 5}
    async with cloud(timing=timing) as (simulator, call):
        status, balancer = await call("POST", "/load-balancers", BALANCER)
        assert (status, balancer["state"], balancer["ip"]) == (201, "creating", "10.89.77.200")
        path = f"/load-balancers/{balancer['id']}"
        targets = {"targets": [{"address": "10.89.77.12", "instance_id": "i-2"}], "tags": {"fingerprint": "f"}}
        status, refused = await call("PUT", f"{path}/targets", targets)
        assert (status, refused["error"]["code"]) == (409, "busy")
        simulator.advance(10)
        assert (await call("GET", path))[1]["state"] == "active"
        status, balancer = await call("PUT", f"{path}/targets", targets)
        assert (status, balancer["state"], len(balancer["targets"])) == (200, "updating", 1)
        assert balancer["tags"] == {"cluster": "c1", "service_uid": "u1", "fingerprint": "f"}
        assert (await call("DELETE", path))[0] == 409
        simulator.advance(5)
        status, balancer = await call("DELETE", path)
        assert (status, balancer["state"]) == (202, "deleting")
        assert (await call("DELETE", path))[0] == 202
        simulator.advance(5)
        assert (await call("GET", path))[0] == 404


async def test_the_cloud_finishes_its_work_by_itself() -> None:
    async with cloud(timing={"load_balancer_create": 0.05}) as (simulator, call):
        _, balancer = await call("POST", "/load-balancers", BALANCER)
        done = simulator.changed()
        assert simulator.project().load_balancers.get(balancer["id"]).state == "creating"
        await done
        assert simulator.project().load_balancers.get(balancer["id"]).state == "active"


async def test_names_and_addresses_of_load_balancers_are_unique_and_the_refusal_names_the_owner() -> None:
    async with cloud() as (_, call):
        await call("POST", "/load-balancers", BALANCER)
        status, refused = await call("POST", "/load-balancers", BALANCER | {"tags": {"cluster": "c2"}})
        assert (status, refused["error"]["code"]) == (409, "name_in_use")
        assert "'c1'" in refused["error"]["message"] and "u1" in refused["error"]["message"]
        status, refused = await call("POST", "/load-balancers", BALANCER)
        assert (status, refused["error"]["code"]) == (409, "already_exists")
        status, refused = await call("POST", "/load-balancers", BALANCER | {"name": "x", "ip": "10.89.77.200"})
        assert (status, refused["error"]["code"]) == (409, "address_in_use")
        assert (await call("POST", "/load-balancers", BALANCER | {"name": "x", "ip": "10.0.0.1"}))[0] == 422
        assert (await call("POST", "/load-balancers", BALANCER | {"name": "x"}))[0] == 201
        status, refused = await call("POST", "/load-balancers", BALANCER | {"name": "y"})
        assert (status, refused["error"]["code"]) == (403, "quota_exceeded")


async def test_load_balancers_are_found_by_tags() -> None:
    async with cloud() as (_, call):
        await call("POST", "/load-balancers", BALANCER)
        await call("POST", "/load-balancers", BALANCER | {"name": "x", "tags": {"cluster": "c2"}})
        _, page = await call("GET", "/load-balancers", params=[("tag", "cluster:c1"), ("tag", "service_uid:u1")])
        assert [item["name"] for item in page["items"]] == ["web"]
        _, page = await call("GET", "/load-balancers", params=[("tag", "cluster:c1"), ("tag", "service_uid:u2")])
        assert page["items"] == []
        assert (await call("GET", "/load-balancers", params={"tag": "nonsense"}))[0] == 400


async def test_a_broken_load_balancer_can_only_be_deleted() -> None:
    async with cloud() as (_, call):
        _, balancer = await call("POST", "/load-balancers", BALANCER)
        path = f"/load-balancers/{balancer['id']}"
        assert (await call("POST", f"/admin/projects/demo{path}/break"))[0] == 200
        status, refused = await call("PATCH", path, {"source_ranges": ["10.0.0.0/8"]})
        assert (status, refused["error"]["code"]) == (409, "in_error")
        assert (await call("DELETE", path))[0] == 204


async def test_routes_and_blackholes() -> None:
    async with cloud() as (simulator, call):
        instance = simulator.project().instances.ids[0]
        route = {"destination": "10.244.1.0/24", "instance_id": instance}
        status, created = await call("POST", "/routes", route)
        assert (status, created["state"], created["owner"]) == (201, "active", "")
        owned = route | {"destination": "10.244.3.0/24", "owner": "c1"}
        assert (await call("POST", "/routes", owned))[1]["owner"] == "c1"
        refused = (await call("POST", "/routes", owned | {"owner": "c2"}))[1]["error"]
        assert refused["code"] == "destination_in_use" and "of cluster 'c1'" in refused["message"]
        await call("DELETE", f"/routes/{simulator.project().routes.ids[-1]}")
        assert (await call("POST", "/routes", route))[1]["error"]["code"] == "destination_in_use"
        assert (await call("POST", "/routes", route | {"instance_id": "i-x", "destination": "10.244.2.0/24"}))[0] == 422
        await call("DELETE", f"/instances/{instance}")
        _, page = await call("GET", "/routes")
        assert [(item["id"], item["state"]) for item in page["items"]] == [(created["id"], "blackhole")]
        assert (await call("DELETE", f"/routes/{created['id']}"))[0] == 204
        assert (await call("DELETE", f"/routes/{created['id']}"))[1]["error"]["code"] == "route_not_found"


async def test_an_instance_that_goes_leaves_the_load_balancers() -> None:
    async with cloud() as (simulator, call):
        one, two = simulator.project().instances.ids
        targets = [{"instance_id": one, "address": "10.89.77.11"}, {"instance_id": two, "address": "10.89.77.12"}]
        _, balancer = await call("POST", "/load-balancers", BALANCER | {"targets": targets})
        await call("DELETE", f"/instances/{one}")
        _, balancer = await call("GET", f"/load-balancers/{balancer['id']}")
        assert balancer["targets"] == [targets[1] | {"draining": False}]


async def test_volumes() -> None:
    async with cloud() as (_, call):
        _, page = await call("GET", "/volumes")
        assert [(item["name"], item["zone"], item["region"]) for item in page["items"]] == [
            ("data", "north-a", "north")
        ]
        _, volume = await call("POST", "/volumes", {"name": "more", "zone": "north-b"})
        assert (await call("GET", f"/volumes/{volume['id']}"))[1] == volume
        assert (await call("DELETE", f"/volumes/{volume['id']}"))[0] == 204


async def test_quotas_count_per_project() -> None:
    async with cloud(limits={"instances": 3, "volumes": 1, "routes": 0}) as (simulator, call):
        assert (await call("POST", "/instances", {"name": "w2"}))[0] == 201
        status, refused = await call("POST", "/instances", {"name": "w3"})
        assert (status, refused["error"]["code"]) == (403, "quota_exceeded")
        assert "demo" in refused["error"]["message"]
        assert (await call("POST", "/volumes", {"name": "more"}))[0] == 403
        route = {"destination": "10.244.1.0/24", "instance_id": simulator.project().instances.ids[0]}
        assert (await call("POST", "/routes", route))[0] == 403
        assert (await call("GET", "/quotas"))[1]["items"] == [
            {"kind": "instances", "used": 3, "limit": 3},
            {"kind": "routes", "used": 0, "limit": 0},
            {"kind": "volumes", "used": 1, "limit": 1},
        ]


async def test_the_rate_limit_says_when_to_come_back() -> None:
    async with cloud(limits={"calls_per_second": 1, "burst": 2}) as (_, call):
        statuses = [(await call("GET", "/instances"))[0] for _ in range(2)]
        status, refused, headers = await call.full("GET", "/instances")
        assert [*statuses, status] == [200, 200, 429]
        assert refused["error"]["code"] == "rate_limited"
        assert 0 < float(headers["Retry-After"]) <= 1


async def test_a_bad_body_is_answered_with_all_its_problems() -> None:
    body = {"name": "", "colour": 1, "addresses": [{"type": "InternalIP", "address": "1.2.3"}], "state": "asleep"}
    async with cloud() as (simulator, call):
        status, refused = await call("POST", "/instances", body)
        assert (status, refused["error"]["code"]) == (400, "invalid")
        for part in ("name:", "colour: unknown key", "addresses[0]: '1.2.3' is not an IP address", "state:"):
            assert part in refused["error"]["message"]
        assert len(simulator.project().instances.rows) == 2
        twice = BALANCER | {"ports": [{"port": 80, "node_port": 1}, {"port": 80, "node_port": 2}]}
        assert "duplicate TCP 80" in (await call("POST", "/load-balancers", twice))[1]["error"]["message"]
        path = "/v1/projects/demo/instances"
        async with call.session.post(call.url + path, data=b"{", headers=call.headers) as answer:
            assert answer.status == 400


async def test_an_unknown_path_is_not_mistaken_for_a_missing_thing() -> None:
    async with cloud() as (_, call):
        status, answer = await call("GET", "/nonsense")
        assert (status, answer["error"]["code"]) == (404, "no_such_operation")


async def test_the_journal_knows_every_call() -> None:
    async with cloud() as (_, call):
        await call("GET", "/instances", params={"page_size": "1"})
        await call("POST", "/instances", {"name": "w2"})
        await call("GET", "/instances", headers={})
        _, journal = await call("GET", "/admin/journal")
        seen = [(entry["operation"], entry["status"], entry["write"]) for entry in journal["items"]]
        assert seen == [("instances.list", 200, False), ("instances.create", 201, True), ("instances.list", 401, False)]
        assert journal["items"][0]["path"] == "/v1/projects/demo/instances?page_size=1"
        _, later = await call("GET", "/admin/journal", params={"since": str(journal["items"][0]["sequence"])})
        assert later["total"] == 2
        _, writes = await call("GET", "/admin/journal", params={"writes": "1"})
        assert writes["total"] == 1
        _, lists = await call("GET", "/admin/journal", params={"operation": "instances.list"})
        assert lists["total"] == 2
        _, summary = await call("GET", "/admin/journal/summary")
        assert summary == {"calls": 3, "operations": {"instances.create": 1, "instances.list": 2}}
        await call("DELETE", "/admin/journal")
        assert (await call("GET", "/admin/journal/summary"))[1]["calls"] == 0


async def test_quotas_can_be_changed_while_it_runs() -> None:
    async with cloud(limits={"instances": 2}) as (_, call):
        status, quotas = await call("PATCH", "/admin/quotas", {"load_balancers": 0})
        assert (status, quotas["instances"], quotas["load_balancers"]) == (200, 2, 0)
        assert (await call("POST", "/load-balancers", BALANCER))[0] == 403
        assert (await call("PATCH", "/admin/quotas", {"load_balancers": None}))[0] == 200
        assert (await call("POST", "/load-balancers", BALANCER))[0] == 201
        status, refused = await call("PATCH", "/admin/quotas", {"routes": -1, "nodes": 3})
        assert status == 400 and "routes" in refused["error"]["message"] and "nodes" in refused["error"]["message"]


async def test_timing_can_be_changed_while_it_runs() -> None:
    async with cloud() as (_, call):
        status, timing = await call("PATCH", "/admin/timing", {"load_balancer_create": 100})
        assert (status, timing["load_balancer_create"], timing["latency"]) == (200, 100, 0)
        assert (await call("POST", "/load-balancers", BALANCER))[1]["state"] == "creating"
        assert (await call("POST", "/admin/clock/advance", {"seconds": 101}))[0] == 200
        assert (await call("GET", "/load-balancers"))[1]["items"][0]["state"] == "active"
        status, refused = await call("PATCH", "/admin/timing", {"latency": -1, "speed": 3})
        assert status == 400 and "latency" in refused["error"]["message"] and "speed" in refused["error"]["message"]
