# SPDX-License-Identifier: Apache-2.0
"""Decide what stays in the cloud when a Service is deleted, and whether its load balancer may be deleted. No I/O.

What is deleted is lost, and what is kept costs a little. So while KEEP or PROTECT of a Service cannot be read, its load
balancer is not deleted, and an Event says so.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from typing import Any

from ccm.base.text import printable, quoted, shorten
from ccm.cloud import KeepsLoadBalancers, Kept, KeptLoadBalancer, LoadBalancers

from ..shared.rule_error import ServiceRuleError
from . import comparison_rules

KEEP = "ccm.outoftree.dev/keep-on-deletion"
PROTECT = "ccm.outoftree.dev/protect-load-balancer"
TAKE_BACK = "ccm.outoftree.dev/take-back-load-balancer"
#: The maximum length of the name of a load balancer, in characters; no cloud has longer names.
LONGEST = 255


_PREFIX = "ccm.outoftree.dev/"
#: All annotations of Services that the framework reads, with any provider.
_KNOWN = (KEEP, PROTECT, TAKE_BACK, comparison_rules.ANNOTATION)
#: How many misspelled annotations an Event names.
NAMED = 5


def misspelled(annotations: Mapping[str, str]) -> list[str]:
    """Return warnings about the first annotations that have the framework's prefix and no meaning. Whoever misspells
    `keep-on-deletion` loses the load balancer with the Service."""
    unknown = sorted(key for key in annotations if key.startswith(_PREFIX) and key not in _KNOWN)[:NAMED]
    return [f"annotation {shorten(printable(key), LONGEST)} has no effect{_meant(key)}" for key in unknown]


def _meant(key: str) -> str:
    similar = difflib.get_close_matches(key[:LONGEST], _KNOWN, n=1, cutoff=0.8)
    return f"; did you mean {similar[0]}?" if similar else f"; known are {', '.join(_KNOWN)}"


def keepable(balancers: LoadBalancers) -> frozenset[Kept]:
    """Return what a provider's cloud can keep."""
    return frozenset(balancers.keeps) if isinstance(balancers, KeepsLoadBalancers) else frozenset()


def outliving(annotations: Mapping[str, str], keeps: Collection[Kept]) -> dict[str, Any]:
    """Return the fields of a spec that say what outlives the Service. Raises ServiceRuleError if an annotation about
    that cannot be used."""
    return {
        "keep": _keep(annotations, keeps),
        "protected": _is_protected(annotations),
        "take_back": _take_back(annotations, keeps),
    }


def readable_keep(annotations: Mapping[str, str]) -> Kept | None:
    """Return what to keep; None for nothing, or if the annotations cannot be read."""
    try:
        return _keep(annotations, tuple(Kept))
    except ServiceRuleError:
        return None


def why_held(annotations: Mapping[str, str], keeps: Collection[Kept]) -> str:
    """Return why the load balancer of a Service that no longer wants it must not be deleted, "" if it may be."""
    try:
        _keep(annotations, keeps)
        if not _is_protected(annotations):
            return ""
    except ServiceRuleError as error:
        return f"{error}; until then the load balancer is not deleted"
    return f"annotation {PROTECT} protects the load balancer against deletion: remove it, and the deletion continues"


def farewell(keep: Kept | None, name: str, address: str) -> tuple[str, str]:
    """Return the reason and the message of the Event about the end of a Service's load balancer.

    `name`, `address`: the load balancer's; "" if unknown.
    """
    if keep is Kept.LOAD_BALANCER:
        return "KeptLoadBalancer", (
            f"The load balancer stays in the cloud, without backends: a Service of this namespace gets it with the "
            f"annotation {TAKE_BACK}: {name or 'its name in the cloud'}"
        )
    if keep is Kept.ADDRESS:
        return "DeletedLoadBalancer", (
            f"Deleted load balancer. Its address stays in the project: a Service of this name and namespace gets it "
            f"with spec.loadBalancerIP: {address or 'the address'}"
        )
    return "DeletedLoadBalancer", "Deleted load balancer"


def way_back(kept: KeptLoadBalancer) -> str:
    """Return how a Service gets the load balancer or the address that was kept."""
    if kept.name:
        return f"a Service of namespace {kept.namespace} gets it with the annotation {TAKE_BACK}: {kept.name}"
    return f"a Service of the same name in namespace {kept.namespace} gets it with spec.loadBalancerIP: {kept.address}"


def outlives_it(annotations: Mapping[str, str]) -> str:
    """Return, for people, what becomes of the load balancer when its Service is deleted. "" means that the load
    balancer is deleted, too, or that an annotation cannot be read."""
    try:
        if _is_protected(annotations):
            return "Its load balancer is protected: while it is, the Service cannot be deleted."
    except ServiceRuleError:
        return ""
    keep = readable_keep(annotations)
    return "" if keep is None else f"When it is deleted, its {keep.replace('-', ' ')} stays in the cloud."


def _keep(annotations: Mapping[str, str], keeps: Collection[Kept]) -> Kept | None:
    text = annotations.get(KEEP)
    if text is None:
        return None
    if text not in tuple(Kept):
        every = _list(tuple(Kept))
        raise ServiceRuleError(f"annotation {KEEP}: {quoted(text)} is not one of {every}: correct or remove it")
    if text not in keeps:
        can = f"it can keep only {_list(keeps)}" if keeps else "it can keep nothing"
        raise ServiceRuleError(f"annotation {KEEP}: this cloud cannot keep {quoted(text)}, {can}: correct or remove it")
    return Kept(text)


def _is_protected(annotations: Mapping[str, str]) -> bool:
    text = annotations.get(PROTECT, "false")
    if text not in ("true", "false"):
        raise ServiceRuleError(f"annotation {PROTECT}: {quoted(text)} is not true or false: correct or remove it")
    return text == "true"


def _take_back(annotations: Mapping[str, str], keeps: Collection[Kept]) -> str:
    name = annotations.get(TAKE_BACK)
    if name is None:
        return ""
    if not name or len(name) > LONGEST or not name.isprintable():
        raise ServiceRuleError(f"annotation {TAKE_BACK}: {quoted(name)} is not the name of a load balancer")
    if Kept.LOAD_BALANCER not in keeps:
        raise ServiceRuleError(
            f"annotation {TAKE_BACK}: this cloud keeps no load balancers; a kept address is requested with "
            "spec.loadBalancerIP: remove it"
        )
    return name


def _list(kept: Collection[Kept]) -> str:
    return " or ".join(sorted(kept))
