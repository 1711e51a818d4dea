# SPDX-License-Identifier: Apache-2.0
"""Routes to Pods: the extra routes of one neutron router, `[Route] router-id`.

A port blocks traffic of addresses that are not its own, so each port that is a next hop must also allow the pod CIDR.
The port is changed before the route is created or removed. So once a route is created, everything is set up, and once
it is removed, nothing is left.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Iterable, Sequence
from typing import Any

from ccm.cloud import Conflict, Invalid, NotFound, Route, Transient
from ccm.cloud.toolkit.recent import Recent

from . import instance_rules
from .api import NETWORK, REMEMBERED_SUBNETS, Api, of_project, unless_changed
from .instance_rules import PORT_FIELDS, Row

#: The extension that adds and removes single routes; without it, the whole list is read and written.
ATOMIC = "extraroute-atomic"
ADDRESS_PAIRS = "allowed-address-pairs"

Rows = list[dict[str, Any]]

_FIELDS = [("fields", name) for name in PORT_FIELDS]


class OpenStackRoutes:
    #: Limited, because all routes are in one router.
    concurrency = 4

    def __init__(self, api: Api) -> None:
        self._api = api
        self._router_id = api.settings.route.router_id
        self._whole_list = asyncio.Lock()
        self._cidrs: Recent[str, str] = Recent(REMEMBERED_SUBNETS)

    async def list(self, cluster: str) -> Sequence[Route]:
        router = await self._router()
        ports = await self._api.pages(NETWORK, "/ports", "ports", [*_FIELDS, *of_project(self._api)])
        if not networks_of(ports, self._router_id):  # the router belongs to another project
            ports += await self._ports_of(self._router_id)
        by_address = server_addresses(ports, networks_of(ports, self._router_id))
        return [self._route(extra_route, by_address) for extra_route in _extra_routes(router)]

    async def create(self, cluster: str, route: Route) -> None:
        id = instance_rules.server_id(route.provider_id, self._api.region)
        if id is None:
            raise Invalid(f"route to {route.destination}: {route.provider_id!r} is not a server of this region")
        ports = await self._ports_of(id, self._router_id)
        networks = networks_of(ports, self._router_id)
        own = await self._with_subports([each for each in ports if each.get("device_id") == id])
        ports = [*own, *(each for each in ports if each.get("device_id") != id)]
        address, port = next_hop(route, own, networks)
        check_destination(route.destination, ports, await self._subnets(ports))
        await self._allow(port, route.destination)
        await self._change("add", {"destination": route.destination, "nexthop": address})

    async def delete(self, cluster: str, route: Route) -> None:
        destination, _, address = route.id.partition(" via ")
        if id := instance_rules.server_id(route.provider_id, self._api.region):
            own = [port for port in await self._ports_of(id) if port.get("device_id") == id]
            for port in await self._with_subports(own):
                if address in _fixed(port):
                    await self._forbid(port, destination)
        await self._change("remove", {"destination": destination, "nexthop": address})

    def _route(self, reported: Row, by_address: dict[str, str]) -> Route:
        destination, address = str(reported["destination"]), str(reported["nexthop"])
        server = by_address.get(address)
        return Route(
            destination,
            "" if server is None else instance_rules.provider_id(server, self._api.region, self._regional),
            id=f"{destination} via {address}",
            blackhole=server is None,
            target_addresses=(address,),
        )

    @property
    def _regional(self) -> bool:
        return self._api.settings.runtime.regional

    async def _router(self) -> dict[str, Any]:
        id = self._router_id
        try:
            answer = await self._api.call("GET", NETWORK, f"/routers/{id}", missing=id)
        except NotFound as error:
            raise Conflict(f"{error}: check [Route] router-id in {self._api.settings.source}") from None
        router = answer.get("router") if isinstance(answer, dict) else None
        if not isinstance(router, dict) or router.get("id") != id:
            raise Transient(f"GET network /routers/{id}: the response is about another object")
        return router

    async def _ports_of(self, *devices: str) -> Rows:
        return await self._api.pages(NETWORK, "/ports", "ports", [*_FIELDS, *(("device_id", each) for each in devices)])

    async def _with_subports(self, ports: Rows) -> Rows:
        """Return a server's ports and the subports of its trunks; makes another call if it has trunks."""
        trunks = instance_rules.trunk_subports(ports)
        more = await self._ports_of(*trunks) if trunks else []
        known = {subport for subports in trunks.values() for subport in subports}
        return [*ports, *(port for port in more if str(port["id"]) in known)]

    async def _subnets(self, ports: Iterable[Row]) -> Sequence[str]:
        """Return the CIDRs of the subnets of these ports' addresses. Each CIDR is read once, because it never
        changes."""
        ids = {
            str(fixed["subnet_id"]) for port in ports for fixed in port.get("fixed_ips") or () if fixed.get("subnet_id")
        }
        cidrs = {id: cidr for id in ids if (cidr := self._cidrs.get(id)) is not None}
        if unknown := sorted(ids - cidrs.keys()):
            query = [("fields", "id"), ("fields", "cidr"), *(("id", each) for each in unknown)]
            rows = await self._api.pages(NETWORK, "/subnets", "subnets", query)
            for id in unknown:
                if cidr := next((str(row["cidr"]) for row in rows if str(row["id"]) == id), ""):
                    cidrs[id] = cidr
                    self._cidrs.put(id, cidr)
        return [cidrs[each] for each in sorted(cidrs)]

    async def _change(self, verb: str, route: dict[str, str]) -> None:
        """Add or remove one route. Succeeds if it already exists or is already gone. Raises Conflict if the router does
        not exist."""
        id = self._router_id
        extensions = await self._api.extensions()
        try:
            if ATOMIC in extensions:
                body = {"router": {"routes": [route]}}
                await self._api.call("PUT", NETWORK, f"/routers/{id}/{verb}_extraroutes", body=body, missing=id)
                return
            async with self._whole_list:
                router = await self._router()
                before = _extra_routes(router)
                after = [each for each in before if each != route] + ([route] if verb == "add" else [])
                if after != before:
                    await self._put(f"/routers/{id}", {"router": {"routes": after}}, router, id)
        except NotFound as error:
            raise Conflict(f"{error}: check [Route] router-id in {self._api.settings.source}") from None

    async def _allow(self, port: Row, cidr: str) -> None:
        pairs = list(port.get("allowed_address_pairs") or ())
        if any(pair.get("ip_address") == cidr for pair in pairs) or not await self._guarded(port):
            return
        await self._put_pairs(port, [*pairs, {"ip_address": cidr}])

    async def _forbid(self, port: Row, cidr: str) -> None:
        pairs = list(port.get("allowed_address_pairs") or ())
        left = [pair for pair in pairs if pair.get("ip_address") != cidr]
        if left == pairs or not await self._guarded(port):
            return
        try:
            await self._put_pairs(port, left)
        except NotFound:
            return

    async def _guarded(self, port: Row) -> bool:
        """Return whether neutron checks the source addresses of the port's traffic."""
        return port.get("port_security_enabled") is not False and ADDRESS_PAIRS in await self._api.extensions()

    async def _put_pairs(self, port: Row, pairs: Iterable[Row]) -> None:
        id = str(port["id"])
        body = {"port": {"allowed_address_pairs": [dict(pair) for pair in pairs]}}
        await self._put(f"/ports/{id}", body, port, id)

    async def _put(self, path: str, body: Any, read: Row, missing: str) -> None:
        """Write a change of the object that was read. Raises RetryAfter if the object changed in the meantime."""
        headers = await unless_changed(self._api, read)
        await self._api.call("PUT", NETWORK, path, body=body, headers=headers, missing=missing)


