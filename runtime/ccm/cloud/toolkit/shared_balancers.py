# SPDX-License-Identifier: Apache-2.0
"""Load balancers that Services look at side by side, and may share: one listing for all who ask, one writer of each."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Generic, TypeVar

from . import shared_reads
from .shared_reads import ObjectLocks, seen

Row = TypeVar("Row")


class SharedBalancers(Generic[Row]):
    """All load balancers by ID, in one listing for all who ask at the same time.

    `read_all` lists them. `read_one` reads the one of an ID, None where there is none.
    """

    def __init__(
        self, read_all: Callable[[], Awaitable[Mapping[str, Row]]], read_one: Callable[[str], Awaitable[Row | None]]
    ) -> None:
        self._read_all, self._read_one = read_all, read_one
        self._asked: list[str] = []
        self._coming: asyncio.Task[Mapping[str, Row]] | None = None
        self._locks = ObjectLocks()

    async def look(self, balancer_id: str = "") -> Mapping[str, Row]:
        """From a read that began after the call. Where nobody else asks, the one of `balancer_id` alone, if it is."""
        self._asked.append(balancer_id)
        if self._coming is None:
            self._coming = asyncio.create_task(self._gather(), name="load balancers")
            self._coming.add_done_callback(seen)
        return await asyncio.shield(self._coming)

    def writing(self, balancer_id: str) -> asyncio.Lock:
        """Held by the one Service of this process that writes what Services share of a load balancer, or deletes it.

        Most clouds replace a list of tags as a whole, and check no revision. So whoever writes tags, or deletes, does
        it while holding this, right after a read of the load balancer.
        """
        return self._locks.of(balancer_id)

    async def _gather(self) -> Mapping[str, Row]:
        await asyncio.sleep(shared_reads.GATHER)
        asked, self._asked, self._coming = self._asked, [], None
        if len(asked) == 1 and asked[0]:
            row = await self._read_one(asked[0])
            return {} if row is None else {asked[0]: row}
        return await self._read_all()
