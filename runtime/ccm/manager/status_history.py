# SPDX-License-Identifier: Apache-2.0
"""The last hour of a process in a few numbers, for the status page: a ring buffer of fixed size, filled by a task.

A sample reads counters and the lengths of queues. It does not look at objects, so it costs the same in every cluster.
"""

from __future__ import annotations

import asyncio
import logging
import time
from array import array
from collections.abc import Callable, Iterable

from prometheus_client import Counter, Histogram

from ccm.controllers.shared.holds import Holds
from ccm.engine.metrics import REST_REQUESTS
from ccm.engine.queue import QUEUES
from ccm.gateway.gateway import DURATION, REQUESTS

log = logging.getLogger(__name__)

#: Seconds between two samples, and how many are kept: one hour.
STEP, SAMPLES = 20.0, 180
#: Results of calls to the cloud that do not count as failures of the cloud.
GOOD = frozenset({"success", "NotFound", "RetryAfter", "cancelled"})

NAMES = (
    "cloud calls per minute",
    "cloud failures per minute",
    "mean seconds of a cloud call",
    "API requests per minute",
    "objects waiting in queues",
    "seconds of the longest wait in a queue",
    "objects failing",
    "deletions held",
)


class History:
    """The latest `size` samples of each name. It uses 4 bytes for each value."""

    def __init__(self, names: Iterable[str] = NAMES, size: int = SAMPLES) -> None:
        self._values = {name: array("f", bytes(4 * size)) for name in names}
        self._size, self._next, self._full = size, 0, False

    def add(self, values: Iterable[float]) -> None:
        """Add one sample: a value for each name, in the order of the names."""
        for kept, value in zip(self._values.values(), values, strict=True):
            kept[self._next] = value
        self._next = (self._next + 1) % self._size
        self._full = self._full or self._next == 0

    def series(self) -> dict[str, list[float]]:
        """Return name -> values, the oldest first."""
        start = self._next if self._full else 0
        return {name: [*kept[start:], *kept[:start]][: self._length] for name, kept in self._values.items()}

    @property
    def _length(self) -> int:
        return self._size if self._full else self._next


class Sampler:
    """Fills a history. Rates are per minute, measured between two samples. `started`: monotonic seconds."""

    def __init__(self, holds: Holds, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.history = History()
        self._holds, self._monotonic = holds, monotonic
        self._before = self._totals()
        self._at = self.started = monotonic()

    async def run(self) -> None:
        while True:
            await asyncio.sleep(STEP)
            try:
                self.sample()
            except Exception:  # a bug here must not end the process
                log.exception("cannot record a sample for the status page")

    def sample(self) -> None:
        now, totals = self._monotonic(), self._totals()
        minutes = max(1e-9, (now - self._at) / 60)
        calls, failures, seconds, timed, requests = (
            max(0.0, after - before) for after, before in zip(totals, self._before, strict=True)
        )
        self._before, self._at = totals, now
        queues = list(QUEUES)
        self.history.add(
            (
                calls / minutes,
                failures / minutes,
                seconds / timed if timed else 0.0,
                requests / minutes,
                float(sum(queue.depth for queue in queues)),
                max((queue.oldest_age for queue in queues), default=0.0),
                float(sum(queue.failures_now for queue in queues)),
                float(self._holds.count),
            )
        )

    def _totals(self) -> tuple[float, float, float, float, float]:
        """Return how many calls to the cloud there were, how many failed, how many seconds they took, how many were
        timed, and how many API requests there were."""
        calls = failures = 0.0
        for _, result, number in cloud_results(REQUESTS):
            calls += number
            failures += 0.0 if result in GOOD else number
        seconds, timed = 0.0, 0.0
        for _, total, number in cloud_durations(DURATION):
            seconds, timed = seconds + total, timed + number
        return calls, failures, seconds, timed, sum(value for _, value in _totals_of(REST_REQUESTS))


def cloud_results(requests: Counter) -> list[tuple[str, str, float]]:
    """Return (operation, result, number of calls) for each operation and result. `requests`: the counter of all clouds,
    or of one."""
    return [(labels["operation"], labels["result"], value) for labels, value in _totals_of(requests)]


def cloud_durations(taken: Histogram) -> list[tuple[str, float, float]]:
    """Return each operation with its total seconds and number of calls. `taken`: the histogram of all clouds, or of
    one."""
    sums: dict[str, float] = {}
    counts: dict[str, float] = {}
    for name, labels, value in _samples(taken):
        if name.endswith("_sum"):
            sums[labels["operation"]] = sums.get(labels["operation"], 0.0) + value
        elif name.endswith("_count"):
            counts[labels["operation"]] = counts.get(labels["operation"], 0.0) + value
    return [(operation, sums.get(operation, 0.0), number) for operation, number in counts.items()]


def _totals_of(counter: Counter) -> list[tuple[dict[str, str], float]]:
    return [(labels, value) for name, labels, value in _samples(counter) if name.endswith("_total")]


def _samples(metric: Counter | Histogram) -> Iterable[tuple[str, dict[str, str], float]]:
    return [(each.name, each.labels, each.value) for family in metric.collect() for each in family.samples]