# No I/O.


def networks_of(ports: Iterable[Row], router_id: str) -> set[str]:
    """Return the networks to which the router is connected."""
    return {str(port.get("network_id")) for port in ports if port.get("device_id") == router_id}


def server_addresses(ports: Iterable[Row], networks: set[str]) -> dict[str, str]:
    """Return address -> server for servers in these networks only, because another network may have the same addresses.

    A subport belongs to the server whose port is the parent of its trunk.
    """
    rows = list(ports)
    server_of = {
        str(port["id"]): str(port.get("device_id"))
        for port in rows
        if str(port.get("device_owner")).startswith(instance_rules.OF_SERVERS)
    }
    for port in [row for row in rows if str(row["id"]) in server_of]:
        for subports in instance_rules.trunk_subports([port]).values():
            server_of |= dict.fromkeys(subports, str(port.get("device_id")))
    return {
        address: server_of[str(port["id"])]
        for port in rows
        if str(port["id"]) in server_of and str(port.get("network_id")) in networks
        for address in _fixed(port)
    }


def next_hop(route: Route, ports: Iterable[Row], networks: set[str]) -> tuple[str, Row]:
    """Return the server's address to which a route leads, and its port.

    It is the Node's first address that has the destination's family and is in one of the router's networks. Raises
    Conflict if there is none. Raises Invalid for a destination that is not a CIDR.
    """
    try:
        version = ipaddress.ip_network(route.destination).version
    except ValueError:
        raise Invalid(f"route to {route.destination!r}: the destination is not a CIDR") from None
    possible = {
        address: port
        for port in sorted(ports, key=lambda each: str(each["id"]))
        if str(port.get("network_id")) in networks
        for address in _fixed(port)
        if ipaddress.ip_address(address).version == version
    }
    addresses = route.target_addresses if route.target_addresses is not None else tuple(possible)
    for address in addresses:
        if address in possible:
            return address, possible[address]
    raise Conflict(
        f"route to {route.destination}: none of the Node's IPv{version} addresses ({', '.join(addresses) or 'none'}) "
        f"is an address of its server in the router's networks ({', '.join(possible) or 'none'}): check [Route] "
        "router-id"
    )


def check_destination(destination: str, ports: Iterable[Row], subnets: Iterable[str]) -> None:
    """Raises Invalid for a destination that cannot be a pod CIDR.

    A pod CIDR contains neither all addresses nor an address of the router or the server, and does not overlap their
    subnets. Otherwise the server's port could send from these addresses and impersonate other machines. `ports`: the
    router's and the server's. `subnets`: the CIDRs of their subnets.
    """
    try:
        network = ipaddress.ip_network(destination)
    except ValueError:
        raise Invalid(f"route to {destination!r}: the destination is not a CIDR") from None
    if network.prefixlen == 0:
        raise Invalid(f"route to {destination}: the destination contains all addresses")
    for address in (each for port in ports for each in _fixed(port)):
        if ipaddress.ip_address(address) in network:
            raise Invalid(f"route to {destination}: it contains {address}, an address of the router or the server")
    for cidr in subnets:
        subnet = ipaddress.ip_network(cidr, strict=False)
        if subnet.version == network.version and subnet.overlaps(network):
            raise Invalid(f"route to {destination}: it overlaps the machines' own subnet {cidr}")


def _extra_routes(router: Row) -> list[dict[str, str]]:
    reported = router.get("routes") or []
    return [{"destination": str(each["destination"]), "nexthop": str(each["nexthop"])} for each in reported]


def _fixed(port: Row) -> list[str]:
    return [str(fixed["ip_address"]) for fixed in port.get("fixed_ips") or () if fixed.get("ip_address")]
