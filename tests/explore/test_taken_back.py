# SPDX-License-Identifier: Apache-2.0
"""Fixes are taken back, one at a time: the explorer finds the mistake that each of them had removed.

The explorer found the sequences while the fix was taken back; with the fix the same sequence does no harm.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from ccm.cloud import NotFound
from ccm.controllers.nodes.node_lifecycle_rules import Safety
from ccm.controllers.routes.route_removal import RouteRemoval
from ccm.controllers.services import late_answer_rules, vanished_services
from ccm.controllers.services.service_balancers import ServiceBalancers
from ccm.controllers.services.service_steps import ServiceSteps
from ccm.engine.client import KubeClient
from ccm.engine.election import LeaderElector
from ccm.engine.identity import ClusterIdentity
from ccm.engine.informer import Informer
from ccm.gateway.instance_directory import InstanceDirectory

from .explorer import Trial

Patch = pytest.MonkeyPatch


def lists_are_believed(patch: Patch) -> None:
    """An object that is missing in a list counts as deleted at once."""

    async def doubt(self: Informer[Any], listed: Any) -> None:
        self._set_missing(set())

    patch.setattr(Informer, "_doubt", doubt)


def vanished_services_are_released_at_once(patch: Patch) -> None:
    """A Service that vanished is released without a live read and without a grace period."""

    async def exists(self: KubeClient, path: str, metadata: Any) -> bool:
        return False

    lists_are_believed(patch)
    patch.setattr(KubeClient, "exists", exists)
    patch.setattr(vanished_services, "grace", lambda state: 0.0)


def unclaimed_routes_are_deleted(patch: Patch) -> None:
    """A route is deleted if no Node in the cache needs it."""

    async def choose(self: RouteRemoval, plan: Any) -> Any:
        return [*plan.delete, *(removal.route for removal in plan.unclaimed)], []

    patch.setattr(RouteRemoval, "choose", choose)


def any_cluster_will_do(patch: Patch) -> None:
    """The runtime does not check that the cluster behind the address is still the same."""

    async def check(self: ClusterIdentity) -> None:
        return None

    patch.setattr(ClusterIdentity, "check", check)


def a_cluster_without_nodes_is_believed(patch: Patch) -> None:
    """A process that finds a cluster without Nodes deletes routes to instances that the cloud does not have."""
    patch.setattr(RouteRemoval, "_has_nodes", lambda self: True)


def listings_of_instances_are_proof(patch: Patch) -> None:
    """Nodes are deleted by the listing, without a read of the instance itself."""

    async def get(self: InstanceDirectory, ref: Any) -> Any:
        raise NotFound(str(ref))

    a_cluster_without_nodes_is_believed(patch)
    patch.setattr(InstanceDirectory, "get", get)


def nodes_go_at_no_rate(patch: Patch) -> None:
    """The cap of deletions is always 0, so Nodes of deleted machines stay."""
    patch.setattr(Safety, "cap", lambda self, nodes: 0)


def nothing_ends_a_leader_that_stood_still(patch: Patch) -> None:
    """A stopped leader continues when another process leads, and goes on with its old state."""
    patch.setattr(LeaderElector, "_set_tripwire", lambda self: None)


def timers_alone_end_a_leader_that_stood_still(patch: Patch) -> None:
    """Callbacks that were ready when the leader was stopped run before the timer that ends the process."""
    set_tripwire = LeaderElector._set_tripwire

    def without_alarm(self: LeaderElector) -> None:
        self._alarm = None
        set_tripwire(self)

    patch.setattr(LeaderElector, "_set_tripwire", without_alarm)


def late_answers_are_believed(patch: Patch) -> None:
    """Answers right after a deletion or a write count as current."""
    patch.setattr(ServiceBalancers, "shows_deleted", lambda self, uid: 0.0)
    patch.setattr(late_answer_rules, "is_late", lambda late_until, now: False)


def a_load_balancer_is_gone_if_one_answer_says_so(patch: Patch) -> None:
    """A load balancer counts as gone after one answer, so its backends no longer follow the Nodes."""
    patch.setattr(ServiceSteps, "_is_gone", lambda self, known: True)


def former_leaders_are_forgotten(patch: Patch) -> None:
    """A process expects late answers only about its own writes, not about those of former leaders. Nor does it compare
    the Nodes with the cloud's listing, which is as late in this sequence and would reveal the answer."""
    patch.setattr(ServiceBalancers, "take_over", lambda self: None)

    async def no_doubt(self: ServiceBalancers, *, is_named: bool) -> str:
        return ""

    patch.setattr(ServiceBalancers, "_doubt", no_doubt)


