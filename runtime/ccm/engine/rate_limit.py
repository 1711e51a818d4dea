# SPDX-License-Identifier: Apache-2.0
"""A token bucket for requests to the API server."""

from __future__ import annotations

from ccm.base.clock import SYSTEM_CLOCK, Clock


class RateLimit:
    """`qps` requests a second, `burst` at once; a qps of 0 or less means no limit (the server has its own fairness)."""

    def __init__(self, qps: float = 0.0, burst: int = 0, clock: Clock = SYSTEM_CLOCK) -> None:
        self.qps, self.burst, self._clock = qps, max(1, burst), clock
        self._tokens, self._filled = float(self.burst), clock.monotonic()

    def reserve(self) -> float:
        """Take a token, if need be from the future; seconds until the holder may go."""
        if self.qps <= 0:
            return 0.0
        now = self._clock.monotonic()
        self._tokens = min(float(self.burst), self._tokens + (now - self._filled) * self.qps) - 1
        self._filled = now
        return max(0.0, -self._tokens / self.qps)

    def take(self) -> bool:
        """Take a token if one is there now; whether it was."""
        if self.qps > 0 and self._tokens + (self._clock.monotonic() - self._filled) * self.qps < 1:
            return False
        self.reserve()
        return True
