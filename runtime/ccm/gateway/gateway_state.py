# SPDX-License-Identifier: Apache-2.0
"""The state of the gateway for people: budgets and breakers, as plain data."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec


class BudgetState(msgspec.Struct, frozen=True):
    """The rate limit of one group of calls, or of all. `per_second`: 0 or less means no limit. `left`: tokens; below 0,
    calls wait. `paused_for`: seconds of a pause that the cloud requested."""

    group: str
    per_second: float
    burst: float
    left: float
    paused_for: float


class BreakerState(msgspec.Struct, frozen=True):
    """One group of calls whose last call failed. `failures`: how many in a row. `is_open`: calls are held back for all
    objects, not only for those of a single namespace. `open_for`: seconds until the pause between probes ends."""

    group: str
    failures: int
    is_open: bool
    open_for: float
    last_error: str


class GatewayState(msgspec.Struct, frozen=True):
    """The state of one gateway. `under_way`: the number of calls in progress, at most `concurrency`."""

    budgets: Sequence[BudgetState]
    breakers: Sequence[BreakerState]
    under_way: int
    concurrency: int
