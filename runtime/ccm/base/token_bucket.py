# SPDX-License-Identifier: Apache-2.0
"""The token bucket: limits the rate of an operation and the size of its bursts."""

from __future__ import annotations

import time
from collections.abc import Callable


class TokenBucket:
    """Limits the rate of an operation: `rate` tokens per second, at most `burst` at once; a rate of 0 or less means no
    limit.

    There are two ways to take tokens: `reserve` always takes one and returns how long to wait, `take` takes one only if
    it is available. `clock` returns seconds and never decreases.
    """

    __slots__ = ("_burst", "_clock", "_filled", "_paused_until", "_rate", "_tokens")

    def __init__(self, rate: float = 0.0, burst: int = 1, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._burst, self._clock = rate, float(max(1, burst)), clock
        self._tokens, self._filled = self._burst, clock()
        self._paused_until = 0.0

    def reserve(self) -> float:
        """Take a token, if necessary a future one. Returns the seconds to wait until it is valid."""
        now = self._clock()
        if self._rate <= 0:
            return max(0.0, self._paused_until - now)
        self._tokens, self._filled = self._at(now) - 1, now
        return max(0.0, -self._tokens / self._rate, self._paused_until - now)

    def take(self) -> bool:
        """Take a token if one is available now. Returns whether it was."""
        now = self._clock()
        if now < self._paused_until or (self._rate > 0 and self._at(now) < 1):
            return False
        self.reserve()
        return True

    def pause(self, seconds: float) -> None:
        """Issue no tokens for a while. Of several pauses, the one that ends last applies."""
        self._paused_until = max(self._paused_until, self._clock() + seconds)

    @property
    def rate(self) -> float:
        """Tokens per second; 0 or less means no limit."""
        return self._rate

    @property
    def burst(self) -> float:
        return self._burst

    @property
    def left(self) -> float:
        """The number of tokens now; negative if future tokens are taken."""
        return self._at(self._clock())

    @property
    def paused_for(self) -> float:
        """Seconds until the pause ends."""
        return max(0.0, self._paused_until - self._clock())

    @property
    def full(self) -> bool:
        """Whether all tokens are available, as in a new bucket."""
        now = self._clock()
        return now >= self._paused_until and (self._rate <= 0 or self._at(now) >= self._burst)

    def _at(self, now: float) -> float:
        """Return the number of tokens at that time; negative if future tokens are taken."""
        return min(self._burst, self._tokens + (now - self._filled) * self._rate)
