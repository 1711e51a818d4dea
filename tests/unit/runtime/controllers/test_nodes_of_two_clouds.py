# SPDX-License-Identifier: Apache-2.0
"""The node controllers of two clouds in one process: each cloud has its own gateway, vouching and controllers."""

import asyncio
import dataclasses

import pytest

from ccm.cloud import Transient, Unauthorized
from ccm.controllers.nodes.node import NodeController, NodeOptions
from ccm.controllers.nodes.node_lifecycle import LifecycleOptions, NodeLifecycleController
from ccm.controllers.nodes.node_lifecycle_rules import Safety
from ccm.controllers.nodes.owners import Owners, Share
from ccm.controllers.nodes.ownership_rules import LABEL, Declarations
from ccm.controllers.nodes.vouching import Vouching
from ccm.gateway.gateway import Gateway

from ..gateway.virtual import in_virtual_time, now
from .nodes_harness import Cluster, FakeCloud, Machines, machine, until

SHUTDOWN = {"key": "node.cloudprovider.kubernetes.io/shutdown", "effect": "NoSchedule"}


class Metal(Machines):
    """The instances of another cloud, whose providerIDs begin with metal://."""

    def owns(self, provider_id):
        return provider_id.startswith("metal://")


def metal(name, ip="192.0.2.1"):
    return machine(name, ip, f"metal://{name}")


class TwoClouds(Cluster):
    """A cluster with two clouds: `cloud` is the first one, `fake`, and `second` is the other one, `metal`."""

    def __init__(self, first=(), second=(), **patterns):
        super().__init__(*first)
        self.second, self.patterns = Metal(*second), patterns

    async def __aenter__(self):
        await super().__aenter__()
        self.other = Gateway(FakeCloud(self.second), clock=now)
        gateways = {"fake": self.gateway, "metal": self.other}
        directories = {name: gateway.instances for name, gateway in gateways.items()}
        self.owners = Owners(directories, Declarations(tuple(gateways), self.patterns), monotonic=now)
        for name, gateway in gateways.items():
            context = dataclasses.replace(self.context, gateway=gateway)
            share = Share(self.owners, name)
            vouching = Vouching(context)
            self.run(NodeController(context, NodeOptions(), vouching, share))
            self.run(NodeLifecycleController(context, LifecycleOptions(5.0, Safety()), share))
        return self

    async def __aexit__(self, *errors):
        await super().__aexit__(*errors)
        await self.other.close()

    def initialised(self, *names):
        return all(not self.api.tainted(name) for name in names)

    def labels(self, name):
        return self.api.nodes[name]["metadata"].get("labels", {})

    def provider_id(self, name):
        return self.api.nodes[name]["spec"].get("providerID", "")


def test_each_node_is_initialised_by_its_own_cloud_and_nobody_takes_the_others():
    @in_virtual_time
    async def run():
        ours = [machine("a"), machine("both", "10.0.0.2")]
        async with TwoClouds(ours, [metal("b"), metal("both")]) as c:
            for name in ("a", "b", "both", "nobody"):
                c.api.add(name, ready="True")
            c.api.add("foreign", providerID="aws://i-1", ready="True")
            await until(lambda: c.initialised("a", "b"))
            await asyncio.sleep(900)
            assert (c.provider_id("a"), c.provider_id("b")) == ("fake://a", "metal://b")
            assert not any(c.initialised(name) for name in ("both", "nobody", "foreign"))
            assert {path.split("/")[4] for verb, path in c.api.requests if verb in ("PATCH", "PUT", "DELETE")
                    and "/nodes/" in path} == {"a", "b"}  # fmt: skip
            (several, *_), (nobody, *_) = c.api.told("SeveralOwners", "both"), c.api.told("InstanceNotFound", "nobody")
            assert "fake and metal" in several and "asked: fake and metal" in nobody
            assert c.api.told("ForeignProviderID", "foreign") and not c.api.told("InstanceNotFound", "both")
            c.api.change("both", {"metadata": {"labels": {LABEL: "metal"}}})
            await until(lambda: c.initialised("both"), 120)
            assert c.provider_id("both") == "metal://both"

    run()


@pytest.mark.parametrize("error", [Transient("503"), Unauthorized("401")])
def test_while_one_cloud_is_down_only_its_own_nodes_wait(error):
    @in_virtual_time
    async def run():
        async with TwoClouds([machine("a")], [metal("b")]) as c:
            for name in ("a", "b"):
                c.api.add(name, ready="True")
            await until(lambda: c.initialised("a", "b"))
            c.second.error = error
            c.second.all.append(metal("late"))
            c.cloud.put(machine("new", "10.0.0.9"))
            for name in ("new", "late"):
                c.api.add(name, ready="True")
            await until(lambda: c.initialised("new"), 20)
            await asyncio.sleep(1800)
            assert not c.initialised("late") and set(c.api.nodes) == {"a", "b", "new", "late"}
            c.second.error = None
            await until(lambda: c.initialised("late"), 120)
            assert c.provider_id("late") == "metal://late"

    run()


