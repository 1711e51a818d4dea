# SPDX-License-Identifier: Apache-2.0
"""Which load balancer is compared with its Service next, and which user asks for it: pure decisions, no I/O."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ccm.engine.objects import Service

#: Any new value asks for a comparison now. What the value says does not matter.
ANNOTATION = "ccm.outoftree.dev/check-load-balancer"
#: Seconds between two comparisons: two load balancers a minute, whatever their number.
PACE = 30.0
#: How many deviations a message names.
NAMED = 5


@dataclass(frozen=True)
class Compared:
    """When a Service's load balancer was written, and compared, last; monotonic seconds, -inf for never."""

    key: str
    written_at: float
    compared_at: float = -math.inf


def following(services: Iterable[Compared]) -> str | None:
    """The key whose turn it is: those written since their last comparison go first, then the one whose last comparison
    is the longest ago. None without any."""

    def turn(each: Compared) -> tuple[bool, float, str]:
        return each.compared_at >= each.written_at, each.compared_at, each.key

    found = min(services, key=turn, default=None)
    return None if found is None else found.key


def some(found: Sequence[str]) -> str:
    """Deviations for a message, the first of them when there are many."""
    more = f", and {len(found) - NAMED} more" if len(found) > NAMED else ""
    return ", ".join(found[:NAMED]) + more


def is_asked_for(old: Service | None, new: Service) -> bool:
    """Whether a change of a Service asks for a comparison. At our start there is no change, so nothing is asked for."""
    value = new.metadata.annotations.get(ANNOTATION, "")
    return old is not None and bool(value) and value != old.metadata.annotations.get(ANNOTATION, "")
