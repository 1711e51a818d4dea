# SPDX-License-Identifier: Apache-2.0
"""What providers share for load balancers that outlive their Service (`ccm.cloud.KeepsLoadBalancers`). Pure."""

from __future__ import annotations

from ccm.cloud import Conflict, Kept, LoadBalancerSpec

#: Letters in the flags of a mark. `KEEP`: the load balancer stays when its Service goes. `PROTECTED`: nobody may delete
#: it.
KEEP, PROTECTED = "k", "n"


def flags(spec: LoadBalancerSpec) -> str:
    """Return the letters for a Service, in a cloud that can keep load balancers but not addresses."""
    return (KEEP if spec.keep is Kept.LOAD_BALANCER else "") + (PROTECTED if spec.protected else "")


def keep_of(flags: str) -> Kept | None:
    return Kept.LOAD_BALANCER if KEEP in flags else None


def is_to_be_kept(spec: LoadBalancerSpec, flags: str) -> bool:
    """Return whether a load balancer stays when its Service goes: if the Service requests it, or the mark says so."""
    return spec.keep is Kept.LOAD_BALANCER or KEEP in flags


def check_same(spec: LoadBalancerSpec, name: str) -> None:
    """Raise Conflict if a Service that has the load balancer `name` requests to take back another one."""
    if spec.take_back not in ("", name):
        raise Conflict(
            f"the Service has the load balancer {name}, and cannot take back {spec.take_back}: a new Service can"
        )


def nothing_kept(spec: LoadBalancerSpec) -> Conflict:
    return Conflict(
        f"no load balancer {spec.take_back} is kept for namespace {spec.namespace}, so none can be taken back: "
        "correct the name, or remove the annotation to get a new load balancer"
    )


def kept_for_another(what: str, namespace: str) -> Conflict:
    """Return the error for a Service that names a kept load balancer, or needs its name. `what`: the load balancer."""
    return Conflict(
        f"{what} is kept for namespace {namespace}: a Service in that namespace can take it back with the annotation "
        "ccm.outoftree.dev/take-back-load-balancer; for this Service, choose another load balancer or name"
    )
