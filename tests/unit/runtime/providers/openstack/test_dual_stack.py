# SPDX-License-Identifier: Apache-2.0
"""Octavia load balancers with an address of each family (additional VIPs, API 2.26)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ccm.cloud import Address, AddressType
from ccm.providers.openstack.load_balancers import load_balancer_rules as rules

from .octavia_in_memory import FakeOpenStack, the
from .test_shared_balancers import cloud, deleted, ensured, nodes, only, patiently, provider, service

BOTH = ("IPv4", "IPv6")
SIX = the("sub-six")


def dual(**options: Any) -> FakeOpenStack:
    """Return an OpenStack whose network of the Nodes has subnets of both families."""
    fake = cloud(**options)
    fake.subnets[the("sub-nodes")]["network_id"] = the("net-nodes")
    for name in ("sub-six", "sub-ten"):
        row = {"id": the(name), "network_id": the("net-nodes"), "ip_version": 6, "cidr": "2001:db8::/64"}
        fake.subnets[the(name)] = row
    fake.subnets[the("sub-other")] = {"id": the("sub-other"), "network_id": the("net-other"), "ip_version": 6}
    return fake


def shown(balancer: Any) -> list[str]:
    return [each.ip for each in balancer.ingress]


def cidrs(fake: FakeOpenStack) -> list[str]:
    return list(only(fake.listeners)["allowed_cidrs"])


async def test_a_service_of_both_families_gets_an_address_of_each_and_shows_both() -> None:
    fake, asking = dual(), service("u-1", "web", ip_families=BOTH)
    found = await ensured(fake, asking)
    row, floating = only(fake.balancers), only(fake.floating)
    assert row["additional_vips"][0]["subnet_id"] == min(SIX, the("sub-ten"))
    assert shown(found) == [floating["floating_ip_address"], row["additional_vips"][0]["ip_address"]]
    assert cidrs(fake) == ["0.0.0.0/0", "::/0"] and not found.warnings
    again = provider(fake)
    (listed,) = await again.list("prod")
    assert listed.ingress == found.ingress, "also of a process that does not know the Service yet"
    assert listed.fingerprint == again.fingerprint(asking, nodes(1, 2))
    fake.calls.clear()
    assert shown(await ensured(fake, asking)) == shown(found)
    assert not [call for call in fake.calls if not call.startswith("GET")], "nothing is written again"
    assert shown(await again.get(asking)) == shown(found)
    await deleted(again, asking)


async def test_the_second_family_costs_two_reads_once() -> None:
    calls = []
    for families in (("IPv4",), BOTH):
        fake, asking = dual(), service("u-1", "web", ip_families=families)
        await ensured(fake, asking)
        await ensured(fake, asking)
        calls.append(fake.calls)
    assert calls[1] - calls[0] == {"GET subnets/ID": 1, "GET subnets": 1}


async def test_the_first_family_of_the_service_is_that_of_vip_and_members() -> None:
    """cloud-provider-openstack#1897 and #2735: the VIP is IPv6, without a floating IP, and the additional one IPv4."""
    fake, asking = dual(subnet_id=SIX, floating_network_id=""), service("u-1", "web", ip_families=("IPv6", "IPv4"))
    node = nodes(1)[0]
    both = (Address(AddressType.INTERNAL_IP, "2001:db8::1:1"), *node.addresses)
    found = await patiently(provider(fake).ensure, asking, (replace(node, addresses=both),))
    row, pool = only(fake.balancers), only(fake.pools)
    assert row["additional_vips"][0]["subnet_id"] == the("sub-nodes") and not fake.floating
    assert shown(found) == [row["vip_address"], row["additional_vips"][0]["ip_address"]]
    assert [each["address"] for each in pool["_members"]] == ["2001:db8::1:1"]
    assert cidrs(fake) == ["::/0", "0.0.0.0/0"] and not found.warnings


