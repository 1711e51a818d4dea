# SPDX-License-Identifier: Apache-2.0
"""Attacks by users who create Services, and by kubelets, on others' load balancers, addresses and ports."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import dataclasses
import ipaddress
from typing import Any

import pytest

from ccm.cloud import (
    Address,
    AddressType,
    Backend,
    Conflict,
    Ingress,
    Invalid,
    LoadBalancerSpec,
    NotFound,
    Port,
    RetryAfter,
)
from ccm.providers.openstack.annotations import INTERNAL, PREFIX
from ccm.providers.openstack.load_balancers import floating_ips, security_groups
from ccm.providers.openstack.load_balancers.load_balancers import OctaviaLoadBalancers
from ccm.providers.openstack.settings_sections import LoadBalancerClass, LoadBalancerSection

from ...loop_watch import quick
from .octavia_in_memory import FakeOpenStack, the

OWN = "tenant-own-load-balancers-only"
WEB, TLS = Port("http", "TCP", 80, 30080), Port("https", "TCP", 443, 30443)
ADDRESS = "203.0.113.200"
EVERYWHERE = (ipaddress.ip_network("0.0.0.0/0"), ipaddress.ip_network("::/0"))


def cloud(**options: Any) -> FakeOpenStack:
    section = {"subnet_id": the("sub-nodes"), "floating_network_id": the("net-public")} | options
    return FakeOpenStack(LoadBalancerSection(**section), fast=LoadBalancerClass(subnet_id=the("sub-fast")))


def allowing(fake: FakeOpenStack, **options: Any) -> FakeOpenStack:
    """Change options of cloud.conf. Returns the same cloud."""
    fake.settings.load_balancer = dataclasses.replace(fake.settings.load_balancer, **options)
    return fake


def service(uid: str, name: str, *ports: Port, **more: Any) -> LoadBalancerSpec:
    """Return a Service's spec. `settings`: annotations; a key without a slash gets our prefix."""
    annotations = {key if "/" in key else f"{PREFIX}{key}": value for key, value in more.pop("settings", {}).items()}
    more = {"cluster": "prod", "namespace": "shop"} | more
    return LoadBalancerSpec(uid=uid, name=name, ports=ports or (WEB,), annotations=annotations, **more)


def nodes(*numbers: int) -> tuple[Backend, ...]:
    return tuple(node(number, f"10.0.0.{number}") for number in numbers)


def node(number: int, address: str) -> Backend:
    reported = (Address(AddressType.INTERNAL_IP, address),)
    return Backend(f"node-{number}", f"openstack:///{the(f'server-{number}')}", reported, {})


async def patiently(call: Any, *args: Any) -> Any:
    for _ in range(60):
        try:
            return await call(*args)
        except RetryAfter:
            continue
    raise AssertionError("it does not end")


async def ensured(fake: FakeOpenStack, what: LoadBalancerSpec, backends: tuple[Backend, ...] = nodes(1, 2)) -> Any:
    """Ensure the load balancer by a controller that has just started. Returns the result."""
    return await patiently(OctaviaLoadBalancers(fake).ensure, what, backends)  # type: ignore[arg-type]


async def deleted(fake: FakeOpenStack, what: LoadBalancerSpec) -> None:
    with contextlib.suppress(NotFound):
        await patiently(OctaviaLoadBalancers(fake).delete, what)  # type: ignore[arg-type]


def only(table: dict[str, Any]) -> Any:
    (row,) = table.values()
    return row


def everything(fake: FakeOpenStack) -> Any:
    return copy.deepcopy((fake.balancers, fake.listeners, fake.pools, fake.monitors, fake.floating, fake.groups))


async def victim(fake: FakeOpenStack, **more: Any) -> dict[str, Any]:
    """Create a load balancer of the Service shop/web. Returns its row."""
    await ensured(fake, service("u-1", "web", **more))
    return only(fake.balancers)  # type: ignore[no-any-return]


# --- who may connect --------------------------------------------------------------------------------------------------


