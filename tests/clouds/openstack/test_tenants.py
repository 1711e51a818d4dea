# SPDX-License-Identifier: Apache-2.0
"""What protects tenants on a real octavia and neutron: source ranges, and limits of what a Service may name."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from ccm.engine.api_errors import ApiError
from ccm.engine.client import KubeClient, NotFoundError
from ccm.providers.openstack.annotations import PREFIX
from tests.integration.runtime.support import SERVICES, event_messages, eventually

from .conftest import StartCcm
from .customer import Site
from .test_bad_input import told
from .test_desired_state import HTTP, desired, gone, listeners
from .test_services_and_routes import NO_ROUTES, SECONDS, joined, quiet, served, service_body

OTHER = "/api/v1/namespaces/other/services"


async def has_ranges(site: Site, balancer: str, *ranges: str) -> bool:
    (listener,) = (await asyncio.to_thread(listeners, site, balancer)).values()
    return set(listener.allowed_cidrs or ()) == set(ranges)


async def ranges_of(kube: KubeClient, name: str, *ranges: str) -> None:
    await kube.patch(f"{SERVICES}/{name}", {"spec": {"loadBalancerSourceRanges": list(ranges)}})


@pytest.mark.threat("tenant-own-load-balancers-only")
async def test_source_ranges_are_narrowed(kube: KubeClient, site: Site, start_ccm: StartCcm) -> None:
    """Source ranges are narrowed, even if an earlier release wrote a range in addition to 0.0.0.0/0."""
    ccm = start_ccm(**NO_ROUTES)
    await joined(kube, "node-0")
    await kube.create(SERVICES, desired("web", HTTP, loadBalancerSourceRanges=["10.0.0.0/8", "0.0.0.0/0"]))
    await eventually(lambda: served(kube, "web"), SECONDS)
    (balancer,) = await asyncio.to_thread(site.balancers)
    assert await has_ranges(site, balancer.id, "0.0.0.0/0")
    await quiet(site)
    await ccm.stop()
    (listener,) = (await asyncio.to_thread(listeners, site, balancer.id)).values()
    both = ["10.0.0.0/8", "0.0.0.0/0"]
    await asyncio.to_thread(site.cloud.load_balancer.update_listener, listener.id, allowed_cidrs=both)
    await asyncio.to_thread(site.wait_for_balancer, balancer.id)
    start_ccm(**NO_ROUTES)
    await ranges_of(kube, "web", "10.0.0.0/8")
    await eventually(lambda: has_ranges(site, balancer.id, "10.0.0.0/8"), SECONDS, "the one range")
    await ranges_of(kube, "web", "10.0.0.0/8", "0.0.0.0/0")
    await eventually(lambda: has_ranges(site, balancer.id, "0.0.0.0/0"), SECONDS, "everybody")
    await kube.delete(f"{SERVICES}/web")
    await eventually(lambda: gone(kube, site, "web"), SECONDS)


@pytest.mark.threat("tenant-own-load-balancers-only")
async def test_a_load_balancer_of_another_namespace_is_refused(
    kube: KubeClient, site: Site, start_ccm: StartCcm
) -> None:
    """A Service that names the load balancer of another namespace in `load-balancer-id` is refused, as are annotations
    and addresses that cloud.conf does not allow. With `sharing = cluster`, the load balancer is shared.
    """
    with contextlib.suppress(ApiError):
        await kube.create(
            "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}}
        )
    try:
        ccm = start_ccm(**NO_ROUTES)
        await joined(kube, "node-0")
        await kube.create(SERVICES, service_body("host"))
        await eventually(lambda: served(kube, "host"), SECONDS)
        (balancer,) = await asyncio.to_thread(site.balancers)
        before = await asyncio.to_thread(_state, site)
        guest = desired("guest", {**HTTP, "port": 8080}, annotations={f"{PREFIX}load-balancer-id": balancer.id})
        await kube.create(OTHER, guest)
        message = await told(kube, "guest", "sharing in [LoadBalancer] of cloud.conf is namespace")
        assert balancer.id in message
        await kube.create(OTHER, desired("placed", HTTP, annotations={f"{PREFIX}network-id": site.network}))
        await told(kube, "placed", f"{PREFIX}network-id", "allowed-annotations in [LoadBalancer]")
        reserved = await asyncio.to_thread(_reserve, site)
        await kube.create(OTHER, desired("thief", HTTP, loadBalancerIP=reserved.floating_ip_address))
        await told(kube, "thief", "allowed-load-balancer-ips", reserved.floating_ip_address)
        for name in ("placed", "thief"):
            await kube.delete(f"{OTHER}/{name}")
        assert site.cloud.network.get_ip(reserved.id).port_id is None
        await asyncio.to_thread(site.cloud.network.delete_ip, reserved.id)
        assert await asyncio.to_thread(_state, site) == before

        await ccm.stop()
        start_ccm(conf=site.conf(LoadBalancer={"sharing": "cluster"}), **NO_ROUTES)

        async def both() -> bool:
            return set(await asyncio.to_thread(listeners, site, balancer.id)) == {("TCP", 80), ("TCP", 8080)}

        await eventually(both, SECONDS, "the guest's listener")
        await quiet(site)
        await kube.delete(f"{OTHER}/guest")

        async def alone() -> bool:
            return await asyncio.to_thread(_state, site) == before

        await eventually(alone, SECONDS, "the host alone")
        await kube.delete(f"{SERVICES}/host")
        await eventually(lambda: gone(kube, site, "host"), SECONDS)
        assert await event_messages(kube, "SyncLoadBalancerFailed", "host") == []
    finally:
        for name in ("guest", "placed", "thief"):
            with contextlib.suppress(NotFoundError):
                await kube.patch(f"{OTHER}/{name}", {"metadata": {"finalizers": None}})
                await kube.delete(f"{OTHER}/{name}")


def _state(site: Site) -> Any:
    balancers = [(each.id, sorted(each.tags), each.vip_port_id) for each in site.balancers()]
    floating = [(each.id, each.port_id) for each in site.cloud.network.ips(project_id=site.project)]
    parts = [sorted((each.id, key) for key, each in listeners(site, id).items()) for id, _, _ in balancers]
    return balancers, floating, parts


def _reserve(site: Site) -> Any:
    return site.cloud.network.create_ip(floating_network_id=site.world["public_network"], description="of the VPN")


@pytest.mark.threat("tenant-own-load-balancers-only")
async def test_a_port_may_be_named_only_while_it_is_nobodys(kube: KubeClient, site: Site, start_ccm: StartCcm) -> None:
    """With `allowed-annotations = *`, a free port becomes the VIP. A server's port, a VIP and a shared port do not."""
    network = site.cloud.network
    free, shared = [
        await asyncio.to_thread(network.create_port, network_id=site.network, name=name) for name in ("free", "shared")
    ]
    pairs = [{"ip_address": shared.fixed_ips[0]["ip_address"]}]
    peer = await asyncio.to_thread(network.create_port, network_id=site.network, allowed_address_pairs=pairs)
    (server,) = network.ports(device_id=site.servers[0])
    try:
        start_ccm(conf=site.conf(LoadBalancer={"allowed-annotations": "*"}), **NO_ROUTES)
        await joined(kube, "node-0")
        for name, port, why in (("a", server.id, "uses it"), ("b", shared.id, "shares its address")):
            await kube.create(SERVICES, desired(name, HTTP, annotations={f"{PREFIX}port-id": port}))
            await told(kube, name, f"port-id: port {port} cannot become the VIP", why)
            await kube.delete(f"{SERVICES}/{name}")
        await kube.create(SERVICES, desired("mine", HTTP, annotations={f"{PREFIX}port-id": free.id}))
        await eventually(lambda: served(kube, "mine"), SECONDS)
        (balancer,) = await asyncio.to_thread(site.balancers)
        assert balancer.vip_port_id == free.id
        await kube.create(SERVICES, desired("c", HTTP, annotations={f"{PREFIX}port-id": free.id}))
        await told(kube, "c", f"port-id: port {free.id} cannot become the VIP")
        await kube.delete(f"{SERVICES}/c")
        await kube.delete(f"{SERVICES}/mine")
        await eventually(lambda: gone(kube, site, "mine"), SECONDS)
        assert list(network.ips(project_id=site.project)) == []
    finally:
        for port in (free, shared, peer):
            await asyncio.to_thread(network.delete_port, port.id, ignore_missing=True)
