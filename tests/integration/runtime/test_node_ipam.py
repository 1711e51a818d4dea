# SPDX-License-Identifier: Apache-2.0
"""If the controller is on, Nodes get pod CIDRs from --cluster-cidr, or those that the cloud assigned to them."""

from __future__ import annotations

import asyncio
import ipaddress
import itertools

from ccm.engine.client import KubeClient
from ccm.engine.objects import Node
from ccm_simcloud.model import InstancePatch
from ccm_simcloud.testing import Simulator

from .conftest import StartCcm
from .support import NODES, event_messages, eventually, expire, get_node, node_body

ON = {"controllers": "*,nodeipam", "allocate_node_cidrs": "true"}
PODS = "/api/v1/namespaces/kube-system/pods"


async def cidrs(kube: KubeClient, *names: str) -> dict[str, list[str]]:
    """Return the pod CIDRs of these Nodes, by name, without Nodes that have none."""
    nodes = [await get_node(kube, name) for name in names]
    return {node.metadata.name: node.spec.pod_cidrs for node in nodes if node is not None and node.spec.pod_cidrs}


async def all_have_some(kube: KubeClient, *names: str) -> dict[str, list[str]]:
    async def found() -> dict[str, list[str]]:
        have = await cidrs(kube, *names)
        return have if len(have) == len(names) else {}

    return await eventually(found)


async def test_nodes_get_ranges_of_both_families_and_routes_to_them(
    kube: KubeClient, cloud: Simulator, start_ccm: StartCcm
):
    cloud.add_instances(3, prefix="ipam-")
    await kube.create(NODES, node_body("ipam-0", podCIDR="10.244.1.0/24", podCIDRs=["10.244.1.0/24"]))
    await start_ccm(**ON, cluster_cidr="10.244.0.0/16,fd00:10::/56", service_cluster_ip_range="10.244.0.0/24").leading()
    for name in ("ipam-1", "ipam-2"):
        await kube.create(NODES, node_body(name))
    found = await all_have_some(kube, "ipam-1", "ipam-2")
    assert sorted(map(tuple, found.values())) == [
        ("10.244.2.0/24", "fd00:10::/64"),
        ("10.244.3.0/24", "fd00:10:0:1::/64"),
    ]
    wanted = {"10.244.1.0/24", *itertools.chain(*found.values())}

    async def routed() -> bool:
        return {route.destination for route in cloud.project().routes.rows.values()} == wanted

    await eventually(routed)


async def test_an_exhausted_range_is_reported_and_a_freed_one_used_again(
    kube: KubeClient, cloud: Simulator, start_ccm: StartCcm
):
    await start_ccm(**ON, cluster_cidr="10.244.0.0/23").leading()
    for name in ("full-a", "full-b"):
        await kube.create(NODES, node_body(name))
    before = await all_have_some(kube, "full-a", "full-b")
    await kube.create(NODES, node_body("full-c"))
    (message,) = await eventually(lambda: event_messages(kube, "CIDRNotAvailable", "full-c"))
    assert "10.244.0.0/23" in message and await cidrs(kube, "full-c") == {}
    await kube.delete(f"{NODES}/full-a")
    assert (await all_have_some(kube, "full-c"))["full-c"] == before["full-a"]


async def test_no_two_nodes_have_one_range_across_kills_of_the_leader(
    kube: KubeClient, cloud: Simulator, start_ccm: StartCcm
):
    names = [f"many-{number}" for number in range(60)]
    for part in (names[:20], names[20:40], names[40:]):
        process = start_ccm(**ON)
        await process.leading()
        await asyncio.gather(*(kube.create(NODES, node_body(name)) for name in part))
        await eventually(lambda part=part: cidrs(kube, *part))
        process.process.kill()
        await process.wait()
        await expire(kube)
    await start_ccm(**ON).leading()
    found = await all_have_some(kube, *names)
    networks = [ipaddress.ip_network(each) for each in itertools.chain(*found.values())]
    assert len(set(networks)) == len(names)


