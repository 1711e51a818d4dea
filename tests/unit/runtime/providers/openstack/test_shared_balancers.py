# SPDX-License-Identifier: Apache-2.0
"""Several writers of one load balancer, in any order, lose no tag, listener or load balancer of one another."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import random
from typing import Any

import pytest

from ccm.cloud import (
    Address,
    AddressType,
    Backend,
    CloudError,
    Conflict,
    Ingress,
    LoadBalancerSpec,
    NotFound,
    Port,
    QuotaExceeded,
    RetryAfter,
)
from ccm.providers.openstack.annotations import PREFIX
from ccm.providers.openstack.load_balancers.load_balancer_owners import Mark, marks, service_tags
from ccm.providers.openstack.load_balancers.load_balancers import OctaviaLoadBalancers
from ccm.providers.openstack.settings_sections import LoadBalancerSection

from .octavia_in_memory import FakeOpenStack, the

OWN = "tenant-own-load-balancers-only"
WEB, TLS, DNS = Port("http", "TCP", 80, 30080), Port("https", "TCP", 443, 30443), Port("dns", "UDP", 53, 30053)
SEEDS = range(8)


def cloud(**options: Any) -> FakeOpenStack:
    section = {"subnet_id": the("sub-nodes"), "floating_network_id": the("net-public"), "max_shared_lb": 9} | options
    return FakeOpenStack(LoadBalancerSection(**section))


def service(uid: str, name: str, *ports: Port, settings: dict[str, str] | None = None, **more: Any) -> LoadBalancerSpec:
    """Return a Service's spec. `settings`: annotations without their prefix."""
    annotations = {f"{PREFIX}{key}": value for key, value in (settings or {}).items()}
    where = {"cluster": "prod", "namespace": "shop"} | more
    return LoadBalancerSpec(uid=uid, name=name, ports=ports or (WEB,), annotations=annotations, **where)


def nodes(*numbers: int) -> tuple[Backend, ...]:
    return tuple(
        Backend(
            f"node-{number}",
            f"openstack:///{the(f'server-{number}')}",
            (Address(AddressType.INTERNAL_IP, f"10.0.0.{number}"),),
        )
        for number in numbers
    )


def provider(fake: FakeOpenStack) -> OctaviaLoadBalancers:
    return OctaviaLoadBalancers(fake)  # type: ignore[arg-type]


async def patiently(call: Any, *args: Any) -> Any:
    for _ in range(200):
        try:
            return await call(*args)
        except RetryAfter:
            await asyncio.sleep(0)
    raise AssertionError("it does not end")


async def ensured(fake: FakeOpenStack, what: LoadBalancerSpec, backends: tuple[Backend, ...] = nodes(1, 2)) -> Any:
    return await patiently(provider(fake).ensure, what, backends)


async def deleted(balancers: OctaviaLoadBalancers, what: LoadBalancerSpec) -> None:
    with contextlib.suppress(NotFound):
        await patiently(balancers.delete, what)


def only(table: dict[str, Any]) -> Any:
    (row,) = table.values()
    return row


async def shared_by_two(fake: FakeOpenStack) -> tuple[LoadBalancerSpec, LoadBalancerSpec]:
    """Serve a Service, the owner. Returns the owner, and a second Service, the guest, that asks for the owner's load
    balancer by its ID and is not served yet.
    """
    await ensured(fake, service("u-1", "web"))
    names = {"load-balancer-id": only(fake.balancers)["id"]}
    return service("u-1", "web"), service("u-2", "guest", TLS, settings=names)


def uids(row: dict[str, Any]) -> set[str]:
    return {mark.uid for mark in marks(row)}


# --- two writers ------------------------------------------------------------------------------------------------------


