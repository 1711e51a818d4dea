# SPDX-License-Identifier: Apache-2.0
"""Gives objects that ask for the first time while the cloud seems to fail a turn of their own to probe.

Such an object is evidence: nobody knows yet whether its call fails. An object that was held back and waits is none
that counts. If the same mistake was made in a hundred namespaces, there are many of those, they all fail, and
whoever is new would be the last of them.

An object is new once: until the cloud has answered a call for it, it is remembered. So an outage costs one call more
for each object that is made during the outage, and for no other. The last place in the line is for a namespace that has
none in it: who creates a thousand Services at once leaves it to others. No I/O.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import NamedTuple

#: Between two turns, in seconds.
EVERY = 4.0
#: How long an object may wait for its turn, in seconds: as long as two others that came before. Whoever comes when the
#: next turn is later waits as everybody does.
LONGEST_WAIT = 8.0
#: When a turn is forgotten whose object did not come, in seconds: it was deleted.
EXPIRED = 60.0
#: How many objects are remembered.
REMEMBERED = 20_000


class Turn(NamedTuple):
    due: float
    owner: str


class Newcomers:
    """Times are monotonic."""

    def __init__(self) -> None:
        # Those that have asked, and had no answer after that. They are kept when the outage ends.
        self._met: OrderedDict[str, None] = OrderedDict()
        self._turns: dict[str, Turn] = {}
        self._next = 0.0

    def is_new(self, key: str) -> bool:
        return key not in self._met

    def asks(self, key: str, owner: str, now: float, longest: float = LONGEST_WAIT) -> None:
        """A call for the object may not be made freely. If it is new, it gets the next turn, unless that is later than
        `longest` from now, or than one other turn if its owner waits for one."""
        if not self.is_new(key):
            return
        self._met[key] = None
        if len(self._met) > REMEMBERED:
            self.answered(next(iter(self._met)))
        self._turns = {each: turn for each, turn in self._turns.items() if turn.due > now - EXPIRED}
        if any(turn.owner == owner for turn in self._turns.values()):
            longest = min(longest, EVERY)
        due = max(now, self._next)
        if due - now <= longest:
            self._turns[key] = Turn(due, owner)
            self._next = due + EVERY

    def wait(self, key: str, now: float) -> float:
        """Seconds until the turn of the object, 0 if it has come, infinite if it has none."""
        turn = self._turns.get(key)
        return math.inf if turn is None else max(0.0, turn.due - now)

    def failed(self, now: float) -> None:
        """A probe of a new object failed: the next turn is not sooner than after the usual time."""
        self._next = max(self._next, now + EVERY)

    def answered(self, key: str) -> None:
        """The cloud answered a call for the object, or failed."""
        self._met.pop(key, None)
        self._turns.pop(key, None)
