# SPDX-License-Identifier: Apache-2.0
"""Routes: the next hop, the allowed addresses of its port, one call per change, and foreign changes."""

from __future__ import annotations

from typing import Any

import pytest
from aiohttp import web

from ccm.cloud import Conflict, Invalid, RetryAfter, Route
from ccm.providers.openstack import OpenStackCloud
from ccm.providers.openstack.routes import check_destination, next_hop

from .fake_cloud import NETWORK, ROUTER, FakeCloud, running

MORE = f"[Route]\nrouter-id = {ROUTER}"
CIDR = "10.244.1.0/24"


def with_router() -> FakeCloud:
    cloud = FakeCloud()
    cloud.add_port(ROUTER, "10.0.0.254", owner="network:router_interface")
    return cloud


def routes(provider: OpenStackCloud) -> Any:
    assert provider.routes is not None
    return provider.routes


async def test_without_a_router_there_are_none() -> None:
    async with running() as (_, provider):
        assert provider.routes is None


async def test_a_route_from_create_to_delete() -> None:
    async with running(with_router(), MORE) as (cloud, provider):
        machine = cloud.add_server("n", "10.0.0.1")
        port = cloud.ports[-1]
        port["allowed_address_pairs"] = [{"ip_address": "10.9.0.0/16", "mac_address": "fa:16:3e:00:00:01"}]
        wanted = Route(CIDR, f"openstack:///{machine['id']}", target_addresses=("192.0.2.1", "10.0.0.1"))
        await routes(provider).create("c", wanted)
        assert cloud.calls == [
            "GET network /ports",
            "GET network /subnets",
            "GET network /extensions",
            f"PUT network /ports/{port['id']}",
            f"PUT network /routers/{ROUTER}/add_extraroutes",
        ]
        assert [pair["ip_address"] for pair in port["allowed_address_pairs"]] == ["10.9.0.0/16", CIDR]
        assert cloud.routes == [{"destination": CIDR, "nexthop": "10.0.0.1"}]

        cloud.calls.clear()
        (listed,) = await routes(provider).list("c")
        assert len(cloud.calls) == 2
        assert (listed.destination, listed.provider_id, listed.blackhole) == (CIDR, wanted.provider_id, False)
        assert listed.target_addresses == ("10.0.0.1",) and listed.owner == ""

        await routes(provider).create("c", wanted)
        assert len(cloud.routes) == 1 and len(port["allowed_address_pairs"]) == 2

        for _ in range(2):
            await routes(provider).delete("c", listed)
            assert cloud.routes == []
            assert [pair["ip_address"] for pair in port["allowed_address_pairs"]] == ["10.9.0.0/16"]


async def test_the_next_hop_may_be_on_a_subport_of_the_servers_trunk() -> None:
    """The router is only in the subport's network. The subport's device is the trunk, not the server."""
    async with running(with_router(), MORE) as (cloud, provider):
        machine = cloud.add_server("n")
        sub = cloud.add_port("trunk-1", "10.0.0.1", owner="trunk:subport")
        foreign = cloud.add_port("trunk-1", "10.0.0.2", owner="trunk:subport")
        trunk = {"trunk_id": "trunk-1", "sub_ports": [{"port_id": sub["id"]}]}
        cloud.add_port(machine["id"], "172.16.0.1", network_id="net-2", trunk_details=trunk)
        await routes(provider).create("c", Route(CIDR, f"openstack:///{machine['id']}", target_addresses=("10.0.0.1",)))
        assert cloud.routes == [{"destination": CIDR, "nexthop": "10.0.0.1"}]
        assert [pair["ip_address"] for pair in sub["allowed_address_pairs"]] == [CIDR]
        (listed,) = await routes(provider).list("c")
        assert listed.provider_id == f"openstack:///{machine['id']}" and not listed.blackhole
        await routes(provider).delete("c", listed)
        assert not cloud.routes and not sub["allowed_address_pairs"] and not foreign["allowed_address_pairs"]
        with pytest.raises(Conflict, match="none of the Node's"):
            await routes(provider).create(
                "c", Route(CIDR, f"openstack:///{machine['id']}", target_addresses=("10.0.0.2",))
            )


