# SPDX-License-Identifier: Apache-2.0
"""Decide which load balancer is compared with its Service next, and whether a user asks for a comparison. No I/O."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import msgspec

from ccm.engine.objects import Service

#: Any new value requests a comparison now. The value itself has no meaning.
ANNOTATION = "ccm.outoftree.dev/check-load-balancer"
#: Seconds between two comparisons: two load balancers a minute, however many exist.
PACE = 30.0
#: Number of deviations that a message lists.
NAMED = 5


class Compared(msgspec.Struct, frozen=True):
    """When the load balancer of a Service was last written and last compared: monotonic seconds, -inf for never."""

    key: str
    written_at: float
    compared_at: float = -math.inf


def following(services: Iterable[Compared]) -> str | None:
    """Return the key that is due next, None if there is none.

    Load balancers that were written since their last comparison come first, then the one compared longest ago.
    """

    def turn(service: Compared) -> tuple[bool, float, str]:
        return service.compared_at >= service.written_at, service.compared_at, service.key

    due = min(services, key=turn, default=None)
    return None if due is None else due.key


def some(deviations: Sequence[str]) -> str:
    """Format deviations for a message; lists only the first few when there are many."""
    more = f", and {len(deviations) - NAMED} more" if len(deviations) > NAMED else ""
    return ", ".join(deviations[:NAMED]) + more


def is_asked_for(old: Service | None, new: Service) -> bool:
    """Return whether a change of a Service asks for a comparison. Existing Services at start are not a change."""
    value = new.metadata.annotations.get(ANNOTATION, "")
    return old is not None and bool(value) and value != old.metadata.annotations.get(ANNOTATION, "")
