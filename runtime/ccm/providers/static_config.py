# SPDX-License-Identifier: Apache-2.0
"""What the provider `static` reads: its configuration, lists of machines, and Ansible inventories. Pure.

Everything that is wrong is told at once, each with its file and line.
"""

from __future__ import annotations

import ipaddress
import re
import string
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from ccm.cloud import Address, AddressType, ConfigError, Instance, InstanceState

NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
ID = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,125}[A-Za-z0-9])?")
LABEL_VALUE = re.compile(r"([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?")
LABEL_KEY = re.compile(r"([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
IP_TYPES = (AddressType.INTERNAL_IP, AddressType.EXTERNAL_IP)
#: More addresses are a slip of the pen.
LARGEST_POOL = 65536

SOURCES = ("machines", "machines_file", "inventory_file")
#: Key -> whether it is needed or what it is without, and what it means: docs/providers/static.md is made of these.
KEYS = {
    "cluster": ("required", "the middle of the providerIDs. Nodes with any other providerID are left alone"),
    "region": ("", "of machines that name none"),
    "zone": ("", "of machines that name none"),
    "machines": ("one of these", "the machines themselves"),
    "machines_file": (
        "one of these",
        "a file with such a list, alone or under the key `machines`; followed while it changes",
    ),
    "inventory_file": ("one of these", "an Ansible inventory in YAML; followed while it changes"),
    "inventory_group": ("`all`", "only the hosts of this group, and of the groups in it"),
    "load_balancer_addresses": (
        "",
        "a list of addresses, ranges `A-B` and networks, of both families, none of them a machine's; without it "
        "Services are somebody else's",
    ),
}
MACHINE_KEYS = {
    "name": ("required", "the Node's name, exactly"),
    "id": ("the name", "the end of the providerID; something that no other machine will ever have: a serial number"),
    "addresses": (
        "required",
        "IP addresses (InternalIP), or `{type, address}` with InternalIP, ExternalIP, Hostname, InternalDNS, "
        "ExternalDNS; in the order in which the Node shall have them. Without a Hostname, the name is added. No two "
        "machines have one InternalIP",
    ),
    "type": ("", "the label `node.kubernetes.io/instance-type`"),
    "zone": ("the file's", "the label `topology.kubernetes.io/zone`"),
    "region": ("the file's", "the label `topology.kubernetes.io/region`"),
    "labels": ("", "further labels of the Node"),
    "state": (
        "`running`",
        "`shutdown`: the Node is tainted with `node.cloudprovider.kubernetes.io/shutdown` and kept",
    ),
}
#: The variables of an inventory that are read, besides `ansible_host`.
VARIABLES = {f"ccm_{key}": key for key in MACHINE_KEYS}

IP = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True)
class Settings:
    """cloud.conf. `machines` are those that stand in it, None when they are in `file`."""

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
        """Raises ConfigError with all problems."""
        problems = Problems(source)
        top = read(text, problems)
        if not isinstance(top.value, dict) and not problems.found:
            problems.add(top, f"expected keys and values (cluster, {SOURCES[0]}), not {_shown(top)}")
        if not isinstance(top.value, dict):
            problems.raise_any()
        given: dict[str, Located] = top.value
        for key in given.keys() - set(KEYS):
            problems.add(given[key], f"{key}: unknown key; known are {', '.join(KEYS)}")
        if "cluster" not in given:
            problems.add(top, "cluster: is missing; it is the middle of each providerID, static://CLUSTER/ID")
        if len([key for key in SOURCES if key in given]) != 1:
            problems.add(top, f"exactly one of {', '.join(SOURCES)} is needed")
        if "inventory_group" in given and "inventory_file" not in given:
            problems.add(given["inventory_group"], "inventory_group: is of use with inventory_file only")
        take = Taker(given, problems, "")
        cluster = take.text("cluster", ID)
        region, zone = take.text("region", LABEL_VALUE), take.text("zone", LABEL_VALUE)
        file = take.text("machines_file") or take.text("inventory_file")
        defaults = cls(
            source,
            cluster,
            region,
            zone,
            file=file,
            is_inventory="inventory_file" in given,
            inventory_group=take.text("inventory_group") or "all",
            pool=_pool(given.get("load_balancer_addresses"), problems),
        )
        machines = None
        if "machines" in given:
            machines = defaults._machines(_entries(given["machines"], problems), problems)
        problems.raise_any()
        return defaults if machines is None else Settings(**{**vars(defaults), "machines": machines})

    def read_file(self, text: str) -> tuple[Instance, ...]:
        """The machines of the file. Raises ConfigError with all problems; also when there is none at all."""
        problems = Problems(self.file)
        top = read(text, problems)
        problems.raise_any()
        if self.is_inventory:
            entries = inventory(top, self.inventory_group, problems)
        else:
            if isinstance(top.value, dict) and top.value.keys() == {"machines"}:
                top = top.value["machines"]
            entries = _entries(top, problems)
        machines = self._machines(entries, problems)
        problems.raise_any()
        return machines

    def _machines(self, entries: list[Located], problems: Problems) -> tuple[Instance, ...]:
        found: list[Instance] = []
        lines: dict[str, int] = {}
        pool = set(map(str, self.pool))
        for entry in entries:
            if (instance := self._machine(entry, problems)) is None:
                continue
            own = [each for each in instance.addresses if each.type in IP_TYPES]
            for ip in dict.fromkeys(each.address for each in own if each.address in pool):
                told = f"{ip} is one of load_balancer_addresses, which belong to no machine"
                problems.add(entry, f"machine {instance.name!r}: addresses: {told}")
            internal = [f"address {each.address!r}" for each in own if each.type is AddressType.INTERNAL_IP]
            for what in (f"name {instance.name!r}", f"id {instance.provider_id.rpartition('/')[2]!r}", *internal):
                if what in lines:
                    problems.add(entry, f"the {what} is taken by the machine in line {lines[what]}")
                lines.setdefault(what, entry.line)
            found.append(instance)
        if not entries and not problems.found:
            problems.add(Located(None, 1), "names no machine at all")
        return tuple(found)

    def _machine(self, entry: Located, problems: Problems) -> Instance | None:
        if not isinstance(entry.value, dict):
            problems.add(entry, f"a machine is keys and values, at least name and addresses, not {_shown(entry)}")
            return None
        before = len(problems.found)
        given = entry.value.get("name", Located("?", 0)).value
        name = given if isinstance(given, str) else "?"
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
        return instance if len(problems.found) == before else None