@pytest.mark.threat(OWN)
@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("seed", SEEDS)
async def test_writers_of_one_load_balancer_lose_nothing_of_each_other(seed: int, processes: int) -> None:
    """All Services change their desired states and members a few times concurrently. The final state is complete."""
    fake, rng = cloud(), random.Random(seed)
    owner, guest = await shared_by_two(fake)
    third = service("u-3", "third", DNS, settings=dict(_said(guest)))
    fake.interleaving = rng
    writers = [provider(fake)]
    writers += [provider(fake)] if processes == 2 else writers

    async def work(what: LoadBalancerSpec, balancers: OctaviaLoadBalancers) -> LoadBalancerSpec:
        for limit in range(rng.randint(1, 3)):
            what = dataclasses.replace(what, annotations=what.annotations | {f"{PREFIX}connection-limit": str(limit)})
            await patiently(balancers.ensure, what, nodes(1, 2))
            await patiently(balancers.update_backends, what, nodes(1, 2, 3 + limit))
        await patiently(balancers.update_backends, what, nodes(7, 8))
        return what

    all_desired = await asyncio.gather(
        work(owner, writers[0]), work(guest, writers[1]), work(third, writers[rng.randint(0, 1)])
    )
    row = only(fake.balancers)
    listed = {each.service_uid: each.fingerprint for each in await provider(fake).list("prod")}
    assert listed == {each.uid: provider(fake).fingerprint(each, nodes(7, 8)) for each in all_desired}
    assert len(service_tags(row)) == 3
    assert {each["protocol_port"] for each in fake.listeners.values()} == {80, 443, 53}


@pytest.mark.threat(OWN)
@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("leaver", ["owner", "guest"])
@pytest.mark.parametrize("seed", SEEDS)
async def test_one_leaves_while_the_other_changes_and_the_other_keeps_all(
    seed: int, leaver: str, processes: int
) -> None:
    fake, rng = cloud(), random.Random(seed)
    owner, guest = await shared_by_two(fake)
    await ensured(fake, guest)
    fake.interleaving = rng
    goes, stays = (owner, guest) if leaver == "owner" else (guest, owner)
    one = provider(fake)
    other = provider(fake) if processes == 2 else one
    await asyncio.gather(deleted(one, goes), patiently(other.update_backends, stays, nodes(5)))
    row = only(fake.balancers)
    assert uids(row) == {stays.uid} and len(service_tags(row)) == 1
    assert [each["protocol_port"] for each in fake.listeners.values()] == [stays.ports[0].port]
    assert fake.floating
    await deleted(other, stays)
    assert not fake.balancers and not fake.floating


@pytest.mark.threat(OWN)
@pytest.mark.parametrize("seed", SEEDS)
async def test_both_leave_at_once_and_nothing_is_left(seed: int) -> None:
    fake = cloud()
    owner, guest = await shared_by_two(fake)
    await ensured(fake, guest)
    fake.interleaving = random.Random(seed)
    await asyncio.gather(deleted(provider(fake), owner), deleted(provider(fake), guest))
    assert not fake.balancers and not fake.floating and not fake.listeners


@pytest.mark.threat(OWN)
@pytest.mark.parametrize("seed", SEEDS)
async def test_one_joins_while_the_owner_leaves_and_has_its_listener_or_is_told(seed: int) -> None:
    fake = cloud()
    owner, guest = await shared_by_two(fake)
    fake.interleaving = random.Random(seed)
    answer, _ = await asyncio.gather(
        patiently(provider(fake).ensure, guest, nodes(1)), deleted(provider(fake), owner), return_exceptions=True
    )
    if isinstance(answer, BaseException):
        assert "has no load balancer" in str(answer) or "may not use load balancer" in str(answer)
        assert not [row for row in fake.balancers.values() if "u-1" in uids(row)]
    else:
        assert uids(only(fake.balancers)) == {"u-2"}
        assert [each["protocol_port"] for each in fake.listeners.values()] == [443]


