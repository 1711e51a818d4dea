# SPDX-License-Identifier: Apache-2.0
"""When a list of the API server proves that objects are gone: pure decisions, no I/O.

A list can be wrong: etcd was restored or replaced, the address leads to another cluster, or something in between
answers with an empty list. So what a list lacks is missing, and not yet gone. It is gone when a read of the very object
says so, and only a few objects go at a time. A list that lacks half of what was there proves nothing at all.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence

#: Within so many seconds at most `cap` objects count as gone because lists lack them.
GRACE = 300.0
#: At most this share of the objects, but CAP_MIN at least.
CAP_SHARE, CAP_MIN = 0.1, 2


class Belief(enum.Enum):
    """What to make of a list. The values stand in log lines."""

    #: Ask for each missing object.
    ASK = "they are read one by one"
    #: So much is missing that nothing follows from it.
    NOTHING = "that is not believed, and nothing is deleted because of it"


def cap(known: int) -> int:
    """How many of `known` objects may go within GRACE."""
    return max(CAP_MIN, int(known * CAP_SHARE))


def belief(known: int, missing: int) -> Belief:
    """What to make of a list that lacks `missing` of `known` objects.

    It must have more than half of them. Of two objects one may be missing, or small clusters would never let one go.
    """
    if missing * 2 < known or (known, missing) == (2, 1):
        return Belief.ASK
    return Belief.NOTHING


def room(known: int, gone_at: Sequence[float], now: float) -> int:
    """How many more of `known` objects may go now; `gone_at`: when others went, in monotonic seconds."""
    return max(0, cap(known) - sum(1 for moment in gone_at if now - moment < GRACE))