@pytest.mark.parametrize(
    ("ranges", "expected"),
    [
        (("192.0.2.0/24", "2001:db8:1::/48"), ["192.0.2.0/24", "2001:db8:1::/48"]),
        (("192.0.2.0/24",), ["192.0.2.0/24"]),
        (("0.0.0.0/0", "2001:db8:1::/48"), ["0.0.0.0/0", "2001:db8:1::/48"]),
        (("0.0.0.0/0", "::/0"), ["0.0.0.0/0", "::/0"]),
    ],
)
async def test_source_ranges_hold_for_their_family(ranges: tuple[str, ...], expected: list[str]) -> None:
    """If only one family has ranges, the other one admits no clients."""
    fake, open_ = dual(), service("u-1", "web", ip_families=BOTH)
    limited = replace(open_, source_ranges=ranges)
    await ensured(fake, limited)
    assert cidrs(fake) == expected
    await ensured(fake, open_)
    assert cidrs(fake) == ["0.0.0.0/0", "::/0"]


async def test_a_change_of_the_second_familys_ranges_alone_is_written() -> None:
    fake = dual()
    ranges = [("192.0.2.0/24", six) for six in ("fd01::/64", "fd02::/64")]
    one, other = (service("u-1", "web", ip_families=BOTH, source_ranges=each) for each in ranges)
    for asking in (one, other):
        await ensured(fake, asking)
        assert cidrs(fake)[1] == asking.source_ranges[1]


async def test_an_existing_one_has_to_be_made_again_and_that_is_told() -> None:
    fake, plain = dual(), service("u-1", "web")
    before = await ensured(fake, plain)
    both = replace(plain, ip_families=BOTH, source_ranges=("192.0.2.0/24", "2001:db8:1::/48"))
    found = await ensured(fake, both)
    (told,) = found.warnings
    assert "until the Service is deleted and created again" in told and "ipFamilies IPv4 and IPv6 (it has IPv4)" in told
    assert shown(found) == shown(before)
    assert cidrs(fake) == ["192.0.2.0/24"], "Octavia refuses ranges of a family without a VIP"


async def test_a_service_that_wants_one_family_again_shows_one_and_stays_open_to_it() -> None:
    fake, both = dual(), service("u-1", "web", ip_families=BOTH)
    await ensured(fake, both)
    found = await ensured(fake, replace(both, ip_families=("IPv4",)))
    assert shown(found) == [only(fake.floating)["floating_ip_address"]]
    (listed,) = await provider(fake).list("prod")
    assert listed.ingress == found.ingress


async def test_where_it_cannot_be_had_the_service_is_told_and_served_with_one() -> None:
    asking = service("u-1", "web", ip_families=BOTH)
    alone = cloud()
    alone.subnets[the("sub-nodes")]["network_id"] = the("net-nodes")
    old = dual()
    old.octavia = (2, 25)
    ovn = dual(lb_provider="ovn")
    for fake, why in (
        (alone, "the network of its VIP has no IPv6 subnet"),
        (old, "its API version, does not support it"),
        (ovn, "provider ovn, or its API version, does not support it"),
    ):
        found = await ensured(fake, asking)
        assert len(shown(found)) == 1
        assert any("requests IPv4 and IPv6, but gets only IPv4" in each and why in each for each in found.warnings)


@pytest.mark.parametrize(
    ("ranges", "families", "expected"),
    [
        ((), 1, ()),
        (("0.0.0.0/0", "192.0.2.0/24"), 1, ()),
        (("192.0.2.0/24",), 1, ("192.0.2.0/24",)),
        (("0.0.0.0/0", "192.0.2.0/24", "fd00::/8"), 2, ("0.0.0.0/0", "fd00::/8")),
        (("::/0", "0.0.0.0/0", "fd00::/8"), 2, ()),
    ],
)
def test_limits(ranges: tuple[str, ...], families: int, expected: tuple[str, ...]) -> None:
    assert rules.limits(ranges, families) == expected
