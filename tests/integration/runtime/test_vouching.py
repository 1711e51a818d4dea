# SPDX-License-Identifier: Apache-2.0
"""What a compromised kubelet can write into its Node on a real API server, which of that reaches the cloud, and what
the check of Nodes costs.

The API server accepts each of these Nodes: NodeRestriction checks only the Node's name.
"""

from __future__ import annotations

import asyncio

import pytest

from ccm.engine.client import KubeClient
from ccm_simcloud.testing import Simulator

from .conftest import StartCcm
from .support import NODES, SERVICES, event_messages, eventually, get_node, initialised, is_tainted, node_body
from .test_services_and_routes import LIFECYCLE_OFF, balancers, nodes_of, routes, served, service_body, targets

#: An instance of the simulated cloud that is not a Node: a database.
DATABASE = [{"type": "InternalIP", "address": "10.77.0.1"}]
OWN = [{"type": "InternalIP", "address": "10.66.0.1"}]


@pytest.mark.threat("kubelet-routes-inside-cluster-cidr")
async def test_a_node_attracts_no_route_but_a_nodes(kube: KubeClient, cloud: Simulator, start_ccm: StartCcm):
    await start_ccm(**LIFECYCLE_OFF).leading()
    await nodes_of(kube, cloud, "honest-", 1)
    cloud.add_instance("evil", addresses=OWN)

    async def honest() -> bool:
        return routes(cloud) == {"10.244.1.0/24": "honest-0"}

    async def routed() -> bool:
        return routes(cloud) == {"10.244.1.0/24": "honest-0", "10.244.50.0/24": "evil"}

    await eventually(honest)
    for cidr in ("169.254.169.254/32", "8.8.8.0/24", "10.77.0.1/32", "10.0.0.0/8", "10.244.0.0/17", "10.244.50.0/24"):
        await kube.create(NODES, node_body("evil", podCIDR=cidr, podCIDRs=[cidr]))
        await eventually(lambda: initialised(kube, "evil"))
        if cidr == "10.244.50.0/24":  # kube-controller-manager might have assigned this one
            await eventually(routed)
            break

        async def told(cidr: str = cidr) -> bool:
            return any(cidr in message for message in await event_messages(kube, "FailedToCreateRoute", "evil"))

        await eventually(told)
        assert await honest(), cidr
        await kube.delete(f"{NODES}/evil")  # CVE-2025-5187: the kubelet registers again
    assert {entry.status for entry in cloud.journal("routes.create")} <= {200, 201}


@pytest.mark.threat("kubelet-own-addresses-only")
async def test_an_invented_address_gets_no_traffic(kube: KubeClient, cloud: Simulator, start_ccm: StartCcm):
    cloud.add_instance("database", addresses=DATABASE)
    await start_ccm(**LIFECYCLE_OFF).leading()
    names = await nodes_of(kube, cloud, "member-", 2)
    await kube.create(SERVICES, service_body("web"))
    await eventually(lambda: served(kube, "web"))
    await eventually(lambda: targets(cloud, 2))
    (before,) = [{target.address for target in balancer.targets} for balancer in balancers(cloud)]
    await kube.patch(f"{NODES}/{names[0]}/status", {"status": {"addresses": DATABASE}})
    messages = await eventually(lambda: event_messages(kube, "NodeNotVouched", names[0]))
    assert DATABASE[0]["address"] in messages[0]
    await kube.create(SERVICES, service_body("later", 81))
    await eventually(lambda: served(kube, "later"))
    await asyncio.sleep(2)
    found = [{target.address for target in balancer.targets} for balancer in balancers(cloud)]
    assert found == [before, before]


@pytest.mark.threat("kubelet-own-addresses-only")
@pytest.mark.threat("kubelet-cannot-delete-others")
async def test_a_copied_provider_id_is_worth_nothing(kube: KubeClient, cloud: Simulator, start_ccm: StartCcm):
    database = cloud.add_instance("database", addresses=DATABASE)
    safety = {"node_deletion_min_age": "0s", "node_monitor_period": "300ms"}
    await start_ccm(**safety).leading()
    (victim,) = await nodes_of(kube, cloud, "victim-", 1)
    await kube.create(SERVICES, service_body("web"))
    await eventually(lambda: served(kube, "web"))
    node = await get_node(kube, victim)
    assert node is not None
    cloud.add_instance("evil", addresses=OWN)
    for number, (provider_id, reason) in enumerate(
        [(node.spec.provider_id, "SameProviderID"), (f"sim://north/{database.id}", "OtherMachine")], 40
    ):
        await kube.create(NODES, node_body("evil", number=number, providerID=provider_id))
        await kube.patch(f"{NODES}/evil/status", {"status": {"addresses": DATABASE}})
        await eventually(lambda reason=reason: event_messages(kube, reason, "evil"))
        await eventually(lambda: event_messages(kube, "NodeNotVouched", "evil"))
        await asyncio.sleep(2)
        evil = await get_node(kube, "evil")
        assert evil is not None and is_tainted(evil)
        assert routes(cloud) == {"10.244.1.0/24": victim}
        assert [[target.address for target in balancer.targets] for balancer in balancers(cloud)] == [["10.0.0.0"]]
        await kube.delete(f"{NODES}/evil")
    assert await get_node(kube, victim) is not None
    assert await event_messages(kube, "DeletingNode", victim) == []


async def test_a_start_lists_the_instances_once(kube: KubeClient, cloud: Simulator, start_ccm: StartCcm):
    """One listing at the start serves both the node controller and the check of the Nodes' addresses and CIDRs."""
    first = start_ccm(**LIFECYCLE_OFF)
    await first.leading()
    await nodes_of(kube, cloud, "many-", 60)
    await kube.create(SERVICES, service_body("web"))
    await eventually(lambda: served(kube, "web"))
    await eventually(lambda: targets(cloud, 60))
    await first.stop()
    before, since = cloud.calls("instances.*"), cloud.server.journal.sequence
    await start_ccm(**LIFECYCLE_OFF).leading()
    await kube.create(SERVICES, service_body("late", 81))
    await eventually(lambda: served(kube, "late"))
    await eventually(lambda: targets(cloud, 60))
    await asyncio.sleep(2)
    assert cloud.calls("instances.*") - before == 1
    assert cloud.calls("load_balancers.update", since=since) == 0
