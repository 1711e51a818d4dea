# SPDX-License-Identifier: Apache-2.0
"""Mistakes that the runtime is known to make today, so that `make explore` ends with 0 for them.

An entry goes when its mistake is fixed: then `make explore` finds out whether it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .checks import Violation
from .faults import Fault


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


_NO_NODE = (
    "a restored etcd does not have a Node that joined later, and a read of the Node confirms that it is gone: its "
    "route and its place in load balancers go until it registers again, as after any deletion"
)
KNOWN = (
    Known(
        "the finalizer of a Service is in a restored etcd that goes again, so the Service is deleted without it and no "
        "process knows its load balancer any more. Another cluster of the same name could own that load balancer, so "
        "the audit reports it and leaves it to a person",
        "churn-79@2; api WATCH leases#1=snapshot",
        ("load-balancer-leaked",),
        ("snapshot",),
    ),
    Known(
        "a restored etcd names a former leader on the Lease, so the present one goes on until it renews. Nobody else "
        "leads: a process that lost its Lease has ended, and its name is never used again",
        "leaders@3; steps=1; api PATCH services/shop/web/status#1=snapshot",
        ("write-without-lease",),
        ("snapshot",),
    ),
    *(
        Known(
            _NO_NODE,
            "slow@419; api WATCH nodes#3=snapshot",
            (invariant,),
            ("snapshot",),
            "n2",  # the Node that joins in this workload
            points=("api ",),
            workloads=("slow",),
        )
        for invariant in ("route-deleted", "backend-removed")
    ),
    *(
        Known(
            _NO_NODE,
            # etcd is restored while a cloud call is under way, or a request: that changes nothing
            "rivals@173; steps=2,4; cloud load_balancers.set_targets#1=cloud-down; cloud routes.delete#1=snapshot",
            (invariant,),
            ("snapshot",),
            "n3",  # the workloads' Node that joins
        )
        for invariant in ("route-deleted", "backend-removed")
    ),
    Known(
        "a process has nothing to compare its first two lists of Nodes with: if both are wrong, load balancers lose "
        "members. Nothing else says which Nodes there are: the cloud has machines that are no Nodes",
        "churn-46@46; steps=5; api LIST nodes#3=empty; api LIST nodes#4=empty",
        ("backend-removed-at-start",),
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