# --- YAML with line numbers -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Located:
    """A value and where it stands. Mappings are dict[str, Located], sequences list[Located]."""

    value: Any
    line: int


@dataclass
class Problems:
    source: str
    found: list[tuple[int, str]] = field(default_factory=list)

    def add(self, where: Located, text: str) -> None:
        self.found.append((where.line, text))

    def raise_any(self) -> None:
        if self.found:
            raise ConfigError([f"{self.source}: line {line}: {text}" for line, text in sorted(set(self.found))])


def read(text: str, problems: Problems) -> Located:
    """The document, None when there is nothing in it."""
    loader = None
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        return Located(None, 1) if node is None else _Reader(loader, problems).located(node)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or "characters that may not be in it"
        problems.add(Located(None, mark.line + 1 if mark else 1), f"not YAML: {problem}")
        return Located(None, 1)
    finally:
        if loader is not None:
            loader.dispose()


class _Reader:
    """Makes values of nodes. One that aliases point to is made once: they can stand for billions."""

    def __init__(self, loader: yaml.SafeLoader, problems: Problems) -> None:
        self._loader, self._problems = loader, problems
        self._made: dict[int, Located | None] = {}

    def located(self, node: yaml.Node) -> Located:
        line = node.start_mark.line + 1
        if id(node) in self._made:
            if (made := self._made[id(node)]) is None:
                self._problems.add(Located(None, line), "an anchor holds itself")
            return made or Located(None, line)
        self._made[id(node)] = None
        found = self._made[id(node)] = Located(self._value(node, line), line)
        return found

    def _value(self, node: yaml.Node, line: int) -> Any:
        if isinstance(node, yaml.MappingNode):
            self._loader.flatten_mapping(node)
            values: dict[str, Located] = {}
            for key_node, value_node in node.value:
                key, at = str(key_node.value), key_node.start_mark.line + 1
                if key in values:
                    self._problems.add(Located(None, at), f"{key}: stands here twice")
                values[key] = Located(self.located(value_node).value, at)
            return values
        if isinstance(node, yaml.SequenceNode):
            return [self.located(each) for each in node.value]
        if not node.tag.startswith("tag:yaml.org,2002:"):
            return Unreadable(node.tag)
        try:
            return self._loader.construct_object(node)
        except ValueError as error:  # a date that does not exist, for example
            self._problems.add(Located(None, line), f"{node.value!r}: {error}")
            return None


