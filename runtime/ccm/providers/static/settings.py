# SPDX-License-Identifier: Apache-2.0
"""Configuration and lists of machines of the provider `static`. No I/O.

All problems are reported at once, each with its file and line.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from ccm.cloud import Address, AddressType, Instance, InstanceState
from ccm.cloud.toolkit.located_yaml import Located, Problems, read, shown

from .inventory import inventory

NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
ID = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,125}[A-Za-z0-9])?")
LABEL_VALUE = re.compile(r"([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?")
LABEL_KEY = re.compile(r"([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
IP_TYPES = (AddressType.INTERNAL_IP, AddressType.EXTERNAL_IP)
#: A larger pool is most likely a typing error.
LARGEST_POOL = 65536

SOURCES = ("machines", "machines_file", "inventory_file")
#: Key -> its default (or whether it is required), and its meaning. docs/providers/static.md is generated from these.
KEYS = {
    "cluster": ("required", "the middle part of the providerIDs. Nodes with any other providerID are left alone"),
    "region": ("", "the region of machines that set none"),
    "zone": ("", "the zone of machines that set none"),
    "machines": ("one of these", "the machines themselves"),
    "machines_file": (
        "one of these",
        "a file with such a list, at the top level or under the key `machines`; read again when it changes",
    ),
    "inventory_file": ("one of these", "an Ansible inventory in YAML; read again when it changes"),
    "inventory_group": ("`all`", "use only the hosts of this group and its child groups"),
    "load_balancer_addresses": (
        "",
        "a list of addresses, ranges `A-B` and networks, of both families; must not contain a machine's address. If "
        "not set, this provider does not serve Services",
    ),
}
MACHINE_KEYS = {
    "name": ("required", "the Node's name, exactly"),
    "id": ("the name", "the last part of the providerID; must never be reused, such as a serial number"),
    "addresses": (
        "required",
        "IP addresses (InternalIP), or `{type, address}` with InternalIP, ExternalIP, Hostname, InternalDNS, "
        "ExternalDNS; in the order of the Node's addresses. Without a Hostname, the name is added. An InternalIP must "
        "not occur on two machines",
    ),
    "type": ("", "the label `node.kubernetes.io/instance-type`"),
    "zone": ("the file's `zone`", "the label `topology.kubernetes.io/zone`"),
    "region": ("the file's `region`", "the label `topology.kubernetes.io/region`"),
    "labels": ("", "further labels of the Node"),
    "state": (
        "`running`",
        "`shutdown`: the Node is tainted with `node.cloudprovider.kubernetes.io/shutdown` and kept; `suspended`: the "
        "same, and it is never fenced (`--fence-dead-nodes`)",
    ),
}
#: The inventory variables that are read, in addition to `ansible_host`.
VARIABLES = {f"ccm_{key}": key for key in MACHINE_KEYS}

IP = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True)
class Settings:
    """cloud.conf. `machines`: those listed in it, None if they are in `file`."""

    source: str
    cluster: str
    region: str = ""
    zone: str = ""
    machines: tuple[Instance, ...] | None = None
    file: str = ""
    is_inventory: bool = False
    inventory_group: str = "all"
    pool: tuple[IP, ...] = ()

    @classmethod
    def parse(cls, text: str, source: str) -> Settings:
        """Parse cloud.conf. Raises ConfigError with all problems."""
        problems = Problems(source)
        top = read(text, problems)
        if not isinstance(top.value, dict) and not problems.reported:
            problems.add(top, f"expected keys and values (cluster, {SOURCES[0]}), not {shown(top)}")
        if not isinstance(top.value, dict):
            problems.raise_any()
        values: dict[str, Located] = top.value
        for key in values.keys() - set(KEYS):
            problems.add(values[key], f"{key}: unknown key; known are {', '.join(KEYS)}")
        if "cluster" not in values:
            problems.add(top, "cluster: is missing; it is the middle of each providerID, static://CLUSTER/ID")
        if len([key for key in SOURCES if key in values]) != 1:
            problems.add(top, f"set exactly one of {', '.join(SOURCES)}")
        if "inventory_group" in values and "inventory_file" not in values:
            problems.add(values["inventory_group"], "inventory_group: has an effect only with inventory_file")
        take = Taker(values, problems, "")
        cluster = take.text("cluster", ID)
        region, zone = take.text("region", LABEL_VALUE), take.text("zone", LABEL_VALUE)
        file = take.text("machines_file") or take.text("inventory_file")
        defaults = cls(
            source,
            cluster,
            region,
            zone,
            file=file,
            is_inventory="inventory_file" in values,
            inventory_group=take.text("inventory_group") or "all",
            pool=_pool(values.get("load_balancer_addresses"), problems),
        )
        machines = None
        if "machines" in values:
            machines = defaults._machines(_entries(values["machines"], problems), problems)
        problems.raise_any()
        return defaults if machines is None else Settings(**{**vars(defaults), "machines": machines})

    def read_file(self, text: str) -> tuple[Instance, ...]:
        """Parse the machines in the file. Raises ConfigError with all problems, and if there is no machine at all."""
        problems = Problems(self.file)
        top = read(text, problems)
        problems.raise_any()
        if self.is_inventory:
            entries = inventory(top, self.inventory_group, problems, VARIABLES)
        else:
            if isinstance(top.value, dict) and top.value.keys() == {"machines"}:
                top = top.value["machines"]
            entries = _entries(top, problems)
        machines = self._machines(entries, problems)
        problems.raise_any()
        return machines

    def _machines(self, entries: list[Located], problems: Problems) -> tuple[Instance, ...]:
        instances: list[Instance] = []
        lines: dict[str, int] = {}
        pool = set(map(str, self.pool))
        for entry in entries:
            if (instance := self._machine(entry, problems)) is None:
                continue
            own = [address for address in instance.addresses if address.type in IP_TYPES]
            for ip in dict.fromkeys(each.address for each in own if each.address in pool):
                problem = f"{ip} is in load_balancer_addresses, which must not contain a machine's address"
                problems.add(entry, f"machine {instance.name!r}: addresses: {problem}")
            internal = [f"address {each.address!r}" for each in own if each.type is AddressType.INTERNAL_IP]
            for what in (f"name {instance.name!r}", f"id {instance.provider_id.rpartition('/')[2]!r}", *internal):
                if what in lines:
                    problems.add(entry, f"the {what} is already used by the machine in line {lines[what]}")
                lines.setdefault(what, entry.line)
            instances.append(instance)
        if not entries and not problems.reported:
            problems.add(Located(None, 1), "lists no machine at all")
        return tuple(instances)

    def _machine(self, entry: Located, problems: Problems) -> Instance | None:
        if not isinstance(entry.value, dict):
            problems.add(
                entry, f"expected a machine with keys and values, such as name and addresses, not {shown(entry)}"
            )
            return None
        before = len(problems.reported)
        text = entry.value["name"].value if "name" in entry.value else "?"
        name = text if isinstance(text, str) else "?"
        for key in entry.value.keys() - set(MACHINE_KEYS):
            known = ", ".join(MACHINE_KEYS)
            problems.add(entry.value[key], f"machine {name!r}: {key}: unknown key; known are {known}")
        take = Taker(entry.value, problems, f"machine {name!r}: ")
        for key in ("name", "addresses"):
            if key not in entry.value:
                problems.add(entry, f"machine {name!r}: {key}: is missing")
        instance = Instance(
            provider_id=f"static://{self.cluster}/{take.text('id', ID) or name}",
            name=take.text("name", NAME),
            type=take.text("type", LABEL_VALUE),
            zone=take.text("zone", LABEL_VALUE) or self.zone,
            region=take.text("region", LABEL_VALUE) or self.region,
            addresses=take.addresses(),
            state=take.state(),
            labels=take.labels(),
        )
        return instance if len(problems.reported) == before else None


@dataclass
class Taker:
    """Reads the values of one mapping. An invalid value becomes a problem; what is returned for it is not used."""

    values: Mapping[str, Located]
    problems: Problems
    where: str

    def text(self, key: str, pattern: re.Pattern[str] | None = None) -> str:
        if (value := self.values.get(key)) is None:
            return ""
        if not isinstance(value.value, str):
            return self._wrong(value, f"{key}: expected text, not {shown(value)}; put numbers in quotes")
        if "{{" in value.value:
            return self._wrong(value, f"{key}: {value.value!r} is a template; templates are not evaluated")
        if not value.value or (pattern is not None and not pattern.fullmatch(value.value)):
            return self._wrong(value, f"{key}: {value.value!r} is invalid; expected {_example(key)}")
        return value.value

    def addresses(self) -> tuple[Address, ...]:
        value = self.values.get("addresses")
        if value is None:
            return ()
        if not isinstance(value.value, list) or not value.value:
            self._wrong(value, f"addresses: expected a list of addresses, not {shown(value)}")
            return ()
        taken = [address for each in value.value if (address := self._address(each)) is not None]
        if not any(address.type is AddressType.HOSTNAME for address in taken) and "name" in self.values:
            taken.append(Address(AddressType.HOSTNAME, str(self.values["name"].value)))
        return tuple(dict.fromkeys(taken))

    def _address(self, entry: Located) -> Address | None:
        if isinstance(entry.value, str):
            kind, text = AddressType.INTERNAL_IP, entry.value
        elif isinstance(entry.value, dict) and entry.value.keys() == {"type", "address"}:
            named, text = entry.value["type"].value, entry.value["address"].value
            if named not in list(AddressType):
                self._wrong(entry, f"addresses: type {named!r} is unknown; expected one of {', '.join(AddressType)}")
                return None
            kind = AddressType(named)
        else:
            self._wrong(entry, f"addresses: expected an IP address, or type and address, not {shown(entry)}")
            return None
        if not isinstance(text, str) or not text or "{{" in text:
            hint = "; templates are not evaluated" if "{{" in str(text) else ""
            self._wrong(entry, f"addresses: {text!r} is not an address{hint}")
            return None
        if kind in IP_TYPES:
            try:
                return Address(kind, str(ipaddress.ip_address(text)))
            except ValueError:
                self._wrong(entry, f"addresses: {text!r} is not an IP address")
                return None
        return Address(kind, text)

    def state(self) -> InstanceState:
        value = self.values.get("state")
        if value is None:
            return InstanceState.RUNNING
        try:
            return InstanceState(value.value)
        except ValueError:
            choices = " or ".join(state.value for state in InstanceState)
            self._wrong(value, f"state: expected {choices}, not {shown(value)}")
            return InstanceState.RUNNING

    def labels(self) -> dict[str, str]:
        section = self.values.get("labels")
        if section is None:
            return {}
        if not isinstance(section.value, dict):
            self._wrong(section, f"labels: expected keys and values, not {shown(section)}")
            return {}
        for key, value in section.value.items():
            if not LABEL_KEY.fullmatch(key):
                self._wrong(value, f"labels: {key!r} is not a valid label key")
            elif not isinstance(value.value, str) or not LABEL_VALUE.fullmatch(value.value):
                self._wrong(value, f"labels: {key}: {value.value!r} is not a valid label value (put numbers in quotes)")
        return {key: str(value.value) for key, value in section.value.items()}

    def _wrong(self, where: Located, text: str) -> str:
        self.problems.add(where, f"{self.where}{text}")
        return ""


def _example(key: str) -> str:
    return {
        "name": "the Node's name, e.g. worker-1",
        "id": "letters, digits, dashes, e.g. 4C4C4544-0042",
        "cluster": "letters, digits, dashes, e.g. cellar",
    }.get(key, "the value of a label, e.g. rack-1")


def _entries(machines: Located, problems: Problems) -> list[Located]:
    if isinstance(machines.value, list):
        return machines.value
    problems.add(machines, f"machines: expected a list of machines, not {shown(machines)}")
    return []


def _pool(entries: Located | None, problems: Problems) -> tuple[IP, ...]:
    """Parse addresses, ranges A-B, and networks. A network stands for all its host addresses. An entry that cannot be
    parsed becomes a problem."""
    if entries is None:
        return ()
    if not isinstance(entries.value, list) or not entries.value:
        problems.add(entries, "load_balancer_addresses: expected a list of addresses, ranges A-B, or networks")
        return ()
    addresses: dict[IP, None] = {}
    for entry in entries.value:
        if not isinstance(entry.value, str):
            problems.add(entry, f"load_balancer_addresses: expected text, not {shown(entry)}")
            continue
        try:
            for address in _range(entry.value.replace(" ", "")):
                addresses[address] = None
                if len(addresses) > LARGEST_POOL:
                    raise ValueError(f"more than {LARGEST_POOL} addresses")
        except ValueError as error:
            problems.add(entry, f"load_balancer_addresses: {entry.value!r}: {error}")
    return tuple(addresses)


def _range(text: str) -> Iterator[IP]:
    first, dash, last = text.partition("-")
    if not dash:
        yield from ipaddress.ip_network(text).hosts()
        return
    start, end = ipaddress.ip_address(first), ipaddress.ip_address(last)
    if start.version != end.version or int(start) > int(end):
        raise ValueError("the range must go from a lower to a higher address of the same family")
    make: Callable[[int], IP] = ipaddress.IPv4Address if start.version == 4 else ipaddress.IPv6Address
    yield from map(make, range(int(start), int(end) + 1))
