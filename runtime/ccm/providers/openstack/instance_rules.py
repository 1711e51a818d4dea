# SPDX-License-Identifier: Apache-2.0
"""Converts nova's servers and neutron's ports to the contract's instances. No I/O.

Addresses, labels and providerIDs equal those of cloud-provider-openstack, so that Nodes do not change when this
provider takes over. Where the order in cloud-provider-openstack depends on the order of neutron's response, ports are
sorted by ID.
"""

from __future__ import annotations

import datetime
import ipaddress
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ccm.cloud import Address, AddressType, Instance, InstanceState

from .settings_sections import Networking

Row = Mapping[str, Any]

UUID = re.compile(r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}", re.ASCII)
PROVIDER_ID = re.compile(rf"(?:openstack://)?(?P<region>[^/\s:]*)/(?P<id>{UUID.pattern})", re.ASCII)
LABEL_VALUE = re.compile(r"([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?", re.ASCII)
#: The fields that are requested of each port.
PORT_FIELDS = (
    *("id", "device_id", "device_owner", "network_id", "status", "fixed_ips", "trunk_details"),
    *("allowed_address_pairs", "port_security_enabled", "revision_number"),
)
#: The tolerance of a comparison of times, in seconds: the cloud reports whole seconds.
SLACK = 2.0
#: The prefix of `device_owner` of a server's port; nova appends the zone.
OF_SERVERS = "compute:"


def provider_id(server_id: str, region: str, regional: bool) -> str:
    return f"openstack://{region if regional else ''}/{server_id.lower()}"


def server_id(spelt: str, region: str) -> str | None:
    """Return the server ID in a providerID, in lower case; None if the providerID belongs to another cloud or region.

    It accepts `openstack:///ID`, `openstack://REGION/ID`, and both without their prefix.
    """
    match = PROVIDER_ID.fullmatch(spelt)
    if match is None or match["region"] not in ("", region):
        return None
    return match["id"].lower()


def is_outline(server: Row) -> bool:
    """Return whether nova reports little more than the server's existence, because its cell does not respond."""
    return server.get("status") == "UNKNOWN" or not isinstance(server.get("addresses"), dict) or "name" not in server


def instance(
    server: Row,
    ports: Iterable[Row],
    subports: Mapping[str, Sequence[str]],
    networking: Networking,
    region: str,
    regional: bool,
    flavours: Mapping[str, str],
) -> Instance:
    """Return the instance of a server. `ports`: the server's own. `subports`: those of its trunks, network ->
    addresses. `flavours`: names -> IDs."""
    name = str(server["name"])
    return Instance(
        provider_id=provider_id(str(server["id"]), region, regional),
        name=name,
        aliases=() if name == name.lower() else (name.lower(),),
        type=instance_type(server, flavours),
        zone=label(str(server.get("OS-EXT-AZ:availability_zone") or "")),
        region=label(region),
        addresses=addresses(server, ports, subports, networking),
        state=InstanceState.SHUTDOWN if server.get("status") == "SHUTOFF" else InstanceState.RUNNING,
    )


def flavour(server: Row) -> str:
    """Return the name that the flavor had when the server was created, "" if the row does not have it."""
    flavor = server.get("flavor")
    return str(flavor.get("original_name") or "") if isinstance(flavor, dict) else ""


def instance_type(server: Row, flavours: Mapping[str, str]) -> str:
    """Return the flavor's name, or its ID if the name is not a valid label value."""
    name = flavour(server)
    return name if LABEL_VALUE.fullmatch(name) else label(flavours.get(name) or name)


