# SPDX-License-Identifier: Apache-2.0
"""Lengthen the pauses between attempts whose answer stays the same. No I/O.

A cloud that is still working says so again and again. Each attempt that makes progress gets another answer, so only
pauses without progress become longer: each by a sixteenth of the wait so far, but by `LONGEST` seconds at most.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

#: The next pause is longer by the wait so far, divided by this.
SHARE = 16.0
#: The maximum number of seconds by which a pause becomes longer, because nobody notifies us when the cloud is done.
LONGEST = 25.0


def added(waited: float) -> float:
    """Return the seconds to add to a pause after `waited` seconds with the same answer.

    Whole seconds, because a provider may let its waiting objects return together, so that one read serves all of them.
    """
    return float(math.floor(min(LONGEST, max(0.0, waited) / SHARE)))


class UnchangedAnswers(Generic[K]):
    """Since when each key has got the same answer; in monotonic seconds."""

    def __init__(self) -> None:
        self._since: dict[K, tuple[str, float]] = {}

    def pause(self, key: K, answer: str, after: float, now: float) -> float:
        """Return the seconds until the next attempt for `key`, which just got `answer`: at least `after`."""
        before = self._since.get(key)
        if before is None or before[0] != answer:
            self._since[key] = answer, now
            return after
        return after + added(now - before[1])

    def forget(self, key: K) -> None:
        self._since.pop(key, None)
