# SPDX-License-Identifier: Apache-2.0
"""Decide how far to believe what an eventually consistent cloud answers about load balancers. No I/O.

`lag` is the provider's `Limits.listing_lag`: an answer may show what the cloud had that many seconds ago. So for that
long, the cloud may show a load balancer that was deleted, and the state before a write. All times are seconds of one
monotonic clock.
"""

from __future__ import annotations

import math
from collections.abc import Hashable

from ccm.cloud import LoadBalancer


class Deletions:
    """The deletions that were requested within the last `lag` seconds, by Service UID."""

    def __init__(self) -> None:
        self._at: dict[str, float] = {}

    def add(self, uid: str, now: float, lag: float) -> None:
        self._at = {each: at for each, at in self._at.items() if at + lag > now}
        if lag > 0:
            self._at[uid] = now

    def left(self, uid: str, now: float, lag: float) -> float:
        """Return the seconds for which an answer may still show the deleted load balancer, 0 for none."""
        return max(0.0, self._at.get(uid, -math.inf) + lag - now)

    def __len__(self) -> int:
        return len(self._at)


def is_late(late_until: float, now: float) -> bool:
    """Return whether the answer to a request that is sent now may show the state before the last write.

    `late_until`: the end of that write plus the lag, -inf for none.
    """
    return now < late_until


def is_overtaken(balancer: LoadBalancer, written: Hashable, late_until: float, asked_at: float) -> bool:
    """Return whether the fingerprint in the cloud differs from the one that the last write should have left, `written`.

    That happens if the write relied on a late answer. Only the answer to a request that was sent after `late_until`, at
    `asked_at`, can show it, once the load balancer is ready. A provider without fingerprints writes everything each
    time and relies on no answer.
    """
    return balancer.ready and -math.inf < late_until <= asked_at and balancer.fingerprint not in ("", written)
