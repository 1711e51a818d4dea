# SPDX-License-Identifier: Apache-2.0
"""Decides when a call to the cloud may start: token buckets, and pauses that the cloud requested.

A group of operations ("instances", "load_balancers", ...) may have a lower rate than the whole cloud
(`Limits.groups`), and its own pause (`RateLimited.scope`).
"""

from __future__ import annotations

import time
from collections.abc import Callable

from ccm.base.token_bucket import TokenBucket
from ccm.cloud import Limits

from .gateway_state import BudgetState


class Turns:
    """Controls the start of all calls to one cloud."""

    def __init__(self, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._all = TokenBucket(limits.calls_per_second, limits.burst, clock)
        self._groups = {
            group: TokenBucket(rate.calls_per_second, rate.burst, clock) for group, rate in limits.groups.items()
        }

    def _of(self, group: str) -> TokenBucket:
        """Return the group's bucket. A group without its own rate has one for its pauses."""
        if (bucket := self._groups.get(group)) is None:
            bucket = self._groups[group] = TokenBucket(clock=self._clock)
        return bucket

    def reserve_in_group(self, group: str) -> float:
        """Take a token of the group. Return the seconds to wait before `reserve` is called. A group that waits for its
        own turn does not delay the others meanwhile."""
        return self._of(group).reserve()

    def reserve(self) -> float:
        """Take a token of all calls. Return the seconds to wait before the call."""
        return self._all.reserve()

    def pause(self, seconds: float, group: str | None = None) -> None:
        """Start no call for `seconds`; with `group`, no call of that group."""
        (self._all if group is None else self._of(group)).pause(seconds)

    def budgets(self) -> list[BudgetState]:
        """Return the budget of all calls, and of each group that has a rate of its own or is paused."""
        budgets = [("all calls", self._all), *self._groups.items()]
        states = [BudgetState(name, each.rate, each.burst, each.left, each.paused_for) for name, each in budgets]
        return [each for each in states if each.group == "all calls" or each.per_second > 0 or each.paused_for > 0]

    def paused_for(self, group: str) -> float:
        """Return the seconds for which calls of this group must still wait."""
        return max(self._all.paused_for, self._of(group).paused_for)