@pytest.mark.threat(OWN)
async def test_ranges_that_are_narrowed_are_narrowed_in_the_cloud() -> None:
    fake = cloud()
    await ensured(fake, service("u-1", "web", source_ranges=("10.0.0.0/8", "0.0.0.0/0")))
    row = only(fake.listeners)
    row["allowed_cidrs"] = ["10.0.0.0/8", "0.0.0.0/0"]  # as an older release wrote ranges that include everybody
    await ensured(fake, service("u-1", "web", source_ranges=("10.0.0.0/8",)))
    assert row["allowed_cidrs"] == ["10.0.0.0/8"]


@pytest.mark.threat(OWN)
@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize(
    ("before", "between"), [(("10.0.0.0/8",), ()), ((), ("10.0.0.0/8",)), (("10.0.0.0/8",), ("192.0.2.0/24",))]
)
async def test_ranges_that_change_back_before_they_are_written_are_written(
    before: tuple[str, ...], between: tuple[str, ...], restarted: bool
) -> None:
    """Ranges change and change back while Octavia is still busy. Meanwhile, the tag must not say that Octavia has the
    first ranges.
    """
    fake = cloud()
    await ensured(fake, service("u-1", "web", source_ranges=before))
    ranges = only(fake.listeners)["allowed_cidrs"]
    balancers = OctaviaLoadBalancers(fake)  # type: ignore[arg-type]
    for _ in range(5):
        with contextlib.suppress(RetryAfter):
            await balancers.ensure(service("u-1", "web", source_ranges=between), nodes(1, 2))
        if only(fake.listeners)["allowed_cidrs"] != ranges:
            break
    if restarted:
        balancers = OctaviaLoadBalancers(fake)  # type: ignore[arg-type]
        (listed,) = await balancers.list("prod")
        assert listed.fingerprint != balancers.fingerprint(service("u-1", "web", source_ranges=before), nodes(1, 2))
    await patiently(balancers.ensure, service("u-1", "web", source_ranges=before), nodes(1, 2))
    assert only(fake.listeners)["allowed_cidrs"] == ranges


async def test_members_that_go_back_before_they_are_written_are_written() -> None:
    fake = cloud()
    await ensured(fake, service("u-1", "web"), nodes(1, 2))
    balancers = OctaviaLoadBalancers(fake)  # type: ignore[arg-type]
    with pytest.raises(RetryAfter):
        await balancers.update_backends(service("u-1", "web"), nodes(1))
    await patiently(balancers.update_backends, service("u-1", "web"), nodes(1, 2))
    assert len(fake.members(next(iter(fake.pools)))) == 2


# --- patterns ---------------------------------------------------------------------------------------------------------

SLOW = ["~(.|.|.|.)*X", "~(((.*)*)*)*X", "!~(a|a)*b", "*a" * 120, "~" + "a?" * 80 + "a" * 80, "[!" + "a-z" * 80 + "]*"]


@pytest.mark.threat("tenant-cannot-stop-the-controller")
@pytest.mark.parametrize("pattern", SLOW)
def test_no_pattern_takes_the_event_loop(pattern: str) -> None:
    subnets = [{"id": str(number), "name": "a" * (5 * number)} for number in range(50)]
    want = floating_ips.DesiredFloatingIP("n", "", pattern, "", "", "")

    quick(lambda: floating_ips.candidates(want, subnets), Invalid)


# --- names of other resources -----------------------------------------------------------------------------------------

OTHERS = [
    *(
        "floating-network-id",
        "floating-subnet-id",
        "network-id",
        "subnet-id",
        "member-subnet-id",
        "port-id",
        "flavor-id",
    ),
    *("floating-subnet", "floating-subnet-tags", "availability-zone"),
]


