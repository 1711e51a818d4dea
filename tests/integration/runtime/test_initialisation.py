# SPDX-License-Identifier: Apache-2.0
"""New Nodes become usable: completely, quickly, and for few cloud calls."""

from __future__ import annotations

import asyncio

import msgspec

from ccm.engine.client import KubeClient
from ccm.engine.objects import Node, WatchEvent
from ccm.simcloud.model import Address, InstancePatch
from ccm.simcloud.testing import Simulator

from .conftest import StartCcm
from .support import NODES, event_messages, eventually, get_node, initialised, is_tainted, node_body


async def test_everything_an_instance_tells_is_on_the_node(kube: KubeClient, cloud: Simulator, start_ccm: StartCcm):
    instance = cloud.add_instance(
        "full",
        type="sim.large",
        zone="north-b",
        addresses=[
            {"type": "InternalIP", "address": "10.0.0.7"},
            {"type": "ExternalIP", "address": "203.0.113.7"},
        ],
        labels={"rack.example.com/row": "4"},
    )
    other_taint = {"key": "example.com/other", "value": "x", "effect": "NoSchedule"}
    body = node_body("full")
    body["spec"]["taints"].append(other_taint)
    await kube.create(NODES, body)
    await start_ccm().leading()
    await eventually(lambda: initialised(kube, "full"))
    node = await get_node(kube, "full")
    assert node is not None
    assert node.spec.provider_id == f"sim://north/{instance.id}"
    assert [(a.type, a.address) for a in node.status.addresses] == [
        ("InternalIP", "10.0.0.7"),
        ("ExternalIP", "203.0.113.7"),
    ]
    # The API server itself adds not-ready to a Node without a kubelet.
    assert {taint.key for taint in node.spec.taints} == {"example.com/other", "node.kubernetes.io/not-ready"}
    expected = {
        "failure-domain.beta.kubernetes.io/zone": "north-b",
        "topology.kubernetes.io/zone": "north-b",
        "failure-domain.beta.kubernetes.io/region": "north",
        "topology.kubernetes.io/region": "north",
        "beta.kubernetes.io/instance-type": "sim.large",
        "node.kubernetes.io/instance-type": "sim.large",
        "rack.example.com/row": "4",
    }
    assert {key: node.metadata.labels.get(key) for key in expected} == expected
    await eventually(lambda: event_messages(kube, "Synced", "full"))


async def test_addresses_are_there_before_the_taint_goes(kube: KubeClient, cloud: Simulator, start_ccm: StartCcm):
    """W11: at no moment is a Node schedulable without the cloud's addresses."""
    cloud.add_instances(5, prefix="early-")
    for number in range(5):
        await kube.create(NODES, node_body(f"early-{number}"))
    _, version = await kube.list(NODES, Node)
    seen: list[Node] = []

    async def follow() -> None:
        params = {"resourceVersion": version}
        async with kube.watch(NODES, params, read_timeout=30) as lines:
            async for line in lines:
                event = msgspec.json.decode(line, type=WatchEvent)
                seen.append(msgspec.json.decode(event.object, type=Node))

    watching = asyncio.create_task(follow())
    await start_ccm().leading()
    await eventually(lambda: initialised(kube, *(f"early-{n}" for n in range(5))))
    await asyncio.sleep(0.2)
    watching.cancel()
    assert len(seen) >= 10
    assert all(node.status.addresses for node in seen if not is_tainted(node))


async def test_300_nodes_at_once_cost_at_most_3_cloud_calls(kube: KubeClient, cloud: Simulator, start_ccm: StartCcm):
    names = [f"many-{number}" for number in range(300)]
    cloud.add_instances(300, prefix="many-")
    await start_ccm().leading()
    await asyncio.sleep(0.5)
    before = cloud.calls("instances.*")
    await asyncio.gather(*(kube.create(NODES, node_body(name)) for name in names))

    async def all_initialised() -> bool:
        nodes, _ = await kube.list(NODES, Node)
        return sum(1 for node in nodes if node.spec.provider_id and not is_tainted(node)) == len(names)

    await eventually(all_initialised, 60)
    assert cloud.calls("instances.*") - before <= 3
    nodes, _ = await kube.list(NODES, Node)
    table = cloud.project().instances
    ids = {table.get(id_).name: f"sim://north/{id_}" for id_ in table.ids}
    assert {node.metadata.name: node.spec.provider_id for node in nodes} == {name: ids[name] for name in names}


async def test_a_node_whose_instance_appears_late_is_initialised_then(
    kube: KubeClient, cloud: Simulator, start_ccm: StartCcm
):
    cloud.add_instance("somebody-else")
    await start_ccm().leading()
    await kube.create(NODES, node_body("late"))
    messages = await eventually(lambda: event_messages(kube, "InstanceNotFound", "late"))
    assert "'late'" in messages[0]
    assert not await initialised(kube, "late")
    cloud.add_instance("late", addresses=[{"type": "InternalIP", "address": "10.0.0.9"}])
    await eventually(lambda: initialised(kube, "late"))


async def test_while_the_cloud_fails_the_taint_stays_and_an_event_says_why(
    kube: KubeClient, cloud: Simulator, start_ccm: StartCcm
):
    cloud.add_instances(2, prefix="outage-")
    await start_ccm().leading()
    cloud.fault(action="status", status=500, match={"operation": "instances.*"})
    for number in range(2):
        await kube.create(NODES, node_body(f"outage-{number}"))
    await eventually(lambda: event_messages(kube, "CloudNotAvailable", "outage-0"))
    node = await get_node(kube, "outage-0")
    assert node is not None and is_tainted(node) and not node.spec.provider_id
    cloud.clear_faults()
    await eventually(lambda: initialised(kube, "outage-0", "outage-1"), 40)


async def test_a_node_of_another_cloud_is_left_alone(kube: KubeClient, cloud: Simulator, start_ccm: StartCcm):
    cloud.add_instance("foreign")
    await kube.create(NODES, node_body("foreign", providerID="other://x/1"))
    before = await get_node(kube, "foreign")
    await start_ccm().leading()
    await eventually(lambda: event_messages(kube, "ForeignProviderID", "foreign"))
    assert await get_node(kube, "foreign") == before


async def test_changed_addresses_are_followed(kube: KubeClient, cloud: Simulator, start_ccm: StartCcm):
    instance = cloud.add_instance("moves", addresses=[{"type": "InternalIP", "address": "10.0.0.1"}])
    await kube.create(NODES, node_body("moves"))
    await start_ccm(node_status_update_frequency="1s").leading()
    await eventually(lambda: initialised(kube, "moves"))
    moved_to = InstancePatch(addresses=[Address(type="InternalIP", address="10.0.0.2")])
    cloud.project().change_instance(instance.id, moved_to)

    async def moved() -> bool:
        node = await get_node(kube, "moves")
        return node is not None and [a.address for a in node.status.addresses] == ["10.0.0.2"]

    await eventually(moved)
