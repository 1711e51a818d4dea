# SPDX-License-Identifier: Apache-2.0
"""Measures the lag of the event loop. A provider that blocks it delays everything, including the Lease renewal."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable

from prometheus_client import Histogram

log = logging.getLogger(__name__)

LAG = Histogram(
    "ccm_event_loop_lag_seconds",
    "Lag of the event loop; grows when something, such as a provider's library, blocks it.",
    buckets=(0.001, 0.01, 0.05, 0.1, 0.5, 1, 5, 15),
)
#: `EVERY`: seconds between two measurements. `TOO_LATE`: a lag of this many seconds, or more, is logged.
EVERY, TOO_LATE = 0.5, 1.0


async def watch(under_way: Callable[[], Iterable[str]]) -> None:
    """Measure the lag until cancelled, and log a long one. `under_way` returns the operations of calls to the cloud in
    progress."""
    while True:
        before, suspects = time.monotonic(), sorted(set(under_way()))
        await asyncio.sleep(EVERY)
        lag = max(0.0, time.monotonic() - before - EVERY)
        LAG.observe(lag)
        if lag >= TOO_LATE:
            suspects = sorted({*suspects, *under_way()})
            log.warning(
                "the event loop was blocked for %.1f s; a provider must not block it (use ccm.cloud.BlockingCalls). "
                "Cloud calls in progress: %s",
                lag,
                ", ".join(suspects) or "none",
            )