# --- a change that is refused -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("refused", ["owner", "guest"])
@pytest.mark.parametrize("by", ["rules", "cloud"])
async def test_a_refused_change_of_one_keeps_old_nodes_of_neither(
    refused: str, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the framework does after a refusal, the members are updated with the spec that was accepted last."""
    fake = cloud()
    balancer_of = fake._balancer_of

    def within_quota(kind: str, ids: list[str], body: dict[str, Any]) -> Any:
        if body.get("protocol_port") == DNS.port:
            raise QuotaExceeded("listeners")
        return balancer_of(kind, ids, body)

    monkeypatch.setattr(fake, "_balancer_of", within_quota)
    owner, guest = await shared_by_two(fake)
    await ensured(fake, guest)
    accepted = owner if refused == "owner" else guest
    if by == "rules":
        said = accepted.annotations | {f"{PREFIX}node-selector": "a=b=c"}
        changed = dataclasses.replace(accepted, annotations=said)
    else:
        changed = dataclasses.replace(accepted, ports=(*accepted.ports, DNS))
    for _ in range(2):
        with pytest.raises(CloudError):
            await patiently(provider(fake).ensure, changed, nodes(7, 8))
    for what in (owner, guest):
        await patiently(provider(fake).update_backends, what, nodes(7, 8))
    members = [{each["name"] for each in pool["_members"]} for pool in fake.pools.values()]
    assert members == [{"node-7", "node-8"}] * 2
    assert {each["protocol_port"] for each in fake.listeners.values()} >= {80, 443}


# --- tags that were lost ----------------------------------------------------------------------------------------------


@pytest.mark.threat(OWN)
@pytest.mark.parametrize("known", ["all", "the UID"])
async def test_a_listener_of_another_keeps_the_load_balancer_although_its_tags_were_lost(known: str) -> None:
    """A person or an older release wrote the list of tags without the guest's tags."""
    fake = cloud()
    owner, guest = await shared_by_two(fake)
    await ensured(fake, guest)
    row = only(fake.balancers)
    row["tags"] = [tag for tag in row["tags"] if "guest" not in tag and ":u-2:" not in tag]
    goes = owner if known == "all" else LoadBalancerSpec("prod", "u-1", "", "", ports=())
    await deleted(provider(fake), goes)
    assert only(fake.balancers) and [each["protocol_port"] for each in fake.listeners.values()] == [443]
    assert fake.floating


@pytest.mark.threat(OWN)
async def test_an_owner_whose_tags_were_lost_keeps_its_load_balancer_and_its_address() -> None:
    fake = cloud()
    owner, guest = await shared_by_two(fake)
    await ensured(fake, guest)
    row = only(fake.balancers)
    row["tags"] = [tag for tag in row["tags"] if "web" not in tag and ":u-1:" not in tag]
    served = dataclasses.replace(owner, ingress=(Ingress(ip=only(fake.floating)["floating_ip_address"]),))
    assert (await ensured(fake, served)).ready
    assert only(fake.balancers) is row and uids(row) == {"u-1", "u-2"} and len(fake.floating) == 1


@pytest.mark.threat(OWN)
async def test_a_services_name_and_address_on_a_namesakes_load_balancer_make_no_second_one() -> None:
    """The status names the address of a load balancer that has the Service's name but a tag with another UID."""
    fake = cloud()
    owner, _ = await shared_by_two(fake)
    row = only(fake.balancers)
    row["tags"] = [service_tags(row)[0], str(Mark.of(dataclasses.replace(owner, uid="u-9"), "x"))]
    served = dataclasses.replace(owner, ingress=(Ingress(ip=only(fake.floating)["floating_ip_address"]),))
    with pytest.raises(Conflict, match=rf"(?s){row['id']}.*u-9"):
        await provider(fake).ensure(served, nodes(1))
    assert len(fake.balancers) == 1


# --- another cluster name ---------------------------------------------------------------------------------------------


@pytest.mark.threat("clusters-live-side-by-side")
async def test_under_another_cluster_name_no_second_one_is_made_and_none_is_left_behind() -> None:
    """The cluster was renamed, or it is a copy of another cluster with the same UIDs, and must not take the load
    balancer of that cluster."""
    fake = cloud()
    before = await ensured(fake, service("u-1", "web"))
    renamed = service("u-1", "web", cluster="production")
    row, address = dict(only(fake.balancers)), before.ingress[0].ip
    for what in (renamed, dataclasses.replace(renamed, ingress=(Ingress(ip=address),))):
        for call in (provider(fake).ensure(what, nodes(1)), provider(fake).delete(what)):
            with pytest.raises(Conflict, match=rf"(?s){row['id']}.*cluster 'prod'.*--cluster-name"):
                await call
        with pytest.raises(NotFound):
            await provider(fake).get(what)
    assert only(fake.balancers) == row and len(fake.floating) == 1
    assert (await ensured(fake, service("u-1", "web"))).ready


@pytest.mark.threat("clusters-live-side-by-side")
async def test_one_of_cloud_provider_openstacks_under_another_cluster_name_is_not_doubled() -> None:
    fake = cloud()
    address = (await ensured(fake, service("u-1", "web"))).ingress[0].ip
    only(fake.balancers)["tags"] = service_tags(only(fake.balancers))
    renamed = service("u-1", "web", cluster="production", ingress=(Ingress(ip=address),))
    for call in (provider(fake).ensure(renamed, nodes(1)), provider(fake).delete(renamed)):
        with pytest.raises(Conflict, match="--cluster-name"):
            await call
    other = dataclasses.replace(renamed, ingress=(Ingress(ip="203.0.113.99"),))
    assert (await ensured(fake, other)).ready and len(fake.balancers) == 2


# --- one that failed --------------------------------------------------------------------------------------------------


@pytest.mark.threat(OWN)
@pytest.mark.parametrize("name", ["other", "web"])
async def test_one_that_cloud_provider_openstack_made_for_another_is_not_deleted_when_it_failed(name: str) -> None:
    """The load balancer in ERROR has a tag of cloud-provider-openstack's and no mark. A new Service names its ID."""
    fake = cloud(sharing="project")
    await ensured(fake, service("u-1", "web"))
    row = only(fake.balancers)
    row.update(tags=service_tags(row), provisioning_status="ERROR")
    thief = service("u-2", name, TLS, settings={"load-balancer-id": row["id"]})
    with pytest.raises(Conflict, match="does not belong to this Service alone"):
        await provider(fake).ensure(thief, nodes(1))
    assert only(fake.balancers) is row and len(fake.listeners) == 1 and fake.floating


@pytest.mark.threat(OWN)
async def test_one_that_failed_is_not_deleted_under_a_listener_of_another() -> None:
    fake = cloud()
    owner, guest = await shared_by_two(fake)
    await ensured(fake, guest)
    row = only(fake.balancers)
    row["tags"] = [tag for tag in row["tags"] if "guest" not in tag and ":u-2:" not in tag]
    row["provisioning_status"] = "ERROR"
    with pytest.raises(Conflict, match="does not belong to this Service alone"):
        await provider(fake).ensure(owner, nodes(1))
    with pytest.raises(Conflict, match="cannot be removed from it"):
        await provider(fake).delete(owner)
    assert only(fake.balancers) is row and len(fake.listeners) == 2


async def test_one_that_failed_is_deleted_where_parts_are_deleted_one_by_one() -> None:
    """Octavia changes no part of a load balancer in ERROR, so only deleting the whole load balancer works."""
    fake = cloud(cascade_delete=False)
    await ensured(fake, service("u-1", "web"))
    only(fake.balancers)["provisioning_status"] = "ERROR"
    await deleted(provider(fake), service("u-1", "web"))
    assert not fake.balancers and not fake.listeners and not fake.floating


def _said(what: LoadBalancerSpec) -> list[tuple[str, str]]:
    return [(key.removeprefix(PREFIX), value) for key, value in what.annotations.items()]
