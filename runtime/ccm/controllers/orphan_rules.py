# SPDX-License-Identifier: Apache-2.0
"""Which load balancers have outlived their Service: pure decisions, no I/O.

Upstream leaks the load balancer of a Service whose finalizer was taken off by hand: nobody looks for orphans there.

A load balancer is an orphan only when every look over GRACE seconds, in which caches and listings catch up, saw it
without its Service, two of them at least. Many orphans at once are more likely our mistake (another cluster of the same
name in the project, a kubeconfig of another cluster) than that many mishaps.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ccm.engine.absence_rules import GRACE, cap


def look(
    before: Mapping[str, float], listed: Collection[str], services: Collection[str], now: float
) -> dict[str, float]:
    """Since when which load balancers are seen without their Service, after one more look.

    `listed`, `services`: UIDs that load balancers carry, that Services have.
    """
    return {uid: before.get(uid, now) for uid in listed if uid not in services}


def orphans(sightings: Mapping[str, float], now: float) -> list[str]:
    """The Service UIDs of those that are orphans for sure."""
    return sorted(uid for uid, since in sightings.items() if now - since >= GRACE)


def may_delete(orphaned: int, listed: int) -> bool:
    """Whether so many orphans among so many load balancers are believable enough to be deleted; beyond that none is."""
    return orphaned <= cap(listed)
