# SPDX-License-Identifier: Apache-2.0
"""Decides when a list of the API server proves that objects are gone. Pure decisions, no I/O.

A list can be wrong: etcd was restored or replaced, the address leads to another cluster, or an intermediary returns an
empty list. Therefore an object that is absent from a list is missing, but not yet gone. It is gone if a read of that
object says so, and only a few objects may go at a time. A list that omits half of the objects proves nothing at all:
then only objects that another source reports gone (`Informer.confirm_by`) are read.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence

#: Within this many seconds, at most `cap` objects count as gone because lists omit them.
GRACE = 300.0
#: `cap` is this share of the objects, but at least CAP_MIN.
CAP_SHARE, CAP_MIN = 0.1, 2


class Belief(enum.Enum):
    """How to treat a list. The values appear in log lines."""

    #: Read each missing object.
    ASK = "they are read one by one"
    #: So many objects are missing that the list proves nothing.
    NOTHING = "the list is not trusted, and objects stay until something else confirms that they are gone"


def cap(known: int) -> int:
    """Return how many of `known` objects may be removed within GRACE."""
    return max(CAP_MIN, int(known * CAP_SHARE))


def belief(known: int, missing: int) -> Belief:
    """Return how to treat a list in which `missing` of `known` objects are absent.

    The list must contain more than half of them. Of two objects one may be missing, so that small clusters can remove
    objects, too.
    """
    if missing * 2 < known or (known, missing) == (2, 1):
        return Belief.ASK
    return Belief.NOTHING


def room(known: int, gone_at: Sequence[float], now: float) -> int:
    """Return how many more of `known` objects may be removed now. `gone_at`: earlier removals, in monotonic seconds."""
    return max(0, cap(known) - sum(1 for moment in gone_at if now - moment < GRACE))
