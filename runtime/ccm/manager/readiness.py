# SPDX-License-Identifier: Apache-2.0
"""The checks behind `/healthz`, `/livez` and `/readyz`."""

from __future__ import annotations

import functools
import time
from collections.abc import Sequence
from typing import Any

from ccm.engine.informer import Informer
from ccm.engine.queue import QUEUES
from ccm.serving.health import Check, Health, Tolerated

from . import readiness_rules
from .cloud_reload import CloudReloader
from .leadership import Leadership

#: The caches are stale if an informer has heard nothing from the API server for this long, in seconds. A new watch
#: starts at least once a minute.
STALE_AFTER = 180.0
#: Work that has waited for longer than this, in seconds, is stuck.
STUCK_AFTER = 600.0


def checks(leadership: Leadership, informers: Sequence[Informer[Any]], *clouds: CloudReloader) -> Health:
    """Return the checks of `/healthz`, `/livez` and `/readyz`. Each of several clouds has a check of its own."""
    live: dict[str, Check] = {"ping": lambda: None}
    if leadership.main is not None:
        live["leaderElection"] = leadership.unhealthy
    ready = {**live, "informers": lambda: stale(informers), "queues": stuck}
    for cloud in clouds:
        others = [each for each in clouds if each is not cloud]
        ready[f"cloud-{cloud.gateway.name}" if others else "cloud"] = functools.partial(_cloud, cloud, others)
    return Health(healthz=live, livez=live, readyz=ready)


def _cloud(cloud: CloudReloader, others: Sequence[CloudReloader]) -> str | Tolerated | None:
    return readiness_rules.verdict(cloud.standing(), [each.standing() for each in others])


def stale(informers: Sequence[Informer[Any]]) -> str | None:
    """Return why the caches cannot be trusted, None if they can."""
    for informer in informers:
        if not informer.synced:
            return f"the {informer.name} have not been listed yet"
        if (silence := time.monotonic() - informer.last_contact) >= STALE_AFTER:
            return f"nothing heard from the API server about {informer.name} for {silence:.0f} s: {informer.last_error}"
    return None


def stuck() -> str | None:
    """Return which queue's work has waited so long that its workers must be stuck, None if there is no such queue."""
    for queue in list(QUEUES):
        if (age := queue.oldest_age) >= STUCK_AFTER:
            return f"work in the queue {queue.name} has waited for {age:.0f} s"
    return None
