# SPDX-License-Identifier: Apache-2.0
"""A Service that no longer wants our load balancer is cleaned up, even if it changed while nobody led.

Decisions about one Service are never written to another Service of the same name.
"""

import asyncio

import pytest

from ccm.engine.api_errors import ConflictError, InvalidError

from ..gateway.virtual import in_virtual_time
from .services_harness import FINALIZER, Cluster, until

CLASS = {"spec": {"loadBalancerClass": "somebody.example/else"}}
CLUSTER_IP = {"spec": {"type": "ClusterIP"}}
STRIPPED = {"metadata": {"finalizers": None}}
OTHERS = {"ip": "198.51.100.1", "ipMode": "VIP"}


@pytest.mark.parametrize(
    "changes",
    [
        [CLASS],
        [CLASS, STRIPPED],
        [CLUSTER_IP],
        [CLUSTER_IP, STRIPPED],
        [{"spec": {"type": "NodePort"}}, STRIPPED],
        [{"spec": {"type": "ExternalName"}}, STRIPPED],
        [STRIPPED, {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["a.example/b"]}}],
    ],
    ids=["class", "class-stripped", "type", "type-stripped", "node-port", "external", "deleted-and-held"],
)
@pytest.mark.parametrize("audited", [False, True], ids=["at-start", "by-the-audit"])
def test_what_changed_while_nobody_led(changes, audited):
    @in_virtual_time
    async def run():
        async with Cluster() as c:
            await c.begin()
            await c.stop()
            for change in changes:
                c.api.change("services", "shop/web", change)
            made = dict(c.cloud.made)
            if audited:  # the listing at start does not show the load balancer yet
                c.cloud.made.clear()
            c.serve()
            await asyncio.sleep(30)
            if audited:
                c.cloud.made |= made
                await asyncio.sleep(700)
            await until(lambda: not c.cloud.made, 60)
            await asyncio.sleep(30)
            assert FINALIZER not in (c.api.service()["metadata"].get("finalizers") or [])
            assert not (c.api.service()["status"].get("loadBalancer") or {}).get("ingress")
            assert c.api.told("DeletedLoadBalancer")

    run()


def test_a_class_whose_controller_serves_already_keeps_its_address_and_the_finalizer():
    @in_virtual_time
    async def run():
        async with Cluster() as c:
            await c.begin()
            await c.stop()
            status = {"status": {"loadBalancer": {"ingress": [*c.api.ingress(), OTHERS]}}}
            c.api.change("services", "shop/web", CLASS | status)
            c.serve()
            await until(lambda: not c.cloud.made, 60)
            await asyncio.sleep(30)
            assert c.api.ingress() == [OTHERS]
            assert c.api.service()["metadata"]["finalizers"] == [FINALIZER]

    run()


def test_a_class_that_was_never_ours_is_left_alone():
    @in_virtual_time
    async def run():
        async with Cluster() as c:
            c.add_node("n0")
            c.add_service(finalizer=True, status={"loadBalancer": {"ingress": [OTHERS]}}, **CLASS["spec"])
            c.serve()
            await asyncio.sleep(3600)
            assert c.api.patches == [] and c.cloud.count("delete") == 0 and c.api.events == []

    run()


def test_a_cache_that_is_wrong_about_it_deletes_nothing():
    """A read shows that the Service still wants its load balancer."""

    @in_virtual_time
    async def run():
        async with Cluster() as c:
            await c.begin()
            await c.stop()
            stale = [{**c.api.service(), "spec": {**c.api.service()["spec"], "type": "ClusterIP"}}]
            c.api.wrong_lists["services"] = [stale]
            c.serve()
            await asyncio.sleep(300)
            assert c.cloud.count("delete") == 0 and c.cloud.made

    run()


@pytest.mark.threat("tenant-own-load-balancers-only")
@pytest.mark.parametrize("successor", [{}, CLUSTER_IP["spec"]], ids=["load-balancer", "cluster-ip"])
def test_the_status_of_a_successor_never_has_the_address_of_its_predecessor(successor):
    @in_virtual_time
    async def run():
        async with Cluster() as c:
            c.add_node("n0")
            c.add_service()
            c.cloud.latency["ensure"] = 20.0
            c.serve()
            await until(lambda: c.cloud.count("ensure") == 1, 60)
            seen = []
            c.api.remove("services", "shop/web")
            c.add_service(uid="another", **successor)
            for _ in range(600):
                await asyncio.sleep(1)
                seen += [entry["ip"] for entry in c.api.ingress()]
            own = [made["ip"] for uid, made in c.cloud.made.items() if uid == "another"]
            assert set(seen) == set(own)
            assert "uid-of-web" not in c.cloud.made, "and the predecessor's load balancer goes"

    run()


@pytest.mark.parametrize(
    "error",
    [
        InvalidError(422, "Invalid", "Service web is invalid: metadata.uid: Invalid value: x: field is immutable"),
        ConflictError(409, "Conflict", "Precondition failed: UID in precondition: x, UID in object meta: y"),
    ],
)
def test_both_answers_to_another_uid_are_a_lost_race(error):
    @in_virtual_time
    async def run():
        async with Cluster() as c:
            c.add_node("n0")
            c.add_service()
            errors = [error, error]
            c.api.fault = lambda path, patch: errors.pop() if "status" in patch and errors else None
            c.serve()
            await c.served()
            assert c.api.told("SyncLoadBalancerFailed") == []

    run()


def test_every_patch_names_the_uid():
    @in_virtual_time
    async def run():
        async with Cluster() as c:
            await c.begin()
            c.api.delete_service("web")
            await until(lambda: not c.api.objects["services"], 60)
            assert len(c.api.patches) == 3
            assert {patch["metadata"]["uid"] for _, patch in c.api.patches} == {"uid-of-web"}

    run()