async def test_another_network_with_the_same_address_is_not_the_next_hop() -> None:
    async with running(with_router(), MORE) as (cloud, provider):
        other = cloud.add_server("other")
        cloud.add_port(other["id"], "10.0.0.1", network_id="net-2")
        cloud.add_port("x", "10.0.0.2", owner="Octavia")
        cloud.routes = [{"destination": CIDR, "nexthop": each} for each in ("10.0.0.1", "10.0.0.2", "10.0.0.3")]
        assert [(each.provider_id, each.blackhole) for each in await routes(provider).list("c")] == [("", True)] * 3
        with pytest.raises(Conflict, match=r"check .Route. router-id"):
            await routes(provider).create("c", Route(CIDR, f"openstack:///{other['id']}"))


async def test_a_router_of_another_project() -> None:
    cloud = FakeCloud()
    async with running(cloud, MORE) as (_, provider):
        machine = cloud.add_server("n", "10.0.0.1")
        cloud.routes = [{"destination": CIDR, "nexthop": "10.0.0.1"}]

        def ports(request: web.Request) -> web.Response:
            own = request.query.get("device_id") == ROUTER
            interface = {
                "id": "r",
                "device_id": ROUTER,
                "device_owner": "network:router_interface",
                "network_id": NETWORK,
            }
            return web.json_response({"ports": [interface] if own else cloud.ports})

        cloud.answer["GET network /ports"] = ports
        (listed,) = await routes(provider).list("c")
        assert listed.provider_id == f"openstack:///{machine['id']}"


async def test_no_pair_where_neutron_does_not_look() -> None:
    for change in ("port security", "extension"):
        async with running(with_router(), MORE) as (cloud, provider):
            machine = cloud.add_server("n", "10.0.0.1")
            if change == "extension":
                cloud.extensions.remove("allowed-address-pairs")
            else:
                cloud.ports[-1]["port_security_enabled"] = False
            await routes(provider).create("c", Route(CIDR, f"openstack:///{machine['id']}"))
            assert not any(call.startswith("PUT network /ports") for call in cloud.calls)
            assert cloud.routes


async def test_a_change_of_the_whole_list_is_refused_if_somebody_else_was_faster() -> None:
    cloud = with_router()
    cloud.extensions.remove("extraroute-atomic")
    async with running(cloud, MORE) as (_, provider):
        machine = cloud.add_server("n", "10.0.0.1")
        cloud.routes = [{"destination": "10.9.0.0/16", "nexthop": "10.0.0.9"}]
        wanted = Route(CIDR, f"openstack:///{machine['id']}")
        await routes(provider).create("c", wanted)
        assert [each["destination"] for each in cloud.routes] == ["10.9.0.0/16", CIDR]
        calls = len(cloud.calls)
        await routes(provider).create("c", wanted)  # the route exists, so nothing is written
        assert not any(call.startswith("PUT network /routers") for call in cloud.calls[calls:])

        def faster(_: web.Request) -> web.Response:
            router = {"id": ROUTER, "routes": cloud.routes, "revision_number": cloud.router_revision}
            cloud.router_revision += 1
            return web.json_response({"router": router})

        cloud.answer[f"GET network /routers/{ROUTER}"] = faster
        with pytest.raises(RetryAfter):
            await routes(provider).delete("c", Route(CIDR, wanted.provider_id, id=f"{CIDR} via 10.0.0.1"))
        assert len(cloud.routes) == 2


async def test_a_router_that_is_not_there() -> None:
    more = "[Route]\nrouter-id = 11111111-1111-4111-8111-111111111111"
    async with running(with_router(), more) as (cloud, provider):
        gone = {
            "NeutronError": {"type": "RouterNotFound", "message": "Router 11111111-1111-4111-8111-111111111111 gone"}
        }
        cloud.answer["GET network /routers/.*"] = lambda _: web.json_response(gone, status=404)
        with pytest.raises(Conflict, match=r"check .Route. router-id in cloud.conf"):
            await routes(provider).list("c")


async def test_what_is_no_server_gets_no_route() -> None:
    async with running(with_router(), MORE) as (_, provider):
        with pytest.raises(Invalid):
            await routes(provider).create("c", Route(CIDR, "aws:///i-1"))


