# SPDX-License-Identifier: Apache-2.0
"""The whole life of Octavia load balancers against Octavia and neutron in memory, with the calls that it costs."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import re
from typing import Any

import pytest

from ccm.cloud import (
    Address,
    AddressType,
    Backend,
    CloudError,
    Conflict,
    Ingress,
    Invalid,
    LoadBalancer,
    LoadBalancerSpec,
    NotFound,
    NotImplementedByCloud,
    Port,
    QuotaExceeded,
    RetryAfter,
    Transient,
)
from ccm.providers.openstack.annotations import INTERNAL, PREFIX, UUID
from ccm.providers.openstack.load_balancers.load_balancer_owners import Mark
from ccm.providers.openstack.load_balancers.load_balancers import OctaviaLoadBalancers
from ccm.providers.openstack.settings_sections import EVERYWHERE, LoadBalancerClass, LoadBalancerSection

from .octavia_in_memory import FakeOpenStack, the

NAME = "kube_service_prod_shop_web"
#: Settings with which Services may do as much as with cloud-provider-openstack.
OPEN: dict[str, Any] = {
    "allowed_annotations": ("*",),
    "allowed_load_balancer_ips": EVERYWHERE,
    "sharing": "project",
}
WEB = Port("http", "TCP", 80, 30080)
TLS = Port("https", "TCP", 443, 30443)


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def spec(uid: str = "u-1", name: str = "web", *ports: Port, **more: Any) -> LoadBalancerSpec:
    """Return a Service's spec. In annotations that are IDs, a name stands for the ID that `the` gives it."""
    annotations = {
        key if "/" in key else f"{PREFIX}{key.replace('_', '-')}": the(value)
        if key.endswith("_id") and not UUID.fullmatch(value)
        else value
        for key, value in more.pop("annotations", {}).items()
    }
    more = {"cluster": "prod", "namespace": "shop"} | more
    return LoadBalancerSpec(uid=uid, name=name, ports=ports or (WEB,), annotations=annotations, **more)


def nodes(*numbers: int, **labels: str) -> tuple[Backend, ...]:
    return tuple(
        Backend(
            f"node-{number}",
            f"openstack:///{the(f'server-{number}')}",
            (Address(AddressType.INTERNAL_IP, f"10.0.0.{number}"),),
            labels,
        )
        for number in numbers
    )


def provider(fake: FakeOpenStack, clock: Clock | None = None) -> OctaviaLoadBalancers:
    return OctaviaLoadBalancers(fake, clock=clock or Clock())  # type: ignore[arg-type]


async def patiently(call: Any, *args: Any, fake: FakeOpenStack | None = None) -> Any:
    """Call as the framework does: again after each RetryAfter. Returns the result."""
    for _ in range(60):
        try:
            return await call(*args)
        except RetryAfter:
            if fake is not None:
                fake.settle()
    raise AssertionError("it does not end")


async def ensured(
    fake: FakeOpenStack, what: LoadBalancerSpec, backends: tuple[Backend, ...] = nodes(1, 2)
) -> LoadBalancer:
    found: LoadBalancer = await patiently(provider(fake).ensure, what, backends)
    return found


async def deleted(fake: FakeOpenStack, what: LoadBalancerSpec) -> None:
    """Delete until it is done or Octavia answers "not found"."""
    with contextlib.suppress(NotFound):
        await patiently(provider(fake).delete, what)


def trusting(**classes: LoadBalancerClass) -> FakeOpenStack:
    section = LoadBalancerSection(subnet_id=the("sub-nodes"), floating_network_id=the("net-public"), **OPEN)
    return FakeOpenStack(section, **classes)


def identified(text: str) -> str:
    """Return the text with names such as f1 and net-public replaced by their IDs."""
    names = r"\b(?:f[12]|n[1-4]|s[23]|p2|vip-1|sub-b|sub-nodes|net-public)(?![-\w])"
    return re.sub(names, lambda each: the(each[0]), text)


def only(table: dict[str, Any]) -> Any:
    (row,) = table.values()
    return row


# --- made -----------------------------------------------------------------------------------------------------------


async def test_one_is_made_in_one_request_with_the_names_and_tags_of_cloud_provider_openstack():
    fake = FakeOpenStack()
    found = await ensured(fake, spec("u-1", "web", WEB, dataclasses.replace(TLS, protocol="UDP")))
    row = only(fake.balancers)
    assert row["name"] == NAME and NAME in row["tags"]
    assert row["description"] == "Kubernetes external service shop/web from cluster prod"
    assert {each["name"] for each in fake.listeners.values()} == {f"listener_0_{NAME}", f"listener_1_{NAME}"}
    assert all(each["tags"] == [NAME] for each in fake.listeners.values())
    assert {each["name"] for each in fake.pools.values()} == {f"pool_0_{NAME}", f"pool_1_{NAME}"}
    assert [each["allowed_cidrs"] for each in fake.listeners.values()] == [["0.0.0.0/0"]] * 2
    address = only(fake.floating)["floating_ip_address"]
    assert found.ready and found.ingress == (Ingress(ip=address, ip_mode="VIP"),)
    assert only(fake.floating)["description"].startswith("Floating IP for Kubernetes external service shop/web")
    assert fake.calls["POST loadbalancers"] == 1
    assert not any("listeners" in call or "pools" in call for call in fake.calls)


async def test_a_minute_of_building_costs_half_of_upstreams_calls():
    fake, clock = FakeOpenStack(), Clock()
    fake.at_once = False
    balancers, desired = provider(fake, clock), spec()
    assert not (await balancers.ensure(desired, nodes(1))).ready
    started, wait, polls = clock.now, 0.5, 0
    while True:  # polls as the framework does
        clock.now += min(5.0, wait * 1.5**polls)
        polls += 1
        if clock.now - started >= 60:
            fake.settle()
        if (found := await balancers.get(desired)).ready:
            break
    assert found.ingress[0].ip == only(fake.floating)["floating_ip_address"]
    assert clock.now - started < 60 + 12 + 5
    assert fake.count <= 10, fake.calls


async def test_a_resync_of_a_hundred_services_after_a_restart_is_the_listings_only():
    fake = FakeOpenStack()
    all_desired = [spec(f"u-{number}", f"web-{number}") for number in range(100)]
    balancers = provider(fake)
    backends = nodes(1, 2)
    await asyncio.gather(*(balancers.ensure(desired, backends) for desired in all_desired))
    fake.calls.clear()
    again = provider(fake)
    listed = {each.service_uid: each for each in await again.list("prod")}
    assert len(listed) == 100
    for desired in all_desired:
        assert listed[desired.uid].fingerprint == again.fingerprint(desired, backends)
        assert listed[desired.uid].ingress[0].ip.startswith("203.0.113.") and listed[desired.uid].ready
    assert fake.calls == {"GET loadbalancers": 1, "GET floatingips": 1}


