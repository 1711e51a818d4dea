# SPDX-License-Identifier: Apache-2.0
"""The service controller and a cloud whose answers may be `LAG` seconds old."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Sequence
from typing import Any

import pytest

from ccm.cloud import Conflict, LoadBalancer, NotFound, RetryAfter, Transient

from ..gateway.virtual import in_virtual_time, now
from .services_harness import Balancers, Cluster, FakeCloud, until

LAG = 20.0
CLUSTER_IP, LOAD_BALANCER = {"spec": {"type": "ClusterIP"}}, {"spec": {"type": "LoadBalancer"}}


class Late(Balancers):
    """Shows `shown` instead of the real state, unless `shown` is None. A write that asks for the shown state changes
    nothing.
    """

    def __init__(self) -> None:
        super().__init__()
        self.shown: dict[str, dict[str, Any]] | None = None

    def freeze(self) -> None:
        self.shown = copy.deepcopy(self.made)

    async def list(self, cluster: str) -> Sequence[LoadBalancer]:
        shown = self.made if self.shown is None else self.shown
        return await self._call("list", None, lambda: [self._answer(uid) for uid in shown])

    def _answer(self, uid: str) -> LoadBalancer:
        real = self.made
        self.made = self.shown if self.shown is not None and uid in self.shown else real
        try:
            return super()._answer(uid)
        finally:
            self.made = real

    def _find(self, spec: Any) -> LoadBalancer:
        if self.shown is not None and spec.uid not in self.shown:
            raise NotFound(f"no load balancer for {spec.name}")
        return self._answer(spec.uid) if self.shown is not None else super()._find(spec)

    def _write(self, spec: Any, backends: Any) -> LoadBalancer:
        if self.shown is not None and spec.uid in self.shown:
            found = self._answer(spec.uid)
            if found.fingerprint == self.fingerprint(spec, backends):
                return found
        return super()._write(spec, backends)


class LateCluster(Cluster):
    def __init__(self, **limits: Any) -> None:
        super().__init__(**limits)
        self.cloud = Late()


def times(cluster: Cluster, verb: str) -> list[float]:
    return [when for when, each, _ in cluster.cloud.calls if each == verb]


async def serve_one(cluster: Cluster) -> None:
    cluster.add_node("n0")
    cluster.add_service()
    cluster.serve()
    await cluster.served()
    await asyncio.sleep(2 * LAG)


@pytest.mark.parametrize("lag", [0.0, LAG])
def test_a_service_that_wants_its_load_balancer_back_waits_while_the_cloud_may_show_the_deleted_one(lag):
    @in_virtual_time
    async def run():
        async with LateCluster(listing_lag=lag) as c:
            await serve_one(c)
            if lag:
                c.cloud.freeze()
            c.api.change("services", "shop/web", CLUSTER_IP)
            await until(lambda: not c.cloud.made and not c.api.ingress())
            deleted = now()
            c.api.change("services", "shop/web", LOAD_BALANCER)
            if lag:
                await asyncio.sleep(lag - 2)
                assert not c.api.ingress(), "the deleted one's address is nobody's"
                c.cloud.shown = None
            await until(lambda: c.cloud.made and c.api.ingress(), 10)
            assert times(c, "ensure")[-1] - deleted == pytest.approx(lag, abs=1)
            assert not c.api.told("SyncLoadBalancerFailed")

    run()


@pytest.mark.parametrize("lag", [0.0, LAG])
def test_after_a_write_the_load_balancer_is_read_once_more_when_answers_are_no_longer_late(lag):
    @in_virtual_time
    async def run():
        async with LateCluster(listing_lag=lag) as c:
            await serve_one(c)
            assert c.api.ingress()
            before = len(c.cloud.calls)
            c.add_node("n1")
            await until(lambda: len(c.cloud.hosts()) == 2)
            written = now()
            await asyncio.sleep(3600 if lag else 60)
            calls = [(verb, when) for when, verb, _ in c.cloud.calls[before:] if verb != "list"]
            assert [verb for verb, _ in calls] == (["update", "get"] if lag else ["update"])
            if lag:
                assert calls[1][1] - written == pytest.approx(lag, abs=0.5)

    run()


@in_virtual_time
async def test_a_load_balancer_that_failed_behind_a_late_answer_is_written_again():
    async with LateCluster(listing_lag=LAG) as c:
        await serve_one(c)
        before = c.cloud.count("ensure")
        failed = [Conflict("failed in the cloud")]
        c.cloud.fault = lambda verb, spec: failed.pop() if verb == "get" and failed else None
        c.add_node("n1")
        await until(lambda: c.cloud.count("ensure") > before, 60)
        assert c.api.told("SyncLoadBalancerFailed")
        await until(lambda: c.api.ingress())


@in_virtual_time
async def test_a_change_that_was_taken_back_behind_late_answers_is_written():
    """The late answer shows the first state, so the provider sees nothing to write."""
    async with LateCluster(listing_lag=LAG) as c:
        await serve_one(c)
        c.cloud.freeze()
        for port in (81, 80):
            ports = [{"name": "http", "protocol": "TCP", "port": port, "nodePort": 30000 + port}]
            c.api.change("services", "shop/web", {"spec": {"ports": ports}})
            await asyncio.sleep(2)
        assert c.cloud.made["uid-of-web"]["ports"] == [("TCP", 81, 30081)]
        c.cloud.shown = None
        await until(lambda: c.cloud.made["uid-of-web"]["ports"] == [("TCP", 80, 30080)], LAG + 5)
        writes = c.cloud.count("ensure")
        await asyncio.sleep(600)
        assert c.cloud.count("ensure") == writes


@in_virtual_time
async def test_a_load_balancer_that_was_created_at_the_end_of_a_long_call_leaks_not():
    """The cloud may hide the load balancer for LAG seconds after its creation, not after the start of the call."""
    async with LateCluster(listing_lag=LAG) as c:
        c.cloud.freeze()
        c.cloud.latency["ensure"] = 5.0
        c.add_service()
        c.serve()
        await c.served()
        created = now()
        c.api.delete_service("web")
        await asyncio.sleep(created + LAG - now() - 1)
        assert c.cloud.made and c.api.service()
        c.cloud.shown = None
        await until(lambda: not c.cloud.made and "shop/web" not in c.api.objects["services"], 10)


@pytest.mark.parametrize("instances_listed", [True, False])
def test_a_load_balancer_that_the_former_leader_created_last_leaks_not(instances_listed):
    """For LAG seconds the cloud hides the load balancer from the next leader. Its deletion does not wait for a listing
    of instances.
    """

    @in_virtual_time
    async def run():
        async with LateCluster(listing_lag=LAG) as c:
            c.add_service(finalizer=True)
            c.cloud.freeze()
            c.cloud.made["uid-of-web"] = {"name": "web", "ip": "192.0.2.1", "fingerprint": "", "ready_at": now()}
            if not instances_listed:
                c.machines.error = Transient("down")
            c.api.delete_service("web")
            took_over = now()
            c.serve()
            await asyncio.sleep(took_over + LAG - now() - 1)
            assert c.cloud.made and c.cloud.count("delete") == 1 and c.api.service()
            c.cloud.shown = None
            await until(lambda: not c.cloud.made and "shop/web" not in c.api.objects["services"], 10)

    run()


@in_virtual_time
async def test_a_cloud_that_is_still_creating_it_has_confirmed_no_deletion():
    """The deletion fails with RetryAfter, and a late answer does not contain the load balancer."""
    async with LateCluster(listing_lag=LAG) as c:
        c.add_node("n0")
        c.add_service()
        c.cloud.provision = 2.0
        c.serve()
        await until(lambda: c.cloud.made, 60)
        busy = RetryAfter("it is being created", 0.5)
        c.cloud.fault = lambda verb, spec: busy if verb == "delete" and c.cloud.count("delete") == 1 else None
        c.cloud.shown = {}
        c.api.change("services", "shop/web", CLUSTER_IP)
        await asyncio.sleep(LAG / 2)
        c.cloud.shown = None
        await until(lambda: not c.api.service()["metadata"].get("finalizers"), 600)
        assert not c.cloud.made


@in_virtual_time
async def test_a_cloud_that_is_replaced_offers_no_deleted_load_balancer_for_adoption():
    async with LateCluster(listing_lag=LAG) as c:
        await serve_one(c)
        c.cloud.freeze()
        c.api.change("services", "shop/web", CLUSTER_IP)
        await until(lambda: not c.cloud.made and not c.api.ingress())
        late = c.cloud
        c.cloud = Late()
        c.cloud.made, c.cloud.shown, c.cloud.calls = late.made, late.shown, late.calls
        await c.gateway.replace(FakeCloud(c.machines, c.cloud, c.routes, c.limits))
        c.api.change("services", "shop/web", LOAD_BALANCER)
        await asyncio.sleep(LAG - 2)
        c.cloud.shown = None
        await until(lambda: c.cloud.made and c.api.ingress(), 10)


@in_virtual_time
async def test_many_load_balancers_that_are_read_once_more_share_listings():
    async with LateCluster(listing_lag=LAG) as c:
        c.add_node("n0")
        names = [f"s{number}" for number in range(100)]
        for number, name in enumerate(names):
            c.add_service(name, port=100 + number)
        c.serve()
        await c.served(*names)
        await asyncio.sleep(2 * LAG)
        before = len(c.cloud.calls)
        c.add_node("n1")
        await asyncio.sleep(2 * LAG)
        calls = [verb for _, verb, _ in c.cloud.calls[before:]]
        assert calls.count("update") == 100
        assert calls.count("get") + calls.count("list") < 10
        await asyncio.sleep(600)
        assert len(c.cloud.calls) - before <= len(calls) + 1, "the audit lists once"
