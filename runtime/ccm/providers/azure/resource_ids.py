# SPDX-License-Identifier: Apache-2.0
"""Parses IDs of Azure's resources and providerIDs, and compares them without regard to case, as Azure does. Pure."""

from __future__ import annotations

import re
from typing import NamedTuple

_GROUP = r"/subscriptions/(?P<subscription>[^/\s]+)/resourceGroups/(?P<group>[^/\s]+)/providers/Microsoft\.Compute"
MACHINE = re.compile(
    rf"(?:azure://)?{_GROUP}(?:/virtualMachineScaleSets/(?P<scale_set>[^/\s]+))?/virtualMachines/(?P<name>[^/\s]+)",
    re.IGNORECASE,
)
PREFIX = "azure://"


class MachineId(NamedTuple):
    """The ID of a virtual machine. `scale_set`: "" for a machine outside of uniform sets; otherwise `name` is the
    machine's number in the set."""

    subscription: str
    group: str
    scale_set: str
    name: str

    @property
    def path(self) -> str:
        """The machine's path in the API."""
        within = f"/virtualMachineScaleSets/{self.scale_set}" if self.scale_set else ""
        return f"{group_path(self.subscription, self.group)}/Microsoft.Compute{within}/virtualMachines/{self.name}"

    @property
    def provider_id(self) -> str:
        """The machine's providerID, as cloud-provider-azure writes it: the resource group in lower case, names as Azure
        spells them."""
        return f"{PREFIX}{self.path}"

    @property
    def key(self) -> str:
        """A text that is the same for all spellings of the ID."""
        return self.provider_id.lower()


def machine_id(text: str) -> MachineId | None:
    """Return the parts of a machine's ID or providerID, None for anything else."""
    match = MACHINE.fullmatch(text)
    if match is None:
        return None
    return MachineId(match["subscription"].lower(), match["group"].lower(), match["scale_set"] or "", match["name"])


def of_provider_id(text: str) -> MachineId | None:
    """Return the parts of a providerID, None for anything else."""
    return machine_id(text) if text.startswith(PREFIX) else None


def group_path(subscription: str, group: str) -> str:
    return f"/subscriptions/{subscription}/resourceGroups/{group}/providers"


def is_same(first: str, second: str) -> bool:
    return first.lower() == second.lower()