def test_machines_that_are_deleted_in_one_cloud_take_their_own_nodes_alone():
    @in_virtual_time
    async def run():
        first = [machine(f"a{number}", f"10.0.0.{number + 1}") for number in range(6)]
        second = [metal(f"b{number}", f"192.0.2.{number + 1}") for number in range(6)]
        async with TwoClouds(first, second) as c:
            names = [each.name for each in (*first, *second)]
            for name in names:
                c.api.add(name, ready="True")
            await until(lambda: c.initialised(*names))
            await asyncio.sleep(400)
            c.second.remove("b0")
            c.cloud.error = Transient("503")
            for name in ("a0", "b0"):
                c.api.set_ready(name, "Unknown")
            await until(lambda: "b0" not in c.api.nodes, 600)
            await asyncio.sleep(1800)
            assert set(c.api.nodes) == set(names) - {"b0"}

    run()


def test_credentials_of_the_other_cloud_delete_nothing():
    """The credentials are swapped: each cloud lists the other one's machines, whose providerIDs it does not own."""

    @in_virtual_time
    async def run():
        first = [machine(f"a{number}", f"10.0.0.{number + 1}") for number in range(4)]
        second = [metal(f"b{number}", f"192.0.2.{number + 1}") for number in range(4)]
        async with TwoClouds(first, second) as c:
            names = [each.name for each in (*first, *second)]
            for name in names:
                c.api.add(name, ready="True")
            await until(lambda: c.initialised(*names))
            await asyncio.sleep(400)
            c.cloud.all, c.second.all = c.second.all, c.cloud.all
            for name in ("a0", "b0"):
                c.api.set_ready(name, "Unknown")
            written = c.api.count("PATCH") + c.api.count("PUT")
            await asyncio.sleep(3600)
            assert set(c.api.nodes) == set(names) and c.api.count("PATCH") + c.api.count("PUT") == written

    run()


def test_an_initialised_node_without_a_provider_id_is_reported_once():
    @in_virtual_time
    async def run():
        async with TwoClouds([machine("a")], [metal("b")]) as c:
            c.api.add("a", ready="True")
            c.api.add("old", tainted=False, ready="Unknown")
            await asyncio.sleep(1200)
            assert "old" in c.api.nodes
            assert len(set(c.api.told("DeletionHeld", "old"))) == 1

    run()


def test_no_cloud_writes_to_nodes_of_another_one():
    """This includes writes that need no call to a cloud: the taint of a Ready Node, and labels in today's spelling."""

    @in_virtual_time
    async def run():
        labels = {"failure-domain.beta.kubernetes.io/zone": "z"}
        async with TwoClouds([machine("a")], [metal("b")]) as c:
            for name, provider_id in (("a", "fake://a"), ("b", "metal://b"), ("vendors", "aws://i-1")):
                c.api.add(name, providerID=provider_id, tainted=False, ready="True")
                c.api.change(name, {"metadata": {"labels": labels}, "spec": {"taints": [SHUTDOWN]}})
            await until(lambda: all(not c.api.nodes[name]["spec"].get("taints") for name in "ab"))
            await until(lambda: all("topology.kubernetes.io/zone" in c.labels(name) for name in "ab"))
            await asyncio.sleep(900)
            assert c.labels("vendors") == labels and c.api.nodes["vendors"]["spec"]["taints"] == [SHUTDOWN]
            written = [path[14:] for verb, path in c.api.requests if verb in ("PATCH", "PUT") and "/nodes/" in path]
            # For each Node once: the taint, the labels and the addresses.
            assert sorted(written) == ["a", "a", "a/status", "b", "b", "b/status"]

    run()


@pytest.mark.parametrize("label", ["vendor", "metal"])
def test_a_node_that_is_declared_for_somebody_else_is_not_deleted(label):
    @in_virtual_time
    async def run():
        first = [machine(f"a{number}", f"10.0.0.{number + 1}") for number in range(4)]
        async with TwoClouds(first, [metal("b")]) as c:
            for each in first:
                c.api.add(each.name, providerID=f"fake://{each.name}", tainted=False, ready="True")
            c.api.change("a0", {"metadata": {"labels": {LABEL: label}}})
            await asyncio.sleep(400)
            for name in ("a0", "a1"):
                c.cloud.remove(name)
                c.api.set_ready(name, "Unknown")
            await until(lambda: "a1" not in c.api.nodes, 900)
            await asyncio.sleep(1800)
            assert set(c.api.nodes) == {"a0", "a2", "a3"}

    run()