async def test_a_node_that_joins_costs_ten_services_four_calls_each():
    fake, clock = FakeOpenStack(), Clock()
    fake.at_once = False
    balancers = provider(fake, clock)
    all_desired = [spec(f"u-{number}", f"web-{number}") for number in range(10)]
    await asyncio.gather(*(balancers.ensure(desired, nodes(1, 2)) for desired in all_desired))
    fake.settle()
    clock.now += 5
    for desired in all_desired:
        assert (await balancers.get(desired)).ready
    fake.calls.clear()
    balancers = provider(fake)  # after a restart
    await balancers.list("prod")
    fake.calls.clear()
    for desired in all_desired:  # one after another, so that no read is shared
        with pytest.raises(RetryAfter):
            await balancers.update_backends(desired, nodes(1, 2, 3))
        fake.settle()
        assert (await balancers.update_backends(desired, nodes(1, 2, 3))).ready
    assert all(fake.members(pool) == {(f"10.0.0.{n}", 30080) for n in (1, 2, 3)} for pool in fake.pools)
    assert fake.calls["PUT pools/ID/members"] == 10 and fake.calls["PUT loadbalancers/ID"] == 10
    assert fake.count <= 40, fake.calls
    listed = {each.service_uid: each.fingerprint for each in await balancers.list("prod")}
    assert all(listed[desired.uid] == balancers.fingerprint(desired, nodes(1, 2, 3)) for desired in all_desired)


async def test_services_that_wait_share_their_looks_however_long_octavia_takes():
    """Each Service writes at another time, and each write takes Octavia five seconds: separate reads would be 50."""
    fake, clock = FakeOpenStack(), Clock()
    balancers = provider(fake, clock)
    all_desired = [spec(f"u-{number}", f"web-{number}") for number in range(10)]
    await asyncio.gather(*(balancers.ensure(desired, nodes(1, 2)) for desired in all_desired))
    fake.at_once = False
    fake.calls.clear()
    due = [(round(clock.now + 0.3 * number, 3), desired) for number, desired in enumerate(all_desired)]
    settles: dict[str, float] = {}
    ready: set[str] = set()
    while due:
        clock.now = min(moment for moment, _ in due)
        for row in fake.balancers.values():
            if settles.get(row["id"], clock.now + 1) <= clock.now:
                row["provisioning_status"] = "ACTIVE"
                del settles[row["id"]]
        now = [desired for moment, desired in due if moment == clock.now]
        due = [each for each in due if each[0] != clock.now]
        calls = [balancers.update_backends(desired, nodes(1, 2, 3)) for desired in now]
        for desired, answer in zip(now, await asyncio.gather(*calls, return_exceptions=True), strict=True):
            if isinstance(answer, RetryAfter):
                assert answer.retry_after is not None and 0.7 <= answer.retry_after <= 2.3
                due.append((round(clock.now + answer.retry_after, 3), desired))
            else:
                ready.add(answer.service_uid)
        for row in fake.balancers.values():
            if row["provisioning_status"] == "PENDING_UPDATE":
                settles.setdefault(row["id"], clock.now + 5)
    assert len(ready) == 10 and fake.calls["PUT pools/ID/members"] == fake.calls["PUT loadbalancers/ID"] == 10
    assert fake.count <= 40, fake.calls


async def test_without_a_subnet_it_is_made_where_the_first_node_is():
    fake = FakeOpenStack(LoadBalancerSection())
    fake.server(1)
    await ensured(fake, spec(), nodes(1))
    assert only(fake.balancers)["vip_subnet_id"] == the("sub-nodes")
    assert only(fake.floating)["floating_network_id"] == the("net-public")
    with pytest.raises(Conflict, match="subnet-id"):
        await provider(FakeOpenStack(LoadBalancerSection())).ensure(spec(), ())


# --- annotations ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("annotations", "what"),
    [
        ({"connection_limit": "many"}, "connection-limit: 'many' is not a whole number"),
        ({"keep_floatingip": "yes"}, "keep-floatingip: 'yes' is not true or false"),
        ({"lb_method": "RANDOM"}, "lb-method: 'RANDOM' is not one of ROUND_ROBIN"),
        ({"proxy_protocol": "v3"}, "proxy-protocol: 'v3'"),
        ({"proxy_protocol": "v2", "x_forwarded_for": "true"}, "exclude each other"),
        ({"class": "fast"}, r"\[LoadBalancerClass 'fast'\]"),
        ({"load_balancer_id": "lb-none"}, f"no load balancer {the('lb-none')}"),
        ({"node_selector": "a=b=c"}, "node-selector: 'a=b=c' is not key=value or key"),
        ({INTERNAL: "1"}, "openstack-internal-load-balancer: '1'"),
    ],
)
async def test_what_cannot_be_understood_is_refused_by_name(annotations, what):
    fake = FakeOpenStack()
    with pytest.raises(Invalid, match=what):
        await provider(fake).ensure(spec(annotations=annotations), nodes(1))
    assert not fake.balancers


async def test_a_probe_that_waits_longer_than_until_the_next_one_is_a_warning():
    fake = FakeOpenStack()
    found = await ensured(fake, spec(annotations={"health_monitor_delay": "2", "enable_health_monitor": "true"}))
    assert any("health-monitor-timeout: 3 s is more" in each for each in found.warnings)
    assert {each["timeout"] for each in fake.monitors.values()} == {3}


async def test_all_problems_are_told_at_once():
    with pytest.raises(Invalid, match=r"(?s)connection-limit.*lb-method"):
        await ensured(FakeOpenStack(), spec(annotations={"lb_method": "x", "connection_limit": "y"}))


@pytest.mark.parametrize(
    ("annotations", "table", "expected"),
    [
        ({"connection_limit": "10"}, "listeners", {"connection_limit": 10}),
        (
            {"timeout_client_data": "7", "timeout_tcp_inspect": "8"},
            "listeners",
            {"timeout_client_data": 7, "timeout_tcp_inspect": 8},
        ),
        (
            {"timeout_member_connect": "7", "timeout_member_data": "8"},
            "listeners",
            {"timeout_member_connect": 7, "timeout_member_data": 8},
        ),
        ({"x_forwarded_for": "true"}, "listeners", {"protocol": "HTTP", "insert_headers": {"X-Forwarded-For": "true"}}),
        ({"x_forwarded_for": "true"}, "pools", {"protocol": "HTTP"}),
        (
            {"default_tls_container_ref": "https://b/v1/secrets/1"},
            "listeners",
            {"protocol": "TERMINATED_HTTPS", "default_tls_container_ref": "https://b/v1/secrets/1"},
        ),
        ({"default_tls_container_ref": "https://b/v1/secrets/1"}, "pools", {"protocol": "HTTP"}),
        ({"proxy_protocol": "true"}, "pools", {"protocol": "PROXY"}),
        ({"proxy_protocol": "v2"}, "pools", {"protocol": "PROXYV2"}),
        ({"proxy_protocol": "v2"}, "listeners", {"protocol": "TCP"}),
        ({"lb_method": "SOURCE_IP"}, "pools", {"lb_algorithm": "SOURCE_IP"}),
        (
            {"enable_health_monitor": "true"},
            "monitors",
            {"type": "TCP", "delay": 5, "timeout": 3, "max_retries": 1, "max_retries_down": 3},
        ),
        (
            {
                "enable_health_monitor": "true",
                "health_monitor_delay": "9",
                "health_monitor_timeout": "8",
                "health_monitor_max_retries": "7",
                "health_monitor_max_retries_down": "6",
            },
            "monitors",
            {"delay": 9, "timeout": 8, "max_retries": 7, "max_retries_down": 6},
        ),
        ({"flavor_id": "f"}, "balancers", {"flavor_id": the("f")}),
        ({"availability_zone": "z"}, "balancers", {"availability_zone": "z"}),
        ({"network_id": "n"}, "balancers", {"vip_network_id": the("n"), "vip_subnet_id": the("sub-nodes")}),
        ({"subnet_id": "s"}, "balancers", {"vip_subnet_id": the("s")}),
        ({"port_id": "p"}, "balancers", {"vip_port_id": the("p")}),
        ({"floating_network_id": "n"}, "floating", {"floating_network_id": the("n")}),
        ({"floating_subnet_id": "s"}, "floating", {"subnet_id": the("s")}),
        ({"floating_subnet": "*-b"}, "floating", {"subnet_id": the("sub-b")}),
        ({"floating_subnet": "!public-a"}, "floating", {"subnet_id": the("sub-b")}),
        ({"floating_subnet_tags": "x,b"}, "floating", {"subnet_id": the("sub-b")}),
        ({"class": "fast"}, "floating", {"floating_network_id": the("net-fast")}),
        ({"class": "fast"}, "balancers", {"vip_subnet_id": the("sub-fast")}),
        (
            {"class": "fast", "floating_network_id": "n", "subnet_id": "s"},
            "floating",
            {"floating_network_id": the("net-fast")},
        ),
    ],
)
async def test_an_annotation_has_its_effect(annotations, table, expected):
    fake = trusting(fast=LoadBalancerClass(floating_network_id=the("net-fast"), subnet_id=the("sub-fast")))
    fake.ports["p"] = {"id": the("p"), "network_id": "n", "fixed_ips": []}  # for the annotation port-id
    await ensured(fake, spec(annotations=annotations))
    row = only(getattr(fake, table))
    assert {key: row.get(key) for key in expected} == expected
    # An existing load balancer gets the same values as a new one.
    if table in ("listeners", "pools", "monitors"):
        other = trusting(fast=LoadBalancerClass(floating_network_id=the("net-fast"), subnet_id=the("sub-fast")))
        await ensured(other, spec())
        await ensured(other, spec(annotations=annotations))
        row = only(getattr(other, table))
        assert {key: row.get(key) for key in expected} == expected


