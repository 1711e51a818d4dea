# SPDX-License-Identifier: Apache-2.0
"""Converts instances of Compute Engine: providerID, names, addresses in order, zone and type. Pure."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from ccm.cloud import Address, AddressType, Instance, InstanceState, Transient
from ccm.cloud.toolkit.json_api import Failure
from ccm.cloud.toolkit.pod_ranges import pod_ranges

PROVIDER_ID = re.compile(r"gce://(?P<project>[a-z0-9.:-]+)/(?P<zone>[a-z0-9-]+)/(?P<name>[a-z0-9-]+)")
#: Names that an instance can have, without and with a domain.
NAME = re.compile(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?")
DOTTED = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
#: States of an instance that exists and does not run. STOPPING is not one of them, because it may be a deletion.
DOWN = {
    "STOPPED": InstanceState.SHUTDOWN,
    "TERMINATED": InstanceState.SHUTDOWN,
    "SUSPENDED": InstanceState.SUSPENDED,
}
#: The code of a 404 about the instance itself.
MISSING = "notFound"
#: Our own code for a 404 about what contains the instance, such as the project.
ELSEWHERE = "notFound elsewhere"
#: Prefix length of the IPv6 range for Pods: the first range of this length in the range that an interface has.
POD_PREFIX = 112
LISTING = "compute#instanceAggregatedList"
#: The only warning that does not mean missing rows: the scope has no rows.
EMPTY = "NO_RESULTS_ON_PAGE"
#: The maximum number of unreachable zones that a message names.
NAMED = 5

Row = Mapping[str, Any]


class Place(NamedTuple):
    project: str
    zone: str
    name: str

    def __str__(self) -> str:
        return f"gce://{self.project}/{self.zone}/{self.name}"


def place(provider_id: str) -> Place | None:
    """Return the parts of a providerID, None for anything else."""
    match = PROVIDER_ID.fullmatch(provider_id)
    return Place(*match.groups()) if match else None


@dataclass(frozen=True)
class Scope:
    """The project, and the zones whose instances are found by their names: `zone`, or its whole region; without a zone,
    all zones. An instance is found by its providerID in any zone, as in cloud-provider-gcp."""

    project: str
    zone: str = ""
    regional: bool = False

    def covers(self, zone: str) -> bool:
        if not self.zone:
            return True
        return region_of(zone) == region_of(self.zone) if self.regional else zone == self.zone

    def __str__(self) -> str:
        if not self.zone:
            return f"project {self.project}"
        where = f"region {region_of(self.zone)}" if self.regional else f"zone {self.zone}"
        return f"{where} of project {self.project}"


def region_of(zone: str) -> str:
    """Return the region of a zone: `europe-west1` for `europe-west1-b`."""
    return zone.rpartition("-")[0]


def instance(row: Row, scope: Scope, ipv6_first: bool) -> Instance:
    """Return the instance of a row. Raises Transient if the row has another shape."""
    try:
        name, zone = str(row["name"]), _last(row["zone"])
        location = place(f"gce://{scope.project}/{zone}/{name}")
        if location is None or not isinstance(row["status"], str):
            raise ValueError
        addresses = ordered(_addresses(row), ipv6_first)
        first, *more = names(row, location, scope)
        return Instance(
            provider_id=str(location),
            name=first,
            aliases=tuple(more),
            type=_last(row["machineType"]),
            zone=zone,
            region=region_of(zone),
            addresses=addresses,
            state=DOWN.get(str(row["status"]), InstanceState.RUNNING),
            incomplete="" if addresses else "Compute Engine shows no address of it yet",
            pod_cidrs=pod_ranges(_alias_ranges(row)),
        )
    except (LookupError, TypeError, ValueError, AttributeError):
        raise Transient("an instance in the answer does not have the form that the API describes") from None


def names(row: Row, place: Place, scope: Scope) -> list[str]:
    """Return the name, the host name that a user chose, and the internal DNS names, zonal and global. An instance
    outside of the scope has only its zonal DNS name, because an instance inside may have the same name."""
    organisation, _, project = place.project.rpartition(":")
    domain = f"c.{project}{'.' if organisation else ''}{organisation}.internal"
    zonal = f"{place.name}.{place.zone}.{domain}"
    if not scope.covers(place.zone):
        return [zonal]
    chosen = str(row.get("hostname") or place.name)
    return list(dict.fromkeys([place.name, chosen, zonal, f"{place.name}.{domain}"]))


def ordered(addresses: Iterator[Address], ipv6_first: bool) -> tuple[Address, ...]:
    """Sort addresses by family, and keep the interfaces' order within a family, because Nodes already have this
    order."""
    return tuple(sorted(addresses, key=lambda each: (":" in each.address) != ipv6_first))


def _addresses(row: Row) -> Iterator[Address]:
    """Yield the addresses of all interfaces, in order. Raises ValueError for a text that is no address."""
    for interface in row.get("networkInterfaces") or ():
        if text := interface.get("networkIP"):
            yield _address(AddressType.INTERNAL_IP, text)
        for access_config in interface.get("accessConfigs") or ():
            if text := access_config.get("natIP"):
                yield _address(AddressType.EXTERNAL_IP, text)
        if text := _ipv6_of(interface):
            yield _address(AddressType.INTERNAL_IP, text)


def _ipv6_of(interface: Row) -> Any:
    """Return the IPv6 address, None or "" without one. As in cloud-provider-gcp, an external IPv6 address becomes an
    InternalIP, because the interface has no internal one."""
    if (text := interface.get("ipv6Address")) or interface.get("ipv6AccessType") != "EXTERNAL":
        return text
    return next(
        (
            ipv6_access_config.get("externalIpv6")
            for ipv6_access_config in reversed(interface.get("ipv6AccessConfigs") or [])
        ),
        "",
    )


def _alias_ranges(row: Row) -> Iterator[object]:
    """Yield the ranges for Pods that Compute Engine delivers without routes, as cloud-provider-gcp uses them: the alias
    IP ranges of every interface, and the first /112 of the IPv6 range that an interface has."""
    for interface in row.get("networkInterfaces") or ():
        for alias_ip_range_ in interface.get("aliasIpRanges") or ():
            yield alias_ip_range_.get("ipCidrRange")
        if text := _ipv6_of(interface):
            yield ipaddress.ip_network(f"{text}/{POD_PREFIX}", strict=False)


def _address(kind: AddressType, text: Any) -> Address:
    """Return an address in the cloud's spelling, which Nodes already have. Raises ValueError for any other text."""
    ipaddress.ip_address(str(text))
    return Address(kind, str(text))