@pytest.mark.threat(OWN)
@pytest.mark.parametrize("name", [*OTHERS, "default-tls-container-ref"])
async def test_a_service_does_not_choose_other_resources_of_the_project(name: str) -> None:
    fake = cloud()
    value = the("others") if name.endswith("-id") else "https://keys/v1/secrets/1" if "tls" in name else "a"
    with pytest.raises(Invalid, match=rf"annotation {PREFIX}{name}: allowed-annotations in \[LoadBalancer\]"):
        await ensured(fake, service("u-1", "web", settings={name: value}))
    assert not fake.balancers and not fake.floating
    await deleted(fake, service("u-1", "web", settings={name: value}))


@pytest.mark.parametrize("name", OTHERS)
async def test_what_is_not_allowed_any_more_changes_nothing_of_what_is_there(name: str) -> None:
    fake = cloud(allowed_annotations=("*",))
    fake.ports["p"] = {"id": the("others"), "network_id": "n", "fixed_ips": []}
    values = {"floating-subnet": "*-b", "floating-subnet-tags": "b", "availability-zone": "z"}
    said = {name: values.get(name, the("sub-b") if name == "floating-subnet-id" else the("others"))}
    await ensured(fake, service("u-1", "web", settings=said))
    before = everything(allowing(fake, allowed_annotations=("default",)))
    found = await ensured(fake, service("u-1", "web", settings=said))
    assert any(f"{PREFIX}{name}: allowed-annotations" in each for each in found.warnings)
    after = everything(fake)
    for row in (only(before[0]), only(after[0])):
        row.pop("tags")
    assert after == before
    # Later changes work: another port is served, gets its members, and the Service is deleted.
    await ensured(fake, service("u-1", "web", WEB, TLS, settings=said), nodes(1, 2, 3))
    assert len(fake.listeners) == 2 and len(fake.members(next(iter(fake.pools)))) == 3
    await deleted(fake, service("u-1", "web", settings=said))
    assert not fake.balancers and not fake.floating


async def test_a_certificate_that_is_not_allowed_any_more_stays_and_no_other_one_comes() -> None:
    fake = cloud(allowed_annotations=("*",))
    said = {"default-tls-container-ref": "https://keys/v1/secrets/1"}
    await ensured(fake, service("u-1", "web", settings=said))
    allowing(fake, allowed_annotations=("default",))
    found = await ensured(fake, service("u-1", "web", WEB, TLS, settings=said))
    assert {row["default_tls_container_ref"] for row in fake.listeners.values()} == set(said.values())
    assert "default-tls-container-ref" in found.warnings[0]
    before = everything(fake)
    other = {"default-tls-container-ref": "https://keys/v1/secrets/2"}
    with pytest.raises(Invalid, match="the load balancer stays unchanged"):
        await ensured(fake, service("u-1", "web", WEB, TLS, settings=other))
    assert everything(fake) == before


async def test_an_internal_service_does_not_become_public_because_its_annotation_is_not_allowed_any_more() -> None:
    fake = cloud()
    await ensured(fake, service("u-1", "web", settings={INTERNAL: "true"}))
    allowing(fake, allowed_annotations=("hostname",))
    found = await ensured(fake, service("u-1", "web", settings={INTERNAL: "true"}))
    assert found.ready and not fake.floating and INTERNAL in found.warnings[0]
    with pytest.raises(Invalid, match="stays unchanged"):
        await ensured(fake, service("u-1", "web", TLS, settings={INTERNAL: "true"}))
    assert not fake.floating and [row["protocol_port"] for row in fake.listeners.values()] == [80]


@pytest.mark.threat(OWN)
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("member-subnet-id", "../../security-groups/x"),
        ("port-id", "x?admin=true"),
        ("load-balancer-id", "../listeners"),
        ("hostname", "api.example.com/x"),
        ("hostname", "10.0.0.1"),
        ("default-tls-container-ref", "file:///etc/passwd"),
        ("load-balancer-address", "a" * 5000),
        ("node-selector", ",".join(f"l{number}=x" for number in range(100))),
        ("floating-subnet-tags", ",".join("ab" for _ in range(100))),
        ("floating-subnet", "a" * 256),
        ("floating-subnet", r"~(a)\1"),
        ("connection-limit", "9" * 5000),
        ("availability-zone", "a\nb"),
    ],
)
async def test_each_value_has_a_form_and_a_length(name: str, value: str) -> None:
    fake = cloud(allowed_annotations=("*",), sharing="project")
    with pytest.raises(Invalid, match=f"annotation {PREFIX}{name}: ") as raised:
        await ensured(fake, service("u-1", "web", settings={name: value}))
    assert len(str(raised.value)) < 500 and not fake.balancers


