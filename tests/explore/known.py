# SPDX-License-Identifier: Apache-2.0
"""Mistakes that the runtime is known to make today, so that `make explore` ends with 0 for them.

An entry goes when its mistake is fixed: then `make explore` finds out whether it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .checks import Violation
from .faults import Fault

#: The API server shows a cluster, or a state of it, in which objects are missing.
WRONG_LIST = ("empty", "shrunken", "gone-then-empty", "gone-then-shrunken", "relist-empty", "relist-shrunken", "stale")
WRONG_CLUSTER = ("empty-cluster", "other-cluster", "snapshot")


class Known(NamedTuple):
    """`invariants` are violated by any of the `kinds` at points that begin with one of `points` ("" for all);
    `workloads`: only there; no kinds: without a fault. `says` is in the sentence. `example` shows it."""

    reason: str
    example: str
    invariants: tuple[str, ...]
    kinds: tuple[str, ...] = ()
    says: str = ""
    points: tuple[str, ...] = ("",)
    workloads: tuple[str, ...] = ("",)

    def fits(self, workload: str, faults: Sequence[Fault], violation: Violation) -> bool:
        if violation.invariant not in self.invariants or self.says not in violation.text:
            return False
        if not workload.startswith(self.workloads):
            return False
        if not self.kinds:
            return True
        return any(fault.kind in self.kinds and fault.point.startswith(self.points) for fault in faults)


KNOWN = (
    Known(
        "review 1.1: an empty, shrunken or stale listing counts as deletions",
        "services@0; steps=; time 30=relist-empty",
        ("load-balancer-deleted", "route-deleted"),
        WRONG_LIST,
    ),
    Known(
        "review 1.1: a cluster that is another one, or is restored, counts as deletions",
        "services@0; steps=; time 30=other-cluster",
        ("load-balancer-deleted", "route-deleted"),
        WRONG_CLUSTER,
    ),
    Known(
        "beside review 1.1: for the same reasons load balancers lose backends, down to the last one",
        "nodes@0; steps=; time 30=relist-shrunken",
        ("backend-removed",),
        (*WRONG_LIST, *WRONG_CLUSTER),
    ),
    Known(
        "beside review 1.1: a Service's status that is lost (etcd was restored) is not written again before a restart",
        "services@0; steps=; time 0=snapshot",
        ("not-converged",),
        ("snapshot",),
        says="does not name its load balancer's address",
    ),
    Known(
        "beside review 1.1: a restored etcd has lost the finalizer of a Service, and its load balancer stays behind",
        "leaders@3; steps=1,2; time 0.03=snapshot",
        ("load-balancer-leaked",),
        ("snapshot",),
    ),
    Known(
        "beside review 1.1: where the Lease vanishes, a standby creates it before the leader notices: two lead",
        "nodes@1; steps=; time 0.06=kill; time 3=other-cluster",
        ("write-without-lease",),
        WRONG_CLUSTER,
    ),
)


def explain(workload: str, faults: Sequence[Fault], violations: Sequence[Violation]) -> str:
    """Why all of this is expected, "" when any of it is new."""
    reasons = []
    for violation in violations:
        reason = next((each.reason for each in KNOWN if each.fits(workload, faults, violation)), "")
        if not reason:
            return ""
        reasons.append(reason)
    return "; ".join(sorted(set(reasons)))
