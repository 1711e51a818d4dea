# SPDX-License-Identifier: Apache-2.0
"""Pure rules of Octavia load balancers: from any state to any desired one, names, tags, subnets, security groups."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccm.cloud import Address, AddressType, Backend, Ingress, Invalid, Kept, LoadBalancerSpec, Port
from ccm.cloud.toolkit.backend_addresses import node_address
from ccm.cloud.toolkit.digests import desired_digest
from ccm.providers.openstack.annotations import INTERNAL, PREFIX, TABLE, unknown
from ccm.providers.openstack.load_balancers import floating_ips, listener_rules, load_balancer_owners, security_groups
from ccm.providers.openstack.load_balancers import load_balancer_rules as rules
from ccm.providers.openstack.load_balancers import load_balancer_steps as diff
from ccm.providers.openstack.load_balancers.feature_rules import Features
from ccm.providers.openstack.load_balancers.listener_rules import Listener, Member, Monitor, Pool
from ccm.providers.openstack.load_balancers.load_balancer_owners import Mark
from ccm.providers.openstack.settings_sections import LoadBalancerSection

from .octavia_in_memory import BALANCER, FakeOpenStack

# --- any state to any desired one -------------------------------------------------------------------------------------

members = st.lists(
    st.builds(
        Member,
        name=st.just("n"),
        address=st.sampled_from(["10.0.0.1", "10.0.0.2", "10.0.0.3"]),
        port=st.just(30080),
        subnet_id=st.just("s"),
        monitor_port=st.sampled_from([None, 32000]),
    ),
    max_size=3,
    unique_by=lambda member: member.address,
).map(tuple)
monitors = st.none() | st.builds(
    Monitor,
    name=st.just("m"),
    type=st.sampled_from(["TCP", "HTTP"]),
    settings=st.fixed_dictionaries({"delay": st.integers(1, 3), "max_retries": st.integers(1, 2)}),
)
persistence = st.sampled_from([None, {"type": "SOURCE_IP"}])


@st.composite
def listeners(draw: Any, name: str = "mine") -> Listener:
    protocol = draw(st.sampled_from(["TCP", "HTTP", "UDP"]))
    pool = Pool(
        "p",
        draw(st.sampled_from({"TCP": ["TCP", "PROXY"], "HTTP": ["HTTP"], "UDP": ["UDP"]}[protocol])),
        {"lb_algorithm": draw(st.sampled_from(["ROUND_ROBIN", "SOURCE_IP"])), "session_persistence": draw(persistence)},
        draw(members),
        draw(monitors),
    )
    found = {
        "connection_limit": draw(st.integers(-1, 2)),
        "insert_headers": draw(st.sampled_from([{}, {listener_rules.XFF: "true"}])),
        "allowed_cidrs": draw(st.sampled_from([["0.0.0.0/0"], ["10.0.0.0/8"]])),
        "tags": [name],
    }
    return Listener("l", protocol, draw(st.sampled_from([80, 443, 8080])), found, pool)


all_desired = st.lists(
    listeners(), max_size=3, unique_by=lambda each: (each.port, diff.TRANSPORT.get(each.protocol, "TCP"))
).map(tuple)


def seen(fake: FakeOpenStack) -> diff.Observed:
    return diff.Observed(
        list(fake.listeners.values()),
        list(fake.pools.values()),
        {key: row["_members"] for key, row in fake.pools.items()},
        {row["pool_id"]: row for row in fake.monitors.values()},
    )


def state(fake: FakeOpenStack) -> set[Any]:
    """Return the state of all parts, without names and IDs."""
    found = set()
    for row in fake.listeners.values():
        pool = fake.pools[row["default_pool_id"]]
        monitor = fake.monitors.get(pool["healthmonitor_id"])
        found.add(
            (
                row["protocol"], row["protocol_port"], row["connection_limit"], bool(row["insert_headers"]),
                tuple(row["allowed_cidrs"]), tuple(row["tags"]),
                pool["protocol"], pool["lb_algorithm"], str(pool["session_persistence"]),
                frozenset((each["address"], each.get("monitor_port")) for each in pool["_members"]),
                monitor and (monitor["type"], monitor["delay"], monitor["max_retries"]),
            )
        )  # fmt: skip
    return found


async def made_of(wanted: tuple[Listener, ...]) -> FakeOpenStack:
    fake = FakeOpenStack()
    body = {"name": "mine", "listeners": [each.whole() for each in wanted]}
    await fake.call("POST", BALANCER, "/lbaas/loadbalancers", body={"loadbalancer": body})
    return fake


async def converged(fake: FakeOpenStack, wanted: tuple[Listener, ...], serial: bool, name: str = "mine") -> int:
    (balancer,) = fake.balancers
    for count in range(100):
        todo = diff.steps(balancer, name, wanted, seen(fake), owner=name == "mine", serial=serial)
        if not todo:
            return count
        await fake.call(todo[0].method, BALANCER, f"/lbaas{todo[0].path}", body=todo[0].body)
    raise AssertionError(f"it does not end: {todo[0]}")


@settings(max_examples=150)
@given(before=all_desired, after=all_desired, serial=st.booleans())
def test_from_any_state_to_any_desired_state(before, after, serial):
    async def run() -> None:
        fake, fresh = await made_of(before), await made_of(after)
        await converged(fake, after, serial)
        assert state(fake) == state(fresh)
        assert len(fake.pools) == len(after) and len(fake.monitors) == len(fresh.monitors)

    asyncio.run(run())


@settings(max_examples=50)
@given(wanted=all_desired)
def test_what_is_as_it_should_be_needs_no_step(wanted):
    async def run() -> None:
        assert await converged(await made_of(wanted), wanted, serial=False) == 0

    asyncio.run(run())


@settings(max_examples=50)
@given(wanted=all_desired)
def test_another_services_listeners_are_never_touched(wanted):
    async def run() -> None:
        fake = await made_of(wanted)
        before = state(fake)
        assert await converged(fake, (), serial=False, name="other") == 0
        assert state(fake) == before

    asyncio.run(run())


def test_headers_of_others_stay():
    row = {
        "id": "l", "protocol": "HTTP", "protocol_port": 80, "default_pool_id": None, "tags": ["mine"],
        "insert_headers": {"X-Other": "1"},
    }  # fmt: skip
    pool = Pool("p", "HTTP", {}, (), None)
    want = Listener("l", "HTTP", 80, {"insert_headers": {listener_rules.XFF: "true"}}, pool)
    (change, _) = diff.steps("lb", "mine", (want,), diff.Observed([row], [], {}, {}), owner=True)
    assert change.body == {"listener": {"insert_headers": {"X-Other": "1", listener_rules.XFF: "true"}}}


# --- names and tags ---------------------------------------------------------------------------------------------------


def spec(**more: Any) -> LoadBalancerSpec:
    base = {"cluster": "prod", "uid": "u-1", "namespace": "shop", "name": "web", "ports": (Port("", "TCP", 80, 30080),)}
    return LoadBalancerSpec(**(base | more))


def test_names_are_cut_as_upstream_cuts_them():
    name = load_balancer_owners.load_balancer_name("c" * 300, "shop", "web")
    assert name == "kube_service_" + "c" * 242 and len(name) == 255
    assert listener_rules.part_name("listener", 2, name) == ("listener_2_" + name)[:255]
    desired = rules.desired_load_balancer(spec(cluster="c" * 300), LoadBalancerSection(), {})
    assert desired.floating is not None and len(desired.floating.description) == 255
    assert desired.floating.description.endswith("(u-1)")


@given(cluster=st.text(max_size=120), uid=st.uuids().map(str))
def test_a_mark_is_read_back_and_fits(cluster, uid):
    mark = Mark.of(spec(cluster=cluster, uid=uid), "a" * 12 + "-" + "b" * 12, "fkph")
    assert Mark.parse(str(mark)) == mark and mark.is_of(cluster, uid) and len(str(mark)) <= 255
    assert not mark.is_of(cluster + "x", uid)
    assert not str(mark).startswith(load_balancer_owners.SERVICE_PREFIX) and "," not in str(
        mark
    )  # upstream counts tags with the prefix, and Octavia splits at commas


def test_tags_of_one_service_are_replaced_and_those_of_others_stay():
    ours, other = spec(), spec(uid="u-2", name="other")
    row = {"tags": ["team:a", "kube_service_prod_shop_other", str(Mark.of(other, "x"))]}
    name = load_balancer_owners.load_balancer_name("prod", "shop", "web")
    tags = load_balancer_owners.tags_with(
        {"tags": load_balancer_owners.tags_with(row, name, Mark.of(ours, "1"))}, name, Mark.of(ours, "2")
    )
    assert tags == [*row["tags"], name, str(Mark.of(ours, "2"))]
    assert load_balancer_owners.tags_without({"tags": tags}, Mark.of(ours, "2"), "") == row["tags"]


def test_the_fingerprint_is_of_what_is_written():
    section = LoadBalancerSection()

    def of(**more: Any) -> str:
        return rules.fingerprint(spec(**more), section, {})

    assert of() == of(ingress=(Ingress(ip="1.2.3.4"),)) == of(annotations={"other/thing": "1"})
    different = [
        of(),
        of(annotations={f"{PREFIX}connection-limit": "3"}),
        of(annotations={f"{PREFIX}keep-floatingip": "true"}),
        of(annotations={f"{PREFIX}connection-limit": "x"}),
        of(annotations={INTERNAL: "true"}),
        of(source_ranges=("10.0.0.0/8",)),
        of(ports=(Port("", "TCP", 80, 30081),)),
        rules.fingerprint(spec(), LoadBalancerSection(create_monitor=True), {}),
    ]
    assert len(set(different)) == len(different)


def test_the_members_fingerprint_covers_what_drains_only_if_something_drains():
    chosen = [("10.0.0.1", "s"), ("10.0.0.2", "s")]
    assert rules.members_fingerprint(chosen) == desired_digest(chosen, rules.DIGITS)
    assert rules.members_fingerprint(chosen, ["10.0.0.2"]) == desired_digest([chosen, ["10.0.0.2"]], rules.DIGITS)


@pytest.mark.parametrize(("ports", "limit", "policy", "most"), [
    (1, 10, "Cluster", 10), (3, 10, "Cluster", 3), (4, 3, "Cluster", 1), (0, 10, "Cluster", 10),
    (1, 0, "Cluster", 0), (1, 10, "Local", 0),
])  # fmt: skip
def test_the_pools_share_the_quota_of_members(ports: int, limit: int, policy: str, most: int):
    ports_ = (Port("a", "TCP", 79, 0), *(Port("", "TCP", 80 + each, 30080 + each) for each in range(ports)))
    wanted = spec(ports=ports_, external_traffic_policy=policy)
    assert rules.desired_load_balancer(wanted, LoadBalancerSection(max_members=limit), {}).most_nodes == most


def test_a_change_of_members_alone_keeps_a_valid_address_and_ignores_an_invalid_one():
    def address(text: str) -> str:
        wanted = spec(load_balancer_ip=text, annotations={INTERNAL: "true"})
        return rules.desired_load_balancer(wanted, LoadBalancerSection(), {}, nodes_only=True).vip_address

    assert [address(text) for text in ("10.0.0.9", "fd00::9", "")] == ["10.0.0.9", "", ""]


@pytest.mark.parametrize(("keep", "internal", "is_refused"), [
    (Kept.ADDRESS, "true", True), (Kept.ADDRESS, "false", False), (Kept.LOAD_BALANCER, "true", False),
    (None, "true", False),
])  # fmt: skip
def test_only_a_floating_ip_can_be_kept(keep: Kept | None, internal: str, is_refused: bool):
    wanted = spec(keep=keep, annotations={INTERNAL: internal})
    try:
        rules.desired_load_balancer(wanted, LoadBalancerSection(), {})
    except Invalid as error:
        assert is_refused and "only floating IPs can be kept" in str(error)
    else:
        assert not is_refused


@pytest.mark.parametrize(("vip", "others", "second"), [
    ("10.0.0.1", ["fd00::1"], "IPv6"), ("fd00::1", ["10.0.0.1"], "IPv4"), ("10.0.0.1", ["10.0.0.2"], ""),
    ("fd00::1", ["fd00::2", "10.0.0.1"], "IPv4"), ("10.0.0.1", [None], ""), (None, ["fd00::1"], "IPv6"),
])  # fmt: skip
def test_the_second_family_is_that_of_an_additional_vip(vip: str | None, others: list[str | None], second: str):
    row = {"vip_address": vip, "additional_vips": [{"ip_address": each} for each in others]}
    assert rules.second_family(row) == second


def test_every_annotation_of_upstream_is_known_and_a_misspelt_one_is_noticed():
    assert len(TABLE) == 31 == len({each.key for each in TABLE})
    assert unknown({f"{PREFIX}conection-limit": "1", f"{PREFIX}class": "", "a/b": ""}) == [f"{PREFIX}conection-limit"]


@pytest.mark.parametrize(
    ("version", "provider", "lacking"),
    [
        ((2, 27), "amphora", set()),
        ((2, 5), "amphora", {"acl", "flavors", "zones", "udp_http_monitor", "additional_vips"}),
        ((2, 13), "amphora", {"zones", "udp_http_monitor", "additional_vips"}),
        ((2, 27), "ovn", {*Features.__dataclass_fields__}),
    ],
)
def test_what_an_octavia_can_do(version, provider, lacking):
    found = Features.of(version, provider)
    assert {name for name in Features.__dataclass_fields__ if not getattr(found, name)} == lacking


def test_a_node_is_reached_at_an_address_of_the_family():
    both = (
        Address(AddressType.EXTERNAL_IP, "192.0.2.1"),
        Address(AddressType.INTERNAL_IP, "fd00::1"),
        Address(AddressType.INTERNAL_IP, "10.0.0.1"),
    )
    node = Backend("n", "openstack:///x", both)
    assert (node_address(node, "IPv4"), node_address(node, "IPv6")) == ("10.0.0.1", "fd00::1")
    external = Backend("n", "openstack:///x", both[:1])
    assert (node_address(external, "IPv4"), node_address(external, "IPv6")) == ("192.0.2.1", "")


# --- subnets of floating IPs ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("public-*", {"public-a", "public-b"}),
        ("public-a", {"public-a"}),
        ("!public-a", {"public-b", "dmz"}),
        ("~public-[ab]", {"public-a", "public-b"}),
        ("~public", set()),
        ("!~p.*", {"dmz"}),
    ],
)
def test_subnets_by_name(pattern, names):
    every = ("public-a", "public-b", "dmz")
    assert {name for name in every if floating_ips.name_matches(pattern, name)} == names
    with pytest.raises(Invalid, match="RE2 cannot compile"):
        floating_ips.name_matches("~(", "x")


@pytest.mark.parametrize(
    ("tags", "expected"),
    [("a", "ab a"), ("a,b", "ab a b"), ("&a,b", "ab"), ("!a", "b -"), ("!a,b", "-"), ("!&a,b", "a b -")],
)
def test_subnets_by_tags(tags, expected):
    every = {"ab": ["a", "b"], "a": ["a"], "b": ["b"], "-": []}
    assert {name for name, has in every.items() if floating_ips.tags_match(tags, has)} == set(expected.split())


def test_the_external_network_has_ipv4():
    networks = [
        {"id": "n2", "router:external": True, "subnets": ["v4"]},
        {"id": "n1", "router:external": True, "subnets": ["v6"]},
        {"id": "n0", "router:external": False, "subnets": ["v4"]},
        {"id": "n3", "router:external": True, "subnets": []},
    ]
    subnets = [{"id": "v4", "ip_version": 4}, {"id": "v6", "ip_version": 6}]

    def found(networks, subnets):
        return [row["id"] for row in floating_ips.external_networks(networks, subnets)]

    assert found(networks, subnets) == ["n2"]
    assert found(networks[1:], subnets) == []
    assert found(networks[1:], []) == ["n1"]  # this credential cannot see the subnet


def test_a_subnet_that_the_project_does_not_see_is_none():
    subnets = [{"id": "v6", "cidr": "2001:db8::/64"}, {"id": "v4", "cidr": "192.0.2.0/24"}, {"id": "odd"}]
    assert floating_ips.subnet_of("192.0.2.7", subnets) == subnets[1]
    assert floating_ips.subnet_of("198.51.100.7", subnets) is None


def test_what_is_told_of_networks_that_nobody_chose():
    one, two = {"id": "n1", "name": "ext"}, {"id": "n2", "name": ""}
    assert floating_ips.network_warning([one]) == ""
    assert "no external network" in floating_ips.network_warning([])
    assert "2 external networks" in floating_ips.network_warning([one, two])
    assert "ext (n1), (n2); choose it with floating-network-id" in floating_ips.network_warning([one, two])


# --- security groups --------------------------------------------------------------------------------------------------


def test_rules_are_made_and_deleted_and_so_is_egress_for_everybody():
    wanted = security_groups.desired_rules((Port("", "TCP", 80, 30080),), 32000, "10.0.0.0/24", ["0.0.0.0/0"])
    assert [(rule["port_range_min"], rule["remote_ip_prefix"]) for rule in wanted] == [
        (32000, "10.0.0.0/24"),
        (30080, "0.0.0.0/0"),
    ]
    present = [
        {"id": "egress", "direction": "egress", "ethertype": "IPv4"},
        {"id": "kept", **wanted[1], "remote_ip_prefix": None},  # neutron's form of "everybody"
        {"id": "old", **wanted[1], "port_range_min": 1, "port_range_max": 1},
    ]
    make, delete = security_groups.rule_changes(wanted, present)
    assert make == wanted[:1] and delete == ["egress", "old"]


def test_a_group_is_put_on_ports_of_members_alone():
    def port(name: str, address: str, *groups: str, **more: Any) -> dict[str, Any]:
        fixed = [{"ip_address": address, "subnet_id": "s"}]
        return {"id": name, "device_id": "vm", "fixed_ips": fixed, "security_groups": list(groups), **more}

    ports = [
        port("new", "10.0.0.1"),
        port("has", "10.0.0.2", "g"),
        port("gone", "10.0.0.3", "g", "x"),
        port("open", "10.0.0.4", port_security_enabled=False),
        port("other", "10.0.0.9"),
    ]
    members = {("vm", "10.0.0.1"), ("vm", "10.0.0.2"), ("vm", "10.0.0.4")}
    on, off = security_groups.port_changes(ports, "g", members, "s", {})
    assert [each["id"] for each in on] == ["new"] and [each["id"] for each in off] == ["gone"]
    assert security_groups.port_changes(ports, "g", {("vm", "10.0.0.1")}, "another", {})[0] == []