# --- others' load balancers -------------------------------------------------------------------------------------------


@pytest.mark.threat(OWN)
@pytest.mark.parametrize(
    ("sharing", "where", "allowed"),
    [
        ("never", {}, False),
        ("namespace", {}, True),
        ("namespace", {"namespace": "other"}, False),
        ("namespace", {"cluster": "staging"}, False),
        ("cluster", {"namespace": "other"}, True),
        ("cluster", {"cluster": "staging"}, False),
        ("project", {"cluster": "staging"}, True),
    ],
)
async def test_sharing_is_as_wide_as_cloud_conf_says(sharing: str, where: dict[str, str], allowed: bool) -> None:
    fake = cloud(sharing=sharing)
    row = await victim(fake)
    guest = service("u-2", "guest", TLS, settings={"load-balancer-id": row["id"]}, **where)
    before = everything(fake)
    if not allowed:
        with pytest.raises(Conflict, match=rf"sharing in \[LoadBalancer\] of cloud.conf is {sharing}"):
            await ensured(fake, guest)
        await deleted(fake, guest)
        assert everything(fake) == before
        return
    await ensured(fake, guest)
    assert {each["protocol_port"] for each in fake.listeners.values()} == {80, 443}
    # The Service keeps what has its mark, whatever the option becomes.
    await ensured(
        allowing(fake, sharing="never"), dataclasses.replace(guest, ports=(TLS, Port("a", "TCP", 8443, 30843)))
    )
    assert {each["protocol_port"] for each in fake.listeners.values()} == {80, 443, 8443}
    await deleted(fake, guest)
    assert {each["protocol_port"] for each in fake.listeners.values()} == {80} and fake.floating


@pytest.mark.threat(OWN)
@pytest.mark.parametrize("tags", [[], ["team:infrastructure"], ["kube_service_prod_infra_web"]])
async def test_a_load_balancer_without_a_mark_is_not_taken(tags: list[str]) -> None:
    """For example, the infrastructure's, or one that cloud-provider-openstack created for another namespace."""
    fake = cloud(sharing="cluster")
    row = await victim(fake)
    row.update(name="infra", tags=tags)
    before = everything(fake)
    with pytest.raises(Conflict, match="sharing"):
        await ensured(fake, service("u-2", "guest", TLS, settings={"load-balancer-id": row["id"]}))
    await deleted(fake, service("u-2", "guest", TLS, settings={"load-balancer-id": row["id"]}))
    assert everything(fake) == before


@pytest.mark.threat("clusters-live-side-by-side")
@pytest.mark.parametrize("key", ["load-balancer-id", "load-balancer-address"])
async def test_a_namesakes_load_balancer_without_a_mark_is_not_taken_by_an_annotation(key: str) -> None:
    """Another cluster of the same name runs cloud-provider-openstack, so an annotation proves nothing."""
    fake = cloud()
    row = await victim(fake)
    row["tags"] = ["kube_service_prod_shop_web"]
    value = row["id"] if key == "load-balancer-id" else only(fake.floating)["floating_ip_address"]
    thief = service("u-2", "web", TLS, settings={key: value})
    before = everything(fake)
    with pytest.raises(Conflict, match="nothing shows whether it was created for this Service"):
        await ensured(fake, thief)
    await deleted(fake, thief)
    assert everything(fake) == before
    # Only controllers write the status.
    mine = dataclasses.replace(thief, ingress=(Ingress(ip=only(fake.floating)["floating_ip_address"]),))
    await ensured(fake, mine)
    assert len(fake.balancers) == 1 and [each["protocol_port"] for each in fake.listeners.values()] == [443]


