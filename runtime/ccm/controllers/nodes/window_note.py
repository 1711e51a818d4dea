# SPDX-License-Identifier: Apache-2.0
"""Records on the Lease when Nodes were deleted, or fenced, within the window, for the next leader. Otherwise each
restart of a crash-looping process would start with an empty window."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from ccm.engine.client import ApiError
from ccm.engine.objects import Node

from ..shared.context import Context
from .node_lifecycle_rules import Window

log = logging.getLogger(__name__)


class WindowNote:
    """The record of one window. `key`: the key of its note on the Lease."""

    def __init__(self, context: Context, key: str, window: Window) -> None:
        self._context, self._key, self._window = context, key, window

    async def recall(self) -> None:
        """Load what former leaders recorded; ignore a record that cannot be read. Raises ApiError."""
        record = await self._context.notes.read(self._key)
        try:
            self._window.recall(record or "{}", self._context.monotonic(), self._context.now())
        except ValueError as error:
            log.error("cannot read the note %s of the former leader, ignoring it: %s", self._key, error)

    async def record(self, nodes: Sequence[Node]) -> bool:
        """Record all Nodes in one write of the Lease. Return False if the write failed: then none of these Nodes may be
        deleted or fenced.

        The Nodes count against the window before any request about them is sent, because a request without an answer
        may have been carried out. The next leader must know of it, even if this process is killed now.
        """
        for node in nodes:
            self._window.add(node.metadata.uid, self._context.monotonic())
        try:
            record = self._window.record(self._context.monotonic(), self._context.now())
            await self._context.notes.write(self._key, record)
        except ApiError as error:
            for node in nodes:
                self._window.remove(node.metadata.uid)
            log.warning("%d Nodes wait: cannot record them for the next leader (%s): %s", len(nodes), self._key, error)
            return False
        return True