class Fix(NamedTuple):
    """A fix: `without` takes it back; then `sequence` violates `invariant`."""

    without: Callable[[Patch], None]
    sequence: str
    invariant: str


FIXES = (
    Fix(lists_are_believed, "churn-0@0; steps=1; api EVENT nodes#2=relist-shrunken", "backend-removed"),
    Fix(
        vanished_services_are_released_at_once,
        "churn-0@0; steps=1; api EVENT nodes#2=relist-shrunken",
        "load-balancer-deleted",
    ),
    Fix(
        unclaimed_routes_are_deleted,
        "churn-0@0; steps=0; api PATCH services/shop/db/status#2=empty-cluster",
        "route-deleted",
    ),
    Fix(
        any_cluster_will_do,
        "leaders@3; steps=0,2,4,5; api PATCH nodes/n4#1=cloud-stale; cloud load_balancers.list#16=other-cluster",
        "write-without-lease",
    ),
    Fix(
        listings_of_instances_are_proof,
        "reload@34; steps=; api LIST nodes#1=empty; api LIST nodes#2=empty; cloud instances.list#1=shrunken",
        "route-deleted",
    ),
    Fix(
        a_cluster_without_nodes_is_believed,
        "deaths-13@13; steps=12; api GET namespaces/kube-system#12=other-cluster",
        "route-deleted",
    ),
    Fix(
        nothing_ends_a_leader_that_stood_still,
        "rivals@1; cloud load_balancers.list#8=stop-40",
        "write-without-lease",
    ),
    Fix(
        timers_alone_end_a_leader_that_stood_still,
        "leaders@4; steps=; api PATCH services/shop/web/status#1=stop-40",
        "write-without-lease",
    ),
    *(
        Fix(late_answers_are_believed, sequence, "not-converged")
        for sequence in (
            "services@104; steps=3,4; api GET services/shop/web#1=cloud-stale",
            "services@552; steps=0,2,3,4; api WATCH leases#1=error; cloud load_balancers.list#26=stale",
            "churn-327@327; steps=2,3,4; cloud routes.create#1=cloud-stale; "
            "cloud load_balancers.update#3=provision-error",
        )
    ),
    *(
        Fix(a_load_balancer_is_gone_if_one_answer_says_so, sequence, "backends-behind")
        for sequence in (
            "refused-leaders@447; steps=0,5; api PATCH nodes/n3#1=cloud-stale",
            "mistakes-525@525; steps=0,1,3,6; cloud load_balancers.list#11=empty",
        )
    ),
    Fix(
        former_leaders_are_forgotten,
        "churn-133@133; steps=1,2; api POST leases/cloud-controller-manager#1=kill-before; "
        "api LIST nodes#4=cloud-stale",
        "load-balancer-leaked",
    ),
    Fix(nodes_go_at_no_rate, "churn-0@0; steps=1", "node-stays"),
)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("fix", FIXES, ids=lambda fix: fix.without.__name__)
def test_a_fix_that_is_taken_back_is_missed(fix: Fix, monkeypatch: Patch) -> None:
    assert Trial.parse(fix.sequence).run().violations == []
    fix.without(monkeypatch)
    assert fix.invariant in Trial.parse(fix.sequence).run().invariants
