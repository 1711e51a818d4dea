# SPDX-License-Identifier: Apache-2.0
"""After any change of source ranges, the load balancer admits exactly the addresses that the Service names."""

from __future__ import annotations

import asyncio
import ipaddress
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccm.cloud import Invalid, LoadBalancerSpec, Port
from ccm.controllers.services import service_rules
from ccm.engine.objects import Service, decoder
from ccm.providers.openstack.load_balancers import feature_rules, listener_rules, security_groups
from ccm.providers.openstack.load_balancers import load_balancer_rules as rules
from ccm.providers.openstack.load_balancers import load_balancer_steps as diff
from ccm.providers.openstack.settings_sections import LoadBalancerSection

from .octavia_in_memory import BALANCER, FakeOpenStack

WEB = Port("", "TCP", 80, 30080)
RANGES = {
    "IPv4": ["10.0.0.0/8", "10.1.0.0/16", "192.0.2.7/32", "0.0.0.0/0", "1.2.3.4/0", "128.0.0.0/1", "10.0.0.1/8"],
    "IPv6": ["2001:db8::/32", "2001:db8::1/128", "::/0", "2001::/0", "fd00::1/8"],
}
EVERY = [each for family in RANGES.values() for each in family]
SAMPLES = {
    "IPv4": ["10.0.0.1", "10.1.2.3", "192.0.2.7", "192.0.2.8", "8.8.8.8", "200.0.0.1"],
    "IPv6": ["2001:db8::1", "2001:db8::2", "fd00::1", "2600::1"],
}
range_sets = st.lists(st.sampled_from(EVERY), max_size=4)


def service(ranges: list[str], family: str) -> Service:
    """Return the Service as the API server stores it."""
    spec = {"type": "LoadBalancer", "loadBalancerSourceRanges": ranges, "ipFamilies": [family]}
    body = {"metadata": {"name": "web", "uid": "u"}, "spec": spec}
    found: Service = decoder(Service).decode(json.dumps(body).encode())
    return found


def admitted(ranges: Any, family: str) -> set[str]:
    """Return the sample addresses that Octavia admits with these ranges. Without ranges, it admits all."""
    networks = [ipaddress.ip_network(each, strict=False) for each in ranges or ()]
    return {
        each
        for each in SAMPLES[family]
        if not networks or any(ipaddress.ip_address(each) in network for network in networks)
    }


def meant(ranges: list[str], family: str) -> set[str] | None:
    """Return the sample addresses that the ranges mean, None if the ranges must be refused."""
    texts = [each for each in ranges if (":" in each) == (family == "IPv6")]
    if not ranges or texts:
        return admitted(texts, family)
    # As upstream, 0.0.0.0/0 without IPv6 ranges means everybody.
    all_of_ipv4 = any(":" not in each and ipaddress.ip_network(each, False).prefixlen == 0 for each in ranges)
    return set(SAMPLES[family]) if all_of_ipv4 else None


def wanted(ranges: list[str], family: str) -> Any:
    spec = LoadBalancerSpec(
        "prod", "u", "shop", "web", (WEB,), ip_families=(family,),
        source_ranges=service_rules.source_ranges(service(ranges, family)),
    )  # fmt: skip
    want = rules.desired_load_balancer(spec, LoadBalancerSection(internal_lb=True), {})
    return listener_rules.listeners(want, (), "", feature_rules.Features())


@pytest.mark.threat("tenant-own-load-balancers-only")
@pytest.mark.parametrize("family", ["IPv4", "IPv6"])
@settings(max_examples=200)
@given(before=range_sets, written=range_sets | st.none(), after=range_sets)
def test_the_steps_admit_exactly_what_is_named(family: str, before: Any, written: Any, after: Any) -> None:
    """`written`: ranges that an earlier release or somebody else left on the listener; None for no change."""

    async def run() -> None:
        fake = FakeOpenStack()
        try:
            first, then = wanted(before, family), wanted(after, family)
        except Invalid:
            assert None in (meant(before, family), meant(after, family))
            return
        body = {"name": "kube_service_prod_shop_web", "listeners": [each.whole() for each in first]}
        await fake.call("POST", BALANCER, "/lbaas/loadbalancers", body={"loadbalancer": body})
        (balancer,), (row,) = fake.balancers, fake.listeners.values()
        if written is not None:
            row["allowed_cidrs"] = [each for each in written if (":" in each) == (family == "IPv6")] or None
        for _ in range(10):
            seen = diff.Observed(list(fake.listeners.values()), list(fake.pools.values()), {}, {})
            todo = diff.steps(balancer, body["name"], then, seen, owner=True)
            if not todo:
                break
            await fake.call(todo[0].method, BALANCER, f"/lbaas{todo[0].path}", body=todo[0].body)
        assert admitted(row["allowed_cidrs"], family) == meant(after, family)

    asyncio.run(run())


@pytest.mark.parametrize(
    ("ranges", "expected"),
    [
        ([], ()),
        (["0.0.0.0/0"], ()),
        (["10.0.0.0/8", "0.0.0.0/0"], ()),
        (["0.0.0.0/0", "::/0", "10.0.0.0/8"], ()),
        (["10.0.0.0/8"], ("10.0.0.0/8",)),
        (["0.0.0.0/0", "10.0.0.0/8", "2001:db8::/32"], ("0.0.0.0/0", "2001:db8::/32")),
        (["::/0", "2001:db8::/32", "10.0.0.0/8"], ("::/0", "10.0.0.0/8")),
    ],
)
def test_a_range_of_all_addresses_makes_the_others_redundant(ranges: list[str], expected: tuple[str, ...]) -> None:
    assert service_rules.source_ranges(service(ranges, "IPv4")) == expected


@pytest.mark.threat("tenant-own-load-balancers-only")
@settings(max_examples=100)
@given(before=range_sets, after=range_sets)
def test_rules_of_the_nodes_group_admit_exactly_what_is_named(before: list[str], after: list[str]) -> None:
    """With `ovn`, which does not support ranges, the security group of the nodes' ports enforces them."""

    def rules_for(ranges: list[str]) -> list[dict[str, Any]]:
        texts = [each for each in ranges if ":" not in each] or ["0.0.0.0/0"]
        return security_groups.desired_rules((WEB,), 0, "10.9.0.0/24", texts)

    present = [{"id": str(number), **rule} for number, rule in enumerate(rules_for(before))]
    for rule in present:
        if rule["remote_ip_prefix"] == "0.0.0.0/0":
            rule["remote_ip_prefix"] = None  # neutron's form of it
    make, gone = security_groups.rule_changes(rules_for(after), present)
    left = [rule for rule in present if rule["id"] not in gone] + list(make)
    found = [rule["remote_ip_prefix"] or "0.0.0.0/0" for rule in left]
    assert admitted(found, "IPv4") == admitted([each for each in after if ":" not in each], "IPv4")