async def test_member_subnet_and_node_selector():
    fake = trusting()
    both = (*nodes(1, pool="front"), *nodes(2, pool="back"))
    await ensured(fake, spec(annotations={"node_selector": "pool=front", "member_subnet_id": "m"}), both)
    (member,) = only(fake.pools)["_members"]
    assert (member["address"], member["subnet_id"], member["name"]) == ("10.0.0.1", the("m"), "node-1")
    await ensured(fake, spec(annotations={"node_selector": "pool", "member_subnet_id": "m"}), both)
    assert len(only(fake.pools)["_members"]) == 2


async def test_a_selector_keeps_a_large_cluster_below_300_members():
    """cloud-provider-openstack#1770: an Octavia admits 300 members, and a Service has three ports and 110 Nodes."""
    fake, ports = trusting(), (WEB, TLS, Port("alt", "TCP", 8080, 30808))
    every = (*nodes(*range(1, 51), pool="front"), *nodes(*range(51, 111), pool="back"))
    for settings, members in (({}, 330), ({"node_selector": "pool=front"}, 150)):
        await ensured(fake, spec("u-1", "web", *ports, annotations=settings), every)
        assert sum(len(pool["_members"]) for pool in fake.pools.values()) == members


async def test_a_selector_costs_no_call_and_neither_does_a_node_without_its_label():
    front, back = nodes(1, 2, pool="front"), nodes(3, 4, pool="back")
    calls = []
    for settings in ({}, {"node_selector": "pool=front"}):
        fake, what = trusting(), spec(annotations=settings)
        await ensured(fake, what, (*front, *back))
        calls.append(fake.calls)
    assert calls[0] == calls[1] == {"GET loadbalancers": 1, "POST loadbalancers": 1, "POST floatingips": 1}
    before, after = (provider(fake).fingerprint(what, (*front, *each)) for each in (back, back[:1]))
    assert before == after, "nothing is written when such a Node leaves"


@pytest.mark.parametrize(
    ("annotations", "section"), [({"node-selector": "pool=front"}, {}), ({}, {"node_selector": "pool=front"})]
)
async def test_a_selector_that_no_node_has_is_reported_at_once_and_later(annotations, section):
    """A warning says that no Node has the label: at once, or when the last Node with the label leaves."""
    fake = FakeOpenStack(LoadBalancerSection(subnet_id="s", floating_network_id="n", **OPEN, **section))
    told = "nobody serves this Service: no node with the labels of node-selector has an IPv4 address"
    found = await ensured(fake, spec(annotations=annotations), nodes(1, pool="back"))
    assert found.ready and not only(fake.pools)["_members"] and found.warnings == (told,)
    found = await patiently(provider(fake).update_backends, spec(annotations=annotations), nodes(1, pool="front"))
    assert len(only(fake.pools)["_members"]) == 1 and not found.warnings
    found = await patiently(provider(fake).update_backends, spec(annotations=annotations), nodes(1, 2, pool="back"))
    assert not only(fake.pools)["_members"] and found.warnings == (told,)


def crowded(most: int) -> FakeOpenStack:
    """Return an OpenStack whose operator allows `most` members per load balancer."""
    own = {"subnet_id": the("sub-nodes"), "floating_network_id": the("net-public"), "max_members": most}
    return FakeOpenStack(LoadBalancerSection(**own, create_monitor=True, **OPEN))


def member_names(fake: FakeOpenStack) -> list[set[str]]:
    return [{member["name"] for member in pool["_members"]} for pool in fake.pools.values()]


async def test_members_are_limited_and_change_one_by_one():
    """cloud-provider-openstack#1770: the status reports of 300 members break an amphora."""
    fake, every = crowded(300), range(1, 121)
    found = await ensured(fake, spec("u-1", "web", WEB, TLS), nodes(*every))
    first, second = member_names(fake)
    assert first == second == {each.node_name for each in nodes(*every)} and not found.warnings
    fake = crowded(20)
    found = await ensured(fake, spec("u-1", "web", WEB, TLS), nodes(*every))
    first, second = member_names(fake)
    assert first == second and len(first) == 10 and not found.warnings
    gone = min(int(name.removeprefix("node-")) for name in first)
    left = nodes(*(each for each in every if each != gone))
    await patiently(provider(fake).update_backends, spec("u-1", "web", WEB, TLS), left)
    after, _ = member_names(fake)
    assert len(after) == 10 and first - after == {f"node-{gone}"}


async def test_a_limit_leaves_no_node_out_that_may_have_the_only_pod():
    fake, local = crowded(2), spec(external_traffic_policy="Local", health_check_node_port=32000)
    found = await ensured(fake, local, nodes(1, 2, 3))
    (names,) = member_names(fake)
    assert len(names) == 3
    (warning,) = found.warnings
    assert "3 members, more than max-members=2" in warning and "node-selector" in warning


async def test_the_limit_of_one_load_balancer_leaves_another_one_alone():
    """The first half of a fingerprint covers everything but the members. A new limit changes only the second half, so a
    changed limit alone does not rewrite a load balancer."""
    free, limited = (provider(crowded(most)).fingerprint(spec(), nodes(1, 2, 3)) for most in (0, 2))
    assert free.split("-")[0] == limited.split("-")[0] and free != limited


@pytest.mark.parametrize(
    ("annotations", "section", "expected"),
    [
        ({"hostname": "shop.example.com"}, {}, Ingress(hostname="shop.example.com")),
        ({"proxy_protocol": "true"}, {}, Ingress(ip="10.0.1.1", ip_mode="Proxy")),
        ({"proxy_protocol": "true"}, {"enable_ingress_hostname": True}, Ingress(hostname="10.0.1.1.nip.io")),
        ({}, {}, Ingress(ip="10.0.1.1", ip_mode="VIP")),
    ],
)
async def test_the_status_says_how_it_is_reached(annotations, section, expected):
    fake = FakeOpenStack(LoadBalancerSection(subnet_id="s", internal_lb=True, **section))
    found = await ensured(fake, spec(annotations=annotations))
    assert found.ingress == (expected,)
    again = provider(fake)
    (listed,) = await again.list("prod")
    if listed.fingerprint:  # the listed addresses may be published without a write
        assert listed.ingress == (expected,)
    else:
        await again.ensure(spec(annotations=annotations), nodes(1, 2))
        assert (await again.list("prod"))[0].ingress == (expected,)


