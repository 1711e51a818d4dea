# SPDX-License-Identifier: Apache-2.0
"""If a Service no longer seems to want its load balancer, a read must confirm it before the deletion."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ccm.cloud import NotFound, RetryAfter, Transient
from ccm.controllers.services.service_balancers import CONFIRM, DOUBTED
from ccm.controllers.services.service_release import CATCH_UP
from ccm.engine.api_errors import UnavailableError
from tests.merge_patch import merge

from ..gateway.virtual import in_virtual_time
from .services_harness import FINALIZER, Cluster, until

CLUSTER_IP = {"spec": {"type": "ClusterIP"}}


def show_late(cluster: Cluster, patch: dict[str, Any]) -> None:
    """Let the watch show a change that was already taken back."""
    cluster.api.show("services", "MODIFIED", merge(cluster.api.service(), patch))


async def serve_one(cluster: Cluster) -> None:
    cluster.add_service()
    cluster.serve()
    await cluster.served()


@in_virtual_time
async def test_a_change_of_the_type_that_was_taken_back_costs_no_load_balancer():
    async with Cluster() as c:
        await serve_one(c)
        show_late(c, CLUSTER_IP)
        await asyncio.sleep(60)
        assert c.cloud.count("delete") == 0 and c.cloud.count("ensure") == 1
        assert len(c.api.reads) == pytest.approx(60 / CATCH_UP, abs=1)
        assert not c.api.told("DeletingLoadBalancer")
        reads = len(c.api.reads)
        c.api.change("services", "shop/web", {"metadata": {"annotations": {"a": "b"}}})  # the watch catches up
        await asyncio.sleep(60)
        assert c.cloud.count("delete", "ensure", "update") == 1 and len(c.api.reads) == reads
        assert c.api.ingress() and c.api.service()["metadata"]["finalizers"] == [FINALIZER]


@in_virtual_time
async def test_a_load_balancer_that_is_up_to_date_gets_its_finalizer_although_a_write_fails():
    """Without the finalizer, a deleted Service would leave its load balancer behind."""
    async with Cluster() as c:
        c.add_node("n0")
        await serve_one(c)
        await c.stop()
        c.api.change("services", "shop/web", {"metadata": {"finalizers": None}})
        failed = []

        def fail_once(path, patch):
            if "finalizers" in patch.get("metadata", {}) and not failed:
                failed.append(path)
                return UnavailableError(503, "ServiceUnavailable", "down")
            return None

        c.api.fault = fail_once
        c.serve()
        await until(lambda: c.api.service()["metadata"].get("finalizers") == [FINALIZER], 60)
        assert failed and c.cloud.count("ensure") == 1, "it was up to date"


@in_virtual_time
async def test_a_new_service_of_the_same_name_does_not_confirm_it():
    async with Cluster() as c:
        await serve_one(c)
        old = c.api.service()
        c.api.objects["services"]["shop/web"] = merge(old, CLUSTER_IP | {"metadata": {"uid": "another"}})
        c.api.show("services", "MODIFIED", merge(old, CLUSTER_IP))
        await asyncio.sleep(60)
        assert c.cloud.count("delete") == 0


@in_virtual_time
async def test_a_service_that_is_gone_does_not_confirm_it():
    async with Cluster() as c:
        await serve_one(c)
        old = c.api.objects["services"].pop("shop/web")
        c.api.show("services", "MODIFIED", merge(old, CLUSTER_IP))
        await asyncio.sleep(60)
        assert c.cloud.count("delete") == 0
        c.api.show("services", "DELETED", merge(old, CLUSTER_IP))  # the watch catches up: the Service is gone
        await until(lambda: not c.cloud.made, 10)


@in_virtual_time
async def test_while_the_api_server_does_not_answer_nothing_is_deleted():
    async with Cluster() as c:
        await serve_one(c)
        c.api.fault = lambda path, patch: None if patch else UnavailableError(500, "InternalError", "etcd is slow")
        c.api.change("services", "shop/web", CLUSTER_IP)
        await asyncio.sleep(600)
        assert c.cloud.count("delete") == 0 and c.cloud.made
        c.api.fault = lambda path, patch: None
        await until(lambda: not c.cloud.made and not c.api.service()["metadata"].get("finalizers"), 300)


@pytest.mark.parametrize(
    ("answers", "deletions", "reads"),
    [
        pytest.param([], 1, 1, id="deleted at once"),
        pytest.param([RetryAfter("being deleted", 1.0)], 2, 1, id="the cloud takes its time"),
        pytest.param([NotFound("no such load balancer")], 2, 2, id="asked again later, so read again"),
    ],
)
def test_an_ordinary_change_of_the_type_costs_one_read_and_no_wait(answers, deletions, reads):
    @in_virtual_time
    async def run():
        async with Cluster() as c:
            await serve_one(c)
            left = list(answers)
            c.cloud.fault = lambda verb, spec: left.pop() if verb == "delete" and left else None
            c.api.change("services", "shop/web", CLUSTER_IP)
            await until(
                lambda: not c.cloud.made and not c.api.service()["metadata"].get("finalizers"),
                1 + (0 if not answers else 1 if reads == 1 else CONFIRM),
            )
            assert c.cloud.count("delete") == deletions and len(c.api.reads) == reads

    run()


def finalizers(c: Cluster) -> list[str]:
    return c.api.objects["services"].get("shop/web", {}).get("metadata", {}).get("finalizers", [])


def unready(c: Cluster, *names: str) -> None:
    for name in names:
        c.api.change("nodes", name, {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}})


async def shown_another_project(c: Cluster, machines: tuple[str, ...], *, restarts: bool) -> None:
    """Serve a Service with three Nodes, and then show a project without its load balancer and without `machines`."""
    for name in ("n0", "n1", "n2"):
        c.add_node(name)
    await serve_one(c)
    if restarts:
        await c.stop()
    for name in machines:
        c.machines.hide(name)
    c.cloud.fault = lambda verb, spec: NotFound("no such load balancer") if verb == "delete" else None
    if restarts:
        c.cloud.made, c.there = {}, c.cloud.made
        c.serve()


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("how", ["deleted", "another type"])
@pytest.mark.parametrize("machines", [("n0", "n1"), ("n0", "n1", "n2")])
def test_another_project_releases_no_service(machines, how, restarts):
    """The other project has no load balancer of the Service. The real one is deleted once the credentials are right."""

    @in_virtual_time
    async def run():
        async with Cluster() as c:
            await shown_another_project(c, machines, restarts=restarts)
            if how == "deleted":
                c.api.delete_service("web")
            else:
                c.api.change("services", "shop/web", CLUSTER_IP)
            await asyncio.sleep(3600)
            assert c.api.service()["metadata"]["finalizers"] == [FINALIZER]
            (told,) = c.api.told("LoadBalancerWaits")
            assert f"of only {3 - len(machines)} of 3 Ready Nodes" in told and FINALIZER in told
            assert c.cloud.count("delete") == pytest.approx(3600 / DOUBTED, abs=15)
            c.machines._hidden.clear()
            c.cloud.fault = lambda verb, spec: None
            if restarts:
                c.cloud.made = c.there
            await until(lambda: not c.cloud.made, DOUBTED + 2 * CONFIRM)
            await until(lambda: FINALIZER not in finalizers(c), 10)

    run()


@pytest.mark.parametrize(
    ("hidden", "silent"),
    [
        pytest.param((), (), id="the cloud really lost it"),
        pytest.param(("n0",), (), id="half of the machines are there"),
        pytest.param(("n0", "n1", "n2"), ("n0", "n1", "n2"), id="no Node is Ready, so nothing contradicts the cloud"),
    ],
)
def test_a_load_balancer_that_is_gone_holds_no_service(hidden, silent):
    @in_virtual_time
    async def run():
        async with Cluster() as c:
            await shown_another_project(c, hidden, restarts=False)
            unready(c, *silent)
            await asyncio.sleep(1)
            c.api.delete_service("web")
            await until(lambda: FINALIZER not in finalizers(c), 2 * CONFIRM)
            assert c.cloud.count("delete") == 2

    run()


@in_virtual_time
async def test_without_nodes_a_load_balancer_that_is_gone_holds_no_service():
    async with Cluster() as c:
        await serve_one(c)
        c.cloud.made.clear()
        c.api.delete_service("web")
        await until(lambda: FINALIZER not in finalizers(c), 2 * CONFIRM)
        assert "list" not in c.machines.calls


@in_virtual_time
async def test_while_the_machines_cannot_be_listed_no_service_is_released():
    async with Cluster() as c:
        await shown_another_project(c, (), restarts=False)
        c.machines.error = Transient("503")
        c.api.delete_service("web")
        await asyncio.sleep(600)
        assert finalizers(c) == [FINALIZER]
        c.machines.error = None
        await until(lambda: FINALIZER not in finalizers(c), 400)


@in_virtual_time
async def test_a_person_releases_a_service_that_another_project_holds():
    """The Service goes when a person removes its finalizer. The process goes on to look for the load balancer."""
    async with Cluster() as c:
        await shown_another_project(c, ("n0", "n1", "n2"), restarts=False)
        c.api.delete_service("web")
        await asyncio.sleep(2 * DOUBTED)
        c.api.remove("services", "shop/web")  # as the API server does without the last finalizer
        await asyncio.sleep(5 * DOUBTED)
        assert c.cloud.made
        c.machines._hidden.clear()
        c.cloud.fault = lambda verb, spec: None
        await until(lambda: not c.cloud.made, DOUBTED + 2 * CONFIRM)
