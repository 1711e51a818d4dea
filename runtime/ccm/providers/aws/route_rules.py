# SPDX-License-Identifier: Apache-2.0
"""Decides which routes of several tables lead to Nodes, and which tables do not have a route. Pure.

The same routes are in every table of the cluster. Routes to gateways, peerings and other VPCs belong to somebody else.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ccm.cloud import Route, Transient

from .instance_rules import Row, device_index, instance_id, provider_id

#: Keys of a route whose target is not an instance.
FOREIGN = (
    "NatGatewayId",
    "TransitGatewayId",
    "LocalGatewayId",
    "CarrierGatewayId",
    "VpcPeeringConnectionId",
    "EgressOnlyInternetGatewayId",
    "CoreNetworkArn",
    "GatewayId",
)


@dataclass(frozen=True)
class Entry:
    """A route of one table to an instance. `instance`, `interface`: "" if EC2 does not name it."""

    table: str
    destination: str
    instance: str
    interface: str
    blackhole: bool


def entries(tables: Iterable[Row]) -> list[Entry]:
    """Return the routes to instances, and the blackholes that may have been routes to instances. Raises Transient if a
    table does not have the form that EC2's API describes."""
    entries = []
    try:
        for table in tables:
            for row in table["Routes"]:
                destination = row.get("DestinationCidrBlock") or row.get("DestinationIpv6CidrBlock")
                target = (str(row.get("InstanceId") or ""), str(row.get("NetworkInterfaceId") or ""))
                blackhole = row.get("State") == "blackhole"
                if not destination or any(row.get(each) for each in FOREIGN) or not (any(target) or blackhole):
                    continue
                entries.append(Entry(str(table["RouteTableId"]), str(destination), *target, blackhole))
    except (LookupError, TypeError, AttributeError):
        raise Transient("a route table in the answer does not have the form that EC2's API describes") from None
    return entries


def routes(
    entries: Sequence[Entry], tables: int, zones: Mapping[str, str], instances: Mapping[str, str]
) -> list[Route]:
    """Return the routes of all tables together. `tables`: the number of tables. `zones`: instance -> its zone.
    `instances`: interface -> its instance.

    A route that is missing from some tables is left out, so that it is created there. It is not left out if its
    destination has several routes. A route whose instance is gone is a blackhole, even if only some tables have it.
    """
    groups: dict[tuple[str, str, bool], list[Entry]] = {}
    for entry in entries:
        instance = entry.instance or instances.get(entry.interface, "")
        # An instance without a zone was not found, so its route leads nowhere.
        is_gone = entry.blackhole or (bool(instance) and instance not in zones)
        groups.setdefault((entry.destination, instance, is_gone), []).append(entry)
    destinations = [destination for destination, _, _ in groups]
    return [
        Route(
            destination,
            "" if is_gone or not instance else provider_id(zones[instance], instance),
            id=",".join(sorted(each.table for each in same)),
            blackhole=is_gone,
        )
        for (destination, instance, is_gone), same in groups.items()
        if is_gone or len({each.table for each in same}) == tables or destinations.count(destination) > 1
    ]


def listed_as(route: Route, entries: Iterable[Entry]) -> list[Entry]:
    """Return the entries for the destination of a listed route, in the tables in which it was listed."""
    tables = route.id.split(",")
    return [each for each in entries if each.destination == route.destination and each.table in tables]


def targets(entries: Iterable[Entry], instances: Mapping[str, str]) -> list[str]:
    """Return the instances to which the entries lead; entries that are blackholes are left out. `instances`: interface
    -> its instance."""
    ids = {each.instance or instances.get(each.interface, "") for each in entries if not each.blackhole}
    return sorted(ids - {""})


def to_delete(
    route: Route, entries: Iterable[Entry], instances: Mapping[str, str], alive: Container[str]
) -> list[Entry]:
    """Return the entries that are still the listed route, and those that lead nowhere. `entries`: the result of
    `listed_as`. `instances`: interface -> its instance. `alive`: for a route that is a blackhole, the instances that
    `targets` returned and that still exist."""
    expected = instance_id(route.provider_id) if route.provider_id else ""
    doomed = []
    for entry in entries:
        target = entry.instance or instances.get(entry.interface, "")
        is_same = bool(target) and target not in alive if route.blackhole else target == expected
        if entry.blackhole or is_same:
            doomed.append(entry)
    return doomed


def interface_of(row: Row, addresses: Sequence[str] | None) -> Row | None:
    """Return the instance's first network interface that has one of these addresses, or its first interface if
    `addresses` is None. Return None if no interface fits."""
    interfaces = sorted(row.get("NetworkInterfaces") or (), key=device_index)
    for interface in interfaces:
        own = {str(address.get("PrivateIpAddress")) for address in interface.get("PrivateIpAddresses") or ()}
        own |= {str(address.get("Ipv6Address")) for address in interface.get("Ipv6Addresses") or ()}
        if addresses is None or own & set(addresses):
            return dict(interface)
    return None


def missing_from(
    tables: Sequence[str], entries: Iterable[Entry], destination: str, target: Row
) -> tuple[list[str], list[Entry]]:
    """Return the tables without the route to this interface (`target`), and the entries for its destination that are
    blackholes or have another target."""
    instance, interface = str(target.get("InstanceId")), str(target.get("NetworkInterfaceId"))
    present = [entry for entry in entries if entry.destination == destination]
    right = [
        each for each in present if not each.blackhole and (each.interface == interface or each.instance == instance)
    ]
    has_it = {each.table for each in right}
    return [table for table in tables if table not in has_it], [each for each in present if each not in right]
