# SPDX-License-Identifier: Apache-2.0
"""What a Service may request of its load balancer, on a real octavia and neutron: ports, monitors, source ranges,
security groups, an address, and a shared load balancer."""

from __future__ import annotations

import asyncio
from typing import Any

from ccm.engine.client import KubeClient, NotFoundError
from ccm.providers.openstack.annotations import INTERNAL, PREFIX
from tests.integration.runtime.support import SERVICES, event_messages, eventually, get_service

from .conftest import StartCcm
from .customer import Site
from .test_services_and_routes import NO_ROUTES, SECONDS, _name, joined, quiet, served, service_body

HTTP = {"name": "http", "port": 80, "protocol": "TCP"}
HTTPS = {"name": "https", "port": 443, "protocol": "TCP"}
DNS = {"name": "dns", "port": 53, "protocol": "UDP"}


def desired(
    name: str, *ports: dict[str, Any], annotations: dict[str, str] | None = None, **spec: Any
) -> dict[str, Any]:
    body = service_body(name)
    body["metadata"]["annotations"] = annotations or {}
    body["spec"] |= {"ports": list(ports), **spec}
    return body


async def gone(kube: KubeClient, site: Site, name: str) -> bool:
    try:
        await get_service(kube, name)
    except NotFoundError:
        return _name(site, name) not in [each.name for each in await asyncio.to_thread(site.balancers)]
    return False


def listeners(site: Site, balancer: str) -> dict[tuple[str, int], Any]:
    found = site.cloud.load_balancer.listeners(load_balancer_id=balancer)
    return {(each.protocol, each.protocol_port): each for each in found}


def groups(site: Site) -> list[Any]:
    """Return the project's security groups without neutron's own."""
    return [each for each in site.cloud.network.security_groups(project_id=site.project) if each.name != "default"]


def rules(group: Any) -> set[tuple[str, int, str | None]]:
    """Return protocol, port and source of the rules for incoming traffic."""
    found = [each for each in group.security_group_rules if each["direction"] == "ingress"]
    assert all(each["port_range_min"] == each["port_range_max"] for each in found)
    return {(each["protocol"], each["port_range_min"], each["remote_ip_prefix"]) for each in found}


async def test_ports_monitors_sources_and_security_groups(kube: KubeClient, site: Site, start_ccm: StartCcm) -> None:
    """Ports, monitors, source ranges and security groups are created, changed and removed again."""
    nodes = [next(iter(site.cloud.network.ports(device_id=server))).id for server in site.servers[:2]]
    before = {port: sorted(site.cloud.network.get_port(port).security_group_ids) for port in nodes}
    conf = site.conf(LoadBalancer={"manage-security-groups": True, "create-monitor": True, "monitor-delay": "7s"})
    start_ccm(conf=conf, **NO_ROUTES)
    await joined(kube, "node-0", "node-1")
    annotations = {f"{PREFIX}connection-limit": "123", f"{PREFIX}timeout-client-data": "40000"}
    body = desired("many", HTTP, HTTPS, annotations=annotations, loadBalancerSourceRanges=["192.0.2.0/24"])
    await kube.create(SERVICES, body)
    (service,) = await eventually(lambda: served(kube, "many"), SECONDS)
    await quiet(site)
    (balancer,) = await asyncio.to_thread(site.balancers)
    node_ports = {each.port: each.node_port for each in service.spec.ports}
    octavia = site.cloud.load_balancer

    found = await asyncio.to_thread(listeners, site, balancer.id)
    assert set(found) == {("TCP", 80), ("TCP", 443)}
    for (_, port), each in found.items():
        assert (each.connection_limit, each.timeout_client_data) == (123, 40000)
        assert each.allowed_cidrs == ["192.0.2.0/24"]
        pool = octavia.get_pool(each.default_pool_id)
        monitor = octavia.get_health_monitor(pool.health_monitor_id)
        assert (monitor.type, monitor.delay) == ("TCP", 7)
        members = {(each.address, each.protocol_port) for each in octavia.members(pool.id)}
        assert members == {(site.address(server), node_ports[port]) for server in site.servers[:2]}

    (group,) = await asyncio.to_thread(groups, site)
    assert group.name == f"lb-sg-{service.metadata.uid}-default-many"
    assert group.tags == [f"ccm:v1:{service.metadata.uid}"]
    opened = rules(group)
    assert {(protocol, port) for protocol, port, _ in opened} == {("tcp", port) for port in node_ports.values()}
    for port in nodes:
        assert sorted(site.cloud.network.get_port(port).security_group_ids) == sorted([*before[port], group.id])

    # The Service now has another port, with another protocol, and no source ranges.
    await kube.patch(f"{SERVICES}/many", {"spec": {"ports": [HTTP, DNS], "loadBalancerSourceRanges": None}})

    async def changed() -> bool:
        now = await asyncio.to_thread(listeners, site, balancer.id)
        return set(now) == {("TCP", 80), ("UDP", 53)}

    await eventually(changed, SECONDS, "listeners for 80/TCP and 53/UDP")

    async def probed() -> bool:
        return {each.type for each in octavia.health_monitors()} == {"TCP", "UDP-CONNECT"}

    await eventually(probed, SECONDS, "a monitor for each")
    await quiet(site)
    now = await asyncio.to_thread(listeners, site, balancer.id)
    assert now["TCP", 80].id == found["TCP", 80].id, "a listener that stays is not created again"
    assert all(each.allowed_cidrs in (None, [], ["0.0.0.0/0"]) for each in now.values())
    again = await get_service(kube, "many")
    wanted = {(each.protocol.lower(), each.node_port) for each in again.spec.ports}
    (group,) = await asyncio.to_thread(groups, site)
    assert {(protocol, port) for protocol, port, _ in rules(group)} == wanted

    await kube.delete(f"{SERVICES}/many")
    await eventually(lambda: gone(kube, site, "many"), SECONDS)
    assert await asyncio.to_thread(groups, site) == []
    assert {port: sorted(site.cloud.network.get_port(port).security_group_ids) for port in nodes} == before
    assert list(octavia.pools()) == [] and list(octavia.health_monitors()) == []
    assert await event_messages(kube, "SyncLoadBalancerFailed", "many") == []


