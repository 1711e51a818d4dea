# SPDX-License-Identifier: Apache-2.0
"""Decide which load balancers have outlived their Service. No I/O.

Upstream leaks the load balancer of a Service whose finalizer was removed by hand, because it never looks for orphans.

A load balancer is an orphan only if every check during GRACE seconds (at least two checks, because caches and listings
lag) saw it without its Service. Many orphans at once are more likely one mistake (another cluster with the same name in
the project, a kubeconfig of another cluster) than many accidents.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ccm.cloud import LoadBalancer
from ccm.engine.absence_rules import GRACE, cap


def look(
    before: Mapping[str, float], listed: Collection[str], services: Collection[str], now: float
) -> dict[str, float]:
    """Return the load balancers that one more check, at `now`, sees without their Service: Service UID -> the time of
    the first such check.

    `before`: the result of the previous check. `listed`: Service UIDs that load balancers carry. `services`: UIDs of
    existing Services.
    """
    return {uid: before.get(uid, now) for uid in listed if uid not in services}


def orphans(sightings: Mapping[str, float], now: float) -> list[str]:
    """Return the Service UIDs of the confirmed orphans."""
    return sorted(uid for uid, since in sightings.items() if now - since >= GRACE)


def may_delete(orphaned: int, listed: int) -> bool:
    """Return whether so few of `listed` load balancers are orphans that they may be deleted. Otherwise none of
    them is deleted."""
    return orphaned <= cap(listed)


def balancers_to_delete(orphaned: Collection[str], listed: Mapping[str, LoadBalancer]) -> list[LoadBalancer]:
    """Return the orphans that may be deleted; protected ones never are, so they do not count. `orphaned`: Service UIDs;
    `listed`: Service UID -> its load balancer."""
    unprotected = [listed[uid] for uid in orphaned if not listed[uid].protected]
    protected = len(orphaned) - len(unprotected)
    return unprotected if may_delete(len(unprotected), len(listed) - protected) else []


def way_out(cluster: str, *, delete: bool, held: bool, protected: bool = False) -> str:
    """Return what becomes of an orphan, or what to do. `delete`: the flag is set; `held`: there are too many;
    `protected`: the load balancer's mark forbids its deletion."""
    if protected:
        return "its Service protected it against deletion: delete it by hand if nobody needs it"
    if held:
        return "there are so many orphans that none is deleted: check --cluster-name and --kubeconfig"
    if delete:
        return "it is deleted"
    return (
        f"delete it by hand, or set --delete-orphaned-load-balancers if no other cluster in this project is named "
        f"{cluster!r}"
    )