@dataclass(frozen=True)
class Unreadable:
    """A value with a tag of its own, such as `!vault`."""

    tag: str

    def __repr__(self) -> str:
        return f"a value tagged {self.tag}"


@dataclass
class Taker:
    """Takes the values of one mapping; what is wrong becomes a problem, and the value empty."""

    given: Mapping[str, Located]
    problems: Problems
    where: str

    def text(self, key: str, pattern: re.Pattern[str] | None = None) -> str:
        if (found := self.given.get(key)) is None:
            return ""
        if not isinstance(found.value, str):
            return self._wrong(found, f"{key}: expected text, not {_shown(found)}; quotes make text of a number")
        if "{{" in found.value:
            return self._wrong(found, f"{key}: {found.value!r} is a template, and nobody computes it here")
        if not found.value or (pattern is not None and not pattern.fullmatch(found.value)):
            return self._wrong(found, f"{key}: {found.value!r} is not possible; it must look like {_example(key)}")
        return found.value

    def addresses(self) -> tuple[Address, ...]:
        found = self.given.get("addresses")
        if found is None:
            return ()
        if not isinstance(found.value, list) or not found.value:
            self._wrong(found, f"addresses: expected a list of addresses, not {_shown(found)}")
            return ()
        taken = [address for each in found.value if (address := self._address(each)) is not None]
        if not any(address.type is AddressType.HOSTNAME for address in taken) and "name" in self.given:
            taken.append(Address(AddressType.HOSTNAME, str(self.given["name"].value)))
        return tuple(dict.fromkeys(taken))

    def _address(self, each: Located) -> Address | None:
        if isinstance(each.value, str):
            kind, text = AddressType.INTERNAL_IP, each.value
        elif isinstance(each.value, dict) and each.value.keys() == {"type", "address"}:
            named, text = each.value["type"].value, each.value["address"].value
            if named not in list(AddressType):
                self._wrong(each, f"addresses: type {named!r} is none of {', '.join(AddressType)}")
                return None
            kind = AddressType(named)
        else:
            self._wrong(each, f"addresses: expected an IP address, or type and address, not {_shown(each)}")
            return None
        if not isinstance(text, str) or not text or "{{" in text:
            hint = "; templates are not computed" if "{{" in str(text) else ""
            self._wrong(each, f"addresses: {text!r} is no address{hint}")
            return None
        if kind in IP_TYPES:
            try:
                return Address(kind, str(ipaddress.ip_address(text)))
            except ValueError:
                self._wrong(each, f"addresses: {text!r} is no IP address")
                return None
        return Address(kind, text)

    def state(self) -> InstanceState:
        found = self.given.get("state")
        if found is None:
            return InstanceState.RUNNING
        try:
            return InstanceState(found.value)
        except ValueError:
            choices = " or ".join(state.value for state in InstanceState)
            self._wrong(found, f"state: expected {choices}, not {_shown(found)}")
            return InstanceState.RUNNING

    def labels(self) -> dict[str, str]:
        found = self.given.get("labels")
        if found is None:
            return {}
        if not isinstance(found.value, dict):
            self._wrong(found, f"labels: expected keys and values, not {_shown(found)}")
            return {}
        for key, value in found.value.items():
            if not LABEL_KEY.fullmatch(key):
                self._wrong(value, f"labels: {key!r} is no key of a label")
            elif not isinstance(value.value, str) or not LABEL_VALUE.fullmatch(value.value):
                self._wrong(value, f"labels: {key}: {value.value!r} is no value of a label (a number needs quotes)")
        return {key: str(value.value) for key, value in found.value.items()}

    def _wrong(self, where: Located, text: str) -> str:
        self.problems.add(where, f"{self.where}{text}")
        return ""


