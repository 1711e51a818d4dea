# SPDX-License-Identifier: Apache-2.0
"""The pauses of an informer before each new connection: a server that ends each watch at once causes no busy loop."""

from __future__ import annotations

import asyncio
import contextlib
import random

from ccm.base.clock import Clock, timeout

#: Shortest and longest pause, in seconds.
BACKOFF_FIRST, BACKOFF_MAX = 0.2, 30.0


class Pauses:
    """Each pause is twice as long as the one before, at most `BACKOFF_MAX`, until a connection was healthy. `next`:
    seconds without jitter."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.next = BACKOFF_FIRST
        self._hurry = asyncio.Event()

    def hurry(self) -> None:
        """End the present pause, or else skip the next one. What failed until now says nothing about what follows."""
        self.next = BACKOFF_FIRST
        self._hurry.set()

    async def wait(self, *, healthy: bool, retry_after: float) -> None:
        """Wait before the next connection. `healthy`: whether the last connection was healthy. `retry_after`: the
        seconds that the server requested, of which at most `BACKOFF_MAX` count."""
        if healthy:
            self.next = BACKOFF_FIRST
        seconds = max(self.next, min(retry_after, BACKOFF_MAX)) * random.uniform(1.0, 1.5)
        with contextlib.suppress(TimeoutError):
            async with timeout(self._clock, seconds):
                await self._hurry.wait()
        self._hurry.clear()
        self.next = min(self.next * 2, BACKOFF_MAX)
