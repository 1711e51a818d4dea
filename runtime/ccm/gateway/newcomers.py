# SPDX-License-Identifier: Apache-2.0
"""Gives turns to new objects, whose first call comes while the cloud seems to fail. In its turn, an object may probe.

The call of a new object is evidence, because nobody knows yet whether it fails. Calls of objects that already wait
prove less. If the same mistake was made in a hundred namespaces, their objects all fail, and a new object would wait
behind them.

An object is new only when it asks for the first time: it is remembered until a call for it has ended. So an outage
costs at most one more call for each object that waits. The last place in the line goes only to an owner that has no
other place, so that a namespace with a thousand new Services leaves it to others. No I/O.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import NamedTuple

#: The time between two turns, in seconds.
EVERY = 4.0
#: How long an object may wait for its turn, in seconds: two other turns. If the next turn is later than that, the
#: object gets none and waits like objects that are not new.
LONGEST_WAIT = 8.0
#: An unused turn is forgotten this many seconds after it was due, because its object was deleted.
EXPIRED = 60.0
#: How many objects are remembered.
REMEMBERED = 20_000


class Turn(NamedTuple):
    due: float
    owner: str


class Newcomers:
    """Knows which objects are new, and their turns. Times are in monotonic seconds."""

    def __init__(self) -> None:
        # Objects that asked for a turn, until a call for them ends. The end of the outage removes none.
        self._remembered: OrderedDict[str, None] = OrderedDict()
        self._turns: dict[str, Turn] = {}
        self._next = 0.0

    def is_new(self, key: str) -> bool:
        return key not in self._remembered

    def asks(self, key: str, owner: str, now: float, longest: float = LONGEST_WAIT) -> None:
        """Give the object the next turn if it is new and the turn comes within `longest` seconds; within `EVERY`
        seconds if another object of the owner already waits for a turn."""
        if not self.is_new(key):
            return
        self._remembered[key] = None
        if len(self._remembered) > REMEMBERED:
            self.answered(next(iter(self._remembered)))
        self._turns = {each: turn for each, turn in self._turns.items() if turn.due > now - EXPIRED}
        if any(turn.owner == owner for turn in self._turns.values()):
            longest = min(longest, EVERY)
        due = max(now, self._next)
        if due - now <= longest:
            self._turns[key] = Turn(due, owner)
            self._next = due + EVERY

    def wait(self, key: str, now: float) -> float:
        """Return the seconds until the object's turn, 0 if it has come, infinity if the object has none."""
        turn = self._turns.get(key)
        return math.inf if turn is None else max(0.0, turn.due - now)

    def failed(self, now: float) -> None:
        """Record that a probe of a new object failed: the next turn comes `EVERY` seconds later at the earliest."""
        self._next = max(self._next, now + EVERY)

    def answered(self, key: str) -> None:
        """Forget the object: a call for it ended, with an answer of the cloud or with an error."""
        self._remembered.pop(key, None)
        self._turns.pop(key, None)
