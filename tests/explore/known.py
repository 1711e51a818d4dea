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


#: Why, for an eventually consistent cloud and machines that are replaced.
_FORMER_MACHINE = (
    "a Node whose machine was replaced under its name gets the providerID of the former machine while the cloud still "
    "shows that one; it is Ready, so nobody asks for its instance again"
)

KNOWN = (
    Known(
        "a Service that is deleted while the API server shows an older state loses its finalizer with it: no process "
        "knows its load balancer any more, and the audit reports it",
        "churn-79@2; api WATCH leases#1=snapshot",
        ("load-balancer-leaked",),
        ("snapshot",),
    ),
    Known(
        "a restored etcd names a former leader on the Lease, so the present one goes on until it renews",
        "leaders@3; steps=1; api PATCH services/shop/web/status#1=snapshot",
        ("write-without-lease",),
        ("snapshot",),
    ),
    Known(
        "an API server that shows what was before Nodes had a providerID is believed, although its resourceVersion is "
        "older than what was seen: load balancers lose members until it has caught up",
        "nodes@55; steps=; api EVENT services#2=api-stale; api WATCH services#2=relist-shrunken",
        ("backend-removed",),
        ("api-stale",),
    ),
    Known(
        "a restored etcd shows what was before Nodes had a providerID: load balancers lose members until the Nodes are "
        "initialised again",
        "services@123; steps=; api PATCH services/shop/api/status#2=snapshot; api EVENT nodes#13=silent",
        ("backend-removed",),
        ("snapshot",),
        points=("api ",),
    ),
    Known(
        "a watch that resumes sends a change to ClusterIP before the change that took it back: the load balancer is "
        "deleted, and created again",
        "services@382; api EVENT services#11=silent; api EVENT services#16=cut",
        ("load-balancer-deleted",),
        ("silent",),
        workloads=("services",),
    ),
    *(
        Known(
            "a Service becomes ClusterIP and LoadBalancer again while the cloud's listing is stale: it has no load "
            "balancer, or its status no address, until its next change",
            example,
            ("not-converged",),
            ("cloud-stale",),
            says,
            workloads=("services",),
        )
        for example, says in (
            ("services@405; steps=0,1,2,3,4; api EVENT services#14=cloud-stale", "has no load balancer"),
            (
                "services@396; api PATCH services/shop/web/status#5=error; cloud load_balancers.list#31=cloud-stale",
                "does not name its load balancer's address",
            ),
        )
    ),
    Known(
        "a load balancer that the cloud failed to provision after an update stays in its error state beyond the bound",
        "churn-327@327; steps=2,3,4; cloud routes.create#1=cloud-stale; "
        "cloud load_balancers.update#3=provision-error",
        ("not-converged",),
        ("provision-error",),
        "is error",
    ),
    *(
        Known(
            "a cloud that shows again what was before a machine was replaced is believed: the new machine loses its "
            "route and its place in load balancers until the cloud shows it again",
            "one-replaced@480; api PATCH nodes/n2#1=stop-40; cloud instances.list#4=snapshot",
            (invariant,),
            ("snapshot",),
            points=("cloud ",),
        )
        for invariant in ("route-deleted", "backend-removed")
    ),
    *(
        Known(
            _FORMER_MACHINE,
            "replace@79; steps=0; api DELETE nodes/n2#1=cloud-stale",
            (invariant,),
            ("cloud-stale",),
            says,
            workloads=("replace", "one-replaced"),
        )
        for invariant, says in (
            ("node-stays", "Node n2 exists and its instance does not"),
            ("not-converged", "has other targets"),
        )
    ),
    Known(
        "a list that lacks half of the Nodes is not believed until the process restarts, as its log says: when they "
        "are really gone and no watch said so, it deletes them and creates their routes again and again",
        "churn-70@70; steps=0,2; api EVENT services#2=skipped",
        ("never-quiet",),
        ("skipped", "relist-empty", "relist-shrunken"),
        workloads=("churn-",),
    ),
    Known(
        "a process has nothing to compare its first list of Nodes with: if it is wrong, load balancers lose members",
        "churn-46@1; steps=5; api GET leases/kube-system/cloud-controller-manager#3=relist-shrunken",
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
