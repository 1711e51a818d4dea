# SPDX-License-Identifier: Apache-2.0
"""Nodes are initialised completely and with few calls to the cloud, and follow their instances afterwards."""

from __future__ import annotations

import asyncio
import signal

import msgspec
import pytest

from ccm.engine.client import KubeClient
from ccm.engine.objects import Node, WatchEvent
from ccm_simcloud.model import Address, InstancePatch
from ccm_simcloud.testing import Simulator

from .conftest import StartCcm
from .support import NODES, event_messages, eventually, get_node, initialised, is_tainted, node_body, set_ready


async def test_N43_everything_an_instance_tells_is_on_the_node(kube: KubeClient, cloud: Simulator, start_ccm: StartCcm):
    instance = cloud.add_instance(
        "full",
        type="sim.large",
        zone="north-b",
        addresses=[
            {"type": "InternalIP", "address": "10.0.0.7"},
            {"type": "InternalIP", "address": "fd00:1::7"},
            {"type": "ExternalIP", "address": "203.0.113.7"},
            {"type": "Hostname", "address": "full.cloud.internal"},
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
        ("InternalIP", "fd00:1::7"),
        ("ExternalIP", "203.0.113.7"),
        ("Hostname", "full.cloud.internal"),
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


@pytest.mark.parametrize(
    "node_ip",
    [
        pytest.param("10.0.0.8", id="N44-v4"),
        pytest.param("fd00:1::8", id="N45-v6"),
        pytest.param("fd00:1::8,10.0.0.8", id="N46-v6-v4"),
        pytest.param("10.0.0.8,fd00:1::8", id="N47-v4-v6"),
    ],
)
async def test_internal_ips_are_those_the_kubelet_was_given(
    node_ip: str, kube: KubeClient, cloud: Simulator, start_ccm: StartCcm
):
    """A strategic merge patch merges `status.addresses` by type, which would lose one of two InternalIPs."""
    addresses = ["10.0.0.9", "10.0.0.8", "fd00:1::9", "fd00:1::8"]
    cloud.add_instance("given", addresses=[{"type": "InternalIP", "address": address} for address in addresses])
    body = node_body("given")
    body["metadata"]["annotations"] = {"alpha.kubernetes.io/provided-node-ip": node_ip}
    body["status"] = {"addresses": [{"type": "InternalIP", "address": "10.0.0.8"}]}  # as the kubelet registers
    await kube.create(NODES, body)
    await start_ccm().leading()
    await eventually(lambda: initialised(kube, "given"))
    node = await get_node(kube, "given")
    assert node is not None
    assert [a.address for a in node.status.addresses if a.type == "InternalIP"] == node_ip.split(",")


async def test_what_no_node_can_have_costs_it_nothing_else(kube: KubeClient, cloud: Simulator, start_ccm: StartCcm):
    """The API server refuses a patch with an impossible label, and one with an address that comes twice."""
    cloud.add_instance(
        "odd",
        type="m1 (large)",
        zone="north-a",
        addresses=[{"type": "InternalIP", "address": "10.0.0.7"}] * 2,
        labels={"not a key": "x", "rack.example.com/row": "no value!", "fine": "yes"},
    )
    await kube.create(NODES, node_body("odd"))
    await start_ccm().leading()
    await eventually(lambda: initialised(kube, "odd"))
    node = await get_node(kube, "odd")
    assert node is not None
    assert [a.address for a in node.status.addresses] == ["10.0.0.7"]
    labels = node.metadata.labels
    assert (labels.get("topology.kubernetes.io/zone"), labels.get("fine")) == ("north-a", "yes")
    messages = await eventually(lambda: event_messages(kube, "LabelsNotUsable", "odd"))
    for part in ("m1 (large)", "not a key", "no value!"):
        assert part in messages[0]


async def test_a_node_that_contradicts_its_instance_says_so_and_the_others_go_on(
    kube: KubeClient, cloud: Simulator, start_ccm: StartCcm
):
    cloud.add_instances(3, prefix="mixed-")
    body = node_body("mixed-0")
    body["metadata"]["annotations"] = {"alpha.kubernetes.io/provided-node-ip": "192.0.2.1"}
    await kube.create(NODES, body)
    await kube.create(NODES, node_body("mixed-1", providerID="no provider id at all"))
    await kube.create(NODES, node_body("mixed-2"))
    await start_ccm(concurrent_node_syncs=1).leading()
    await eventually(lambda: initialised(kube, "mixed-2"))
    messages = await eventually(lambda: event_messages(kube, "InitializationFailed", "mixed-0"))
    assert "--node-ip 192.0.2.1 is not among" in messages[0]
    messages = await eventually(lambda: event_messages(kube, "ForeignProviderID", "mixed-1"))
    assert "'no provider id at all'" in messages[0]
    for name in ("mixed-0", "mixed-1"):
        node = await get_node(kube, name)
        assert node is not None and is_tainted(node)


async def test_addresses_are_there_before_the_taint_goes(kube: KubeClient, cloud: Simulator, start_ccm: StartCcm):
    """W11: a Node is never schedulable without the cloud's addresses."""
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

    async def all_seen() -> bool:
        return len({node.metadata.name for node in seen if not is_tainted(node)}) == 5

    await eventually(all_seen)
    watching.cancel()
    assert len(seen) >= 10
    assert all(node.status.addresses for node in seen if not is_tainted(node))


async def test_300_nodes_at_once_cost_at_most_3_cloud_calls(kube: KubeClient, cloud: Simulator, start_ccm: StartCcm):
    names = [f"many-{number}" for number in range(300)]
    cloud.add_instances(300, prefix="many-")
    ccm = start_ccm(controllers="cloud-node")
    await ccm.leading()
    before = cloud.calls("instances.*")
    # The leader is stopped while the Nodes are created, so it sees all of them at once.
    ccm.signal(signal.SIGSTOP)
    at_once = asyncio.Semaphore(50)  # on a busy machine, the last of 300 would exceed the client's timeout

    async def register(name: str) -> None:
        async with at_once:
            await kube.create(NODES, node_body(name))

    await asyncio.gather(*map(register, names))
    ccm.signal(signal.SIGCONT)

    async def all_initialised() -> bool:
        nodes, _ = await kube.list(NODES, Node)
        return sum(1 for node in nodes if node.spec.provider_id and not is_tainted(node)) == len(names)

    await eventually(all_initialised)
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
    await eventually(lambda: initialised(kube, "outage-0", "outage-1"))


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


async def test_W12_labels_follow_the_cloud(kube: KubeClient, cloud: Simulator, start_ccm: StartCcm):
    instance = cloud.add_instance("grows", type="sim.small", zone="north-a")
    await kube.create(NODES, node_body("grows"))
    ccm = start_ccm(node_status_update_frequency="1s", refresh_node_labels="true")
    await ccm.leading()

    async def has(**wanted: str) -> bool:
        node = await get_node(kube, "grows")
        labels = node.metadata.labels if node else {}
        return all(
            labels.get(key) == wanted["type"]
            for key in ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type")
        ) and all(
            labels.get(key) == wanted["zone"]
            for key in ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone")
        )

    await eventually(lambda: has(type="sim.small", zone="north-a"))
    cloud.project().change_instance(instance.id, InstancePatch(type="sim.large"))
    await eventually(lambda: has(type="sim.large", zone="north-a"))
    spoilt = {"failure-domain.beta.kubernetes.io/zone": "elsewhere", "topology.kubernetes.io/zone": "elsewhere"}
    await kube.patch(f"{NODES}/grows", {"metadata": {"labels": spoilt}})
    await eventually(lambda: has(type="sim.large", zone="north-a"))


async def test_W6_a_ready_node_whose_instance_vanished_is_told_and_kept(
    kube: KubeClient, cloud: Simulator, start_ccm: StartCcm
):
    cloud.add_instance("stays")
    instance = cloud.add_instance("vanishes", addresses=[{"type": "InternalIP", "address": "10.0.0.4"}])
    await kube.create(NODES, node_body("vanishes"))
    await start_ccm(
        node_status_update_frequency="1s", node_monitor_period="200ms", node_deletion_min_age="0s"
    ).leading()
    await eventually(lambda: initialised(kube, "vanishes"))
    await set_ready(kube, "vanishes", "True")
    await asyncio.sleep(0.5)
    cloud.project().delete_instance(instance.id)
    messages = await eventually(lambda: event_messages(kube, "InstanceNotListed", "vanishes"))
    assert instance.id in messages[0]
    await asyncio.sleep(2)
    node = await get_node(kube, "vanishes")
    assert node is not None and [a.address for a in node.status.addresses] == ["10.0.0.4"]


async def test_without_legacy_labels_only_todays_are_written(kube: KubeClient, cloud: Simulator, start_ccm: StartCcm):
    cloud.add_instance(
        "modern", type="sim.small", zone="north-a", addresses=[{"type": "InternalIP", "address": "10.0.0.4"}]
    )
    await kube.create(NODES, node_body("modern"))
    await start_ccm(legacy_node_labels="false").leading()
    await eventually(lambda: initialised(kube, "modern"))
    node = await get_node(kube, "modern")
    assert node is not None
    assert {key: value for key, value in node.metadata.labels.items() if "kubernetes.io/" in key} == {
        "topology.kubernetes.io/zone": "north-a",
        "topology.kubernetes.io/region": "north",
        "node.kubernetes.io/instance-type": "sim.small",
    }
