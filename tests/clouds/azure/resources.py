# SPDX-License-Identifier: Apache-2.0
"""A resource group of Azure with what Nodes need: machines, scale sets, interfaces and public addresses, in the API's
form."""

from __future__ import annotations

import itertools
import uuid
from typing import Any

Row = dict[str, Any]

SUBSCRIPTION = "0b1f6471-1bf0-4dda-aec3-cb9272f09590"
#: The name of the resource group. Azure keeps the case that a person chose, and its answers spell the name in several
#: ways.
GROUP = "Kube-RG"
LOCATION = "westeurope"
BASE = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{GROUP}/providers"
SETS = f"{BASE}/Microsoft.Compute/virtualMachineScaleSets"
RUNNING = {"code": "PowerState/running", "level": "Info", "displayStatus": "VM running"}


class Group:
    """A resource group. `machines`, `interfaces`, `public`: ID -> row. `set_machines`: name of a scale set -> number in
    the set -> row. `set_interfaces`, `set_public`: name of a scale set -> ID -> row."""

    def __init__(self) -> None:
        self.machines: dict[str, Row] = {}
        self.interfaces: dict[str, Row] = {}
        self.public: dict[str, Row] = {}
        self.sets: dict[str, Row] = {}
        self.set_machines: dict[str, dict[str, Row]] = {}
        self.set_interfaces: dict[str, dict[str, Row]] = {}
        self.set_public: dict[str, dict[str, Row]] = {}
        self._numbers = itertools.count(4)

    def add(self, name: str, computer: str = "", *, zone: str = "1", **properties: Any) -> Row:
        """Add a single machine, with an interface and a public address."""
        id = f"{BASE}/Microsoft.Compute/virtualMachines/{name}"
        interface = f"{BASE}/Microsoft.Network/networkInterfaces/{name}-nic"
        public = f"{BASE}/Microsoft.Network/publicIPAddresses/{name}-ip"
        number = next(self._numbers)
        self.public[public] = _public(public, number)
        self.interfaces[interface] = _interface(interface, number, public)
        row = {
            "name": name,
            "id": id,
            "type": "Microsoft.Compute/virtualMachines",
            "location": LOCATION,
            "tags": {"cluster": "kube"},
            "properties": {
                "hardwareProfile": {"vmSize": "Standard_D4s_v3"},
                **_properties(computer or name, interface),
                **properties,
            },
        }
        if zone:
            row["zones"] = [zone]
        self.machines[id] = row
        return row

    def add_set(self, name: str, mode: str = "Uniform") -> Row:
        row = {
            "name": name,
            "id": f"{SETS}/{name}",
            "type": "Microsoft.Compute/virtualMachineScaleSets",
            "location": LOCATION,
            "sku": {"name": "Standard_D8s_v3", "tier": "Standard", "capacity": 3},
            "properties": {"orchestrationMode": mode, "provisioningState": "Succeeded"},
        }
        self.sets[name] = row
        self.set_machines[name], self.set_interfaces[name], self.set_public[name] = {}, {}, {}
        return row

    def add_to_set(self, name: str, computer: str) -> Row:
        """Add a machine to a uniform scale set. Its number is used only once."""
        number = next(self._numbers)
        id = f"{SETS}/{name}/virtualMachines/{number}"
        interface = f"{id}/networkInterfaces/{name}-nic"
        public = f"{interface}/ipConfigurations/ipconfig1/publicIPAddresses/{name}-ip"
        self.set_public[name][public] = _public(public, number)
        self.set_interfaces[name][interface] = _interface(interface, number, public)
        row = {
            "name": f"{name}_{number}",
            # The list of a scale set spells the resource group in upper case.
            "id": id.replace(GROUP, GROUP.upper()),
            "type": "Microsoft.Compute/virtualMachineScaleSets/virtualMachines",
            "location": LOCATION,
            "instanceId": str(number),
            "sku": {"name": "Standard_D8s_v3", "tier": "Standard"},
            "tags": {"cluster": "kube"},
            "properties": {"latestModelApplied": True, **_properties(computer, interface)},
        }
        self.set_machines[name][str(number)] = row
        return row

    def remove(self, provider_id: str) -> None:
        """Remove a machine of either kind. Interface and address of a single machine stay."""
        key = provider_id.removeprefix("azure://").lower()
        for rows in (self.machines, *self.set_machines.values()):
            for name, row in list(rows.items()):
                if row["id"].lower() == key:
                    del rows[name]
        for of_set in self.set_interfaces.values(), self.set_public.values():
            for rows in of_set:
                for name in [each for each in rows if each.lower().startswith(f"{key}/")]:
                    del rows[name]

    def row(self, provider_id: str) -> Row:
        key = provider_id.removeprefix("azure://").lower()
        rows = [row for rows in (self.machines, *self.set_machines.values()) for row in rows.values()]
        return next(row for row in rows if row["id"].lower() == key)


def _properties(computer: str, interface: str) -> Row:
    return {
        "vmId": str(uuid.uuid4()),
        "provisioningState": "Succeeded",
        "osProfile": {"computerName": computer, "adminUsername": "kube"},
        "networkProfile": {"networkInterfaces": [{"id": interface, "properties": {"primary": True}}]},
        "instanceView": {
            "platformFaultDomain": 1,
            "statuses": [{"code": "ProvisioningState/succeeded", "level": "Info"}, RUNNING],
        },
    }


def _interface(id: str, number: int, public: str) -> Row:
    return {
        "name": id.rpartition("/")[2],
        "id": id,
        "etag": 'W/"1"',
        "properties": {
            "provisioningState": "Succeeded",
            "primary": True,
            "ipConfigurations": [
                {
                    "name": "ipconfig1",
                    "id": f"{id}/ipConfigurations/ipconfig1",
                    "properties": {
                        "privateIPAddress": f"10.240.{number // 250}.{number % 250 + 4}",
                        "privateIPAddressVersion": "IPv4",
                        "privateIPAllocationMethod": "Dynamic",
                        "primary": True,
                        "publicIPAddress": {"id": public},
                    },
                }
            ],
        },
    }


def _public(id: str, number: int) -> Row:
    return {
        "name": id.rpartition("/")[2],
        "id": id,
        "properties": {
            "provisioningState": "Succeeded",
            "ipAddress": f"203.0.{113 + number // 250}.{number % 250 + 1}",
            "publicIPAddressVersion": "IPv4",
            "publicIPAllocationMethod": "Static",
        },
    }