def test_the_next_hop_is_the_nodes_first_address_that_is_possible() -> None:
    ports = [
        {"id": "b", "network_id": "n", "fixed_ips": [{"ip_address": "10.0.0.1"}, {"ip_address": "fd00::1"}]},
        {"id": "a", "network_id": "n", "fixed_ips": [{"ip_address": "10.0.0.2"}]},
        {"id": "c", "network_id": "elsewhere", "fixed_ips": [{"ip_address": "10.3.0.1"}]},
    ]

    def hop(destination: str, *addresses: str) -> tuple[str, str]:
        address, port = next_hop(Route(destination, "x", target_addresses=addresses or None), ports, {"n"})
        return address, port["id"]

    assert hop(CIDR, "10.3.0.1", "fd00::1", "10.0.0.1", "10.0.0.2") == ("10.0.0.1", "b")
    assert hop(CIDR) == ("10.0.0.2", "a")
    assert hop("fd01::/64", "10.0.0.1", "fd00::1") == ("fd00::1", "b")
    with pytest.raises(Conflict, match=r"IPv4 addresses \(10.3.0.1\)"):
        hop(CIDR, "10.3.0.1")


@pytest.mark.threat("kubelet-routes-inside-cluster-cidr")
@pytest.mark.parametrize(
    ("destination", "why"),
    [
        ("0.0.0.0/0", "contains all addresses"),
        ("::/0", "contains all addresses"),
        ("10.0.0.0/24", "an address of the router or the server"),
        ("10.0.0.254/32", "an address of the router or the server"),
        ("10.0.0.1/32", "an address of the router or the server"),
        ("10.0.0.128/26", "overlaps the machines' own subnet 10.0.0.0/24"),
        ("10.0.0.5/32", "overlaps the machines' own subnet"),
        ("10.0.0.0/8", "an address of the router or the server"),
        ("10.0.0.1/24", "is not a CIDR"),
        ("junk", "is not a CIDR"),
    ],
)
async def test_no_port_may_send_from_addresses_that_are_not_pods(destination: str, why: str) -> None:
    cloud = with_router()
    async with running(cloud, MORE) as (_, provider):
        machine = cloud.add_server("n", "10.0.0.1")
        with pytest.raises((Invalid, Conflict), match=why if ":" not in destination else "."):
            await routes(provider).create("c", Route(destination, f"openstack:///{machine['id']}"))
        assert not any(call.startswith("PUT") for call in cloud.calls) and not cloud.routes


def test_another_family_does_not_overlap() -> None:
    ports = [{"id": "p", "fixed_ips": [{"ip_address": "10.0.0.1"}, {"ip_address": "fd00::1"}]}]
    check_destination("10.244.0.0/24", ports, ["10.0.0.0/24", "fd00::/64"])
    check_destination("fd01::/64", ports, ["10.0.0.0/24", "fd00::/64"])


@pytest.mark.threat("kubelet-routes-inside-cluster-cidr")
async def test_the_pair_goes_onto_a_port_of_this_very_server() -> None:
    """The port must be the server's even if the cloud ignores the filter and lists all ports."""
    cloud = with_router()
    async with running(cloud, MORE) as (_, provider):
        machine = cloud.add_server("n", "10.0.0.1")
        own = cloud.ports[-1]
        other = cloud.add_server("database", "10.0.0.66")
        cloud.answer["GET network /ports"] = lambda _: web.json_response({"ports": cloud.ports})
        wanted = Route(CIDR, f"openstack:///{machine['id']}", target_addresses=("10.0.0.66", "10.0.0.1"))
        await routes(provider).create("c", wanted)
        assert [pair["ip_address"] for pair in own["allowed_address_pairs"]] == [CIDR]
        assert cloud.routes == [{"destination": CIDR, "nexthop": "10.0.0.1"}]
        assert not any(port["allowed_address_pairs"] for port in cloud.ports if port["device_id"] == other["id"])
        victim = next(port for port in cloud.ports if port["device_id"] == other["id"])
        victim["allowed_address_pairs"] = [{"ip_address": CIDR}]
        await routes(provider).delete("c", Route(CIDR, wanted.provider_id, id=f"{CIDR} via 10.0.0.66"))
        assert victim["allowed_address_pairs"] == [{"ip_address": CIDR}]
