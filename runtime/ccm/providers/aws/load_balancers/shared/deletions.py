# SPDX-License-Identifier: Apache-2.0
"""Remembers what a deletion has already found, because the framework repeats a deletion soon after a write. No I/O.

A deletion looks for load balancers of both types, because the annotation may have changed since the last write. AWS may
take some time (LAG) to list what was written. So the next attempt looks for a type again, unless the listing was
certain: nobody wrote a load balancer of this type within LAG before it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from ccm.cloud import LoadBalancerSpec

from ...api import LAG

#: How long the findings of a deletion stay valid, in seconds.
KEEP = 60.0


@dataclass
class Deletion:
    """What the deletion of one Service has found. `begun`: monotonic seconds. `deleted`: types whose load balancer was
    deleted, so that only its parts may be left. `certain`: types of which nothing is left."""

    begun: float
    deleted: set[str] = field(default_factory=set)
    certain: set[str] = field(default_factory=set)


class Deletions:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._leads_since = math.inf
        self._written: dict[tuple[str, str, str], float] = {}
        self._deletions: dict[tuple[str, str], Deletion] = {}

    def lists(self) -> None:
        """Record that this process lists load balancers. Only a leader lists them, so from now on no other process
        writes."""
        self._leads_since = min(self._leads_since, self.clock())

    def wrote(self, spec: LoadBalancerSpec, type_: str) -> None:
        """Record that a write of the Service's load balancer ended now, successful or not."""
        now = self.clock()
        self._written = {key: at for key, at in self._written.items() if at + LAG > now}
        self._written[spec.cluster, spec.uid, type_] = now
        self.forget(spec)

    def of(self, spec: LoadBalancerSpec) -> Deletion:
        """Return the Service's deletion, with what it has found so far."""
        now = self.clock()
        self._deletions = {key: each for key, each in self._deletions.items() if each.begun + KEEP > now}
        return self._deletions.setdefault((spec.cluster, spec.uid), Deletion(now))

    def forget(self, spec: LoadBalancerSpec) -> None:
        self._deletions.pop((spec.cluster, spec.uid), None)

    def is_certain(self, spec: LoadBalancerSpec, type_: str) -> bool:
        """Return whether a listing that begins now shows every load balancer of this type that was written for the
        Service."""
        written = self._written.get((spec.cluster, spec.uid, type_), -math.inf)
        return self.clock() >= max(written, self._leads_since) + LAG