async def test_local_traffic_is_probed_where_kube_proxy_tells():
    fake = FakeOpenStack(LoadBalancerSection(subnet_id="s", internal_lb=True, create_monitor=True))
    await ensured(fake, spec(external_traffic_policy="Local", health_check_node_port=32000))
    monitor = only(fake.monitors)
    assert (monitor["type"], monitor["url_path"], monitor["expected_codes"]) == ("HTTP", "/healthz", "200")
    assert {each["monitor_port"] for each in only(fake.pools)["_members"]} == {32000}


async def test_affinity_and_source_ranges_are_written_and_taken_back():
    fake = FakeOpenStack()
    await ensured(fake, spec(session_affinity="ClientIP", source_ranges=("192.0.2.0/24", "2001:db8::/32")))
    assert only(fake.listeners)["allowed_cidrs"] == ["192.0.2.0/24"]
    assert only(fake.pools)["session_persistence"] == {"type": "SOURCE_IP"}
    await ensured(fake, spec())
    assert only(fake.listeners)["allowed_cidrs"] == ["0.0.0.0/0"]
    assert only(fake.pools)["session_persistence"] is None


async def test_what_this_octavia_cannot_do_is_refused_rather_than_left_out():
    fake = FakeOpenStack(LoadBalancerSection(lb_provider="ovn", subnet_id="s", internal_lb=True))
    for desired, what in (
        (spec(source_ranges=("192.0.2.0/24",)), "would be open to everybody.*manage-security-groups"),
        (spec(annotations={"flavor_id": "f"}), "flavor-id"),
        (spec(annotations={"timeout_tcp_inspect": "1"}), "timeout-tcp-inspect"),
        (spec(annotations={"lb_method": "ROUND_ROBIN"}), "supports only SOURCE_IP_PORT"),
    ):
        with pytest.raises(Invalid, match=what):
            await provider(fake).ensure(desired, nodes(1))
    await ensured(fake, spec())
    row = only(fake.listeners)
    assert row["_balancer"] and "allowed_cidrs" not in row and "timeout_client_data" not in row
    assert only(fake.pools)["lb_algorithm"] == "SOURCE_IP_PORT" and only(fake.balancers)["provider"] == "ovn"
    fake.octavia = (2, 4)
    with pytest.raises(NotImplementedByCloud, match=r"2\.4"):
        await provider(fake).ensure(spec("u-2", "other"), nodes(1))


# --- changes --------------------------------------------------------------------------------------------------------


async def test_changes_are_written_one_at_a_time_and_hold_nobody():
    fake = FakeOpenStack()
    fake.at_once = False
    balancers = provider(fake)
    await balancers.ensure(spec("u-1", "web", WEB), nodes(1))
    fake.settle()
    changed = spec("u-1", "web", TLS, Port("dns", "UDP", 53, 30053), annotations={"enable_health_monitor": "true"})
    for _ in range(30):
        try:
            await asyncio.wait_for(balancers.ensure(changed, nodes(1)), 60)
            break
        except RetryAfter:
            fake.settle()
    assert {(each["protocol"], each["protocol_port"]) for each in fake.listeners.values()} == {
        ("TCP", 443),
        ("UDP", 53),
    }
    assert {each["type"] for each in fake.monitors.values()} == {"TCP", "UDP-CONNECT"}
    assert {tuple(fake.members(pool)) for pool in fake.pools} == {(("10.0.0.1", 30443),), (("10.0.0.1", 30053),)}
    assert (await balancers.list("prod"))[0].fingerprint == balancers.fingerprint(changed, nodes(1))


async def test_an_octavia_that_takes_one_thing_at_a_time_gets_it_so():
    section = LoadBalancerSection(subnet_id="s", internal_lb=True, provider_requires_serial_api_calls=True)
    fake = FakeOpenStack(section)
    await ensured(fake, spec(), nodes(1, 2))
    await patiently(provider(fake).update_backends, spec(), nodes(2, 3))
    assert fake.members(next(iter(fake.pools))) == {("10.0.0.2", 30080), ("10.0.0.3", 30080)}
    assert fake.calls["PUT pools/ID/members"] == 0


async def test_what_was_remembered_and_is_gone_is_looked_for_again():
    fake = FakeOpenStack()
    balancers = provider(fake)
    await balancers.ensure(spec(), nodes(1))
    for table in (fake.balancers, fake.listeners, fake.pools):
        table.clear()
    with pytest.raises(NotFound):
        await patiently(balancers.update_backends, spec(), nodes(2))
    assert (await balancers.ensure(spec(), nodes(2))).ready and len(fake.balancers) == 1


async def test_updating_only_backends_does_not_claim_that_the_rest_is_written():
    fake = FakeOpenStack()
    await ensured(fake, spec())
    balancers = provider(fake)
    changed = spec(annotations={"connection_limit": "5"})
    await patiently(balancers.update_backends, changed, nodes(1))
    assert (await balancers.list("prod"))[0].fingerprint == balancers.fingerprint(spec(), nodes(1))
    with pytest.raises(NotFound):
        await balancers.update_backends(spec("u-9", "other"), nodes(1))


async def test_an_internal_address_that_cannot_be_changed_is_refused():
    fake = trusting()
    inside = {INTERNAL: "true"}
    await ensured(fake, spec(annotations=inside, load_balancer_ip="10.0.1.50"))
    with pytest.raises(Conflict, match=r"has the address 10\.0\.1\.50, but loadBalancerIP requests 10\.0\.1\.60"):
        await ensured(fake, spec(annotations=inside, load_balancer_ip="10.0.1.60"))
    (listed,) = await provider(fake).list("prod")
    assert listed.fingerprint != provider(fake).fingerprint(
        spec(annotations=inside, load_balancer_ip="10.0.1.60"), nodes(1, 2)
    )
    assert (await ensured(fake, spec(annotations=inside, load_balancer_ip="10.0.1.50"))).ready


async def test_one_that_becomes_internal_loses_its_floating_ip_even_if_its_address_cannot_be_had():
    fake = trusting()
    fake.floating["mine"] = {"id": "mine", "floating_ip_address": "203.0.113.200", "port_id": None, "description": ""}
    await ensured(fake, spec(load_balancer_ip="203.0.113.200"))
    with pytest.raises(Conflict, match="loadBalancerIP"):
        await ensured(fake, spec(annotations={INTERNAL: "true"}, load_balancer_ip="203.0.113.200"))
    assert fake.floating["mine"]["port_id"] is None


async def test_an_ipv6_address_is_the_same_however_it_is_written():
    fake = trusting()
    six = {"ip_families": ("IPv6",), "load_balancer_ip": "2001:DB8:0::5"}
    await ensured(fake, spec(**six))
    only(fake.balancers)["vip_address"] = "2001:db8::5"
    assert (await ensured(fake, spec(annotations={"connection_limit": "1"}, **six))).ready
    with pytest.raises(Conflict, match="2001:db8::6"):
        await ensured(fake, spec(**six | {"load_balancer_ip": "2001:db8::6"}))


