# SPDX-License-Identifier: Apache-2.0
"""Pod CIDRs that the cloud assigned to instances: which of them a Node gets, and when."""

from __future__ import annotations

import asyncio
import ipaddress

import msgspec
import pytest

from ccm.cloud import Transient
from ccm.controllers.pod_cidrs.node_ipam import NodeIpamController, NodeIpamOptions
from ccm.controllers.pod_cidrs.node_ipam_cloud import CloudSource
from ccm.controllers.pod_cidrs.node_ipam_cloud_rules import CloudRanges
from ccm.controllers.pod_cidrs.node_ipam_rules import NotAssigned
from ccm.controllers.shared.pod_network_rules import PodNetwork
from ccm.engine.objects import Node

from ..gateway.virtual import in_virtual_time
from .nodes_harness import Cluster, machine, until

CLUSTER = [ipaddress.ip_network("10.0.0.0/16"), ipaddress.ip_network("fd00::/48")]
OPTIONS = NodeIpamOptions(PodNetwork(CLUSTER), from_cloud=True)


def node(uid: str, *cidrs: str) -> Node:
    return msgspec.convert({"metadata": {"name": uid, "uid": uid}, "spec": {"podCIDRs": list(cidrs)}}, Node)


@pytest.mark.parametrize(
    ("offered", "cidrs"),
    [
        (("10.0.1.0/24",), ("10.0.1.0/24",)),
        (("fd00:0:0:1::/80", "10.0.1.0/24"), ("fd00:0:0:1::/80", "10.0.1.0/24")),
        (("10.0.1.0/24", "10.0.2.0/24", "fd00::/80"), ("10.0.1.0/24", "fd00::/80")),
        (("192.0.2.0/28", "10.0.5.0/24"), ("10.0.5.0/24",)),  # the first one has another purpose
    ],
)
def test_a_node_gets_the_first_cidr_of_each_family(offered, cidrs):
    assert CloudRanges(CLUSTER).assign("a", offered) == cidrs


@pytest.mark.parametrize(
    ("offered", "reason", "says"),
    [
        ((), "CIDRNotAvailable", "assigned no pod CIDR"),
        (("nonsense" * 20,), "CIDRNotAvailable", "nonsense"),
        (("10.1.0.0/24",), "CIDRNotAvailable", "10.1.0.0/24 to its instance, and nothing inside --cluster-cidr"),
        (("10.0.0.0/15", "fd01::/80"), "CIDRNotAvailable", "nothing inside --cluster-cidr (10.0.0.0/16, fd00::/48)"),
        (("10.0.9.128/25",), "CIDRConflict", "1 other Nodes have pod CIDRs that overlap"),
        (("10.0.8.0/21",), "CIDRConflict", "overlap"),
        (("fd00:0:0:9::/80",), "CIDRConflict", "overlap"),
    ],
)
def test_what_no_node_gets(offered, reason, says):
    ranges = CloudRanges(CLUSTER)
    assert ranges.observe(node("other", "10.0.9.0/24", "fd00:0:0:9::/64")) == set()
    with pytest.raises(NotAssigned) as refused:
        ranges.assign("a", offered)
    assert refused.value.reason == reason and says in str(refused.value) and len(str(refused.value)) < 300
    assert not ranges.release("a")


def test_what_a_node_held_is_free_when_it_is_gone():
    ranges = CloudRanges(CLUSTER)
    assert ranges.assign("a", ["10.0.1.0/24"]) == ranges.assign("a", ["10.0.1.0/24"])
    with pytest.raises(NotAssigned):
        ranges.assign("b", ["10.0.1.0/24"])
    assert ranges.release("a") and not ranges.release("a")
    assert ranges.assign("b", ["10.0.1.0/24"]) == ("10.0.1.0/24",)
    assert ranges.observe(node("c", "10.0.0.0/16")) == {"b"}


def controller(c: Cluster) -> NodeIpamController:
    return NodeIpamController(c.context, OPTIONS, source=CloudSource(c.context, OPTIONS, c.vouching))


@in_virtual_time
async def test_a_node_gets_those_of_its_instance_once_it_is_initialised():
    async with Cluster(machine("w1", provider_id="fake://w1", pod_cidrs=("10.0.1.0/24", "fd00::/80"))) as c:
        c.run(controller(c))
        c.api.add("w1")
        await until(lambda: "w1" in c.api.nodes)
        assert c.api.count("PATCH") == 0
        c.api.change("w1", {"spec": {"providerID": "fake://w1", "taints": []}})
        await until(lambda: c.api.nodes["w1"]["spec"].get("podCIDRs"))
        assert c.api.nodes["w1"]["spec"]["podCIDRs"] == ["10.0.1.0/24", "fd00::/80"]
        assert c.api.nodes["w1"]["spec"]["podCIDR"] == "10.0.1.0/24"
        assert c.api.count("PATCH") == 1


@in_virtual_time
async def test_a_node_that_claims_the_machine_of_another_gets_nothing():
    there = [machine(f"w{n}", f"10.9.0.{n}", f"fake://w{n}", pod_cidrs=(f"10.0.{n}.0/24",)) for n in (1, 2)]
    async with Cluster(*there) as c:
        c.run(controller(c))
        c.api.add("w1", providerID="fake://w1")
        c.api.add("w2", providerID="fake://w1")
        await until(lambda: c.api.told("CIDRNotAvailable", "w2"))
        await until(lambda: c.api.nodes["w1"]["spec"].get("podCIDRs"))
        assert "podCIDRs" not in c.api.nodes["w2"]["spec"]


@in_virtual_time
async def test_without_a_range_the_node_is_told_and_asked_about_again():
    async with Cluster(machine("w1", provider_id="fake://w1")) as c:
        c.run(controller(c))
        c.api.add("w1", providerID="fake://w1")
        await until(lambda: c.api.told("CIDRNotAvailable", "w1"))
        c.cloud.put(machine("w1", provider_id="fake://w1", pod_cidrs=("10.0.1.0/24",)))
        await until(lambda: c.api.nodes["w1"]["spec"].get("podCIDRs"), 90)


@in_virtual_time
async def test_while_the_cloud_is_away_nothing_is_assigned():
    async with Cluster(machine("w1", provider_id="fake://w1", pod_cidrs=("10.0.1.0/24",))) as c:
        c.cloud.error = Transient("504")
        c.run(controller(c))
        c.api.add("w1", providerID="fake://w1")
        await until(lambda: c.cloud.calls)
        assert c.api.count("PATCH") == 0
        c.cloud.error = None
        await until(lambda: c.api.nodes["w1"]["spec"].get("podCIDRs"), 90)


@in_virtual_time
async def test_all_nodes_are_asked_about_soon_after_an_outage():
    """After an outage of half an hour, a Node would wait for up to five minutes, but the outage's end is signalled."""
    names = [f"w{number}" for number in range(1, 9)]
    there = [machine(name, provider_id=f"fake://{name}", pod_cidrs=(f"10.0.{name[1:]}.0/24",)) for name in names]
    async with Cluster(*there) as c:
        c.cloud.error = Transient("504")
        c.run(controller(c))
        for name in names:
            c.api.add(name, providerID=f"fake://{name}")
        await asyncio.sleep(1800.0)
        assert c.api.count("PATCH") == 0
        c.cloud.error = None
        await until(lambda: all(c.api.nodes[name]["spec"].get("podCIDRs") for name in names), 120)
