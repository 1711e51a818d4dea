# SPDX-License-Identifier: Apache-2.0
"""Which of the routes that nobody seems to want are deleted.

`route_rules` decides; this file remembers Nodes that went, and asks the API server about the Nodes of a route: what the
caches lack is no proof that a Node is gone.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from prometheus_client import Gauge

from ccm.cloud import Route
from ccm.engine import absence_rules
from ccm.engine.client import ApiError, NotFoundError
from ccm.engine.objects import Node, object_path

from . import orphan_rules
from . import route_rules as rules
from .context import Context

log = logging.getLogger(__name__)

KEPT = Gauge(
    "ccm_routes_unclaimed",
    "Routes that no Node seems to want and that stay for now: it is not sure that their Nodes are gone, or it is not "
    "their turn.",
)

NODES = "/api/v1/nodes"


class RouteRemoval:
    """One for a route controller."""

    def __init__(self, context: Context) -> None:
        self._context = context
        #: Nodes that went while this process led, by providerID, until their routes are gone.
        self._former: dict[str, Node] = {}
        #: When routes were deleted because their Node is gone, by providerID: a Node may have two.
        self._gone_at: dict[str, float] = {}
        self._sightings: dict[str, float] = {}
        self._kept: frozenset[str] = frozenset()

    def on_node(self, old: Node | None, new: Node | None) -> None:
        """A handler of the informer of Nodes."""
        if new is None and old is not None and old.spec.provider_id:
            self._former[old.spec.provider_id] = old
        elif new is not None:
            self._former.pop(new.spec.provider_id, None)

    async def choose(self, plan: rules.RoutePlan) -> tuple[list[Route], list[Exception]]:
        """The routes to delete now, and what kept the API server from answering about others. The plan keeps the others
        (`RoutePlan.keep`)."""
        going, now = list(plan.delete), self._context.monotonic()
        errors: list[Exception] = []
        self._former = {key: node for key, node in self._former.items() if key in plan.targets}
        self._gone_at = {key: moment for key, moment in self._gone_at.items() if now - moment < absence_rules.GRACE}
        unknown: list[Route] = []
        for removal in plan.unclaimed:
            holder = removal.holder or self._former.get(removal.route.provider_id)
            try:
                fate = await self._ask(removal, holder)
            except ApiError as error:
                errors.append(error)
                continue
            if fate is rules.Fate.UNKNOWN:
                unknown.append(removal.route)
            elif fate is rules.Fate.GO or (fate is rules.Fate.TURN and self._has_turn(removal.route, plan, now)):
                going.append(removal.route)
        try:
            going += await self._orphans(unknown, plan)
        except ApiError as error:
            errors.append(error)
        kept = [removal.route for removal in plan.unclaimed if removal.route not in going]
        plan.keep(kept)
        self._report({route.destination for route in kept})
        return going, errors

    def _has_turn(self, route: Route, plan: rules.RoutePlan, now: float) -> bool:
        target = route.provider_id
        if target not in self._gone_at:
            if not absence_rules.room(len(plan.targets), list(self._gone_at.values()), now):
                return False
            self._gone_at[target] = now
        return True

    async def _ask(self, removal: rules.Removal, holder: Node | None) -> rules.Fate:
        """What becomes of a route. Raises ApiError."""
        live = await self._read(holder) if holder is not None else None
        if holder is not None and rules.wants(live, removal.route):
            return rules.Fate.STAY
        if removal.claimant is not None:
            wanted = rules.wants(await self._read(removal.claimant), removal.route, elsewhere=True)
            return rules.Fate.GO if wanted else rules.Fate.STAY
        if holder is None:
            return rules.Fate.UNKNOWN
        return rules.Fate.TURN if live is None else rules.Fate.GO

    async def _read(self, node: Node) -> Node | None:
        """The Node as it is now, None when it is gone. Raises ApiError."""
        try:
            live = await self._context.client.get(object_path(NODES, node.metadata), Node)
        except NotFoundError:
            return None
        return live if live.metadata.uid == node.metadata.uid else None

    async def _orphans(self, unknown: Sequence[Route], plan: rules.RoutePlan) -> list[Route]:
        """Of the routes whose Node this process never knew, those to delete: the rules are the orphan audit's.

        Raises ApiError.
        """
        now, by_key = self._context.monotonic(), {_key(route): route for route in unknown}
        self._sightings = orphan_rules.look(self._sightings, by_key, (), now)
        found = [by_key[key] for key in orphan_rules.orphans(self._sightings, now)]
        if not found or not orphan_rules.may_delete(len({route.provider_id for route in found}), len(plan.targets)):
            return []
        nodes, _ = await self._context.client.list(NODES, Node)
        return [route for route in found if nodes and not any(rules.wants(node, route) for node in nodes)]

    def _report(self, kept: set[str]) -> None:
        KEPT.set(len(kept))
        if new := kept - self._kept:
            log.warning(
                "routes that no Node seems to want stay until it is sure that their Nodes are gone, or until it is "
                "their turn: %s",
                ", ".join(sorted(new)),
            )
        self._kept = frozenset(kept)


def _key(route: Route) -> str:
    return f"{route.destination} {route.provider_id} {route.id}"
