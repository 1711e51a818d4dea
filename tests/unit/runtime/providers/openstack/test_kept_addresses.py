# SPDX-License-Identifier: Apache-2.0
"""Which floating IPs outlive their Service. Also: the warning about local traffic without a monitor."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ccm.cloud import Invalid, Kept, KeptLoadBalancer, LoadBalancerSpec
from ccm.providers.openstack.settings_sections import EVERYWHERE, LoadBalancerSection

from .octavia_in_memory import FakeOpenStack, the
from .test_shared_balancers import TLS, deleted, ensured, only, provider, service


def cloud(**options: Any) -> FakeOpenStack:
    section = {"subnet_id": the("sub-nodes"), "floating_network_id": the("net-public")} | options
    return FakeOpenStack(LoadBalancerSection(**section))


async def kept(fake: FakeOpenStack) -> str:
    """Create and delete a Service shop/web that keeps its floating IP. Returns the address."""
    former = service("u-1", "web", settings={"keep-floatingip": "true"})
    found = await ensured(fake, former)
    await deleted(provider(fake), former)
    return found.ingress[0].ip  # type: ignore[no-any-return]


@pytest.mark.parametrize("known", ["all", "the UID"])
async def test_a_kept_floating_ip_that_is_used_again_outlives_the_second_service_too(known: str) -> None:
    fake = cloud()
    address = await kept(fake)
    second = service("u-2", "web", load_balancer_ip=address)
    assert (await ensured(fake, second)).ingress[0].ip == address
    await deleted(provider(fake), second if known == "all" else LoadBalancerSpec("prod", "u-2", "", "", ports=()))
    assert not fake.balancers and only(fake.floating)["port_id"] is None


async def test_one_that_cloud_provider_openstack_kept_outlives_the_service_that_asks_for_it() -> None:
    """The floating IP's description has no UID."""
    fake = cloud()
    address = await kept(fake)
    row = only(fake.floating)
    row["description"] = row["description"].removesuffix(" (u-1)")
    second = service("u-2", "web", load_balancer_ip=address)
    await ensured(fake, second)
    await deleted(provider(fake), second)
    assert not fake.balancers and only(fake.floating)["port_id"] is None


@pytest.mark.parametrize("how", ["kept", "used again"])
async def test_the_owner_leaves_first_and_its_floating_ip_is_kept_all_the_same(how: str) -> None:
    fake = cloud()
    if how == "kept":
        owner = service("u-2", "web", settings={"keep-floatingip": "true"})
    else:
        owner = service("u-2", "web", load_balancer_ip=await kept(fake))
    await ensured(fake, owner)
    guest = service("u-3", "guest", TLS, settings={"load-balancer-id": only(fake.balancers)["id"]})
    await ensured(fake, guest)
    await deleted(provider(fake), owner)
    await deleted(provider(fake), guest)
    assert not fake.balancers and only(fake.floating)["port_id"] is None


async def test_one_that_was_made_for_the_service_goes_with_it_whatever_it_asks_for() -> None:
    fake = cloud(allowed_load_balancer_ips=EVERYWHERE)
    what = service("u-1", "web", load_balancer_ip="203.0.113.77")
    await ensured(fake, what)
    await deleted(provider(fake), what)
    assert not fake.balancers and not fake.floating


@pytest.mark.parametrize(
    ("monitor", "policy", "expected"), [(False, "Local", True), (True, "Local", False), (False, "Cluster", False)]
)
async def test_local_traffic_without_a_monitor_is_told(monitor: bool, policy: str, expected: bool) -> None:
    fake = cloud(create_monitor=monitor)
    found = await ensured(fake, service("u-1", "web", external_traffic_policy=policy))
    assert any("externalTrafficPolicy is Local" in each for each in found.warnings) is expected


# --- the annotation of all providers ----------------------------------------------------------------------------------


@pytest.mark.parametrize("known", ["all", "the UID"])
async def test_an_address_is_kept_for_the_annotation_of_all_providers(known: str) -> None:
    fake = cloud()
    former = service("u-1", "web", keep=Kept.ADDRESS)
    address = (await ensured(fake, former)).ingress[0].ip
    (listed,) = await provider(fake).list("prod")
    assert listed.keep is Kept.ADDRESS
    await deleted(provider(fake), former if known == "all" else LoadBalancerSpec("prod", "u-1", "", "", ports=()))
    assert not fake.balancers and only(fake.floating)["port_id"] is None
    assert not await provider(fake).list("prod"), "what is kept is no orphan"
    assert list(await provider(fake).kept("prod")) == [KeptLoadBalancer("", "shop", address)]
    assert not await provider(fake).kept("pro") and not await provider(fake).kept("")
    other = service("u-2", "web", load_balancer_ip=address, namespace="another-tenant")
    with pytest.raises(Invalid, match="loadBalancerIP"):
        await ensured(fake, other)
    again = service("u-3", "web", load_balancer_ip=address)
    assert (await ensured(fake, again)).ingress[0].ip == address


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"settings": {"keep-floatingip": "false"}}, "keep-floatingip says false"),
        ({"ip_families": ("IPv6",)}, "only floating IPs can be kept"),
    ],
)
async def test_an_address_that_cannot_be_kept_is_refused(more: dict[str, Any], message: str) -> None:
    fake = cloud()
    with pytest.raises(Invalid, match=message):
        await ensured(fake, service("u-1", "web", keep=Kept.ADDRESS, **more))
    assert not fake.balancers


async def test_what_a_service_asks_for_last_is_in_its_mark() -> None:
    fake, plain = cloud(), service("u-1", "web")
    for asking in (plain, replace(plain, protected=True), replace(plain, keep=Kept.ADDRESS), plain):
        await ensured(fake, asking)
        (listed,) = await provider(fake).list("prod")
        assert (listed.keep, listed.protected) == (asking.keep, asking.protected)
    await deleted(provider(fake), plain)
    assert not fake.floating
