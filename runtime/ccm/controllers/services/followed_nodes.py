# SPDX-License-Identifier: Apache-2.0
"""The Nodes behind load balancers, for the Service controller. A burst of changes of Nodes causes one update."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from ccm.cloud import Backends, LoadBalancerSpec
from ccm.engine.objects import Node

from ..nodes.vouching import Vouching
from ..shared.context import Context
from . import backend_rules
from . import service_metrics as metrics
from .drain_rules import Mode

log = logging.getLogger(__name__)


class FollowedNodes:
    """Follows the Nodes behind load balancers. `ready_only`: only Ready Nodes are backends. `debounce`, `debounce_max`:
    a burst ends after `debounce` seconds without a change, at the latest `debounce_max` seconds after the first one.
    `drains`: which Nodes drain; `can_drain`: whether the load balancer of a Service can drain Nodes."""

    def __init__(
        self,
        context: Context,
        vouching: Vouching,
        can_drain: Callable[[LoadBalancerSpec], bool],
        *,
        ready_only: bool,
        drains: Mode,
        debounce: float,
        debounce_max: float,
    ) -> None:
        self._context, self._vouching, self._ready_only = context, vouching, ready_only
        self._can_drain, self._drains = can_drain, drains
        self._debounce, self._debounce_max = debounce, debounce_max
        self._changed = asyncio.Event()
        self._changed_at = 0.0
        self._stale = False
        self._sets = backend_rules.BackendSets()

    def begin(self) -> None:
        """Take the Nodes of the cache as they are, and follow them from now on."""
        self._sets = self._now()
        self._vouching.nodes.add_handler(self._on_node)
        self._vouching.on_change(self._on_verdict)

    def backends(self, spec: LoadBalancerSpec) -> Backends:
        """Return the backends of a Service's load balancer, as `begin` or `refresh` computed them last. Equal ones stay
        the same object, so Nodes are compared once and not for each Service."""
        return self._sets.of(spec, drains=self._drains is not Mode.NEVER and self._can_drain(spec))

    @property
    def undrained(self) -> Backends:
        """The backends of load balancers that cannot drain."""
        return self._sets.undrained

    def refresh(self) -> None:
        """Compute the backends again if Nodes, or what the cloud says about them, have changed since the last time."""
        if self._stale:
            self._stale = False
            self._sets = self._now().or_same(self._sets)

    def _now(self) -> backend_rules.BackendSets:
        nodes = self._vouching.nodes.items()
        return backend_rules.backend_sets(nodes, self._vouching.judge, ready_only=self._ready_only, drains=self._drains)

    def _on_node(self, old: Node | None, new: Node | None) -> None:
        judge = self._vouching.judge
        if backend_rules.serves_alike(old, new, judge, ready_only=self._ready_only, drains=self._drains):
            if old is not None and new is not None and old.metadata.labels != new.metadata.labels:
                self._stale = True  # for the next write
            return
        self._on_verdict()

    def _on_verdict(self) -> None:
        """React to a change of a Node, or of what the cloud says about it, that may affect load balancers."""
        self._stale = True
        self._changed_at = self._context.monotonic()
        self._changed.set()

    async def follow(self, changed: Callable[[], None]) -> None:
        """After each burst of changes, update the backends and call `changed`. Runs until cancelled."""
        while True:
            await self._changed.wait()
            first = self._context.monotonic()
            while True:
                now = self._context.monotonic()
                due = min(self._changed_at + self._debounce, first + self._debounce_max)
                if now >= due:
                    break
                await asyncio.sleep(due - now)
            self._changed.clear()
            try:
                self.refresh()
            except Exception:  # a bug; continue with the known backends
                self._stale = True
                log.exception("cannot update the list of backends; the previous one stays in use")
            metrics.NODE_SYNC_LATENCY.observe(self._context.monotonic() - first)
            changed()
