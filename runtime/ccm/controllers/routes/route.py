# SPDX-License-Identifier: Apache-2.0
"""node-route-controller: creates a route in the cloud for every pod CIDR, so that Pods on all Nodes reach each other.

It compares Nodes and routes when Nodes change, soon after its own failures, and once every period as an audit (upstream
lists all routes every 10 s). While Nodes keep changing, the cost of one comparison determines the pause before the next
(`route_rules.spacing`). A failed route does not delay other routes and is tried again after a pause. Upstream's watch
mode forgets it until something else changes.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Collection, Sequence
from typing import Any, ClassVar

import msgspec
from prometheus_client import Counter

from ccm.cloud import CloudError, Invalid, RetryAfter, Route, Routes
from ccm.engine.api_errors import is_other_object
from ccm.engine.client import ApiError, ConflictError, NotFoundError
from ccm.engine.objects import Node

from ..nodes.node_lifecycle_rules import Safety
from ..nodes.vouching import Vouching
from ..shared.context import Context
from ..shared.event_budget import EventBudget
from ..shared.pod_network_rules import PodNetwork
from ..shared.stretches import STRETCH, in_stretches
from ..shared.unchanged_answers import UnchangedAnswers
from . import route_rules as rules
from .route_removal import RouteRemoval

log = logging.getLogger(__name__)

SYNCS = Counter(
    "route_controller_route_sync",
    "Comparisons of Nodes and routes, by trigger (node_change or periodic; a repetition after a failure is periodic) "
    "and outcome (error if anything failed, changed if at least one route was created or deleted, otherwise noop).",
    ["outcome", "trigger"],
)
CHANGES = Counter("ccm_route_changes", "Routes created and deleted, by outcome.", ["verb", "result"])

#: Upstream's names for what started a comparison.
_NODE_CHANGE, _PERIODIC = "node_change", "periodic"
for _trigger in (_NODE_CHANGE, _PERIODIC):
    for _outcome in ("changed", "noop", "error"):
        SYNCS.labels(_outcome, _trigger)
#: Seconds before the next attempt after a failure: RETRY_FIRST, then twice as long each time up to RETRY_MAX.
RETRY_FIRST, RETRY_MAX = 1.0, 60.0
#: Conditions written at the same time; limited, because the API server has other clients.
CONDITION_WRITERS = 20


class RouteOptions(msgspec.Struct, frozen=True):
    """Options of the route controller.

    `period`: seconds between audits (`--route-reconciliation-period`). `debounce`: seconds for which changes of Nodes
    are collected. `network`: where pod CIDRs may lie; routes outside of it are never changed. `safety`: how fast routes
    of Nodes that are gone may be deleted (`RouteRemoval`).
    """

    network: PodNetwork
    period: float = 60.0
    debounce: float = 0.2
    safety: Safety = msgspec.field(default_factory=Safety)


class RouteController:
    name: ClassVar[str] = "node-route-controller"

    def __init__(self, context: Context, options: RouteOptions, vouching: Vouching) -> None:
        if context.gateway.cloud.routes is None:
            raise ValueError(f"{self.name} needs a provider with routes")
        self._vouching = vouching
        self._context = context
        self._options = options
        self._events = EventBudget(context.recorder("route_controller"), context.monotonic)
        self._removal = RouteRemoval(context, options.safety)
        self._changed = asyncio.Event()
        self._failures = 0
        self._answers: UnchangedAnswers[None] = UnchangedAnswers()
        self._not_before = -math.inf  # monotonic seconds

    @property
    def _cloud(self) -> Routes:
        """The route functions of the current cloud. A reload of the credentials replaces the cloud."""
        routes = self._context.gateway.cloud.routes
        assert routes is not None
        return routes

    async def run(self) -> None:
        await self._context.nodes.wait_synced()
        await self._vouching.ready()
        self._vouching.nodes.add_handler(self._removal.on_node)
        self._vouching.nodes.add_handler(self._on_node)
        self._vouching.on_change(self._changed.set)
        trigger = _PERIODIC
        while True:
            self._changed.clear()
            await self._vouching.ready()  # another cloud may have replaced the one that was asked before
            wait = await self._once(trigger)
            try:
                async with asyncio.timeout(wait):
                    await self._changed.wait()
                await asyncio.sleep(max(self._options.debounce, self._not_before - self._context.monotonic()))
                trigger = _NODE_CHANGE
            except TimeoutError:
                trigger = _PERIODIC

    async def _once(self, trigger: str) -> float:
        """Reconcile. Return the seconds until the next comparison if no Node changes."""
        changed = 0
        try:
            changed, failed = await self._reconcile()
        except CloudError as error:
            failed = [error]
        except Exception as error:  # a bug must not affect the other controllers
            log.exception("cannot compare the routes with the Nodes")
            failed = [error]
        SYNCS.labels("error" if failed else "changed" if changed else "noop", trigger).inc()
        if not failed:
            self._failures = 0
            self._answers.forget(None)
            return self._options.period
        if all(isinstance(error, (RetryAfter, ConflictError)) for error in failed):
            self._failures = 0  # nothing is wrong: the cloud is still working, or others changed a Node
            soon = min(getattr(error, "retry_after", None) or RETRY_FIRST for error in failed)
            if any(isinstance(error, ConflictError) for error in failed):
                return soon  # what another writer did says nothing about the cloud
            return self._answers.pause(None, "; ".join(sorted(map(str, failed))), soon, self._context.monotonic())
        self._failures += 1
        delay = min(RETRY_MAX, RETRY_FIRST * 2.0 ** min(self._failures - 1, 20))
        wait = min(getattr(error, "retry_after", None) or delay for error in failed)
        log.warning("%d route operations failed, next try in %.0f s; the first error: %s", len(failed), wait, failed[0])
        return wait

    def _on_node(self, old: Node | None, new: Node | None) -> None:
        if rules.routing(old, self._vouching.judge) != rules.routing(new, self._vouching.judge):
            self._changed.set()

    async def _reconcile(self) -> tuple[int, list[Exception]]:
        """Compare and change. Return how many routes changed and what failed. Raises CloudError if the routes cannot be
        listed."""
        plan = await self._compare()
        going, unsure = await self._removal.choose(plan)
        for node, problem in plan.problems:
            self._events.event(node, "Warning", "FailedToCreateRoute", problem, topic=problem)
        for node, problem in plan.kept:
            self._events.event(node, "Warning", "RouteKept", problem, topic=problem)
        for node, problem in plan.contested:
            self._events.event(node, "Warning", "OverlappingPodCIDR", problem, topic=problem)
        slots = asyncio.Semaphore(max(1, self._cloud.concurrency))
        # Deletions first, because a CIDR that moves to another Node is free only after its old route is deleted.
        deleted = await asyncio.gather(*(self._delete(route, slots) for route in going))
        created = await asyncio.gather(*(self._create(node, route, slots) for node, route in plan.create))
        unrouted = {node.metadata.name for (node, _), error in zip(plan.create, created, strict=True) if error}
        unrouted |= {node.metadata.name for node, _ in plan.problems} | {node.metadata.name for node in plan.cut_off}
        marked = [*plan.nodes.values(), *plan.cut_off]
        written = await self._set_conditions(marked, unrouted)
        changed = [*deleted, *created].count(None)
        return changed, [error for error in (*unsure, *deleted, *created, *written) if error is not None]

    async def _compare(self) -> rules.RoutePlan:
        """List the routes and compare them with the Nodes. Raises CloudError."""
        cluster_name, started = self._context.cluster_name, self._context.monotonic()
        try:
            routes = await self._context.gateway.call("routes.list", lambda: self._cloud.list(cluster_name))
            nodes, network = self._vouching.nodes.items(), self._options.network
            return await in_stretches(rules.planning(nodes, routes, network, self._vouching.judge, cluster_name))
        finally:
            now = self._context.monotonic()
            self._not_before = now + rules.spacing(now - started)

    async def _set_conditions(self, nodes: Sequence[Node], unrouted: Collection[str]) -> list[ApiError]:
        """Write `NetworkUnavailable` where it is wrong, a few Nodes at a time. Return what failed."""
        wrong: list[tuple[Node, bool]] = []
        for number, node in enumerate(nodes, 1):
            routed = node.metadata.name not in unrouted
            if self._condition_patch(node, routed) is not None:
                wrong.append((node, routed))
            if number % STRETCH == 0:
                await asyncio.sleep(0)
        rest, failed = iter(wrong), list[ApiError]()

        async def write() -> None:
            for node, routed in rest:
                if (error := await self._set_condition(node, routed)) is not None:
                    failed.append(error)

        await asyncio.gather(*(write() for _ in range(min(CONDITION_WRITERS, len(wrong)))))
        return failed

    async def _create(self, node: Node, route: Route, slots: asyncio.Semaphore) -> CloudError | None:
        async with slots:
            try:
                if problem := self._options.network.forbids(route):  # the last check, whatever the plan says
                    raise Invalid(f"{route.destination} {problem}")
                await self._context.gateway.call(
                    "routes.create", lambda: self._cloud.create(self._context.cluster_name, route)
                )
            except RetryAfter as error:
                log.info("the route %s to node %s is not there yet: %s", route.destination, node.metadata.name, error)
                return error
            except CloudError as error:
                CHANGES.labels("create", "failure").inc()
                message = f"Could not create route {route.destination} to {node.metadata.name}: {error}"
                self._events.event(node, "Warning", "FailedToCreateRoute", message, topic=str(error))
                return error
        CHANGES.labels("create", "success").inc()
        log.info("created route %s to node %s", route.destination, node.metadata.name)
        return None

    async def _delete(self, route: Route, slots: asyncio.Semaphore) -> CloudError | None:
        async with slots:
            try:
                await self._context.gateway.call(
                    "routes.delete", lambda: self._cloud.delete(self._context.cluster_name, route)
                )
            except RetryAfter as error:
                log.info("the route %s to %s is still there: %s", route.destination, route.provider_id, error)
                return error
            except CloudError as error:
                CHANGES.labels("delete", "failure").inc()
                log.warning("cannot delete route %s to %s: %s", route.destination, route.provider_id, error)
                return error
        CHANGES.labels("delete", "success").inc()
        log.info("deleted route %s to %s", route.destination, route.provider_id or "nowhere")
        return None

    def _condition_patch(self, node: Node, routed: bool) -> dict[str, Any] | None:
        """Return the patch for the Node's current state; None if there is nothing to write.

        None as well if another Node has the name by now, because the result for the old Node does not apply to it.
        """
        now, current = self._context.now().strftime("%Y-%m-%dT%H:%M:%SZ"), self._context.nodes.get(node.metadata.name)
        if current is not None and current.metadata.uid != node.metadata.uid:
            return None
        return rules.condition_patch(current or node, routed, now)

    async def _set_condition(self, node: Node, routed: bool) -> ApiError | None:
        patch = self._condition_patch(node, routed)
        if patch is None:
            return None
        try:
            # A strategic merge patch merges conditions by type, so the kubelet's conditions stay unchanged.
            await self._context.client.patch(f"/api/v1/nodes/{node.metadata.name}/status", patch, strategic=True)
        except NotFoundError:
            pass
        except ApiError as error:
            if is_other_object(error):
                return None
            if not isinstance(error, ConflictError):
                log.warning("cannot write the NetworkUnavailable condition of node %s: %s", node.metadata.name, error)
            return error
        return None
