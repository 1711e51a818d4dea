# SPDX-License-Identifier: Apache-2.0
"""A condition says why a Service waits. It is written only when it changes, and removed when the Service is served."""

import asyncio
import itertools

import pytest

from ccm.cloud import QuotaExceeded, Transient
from ccm.controllers.services.service_condition_rules import WAITING
from ccm.controllers.services.waiting_services import PATIENCE
from ccm.engine.client import ApiError

from ..gateway.virtual import in_virtual_time
from .services_harness import Cluster, until

ANOTHER = {
    "type": "Another",
    "status": "True",
    "reason": "R",
    "message": "",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}


def conditions(c, name="web"):
    return {each["type"]: each for each in c.api.service(name)["status"].get("conditions") or ()}


def writes(c):
    return [patch for _, patch in c.api.patches if "conditions" in patch.get("status", {})]


def test_a_failure_is_written_once_for_all_its_retries_and_goes_with_it():
    @in_virtual_time
    async def run():
        async with Cluster() as c:
            c.add_node("n0")
            number = itertools.count()
            c.cloud.fault = lambda verb, spec: (
                QuotaExceeded(f"403 of request {next(number)}") if verb == "ensure" else None
            )
            c.add_service(status={"loadBalancer": {}, "conditions": [ANOTHER]})
            c.serve()
            await until(lambda: WAITING in conditions(c))
            first = conditions(c)[WAITING]
            assert (first["status"], first["reason"]) == ("True", "SyncLoadBalancerFailed")
            assert "403 of request 0" in first["message"] and "tries again" in first["message"]
            await asyncio.sleep(3600)
            assert c.cloud.count("ensure") > 10 and len(writes(c)) == 1
            c.cloud.fault = lambda verb, spec: Transient("down") if verb == "ensure" else None
            await until(lambda: "down" in conditions(c)[WAITING]["message"], 600)
            assert conditions(c)[WAITING]["lastTransitionTime"] == first["lastTransitionTime"] and len(writes(c)) == 2
            c.cloud.fault = lambda verb, spec: None
            await until(lambda: [*conditions(c)] == ["Another"], 600)
            assert conditions(c)["Another"] == ANOTHER and c.api.service("web")["status"]["loadBalancer"]["ingress"]
            await asyncio.sleep(600)
            assert len(writes(c)) == 3

    run()


def test_a_wait_is_written_after_a_minute():
    @in_virtual_time
    async def run():
        async with Cluster() as c:
            c.add_node("n0")
            c.cloud.provision = 300.0
            c.add_service()
            c.serve()
            await asyncio.sleep(PATIENCE - 5)
            assert writes(c) == []
            await until(lambda: WAITING in conditions(c), 10)
            assert conditions(c)[WAITING]["reason"] == "LoadBalancerWaits"
            assert "still working on it" in conditions(c)[WAITING]["message"]
            await until(lambda: not conditions(c), 600)
            assert len(writes(c)) == 2

    run()


@pytest.mark.parametrize("kind", ["served", "not-wanted"])
def test_another_process_removes_it(kind):
    @in_virtual_time
    async def run():
        async with Cluster() as c:
            c.add_node("n0")
            c.cloud.fault = lambda verb, spec: Transient("down") if verb == "ensure" else None
            c.add_service()
            c.serve()
            await until(lambda: WAITING in conditions(c))
            await c.stop()
            c.cloud.fault = lambda verb, spec: None
            if kind == "not-wanted":
                change = {"metadata": {"finalizers": None}, "spec": {"type": "ClusterIP"}}
                c.api.change("services", "shop/web", change)
            c.serve()
            await until(lambda: not conditions(c), 60)

    run()


@pytest.mark.parametrize("kind", ["LoadBalancer", "ClusterIP"])
def test_a_former_leaders_write_that_is_carried_out_late_is_taken_back(kind):
    @in_virtual_time
    async def run():
        async with Cluster() as c:
            await c.begin()
            c.api.change("services", "shop/web", {"spec": {"type": kind}})
            await asyncio.sleep(60)
            late = {"type": WAITING, "status": "True", "reason": "LoadBalancerWaits", "message": "x"}
            c.api.change("services", "shop/web", {"status": {"conditions": [late]}})
            await until(lambda: not conditions(c), 60)
            assert c.cloud.count("ensure") == 1

    run()


def test_a_service_of_the_same_name_gets_nothing_and_a_refused_write_costs_nothing():
    @in_virtual_time
    async def run():
        async with Cluster() as c:
            c.add_node("n0")
            c.cloud.fault = lambda verb, spec: Transient("down") if verb == "ensure" else None
            refused = ApiError(403, "Forbidden", "no right")
            c.api.fault = lambda path, patch: refused if "conditions" in patch.get("status", {}) else None
            c.add_service()
            c.serve()
            await until(lambda: c.cloud.count("ensure") > 3, 600)
            assert not conditions(c) and writes(c)
            assert all(patch["metadata"]["uid"] == c.api.service("web")["metadata"]["uid"] for patch in writes(c))
            c.cloud.fault = lambda verb, spec: None
            await c.served()

    run()


def test_a_service_that_only_has_the_name_of_one_that_cannot_be_released_gets_none():
    @in_virtual_time
    async def run():
        async with Cluster() as c:
            await c.begin()
            c.cloud.fault = lambda verb, spec: Transient("down") if verb == "delete" else None
            c.api.remove("services", "shop/web")
            c.add_service(type="ClusterIP")
            await asyncio.sleep(900)
            assert c.cloud.count("delete") > 1 and not conditions(c) and not writes(c)

    run()