async def test_nothing_is_assigned_beside_kube_controller_managers_allocator(
    kube: KubeClient, cloud: Simulator, start_ccm: StartCcm
):
    command = ["kube-controller-manager", "--allocate-node-cidrs=true"]
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "kube-controller-manager-cp", "labels": {"component": "kube-controller-manager"}},
        "spec": {"containers": [{"name": "kube-controller-manager", "image": "kcm", "command": command}]},
    }
    await kube.create(PODS, pod)
    try:
        ccm = start_ccm(**ON)
        await ccm.until_logged("no pod CIDR is assigned: Pod kube-controller-manager-cp has --allocate-node-cidrs")
        await kube.create(NODES, node_body("beside"))
        assert await eventually(lambda: event_messages(kube, "CIDRNotAssigned", "beside"))
        assert await cidrs(kube, "beside") == {}
    finally:
        await kube.delete(f"{PODS}/kube-controller-manager-cp")


async def test_two_nodes_that_claim_one_range_are_reported(kube: KubeClient, cloud: Simulator, start_ccm: StartCcm):
    for name in ("twin-a", "twin-b"):
        await kube.create(NODES, node_body(name, number=9))
    await start_ccm(**ON).leading()

    async def told() -> str:
        return "".join(
            [
                *await event_messages(kube, "CIDRConflict", "twin-a"),
                *await event_messages(kube, "CIDRConflict", "twin-b"),
            ]
        )

    assert "overlap with those of twin-" in await eventually(told)


async def test_it_is_off_without_its_flag(kube: KubeClient, cloud: Simulator, start_ccm: StartCcm):
    ccm = start_ccm(controllers="*,nodeipam")
    await ccm.leading()
    assert "node-ipam-controller is not started: --allocate-node-cidrs=false" in ccm.text
    await kube.create(NODES, node_body("unassigned"))
    await asyncio.sleep(1.5)
    assert await kube.get(f"{NODES}/unassigned", Node) and await cidrs(kube, "unassigned") == {}


async def test_the_ranges_that_the_cloud_assigned_are_those_of_the_nodes(
    kube: KubeClient, cloud: Simulator, start_ccm: StartCcm
):
    cloud.add_instance("of-cloud-a", pod_cidrs=("10.244.7.0/24", "fd00:10:0:7::/80"))
    late = cloud.add_instance("of-cloud-b")
    cloud.add_instance("of-cloud-c", pod_cidrs=("192.0.2.0/24",))
    for name in ("of-cloud-a", "of-cloud-b", "of-cloud-c"):
        await kube.create(NODES, node_body(name))
    ranges = {"cluster_cidr": "10.244.0.0/16,fd00:10::/56", "cidr_allocator_type": "CloudAllocator"}
    ccm = start_ccm(**ON, **ranges)
    await ccm.leading()
    assert await all_have_some(kube, "of-cloud-a") == {"of-cloud-a": ["10.244.7.0/24", "fd00:10:0:7::/80"]}
    (message,) = await eventually(lambda: event_messages(kube, "CIDRNotAvailable", "of-cloud-b"))
    assert "assigned no pod CIDR" in message
    (message,) = await eventually(lambda: event_messages(kube, "CIDRNotAvailable", "of-cloud-c"))
    assert "192.0.2.0/24" in message and "nothing inside --cluster-cidr" in message
    await ccm.stop()
    cloud.project().change_instance(late.id, InstancePatch(pod_cidrs=("10.244.8.0/24",)))
    await start_ccm(**ON, **ranges).leading()
    assert await all_have_some(kube, "of-cloud-b") == {"of-cloud-b": ["10.244.8.0/24"]}
    assert await cidrs(kube, "of-cloud-c") == {}


async def test_an_unknown_allocator_is_refused_at_start(kube: KubeClient, cloud: Simulator, start_ccm: StartCcm):
    ccm = start_ccm(**ON, cidr_allocator_type="IPAMFromCloud")
    assert await ccm.wait() != 0
    assert "--cidr-allocator-type must be RangeAllocator or CloudAllocator, not 'IPAMFromCloud'" in ccm.text
