# SPDX-License-Identifier: Apache-2.0
"""Nodes are the same with the released cloud-provider-openstack and with our runtime; the calls of both are counted."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from ccm.engine.client import KubeClient
from tests.comparison import confirm, confirm_calls
from tests.integration.cluster import ApiServer
from tests.integration.runtime.support import NODES, SERVICES, TAINT, eventually, node_body, set_ready

from .conftest import run_ccm
from .customer import Site
from .peer import Peer
from .test_services_and_routes import NO_ROUTES, quiet, served

# `make test-clouds` runs these tests, but CI does not, because another program must be compiled first.
pytestmark = pytest.mark.long

SECONDS = 600.0
#: Seconds from the start of our runtime to its first comparison.
COMPARES = 30.0
CLOUD_CONFS: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "as it is": ({}, {}),
    "sorted": ({"address-sort-order": "fd00:50::/64, 203.0.113.0/24"}, {}),
    "public and internal": (
        {"public-network-name": "wide", "internal-network-name": "nodes", "ipv6-support-disabled": "true"},
        {},
    ),
    "regional": ({}, {"OS_CCM_REGIONAL": "true"}),
}


class Two:
    """Starts either controller with the same cloud.conf."""

    def __init__(self, apiserver: ApiServer, site: Site, folder: Path, conf: str) -> None:
        self.apiserver, self.site, self.folder, self.conf = apiserver, site, folder, conf

    @contextlib.asynccontextmanager
    async def running(self, which: str) -> AsyncIterator[None]:
        """Run one controller. `which`: "ours" or "theirs"."""
        if which == "ours":
            process = run_ccm(self.apiserver, self.site, self.folder, conf=self.conf, **NO_ROUTES)
        else:
            process = Peer(self.apiserver, self.conf, self.site.name, self.folder)
        try:
            yield
        finally:
            await process.stop()
            print(process.text[-6000:])  # shown by pytest when the test failed


@pytest.fixture(scope="module")
def machines(site: Site) -> Iterator[list[str]]:
    """Yield the names of four Nodes. In this order, their servers have: a floating IP; a host name; nothing special;
    two networks, IPv6 and a name with capitals."""
    compute, network = site.cloud.compute, site.cloud.network
    wide = network.create_network(name="wide")
    network.create_subnet(network_id=wide.id, cidr="10.50.0.0/24", ip_version=4)
    network.create_subnet(network_id=wide.id, cidr="fd00:50::/64", ip_version=6, enable_dhcp=False)
    server = site.boot_in("Node-Wide", [site.network, wide.id])
    port = next(iter(network.ports(device_id=site.servers[0])))
    floating = network.create_ip(floating_network_id=site.world["public_network"], port_id=port.id)
    compute.set_server_metadata(site.servers[1], hostname="first.example.com")
    site.wait_for_address(site.servers[0], floating.floating_ip_address)
    yield ["node-0", "node-1", "node-2", "node-wide"]
    compute.delete_server_metadata(site.servers[1], ["hostname"])
    network.delete_ip(floating)
    site.delete(server)
    network.delete_network(wide)


@pytest.fixture(scope="module")
def equal() -> Iterator[list[bool]]:
    """Yield a list to which the tests add whether each Node was equal. If they ran with every cloud.conf, confirm the
    number in the docs."""
    found: list[bool] = []
    yield found
    if len(found) == len(CLOUD_CONFS) * 4:
        confirm("openstack", "nodes equal", f"{sum(found)} of {len(found)}")


@pytest.mark.parametrize("case", CLOUD_CONFS)
async def test_nodes_are_equal(
    case: str,
    equal: list[bool],
    machines: list[str],
    apiserver: ApiServer,
    kube: KubeClient,
    site: Site,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """From equal registrations, both controllers make equal Nodes. One Node has no server, so neither controller
    removes its taint."""
    networking, variables = CLOUD_CONFS[case]
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    two = Two(apiserver, site, tmp_path, site.conf(Networking=networking))
    found = {}
    for which in ("theirs", "ours"):
        async with two.running(which):
            for name in (*machines, "node-without"):
                await kube.create(NODES, node_body(name))
            found[which] = await eventually(lambda: _nodes(kube, machines), SECONDS, f"Nodes initialised by {which}")
        for name in (*machines, "node-without"):
            await kube.delete(f"{NODES}/{name}")
    assert TAINT in found["ours"]["node-without"]["spec"]["taints"]
    equal += [found["theirs"][name] == found["ours"][name] for name in machines]
    assert found["ours"] == found["theirs"]


async def _nodes(kube: KubeClient, names: list[str]) -> dict[str, Any]:
    """Return all Nodes by name, without the fields that the API server sets; {} while one of `names` is not
    initialised."""
    nodes = {node["metadata"].pop("name"): node for node in (await kube.get(NODES, dict))["items"]}
    for node in nodes.values():
        for key in ("uid", "resourceVersion", "creationTimestamp", "managedFields"):
            node["metadata"].pop(key, None)
        for taint in node["spec"].get("taints", ()):
            taint.pop("timeAdded", None)
    done = [
        TAINT not in nodes[name]["spec"].get("taints", ()) and nodes[name]["status"].get("addresses") for name in names
    ]
    return nodes if all(done) else {}  # cloud-provider-openstack writes the addresses last


async def test_calls(apiserver: ApiServer, kube: KubeClient, site: Site, tmp_path: Path) -> None:
    """The calls are counted for a Service of two ports with two Nodes, then three. Octavia settles in 0.1 s, so that
    waiting costs no calls."""
    two = Two(apiserver, site, tmp_path, site.conf())
    theirs = await _counted(two, kube, "theirs")
    ours = await _counted(two, kube, "ours")
    print(f"theirs: {theirs}\nours: {ours}")
    for operation, calls in ours.items():
        confirm_calls("openstack", operation, ours=calls.total(), theirs=theirs[operation].total())


async def _counted(two: Two, kube: KubeClient, which: str) -> dict[str, Counter[str]]:
    """Return the calls of each operation, without the requests for versions, which a process makes once.

    The test restarts our runtime before it has run for 30 s. After that time, the runtime would read load balancers to
    compare them with Services.
    """
    site = two.site
    ports = [{"name": f"p{number}", "port": number, "protocol": "TCP"} for number in (80, 443, 8443)]
    spec = {"type": "LoadBalancer", "selector": {"app": "web"}, "ports": ports[:2]}
    body = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": spec}

    async def members() -> list[int]:
        pools = await asyncio.to_thread(lambda: list(site.cloud.load_balancer.pools()))
        return sorted(len(pool.members) for pool in pools)

    async def has(*expected: int) -> bool:
        return await members() == list(expected)

    async def gone() -> bool:
        names = [each["metadata"]["name"] for each in (await kube.get(SERVICES, dict))["items"]]
        return "web" not in names and await members() == []

    async def joins(number: int) -> None:
        """Create a Node as a kubelet does, with the machine's address, because cloud-provider-openstack never adds a
        Node to a load balancer if the Node gets its address later.
        """
        node = node_body(f"node-{number}", number=number + 1)
        node["status"] = {"addresses": [{"type": "InternalIP", "address": site.address(site.servers[number])}]}
        await kube.create(NODES, node)
        await set_ready(kube, f"node-{number}", "True")

    more = {"spec": {"ports": ports}}
    operations: dict[str, tuple[Any, Any]] = {
        "create": (lambda: kube.create(SERVICES, body), lambda: served(kube, "web")),
        "unchanged": (None, lambda: has(2, 2)),
        "node joins": (lambda: joins(2), lambda: has(3, 3)),
        "node leaves": (lambda: kube.delete(f"{NODES}/node-2"), lambda: has(2, 2)),
        "port added": (lambda: kube.patch(f"{SERVICES}/web", more), lambda: has(2, 2, 2)),
        "delete": (lambda: kube.delete(f"{SERVICES}/web"), gone),
    }
    found = {}
    async with contextlib.AsyncExitStack() as process:
        for number in (0, 1):
            await joins(number)
        _forget(site)
        await process.enter_async_context(two.running(which))
        started = time.monotonic()
        await eventually(lambda: _nodes(kube, ["node-0", "node-1"]), SECONDS, "two Nodes are initialised")
        found["nodes initialised"] = _of_work(await quiet(site))
        for operation, (act, done) in operations.items():
            if act is None or (which == "ours" and time.monotonic() - started > COMPARES / 2):
                await process.aclose()
                _forget(site)
                await process.enter_async_context(two.running(which))
                started = time.monotonic()
                await quiet(site)
            if act is not None:
                _forget(site)
                await act()
            await eventually(done, SECONDS, f"{operation}: {which}")
            found[operation] = _of_work(await quiet(site))
    for number in (0, 1):
        await kube.delete(f"{NODES}/node-{number}")
    return found


def _of_work(calls: Counter[str]) -> Counter[str]:
    return Counter({call: count for call, count in calls.items() if not call.endswith(" GET /")})


def _forget(site: Site) -> None:
    site.rig.reset()
    site.rig.load_balancers(0.1)
