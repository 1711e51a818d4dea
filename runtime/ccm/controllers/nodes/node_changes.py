# SPDX-License-Identifier: Apache-2.0
"""What the node lifecycle controller learns from the changes of Nodes: when a Node appeared, and that one has just
stopped being Ready, which is when the cloud must be asked."""

from __future__ import annotations

import asyncio
import contextlib
import random

from ccm.engine.objects import Node

from ..shared.context import Context
from . import node_rules
from .node import JITTER, age_seconds
from .node_lifecycle_rules import certain_age

#: Seconds between two passes at least, however many Nodes stop being Ready: then one read answers for many of them.
REST = 1.0
#: Seconds by which a pass follows the time that it waits for: a timer may fire a little early.
LATE = 0.05


class NodeChanges:
    def __init__(self, context: Context) -> None:
        self._context = context
        #: UIDs of Nodes that appeared while this process watched -> when (monotonic seconds).
        self._arrived: dict[str, float] = {}
        self._watching = False
        self._stopped = asyncio.Event()

    def watch(self) -> None:
        """Call this when the cache has synced: the Nodes in it are not new."""
        self._context.nodes.add_handler(self._on_node)
        self._watching = True

    def _on_node(self, old: Node | None, new: Node | None) -> None:
        if old is not None and (new is None or new.metadata.uid != old.metadata.uid):
            self._arrived.pop(old.metadata.uid, None)
        if new is not None and self._watching and (old is None or new.metadata.uid != old.metadata.uid):
            self._arrived[new.metadata.uid] = self._context.monotonic()
        if old is not None and new is not None and node_rules.is_ready(old) and not node_rules.is_ready(new):
            self._stopped.set()

    def age(self, node: Node) -> float:
        """Return how many seconds old the Node is at least."""
        arrived = self._arrived.get(node.metadata.uid)
        watched_for = None if arrived is None else self._context.monotonic() - arrived
        return certain_age(age_seconds(node, self._context.now()), watched_for)

    async def pause(self, period: float, until: float) -> None:
        """Wait between two passes: `period` seconds and a little more; less if a Node stops being Ready, or if the time
        `until` (monotonic seconds) comes first."""
        period *= random.uniform(1.0, 1.0 + JITTER)
        rest = min(REST, period)
        longest = min(period, max(rest, until - self._context.monotonic() + LATE))
        await asyncio.sleep(rest)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopped.wait(), longest - rest)
        self._stopped.clear()
