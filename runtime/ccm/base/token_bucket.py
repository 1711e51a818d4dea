# SPDX-License-Identifier: Apache-2.0
"""The token bucket: how often something may happen, and how often at once."""

from __future__ import annotations

import time
from collections.abc import Callable


class TokenBucket:
    """`rate` tokens a second, `burst` of them at once; a rate of 0 or less means no limit.

    Take tokens in one of two ways: `reserve` says how long to wait for one, `take` does without one that is not there.
    `clock` gives seconds that never go back.
    """

    __slots__ = ("_burst", "_clock", "_filled", "_paused_until", "_rate", "_tokens")

    def __init__(self, rate: float = 0.0, burst: int = 1, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._burst, self._clock = rate, float(max(1, burst)), clock
        self._tokens, self._filled = self._burst, clock()
        self._paused_until = 0.0

    def reserve(self) -> float:
        """Take a token, if need be from the future; seconds until the holder may go."""
        now = self._clock()
        if self._rate <= 0:
            return max(0.0, self._paused_until - now)
        self._tokens, self._filled = self._at(now) - 1, now
        return max(0.0, -self._tokens / self._rate, self._paused_until - now)

    def take(self) -> bool:
        """Take a token if one is there now; whether it was."""
        now = self._clock()
        if now < self._paused_until or (self._rate > 0 and self._at(now) < 1):
            return False
        self.reserve()
        return True

    def pause(self, seconds: float) -> None:
        """Give no token for a while. Of several pauses the one that ends last counts."""
        self._paused_until = max(self._paused_until, self._clock() + seconds)

    @property
    def paused_for(self) -> float:
        """Seconds of a pause that are left."""
        return max(0.0, self._paused_until - self._clock())

    @property
    def full(self) -> bool:
        """Whether it is as good as a new one."""
        now = self._clock()
        return now >= self._paused_until and (self._rate <= 0 or self._at(now) >= self._burst)

    def _at(self, now: float) -> float:
        """The tokens that it has by then; fewer than 0 when some of the future are taken."""
        return min(self._burst, self._tokens + (now - self._filled) * self._rate)
