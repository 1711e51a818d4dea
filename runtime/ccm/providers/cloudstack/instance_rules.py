# SPDX-License-Identifier: Apache-2.0
"""Converts a virtual machine into an instance: providerID, addresses in order, zone and type. Pure."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Mapping
from typing import Any

from ccm.cloud import Address, AddressType, Conflict, Instance, InstanceState, Transient

Row = Mapping[str, Any]

PREFIX = "external-cloudstack://"
#: The scheme that Kubernetes' in-tree provider wrote, until about 1.15.
IN_TREE = "cloudstack://"
#: IDs of the first releases of CloudStack are numbers.
ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[1-9][0-9]{0,15}", re.ASCII)
#: States in which a machine does not run. A machine that is Destroyed can be recovered, and a machine that is Expunging
#: exists until the API no longer lists it.
SHUT_DOWN = frozenset({"Stopped", "Shutdown", "Destroyed", "Expunging", "Error"})
#: Characters that Kubernetes does not accept in the value of a label.
UNFIT = re.compile(r"[^A-Za-z0-9_.-]+")
LONGEST = 63


def machine_id(provider_id: str) -> str | None:
    """Return the machine's ID, None for any other providerID."""
    for prefix in (PREFIX, IN_TREE):
        if provider_id.startswith(prefix) and ID.fullmatch(id_ := provider_id.removeprefix(prefix)):
            return id_
    return None


def known_id(provider_id: str) -> str:
    """Return the machine's ID. Raises Conflict for a providerID of another form."""
    if (id_ := machine_id(provider_id)) is None:
        raise Conflict(f"providerID {provider_id!r} is not of the form {PREFIX}ID")
    return id_


def instance(row: Row, region: str) -> Instance:
    """Return the instance of a row of `listVirtualMachines`. `region`: as configured, "" without one. Raises Transient
    if the row has another shape."""
    try:
        name, zone = str(row["name"]), label(str(row["zonename"]))
        if not ID.fullmatch(str(row["id"])):
            raise ValueError("the ID has another form")
        addresses_of_row = tuple(_addresses(row))
        state = InstanceState.SHUTDOWN if str(row["state"]) in SHUT_DOWN else InstanceState.RUNNING
        # Keep the order of cloudstack-kubernetes-provider.
        addresses = (*addresses_of_row[:1], Address(AddressType.HOSTNAME, name), *addresses_of_row[1:])
        return Instance(
            provider_id=f"{PREFIX}{row['id']}",
            name=name,
            type=instance_type(str(row.get("serviceofferingname") or "")),
            zone=zone,
            region=label(region) or zone,
            addresses=addresses,
            state=state,
            aliases=() if name == name.lower() else (name.lower(),),
            incomplete="" if addresses_of_row else "the cloud reports no address of the machine yet",
        )
    except (LookupError, TypeError, ValueError, AttributeError):
        raise Transient("a virtual machine in the answer does not have the form that the API describes") from None


def networks(row: Row) -> tuple[str, ...]:
    """Return the IDs of the networks in which the machine has an interface, in the order of its interfaces. Raises
    Transient if the row has another form."""
    try:
        return tuple(str(each["networkid"]) for each in row.get("nic") or ())
    except (LookupError, TypeError, AttributeError):
        raise Transient("a virtual machine in the answer does not have the form that the API describes") from None


def instance_type(offering: str) -> str:
    """Return the service offering's name as cloudstack-kubernetes-provider writes it: letters and digits only."""
    return re.sub(r"[^A-Za-z0-9]", "", offering)[:LONGEST]


def label(text: str) -> str:
    """Return the text as the value of a label: other characters become dashes, and the value ends after `LONGEST`
    characters."""
    return UNFIT.sub("-", text)[:LONGEST].strip("-_.")


def _addresses(row: Row) -> Iterator[Address]:
    """Yield the addresses of the interfaces, in their order, IPv4 before IPv6, then the public address of static NAT,
    if there is one. No address is repeated."""
    yielded = set()
    for nic in row.get("nic") or ():
        for key in ("ipaddress", "ip6address"):
            if nic.get(key) and (each := str(ipaddress.ip_address(nic[key]))) not in yielded:
                yielded.add(each)
                yield Address(AddressType.INTERNAL_IP, each)
    if row.get("publicip") and (each := str(ipaddress.ip_address(row["publicip"]))) not in yielded:
        yield Address(AddressType.EXTERNAL_IP, each)
