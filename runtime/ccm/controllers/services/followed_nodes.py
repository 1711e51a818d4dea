# SPDX-License-Identifier: Apache-2.0
"""The Nodes behind load balancers, for the Service controller. A burst of changes of Nodes causes one update."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from ccm.cloud import Backends
from ccm.engine.objects import Node

from ..nodes.vouching import Vouching
from ..shared.context import Context
from . import service_metrics as metrics
from . import service_rules as rules

log = logging.getLogger(__name__)


class FollowedNodes:
    """`ready_only`: only Ready Nodes are backends. `debounce`, `debounce_max`: a burst ends after `debounce` seconds
    without a change, at the latest `debounce_max` seconds after the first one.

    `backends`: equal ones stay the same object, so Nodes are compared once and not for each Service.
    """

    def __init__(
        self, context: Context, vouching: Vouching, *, ready_only: bool, debounce: float, debounce_max: float
    ) -> None:
        self._context, self._vouching, self._ready_only = context, vouching, ready_only
        self._debounce, self._debounce_max = debounce, debounce_max
        self._changed = asyncio.Event()
        self._changed_at = 0.0
        self._stale = False
        self.backends = Backends()

    def begin(self) -> None:
        """Take the Nodes of the cache as they are, and follow them from now on."""
        self.backends = self._now()
        self._vouching.nodes.add_handler(self._on_node)
        self._vouching.on_change(self._on_verdict)

    def refresh(self) -> Backends:
        """Return the current backends."""
        if self._stale:
            self._stale = False
            current = self._now()
            if current != self.backends or [each.labels for each in current] != [each.labels for each in self.backends]:
                self.backends = current
        return self.backends

    def _now(self) -> Backends:
        return rules.backends(self._vouching.nodes.items(), self._vouching.judge, ready_only=self._ready_only)

    def _on_node(self, old: Node | None, new: Node | None) -> None:
        if rules.serves_alike(old, new, self._vouching.judge, ready_only=self._ready_only):
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
        """After each burst of changes, call `changed`."""
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
