# SPDX-License-Identifier: Apache-2.0
"""Octavia load balancers that outlive their Service, and Services that take them back."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from ccm.cloud import Conflict, Invalid, Kept, KeptLoadBalancer, LoadBalancerSpec, NotFound
from ccm.providers.openstack.load_balancers.load_balancer_rules import desired_load_balancer
from ccm.providers.openstack.settings_sections import LoadBalancerSection

from .octavia_in_memory import FakeOpenStack
from .test_shared_balancers import TLS, cloud, deleted, ensured, nodes, only, patiently, provider, service

KEEP = Kept.LOAD_BALANCER


async def kept(fake: FakeOpenStack, known: str = "all", **more: Any) -> tuple[Any, str]:
    """Create and delete a Service that keeps its load balancer. Returns the load balancer and its address."""
    former = service("u-1", "web", keep=KEEP, **more)
    address = (await ensured(fake, former)).ingress[0].ip
    (listed,) = await provider(fake).list("prod")
    assert listed.keep is KEEP
    await deleted(provider(fake), former if known == "all" else LoadBalancerSpec("prod", "u-1", "", "", ports=()))
    fake.settle()
    return only(fake.balancers), address


@pytest.mark.parametrize("known", ["all", "the UID"])
@pytest.mark.parametrize("name", ["web", "again"])
async def test_it_stays_with_its_floating_ip_and_is_taken_back_with_both(known: str, name: str) -> None:
    fake = cloud()
    row, address = await kept(fake, known)
    assert not fake.listeners and not fake.pools, "node ports of the former Service may get other owners"
    assert not await provider(fake).list("prod"), "what is kept is no orphan"
    with pytest.raises(NotFound):
        await provider(fake).get(service("u-1", "web"))
    assert list(await provider(fake).kept("prod")) == [KeptLoadBalancer("kube_service_prod_shop_web", "shop", address)]
    assert not await provider(fake).kept("pro")
    taker = service("u-2", name, take_back="kube_service_prod_shop_web")
    assert (await ensured(fake, taker)).ingress[0].ip == address
    assert only(fake.balancers)["id"] == row["id"]
    assert only(fake.listeners)["tags"] == [f"kube_service_prod_shop_{name}"]
    assert not await provider(fake).kept("prod")
    (listed,) = await provider(fake).list("prod")
    assert (listed.service_uid, listed.keep) == ("u-2", None)
    assert listed.fingerprint == provider(fake).fingerprint(taker, nodes(1, 2)), "so nothing is written again"
    await deleted(provider(fake), LoadBalancerSpec("prod", "u-2", "", "", ports=()))
    fake.settle()
    assert not fake.balancers and not fake.floating, "the second Service kept nothing"


async def test_what_keeping_and_taking_back_write() -> None:
    """docs/performance.md has these numbers."""
    written = []

    def count() -> None:
        written.append(sum(number for call, number in fake.calls.items() if not call.startswith("GET")))
        fake.calls.clear()

    for keep in (None, KEEP):
        fake, asking = cloud(), service("u-1", "web", keep=keep)
        await ensured(fake, asking)
        count()
        await deleted(provider(fake), asking)
        count()
        fake.settle()
    await ensured(fake, service("u-2", "web", take_back="kube_service_prod_shop_web"))
    count()
    assert written == [2, 2, 2, 3, 6]


async def test_a_service_of_the_same_name_gets_a_new_one_unless_it_asks_for_the_kept_one() -> None:
    fake = cloud()
    row, address = await kept(fake)
    assert (await ensured(fake, service("u-2", "web"))).ingress[0].ip != address
    assert len(fake.balancers) == 2 and row["id"] in fake.balancers


@pytest.mark.parametrize("more", [{"namespace": "another-tenant"}, {"cluster": "other"}, {"take_back": "another"}])
async def test_nobody_else_gets_it(more: dict[str, Any]) -> None:
    fake = cloud()
    row, _ = await kept(fake)
    before = dict(row)
    with pytest.raises(Conflict, match="none can be taken back"):
        await ensured(fake, service("u-2", "web", **({"take_back": row["name"]} | more)))
    assert only(fake.balancers) == before


async def test_one_that_is_kept_is_not_shared_by_its_id() -> None:
    fake = cloud(sharing="project")
    row, _ = await kept(fake)
    with pytest.raises(Conflict, match="kept for namespace shop"):
        await ensured(fake, service("u-2", "web", settings={"load-balancer-id": row["id"]}, namespace="another-tenant"))


async def test_of_two_services_that_ask_at_once_one_gets_it() -> None:
    fake = cloud()
    row, _ = await kept(fake)
    one = provider(fake)
    asking = [service(f"u-{number}", f"web-{number}", take_back=row["name"]) for number in (2, 3)]
    answers = await asyncio.gather(
        *(patiently(one.ensure, each, nodes(1)) for each in asking), return_exceptions=True
    )
    assert sorted(type(each).__name__ for each in answers) == ["Conflict", "LoadBalancer"]
    assert len(fake.balancers) == 1


async def test_of_two_with_one_name_the_id_chooses() -> None:
    fake = cloud()
    row, _ = await kept(fake)
    second = service("u-2", "web", keep=KEEP)
    await ensured(fake, second)
    await deleted(provider(fake), second)
    fake.settle()
    with pytest.raises(Conflict, match=f"take one back by ID, one of .*{row['id']}"):
        await ensured(fake, service("u-3", "web", take_back=row["name"]))
    taker = service("u-3", "web", take_back=row["id"])
    await ensured(fake, taker)
    assert "u-3" in str(fake.balancers[row["id"]]["tags"])
    with pytest.raises(Conflict, match="cannot take back another"):
        await ensured(fake, replace(taker, take_back="another"))


async def test_one_that_failed_is_deleted_all_the_same() -> None:
    fake = cloud()
    former = service("u-1", "web", keep=KEEP)
    await ensured(fake, former)
    only(fake.balancers)["provisioning_status"] = "ERROR"
    await deleted(provider(fake), former)
    fake.settle()
    assert not fake.balancers


async def test_others_who_share_it_keep_it_and_a_guest_cannot() -> None:
    fake = cloud()
    owner = service("u-1", "web", keep=KEEP)
    await ensured(fake, owner)
    row = only(fake.balancers)
    guest = service("u-2", "guest", TLS, settings={"load-balancer-id": row["id"]})
    with pytest.raises(Invalid, match="created for another Service"):
        await ensured(fake, replace(guest, keep=KEEP))
    await ensured(fake, guest)
    await deleted(provider(fake), owner)
    fake.settle()
    assert [each["protocol_port"] for each in fake.listeners.values()] == [443]
    assert not await provider(fake).kept("prod"), "it serves somebody"


async def test_what_contradicts_itself_is_refused() -> None:
    fake = cloud()
    row, _ = await kept(fake)
    with pytest.raises(Invalid, match="load-balancer-id names another"):
        asking = service("u-2", "web", take_back=row["name"], settings={"load-balancer-id": row["id"]})
        desired_load_balancer(asking, LoadBalancerSection(), {})
    with pytest.raises(Conflict, match="which is not IPv6"):
        await ensured(fake, service("u-2", "web", take_back=row["name"], ip_families=("IPv6",)))
