# SPDX-License-Identifier: Apache-2.0
"""Instances: identity, address order, labels, number of calls, and which answers are doubted."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import random
import time
import uuid
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from ccm.cloud import Conflict, Instance, InstanceRef, InstanceState, NotFound, Page, Transient
from ccm.gateway.gateway import Gateway
from ccm.providers.openstack import OpenStackCloud, instance_rules
from ccm.providers.openstack.settings_sections import Networking

from .fake_cloud import FakeCloud, running

ID = "8966d986-aa0d-4eb6-998f-b8d154778e3c"


async def listing(provider: OpenStackCloud) -> list[Instance]:
    found: list[Instance] = []
    page = Page([], "")
    token = None
    while page.next is not None:
        page = await provider.instances.list_page(token)
        token = page.next
        found += page.instances
    return found


@pytest.mark.parametrize(
    ("spelt", "server"),
    [
        (f"openstack:///{ID}", ID),
        (f"openstack://north/{ID}", ID),
        (f"/{ID}", ID),
        (f"north/{ID}", ID),
        (f"openstack:///{ID.upper()}", ID),
        (f"openstack://south/{ID}", None),
        (f"openstack://North/{ID}", None),
        (f"openstack://north/x/{ID}", None),
        (f"openstack:///{ID}/", None),
        (f"openstack:///{ID}\n", None),
        (f"openstack://{ID}", None),
        (ID, None),
        ("openstack:///i-1", None),
        (f"aws:///{ID}", None),
        (f"xopenstack:///{ID}", None),
        ("", None),
    ],
)
def test_spellings_of_a_provider_id(spelt: str, server: str | None) -> None:
    assert instance_rules.server_id(spelt, "north") == server


@given(st.uuids(), st.sampled_from(["", "north", "eu-de-1"]), st.booleans())
def test_what_is_written_is_read(id: uuid.UUID, region: str, regional: bool) -> None:
    written = instance_rules.provider_id(str(id), region, regional)
    assert instance_rules.server_id(written, region) == str(id)
    assert written == f"openstack://{region if regional else ''}/{id}"


# Addresses. Each row of `addresses` is (type of address, text).


def server(addresses: dict[str, list[tuple[str, str]]], **more: Any) -> dict[str, Any]:
    told = {
        network: [{"OS-EXT-IPS:type": kind, "addr": text} for kind, text in each] for network, each in addresses.items()
    }
    return {"id": ID, "name": "n", "addresses": told, **more}


def port(id: str, *addresses: str, status: str = "ACTIVE") -> dict[str, Any]:
    return {"id": id, "status": status, "fixed_ips": [{"ip_address": each} for each in addresses]}


def told(
    server: dict[str, Any], ports: list[dict[str, Any]], subports: dict[str, list[str]] | None = None, **networking: Any
) -> list[str]:
    found = instance_rules.addresses(server, ports, subports or {}, Networking(**networking))
    return [f"{each.type} {each.address}" for each in found]


TWO_NETWORKS = {
    "zeta": [("fixed", "10.2.0.9"), ("floating", "192.0.2.9")],
    "alpha": [("fixed", "10.1.0.9")],
}
TWO_PORTS = [port("b", "10.1.0.9"), port("a", "10.2.0.9")]


@pytest.mark.parametrize(
    ("machine", "ports", "networking", "expected"),
    [
        pytest.param(
            server(TWO_NETWORKS),
            TWO_PORTS,
            {},
            ["InternalIP 10.2.0.9", "InternalIP 10.1.0.9", "ExternalIP 192.0.2.9"],
            id="ports by their IDs, then floating addresses",
        ),
        pytest.param(
            server(TWO_NETWORKS),
            [port("b", "10.1.0.9"), port("a", "10.2.0.9", status="DOWN")],
            {},
            ["InternalIP 10.1.0.9", "InternalIP 10.2.0.9", "ExternalIP 192.0.2.9"],
            id="a port that is not active gives none, but nova knows it",
        ),
        pytest.param(
            server(
                TWO_NETWORKS, accessIPv4="198.51.100.1", accessIPv6="2001:db8::1", metadata={"hostname": "n.example"}
            ),
            TWO_PORTS,
            {},
            [
                "InternalIP 10.2.0.9",
                "InternalIP 10.1.0.9",
                "ExternalIP 198.51.100.1",
                "ExternalIP 2001:db8::1",
                "Hostname n.example",
                "ExternalIP 192.0.2.9",
            ],
            id="access addresses and host name in between",
        ),
        pytest.param(
            server(TWO_NETWORKS),
            TWO_PORTS,
            {"public_network_name": ("alpha",)},
            ["InternalIP 10.2.0.9", "ExternalIP 10.1.0.9", "ExternalIP 192.0.2.9"],
            id="a public network's are external, and not internal as well",
        ),
        pytest.param(
            server(TWO_NETWORKS),
            TWO_PORTS,
            {"internal_network_name": ("alpha",)},
            ["InternalIP 10.1.0.9", "ExternalIP 192.0.2.9"],
            id="only the internal network's are internal",
        ),
        pytest.param(
            server(TWO_NETWORKS),
            TWO_PORTS,
            {"internal_network_name": ("alpha",), "public_network_name": ("zeta",)},
            ["InternalIP 10.1.0.9", "ExternalIP 10.2.0.9", "ExternalIP 192.0.2.9"],
            id="public counts before internal",
        ),
        pytest.param(
            server({"n": [("fixed", "10.0.0.1"), ("fixed", "fd00::1")]}, accessIPv6="2001:db8::1"),
            [port("a", "fd00::1", "10.0.0.1")],
            {"ipv6_support_disabled": True},
            ["InternalIP 10.0.0.1"],
            id="no IPv6",
        ),
        pytest.param(
            server({"n": [("floating", "192.0.2.1")]}, metadata={"hostname": "h"}),
            [port("a", "10.0.0.20", "10.0.0.3", "172.16.0.1", "fd00::2", "10.9.0.1")],
            {"address_sort_order": tuple(map(ipaddress.ip_network, ("fd00::/8", "10.0.0.0/24")))},
            [
                "InternalIP fd00::2",
                "InternalIP 10.0.0.3",
                "InternalIP 10.0.0.20",
                "InternalIP 172.16.0.1",
                "InternalIP 10.9.0.1",
                "Hostname h",
                "ExternalIP 192.0.2.1",
            ],
            id="sorted by CIDR and by number, the others as they were",
        ),
        pytest.param(
            server({"n": [("fixed", "no address"), ("fixed", "")]}),
            [port("a", "10.0.0.1"), port("b", "10.0.0.1")],
            {},
            ["InternalIP 10.0.0.1"],
            id="once, and only addresses",
        ),
        pytest.param(server({}), [], {}, [], id="none yet"),
    ],
)
def test_order_of_addresses(
    machine: dict[str, Any], ports: list[dict[str, Any]], networking: dict[str, Any], expected: list[str]
) -> None:
    assert told(machine, ports, **networking) == expected
    for seed in range(5):  # neutron guarantees no order
        shuffled = random.Random(seed).sample(ports, len(ports))
        assert told(machine, shuffled, **networking) == expected


def test_subports_of_trunks_are_of_their_networks() -> None:
    subports = {"storage": ["10.8.0.1"], "dmz": ["192.0.2.80"]}
    machine = server({"alpha": [("fixed", "10.1.0.9")]})
    assert told(machine, [port("a", "10.1.0.9")], subports, public_network_name=("dmz",)) == [
        "InternalIP 10.1.0.9",
        "ExternalIP 192.0.2.80",
        "InternalIP 10.8.0.1",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("nova", "nova"),
        ("az 1/b", "az-1-b"),
        ("-az-", "az"),
        ("ä" * 3, ""),
        ("z" * 70, "z" * 63),
        ("a" * 62 + "-b", "a" * 62),
    ],
)
def test_label(text: str, expected: str) -> None:
    assert instance_rules.label(text) == expected


# Over HTTP.


@pytest.mark.parametrize(
    ("change", "outline"),
    [
        ({}, False),
        ({"status": "UNKNOWN"}, True),
        ({"addresses": None}, True),
        ({"addresses": []}, True),
        ({"name": ...}, True),
    ],
)
def test_a_server_of_which_nova_tells_little_is_an_outline(change: dict[str, Any], outline: bool) -> None:
    told = {"id": "1", "name": "n", "status": "ACTIVE", "addresses": {}} | change
    assert instance_rules.is_outline({key: value for key, value in told.items() if value is not ...}) is outline


@pytest.mark.parametrize(
    ("details", "expected"),
    [
        ({"trunk_id": "t", "sub_ports": [{"port_id": "a"}, {"port_id": None}, {}]}, {"t": ["a"]}),
        ({"trunk_id": "t", "sub_ports": []}, {}),
        ({"trunk_id": None, "sub_ports": [{"port_id": "a"}]}, {}),
        ({}, {}),
        (None, {}),
    ],
)
def test_a_trunk_counts_with_its_id_and_subports(details: Any, expected: dict[str, list[str]]) -> None:
    assert instance_rules.trunk_subports([{"id": "p", "trunk_details": details}]) == expected


@pytest.mark.parametrize(
    ("created", "made"),
    [
        ("2026-01-01T00:00:10Z", True),
        ("2026-01-01T00:00:08Z", True),
        ("2026-01-01T00:00:07Z", False),
        ("2026-01-01T00:00:12Z", True),
        ("soon", False),
        (None, False),
    ],
)
def test_a_server_was_made_since_a_moment_as_far_as_seconds_tell(created: Any, made: bool) -> None:
    then = datetime.datetime(2026, 1, 1, 0, 0, 10, tzinfo=datetime.UTC).timestamp()
    assert instance_rules.made_since({"created": created}, then) is made


def test_only_ports_of_servers_tell_of_a_server_that_is_not_listed() -> None:
    listed, gone, router = (str(uuid.UUID(int=number)) for number in (1, 2, 3))
    ports = [
        {"device_owner": "compute:nova", "device_id": listed},
        {"device_owner": "compute:nova", "device_id": gone},
        {"device_owner": "compute:nova", "device_id": "baremetal-1"},
        {"device_owner": "network:router_interface", "device_id": router},
        {"device_owner": None, "device_id": None},
    ]
    assert instance_rules.unlisted([{"id": listed}], ports) == [gone]


@pytest.mark.parametrize(
    ("names", "reported"),
    [
        ("internal-network-name=private", None),
        ("internal-network-name=privat", "'privat'"),
        ("internal-network-name=privat\ninternal-network-name=private", "'privat'"),
        ("internal-network-name=b\ninternal-network-name=a", "'a' or 'b'"),
        ("public-network-name=floating", None),
    ],
)
async def test_an_internal_network_that_no_server_is_in_is_reported_once(
    names: str, reported: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(more=f"[Networking]\n{names}") as (cloud, provider):
        await listing(provider)  # without servers nothing is reported
        assert "internal-network-name" not in caplog.text
        cloud.add_server("one", "10.0.0.1")
        for _ in range(2):
            await listing(provider)
        (server,) = [await provider.instances.get(InstanceRef("one"))]
        assert server.name == "one"
    messages = [record.getMessage() for record in caplog.records if "internal-network-name" in record.getMessage()]
    assert len(messages) == (reported is not None)
    assert reported is None or f"in a network named {reported};" in messages[0]


@pytest.mark.parametrize("nodes", [1, 100])
async def test_any_number_of_nodes_costs_two_listings(nodes: int) -> None:
    async with running() as (cloud, provider):
        for index in range(nodes):
            cloud.add_server(f"n-{index}", f"10.0.0.{index + 1}")
        found = await listing(provider)
    assert cloud.calls == ["GET compute /servers/detail", "GET network /ports"]
    assert sorted(each.name for each in found) == sorted(f"n-{index}" for index in range(nodes))
    first = next(each for each in found if each.name == "n-0")
    assert first == Instance(
        provider_id=f"openstack:///{cloud.servers[0]['id']}",
        name="n-0",
        type="m1.small",
        zone="zone-a",
        region="north",
        addresses=first.addresses,
    )
    assert [each.address for each in first.addresses] == ["10.0.0.1"]


async def test_a_listing_has_the_pages_that_it_has() -> None:
    async with running(more="[Runtime]\npage-size=2") as (cloud, provider):
        for index in range(5):
            cloud.add_server(f"n-{index}", f"10.0.0.{index + 1}")
        found = await listing(provider)
        assert len({each.provider_id for each in found}) == 5
        assert all(each.addresses for each in found)
        assert cloud.calls == ["GET compute /servers/detail"] * 3 + ["GET network /ports"] * 3
        assert [dict(query).get("marker") for query in cloud.queries[:3]] == [
            None,
            cloud.servers[1]["id"],
            cloud.servers[3]["id"],
        ]


async def test_ports_of_other_projects_are_not_asked_for() -> None:
    async with running() as (cloud, provider):
        await listing(provider)
    assert dict(cloud.queries[1])["project_id"]


async def test_two_listings_side_by_side() -> None:
    async with running(more="[Runtime]\npage-size=1") as (cloud, provider):
        cloud.add_server("a", "10.0.0.1")
        cloud.add_server("b", "10.0.0.2")
        one = await provider.instances.list_page(None)
        other = await provider.instances.list_page(None)
        assert one.next != other.next
        while one.next is not None:
            one = await provider.instances.list_page(one.next)
        while other.next is not None:
            other = await provider.instances.list_page(other.next)
        assert list(one.instances) == list(other.instances) and len(one.instances) == 2


async def test_a_page_may_be_asked_for_again_after_a_failure_and_nothing_is_kept_after_the_last() -> None:
    async with running(more="[Runtime]\npage-size=1") as (cloud, provider):
        cloud.add_server("a", "10.0.0.1")
        token = (await provider.instances.list_page(None)).next
        cloud.answer["GET .*"] = lambda _: web.Response(status=503)
        with pytest.raises(Transient):
            await provider.instances.list_page(token)
        del cloud.answer["GET .*"]
        page = await provider.instances.list_page(token)
        while page.next is not None:
            page = await provider.instances.list_page(page.next)
        assert len(page.instances) == 1
        assert not provider.instances._listings


async def test_a_listing_that_was_left_is_begun_anew() -> None:
    async with running() as (_, provider):
        with pytest.raises(Transient, match="start a new listing"):
            await provider.instances.list_page("4711")


async def test_one_node_costs_two_calls_by_id_and_by_name() -> None:
    async with running() as (cloud, provider):
        machine = cloud.add_server("n.example", "10.0.0.1")
        by_id = await provider.instances.get(InstanceRef("whatever", f"openstack:///{machine['id']}"))
        assert sorted(cloud.calls) == [f"GET compute /servers/{machine['id']}", "GET network /ports"]
        cloud.calls.clear()
        by_name = await provider.instances.get(InstanceRef("n.example"))
        assert cloud.calls == ["GET compute /servers/detail", "GET network /ports"]
        assert by_id == by_name == (await listing(provider))[0]


async def test_the_gateway_initialises_many_nodes_with_two_calls() -> None:
    async with running() as (cloud, provider):
        for index in range(100):
            cloud.add_server(f"n-{index}", f"10.0.1.{index + 1}")
        gateway = Gateway(provider)
        assert gateway.instances is not None
        now = time.monotonic()
        lookups = (gateway.instances.lookup(InstanceRef(f"n-{index}"), not_before=now) for index in range(100))
        found = await asyncio.gather(*lookups)
        await gateway.instances.close()
    assert len({each.provider_id for each in found}) == 100
    assert cloud.calls == ["GET compute /servers/detail", "GET network /ports"]


async def test_names_match_exactly_or_in_lower_case() -> None:
    """Names of Nodes are in lower case, but names of servers may have upper case."""
    async with running() as (cloud, provider):
        cloud.add_server("Node.Example")
        cloud.add_server("node-example")
        for name in ("ode.example", ".*", "node", "NODE.EXAMPLE", "Node-Example"):
            with pytest.raises(NotFound):
                await provider.instances.get(InstanceRef(name))
        for name in ("Node.Example", "node.example"):
            assert (await provider.instances.get(InstanceRef(name))).name == "Node.Example"
        listed = {each.name: each.aliases for each in await listing(provider)}
        assert listed == {"Node.Example": ("node.example",), "node-example": ()}
        cloud.add_server("node.example")
        with pytest.raises(Conflict, match="2 servers are named"):
            await provider.instances.get(InstanceRef("node.example"))


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ("ACTIVE", InstanceState.RUNNING),
        ("SHUTOFF", InstanceState.SHUTDOWN),
        ("PAUSED", InstanceState.RUNNING),
        ("SUSPENDED", InstanceState.RUNNING),
        ("ERROR", InstanceState.RUNNING),
        ("SOFT_DELETED", InstanceState.RUNNING),
    ],
)
async def test_only_a_server_that_is_shut_off_is_shut_down(status: str, state: InstanceState) -> None:
    async with running() as (cloud, provider):
        cloud.add_server("n", status=status)
        assert (await listing(provider))[0].state is state


async def test_regional_provider_ids() -> None:
    async with running(more="[Runtime]\nregional=true") as (cloud, provider):
        machine = cloud.add_server("n")
        assert (await listing(provider))[0].provider_id == f"openstack://north/{machine['id']}"
        assert provider.instances.canonical(f"/{machine['id'].upper()}") == f"openstack://north/{machine['id']}"
        with pytest.raises(Conflict):
            await provider.instances.get(InstanceRef("n", f"openstack://south/{machine['id']}"))


async def test_an_unknown_server_is_not_found_and_a_proxys_404_is_not() -> None:
    async with running() as (cloud, provider):
        ref = InstanceRef("n", f"openstack:///{ID}")
        with pytest.raises(NotFound, match=ID):
            await provider.instances.get(ref)
        cloud.answer["GET compute /servers/.*"] = lambda _: web.Response(status=404, text="<html>404</html>")
        with pytest.raises(Transient, match="not from compute itself"):
            await provider.instances.get(ref)
        error = {"itemNotFound": {"code": 404, "message": "The resource could not be found."}}
        cloud.answer["GET compute /servers/.*"] = lambda _: web.json_response(error, status=404)
        with pytest.raises(Transient):
            await provider.instances.get(ref)


async def test_flavours_whose_names_are_no_label_are_their_ids() -> None:
    async with running() as (cloud, provider):
        cloud.flavors = [{"id": "f-1", "name": "large (new)"}]
        cloud.add_server("a", flavor={"original_name": "large (new)"})
        cloud.add_server("b", flavor={"original_name": "gone (old)"})
        for _ in range(2):
            assert {each.name: each.type for each in await listing(provider)} == {"a": "f-1", "b": "gone-old"}
        assert cloud.calls.count("GET compute /flavors") == 1


async def test_trunks_cost_one_call_more_and_agree_when_got() -> None:
    async with running() as (cloud, provider):
        machine = cloud.add_server("n", "10.0.0.1")
        sub = cloud.add_port("trunk-1", "10.8.0.1", owner="trunk:subport", network_id="net-8")
        cloud.ports[0]["trunk_details"] = {"trunk_id": "trunk-1", "sub_ports": [{"port_id": sub["id"]}]}
        cloud.networks = [{"id": "net-8", "name": "storage"}]
        (listed,) = await listing(provider)
        assert [each.address for each in listed.addresses] == ["10.0.0.1", "10.8.0.1"]
        assert cloud.calls == ["GET compute /servers/detail", "GET network /ports", "GET network /networks"]
        assert await provider.instances.get(InstanceRef("n", f"openstack:///{machine['id']}")) == listed


async def test_a_listing_without_a_server_that_has_ports_is_not_believed() -> None:
    async with running() as (cloud, provider):
        cloud.add_server("a", "10.0.0.1")
        hidden = cloud.add_server("b", "10.0.0.2")
        cloud.answer["GET compute /servers/detail"] = lambda _: web.json_response({"servers": cloud.servers[:1]})
        with pytest.raises(Transient, match=f"{hidden['id']} exists but is missing"):
            await listing(provider)
        now = datetime.datetime.now(datetime.UTC)
        hidden["created"] = f"{now - datetime.timedelta(seconds=20):%Y-%m-%dT%H:%M:%SZ}"
        with pytest.raises(Transient):
            await listing(provider)
        hidden["created"] = f"{now + datetime.timedelta(seconds=20):%Y-%m-%dT%H:%M:%SZ}"
        assert len(await listing(provider)) == 1  # created between the two listings


async def test_ports_that_a_deleted_server_left_are_asked_about_once() -> None:
    async with running() as (cloud, provider):
        cloud.add_server("a", "10.0.0.1")
        cloud.add_port(ID, "10.0.0.9")
        cloud.add_port("lb-1", "10.0.0.10", owner="Octavia")
        for _ in range(2):
            assert len(await listing(provider)) == 1
        assert cloud.calls.count(f"GET compute /servers/{ID}") == 1


async def test_servers_in_outline_make_a_listing_that_proves_nothing() -> None:
    async with running() as (cloud, provider):
        good = cloud.add_server("a", "10.0.0.1")
        cloud.servers.append({"id": ID, "status": "UNKNOWN", "created": "2026-01-01T00:00:00Z"})
        gateway = Gateway(provider)
        assert gateway.instances is not None
        snapshot = await gateway.instances.list(not_before=0)
        assert snapshot.find(InstanceRef("a")).provider_id == f"openstack:///{good['id']}"
        with pytest.raises(Transient, match="it has invalid entries"):
            snapshot.find(InstanceRef("b", "openstack:///11111111-1111-4111-8111-111111111111"))
        with pytest.raises(Transient, match="does not respond"):
            await provider.instances.get(InstanceRef("b", f"openstack:///{ID}"))


@pytest.mark.parametrize(("newest", "asked"), [("2.96", "2.69"), ("2.69", "2.69"), ("2.60", "2.47"), ("2.47", "2.47")])
async def test_the_microversion_is_one_that_both_know(newest: str, asked: str) -> None:
    seen = []

    def look(request: web.Request) -> web.Response:
        seen.append(request.headers["OpenStack-API-Version"])
        return web.json_response({"servers": []})

    cloud = FakeCloud()
    cloud.microversion = newest
    async with running(cloud) as (_, provider):
        cloud.answer["GET compute /servers/detail"] = look
        await listing(provider)
    assert seen == [f"compute {asked}"]
