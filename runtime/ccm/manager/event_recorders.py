# SPDX-License-Identifier: Apache-2.0
"""The event recorders of a process."""

from __future__ import annotations

import asyncio

from ccm.engine.client import KubeClient
from ccm.engine.events import EventRecorder

#: How long sending the queued Events may take at shutdown, in seconds.
FLUSH = 1.0


class Recorders:
    """One event recorder for each event source, created on first use."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._running: dict[str, tuple[EventRecorder, asyncio.Task[None]]] = {}

    def of(self, component: str) -> EventRecorder:
        if component not in self._running:
            recorder = EventRecorder(self._client, component)
            self._running[component] = (recorder, asyncio.create_task(recorder.run(), name=f"events of {component}"))
        return self._running[component][0]

    async def close(self) -> None:
        """Send queued Events for at most FLUSH seconds, then stop."""
        await asyncio.gather(*(recorder.flush(FLUSH) for recorder, _ in self._running.values()), return_exceptions=True)
        for _, task in self._running.values():
            task.cancel()
        await asyncio.gather(*(task for _, task in self._running.values()), return_exceptions=True)