def _shown(found: Located) -> str:
    if isinstance(found.value, dict | list):
        return f"{'a' if found.value else 'an empty'} {'mapping' if isinstance(found.value, dict) else 'list'}"
    if found.value is None:
        return "nothing"
    return repr(found.value)


def _example(key: str) -> str:
    return {
        "name": "the Node's name, e.g. worker-1",
        "id": "letters, digits, dashes, e.g. 4C4C4544-0042",
        "cluster": "letters, digits, dashes, e.g. cellar",
    }.get(key, "the value of a label, e.g. rack-1")


def _entries(found: Located, problems: Problems) -> list[Located]:
    if isinstance(found.value, list):
        return found.value
    problems.add(found, f"machines: expected a list of machines, not {_shown(found)}")
    return []


def _pool(found: Located | None, problems: Problems) -> tuple[IP, ...]:
    """Addresses, ranges A-B, and networks; of a network all addresses that a host may have."""
    if found is None:
        return ()
    if not isinstance(found.value, list) or not found.value:
        problems.add(found, "load_balancer_addresses: expected a list of addresses, ranges A-B, or networks")
        return ()
    addresses: dict[IP, None] = {}
    for each in found.value:
        if not isinstance(each.value, str):
            problems.add(each, f"load_balancer_addresses: expected text, not {_shown(each)}")
            continue
        try:
            for address in _range(each.value.replace(" ", "")):
                addresses[address] = None
                if len(addresses) > LARGEST_POOL:
                    raise ValueError(f"more than {LARGEST_POOL} addresses")
        except ValueError as error:
            problems.add(each, f"load_balancer_addresses: {each.value!r}: {error}")
    return tuple(addresses)


def _range(text: str) -> Iterator[IP]:
    first, dash, last = text.partition("-")
    if not dash:
        yield from ipaddress.ip_network(text).hosts()
        return
    start, end = ipaddress.ip_address(first), ipaddress.ip_address(last)
    if start.version != end.version or int(start) > int(end):
        raise ValueError("a range goes from a lower to a higher address")
    make: Callable[[int], IP] = ipaddress.IPv4Address if start.version == 4 else ipaddress.IPv6Address
    yield from map(make, range(int(start), int(end) + 1))


# --- Ansible inventories ----------------------------------------------------------------------------------------------


@dataclass
class _Group:
    """One group, gathered from everywhere that it stands. `depth` as Ansible counts it: below `all`, 0."""

    variables: dict[str, Located] = field(default_factory=dict)
    hosts: set[str] = field(default_factory=set)
    children: set[str] = field(default_factory=set)
    depth: int = 0


