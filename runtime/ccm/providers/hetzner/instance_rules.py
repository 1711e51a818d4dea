# SPDX-License-Identifier: Apache-2.0
"""Converts a server of the cloud into an instance: providerID, addresses in order, zone and labels. Pure."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Mapping
from typing import Any

from ccm.cloud import Address, AddressType, Conflict, Instance, InstanceState, Transient

#: `hcloud://bm-1` and `hrobot://1` are Robot servers, which this provider leaves alone.
PROVIDER_ID = re.compile(r"hcloud://(?P<id>[1-9][0-9]{0,15})")
#: A label that hcloud-cloud-controller-manager writes, too.
PROVIDED_BY = "instance.hetzner.cloud/provided-by"
#: Location -> the data center that Nodes have as their zone. The API used to name this data center for each location,
#: and no longer does.
ZONES = {
    "nbg1": "nbg1-dc3",
    "hel1": "hel1-dc2",
    "fsn1": "fsn1-dc14",
    "ash": "ash-dc1",
    "hil": "hil-dc1",
    "sin": "sin-dc1",
}

Row = Mapping[str, Any]


def server_id(provider_id: str) -> int | None:
    """Return the server's ID, None for anything that is not a cloud server."""
    match = PROVIDER_ID.fullmatch(provider_id)
    return int(match["id"]) if match else None


def known_id(provider_id: str) -> int:
    """Return the server's ID. Raises Conflict for a providerID of another form."""
    if (id_ := server_id(provider_id)) is None:
        raise Conflict(f"providerID {provider_id!r} is not of the form hcloud://ID")
    return id_


def instance(row: Row, network: int, family: str, zones: bool) -> Instance:
    """Return the instance of a row of `GET /servers`. `network`: the private network's ID, 0 without one. `family`:
    which public addresses count, ipv4, ipv6 or dualstack. `zones`: whether the Node gets a zone. Raises Transient if
    the row has another shape."""
    try:
        place = row.get("location") or row["datacenter"]["location"]
        location = str(place["name"])
        name = str(row["name"])
        return Instance(
            provider_id=f"hcloud://{int(row['id'])}",
            name=name,
            aliases=() if name == name.lower() else (name.lower(),),  # a kubelet registers in lower case
            type=str(row["server_type"]["name"]),
            zone=ZONES.get(location, location) if zones else "",
            region=location,
            addresses=tuple(_addresses(row, network, family)),
            state=InstanceState.SHUTDOWN if row["status"] == "off" else InstanceState.RUNNING,
            labels={PROVIDED_BY: "cloud"},
        )
    except (LookupError, TypeError, ValueError, AttributeError):
        raise Transient("a server in the answer does not have the form that the API describes") from None


def _addresses(row: Row, network: int, family: str) -> Iterator[Address]:
    """Yield the name, then the public addresses, then the addresses in the private network. Existing Nodes have this
    order."""
    yield Address(AddressType.HOSTNAME, str(row["name"]))
    public = row["public_net"]
    if family != "ipv6" and public["ipv4"]:
        yield Address(AddressType.EXTERNAL_IP, str(ipaddress.IPv4Address(public["ipv4"]["ip"])))
    if family != "ipv4" and public["ipv6"]:
        # The cloud gives each server a /64, and the server uses the first address.
        first = ipaddress.IPv6Network(public["ipv6"]["ip"], strict=False).network_address
        yield Address(AddressType.EXTERNAL_IP, str(ipaddress.IPv6Address(int(first) | 1)))
    for address in private_addresses(row, network):
        yield Address(AddressType.INTERNAL_IP, address)


def private_addresses(row: Row, network: int) -> list[str]:
    """Return the server's addresses in this network; [] if `network` is 0."""
    return [
        str(ipaddress.ip_address(each["ip"])) for each in row["private_net"] if network and each["network"] == network
    ]
