# SPDX-License-Identifier: Apache-2.0
"""Lists the instances of a cloud that may replace the current one. A part that cannot be queried is not reported,
because the new cloud may be refused."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Any

from ccm.cloud import Instances

from .instance_directory import Call, InstanceDirectory
from .instance_snapshot import Snapshot
from .turns import Turns

#: Returns a new listing of one cloud. Raises CloudError.
Listing = Callable[[], Awaitable[Snapshot]]


class _Unreported(InstanceDirectory):
    def _report(self, unreachable: str) -> None:
        """Report nothing, because the metric is the current cloud's."""


async def listing_of(instances: Instances, call: Call, turns: Turns, clock: Callable[[], float]) -> Snapshot:
    """Return a listing. `call`: makes one call at once. `turns`: the budget of this cloud. Raises CloudError."""

    async def in_turn(operation: str, function: Callable[[], Awaitable[Any]]) -> Any:
        if (wait := turns.reserve()) > 0:
            await asyncio.sleep(wait)
        return await call(operation, function)

    directory = _Unreported(instances, in_turn, clock=clock)
    try:
        return await directory.list(not_before=-math.inf)
    finally:
        await directory.close()