@dataclass
class _Inventory:
    problems: Problems
    groups: dict[str, _Group] = field(default_factory=lambda: {"all": _Group()})
    #: Host -> its own variables, with the line where it stands first.
    hosts: dict[str, Located] = field(default_factory=dict)

    def gather(self, name: str, node: Located) -> None:
        group = self.groups.setdefault(name, _Group())
        body = {} if node.value is None else node.value
        if not isinstance(body, dict) or body.keys() - {"hosts", "children", "vars"}:
            self.problems.add(node, f"group {name!r}: expected hosts, children and vars")
            return
        group.variables |= self._part(name, body, "vars")
        for pattern, given in self._part(name, body, "hosts").items():
            for host in expanded(pattern):
                known = self.hosts.setdefault(host, Located({}, given.line))
                known.value.update(given.value if isinstance(given.value, dict) else {})
                group.hosts.add(host)
        for child, given in self._part(name, body, "children").items():
            group.children.add(child)
            self.gather(child, given)

    def _part(self, name: str, body: dict[str, Located], part: str) -> dict[str, Located]:
        found = body.get(part, Located(None, 0))
        if isinstance(found.value, dict):
            return found.value
        if found.value is not None:
            self.problems.add(found, f"group {name!r}: {part}: expected keys and values, not {_shown(found)}")
        return {}

    def members(self, name: str) -> set[str]:
        """Hosts of a group and of all groups below it."""
        if name == "all":
            return set(self.hosts)
        seen, todo = set[str](), [name]
        while todo:
            if (each := todo.pop()) not in seen:
                seen.add(each)
                todo += self.groups[each].children
        return {host for each in seen for host in self.groups[each].hosts}

    def rank(self) -> list[str]:
        """All groups, outer ones first and those of equal depth by name: the later one's variables win."""
        for _ in self.groups:  # as often as groups can stand in one another
            for name, group in self.groups.items():
                for child in group.children if name != "all" else ():
                    self.groups[child].depth = max(self.groups[child].depth, group.depth + 1)
        return sorted(self.groups, key=lambda name: (name != "all", self.groups[name].depth, name))


def inventory(top: Located, group: str, problems: Problems) -> list[Located]:
    """The hosts of a group of a YAML inventory as machines, from `ansible_host` and the `ccm_*` variables."""
    if not isinstance(top.value, dict):
        problems.add(top, "expected an Ansible inventory in YAML: groups with hosts, children and vars")
        return []
    found = _Inventory(problems)
    for name, node in top.value.items():
        found.gather(name, node)
    if group not in found.groups:
        problems.add(top, f"inventory_group: there is no group {group!r}; there are {', '.join(sorted(found.groups))}")
        return []
    rank = [(found.groups[name].variables, found.members(name)) for name in found.rank()]
    machines = []
    for host in sorted(found.members(group)):
        variables: dict[str, Located] = {}
        for given, members in rank:
            variables |= given if host in members else {}
        machines.append(_as_machine(host, variables | found.hosts[host].value, found.hosts[host].line))
    return machines


def _as_machine(name: str, variables: dict[str, Located], line: int) -> Located:
    machine = {"name": Located(name, line)}
    if (address := variables.get("ansible_host")) is not None:
        machine["addresses"] = Located([address], address.line)
    machine |= {key: variables[variable] for variable, key in VARIABLES.items() if variable in variables}
    return Located(machine, line)


def expanded(pattern: str) -> list[str]:
    """`node[01:03].example.org` and `rack-[a:c]`, as Ansible expands them, with an optional step."""
    match = re.search(r"\[(\w+):(\w+)(?::(\d+))?\]", pattern)
    if match is None:
        return [pattern]
    first, last, step = match[1], match[2], int(match[3] or 1) or 1
    if first.isdigit() and last.isdigit():
        width = len(first) if first.startswith("0") else 0
        values = [str(number).zfill(width) for number in range(int(first), int(last) + 1, step)]
    elif len(first) == len(last) == 1 and first in string.ascii_letters and last in string.ascii_letters:
        letters = string.ascii_letters
        values = list(letters[letters.index(first) : letters.index(last) + 1 : step])
    else:
        return [pattern]
    head, tail = pattern[: match.start()], pattern[match.end() :]
    return [f"{head}{value}{rest}" for value in values for rest in expanded(tail)]
