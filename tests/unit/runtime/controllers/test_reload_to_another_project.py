# SPDX-License-Identifier: Apache-2.0
"""`--cloud-config` is reloaded with credentials of another project, which lacks machines of the cluster."""

import asyncio

import pytest

from ccm.cloud import Transient
from ccm.controllers.nodes import first_listing

from ..gateway.virtual import in_virtual_time
from . import nodes_harness
from .services_harness import FINALIZER, Balancers, Cluster, FakeCloud, Machines, RouteTable, until

CIDRS = {"a": "10.120.0.0/24", "b": "10.120.1.0/24", "c": "10.120.2.0/24"}
PORTS = {"spec": {"ports": [{"name": "http", "protocol": "TCP", "port": 81, "nodePort": 30081}]}}


class Elsewhere(Machines):
    """The machines of a project that its providerIDs name, so that it owns no Node of the first project."""

    def owns(self, provider_id):
        return provider_id.startswith("elsewhere://")


class Project:
    """A project with none of the cluster's load balancers and routes, and without the `hidden` machines."""

    def __init__(self, cluster, hidden, kind=Machines):
        self.machines, self.balancers, self.routes = kind(cluster.api), Balancers(), RouteTable()
        for name in hidden:
            self.machines.hide(name)
        self.cloud = FakeCloud(self.machines, self.balancers, self.routes, cluster.limits)

    def changes(self):
        return self.balancers.calls, self.routes.calls


async def served(c, ready="True"):
    """Serve two Services and three Nodes with routes."""
    for name, cidr in CIDRS.items():
        c.add_node(name, cidr, ready=ready)
    for number, name in enumerate(("web", "old")):
        c.add_service(name, port=80 + number)
    c.serve()
    c.route()
    await c.served("web", "old")
    await until(lambda: len(c.routes.routes) == 3)
    await asyncio.sleep(1)


def ours(c):
    return FakeCloud(c.machines, c.cloud, c.routes, c.limits)


@pytest.mark.parametrize(
    ("kind", "hidden", "contradiction"),
    [
        pytest.param(Machines, "abc", "0 of 4", id="none of the machines"),
        pytest.param(Machines, "ab", "1 of 4", id="a third of the machines"),
        pytest.param(Elsewhere, "abc", "0 of 3", id="providerIDs name the project"),
    ],
)
def test_nothing_is_created_changed_or_released_in_another_project(kind, hidden, contradiction):
    """The Services and Nodes keep what they have. Once the first project is back, everything is done there."""

    @in_virtual_time
    async def run():
        async with Cluster() as c:
            await served(c)
            other, addresses = Project(c, hidden, kind), c.api.ingress()
            conditions = {name: c.api.condition(name) for name in CIDRS}
            await c.gateway.replace(other.cloud)
            await asyncio.sleep(60)
            c.api.change("services", "shop/web", PORTS)
            c.api.delete_service("old")
            c.add_service("new", port=90)
            c.add_node("d", "10.120.3.0/24", provider_id="fake://d")
            other.machines.hide("d")
            await asyncio.sleep(3600)
            assert other.changes() == ([], [])
            assert c.api.ingress() == addresses and c.api.service("old")["metadata"]["finalizers"] == [FINALIZER]
            assert conditions == {name: c.api.condition(name) for name in CIDRS}
            (told,) = c.api.told("LoadBalancerWaits", "web")
            assert f"only {contradiction} Ready Nodes" in told and "--cloud-config" in told
            await c.gateway.replace(ours(c))
            await until(lambda: set(c.cloud.made) == {"uid-of-web", "uid-of-new"}, 3 * first_listing.BELIEF_MAX)
            await until(lambda: c.cloud.made["uid-of-web"]["ports"] == [("TCP", 81, 30081)], 60)
            await until(lambda: len(c.routes.routes) == 4, 120)

    run()


@pytest.mark.parametrize(
    ("hidden", "ready"),
    [
        pytest.param("", "True", id="all machines"),
        pytest.param("a", "True", id="most machines"),
        pytest.param("abc", "False", id="no Node is Ready, so nothing contradicts the cloud"),
    ],
)
def test_a_cloud_with_half_of_the_ready_nodes_is_served(hidden, ready):
    @in_virtual_time
    async def run():
        async with Cluster() as c:
            await served(c, ready)
            other = Project(c, hidden)
            await c.gateway.replace(other.cloud)
            await until(lambda: len(other.balancers.made) == 2 and len(other.routes.routes) == 3, 120)
            assert not c.api.told("LoadBalancerWaits") and not c.api.told("SyncLoadBalancerFailed")

    run()


@in_virtual_time
async def test_calls_that_wait_for_their_turn_do_not_reach_another_project():
    """A Service and a Node have changed before the reload, and their calls wait in the gateway during it."""
    async with Cluster(concurrency=1) as c:
        await served(c)
        c.cloud.latency["ensure"] = 5.0
        for number, name in enumerate(("x", "y", "z")):
            c.add_service(name, port=100 + number)
        await until(lambda: c.cloud.count("ensure", name="x") == 1)
        other = Project(c, "abc")
        await c.gateway.replace(other.cloud)
        await asyncio.sleep(600)
        assert other.changes() == ([], [])


@in_virtual_time
async def test_a_project_that_cannot_list_its_machines_waits():
    async with Cluster() as c:
        await served(c)
        other = Project(c, "")
        other.machines.error = Transient("503")
        await c.gateway.replace(other.cloud)
        await asyncio.sleep(600)
        assert other.changes() == ([], [])
        other.machines.error = None
        await until(lambda: len(other.balancers.made) == 2, 2 * first_listing.BELIEF_MAX)


@in_virtual_time
async def test_no_node_is_deleted_or_tainted_because_another_project_lacks_its_machine():
    """The Ready Nodes that the other project lacks as well are witnesses against it."""
    machines = [nodes_harness.machine(name) for name in ("a", "b", "c", "silent")]
    async with nodes_harness.Cluster(*machines) as c:
        for each in machines:
            c.api.add(each.name, tainted=False, ready="True", providerID=each.provider_id)
        c.watch_over_nodes(min_age=0.0)
        await asyncio.sleep(60)
        c.api.set_ready("silent", "Unknown")
        await asyncio.sleep(60)
        await c.gateway.replace(nodes_harness.FakeCloud(nodes_harness.Machines(nodes_harness.machine("stranger"))))
        await asyncio.sleep(3600)
        assert c.api.nodes.keys() == {"a", "b", "c", "silent"}
        assert not any(each["spec"]["taints"] for each in c.api.nodes.values())
        assert any("names this cluster's project" in each for each in c.api.told("DeletionHeld"))