@pytest.mark.threat("clusters-live-side-by-side")
async def test_names_of_clusters_with_underscores_are_not_mistaken_for_namespaces() -> None:
    """kube_service_a_b_web means cluster a and namespace b, or cluster a_b and a namespace that does not exist."""
    fake = cloud()
    row = await victim(fake, cluster="prod_shop", namespace="x")
    for cluster, namespace in (("prod", "shop"), ("prod", "shop_x"), ("prod_shop_x", "web")):
        where = {"cluster": cluster, "namespace": namespace}
        thief = service("u-2", "guest", TLS, settings={"load-balancer-id": row["id"]}, **where)
        with pytest.raises(Conflict, match="sharing"):
            await ensured(fake, thief)


def test_a_mark_says_its_namespace_and_one_of_before_says_none() -> None:
    from ccm.providers.openstack.load_balancers.load_balancer_owners import Mark
    from ccm.providers.openstack.load_balancers.sharing_rules import may_share

    mark = Mark.of(service("u-1", "web"), "f")
    assert Mark.parse(str(mark)) == mark and mark.namespace == "shop"
    before = Mark.parse("ccm:v1:prod:u-1:12345678:f:k")
    assert before is not None and str(before) == "ccm:v1:prod:u-1:12345678:f:k" and before.is_of("prod", "u-1")
    assert not may_share({"id": "x", "tags": [str(before)]}, service("u-2", "a"), "namespace")
    assert may_share({"id": "x", "tags": [str(before)]}, service("u-2", "a"), "cluster")


@pytest.mark.threat(OWN)
async def test_two_services_ask_at_once_and_a_restart_later_each_has_its_own() -> None:
    fake = cloud()
    row = await victim(fake)
    said = {"load-balancer-id": row["id"]}
    guests = [service(f"u-{n}", "guest", TLS, settings=said, namespace=f"ns-{n}") for n in range(2, 6)]
    found = await asyncio.gather(*(ensured(fake, each) for each in guests), return_exceptions=True)
    assert all(isinstance(each, Conflict) for each in found)
    own = [dataclasses.replace(each, annotations={}) for each in guests]
    await asyncio.gather(*(ensured(fake, each) for each in own))
    await asyncio.gather(*(ensured(fake, each) for each in own))
    assert len(fake.balancers) == 5 and len(fake.floating) == 5


# --- others' addresses ------------------------------------------------------------------------------------------------


def reserved(fake: FakeOpenStack, **more: Any) -> None:
    fake.floating["r"] = {
        "id": "r", "floating_ip_address": ADDRESS, "port_id": None, "description": "of the VPN", **more
    }  # fmt: skip


@pytest.mark.threat(OWN)
async def test_a_reserved_floating_ip_is_not_taken() -> None:
    fake = cloud()
    reserved(fake)
    with pytest.raises(Invalid, match=rf"allowed-load-balancer-ips .* does not allow {ADDRESS}"):
        await ensured(fake, service("u-1", "web", load_balancer_ip=ADDRESS))
    assert fake.floating["r"]["port_id"] is None and not fake.balancers


@pytest.mark.threat(OWN)
async def test_an_internal_address_is_not_chosen() -> None:
    fake = cloud()
    with pytest.raises(Invalid, match="allowed-load-balancer-ips"):
        await ensured(fake, service("u-1", "web", load_balancer_ip="10.0.0.77", settings={INTERNAL: "true"}))
    assert not fake.balancers


async def test_a_floating_ip_that_a_service_of_this_name_kept_is_its_own() -> None:
    fake = cloud()
    found = await ensured(fake, service("u-1", "web", settings={"keep-floatingip": "true"}))
    await deleted(fake, service("u-1", "web", settings={"keep-floatingip": "true"}))
    address = found.ingress[0].ip
    assert only(fake.floating)["port_id"] is None
    for name, where in (("other", {}), ("web", {"namespace": "evil"}), ("web", {"cluster": "prod (x"})):
        with pytest.raises(Invalid, match="allowed-load-balancer-ips"):
            await ensured(fake, service("u-9", name, load_balancer_ip=address, **where))
    again = await ensured(fake, service("u-2", "web", load_balancer_ip=address))
    assert again.ingress[0].ip == address


