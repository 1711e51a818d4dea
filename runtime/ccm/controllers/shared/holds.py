# SPDX-License-Identifier: Apache-2.0
"""Records for the status page what controllers do not delete for now, and the rule behind each decision. No I/O.

Controllers report here what they also report in Events, logs and metrics. No decision depends on that.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping

import msgspec

from ccm.base.text import shorten

#: The maximum number of entries of one kind, and of characters of a message. Users choose names and parts of messages.
MOST, LONGEST = 500, 400


class Hold(msgspec.Struct, frozen=True):
    """One object whose deletion is held for now. `rule`: a word, as in Events. `since`: monotonic seconds."""

    kind: str
    name: str
    rule: str
    message: str
    since: float


class Holds(msgspec.Struct):
    """The objects that are kept, by kind and name. `monotonic` is in seconds."""

    monotonic: Callable[[], float] = time.monotonic
    _held: dict[str, dict[str, Hold]] = msgspec.field(default_factory=dict)
    _parts: list[Holds] = msgspec.field(default_factory=list)

    def part(self) -> Holds:
        """Return a part for one of several clouds. The controllers of that cloud replace and drop only what they put
        into this part."""
        self._parts.append(Holds(self.monotonic))
        return self._parts[-1]

    def put(self, kind: str, name: str, rule: str, message: str) -> None:
        """Report that an object is kept. Its time is counted from the first report of the same rule.

        Of each kind, the first `MOST` are shown.
        """
        held = self._held.setdefault(kind, {})
        before = held.get(name)
        if before is None and len(held) >= MOST:
            return
        since = before.since if before is not None and before.rule == rule else self.monotonic()
        held[name] = Hold(kind, name, rule, shorten(message, LONGEST), since)

    def keep(self, kind: str, still: Callable[[str], bool]) -> None:
        """Forget the objects of a kind that are not held any more: those for whose name `still` returns False."""
        held = self._held.get(kind, {})
        for name in [name for name in held if not still(name)]:
            del held[name]

    def replace(self, kind: str, objects: Mapping[str, tuple[str, str]]) -> None:
        """Report all objects of a kind at once: name -> rule and message."""
        self.keep(kind, objects.__contains__)
        for name, (rule, message) in objects.items():
            self.put(kind, name, rule, message)

    def drop(self, kind: str, name: str) -> None:
        self._held.get(kind, {}).pop(name, None)

    @property
    def count(self) -> int:
        return sum(map(len, self._held.values())) + sum(part.count for part in self._parts)

    def all(self) -> Iterable[Hold]:
        """Return what is held, the oldest first."""
        own = (hold for held in self._held.values() for hold in held.values())
        return sorted((*own, *(hold for part in self._parts for hold in part.all())), key=lambda hold: hold.since)
