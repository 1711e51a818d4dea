# SPDX-License-Identifier: Apache-2.0
"""Converts machines of vCenters to the contract's instances. No I/O.

providerIDs, addresses, types and labels equal those of cloud-provider-vsphere, so that Nodes do not change when this
provider takes over.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ccm.cloud import Address, AddressType, Instance, InstanceState
from ccm.cloud.toolkit.untrusted_text import printable, shorten

from . import address_rules
from .address_rules import Nic
from .guest_systems import guest_system
from .settings_sections import Nodes
from .zone_rules import Place

SCHEME = "vsphere://"
UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII)
LABEL_VALUE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?", re.ASCII)
#: The reference of a machine in a name that no Node can have: "template (vm-12)".
UNNAMED = re.compile(r".* \((?P<id>[A-Za-z0-9_-]+)\)", re.DOTALL)
#: How many characters of a machine's name messages show.
SHOWN = 100
POWERED_ON = "poweredOn"
#: Machines in vCenter's other states count as suspended: they may continue with their memory.
STATES = {POWERED_ON: InstanceState.RUNNING, "poweredOff": InstanceState.SHUTDOWN}


@dataclass(frozen=True, slots=True)
class Machine:
    """A virtual machine as one vCenter describes it.

    `vcenter`: the vCenter's name in the configuration. `id`: the machine's reference there, such as `vm-12`. `uuid`:
    its SMBIOS UUID in lower case, "" if it is not known. `host_name`: that of the guest, "" without guest tools.
    `families`: the IP families that its vCenter's Nodes use.
    """

    vcenter: str
    id: str
    uuid: str
    inventory_name: str
    place: Place
    power: str = POWERED_ON
    is_template: bool = False
    host_name: str = ""
    guest_id: str = ""
    cpus: int = 0
    memory_mb: int = 0
    nics: tuple[Nic, ...] = ()
    metadata: str = ""
    metadata_encoding: str = ""
    families: tuple[str, ...] = ("ipv4",)

    @property
    def name(self) -> str:
        """The name by which a Node may find the machine. A template, or a machine without guest tools, gets a name that
        no Node can have, so that it is never taken for another machine."""
        if self.host_name and not self.is_template:
            return self.host_name
        return f"{shorten(printable(self.inventory_name), SHOWN)} ({self.id})"

    @property
    def rank(self) -> tuple[bool, bool]:
        """The key that sorts machines with the same UUID: running ones first, templates last."""
        return (self.is_template, self.power != POWERED_ON)


def provider_id(uuid: str) -> str:
    return f"{SCHEME}{uuid}"


def uuid_of(spelt: str) -> str | None:
    """Return the UUID in a providerID of any spelling; None if the providerID belongs to another cloud."""
    uuid = spelt.removeprefix(SCHEME).lower()
    return uuid if spelt.startswith(SCHEME) and UUID.fullmatch(uuid) else None


def other_byte_order(uuid: str) -> str:
    """Return the UUID with its first three parts in the other byte order: kernels read them from SMBIOS differently."""
    parts = uuid.split("-")
    swapped = [bytes.fromhex(part)[::-1].hex() for part in parts[:3]]
    return "-".join((*swapped, *parts[3:]))


def spellings(system_uuid: str) -> tuple[str, ...]:
    """Return the UUIDs that a machine may have if its kubelet reports this one; () if the text is not a UUID."""
    uuid = system_uuid.lower()
    return (uuid, other_byte_order(uuid)) if UUID.fullmatch(uuid) else ()


def instances(
    machines: Iterable[Machine], places: Mapping[Machine, tuple[str, str] | None] | None, nodes: Nodes
) -> list[Instance]:
    """Return one instance for each UUID. `places`: zone and region of each machine; None if Nodes get neither."""
    same: dict[str, list[Machine]] = {}
    for machine in machines:
        if machine.uuid:
            same.setdefault(machine.uuid, []).append(machine)
    described = []
    for several in same.values():
        ranked = sorted(several, key=lambda each: (each.rank, each.vcenter, each.id))
        doubles = [each for each in ranked[1:] if each.rank == ranked[0].rank]
        place = ("", "") if places is None else places.get(ranked[0])
        described.append(_instance(ranked[0], doubles, place, nodes))
    return described


def _instance(machine: Machine, doubles: Sequence[Machine], place: tuple[str, str] | None, nodes: Nodes) -> Instance:
    zone, region = place or ("", "")
    chosen = address_rules.choose(machine.nics, machine.families, nodes, machine.metadata, machine.metadata_encoding)
    incomplete = _problem(machine, doubles, chosen.problem, place, (zone, region))
    hostname = Address(AddressType.HOSTNAME, machine.host_name)
    has_addresses = not chosen.problem and machine.host_name and not doubles
    return Instance(
        provider_id=provider_id(machine.uuid),
        name=machine.name,
        type=instance_type(machine),
        zone=_label(zone),
        region=_label(region),
        addresses=(hostname, *chosen.addresses) if has_addresses else (),
        state=STATES.get(machine.power, InstanceState.SUSPENDED),
        warnings=chosen.warnings,
        system_uuids=(machine.uuid, other_byte_order(machine.uuid)),
        incomplete=incomplete,
    )


def _problem(
    machine: Machine, doubles: Sequence[Machine], addresses: str, place: tuple[str, str] | None, names: tuple[str, str]
) -> str:
    """Return why no Node can be initialised from the machine, "" if one can."""
    what = f"virtual machine {shorten(printable(machine.inventory_name), SHOWN)!r} of {machine.vcenter}"
    if doubles:
        others = ", ".join(f"{double.id} of {double.vcenter}" for double in doubles[:5])
        return f"{what}: other machines have the same UUID ({others}): give each one its own uuid.bios"
    if machine.is_template:
        return f"{what} is a template"
    if not machine.host_name:
        return f"{what}: VMware Tools report no host name: install or start them"
    if addresses:
        return f"{what}: {addresses}"
    if place is None:
        return (
            f"{what}: its host, its resource pool and its folders have no tags of both categories for zone and region"
        )
    if wrong := [name for name in names if name and not LABEL_VALUE.fullmatch(name)]:
        return f"{what}: the tag {wrong[0]!r} is not a valid value for a Node's label: rename it"
    return ""


def instance_type(machine: Machine) -> str:
    """Return the label of the type: processors, memory in whole GiB, and the guest system."""
    memory, system = machine.memory_mb // 1024, guest_system(machine.guest_id)
    return f"vsphere-vm.cpu-{machine.cpus}.mem-{memory}gb.os-{system}"


def _label(name: str) -> str:
    return name if LABEL_VALUE.fullmatch(name) else ""