@pytest.mark.threat(OWN)
async def test_ranges_of_addresses_do_not_give_away_what_was_made_for_another_service() -> None:
    ranges = (ipaddress.ip_network("203.0.113.0/24"),)
    fake = cloud(allowed_load_balancer_ips=ranges)
    reserved(fake)
    found = await ensured(fake, service("u-1", "web", load_balancer_ip=ADDRESS))
    assert found.ingress[0].ip == ADDRESS
    reserved(fake, description="Floating IP for Kubernetes external service shop/db from cluster prod (u-7)")
    with pytest.raises(Invalid, match="created for another Service"):
        await ensured(fake, service("u-2", "other", load_balancer_ip=ADDRESS))


@pytest.mark.threat(OWN)
async def test_of_two_services_that_find_an_address_free_one_gets_it() -> None:
    fake = cloud(allowed_load_balancer_ips=EVERYWHERE)
    reserved(fake, revision_number=3)
    both = [service(f"u-{n}", f"web-{n}", load_balancer_ip=ADDRESS) for n in (1, 2)]
    found = await asyncio.gather(*(ensured(fake, each) for each in both), return_exceptions=True)
    assert sorted(type(each).__name__ for each in found) == ["Conflict", "LoadBalancer"]


@pytest.mark.threat(OWN)
@pytest.mark.parametrize(
    ("port", "why"),
    [
        ({"device_id": "lb-1", "device_owner": "Octavia"}, "Octavia uses it"),
        ({"device_id": "vm", "device_owner": "compute:a"}, "compute:a uses it"),
        ({"project_id": "another"}, "belongs to another project"),
        ({"fixed_ips": [{"ip_address": "10.0.0.77"}]}, "shares its address"),
        ({"fip": True}, f"it has the floating IP {ADDRESS}"),
        ({"vip": True}, "it is the VIP of a load balancer"),
    ],
)
async def test_a_port_that_others_use_is_not_taken_even_where_ports_may_be_named(
    port: dict[str, Any], why: str
) -> None:
    fake = cloud(allowed_annotations=("*",))
    fake.project_id = "ours"
    if port.pop("vip", False):
        (await victim(fake))["vip_port_id"] = the("p")
    if port.pop("fip", False):
        reserved(fake, port_id=the("p"))
    fake.ports["p"] = {"id": the("p"), "network_id": "n", "project_id": "ours", "fixed_ips": [], **port}
    pairs = [{"ip_address": "10.0.0.77/32"}]  # keepalived's
    fake.ports["k"] = {"id": "k", "network_id": "n", "fixed_ips": [], "allowed_address_pairs": pairs}
    before = everything(fake)
    with pytest.raises(Invalid, match=why):
        await ensured(fake, service("u-9", "thief", settings={"port-id": the("p")}))
    assert everything(fake) == before


@pytest.mark.threat(OWN)
async def test_a_floating_ip_of_somebody_else_is_neither_deleted_nor_detached() -> None:
    fake = cloud()
    await ensured(fake, service("u-1", "web"))
    row = only(fake.floating)
    row["description"] = "Floating IP for Kubernetes external service infra/api from cluster prod (u-7)"
    with pytest.raises(Conflict, match="was not created for this Service: detach it"):
        await ensured(fake, service("u-1", "web", settings={INTERNAL: "true"}))
    assert row["port_id"]
    await deleted(fake, service("u-1", "web"))
    assert list(fake.floating.values()) == [row] and not fake.balancers


# --- others' ports ----------------------------------------------------------------------------------------------------

PORTS = "kubelet-no-rules-on-others-ports"


def guarded() -> FakeOpenStack:
    fake = cloud(internal_lb=True, manage_security_groups=True)
    for number in (1, 2, 66):
        fake.server(number)
    return fake


def opened(fake: FakeOpenStack) -> set[str]:
    group = only(fake.groups)["id"]
    return {key for key, port in fake.ports.items() if group in port["security_groups"]}


