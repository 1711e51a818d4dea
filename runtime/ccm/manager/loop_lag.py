# SPDX-License-Identifier: Apache-2.0
"""Whether the event loop turns. A provider that blocks it holds up everything, the Lease's renewal included."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable

from prometheus_client import Histogram

log = logging.getLogger(__name__)

LAG = Histogram(
    "ccm_event_loop_lag_seconds",
    "By how much the event loop was late; grows when something, such as a provider's library, blocks it.",
    buckets=(0.001, 0.01, 0.05, 0.1, 0.5, 1, 5, 15),
)
#: How often it is looked at, and the lag that is worth a line in the log, in seconds.
EVERY, TOO_LATE = 0.5, 1.0


async def watch(under_way: Callable[[], Iterable[str]]) -> None:
    """Until cancelled. `under_way`: operations of the calls to the cloud that have not ended."""
    while True:
        before, suspects = time.monotonic(), sorted(set(under_way()))
        await asyncio.sleep(EVERY)
        lag = max(0.0, time.monotonic() - before - EVERY)
        LAG.observe(lag)
        if lag >= TOO_LATE:
            suspects = sorted({*suspects, *under_way()})
            log.warning(
                "the event loop stood still for %.1f s; a provider must not block it (ccm.cloud.BlockingCalls). "
                "Cloud calls under way: %s",
                lag,
                ", ".join(suspects) or "none",
            )