async def test_an_internal_service_has_the_address_that_it_requests(
    kube: KubeClient, site: Site, start_ccm: StartCcm
) -> None:
    start_ccm(conf=site.conf(LoadBalancer={"allowed-load-balancer-ips": "10.30.99.0/24"}), **NO_ROUTES)
    await joined(kube, "node-0")
    inside = desired("inside", HTTP, annotations={INTERNAL: "true"}, loadBalancerIP="10.30.99.9")
    await kube.create(SERVICES, inside)
    (service,) = await eventually(lambda: served(kube, "inside"), SECONDS)
    assert [each.ip for each in service.status.load_balancer.ingress] == ["10.30.99.9"]
    assert list(site.cloud.network.ips(project_id=site.project)) == []
    # A load balancer cannot move: a warning says so, and the existing one stays.
    await kube.patch(f"{SERVICES}/inside", {"spec": {"loadBalancerIP": "10.30.99.10"}})
    told = await eventually(lambda: event_messages(kube, "SyncLoadBalancerFailed", "inside"), SECONDS)
    assert "10.30.99.9" in told[0] and "10.30.99.10" in told[0]
    assert [each.vip_address for each in await asyncio.to_thread(site.balancers)] == ["10.30.99.9"]
    await kube.delete(f"{SERVICES}/inside")
    await eventually(lambda: gone(kube, site, "inside"), SECONDS)


async def test_two_services_share_one_and_the_last_one_takes_it_along(
    kube: KubeClient, site: Site, start_ccm: StartCcm
) -> None:
    start_ccm(**NO_ROUTES)
    await joined(kube, "node-0", "node-1")
    await kube.create(SERVICES, service_body("host"))
    (host,) = await eventually(lambda: served(kube, "host"), SECONDS)
    (balancer,) = await asyncio.to_thread(site.balancers)
    theirs = {f"{PREFIX}load-balancer-id": balancer.id}
    await kube.create(SERVICES, desired("guest", {**HTTP, "port": 8080}, annotations=theirs))
    (guest,) = await eventually(lambda: served(kube, "guest"), SECONDS)
    assert guest.status.load_balancer.ingress[0].ip == host.status.load_balancer.ingress[0].ip
    assert set(await asyncio.to_thread(listeners, site, balancer.id)) == {("TCP", 80), ("TCP", 8080)}
    # A taken port belongs to the Service that had it first.
    await kube.create(SERVICES, desired("thief", HTTP, annotations=theirs))
    assert await eventually(lambda: event_messages(kube, "SyncLoadBalancerFailed", "thief"), SECONDS)
    await kube.delete(f"{SERVICES}/thief")
    # The first Service is deleted with its port; the other one is still served.
    await kube.delete(f"{SERVICES}/host")

    async def alone() -> bool:
        return set(await asyncio.to_thread(listeners, site, balancer.id)) == {("TCP", 8080)}

    await eventually(alone, SECONDS, "the guest alone")
    await quiet(site)
    assert [each.id for each in await asyncio.to_thread(site.balancers)] == [balancer.id]
    (floating,) = list(site.cloud.network.ips(project_id=site.project))
    assert floating.floating_ip_address == guest.status.load_balancer.ingress[0].ip
    await kube.delete(f"{SERVICES}/guest")

    async def nothing() -> bool:
        return await asyncio.to_thread(site.balancers) == []

    await eventually(nothing, SECONDS, "the load balancer is deleted with its last Service")
    assert list(site.cloud.network.ips(project_id=site.project)) == []