class Listing(NamedTuple):
    """One page. `unreachable`: why rows may be missing, according to Compute Engine; "" if none can be missing."""

    rows: list[Row]
    next: str | None
    unreachable: str


def listing(answer: Any) -> Listing:
    """Parse a page of the aggregated list. Raises Transient if the answer has another shape."""
    try:
        if answer["kind"] != LISTING:
            raise ValueError
        scopes = answer.get("items") or {}
        rows = [row for scope in scopes.values() for row in scope.get("instances") or ()]
        warnings = [(each, scope.get("warning")) for each, scope in scopes.items()]
        doubts = [_doubt(name, warning) for name, warning in [("", answer.get("warning")), *warnings]]
        doubts += [_last(each) for each in answer.get("unreachables") or ()]
        following = answer.get("nextPageToken") or None
        if not isinstance(following, str | None):
            raise TypeError
    except (LookupError, TypeError, ValueError, AttributeError):
        raise Transient("the answer is not a list of instances as the API describes it") from None
    problems = list(filter(None, doubts))
    more = f"; and {len(problems) - NAMED} more" if len(problems) > NAMED else ""
    return Listing(rows, following, "; ".join(problems[:NAMED]) + more)


def _doubt(name: str, warning: Any) -> str:
    """Return why rows of a scope may be missing, "" if none can be missing."""
    if not warning or warning["code"] == EMPTY:
        return ""
    return f"{_last(name) or 'the project'}: {warning['code']}"


def failure(answer: Any) -> Failure:
    """Return the API's error. A 404 that is not about the instance, but about what contains the instance, gets the code
    ELSEWHERE."""
    error = answer["error"]
    message = str(error["message"])
    code = str(error["errors"][0]["reason"])
    named = re.search(r"The resource '(?P<path>[^']*)' was not found", message)
    if code == MISSING and named and not re.search(r"/instances/[^/]+$", named["path"]):
        code = ELSEWHERE
    return Failure(code, message)


def _last(url: Any) -> str:
    if not isinstance(url, str):
        raise TypeError
    return url.rpartition("/")[2]
