# SPDX-License-Identifier: Apache-2.0
"""node-route-controller: a route in the cloud for every pod CIDR, so that Pods on different Nodes reach each other.

It looks when Nodes change, soon after its own failures, and once every period as an audit (upstream lists all routes
every 10 s: reference W21). A failed route delays neither the others nor its own next attempt (W22).
"""

from __future__ import annotations

import asyncio
import datetime
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from prometheus_client import Counter

from ccm.cloud import CloudError, Route
from ccm.engine.client import ApiError, NotFoundError
from ccm.engine.objects import Node

from . import route_rules as rules
from .context import Context

log = logging.getLogger(__name__)

SYNCS = Counter("route_controller_route_sync", "Comparisons of Nodes and routes.")
CHANGES = Counter("ccm_route_changes", "Routes created and deleted, by outcome.", ["verb", "result"])

#: After a failure the next attempt comes after RETRY_FIRST seconds, then twice as long each time up to RETRY_MAX.
RETRY_FIRST, RETRY_MAX = 1.0, 60.0


@dataclass(frozen=True)
class RouteOptions:
    """`period`: seconds between audits (`--route-reconciliation-period`); `debounce`: seconds for which changes of
    Nodes are gathered; `cluster`: the CIDRs within which routes are ours (`--cluster-cidr`)."""

    cluster: Sequence[rules.Network]
    period: float = 60.0
    debounce: float = 0.2


class RouteController:
    name: ClassVar[str] = "node-route-controller"

    def __init__(self, context: Context, options: RouteOptions) -> None:
        if context.gateway.cloud.routes is None or context.gateway.instances is None:
            raise ValueError(f"{self.name} needs a provider with routes and instances")
        self._cloud = context.gateway.cloud.routes
        self._owns = context.gateway.instances.owns
        self._context = context
        self._options = options
        self._events = context.recorder("route_controller")
        self._changed = asyncio.Event()
        self._failures = 0

    async def run(self) -> None:
        await self._context.nodes.wait_synced()
        self._context.nodes.add_handler(self._on_node)
        while True:
            self._changed.clear()
            try:
                self._failures = 0 if await self._reconcile() else self._failures + 1
                wait = self._retry_delay() if self._failures else self._options.period
            except CloudError as error:
                self._failures += 1
                wait = error.retry_after or self._retry_delay()
                log.warning("routes cannot be compared, trying again in %.0f s: %s", wait, error)
            try:
                async with asyncio.timeout(wait):
                    await self._changed.wait()
                await asyncio.sleep(self._options.debounce)
            except TimeoutError:
                pass

    def _retry_delay(self) -> float:
        return min(RETRY_MAX, RETRY_FIRST * 2.0 ** (self._failures - 1))

    def _on_node(self, old: Node | None, new: Node | None) -> None:
        if _routing(old) != _routing(new):
            self._changed.set()

    async def _reconcile(self) -> bool:
        """Compare and change; whether everything succeeded. Raises CloudError when the routes cannot be listed."""
        SYNCS.inc()
        cluster_name = self._context.cluster_name
        routes = await self._context.gateway.call("routes.list", lambda: self._cloud.list(cluster_name))
        plan = rules.plan(self._context.nodes.items(), routes, self._options.cluster, self._owns)
        for node, problem in plan.problems:
            self._events.event(node, "Warning", "FailedToCreateRoute", problem)
        slots = asyncio.Semaphore(self._cloud.concurrency)
        # Deletions first: a CIDR that moves to another Node is free only then.
        deleted = await asyncio.gather(*(self._delete(route, slots) for route in plan.delete))
        created = await asyncio.gather(*(self._create(node, route, slots) for node, route in plan.create))
        failed = {node.metadata.name for (node, _), ok in zip(plan.create, created, strict=True) if not ok}
        failed |= {node.metadata.name for node, _ in plan.problems}
        await asyncio.gather(*(self._set_condition(node, name not in failed) for name, node in plan.nodes.items()))
        return all(deleted) and all(created)

    async def _create(self, node: Node, route: Route, slots: asyncio.Semaphore) -> bool:
        async with slots:
            try:
                await self._context.gateway.call(
                    "routes.create", lambda: self._cloud.create(self._context.cluster_name, route)
                )
            except CloudError as error:
                CHANGES.labels("create", "failure").inc()
                message = f"Could not create route {route.destination} to {node.metadata.name}: {error}"
                self._events.event(node, "Warning", "FailedToCreateRoute", message)
                return False
        CHANGES.labels("create", "success").inc()
        log.info("route %s to node %s created", route.destination, node.metadata.name)
        return True

    async def _delete(self, route: Route, slots: asyncio.Semaphore) -> bool:
        async with slots:
            try:
                await self._context.gateway.call(
                    "routes.delete", lambda: self._cloud.delete(self._context.cluster_name, route)
                )
            except CloudError as error:
                CHANGES.labels("delete", "failure").inc()
                log.warning("route %s to %s is not deleted: %s", route.destination, route.provider_id, error)
                return False
        CHANGES.labels("delete", "success").inc()
        log.info("route %s to %s deleted", route.destination, route.provider_id or "nowhere")
        return True

    async def _set_condition(self, node: Node, routed: bool) -> None:
        now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        current = self._context.nodes.get(node.metadata.name) or node
        patch = rules.condition_patch(current, routed, now)
        if patch is None:
            return
        try:
            # Strategic: conditions are merged by type, so the kubelet's are left alone.
            await self._context.client.patch(f"/api/v1/nodes/{node.metadata.name}/status", patch, strategic=True)
        except NotFoundError:
            pass
        except ApiError as error:
            log.warning("condition of node %s: %s", node.metadata.name, error)


def _routing(node: Node | None) -> tuple[str, tuple[str, ...]] | None:
    return None if node is None else (node.spec.provider_id, tuple(node.spec.pod_cidrs))
