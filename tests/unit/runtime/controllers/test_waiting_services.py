# SPDX-License-Identifier: Apache-2.0
"""After a minute, an Event says why a Service waits. Deletions do not wait for a listing of the instances."""

import asyncio

import pytest

from ccm.cloud import RetryAfter, Transient
from ccm.controllers.services.waiting_services import PATIENCE

from ..gateway.virtual import in_virtual_time
from .services_harness import Cluster, until

OLD = {"loadBalancer": {"ingress": [{"ip": "192.0.2.77", "ipMode": "VIP"}]}}


def instances_down(c):
    async def fail(token):
        raise Transient("503 of the instances")

    c.machines.list_page = fail


def test_deletions_pass_while_instances_cannot_be_listed():
    @in_virtual_time
    async def run():
        async with Cluster() as c:
            c.add_node("n0")
            c.add_service("new")
            c.add_service("going", finalizer=True, status=OLD)
            c.add_service("other", finalizer=True, status=OLD, type="ClusterIP")
            c.add_service("never-served", finalizer=True)
            c.add_service("lost", finalizer=True, status=OLD)
            for name in ("going", "never-served", "lost"):
                c.api.delete_service(name)
            for name in ("going", "other"):
                uid = c.api.service(name)["metadata"]["uid"]
                c.cloud.made[uid] = {"ip": "192.0.2.77", "name": name, "fingerprint": "", "ready_at": 0.0}
            instances_down(c)
            c.serve()
            for name in ("going", "never-served"):
                await until(lambda name=name: f"shop/{name}" not in c.api.objects["services"], 30)
            await until(lambda: not c.api.service("other")["metadata"].get("finalizers"), 30)
            assert c.api.service("lost")["metadata"]["finalizers"], "the cloud may be another project"
            await asyncio.sleep(PATIENCE + 5)
            (message,) = c.api.told("LoadBalancerWaits", "new")
            assert "instances" in message and "503 of the instances" in message
            assert c.cloud.count("ensure") == 0
            await asyncio.sleep(3600)
            assert len(c.api.told("LoadBalancerWaits", "new")) == 1

    run()


def test_a_load_balancer_without_finalizer_is_deleted_once_the_cloud_was_listed():
    """Without the finalizer, only the cloud's listing shows the load balancer."""

    @in_virtual_time
    async def run():
        async with Cluster() as c:
            await c.begin()
            await c.stop()
            meta = {"finalizers": None}
            c.api.change("services", "shop/web", {"metadata": meta, "spec": {"type": "ClusterIP"}})
            c.serve()
            await until(lambda: not c.cloud.made, 60)

    run()


@pytest.mark.parametrize("kind", ["provisioning", "busy", "nodes"])
def test_whatever_it_waits_for(kind):
    @in_virtual_time
    async def run():
        async with Cluster() as c:
            c.add_node("n0")
            c.add_service()
            if kind == "provisioning":
                c.cloud.provision = 1e6
            elif kind == "busy":
                c.cloud.fault = lambda verb, spec: RetryAfter("a job is running", 3.0) if verb == "ensure" else None
            else:
                c.cloud.fault = lambda verb, spec: Transient("down") if verb == "list" else None
            c.serve()
            await asyncio.sleep(PATIENCE - 10)
            assert c.api.told("LoadBalancerWaits") == []
            await asyncio.sleep(20)
            (message,) = c.api.told("LoadBalancerWaits")
            assert {"provisioning": "still working", "busy": "a job is running", "nodes": "down"}[kind] in message

    run()


def test_what_does_not_wait_is_not_reported():
    @in_virtual_time
    async def run():
        async with Cluster() as c:
            c.add_node("n0")
            c.add_service()
            c.cloud.provision = 30.0
            c.serve()
            await c.served()
            await asyncio.sleep(3600)
            assert c.api.told("LoadBalancerWaits") == []

    run()
