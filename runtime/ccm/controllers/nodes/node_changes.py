# SPDX-License-Identifier: Apache-2.0
"""Follows the changes of Nodes for the node lifecycle controller. It records when each Node appeared, and ends the
pause between two passes when a Node stops being Ready, because the cloud must then be asked."""

from __future__ import annotations

import asyncio
import contextlib
import random

from ccm.engine.objects import Node

from ..shared.context import Context
from . import node_rules
from .node import JITTER, age_seconds
from .node_lifecycle_rules import certain_age

#: Minimum seconds between two passes, however many Nodes stop being Ready, so that one read covers many of them.
REST = 1.0
#: Seconds added to the time that a pass waits for, because a timer may fire a little early.
LATE = 0.05


class NodeChanges:
    def __init__(self, context: Context) -> None:
        self._context = context
        #: UIDs of Nodes that appeared while this process watched -> when (monotonic seconds).
        self._arrived: dict[str, float] = {}
        self._watching = False
        self._stopped = asyncio.Event()

    def watch(self) -> None:
        """Call this when the cache has synced. The Nodes that are then in the cache do not count as new."""
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
        """Return the Node's age in seconds, as far as it is certain (`certain_age`)."""
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
