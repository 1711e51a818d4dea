# SPDX-License-Identifier: Apache-2.0
"""Chooses which routes to delete among those that no Node claims.

`route_rules` decides. This file remembers Nodes that were deleted, and asks the API server about the Nodes of a route,
because a Node that is missing from the cache may still exist.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from urllib.parse import quote

from ccm.base.cloud_metrics import CloudGauge
from ccm.cloud import CloudError, InstanceRef, NotFound, Route
from ccm.engine import absence_rules
from ccm.engine.client import ApiError, NotFoundError
from ccm.engine.objects import Node

from ..nodes.node_lifecycle_rules import Safety, Window
from ..shared import orphan_rules
from ..shared.context import Context
from ..shared.pod_network_rules import Network
from . import route_rules as rules

log = logging.getLogger(__name__)

KEPT = CloudGauge(
    "ccm_routes_unclaimed",
    "Routes that no Node claims and that are kept for now, because their Nodes may still exist or other routes are "
    "deleted first.",
)

#: The rule by which a route is held, and what it waits for.
KEPT_RULE, KEPT_WHY = "Unclaimed", "no Node claims it: kept until its Node is confirmed gone and it is its turn"
NODES = "/api/v1/nodes"
#: Maximum age, in seconds, of a listing of instances. It need not be new, because an instance that lost its Node does
#: not get that Node back.
FRESH = 60.0


class RouteRemoval:
    """Chooses the routes that one route controller deletes. `safety` limits how fast routes of deleted Nodes are
    deleted, as it does for Nodes. If it forbids all deletions of Nodes, the cap of `absence_rules` counts."""

    def __init__(self, context: Context, safety: Safety) -> None:
        self._context, self._safety = context, safety
        #: Nodes that were deleted while this process led, by providerID, until their routes are deleted.
        self._former: dict[str, Node] = {}
        #: When routes were deleted because their Node is gone; by providerID, so that two routes of one Node count
        #: once.
        self._gone = Window(safety.window)
        self._kept: frozenset[str] = frozenset()

    def on_node(self, old: Node | None, new: Node | None) -> None:
        """Informer handler for Nodes."""
        if new is None and old is not None and old.spec.provider_id:
            self._former[old.spec.provider_id] = old
        elif new is not None:
            self._former.pop(new.spec.provider_id, None)

    async def choose(self, plan: rules.RoutePlan) -> tuple[list[Route], list[Exception]]:
        """Return the routes to delete now, and the errors that prevented decisions about others.

        The plan keeps all other unclaimed routes (`RoutePlan.keep`).
        """
        going, unknown = list(plan.delete), list[Route]()
        errors: list[Exception] = []
        self._former = {key: node for key, node in self._former.items() if key in plan.targets}
        # Nodes of all clouds: a Node that is not known to be this cloud's is no `holder`, but its route may be right.
        machines = rules.lead_to_machines(self._context.nodes.items() if plan.unclaimed else ())
        for removal in plan.unclaimed:
            route = removal.route
            try:
                fate = await self._ask(removal, machines)
                if fate is rules.Fate.UNLISTED and self._has_turn(route, plan):
                    fate = await self._read_instance(route)
            except (ApiError, CloudError) as error:
                errors.append(error)
                continue
            if fate is rules.Fate.UNKNOWN:
                unknown.append(route)
            elif fate is rules.Fate.GO:
                going.append(route)
            elif fate is rules.Fate.TURN and self._has_turn(route, plan):
                self._gone.add(route.provider_id, self._context.monotonic())
                going.append(route)
        try:
            going += await self._orphans(unknown, plan)
        except ApiError as error:
            errors.append(error)
        kept = [removal.route for removal in plan.unclaimed if removal.route not in going]
        plan.keep(kept)
        self._report({route.destination for route in kept})
        return going, errors

    def _has_turn(self, route: Route, plan: rules.RoutePlan) -> bool:
        targets, gone = len(plan.targets), self._gone.within(self._context.monotonic())
        # A cap of 0 means that this program deletes no Nodes. If others delete them, their routes are deleted all the
        # same.
        return route.provider_id in gone or len(gone) < (self._safety.cap(targets) or absence_rules.cap(targets))

    async def _ask(self, removal: rules.Removal, machines: Collection[tuple[str, Network]]) -> rules.Fate:
        """Decide what happens to a route. `machines`: the result of `route_rules.lead_to_machines` for all Nodes.
        Raises ApiError and CloudError."""
        route, claimant = removal.route, removal.claimant
        holder = removal.holder or self._former.get(route.provider_id)
        live = await self._read(holder.metadata.name) if holder is not None else None
        if rules.wants(live, route):
            return rules.Fate.STAY
        if claimant is not None:
            live = await self._read(claimant.metadata.name)
            return rules.Fate.GO if rules.wants(live, route, elsewhere=True) else rules.Fate.STAY
        if holder is None:
            return rules.Fate.STAY if rules.leads_to_machine(route, machines) else await self._ask_cloud(route)
        return rules.Fate.TURN if live is None else rules.Fate.GO

    async def _ask_cloud(self, route: Route) -> rules.Fate:
        """Decide about a route whose Node this process never knew: look for a Node with one of the instance's names."""
        directory = self._context.gateway.instances
        assert directory is not None
        snapshot = await directory.list(not_before=self._context.monotonic() - FRESH)
        try:
            instance = snapshot.find(InstanceRef("", route.provider_id))
        except NotFound:
            return rules.Fate.UNLISTED
        except CloudError:  # the listing gives no answer
            return rules.Fate.STAY
        for name in instance.names:
            live = await self._read(name)
            if rules.wants(live, route) or (live and rules.leads_to_machine(route, rules.lead_to_machines([live]))):
                return rules.Fate.STAY
        return rules.Fate.UNKNOWN

    async def _read_instance(self, route: Route) -> rules.Fate:
        """Decide about a route whose instance is not listed, with a read of the instance, because a listing may be
        incomplete. Raises CloudError."""
        if not self._has_nodes():
            return rules.Fate.STAY
        directory = self._context.gateway.instances
        assert directory is not None
        try:
            await directory.get(InstanceRef("", route.provider_id))
        except NotFound:
            return rules.Fate.TURN
        return rules.Fate.STAY

    def _has_nodes(self) -> bool:
        """Return whether the cluster has a Node. Without one, this may be the wrong cluster or the wrong cloud project,
        so a missing instance proves nothing."""
        return len(self._context.nodes) > 0

    async def _read(self, name: str) -> Node | None:
        """Read the current Node of this name, which may be a new one; None if there is none. Raises ApiError."""
        try:
            return await self._context.client.get(f"{NODES}/{quote(name, safe='')}", Node)
        except NotFoundError:
            return None

    async def _orphans(self, unknown: Sequence[Route], plan: rules.RoutePlan) -> list[Route]:
        """Return which of the routes `unknown` to delete. They lead to existing instances without a known Node.

        [] if there are too many of them (`orphan_rules.may_delete`), or if the cluster has no Node. Raises ApiError.
        """
        if not unknown or not orphan_rules.may_delete(len({route.provider_id for route in unknown}), len(plan.targets)):
            return []
        nodes, _ = await self._context.client.list(NODES, Node)
        machines = rules.lead_to_machines(nodes)
        return [
            route
            for route in unknown
            if nodes
            and not any(rules.wants(node, route) for node in nodes)
            and not rules.leads_to_machine(route, machines)
        ]

    def _report(self, kept: set[str]) -> None:
        KEPT.of(self._context.gateway.name).set(len(kept))
        self._context.holds.replace("Route", {destination: (KEPT_RULE, KEPT_WHY) for destination in kept})
        if new := kept - self._kept:
            log.warning(
                "keeping routes that no Node claims, until their Nodes are confirmed gone or it is their turn to be "
                "deleted: %s",
                ", ".join(sorted(new)),
            )
        self._kept = frozenset(kept)
