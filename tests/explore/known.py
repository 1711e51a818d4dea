# SPDX-License-Identifier: Apache-2.0
"""Mistakes that the runtime is known to make today, so that `make explore` ends with 0 for them.

An entry goes when its mistake is fixed: then `make explore` finds out whether it is.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from .faults import Fault

#: The API server shows a cluster, or a state of it, in which objects are missing.
WRONG_LIST = ("empty", "shrunken", "gone-then-empty", "gone-then-shrunken", "stale")
WRONG_CLUSTER = ("empty-cluster", "other-cluster", "snapshot")


class Known(NamedTuple):
    """`invariants` are violated by any of the `kinds` at points that begin with one of `points` ("" for all);
    `workloads`: only there; no kinds: without a fault."""

    reason: str
    invariants: tuple[str, ...]
    kinds: tuple[str, ...] = ()
    points: tuple[str, ...] = ("",)
    workloads: tuple[str, ...] = ("",)

    def fits(self, workload: str, faults: Sequence[Fault], invariants: Collection[str]) -> bool:
        if not set(invariants) <= set(self.invariants) or not workload.startswith(self.workloads):
            return False
        if not self.kinds:
            return True
        return any(fault.kind in self.kinds and fault.point.startswith(self.points) for fault in faults)


KNOWN = (
    Known(
        "review 1.1: an empty, shrunken or foreign listing counts as deletions",
        ("load-balancer-deleted", "route-deleted"),
        WRONG_LIST,
        ("api LIST", "api EVENT"),
    ),
    Known(
        "review 1.1: a cluster that is another one, or is restored, counts as deletions",
        ("load-balancer-deleted", "route-deleted"),
        WRONG_CLUSTER,
    ),
    Known(
        "review 1.2: more Nodes gone at once than the cap allows are never deleted",
        ("node-stays",),
        workloads=("scale-down",),
    ),
)


def explain(workload: str, faults: Sequence[Fault], invariants: Collection[str]) -> str:
    """Why this is expected, "" when it is new."""
    return next((each.reason for each in KNOWN if each.fits(workload, faults, invariants)), "")