@pytest.mark.threat(PORTS)
async def test_a_kubelet_that_reports_a_databases_address_opens_nothing_of_it() -> None:
    fake = guarded()  # 10.0.0.66 is the database's address
    await ensured(fake, service("u-1", "web"), (node(1, "10.0.0.1"), node(2, "10.0.0.66")))
    assert opened(fake) == {"port-1"}
    # A port that was opened before is closed.
    fake.ports["port-66"]["security_groups"].append(only(fake.groups)["id"])
    await patiently(
        OctaviaLoadBalancers(fake).update_backends, service("u-1", "web"), (node(1, "10.0.0.1"), node(2, "10.0.0.2"))
    )
    assert opened(fake) == {"port-1", "port-2"}


@pytest.mark.threat(PORTS)
async def test_a_node_that_is_no_server_of_this_cloud_opens_nothing() -> None:
    fake = guarded()
    foreign = Backend("x", "aws:///i-1", (Address(AddressType.INTERNAL_IP, "10.0.0.66"),), {})
    await ensured(fake, service("u-1", "web"), (*nodes(1), foreign))
    assert opened(fake) == {"port-1"}


@pytest.mark.threat(PORTS)
async def test_a_subport_of_the_nodes_own_trunk_is_opened_and_another_trunks_is_not() -> None:
    fake = guarded()
    for key, trunk, address in (("sub-own", "trunk-1", "10.0.0.101"), ("sub-other", "trunk-9", "10.0.0.102")):
        fake.ports[key] = {
            "id": key, "device_id": trunk, "device_owner": "trunk:subport", "security_groups": [],
            "fixed_ips": [{"ip_address": address, "subnet_id": the("sub-nodes")}], "revision_number": 1,
        }  # fmt: skip
    fake.ports["port-1"]["trunk_details"] = {"trunk_id": "trunk-1", "sub_ports": [{"port_id": "sub-own"}]}
    await ensured(fake, service("u-1", "web"), (node(1, "10.0.0.101"), node(2, "10.0.0.102")))
    assert opened(fake) == {"sub-own"}


def test_the_same_address_in_another_network_is_not_the_nodes_port() -> None:
    def port(name: str, device: str, subnet: str) -> dict[str, Any]:
        fixed = [{"ip_address": "10.0.0.1", "subnet_id": subnet}]
        return {"id": name, "device_id": device, "fixed_ips": fixed, "security_groups": []}

    ports = [port("mine", "vm", "s"), port("elsewhere", "vm", "t"), port("others", "db", "s")]
    on, _ = security_groups.port_changes(ports, "g", {("vm", "10.0.0.1")}, "s", {})
    assert [each["id"] for each in on] == ["mine"]
    on, _ = security_groups.port_changes(ports, "g", {("vm", "10.0.0.1")}, "", {})
    assert [each["id"] for each in on] == ["mine", "elsewhere"]


def test_every_rule_that_is_not_wanted_goes_doubles_and_groups_too() -> None:
    wanted = security_groups.desired_rules((WEB,), 0, "10.0.0.0/24", ["10.0.0.0/24"])
    everybody = {**wanted[0], "remote_ip_prefix": None}
    present = [
        {"id": "kept", **wanted[0]},
        {"id": "open", **everybody},
        {"id": "open-too", **everybody, "remote_ip_prefix": "0.0.0.0/0"},
        {"id": "group", **everybody, "remote_group_id": "g"},
    ]
    assert security_groups.rule_changes(wanted, present) == ([], ["open", "open-too", "group"])


async def test_one_node_with_a_wrong_address_does_not_keep_others_from_new_load_balancers() -> None:
    fake = FakeOpenStack(LoadBalancerSection())
    for number in (1, 2):
        fake.server(number)
    await ensured(fake, service("u-1", "web"), (node(1, "10.9.9.9"), node(2, "10.0.0.2")))
    assert only(fake.balancers)["vip_subnet_id"] == the("sub-nodes")
