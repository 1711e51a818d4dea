# SPDX-License-Identifier: Apache-2.0
"""Nodes of a real nova: how many calls they cost, counted in front of the services, and how the Nodes look."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator

import pytest

from ccm.engine.client import KubeClient
from tests.integration.runtime.support import NODES, eventually, get_node, initialised, node_body
from tools.clouds.openstack.rig.control import without_versions

from .conftest import StartCcm
from .customer import Site

PAGE = 1000  # the maximum number of servers that nova lists at once
SECONDS = 600.0
NODES_ONLY = {"controllers": "cloud-node", "configure_cloud_routes": "false"}


@pytest.fixture
def names(site: Site, request: pytest.FixtureRequest) -> Iterator[list[str]]:
    """Yield the names of as many servers as the parameter says: node-0 if the parameter is 1, otherwise copies of
    node-0.
    """
    count: int = request.param
    prefix = f"{site.name}-{count}-"
    if count == 1:
        yield ["node-0"]
        return
    site.clone(site.servers[0], count, prefix, "10.30.100.1")
    yield [f"{prefix}{number:04}" for number in range(count)]
    site.forget_clones(prefix)


@pytest.mark.parametrize("names", [1, 100, pytest.param(1000, marks=pytest.mark.long)], indirect=True, ids=str)
async def test_nodes_cost_two_listings(
    names: list[str], kube: KubeClient, site: Site, start_ccm: StartCcm, record_property: pytest.RecordProperty
) -> None:
    """Any number of Nodes costs two listings. Upstream makes three calls for each Node."""
    for name in names:
        await kube.create(NODES, node_body(name))
    site.rig.reset()
    ccm = start_ccm(**NODES_ONLY)
    await eventually(lambda: initialised(kube, names[-1]), SECONDS, f"first and last of {len(names)} Nodes\n{ccm.text}")
    await eventually(lambda: initialised(kube, *names), SECONDS, f"{len(names)} Nodes")
    calls = site.rig.calls()
    servers, ports = len(names) + len(site.servers), len(names) + len(site.servers) + 2
    further_pages = math.ceil(servers / PAGE) + math.ceil(ports / PAGE) - 2
    print(f"{len(names)} Nodes: {dict(calls)}")
    record_property("calls", calls.total())
    assert without_versions(calls).total() <= 2 + further_pages, calls
    assert not [call for call in calls if " GET " not in call]


async def test_a_node_becomes_what_its_server_is(kube: KubeClient, site: Site, start_ccm: StartCcm) -> None:
    port = next(iter(site.cloud.network.ports(device_id=site.servers[1])))
    public = site.world["public_network"]
    floating = await asyncio.to_thread(site.cloud.network.create_ip, floating_network_id=public, port_id=port.id)
    try:
        start_ccm(**NODES_ONLY)
        await kube.create(NODES, node_body("node-1"))
        await eventually(lambda: initialised(kube, "node-1"), SECONDS)
        node = await get_node(kube, "node-1")
    finally:
        await asyncio.to_thread(site.cloud.network.delete_ip, floating)
    assert node is not None and node.spec.provider_id == f"openstack:///{site.servers[1]}"
    labels = node.metadata.labels
    assert labels["topology.kubernetes.io/zone"] == "zone-b"
    assert labels["topology.kubernetes.io/region"] == site.world["region"]
    assert labels["node.kubernetes.io/instance-type"] == "m1.small"
    addresses = [(address.type, address.address) for address in node.status.addresses]
    assert ("InternalIP", port.fixed_ips[0]["ip_address"]) in addresses
    assert ("ExternalIP", floating.floating_ip_address) in addresses