@pytest.mark.parametrize(
    ("annotations", "warning"),
    [
        ({"flavor_id": "f2"}, "flavor-id f2 (it has f1)"),
        ({"availability_zone": "z"}, "availability-zone z (it has none)"),
        ({"network_id": "n2"}, "network-id n2 (it has n1)"),
        ({"subnet_id": "s2"}, "subnet-id s2 (it has sub-nodes)"),
        ({"port_id": "p2", "subnet_id": "s2"}, "port-id p2 (it has vip-1)"),
        ({"class": "fast"}, "subnet-id s3 (it has sub-nodes), floating-network-id n3 ({ip} is in net-public)"),
        ({"floating_network_id": "n4"}, "floating-network-id n4 ({ip} is in net-public)"),
        ({"floating_subnet_id": the("sub-b")}, "floating-subnet-id sub-b ({ip} is in public-a)"),
        ({"floating_subnet": "*-b"}, "floating-subnet *-b ({ip} is in public-a)"),
        ({"floating_subnet_tags": "b"}, "floating-subnet-tags b ({ip} is in public-a)"),
        ({"floating_subnet": "public-*", "floating_subnet_tags": "a"}, ""),
        ({"floating_subnet_id": the("sub-a")}, ""),
        ({}, ""),
    ],
)
async def test_a_setting_for_new_load_balancers_that_changes_later_is_reported(annotations, warning):
    fake = trusting(fast=LoadBalancerClass(floating_network_id=the("n3"), subnet_id=the("s3")))
    first = {"flavor_id": "f1", "network_id": "n1"}
    assert not (await ensured(fake, spec(annotations=first))).warnings
    found = await ensured(fake, spec(annotations=first | annotations | {"connection_limit": "5"}))
    assert found.ready and only(fake.listeners)["connection_limit"] == 5
    assert len(found.warnings) == bool(warning)
    warning = identified(warning.format(ip=found.ingress[0].ip))
    assert not warning or found.warnings[0].endswith(f"until the Service is deleted and created again: {warning}")


async def test_what_cloud_conf_says_of_new_ones_is_not_told_of_one_that_somebody_else_made():
    fake = trusting()
    await ensured(fake, spec("u-1", annotations={"subnet_id": "s", "flavor_id": "f1"}))
    shared = {"load_balancer_id": only(fake.balancers)["id"]}
    found = await ensured(fake, spec("u-2", "other", TLS, annotations=shared, load_balancer_ip="203.0.113.99"))
    assert len(found.warnings) == 1 and "loadBalancerIP requests 203.0.113.99" in found.warnings[0]
    found = await ensured(fake, spec("u-2", "other", TLS, annotations=shared | {"flavor_id": "f2"}))
    assert len(found.warnings) == 1 and found.warnings[0].endswith(identified("flavor-id f2 (it has f1)"))


async def test_another_provider_in_cloud_conf_is_told_and_another_name_of_it_is_not():
    fake = FakeOpenStack()
    await ensured(fake, spec())
    for name, told in (("octavia", False), ("ovn", True)):
        fake.settings.load_balancer = LoadBalancerSection(
            subnet_id=the("sub-nodes"), floating_network_id=the("net-public"), lb_provider=name
        )
        warnings = (await ensured(fake, spec())).warnings
        assert any("lb-provider ovn (it has amphora)" in each for each in warnings) == told


# --- left out --------------------------------------------------------------------------------------------------------


async def test_what_only_cloud_conf_says_and_this_octavia_cannot_do_is_told():
    section = {"subnet_id": "s", "internal_lb": True, "flavor_id": "f", "availability_zone": "z"}
    found = await ensured(FakeOpenStack(LoadBalancerSection(lb_provider="ovn", **section)), spec())
    assert found.ready and [each.partition(" ")[0] for each in found.warnings] == ["flavor-id", "availability-zone"]
    assert "provider ovn, or its API version, does not support it" in found.warnings[0]
    old = FakeOpenStack(LoadBalancerSection(**section))
    old.octavia = (2, 13)
    assert [each.partition(" ")[0] for each in (await ensured(old, spec())).warnings] == ["availability-zone"]
    assert (await ensured(FakeOpenStack(LoadBalancerSection(**section)), spec())).warnings == ()


async def test_a_family_that_is_not_served_is_told_also_if_it_is_asked_for_later():
    fake = FakeOpenStack()
    one, both = spec(), spec(ip_families=("IPv4", "IPv6"))
    await ensured(fake, one)
    assert provider(fake).fingerprint(one, nodes(1)) != provider(fake).fingerprint(both, nodes(1))
    (told,) = (await ensured(fake, both)).warnings
    assert "IPv4 and IPv6" in told and "gets only IPv4" in told


@pytest.mark.parametrize(
    ("annotations", "section", "warning"),
    [
        ({"floating_network_id": "n"}, {}, "floating-network-id: floating IPs do not exist for IPv6"),
        ({"class": "fast"}, {}, "floating-network-id, floating-subnet: floating IPs do not exist"),
        ({}, {"floating_network_id": "n"}, "floating-network-id: floating IPs do not exist"),
        ({INTERNAL: "true"}, {"floating_network_id": "n"}, ""),
        ({}, {}, ""),
    ],
)
async def test_ipv6_goes_without_a_floating_ip_and_says_so(annotations, section, warning):
    fast = LoadBalancerClass(floating_network_id="n", floating_subnet="*")
    fake = FakeOpenStack(LoadBalancerSection(subnet_id="s", **OPEN, **section), fast=fast)
    found = await ensured(fake, spec(annotations=annotations, ip_families=("IPv6",)))
    *others, nobody = found.warnings
    assert not fake.floating and nobody == "nobody serves this Service: no node has an IPv6 address"
    assert len(others) == bool(warning) and (not warning or others[0].startswith(warning))


# --- floating IPs ---------------------------------------------------------------------------------------------------


async def test_the_floating_ip_goes_with_the_service_unless_it_is_kept():
    for said, left in (({}, 0), ({"keep_floatingip": "true"}, 1)):
        fake = FakeOpenStack()
        await ensured(fake, spec(annotations=said))
        # Only the Service's UID is known, because the Service no longer exists.
        await deleted(fake, LoadBalancerSpec("prod", "u-1", "", "", ports=()))
        assert not fake.balancers and len(fake.floating) == left


async def test_an_address_of_the_users_is_used_and_never_deleted():
    fake = trusting()
    fake.floating["mine"] = {"id": "mine", "floating_ip_address": "203.0.113.200", "port_id": None, "description": ""}
    found = await ensured(fake, spec(load_balancer_ip="203.0.113.200"))
    assert found.ingress[0].ip == "203.0.113.200"
    with pytest.raises(Conflict, match=r"203\.0\.113\.200 is in use"):
        await provider(fake).ensure(spec("u-2", "other", load_balancer_ip="203.0.113.200"), nodes(1))
    await deleted(fake, spec(load_balancer_ip="203.0.113.200"))
    assert list(fake.floating) == ["mine"] and fake.floating["mine"]["port_id"] is None


async def test_without_an_external_network_there_is_the_vip_and_nothing_is_asked_again():
    fake = FakeOpenStack(LoadBalancerSection(subnet_id="s"))
    fake.external = False
    found = await ensured(fake, spec())
    assert found.ingress[0].ip == only(fake.balancers)["vip_address"] and not fake.floating
    assert found.warnings and "no external network to take a floating IP from" in found.warnings[0]
    again = provider(fake)
    (listed,) = await again.list("prod")
    assert listed.fingerprint == again.fingerprint(spec(), nodes(1, 2)) and listed.ingress == found.ingress


