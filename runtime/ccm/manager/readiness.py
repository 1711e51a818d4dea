# SPDX-License-Identifier: Apache-2.0
"""What `/healthz`, `/livez` and `/readyz` look at."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from ccm.engine.informer import Informer
from ccm.engine.queue import QUEUES
from ccm.options.command_line import Options
from ccm.serving.health import Check, Health

from .cloud_reload import Keeper
from .leadership import Leadership

#: Our view of the cluster is stale when no informer heard from the API server for this long, in seconds; bookmarks come
#: about once a minute.
STALE_AFTER = 180.0
#: Work that waited for this long is not waiting its turn any more, in seconds.
STUCK_AFTER = 600.0


def checks(options: Options, leadership: Leadership, informers: Sequence[Informer[Any]], keeper: Keeper) -> Health:
    """What `/healthz`, `/livez` and `/readyz` look at."""
    live: dict[str, Check] = {"ping": lambda: None}
    if options.leader_elect:
        live["leaderElection"] = leadership.unhealthy
    ready = {**live, "informers": lambda: stale(informers), "queues": stuck, "cloud": keeper.not_ready}
    return Health(healthz=live, livez=live, readyz=ready)


def stale(informers: Sequence[Informer[Any]]) -> str | None:
    """Why our view of the cluster cannot be trusted."""
    for informer in informers:
        if not informer.synced:
            return f"the {informer.name} have not been listed yet"
        if (silence := time.monotonic() - informer.last_contact) >= STALE_AFTER:
            return f"nothing heard from the API server about {informer.name} for {silence:.0f} s: {informer.last_error}"
    return None


def stuck() -> str | None:
    """Which work waits for so long that its workers must be stuck."""
    for queue in list(QUEUES):
        if (age := queue.oldest_age) >= STUCK_AFTER:
            return f"work in the queue {queue.name} has waited for {age:.0f} s"
    return None
