# SPDX-License-Identifier: Apache-2.0
"""Chooses the members of load balancers that have no room for all nodes. A choice depends on its arguments alone; what
`Choices` remembers only makes the same result cheaper."""

from __future__ import annotations

import hashlib
import itertools
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from functools import cached_property
from typing import Generic, NamedTuple, TypeVar

from ccm.cloud import Backend

from .recent import Recent

#: How a provider names a member: by address, or by the ID of its machine.
Member = TypeVar("Member", str, int)
ZONE = "topology.kubernetes.io/zone"

#: How many sets of candidates `Choices` remembers, to compare later ones with them. A set is needed until each of its
#: Services has chosen from a later one, and each selector of a Service has sets of its own.
SETS = 16
#: How many Services' choices `Choices` remembers. For each further Service, all nodes are weighed again at every
#: change.
SERVICES = 10_000

_numbers = itertools.count()


def limited(members: Mapping[Member, Backend], most: int, service: str) -> Mapping[Member, Backend]:
    """Choose at most `most` of the members, in their order; 0 for all.

    Each `service` sorts the nodes of a zone in its own order (rendezvous hashing), and the zones take turns. So zones
    and Services share the nodes fairly, and a node that joins or leaves replaces at most one member.
    """
    if not most or len(members) <= most:
        return members

    def score(member: Member) -> bytes:
        return hashlib.sha256(f"{service}\n{members[member].node_name}".encode()).digest()

    turns: Counter[str] = Counter()
    order: list[tuple[int, bytes, Member]] = []
    for own, member in sorted((score(member), member) for member in members):
        zone = members[member].labels.get(ZONE, "")
        turns[zone] += 1
        order.append((turns[zone], own, member))
    chosen = {member for _, _, member in sorted(order)[:most]}
    return {member: backend for member, backend in members.items() if member in chosen}


class Candidates(Generic[Member]):
    """The members among which Services with the same selector choose. `Backends.recent` keeps the object, which these
    Services share. `number` is different for each set of candidates."""

    def __init__(self, members: Mapping[Member, Backend]) -> None:
        self.members: Mapping[Member, Backend] = members
        self.number = next(_numbers)

    @cached_property
    def zones(self) -> dict[str, str]:
        """The zone of each node, by the node's name: all that a choice depends on."""
        return {backend.node_name: backend.labels.get(ZONE, "") for backend in self.members.values()}

    @cached_property
    def _places(self) -> dict[str, tuple[int, Member]]:
        return {backend.node_name: (place, key) for place, (key, backend) in enumerate(self.members.items())}

    @property
    def names_are_unique(self) -> bool:
        return len(self.zones) == len(self.members)

    def some(self, nodes: Iterable[str]) -> dict[Member, Backend]:
        """Return the members of these nodes, in the order of all members."""
        return {member: self.members[member] for _, member in sorted(self._places[node] for node in nodes)}


class _Change(NamedTuple):
    """The names of the nodes that only the later candidates have, and of those that only the former ones have. A node
    whose zone changed is in both."""

    came: frozenset[str] = frozenset()
    went: frozenset[str] = frozenset()


class _Choice(NamedTuple):
    """The nodes that a Service chose, and the number of the candidates among which it chose `most`."""

    number: int
    most: int
    nodes: tuple[str, ...]


class Choices:
    """Does what `limited` does, faster: for many Services, whose nodes change one by one.

    If a node that was not chosen leaves, the choice stays. A node that joins can only replace a chosen one; no other
    node gets chosen because of it. So a Service chooses among its former choice and the nodes that joined. If a node of
    its former choice left, it chooses among all nodes again.
    """

    def __init__(self, services: int = SERVICES) -> None:
        self._sets: Recent[int, Mapping[str, str]] = Recent(SETS)
        self._changes: Recent[tuple[int, int], _Change] = Recent(SETS)
        self._chosen: Recent[Hashable, _Choice] = Recent(services)

    def limited(self, candidates: Candidates[Member], most: int, service: str) -> Mapping[Member, Backend]:
        """Return `limited(candidates.members, most, service)`."""
        if not most or len(candidates.members) <= most or not candidates.names_are_unique:
            return limited(candidates.members, most, service)
        self._sets.put(candidates.number, candidates.zones)
        nodes = self._to_weigh(candidates.number, candidates.zones, most, service)
        chosen = limited(candidates.members if nodes is None else candidates.some(nodes), most, service)
        names = tuple(backend.node_name for backend in chosen.values())
        self._chosen.put(service, _Choice(candidates.number, most, names))
        return chosen

    def _to_weigh(self, number: int, zones: Mapping[str, str], most: int, service: str) -> tuple[str, ...] | None:
        """Return the nodes among which the Service must choose to get the same result as among all candidates of the
        set `number`; None for all nodes."""
        before = self._chosen.get(service)
        if before is None or before.most != most:
            return None
        change = self._change(before.number, number, zones)
        if change is None or not change.went.isdisjoint(before.nodes):
            return None
        return (*before.nodes, *change.came)

    def _change(self, former: int, number: int, zones: Mapping[str, str]) -> _Change | None:
        """Return what changed from the `former` candidates to these, None if the former ones are forgotten."""
        if former == number:
            return _Change()
        if (old := self._sets.get(former)) is None:
            return None
        return self._changes.obtain(
            (former, number),
            lambda: _Change(
                frozenset(name for name, zone in zones.items() if old.get(name) != zone),
                frozenset(name for name, zone in old.items() if zones.get(name) != zone),
            ),
        )