@pytest.mark.parametrize("later", ["get", "list"])
async def test_a_warning_is_there_when_it_is_ready_too(later):
    fake = FakeOpenStack(LoadBalancerSection(subnet_id="s"))
    fake.external, fake.at_once = False, False
    balancers = provider(fake)
    assert not (await balancers.ensure(spec(), nodes(1))).ready
    fake.settle()
    clock: Clock = balancers._clock  # type: ignore[assignment]
    clock.now += 60
    found = await balancers.get(spec()) if later == "get" else (await balancers.list("prod"))[0]
    assert found.ready and "no external network" in found.warnings[0]


async def test_two_networks_to_choose_from_are_told_and_one_that_was_chosen_is_not():
    fake = FakeOpenStack(LoadBalancerSection(subnet_id="s", **OPEN))
    fake.external_networks = [the("net-public"), the("net-other")]
    balancers = provider(fake)
    found = await patiently(balancers.ensure, spec(), nodes(1))
    assert only(fake.floating)["floating_network_id"] == min(fake.external_networks)
    assert "2 external networks" in found.warnings[0] and "floating-network-id" in found.warnings[0]
    chosen = spec("u-2", "b", annotations={"floating_network_id": the("net-public")})
    assert (await patiently(balancers.ensure, chosen, nodes(1))).warnings == ()
    fake.settings.load_balancer = LoadBalancerSection(subnet_id="s", floating_network_id=the("net-public"))
    assert (await ensured(fake, spec("u-3", "c"))).warnings == ()


async def test_a_misspelt_annotation_is_told_and_the_service_is_served():
    found = await ensured(FakeOpenStack(), spec(annotations={"proxy-protocl": "true"}))
    assert found.ready and f"{PREFIX}proxy-protocl" in found.warnings[0]


async def test_becoming_internal_takes_the_floating_ip_away():
    fake = FakeOpenStack()
    await ensured(fake, spec())
    found = await ensured(fake, spec(annotations={INTERNAL: "true"}))
    assert not fake.floating and found.ingress[0].ip == only(fake.balancers)["vip_address"]


async def test_a_quota_of_floating_ips_is_told_and_nothing_is_made_twice():
    fake = FakeOpenStack()
    fake.floating_quota = 0
    balancers = provider(fake)
    for _ in range(2):
        with pytest.raises(QuotaExceeded):
            await balancers.ensure(spec(), nodes(1))
    assert len(fake.balancers) == 1
    (listed,) = await provider(fake).list("prod")
    assert listed.fingerprint == ""  # so it is also ensured after a restart
    fake.floating_quota = 1
    assert (await balancers.ensure(spec(), nodes(1))).ingress[0].ip.startswith("203.")


# --- ownership ------------------------------------------------------------------------------------------------------


async def upstreams(fake: FakeOpenStack, **changes: Any) -> dict[str, Any]:
    """Create a load balancer as cloud-provider-openstack does for the Service shop/web: like ours, without our tag."""
    await ensured(fake, spec())
    row = only(fake.balancers)
    row.update({"tags": [NAME]} | changes)
    only(fake.floating)["description"] = "Floating IP for Kubernetes external service shop/web from cluster prod"
    fake.calls.clear()
    return row


@pytest.mark.parametrize("how", ["annotation", "status", "address"])
async def test_one_of_cloud_provider_openstacks_is_taken_over_without_a_change_of_what_it_does(how):
    fake = trusting() if how != "status" else FakeOpenStack()
    row = await upstreams(fake)
    address = only(fake.floating)["floating_ip_address"]
    desired = {
        "annotation": spec(annotations={"load_balancer_id": row["id"], "load_balancer_address": "203.0.113.77"}),
        "status": spec(ingress=(Ingress(ip=address),)),
        "address": spec(annotations={"load_balancer_address": address}),
    }[how]
    found = await ensured(fake, desired)
    assert found.name == NAME and found.ingress[0].ip == address
    assert {call: count for call, count in fake.calls.items() if not call.startswith("GET")} == {
        "PUT loadbalancers/ID": 1
    }
    # On the way back, everything that cloud-provider-openstack looks for is unchanged.
    assert row["tags"][0] == NAME and [tag for tag in row["tags"] if tag.startswith("kube_service_")] == [NAME]


async def test_the_old_name_is_known_too():
    fake = FakeOpenStack()
    row = await upstreams(fake, name=spec().default_name)
    await ensured(fake, spec(ingress=(Ingress(ip=row["vip_address"]),)))
    assert len(fake.balancers) == 1 and len(row["tags"]) == 2


async def test_one_of_another_cluster_of_the_same_name_is_not_taken():
    fake = FakeOpenStack()
    row = await upstreams(fake)
    before = dict(row)
    with pytest.raises(Conflict, match=rf"(?s){row['id']}.*load-balancer-id"):
        await provider(fake).ensure(spec("u-2"), nodes(9))
    await deleted(fake, spec("u-2"))
    assert row == before and len(fake.floating) == 1 and fake.balancers


async def test_one_with_another_services_tag_is_left_alone_and_an_own_one_made():
    fake = FakeOpenStack()
    await ensured(fake, spec("u-1"))
    await ensured(fake, spec("u-2"), nodes(3))
    assert len(fake.balancers) == 2
    await deleted(fake, spec("u-2"))
    assert [each.service_uid for each in await provider(fake).list("prod")] == ["u-1"] and len(fake.floating) == 1


@pytest.mark.parametrize("first_to_go", ["owner", "namesake"])
async def test_a_namesake_of_another_cluster_does_not_take_it_by_its_id(first_to_go):
    """Both clusters have the same name, so cloud-provider-openstack wrote the load balancer's ID onto both Services."""
    fake = trusting()
    row = await upstreams(fake)
    owner = spec("u-1", annotations={"load_balancer_id": row["id"]})
    namesake = spec("u-2", "web", TLS, annotations={"load_balancer_id": row["id"], "load_balancer_address": "1.2.3.4"})
    await ensured(fake, owner)
    before, listeners = dict(row), {key: dict(each) for key, each in fake.listeners.items()}
    for call in (provider(fake).ensure, provider(fake).update_backends):
        with pytest.raises(Conflict, match=r"another Service named shop/web.*remove its tag.*ccm:v1:prod:u-1:"):
            await call(namesake, nodes(7))
    with pytest.raises(Conflict, match="another Service"):
        await provider(fake).get(namesake)
    if first_to_go == "namesake":
        await deleted(fake, namesake)
        assert row == before and fake.listeners == listeners and fake.floating and fake.pools
    await deleted(fake, owner)
    assert not fake.balancers and not fake.floating
    made = await ensured(fake, namesake)
    assert made.ready and [each["protocol_port"] for each in fake.listeners.values()] == [443]


@pytest.mark.parametrize("known", ["all", "the UID"])
@pytest.mark.parametrize("order", [("u-1", "u-2"), ("u-2", "u-1")])
async def test_one_with_the_marks_of_two_namesakes_goes_with_the_last_of_them(order, known):
    """An earlier release could leave one load balancer with the marks of two namesakes, because
    cloud-provider-openstack's tag is the same for both."""
    fake = FakeOpenStack()
    await ensured(fake, spec("u-1"))
    row = only(fake.balancers)
    row["tags"] = [*row["tags"], str(Mark.of(spec("u-2"), "x"))]
    listeners, members = dict(fake.listeners), fake.members(next(iter(fake.pools)))

    def gone(uid: str) -> LoadBalancerSpec:
        return spec(uid) if known == "all" else LoadBalancerSpec("prod", uid, "", "", ports=())

    await deleted(fake, gone(order[0]))
    assert [each.service_uid for each in await provider(fake).list("prod")] == [order[1]] and NAME in row["tags"]
    assert fake.listeners == listeners and fake.members(next(iter(fake.pools))) == members and fake.floating
    await deleted(fake, gone(order[1]))
    assert not fake.balancers and not fake.floating


