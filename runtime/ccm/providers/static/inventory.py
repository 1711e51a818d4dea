# SPDX-License-Identifier: Apache-2.0
"""Converts an Ansible inventory in YAML to a list of machines, for the provider `static`. No I/O."""

from __future__ import annotations

import re
import string
from collections.abc import Mapping
from dataclasses import dataclass, field

from ccm.cloud.toolkit.located_yaml import Located, Problems, shown


@dataclass
class _Group:
    """One group, merged from all its occurrences. `depth` as Ansible counts it: 0 directly below `all`."""

    variables: dict[str, Located] = field(default_factory=dict)
    hosts: set[str] = field(default_factory=set)
    children: set[str] = field(default_factory=set)
    depth: int = 0


@dataclass
class _Inventory:
    problems: Problems
    groups: dict[str, _Group] = field(default_factory=lambda: {"all": _Group()})
    #: Host -> its own variables, with the line of its first occurrence.
    hosts: dict[str, Located] = field(default_factory=dict)

    def gather(self, name: str, node: Located) -> None:
        group = self.groups.setdefault(name, _Group())
        body = {} if node.value is None else node.value
        if not isinstance(body, dict) or body.keys() - {"hosts", "children", "vars"}:
            self.problems.add(node, f"group {name!r}: expected hosts, children and vars")
            return
        group.variables |= self._part(name, body, "vars")
        for pattern, value in self._part(name, body, "hosts").items():
            for host in expanded(pattern):
                known = self.hosts.setdefault(host, Located({}, value.line))
                known.value.update(value.value if isinstance(value.value, dict) else {})
                group.hosts.add(host)
        for child, value in self._part(name, body, "children").items():
            group.children.add(child)
            self.gather(child, value)

    def _part(self, name: str, body: dict[str, Located], part: str) -> dict[str, Located]:
        value = body.get(part)
        if value is None or value.value is None:
            return {}
        if not isinstance(value.value, dict):
            self.problems.add(value, f"group {name!r}: {part}: expected keys and values, not {shown(value)}")
            return {}
        return value.value

    def members(self, name: str) -> set[str]:
        """Return the hosts of a group and of all groups below it."""
        if name == "all":
            return set(self.hosts)
        visited, todo = set[str](), [name]
        while todo:
            if (each := todo.pop()) not in visited:
                visited.add(each)
                todo += self.groups[each].children
        return {host for each in visited for host in self.groups[each].hosts}

    def rank(self) -> list[str]:
        """Return all groups, outer ones first, then by name. Variables of later groups win."""
        for _ in self.groups:  # the number of groups is the maximum nesting depth
            for name, group in self.groups.items():
                for child in group.children if name != "all" else ():
                    self.groups[child].depth = max(self.groups[child].depth, group.depth + 1)
        return sorted(self.groups, key=lambda name: (name != "all", self.groups[name].depth, name))


def inventory(top: Located, group: str, problems: Problems, variables: Mapping[str, str]) -> list[Located]:
    """Convert the hosts of a group to machines, from `ansible_host` and further variables.

    `variables`: name of a variable -> the machine's key that it sets.
    """
    if not isinstance(top.value, dict):
        problems.add(top, "expected an Ansible inventory in YAML: groups with hosts, children and vars")
        return []
    parsed = _Inventory(problems)
    for name, node in top.value.items():
        parsed.gather(name, node)
    if group not in parsed.groups:
        problems.add(top, f"inventory_group: there is no group {group!r}; known are {', '.join(sorted(parsed.groups))}")
        return []
    rank = [(parsed.groups[name].variables, parsed.members(name)) for name in parsed.rank()]
    machines = []
    for host in sorted(parsed.members(group)):
        variables_of_host: dict[str, Located] = {}
        for variables_of_group, members in rank:
            variables_of_host |= variables_of_group if host in members else {}
        machines.append(
            _as_machine(host, variables_of_host | parsed.hosts[host].value, parsed.hosts[host].line, variables)
        )
    return machines


def _as_machine(name: str, variables: dict[str, Located], line: int, keys: Mapping[str, str]) -> Located:
    machine = {"name": Located(name, line)}
    if (address := variables.get("ansible_host")) is not None:
        machine["addresses"] = Located([address], address.line)
    machine |= {key: variables[variable] for variable, key in keys.items() if variable in variables}
    return Located(machine, line)


def expanded(pattern: str) -> list[str]:
    """Expand `node[01:03].example.org` and `rack-[a:c]` as Ansible does, with an optional step."""
    match = re.search(r"\[(\w+):(\w+)(?::(\d+))?\]", pattern)
    if match is None:
        return [pattern]
    first, last, step = match[1], match[2], int(match[3] or 1) or 1
    if first.isdigit() and last.isdigit():
        values = [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1, step)]
    elif len(first) == len(last) == 1 and first in string.ascii_letters and last in string.ascii_letters:
        letters = string.ascii_letters
        values = list(letters[letters.index(first) : letters.index(last) + 1 : step])
    else:
        return [pattern]
    head, tail = pattern[: match.start()], pattern[match.end() :]
    return [f"{head}{value}{rest}" for value in values for rest in expanded(tail)]