def label(text: str) -> str:
    """Return the text as a label value of at most 63 characters. Each run of other characters becomes one dash, and the
    value neither begins nor ends with a dash, a dot or an underscore."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", text, flags=re.ASCII).strip("-_.")[:63].rstrip("-_.")


def addresses(
    server: Row, ports: Iterable[Row], subports: Mapping[str, Sequence[str]], networking: Networking
) -> tuple[Address, ...]:
    """Return the addresses of a server, without duplicates.

    First the fixed addresses of active ports, then the server's access addresses, its host name, and nova's addresses
    by network, with networks sorted by name. `address-sort-order` then sorts the result.
    """
    chosen: dict[Address, None] = {}

    def add(kind: AddressType, text: Any) -> None:
        if kind is AddressType.HOSTNAME or _usable(text, networking):
            chosen.setdefault(Address(kind, str(text)))

    for port in sorted(ports, key=lambda each: str(each["id"])):
        for fixed in port.get("fixed_ips") or ():
            if port.get("status") == "ACTIVE":
                add(AddressType.INTERNAL_IP, fixed.get("ip_address"))
    for key in ("accessIPv4", "accessIPv6"):
        add(AddressType.EXTERNAL_IP, server.get(key))
    if host_name := (server.get("metadata") or {}).get("hostname"):
        add(AddressType.HOSTNAME, host_name)
    by_network: dict[str, list[tuple[str, Any]]] = {
        str(network): [(str(each.get("OS-EXT-IPS:type") or ""), each.get("addr")) for each in reported]
        for network, reported in server["addresses"].items()
    }
    for network, fixed_addresses in subports.items():
        by_network.setdefault(network, []).extend(("fixed", fixed_address) for fixed_address in fixed_addresses)
    for network in sorted(by_network):
        public = network in networking.public_network_name
        internal = not networking.internal_network_name or network in networking.internal_network_name
        for kind, text in by_network[network]:
            if kind == "floating":
                add(AddressType.EXTERNAL_IP, text)
            elif public or not internal:
                chosen.pop(Address(AddressType.INTERNAL_IP, str(text)), None)
                if public:
                    add(AddressType.EXTERNAL_IP, text)
            else:
                add(AddressType.INTERNAL_IP, text)
    return tuple(sorted(chosen, key=lambda each: _rank(each, networking)))


def unused_networks(servers: Sequence[Row], of_subports: Iterable[str], networking: Networking) -> list[str]:
    """Return the names in internal-network-name of networks in which no server has an address, sorted; [] if there are
    no servers.

    `of_subports`: names of the networks of trunk subports. Public networks are not checked, because servers need no
    address of their own in them.
    """
    if not servers:
        return []
    used = set(of_subports).union(*(map(str, server.get("addresses") or ()) for server in servers))
    return sorted(set(networking.internal_network_name) - used)


def _usable(text: Any, networking: Networking) -> bool:
    try:
        return not (ipaddress.ip_address(text).version == 6 and networking.ipv6_support_disabled)
    except ValueError:
        return False


def _rank(address: Address, networking: Networking) -> tuple[int, int]:
    """Return the sort key of an address: its position by `address-sort-order`, then its value. Addresses in no CIDR
    come last and keep their order, because sorting is stable."""
    last = len(networking.address_sort_order), 0
    if address.type is AddressType.HOSTNAME:
        return last
    parsed = ipaddress.ip_address(address.address)
    for index, network in enumerate(networking.address_sort_order):
        if parsed in network:
            return index, int(parsed)
    return last


def trunk_subports(ports: Iterable[Row]) -> dict[str, list[str]]:
    """Return trunk -> IDs of its subports, for trunks whose parent is one of these ports."""
    by_trunk: dict[str, list[str]] = {}
    for port in ports:
        trunk = port.get("trunk_details") or {}
        ids = [str(sub_port["port_id"]) for sub_port in trunk.get("sub_ports") or () if sub_port.get("port_id")]
        if ids and trunk.get("trunk_id"):
            by_trunk[str(trunk["trunk_id"])] = ids
    return by_trunk


def subport_addresses(
    parents: Iterable[Row], ports: Mapping[str, Row], network_names: Mapping[str, str]
) -> dict[str, list[str]]:
    """Return name of a network -> fixed addresses of the subports in it. `parents`: ports that may have a trunk.
    `ports`: known ports by ID; other subports, and subports in networks without a known name, are left out."""
    by_network: dict[str, list[str]] = {}
    for ids in trunk_subports(sorted(parents, key=lambda each: str(each["id"]))).values():
        for subport in (ports[id_] for id_ in sorted(ids) if id_ in ports):
            if (network := network_names.get(str(subport.get("network_id")))) is not None:
                reported = [str(fixed.get("ip_address")) for fixed in subport.get("fixed_ips") or ()]
                by_network.setdefault(network, []).extend(reported)
    return by_network


def made_since(server: Row, then: float) -> bool:
    """Return whether the server was created at or after `then`, within SLACK; False if its time cannot be read. `then`:
    Unix time by the cloud's clock."""
    try:
        created = datetime.datetime.fromisoformat(str(server.get("created")))
    except ValueError:
        return False
    return created.timestamp() >= then - SLACK


def unlisted(servers: Iterable[Row], ports: Iterable[Row]) -> list[str]:
    """Return the sorted IDs of servers that have ports but are not listed, because they were deleted or created
    meanwhile, or because nova omitted them."""
    listed = {str(server["id"]) for server in servers}
    owners = {
        str(port.get("device_id"))
        for port in ports
        if str(port.get("device_owner")).startswith(OF_SERVERS) and UUID.fullmatch(str(port.get("device_id")))
    }
    return sorted(owners - listed)
