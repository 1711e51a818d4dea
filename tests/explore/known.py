# SPDX-License-Identifier: Apache-2.0
"""Known mistakes of the runtime, which `make explore` does not count as failures.

An entry is removed when its mistake is fixed; then `make explore` shows whether it really is. An entry must be narrow:
`says` distinguishes the violation that `reason` explains from one with another cause.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .checks import UNHELD, UNRESTORED, Violation
from .faults import Fault


class Known(NamedTuple):
    """A known mistake: at least `least` faults of the `kinds`, at points that begin with one of `points` ("" for all),
    violate `invariants`. The sentence of the violation contains `says`. `example` is a sequence that shows it."""

    reason: str
    example: str
    invariants: tuple[str, ...]
    kinds: tuple[str, ...]
    says: str = ""
    points: tuple[str, ...] = ("",)
    least: int = 1

    def fits(self, faults: Sequence[Fault], violation: Violation) -> bool:
        if violation.invariant not in self.invariants or self.says not in violation.text:
            return False
        causes = [fault for fault in faults if fault.kind in self.kinds and fault.point.startswith(self.points)]
        return len(causes) >= self.least


KNOWN = (
    Known(
        "a restored etcd, which disappears again, has the finalizer of a Service. In the other etcd, the Service is "
        "deleted without it, and no process knows its load balancer. Another cluster of the same name could own that "
        "load balancer, so the audit reports it and leaves it to a person",
        "churn-79@2; api WATCH leases#1=snapshot",
        ("load-balancer-leaked",),
        ("snapshot",),
        UNHELD,
    ),
    Known(
        "a restored etcd names a former leader on the Lease, so the present one goes on until it renews. Nobody else "
        "leads: a process that lost its Lease has ended, and its name is never used again",
        "leaders@4; steps=1; api PATCH services/shop/web/status#1=snapshot",
        ("write-without-lease",),
        ("snapshot",),
        "while a process that has ended leads",
    ),
    *(
        Known(
            "a restored etcd does not have a Node that joined later, and a read of the Node confirms that it is gone: "
            "its route and its place in load balancers go until it registers again, as after any deletion",
            "rivals@173; steps=2,4; cloud load_balancers.set_targets#1=cloud-down; cloud routes.delete#1=snapshot",
            (invariant,),
            ("snapshot",),
            UNRESTORED,
        )
        for invariant in ("route-deleted", "backend-removed")
    ),
    Known(
        "a process has nothing to compare its first lists of Nodes with, so it lists them twice before it writes. If "
        "both lists are wrong, load balancers lose members. Nothing else says which Nodes there are: the cloud has "
        "machines that are no Nodes, and providers need not list the members of a load balancer",
        "churn-46@46; steps=5; api LIST nodes#3=empty; api LIST nodes#4=empty",
        ("backend-removed-at-start",),
        ("empty", "shrunken"),
        points=("api LIST nodes",),
        least=2,
    ),
)


def explain(faults: Sequence[Fault], violations: Sequence[Violation]) -> str:
    """Return why all these violations are expected, or "" if one of them is new."""
    reasons = []
    for violation in violations:
        reason = next((each.reason for each in KNOWN if each.fits(faults, violation)), "")
        if not reason:
            return ""
        reasons.append(reason)
    return "; ".join(sorted(set(reasons)))
