# SPDX-License-Identifier: Apache-2.0
"""Converts virtual machines of Azure, standalone or in a scale set, to the contract's instances. Pure.

A row is a machine, a network interface or a public address, in the form of the API.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ccm.cloud import Address, AddressType, Instance, InstanceState, Transient

from . import resource_ids

Row = Mapping[str, Any]

#: Power states of a machine that exists and does not run, as in cloud-provider-azure.
DOWN = {
    "stopped": InstanceState.SHUTDOWN,
    "deallocated": InstanceState.SHUTDOWN,
    "deallocating": InstanceState.SUSPENDED,
}
SUCCEEDED = "succeeded"
UNIFORM = "uniform"


def by_id(rows: Iterable[Row]) -> dict[str, Row]:
    """Return rows by their IDs in lower case. Raises Transient if a row has none."""
    try:
        return {str(row["id"]).lower(): row for row in rows}
    except (LookupError, TypeError, AttributeError):
        raise _other_form() from None


def uniform_sets(rows: Iterable[Row]) -> list[str]:
    """Return the sorted names of uniform scale sets. The API does not list their machines with the others. Raises
    Transient if a row has another form."""
    try:
        sets = [
            str(row["name"])
            for row in rows
            if str(row["properties"].get("orchestrationMode") or UNIFORM).lower() == UNIFORM
        ]
    except (LookupError, TypeError, AttributeError):
        raise _other_form() from None
    return sorted(sets)


def view_of(row: Row, status: Row | None) -> Row | None:
    """Return the run-time view of a machine from its row in the list of statuses, None if the machine must be read by
    itself, because that list has no view of it, or because the machine needs a fault domain and its view has none.
    Raises Transient if a row has another form."""
    try:
        view = (status or {}).get("properties", {}).get("instanceView")
        properties = row["properties"]
        grouped = properties.get("availabilitySet") or properties.get("virtualMachineScaleSet")
        if not view or (grouped and not row.get("zones") and view.get("platformFaultDomain") is None):
            return None
        return dict(view)
    except (LookupError, TypeError, ValueError, AttributeError):
        raise _other_form() from None


def with_view(row: Row, view: Row) -> Row:
    return {**row, "properties": {**row["properties"], "instanceView": view}}


def primary_interface(row: Row) -> str:
    """Return the ID of the machine's primary network interface, "" if it has none yet. Raises Transient if the row has
    another form."""
    try:
        interfaces = (row["properties"].get("networkProfile") or {}).get("networkInterfaces") or []
        chosen = [each for each in interfaces if (each.get("properties") or {}).get("primary")] or interfaces[:1]
        return str(chosen[0]["id"]) if chosen else ""
    except (LookupError, TypeError, AttributeError):
        raise _other_form() from None


def public_addresses(interface: Row) -> list[str]:
    """Return the IDs of public addresses that belong to an interface. Raises Transient if the row has another form."""
    try:
        references = [
            configuration["properties"].get("publicIPAddress") for configuration in _configurations(interface)
        ]
        return [str(each["id"]) for each in references if each]
    except (LookupError, TypeError, AttributeError):
        raise _other_form() from None


def instance(row: Row, interface: Row | None, public: Mapping[str, Row]) -> Instance:
    """Return the instance of a machine's row. `interface`: the machine's primary network interface, None if Azure shows
    none. `public`: public addresses by their IDs in lower case. Raises Transient if a row has another shape."""
    try:
        id = resource_ids.machine_id(str(row["id"]))
        if id is None:
            raise ValueError
        properties = row["properties"]
        own = "" if id.scale_set else str(row["name"]).lower()
        name = str((properties.get("osProfile") or {}).get("computerName") or own).lower()
        ips = list(_addresses(interface, public)) if interface is not None else []
        zone, region = _zone(row, bool(id.scale_set)), str(row["location"]).lower()
        missing = "no address" if not ips else "no fault domain" if not zone else "" if name else "no name"
        return Instance(
            provider_id=id.provider_id,
            name=name or f"{id.scale_set}_{id.name}".lower(),
            aliases=(own,) if own and own != name else (),
            type=str(row["sku"]["name"] if id.scale_set else properties["hardwareProfile"]["vmSize"]),
            zone=zone,
            region=region,
            addresses=(Address(AddressType.HOSTNAME, name), *ips) if name else tuple(ips),
            state=_state(properties),
            incomplete=f"Azure shows {missing} of it yet" if missing else "",
        )
    except (LookupError, TypeError, ValueError, AttributeError):
        raise _other_form() from None


def _state(properties: Row) -> InstanceState:
    """Return the machine's state. As in cloud-provider-azure, a machine whose last change did not succeed counts as
    running."""
    view = properties.get("instanceView") or {}
    codes = [str(status.get("code") or "") for status in view.get("statuses") or ()]
    power = next((code.partition("/")[2].lower() for code in codes if code.lower().startswith("powerstate/")), "")
    settled = str(properties.get("provisioningState") or "").lower() == SUCCEEDED
    return DOWN.get(power, InstanceState.RUNNING) if settled else InstanceState.RUNNING


def _zone(row: Row, in_set: bool) -> str:
    """Return `REGION-N` for an availability zone, else the number of the fault domain. If Azure reports no fault
    domain, return "" for a machine in a uniform set, whose domain is not known yet, and "0" for others."""
    if zones := row.get("zones"):
        return f"{str(row['location']).lower()}-{int(zones[0])}"
    domain = (row["properties"].get("instanceView") or {}).get("platformFaultDomain")
    if domain is None:
        return "" if in_set else "0"
    return str(int(domain))


def _addresses(interface: Row, public: Mapping[str, Row]) -> Iterator[Address]:
    """Yield for each family the first private address, preferably of the primary configuration, and its public one.
    cloud-node-manager reads the same addresses from the machine's metadata. Raises ValueError for a text that is no
    address."""
    configurations = sorted(_configurations(interface), key=lambda each: not each["properties"].get("primary"))
    for version in (4, 6):
        for configuration in configurations:
            private = configuration["properties"].get("privateIPAddress")
            if not private or ipaddress.ip_address(str(private)).version != version:
                continue
            yield Address(AddressType.INTERNAL_IP, str(private))
            reference = configuration["properties"].get("publicIPAddress")
            resource = public.get(str(reference["id"]).lower()) if reference else None
            if resource is not None and (text := resource["properties"].get("ipAddress")):
                ipaddress.ip_address(str(text))
                yield Address(AddressType.EXTERNAL_IP, str(text))
            break


def _configurations(interface: Row) -> list[Row]:
    return list(interface["properties"].get("ipConfigurations") or ())


def _other_form() -> Transient:
    return Transient("a row in the answer does not have the form that Azure's API describes")
