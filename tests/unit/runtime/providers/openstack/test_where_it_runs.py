# SPDX-License-Identifier: Apache-2.0
"""Load balancers of another Octavia provider than the current cloud.conf's, and credentials that see all projects."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from ccm.cloud import Conflict, Ingress, Invalid
from ccm.providers.openstack.settings_sections import EVERYWHERE, LoadBalancerSection

from .octavia_in_memory import FakeOpenStack, the
from .test_shared_balancers import TLS, WEB, deleted, ensured, nodes, only, patiently, provider, service

OURS, THEIRS = "5b3c0f2a9d7e4c1b8a6f0e1d2c3b4a59", "0123456789abcdef0123456789abcdef"


def cloud(**options: Any) -> FakeOpenStack:
    section = {"subnet_id": the("sub-nodes"), "floating_network_id": the("net-public")} | options
    return FakeOpenStack(LoadBalancerSection(**section))


def configured(fake: FakeOpenStack, **options: Any) -> None:
    """Change options of cloud.conf."""
    fake.settings.load_balancer = dataclasses.replace(fake.settings.load_balancer, **options)


# --- another provider -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["ensure", "update_backends", "deviations"])
async def test_one_of_ovn_gets_what_ovn_takes_after_cloud_conf_says_amphora(how: str) -> None:
    fake = cloud(lb_provider="ovn")
    await ensured(fake, service("u-1", "web"))
    configured(fake, lb_provider="amphora")
    what = service("u-1", "web", WEB, TLS)
    if how == "ensure":
        await ensured(fake, what)
        assert len(fake.listeners) == 2
    elif how == "update_backends":
        await patiently(provider(fake).update_backends, service("u-1", "web"), nodes(1, 2, 3))
    else:
        await ensured(fake, service("u-1", "web"))
        assert not await provider(fake).deviations(service("u-1", "web"), nodes(1, 2))
    assert {pool["lb_algorithm"] for pool in fake.pools.values()} == {"SOURCE_IP_PORT"}


async def test_one_of_amphora_keeps_its_ranges_after_cloud_conf_says_ovn() -> None:
    fake = cloud(lb_provider="amphora")
    await ensured(fake, service("u-1", "web", source_ranges=("192.0.2.0/24",)))
    configured(fake, lb_provider="ovn")
    what = service("u-1", "web", source_ranges=("198.51.100.0/24",), settings={"timeout-tcp-inspect": "5"})
    await ensured(fake, what)
    row = only(fake.listeners)
    assert row["allowed_cidrs"] == ["198.51.100.0/24"] and row["timeout_tcp_inspect"] == 5
    assert only(fake.pools)["lb_algorithm"] == "ROUND_ROBIN"


async def test_what_the_provider_of_a_load_balancer_cannot_do_is_refused() -> None:
    fake = cloud(lb_provider="ovn")
    await ensured(fake, service("u-1", "web"))
    configured(fake, lb_provider="amphora")
    with pytest.raises(Invalid, match="would be open to everybody, Octavia's provider ovn"):
        await provider(fake).ensure(service("u-1", "web", source_ranges=("192.0.2.0/24",)), nodes(1))
    with pytest.raises(Invalid, match="supports only SOURCE_IP_PORT"):
        await provider(fake).ensure(service("u-1", "web", settings={"lb-method": "ROUND_ROBIN"}), nodes(1))


# --- all projects -----------------------------------------------------------------------------------------------------


async def elsewhere(fake: FakeOpenStack) -> dict[str, Any]:
    """Create a namesake's load balancer with a floating IP in another project. Returns its row."""
    fake.project_id = THEIRS
    await ensured(fake, service("u-9", "web"))
    fake.project_id = OURS
    return only(fake.balancers)  # type: ignore[no-any-return]


@pytest.mark.threat("clusters-live-side-by-side")
async def test_administrators_credentials_do_not_see_other_projects_load_balancers() -> None:
    fake = cloud()
    theirs = await elsewhere(fake)
    theirs["tags"] = [tag for tag in theirs["tags"] if tag.startswith("kube_service_")]
    before = dict(theirs)
    assert (await ensured(fake, service("u-1", "web"))).ready and len(fake.balancers) == 2
    assert [each.service_uid for each in await provider(fake).list("prod")] == ["u-1"]
    with pytest.raises(Invalid, match="this project has no load balancer"):
        await provider(fake).ensure(service("u-2", "guest", TLS, settings={"load-balancer-id": theirs["id"]}), nodes(1))
    await deleted(provider(fake), service("u-1", "web"))
    assert only(fake.balancers) == before and len(fake.floating) == 1


@pytest.mark.threat("clusters-live-side-by-side")
async def test_administrators_credentials_do_not_take_other_projects_floating_ips() -> None:
    fake = cloud(allowed_load_balancer_ips=EVERYWHERE)
    await elsewhere(fake)
    free = only(fake.floating)
    free["port_id"] = None
    address = free["floating_ip_address"]
    with pytest.raises(Conflict, match="in use"):
        await provider(fake).ensure(service("u-1", "web", load_balancer_ip=address), nodes(1))
    await deleted(provider(fake), service("u-9", "web"))
    assert free["port_id"] is None and free in fake.floating.values()


@pytest.mark.threat("clusters-live-side-by-side")
async def test_administrators_credentials_do_not_take_other_projects_groups() -> None:
    fake = cloud(internal_lb=True, manage_security_groups=True)
    fake.server(1)
    name = "lb-sg-u-1-shop-web"
    fake.groups["theirs"] = {"id": "theirs", "name": name, "tags": [], "project_id": THEIRS, "security_group_rules": []}
    fake.project_id = OURS
    await ensured(fake, service("u-1", "web", ingress=(Ingress(ip="10.0.1.1"),)), nodes(1))
    await deleted(provider(fake), service("u-1", "web"))
    assert only(fake.groups)["id"] == "theirs" and not only(fake.groups)["tags"]