async def test_one_that_failed_is_not_deleted_under_a_namesake():
    fake = FakeOpenStack()
    await ensured(fake, spec("u-1"))
    row = only(fake.balancers)
    row |= {"tags": [*row["tags"], str(Mark.of(spec("u-2"), "x"))], "provisioning_status": "ERROR"}
    with pytest.raises(Conflict, match="does not belong to this Service alone"):
        await provider(fake).ensure(spec("u-1"), nodes(1))
    assert fake.balancers


async def test_one_that_was_made_twice_is_not_deleted_under_a_namesake():
    fake = FakeOpenStack()
    await ensured(fake, spec("u-1"))
    await ensured(fake, spec("u-2"))
    first, second = fake.balancers.values()
    first["created_at"], second["created_at"] = "1", "2"
    second["tags"] = [*second["tags"], str(Mark.of(spec("u-1"), "x"))]
    with pytest.raises(Conflict, match="which has another load balancer"):
        await provider(fake).ensure(spec("u-1"), nodes(1))
    assert len(fake.balancers) == 2


async def test_one_of_cloud_provider_openstacks_that_was_shared_is_taken_over_in_any_order():
    fake = trusting()
    await ensured(fake, spec("u-1"))
    row = only(fake.balancers)
    owner = spec("u-1", annotations={"load_balancer_id": row["id"]})
    guest = spec("u-2", "other", TLS, annotations={"load_balancer_id": row["id"]})
    await ensured(fake, guest)
    row["tags"] = [tag for tag in row["tags"] if tag.startswith("kube_service_")]
    await ensured(fake, guest)
    await ensured(fake, owner)
    assert {each.service_uid for each in await provider(fake).list("prod")} == {"u-1", "u-2"}
    assert {each["protocol_port"] for each in fake.listeners.values()} == {80, 443}
    await deleted(fake, owner)
    assert [each["protocol_port"] for each in fake.listeners.values()] == [443] and fake.floating


async def test_two_services_share_one_and_leave_it_to_each_other():
    fake = FakeOpenStack()
    await ensured(fake, spec("u-1"))
    row = only(fake.balancers)
    guest = spec("u-2", "other", TLS, annotations={"load_balancer_id": row["id"]})
    found = await ensured(fake, guest)
    assert found.ingress[0].ip == only(fake.floating)["floating_ip_address"]
    assert {each["protocol_port"]: each["tags"] for each in fake.listeners.values()} == {
        80: [NAME],
        443: ["kube_service_prod_shop_other"],
    }
    assert {each.service_uid for each in await provider(fake).list("prod")} == {"u-1", "u-2"}
    with pytest.raises(Conflict, match="max-shared-lb"):
        await provider(fake).ensure(spec("u-3", "third", annotations={"load_balancer_id": row["id"]}), nodes(1))
    # A node joins: each Service changes its own pool.
    await patiently(provider(fake).update_backends, guest, nodes(5))
    await patiently(provider(fake).update_backends, spec("u-1"), nodes(6))
    by_port = {each["protocol_port"]: fake.members(each["default_pool_id"]) for each in fake.listeners.values()}
    assert by_port == {80: {("10.0.0.6", 30080)}, 443: {("10.0.0.5", 30443)}}
    # The owner goes first, and only its UID is known.
    await deleted(fake, LoadBalancerSpec("prod", "u-1", "", "", ports=()))
    assert [each["protocol_port"] for each in fake.listeners.values()] == [443]
    assert [each.service_uid for each in await provider(fake).list("prod")] == ["u-2"]
    await deleted(fake, guest)
    assert not fake.balancers and not fake.floating


async def test_one_that_was_made_twice_is_left_once():
    """The answer to the first request was lost, and Octavia carried out that request only after the second one."""
    fake = trusting()
    await ensured(fake, spec())
    first = only(fake.balancers)
    mark, first["tags"], first["name"] = first["tags"], [], "not there yet"
    await ensured(fake, spec("u-1", "web", annotations={"floating_subnet": "*"}), nodes(1))
    first |= {"tags": mark, "name": NAME, "created_at": ""}
    next(row for row in fake.balancers.values() if row is not first)["created_at"] = "1"
    assert len(fake.balancers) == 2
    await ensured(fake, spec())
    assert only(fake.balancers) is first and len(fake.floating) == 1


async def test_a_port_of_another_service_is_not_taken():
    fake = FakeOpenStack()
    await ensured(fake, spec("u-1"))
    row = only(fake.balancers)
    with pytest.raises(Conflict, match="port 80/TCP"):
        await provider(fake).ensure(spec("u-2", "other", annotations={"load_balancer_id": row["id"]}), nodes(1))
    assert len(fake.listeners) == 1


async def test_a_service_that_was_refused_takes_nothing_along():
    fake = FakeOpenStack()
    await ensured(fake, spec("u-1"))
    row = only(fake.balancers)
    row["tags"] = []  # as created before there were tags
    before = dict(row)
    guest = spec("u-2", "other", annotations={"load_balancer_id": row["id"]})
    await deleted(fake, guest)
    assert row == before and fake.floating and fake.listeners


async def test_one_that_the_user_made_outlives_its_services():
    fake = trusting()
    fake.balancers[the("lb-own")] = {
        "id": the("lb-own"), "name": "own", "tags": ["team:a"], "provisioning_status": "ACTIVE",
        "vip_address": "10.0.1.99", "vip_port_id": "vip-own", "vip_subnet_id": "s", "listeners": [], "pools": [],
    }  # fmt: skip
    fake.floating["f"] = {"id": "f", "floating_ip_address": "203.0.113.9", "port_id": "vip-own", "description": ""}
    desired = spec(annotations={"load_balancer_id": the("lb-own")})
    found = await ensured(fake, desired)
    assert found.ingress[0].ip == "203.0.113.9" and len(fake.listeners) == 1
    await deleted(fake, desired)
    assert fake.balancers[the("lb-own")]["tags"] == ["team:a"] and not fake.listeners and fake.floating


# --- failures -------------------------------------------------------------------------------------------------------


async def test_one_that_failed_before_it_served_is_made_anew_and_keeps_its_floating_ip():
    fake = FakeOpenStack()
    fake.fails = ["web"]
    balancers = provider(fake)
    await balancers.ensure(spec(), nodes(1))
    address = only(fake.floating)["floating_ip_address"]
    with pytest.raises(Conflict, match="ERROR"):
        balancers._memory.forget((spec().cluster, spec().uid))
        await balancers.get(spec())
    assert (await balancers.list("prod"))[0].fingerprint == ""
    fake.fails = []
    found = await patiently(balancers.ensure, spec(), nodes(1))
    assert found.ready and found.ingress[0].ip == address and len(fake.floating) == 1


async def test_one_that_may_still_serve_is_failed_over_and_not_deleted():
    fake = FakeOpenStack()
    await ensured(fake, spec())
    row = only(fake.balancers)
    row["provisioning_status"] = "ERROR"
    served = spec(ingress=(Ingress(ip="203.0.113.2"),))
    with pytest.raises(Conflict, match=r"(?s)may still serve traffic.*load-balancer_admin.*failover"):
        await provider(fake).ensure(served, nodes(1))
    fake.may_fail_over = True
    await patiently(provider(fake).ensure, served, nodes(1))
    assert only(fake.balancers)["id"] == row["id"]


