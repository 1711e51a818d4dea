# SPDX-License-Identifier: Apache-2.0
"""Additional VIPs and kept load balancers on a real octavia and neutron, which check networks and families."""

from __future__ import annotations

import asyncio
import dataclasses
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from ccm.cloud import Kept, LoadBalancerSpec, NotFound, Port, RetryAfter

from .conftest import Provider
from .customer import Site


@pytest.fixture
def six(site: Site) -> Iterator[str]:
    """Yield the ID of an IPv6 subnet in the nodes' network."""
    network = site.cloud.network
    made = network.create_subnet(network_id=site.network, cidr="fd00:77::/64", ip_version=6, name="six").id
    yield made
    site.clean_balancers()
    network.delete_subnet(made)


async def patiently(call: Any, *arguments: Any) -> Any:
    for _ in range(300):
        try:
            return await call(*arguments)
        except RetryAfter:
            await asyncio.sleep(0.3)
    raise AssertionError("octavia does not finish")


async def served(balancers: Any, asking: LoadBalancerSpec) -> Any:
    found = await patiently(balancers.ensure, asking, ())
    while not found.ready:
        await asyncio.sleep(0.3)
        found = await balancers.get(asking)
    return found


async def test_two_families_and_a_load_balancer_that_is_kept_with_both(
    site: Site, six: str, provider: Provider
) -> None:
    asking = LoadBalancerSpec(
        "kubernetes", str(uuid.uuid4()), "shop", "dual", (Port("http", "TCP", 80, 30080),),
        ip_families=("IPv4", "IPv6"), source_ranges=("192.0.2.0/24", "2001:db8::/32"), keep=Kept.LOAD_BALANCER,
    )  # fmt: skip
    async with provider() as cloud:
        balancers = cloud.load_balancers
        found = await served(balancers, asking)
        (row,) = await asyncio.to_thread(site.balancers)
        (vip,) = row.additional_vips
        (floating,) = await asyncio.to_thread(lambda: list(site.cloud.network.ips(project_id=site.project)))
        assert vip["subnet_id"] == six
        assert [each.ip for each in found.ingress] == [floating.floating_ip_address, vip["ip_address"]]
        (listener,) = await asyncio.to_thread(
            lambda: list(site.cloud.load_balancer.listeners(load_balancer_id=row.id))
        )
        assert sorted(listener.allowed_cidrs) == sorted(asking.source_ranges)
        await patiently(balancers.ensure, dataclasses.replace(asking, source_ranges=()), ())
        with pytest.raises(NotFound):
            await patiently(balancers.delete, asking)
        assert [each.name for each in await balancers.kept("kubernetes")] == [row.name]
        taker = dataclasses.replace(asking, uid=str(uuid.uuid4()), name="again", keep=None, take_back=row.name)
        assert [each.ip for each in (await served(balancers, taker)).ingress] == [each.ip for each in found.ingress]
        with pytest.raises(NotFound):
            await patiently(balancers.delete, taker)
        assert not await asyncio.to_thread(site.balancers)
        assert not list(await asyncio.to_thread(lambda: list(site.cloud.network.ips(project_id=site.project))))
