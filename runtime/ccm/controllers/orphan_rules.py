# SPDX-License-Identifier: Apache-2.0
"""Which load balancers have outlived their Service: pure decisions, no I/O (reference W30).

A load balancer is an orphan only when it was seen without a Service more than once, over a time in which caches and
listings catch up. Many orphans at once are more likely our mistake (another cluster of the same name in the project, a
kubeconfig of another cluster) than that many mishaps.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

#: Looks that must agree, and the least time between the first and the last of them, in seconds.
CONFIRMATIONS = 2
GRACE = 300.0
#: At most this share of all load balancers, but CAP_MIN at least, is deleted; beyond it none is.
CAP_SHARE, CAP_MIN = 0.1, 2


@dataclass(frozen=True)
class Sighting:
    """For how long a load balancer has been seen without its Service: since when, and in how many looks."""

    since: float
    looks: int = 1


def look(
    before: dict[str, Sighting], listed: Collection[str], services: Collection[str], now: float
) -> dict[str, Sighting]:
    """The sightings after one more look. `listed`, `services`: UIDs that load balancers carry, that Services have."""
    found = {}
    for uid in listed:
        if uid not in services:
            earlier = before.get(uid)
            found[uid] = Sighting(now) if earlier is None else Sighting(earlier.since, earlier.looks + 1)
    return found


def orphans(sightings: dict[str, Sighting], now: float) -> list[str]:
    """The Service UIDs of those that are orphans for sure."""
    return sorted(uid for uid, seen in sightings.items() if seen.looks >= CONFIRMATIONS and now - seen.since >= GRACE)


def may_delete(orphaned: int, listed: int) -> bool:
    """Whether so many orphans among so many load balancers are believable enough to be deleted."""
    return orphaned <= max(CAP_MIN, int(listed * CAP_SHARE))
