# SPDX-License-Identifier: Apache-2.0
"""The provider `libcloud` with its driver for OpenStack on real services, beside the provider `openstack`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest

from ccm.cloud import (
    AddressType,
    Instance,
    InstanceRef,
    InstanceState,
    NotFound,
    ProviderConfig,
    Transient,
    Unauthorized,
)
from ccm.providers.libcloud import LibcloudCloud
from tests.integration.runtime.support import NODES, eventually, get_node, initialised, node_body
from tools.clouds.openstack.rig.control import without_versions

from .conftest import Provider, StartCcm
from .customer import PASSWORD, Site

#: The maximum number of servers that nova lists in one answer.
PAGE = 1000
#: Long timeouts, because no test here is about speed, and beside a cluster on two cores nova needs more than 15 s for a
#: page.
PATIENT = {"request_timeout": "300s", "listing_timeout": "800s"}

Tail = Callable[..., AbstractAsyncContextManager[LibcloudCloud]]


def conf(site: Site, password: str = PASSWORD) -> str:
    """Return the configuration of the driver for the site's project."""
    lines = {
        "driver": "openstack",
        "auth_url": site.world["public"]["identity"].removesuffix("/v3"),
        "username": site.name,
        "password": password,
        "project": site.name,
        "domain": "Default",
        "project_domain_id": "default",
        "region": site.world["region"],
        **PATIENT,
    }
    return "".join(f"{key}: {text}\n" for key, text in lines.items())


@pytest.fixture
def tail(site: Site) -> Tail:
    @asynccontextmanager
    async def start() -> AsyncIterator[LibcloudCloud]:
        cloud = LibcloudCloud(ProviderConfig(conf(site), "libcloud.yaml", {}))
        await cloud.start()
        try:
            yield cloud
        finally:
            await cloud.close()

    return start


async def by_id(cloud) -> dict[str, Instance]:
    found: dict[str, Instance] = {}
    token = None
    while True:
        page = await cloud.instances.list_page(token)
        assert not page.unreachable
        found |= {each.provider_id: each for each in page.instances}
        if (token := page.next) is None:
            return found


def ips(instance: Instance) -> set[tuple[AddressType, str]]:
    return {(each.type, each.address) for each in instance.addresses if each.type is not AddressType.HOSTNAME}


async def test_instances_are_those_of_the_provider_openstack(site: Site, provider: Provider, tail: Tail) -> None:
    """Both providers report the same, except that libcloud reports no region, and no type, because its API version has
    only the flavor's ID.
    """
    port = next(iter(site.cloud.network.ports(device_id=site.servers[0])))
    create = site.cloud.network.create_ip
    floating = await asyncio.to_thread(create, floating_network_id=site.world["public_network"], port_id=port.id)
    try:
        await asyncio.to_thread(site.wait_for_address, site.servers[0], floating.floating_ip_address)
        async with provider() as openstack, tail() as libcloud:
            ours, others = await by_id(openstack), await by_id(libcloud)
    finally:
        await asyncio.to_thread(site.cloud.network.delete_ip, floating)
    assert set(others) == set(ours) and len(ours) >= 3
    for provider_id, other in others.items():
        our = ours[provider_id]
        assert (other.name, other.zone, other.state) == (our.name, our.zone, our.state)
        assert ips(other) == ips(our)
        assert (our.type, our.region) == ("m1.small", site.world["region"])
        assert (other.type, other.region) == ("", "")
    assert (AddressType.EXTERNAL_IP, floating.floating_ip_address) in ips(others[f"openstack:///{site.servers[0]}"])


async def test_a_listing_of_several_pages_is_whole(site: Site, tail: Tail) -> None:
    prefix = f"{site.name}-tail-"
    await asyncio.to_thread(site.clone, site.servers[0], PAGE, prefix, "10.30.100.1")
    try:
        async with tail() as cloud:
            site.rig.reset()
            found = await by_id(cloud)
            calls = without_versions(site.rig.calls())
    finally:
        await asyncio.to_thread(site.forget_clones, prefix)
    assert len(found) == PAGE + len(site.servers)
    assert sum(count for call, count in calls.items() if "/servers/detail" in call) == 2, calls
    assert not [call for call in calls if " GET " not in call]


async def test_a_server_that_is_stopped_and_then_deleted(site: Site, tail: Tail) -> None:
    server = await asyncio.to_thread(site.boot, f"{site.name}-short")
    ref = InstanceRef(f"{site.name}-short", f"openstack:///{server}")
    async with tail() as cloud:
        assert (await cloud.instances.get(ref)).state is InstanceState.RUNNING
        await asyncio.to_thread(site.stop, server)
        assert (await cloud.instances.get(ref)).state is InstanceState.SHUTDOWN
        await asyncio.to_thread(site.delete, server)
        with pytest.raises(NotFound):
            await cloud.instances.get(ref)
        assert ref.provider_id not in await by_id(cloud)


async def test_services_that_fail_make_nothing_look_gone(site: Site, tail: Tail) -> None:
    ref = InstanceRef("node-0", f"openstack:///{site.servers[0]}")
    async with tail() as cloud:
        for fault in (
            {"status": 503},
            {"status": 404},
            {"status": 200, "body": "<html>"},
            {"status": 200, "body": "{}"},
        ):
            site.rig.fault(service="compute", **fault)
            with pytest.raises(Transient):
                await cloud.instances.list_page(None)
            with pytest.raises(Transient):
                await cloud.instances.get(ref)
            site.rig.reset()
            assert (await cloud.instances.get(ref)).name == "node-0"


async def test_a_wrong_password_is_reported_as_such(site: Site) -> None:
    cloud = LibcloudCloud(ProviderConfig(conf(site, "wrong-password"), "libcloud.yaml", {}))
    with pytest.raises(Unauthorized) as raised:
        await cloud.start()
    assert "wrong-password" not in str(raised.value)
    await cloud.close()


async def test_a_node_is_initialised_and_removed_with_its_server(kube, site: Site, start_ccm: StartCcm) -> None:
    server = await asyncio.to_thread(site.boot, f"{site.name}-node", "zone-c")
    for name in ("node-0", "node-1", f"{site.name}-node"):
        await kube.create(NODES, node_body(name))
    ccm = start_ccm(
        conf=conf(site),
        cloud_provider="libcloud",
        controllers="cloud-node,cloud-node-lifecycle",
        configure_cloud_routes="false",
        node_monitor_period="1s",
        node_deletion_min_age="0s",
    )
    await eventually(lambda: initialised(kube, "node-0", "node-1", f"{site.name}-node"), what=ccm.text)
    node = await get_node(kube, f"{site.name}-node")
    assert node is not None and node.spec.provider_id == f"openstack:///{server}"
    assert node.metadata.labels["topology.kubernetes.io/zone"] == "zone-c"

    async def gone() -> bool:
        return await get_node(kube, f"{site.name}-node") is None

    await asyncio.to_thread(site.delete, server)
    await eventually(gone, what=ccm.text)
    assert await initialised(kube, "node-0", "node-1")