async def test_while_octavia_is_at_it_everything_comes_back_later():
    fake = FakeOpenStack()
    await ensured(fake, spec())
    only(fake.balancers)["provisioning_status"] = "PENDING_UPDATE"
    for call in (provider(fake).ensure, provider(fake).update_backends):
        with pytest.raises(RetryAfter):
            await call(spec(annotations={"connection_limit": "3"}), nodes(1))
    with pytest.raises(RetryAfter):
        await provider(fake).delete(spec())
    assert not (await provider(fake).get(spec())).ready


@pytest.mark.parametrize("cascade", [True, False])
async def test_deleting_removes_everything_in_one_call_or_part_by_part(cascade):
    fake = FakeOpenStack(
        LoadBalancerSection(
            subnet_id="s", floating_network_id=the("net-public"), cascade_delete=cascade, create_monitor=True
        )
    )
    await ensured(fake, spec("u-1", "web", WEB, TLS))
    await deleted(fake, spec())
    assert not (fake.balancers or fake.listeners or fake.pools or fake.monitors or fake.floating)
    with pytest.raises(NotFound):
        await provider(fake).delete(spec())


# --- security groups ------------------------------------------------------------------------------------------------


async def test_nodes_are_opened_by_a_group_of_the_services_own():
    fake = FakeOpenStack(LoadBalancerSection(subnet_id=the("sub-nodes"), internal_lb=True, manage_security_groups=True))
    for number in (1, 2, 3):
        fake.server(number)
    await ensured(fake, spec("u-1", "web", WEB, TLS), nodes(1, 2))
    group = only(fake.groups)
    assert group["name"] == "lb-sg-u-1-shop-web" and group["tags"] == ["ccm:v1:u-1"]
    assert {(rule["port_range_min"], rule["remote_ip_prefix"]) for rule in group["security_group_rules"]} == {
        (30080, "10.0.0.0/24"),
        (30443, "10.0.0.0/24"),
    }
    has = {number: group["id"] in fake.ports[f"port-{number}"]["security_groups"] for number in (1, 2, 3)}
    assert has == {1: True, 2: True, 3: False}
    await patiently(provider(fake).update_backends, spec("u-1", "web", WEB, TLS), nodes(2, 3))
    has = {number: group["id"] in fake.ports[f"port-{number}"]["security_groups"] for number in (1, 2, 3)}
    assert has == {1: False, 2: True, 3: True}
    await ensured(fake, spec("u-1", "web", WEB), nodes(2, 3))
    assert [rule["port_range_min"] for rule in group["security_group_rules"]] == [30080]
    await deleted(fake, spec())
    assert not fake.groups and fake.ports["port-2"]["security_groups"] == ["sg-default"]


def opened() -> FakeOpenStack:
    fake = FakeOpenStack(LoadBalancerSection(subnet_id=the("sub-nodes"), internal_lb=True, manage_security_groups=True))
    fake.server(1)
    return fake


@pytest.mark.parametrize("tags", [None, [], ["team:a"]])
async def test_a_group_that_cloud_provider_openstack_made_gets_our_tag_and_goes_with_the_service(tags):
    fake = opened()
    fake.groups["sg-cpo"] = {"id": "sg-cpo", "name": "lb-sg-u-1-shop-web", "security_group_rules": [], "tags": tags}
    await ensured(fake, spec(), nodes(1))
    assert only(fake.groups)["tags"] == [*(tags or ()), "ccm:v1:u-1"]
    assert fake.calls["PUT security-groups/ID/tags"] == 1
    await ensured(fake, spec(annotations={"connection_limit": "1"}), nodes(1))
    assert fake.calls["PUT security-groups/ID/tags"] == 1
    await deleted(fake, LoadBalancerSpec("prod", "u-1", "", "", ports=()))
    assert not fake.groups and fake.ports["port-1"]["security_groups"] == ["sg-default"]


async def test_a_group_whose_making_was_cut_short_gets_its_tag_later():
    fake = opened()
    fake.refuses_tags = True
    with pytest.raises(Transient):
        await ensured(fake, spec(), nodes(1))
    assert not only(fake.groups).get("tags")
    fake.refuses_tags = False
    await ensured(fake, spec(), nodes(1))
    group = only(fake.groups)
    assert group["tags"] == ["ccm:v1:u-1"] and len(group["security_group_rules"]) == 1
    assert group["id"] in fake.ports["port-1"]["security_groups"]


async def test_only_a_group_of_this_very_service_is_deleted():
    fake = opened()
    await ensured(fake, spec(), nodes(1))
    for number, (name, tags) in enumerate(
        [("lb-sg-u-1-my-own", []), ("lb-sg-u-1-shop-web-2", ["ccm:v1:u-12"]), ("lb-sg-u-1", None)]
    ):
        fake.groups[f"other-{number}"] = {"id": f"other-{number}", "name": name, "tags": tags}
    fake.groups["named"] = {"id": "named", "name": "lb-sg-u-1-shop-web"}  # as cloud-provider-openstack creates it
    await deleted(fake, spec())
    assert set(fake.groups) == {"other-0", "other-1", "other-2"}


async def test_without_the_extension_a_port_is_changed_without_its_revision():
    fake = opened()
    fake.neutron_extensions = set()
    await ensured(fake, spec(), nodes(1))
    assert only(fake.groups)["id"] in fake.ports["port-1"]["security_groups"]


async def test_services_change_the_same_ports_side_by_side_and_lose_nothing():
    fake = FakeOpenStack(LoadBalancerSection(subnet_id=the("sub-nodes"), internal_lb=True, manage_security_groups=True))
    fake.server(1)
    balancers = provider(fake)
    all_desired = [spec(f"u-{number}", f"web-{number}") for number in range(8)]
    await asyncio.gather(*(patiently(balancers.ensure, desired, nodes(1)) for desired in all_desired))
    assert len(fake.ports["port-1"]["security_groups"]) == 9
    assert fake.calls["PUT ports/ID"] == 8


async def test_errors_are_the_contracts_own():
    fake = FakeOpenStack()

    async def broken(*args: Any, **more: Any) -> Any:
        raise RetryAfter("busy", 3.0)

    fake.call = broken  # type: ignore[method-assign]
    with pytest.raises(CloudError):
        await provider(fake).list("prod")


@pytest.mark.parametrize(
    "changed",
    [
        {"annotations": {"connection_limit": "many"}},
        {"annotations": {"class": "no such class"}},
        {"annotations": {"proxy-protocol": "true", "x-forwarded-for": "true"}},
        {"source_ranges": ("2001:db8::/32",)},
        {"load_balancer_ip": "2001:db8::1"},
    ],
)
async def test_what_does_not_concern_members_does_not_keep_them_from_following(changed):
    fake = FakeOpenStack()
    await ensured(fake, spec())
    before = {key: dict(each) for key, each in fake.listeners.items()}
    with pytest.raises(Invalid):
        await patiently(provider(fake).ensure, spec(**changed), nodes(2))
    await patiently(provider(fake).update_backends, spec(**changed), nodes(2))
    assert fake.members(next(iter(fake.pools))) == {("10.0.0.2", 30080)}
    assert fake.listeners == before


async def test_which_members_is_never_guessed():
    fake = FakeOpenStack()
    await ensured(fake, spec())
    with pytest.raises(Invalid):
        await patiently(provider(fake).update_backends, spec(annotations={"node-selector": "a b"}), nodes(2))
