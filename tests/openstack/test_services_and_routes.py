# SPDX-License-Identifier: Apache-2.0
"""Services and Pod routes on a real octavia and neutron: what appears there, what it costs, what is left at the end."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from ccm.engine.client import KubeClient, NotFoundError
from ccm.engine.objects import Service

from ..integration.runtime.support import (
    NODES,
    SERVICES,
    Ccm,
    event_messages,
    eventually,
    get_service,
    initialised,
    node_body,
)
from .conftest import StartCcm
from .customer import Site
from .rig.control import without_versions

SECONDS = 600.0
NO_ROUTES = {"controllers": "*,-cloud-node-lifecycle", "configure_cloud_routes": "false"}
SERVICES_OF_THE_COUNT = 10
#: Calls that cloud-provider-openstack makes to create a load balancer that takes 60 s to build: 22 to 25.
UPSTREAM_CREATE = 22


def service_body(name: str) -> dict[str, Any]:
    ports = [{"name": "http", "port": 80, "protocol": "TCP"}]
    spec = {"type": "LoadBalancer", "selector": {"app": name}, "ports": ports}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}


async def served(kube: KubeClient, *names: str) -> list[Service]:
    services = [await get_service(kube, name) for name in names]
    return services if all(service.status.load_balancer.ingress for service in services) else []


async def quiet(site: Site, seconds: float = 5.0) -> Counter[str]:
    """The calls, once none came for a while."""
    before: Counter[str] = Counter()
    while (now := site.rig.calls()) != before or not now:
        before = now
        await asyncio.sleep(seconds)
    return now


async def joined(kube: KubeClient, *names: str) -> None:
    for number, name in enumerate(names):
        await kube.create(NODES, node_body(name, number=number + 1))
    await eventually(lambda: initialised(kube, *names), SECONDS)


async def test_what_services_cost(kube: KubeClient, site: Site, start_ccm: StartCcm) -> None:
    """One that takes a minute to build; then ten, a restart of the runtime, and a node that joins."""
    try:
        ccm = start_ccm(**NO_ROUTES)
        await joined(kube, "node-0", "node-1")
        await _a_service_of_a_minute(kube, site)
        names = ["web", *(f"web-{number}" for number in range(1, SERVICES_OF_THE_COUNT))]
        for name in names[1:]:
            await kube.create(SERVICES, service_body(name))
        await eventually(lambda: served(kube, *names), SECONDS)
        await quiet(site)
        ccm = await _a_restart(site, ccm, start_ccm)
        await _a_node_joins(kube, site)
        await _all_are_removed(kube, site, names)
    finally:
        await asyncio.to_thread(site.clean_balancers)


async def _a_service_of_a_minute(kube: KubeClient, site: Site) -> None:
    await quiet(site)
    site.rig.reset()
    site.rig.load_balancers(60.0)
    await kube.create(SERVICES, service_body("web"))
    (service,) = await eventually(lambda: served(kube, "web"), SECONDS)
    calls = site.rig.calls()
    print(f"create, a minute's build: {calls.total()} calls: {dict(calls)}")
    assert calls.total() <= UPSTREAM_CREATE / 2, calls
    (balancer,) = await asyncio.to_thread(site.balancers)
    assert balancer.name == f"kube_service_{site.name}_default_web"
    (floating,) = site.cloud.network.ips(port_id=balancer.vip_port_id)
    assert service.status.load_balancer.ingress[0].ip == floating.floating_ip_address
    site.rig.load_balancers(0.1)


async def _a_restart(site: Site, ccm: Ccm, start_ccm: StartCcm) -> Ccm:
    """Nothing has changed: whatever the number of Services, there are only listings."""
    await ccm.stop()
    site.rig.reset()
    ccm = start_ccm(**NO_ROUTES)
    await ccm.leading()
    calls = await quiet(site)
    print(f"restart with {SERVICES_OF_THE_COUNT} Services: {calls.total()} calls: {dict(calls)}")
    assert without_versions(calls) == Counter(
        {
            "compute GET /servers/detail": 1,
            "network GET /ports": 1,
            "load-balancer GET /loadbalancers": 1,
            "network GET /floatingips": 1,
        }
    )
    return ccm


async def _a_node_joins(kube: KubeClient, site: Site) -> None:
    site.rig.reset()
    site.rig.load_balancers(0.1)
    await kube.create(NODES, node_body("node-2", number=3))

    async def everywhere() -> bool:
        pools = await asyncio.to_thread(lambda: list(site.cloud.load_balancer.pools()))
        return len(pools) == SERVICES_OF_THE_COUNT and all(len(pool.members) == 3 for pool in pools)

    await eventually(everywhere, SECONDS)
    calls = await quiet(site)
    print(f"a node joins {SERVICES_OF_THE_COUNT} Services: {calls.total()} calls: {dict(calls)}")
    of_node = {call for call in calls if call in ("compute GET /servers/detail", "network GET /ports")}
    assert calls.total() - sum(calls[call] for call in of_node) <= 3 * SERVICES_OF_THE_COUNT, calls


async def _all_are_removed(kube: KubeClient, site: Site, names: list[str]) -> None:
    for name in names:
        await kube.delete(f"{SERVICES}/{name}")

    async def gone() -> bool:
        for name in names:
            try:
                await get_service(kube, name)
                return False
            except NotFoundError:
                continue
        return True

    await eventually(gone, SECONDS)
    assert await asyncio.to_thread(site.balancers) == []
    assert list(site.cloud.network.ips(project_id=site.project)) == []


async def test_pods_have_routes(kube: KubeClient, site: Site, start_ccm: StartCcm) -> None:
    start_ccm(controllers="*,-cloud-node-lifecycle,-service")
    await joined(kube, "node-0", "node-1")
    ports = [next(iter(site.cloud.network.ports(device_id=server))) for server in site.servers[:2]]
    wanted = [
        {"destination": f"10.244.{number}.0/24", "nexthop": port.fixed_ips[0]["ip_address"]}
        for number, port in enumerate(ports, 1)
    ]

    def routes() -> list[dict[str, str]]:
        return sorted(site.cloud.network.get_router(site.router).routes, key=lambda route: route["destination"])

    async def there() -> bool:
        return await asyncio.to_thread(routes) == wanted

    await eventually(there, SECONDS, "routes on the router")
    pairs = site.cloud.network.get_port(ports[0].id).allowed_address_pairs
    assert [pair["ip_address"] for pair in pairs] == ["10.244.1.0/24"]
    await kube.delete(f"{NODES}/node-1")

    async def one_left() -> bool:
        return await asyncio.to_thread(routes) == wanted[:1]

    await eventually(one_left, SECONDS, "the route of the node that went is gone")


@pytest.mark.parametrize("fault", [{"status": 503}, {"status": 429, "headers": {"Retry-After": "1"}}, {"kind": "drop"}])
async def test_a_service_comes_up_after_trouble(
    fault: dict[str, Any], kube: KubeClient, site: Site, start_ccm: StartCcm
) -> None:
    try:
        start_ccm(**NO_ROUTES)
        await joined(kube, "node-0")
        site.rig.fault(service="load-balancer", method="POST", times=2, **fault)
        site.rig.fault(service="network", method="POST", path="/floatingips", times=1, **fault)
        await kube.create(SERVICES, service_body("web"))
        await eventually(lambda: served(kube, "web"), SECONDS)
        assert len(await asyncio.to_thread(site.balancers)) == 1
    finally:
        await asyncio.to_thread(site.clean_balancers)


async def test_a_balancer_in_error_is_told(kube: KubeClient, site: Site, start_ccm: StartCcm) -> None:
    try:
        start_ccm(**NO_ROUTES)
        await joined(kube, "node-0")
        name = f"kube_service_{site.name}_default_web"
        site.rig.load_balancers(0.1, [name])
        await kube.create(SERVICES, service_body("web"))

        async def told() -> bool:
            return any("ERROR" in text for text in await event_messages(kube, "SyncLoadBalancerFailed", "web"))

        await eventually(told, SECONDS, "an Event about ERROR")
        site.rig.load_balancers(0.1)
        await eventually(lambda: served(kube, "web"), SECONDS, "served once the cloud is well")
    finally:
        await asyncio.to_thread(site.clean_balancers)
