# SPDX-License-Identifier: Apache-2.0
"""Load balancers that several Services may share: concurrent reads share one listing, and each load balancer has a lock
for writing its shared parts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Generic, TypeVar

from . import shared_reads
from .shared_reads import ObjectLocks, retrieve_failure

Row = TypeVar("Row")


class SharedBalancers(Generic[Row]):
    """All load balancers by ID, in one listing for all concurrent readers.

    `read_all` lists them. `read_one` reads one by its ID and returns None if it does not exist.
    """

    def __init__(
        self, read_all: Callable[[], Awaitable[Mapping[str, Row]]], read_one: Callable[[str], Awaitable[Row | None]]
    ) -> None:
        self._read_all, self._read_one = read_all, read_one
        self._ids: list[str] = []
        self._coming: asyncio.Task[Mapping[str, Row]] | None = None
        self._locks = ObjectLocks()

    async def look(self, balancer_id: str = "") -> Mapping[str, Row]:
        """Return load balancers by ID, from a read that starts after the call. If `balancer_id` is set and nobody else
        waits for the read, the result has only that load balancer, or none if it does not exist."""
        self._ids.append(balancer_id)
        if self._coming is None:
            self._coming = asyncio.create_task(self._gather(), name="load balancers")
            self._coming.add_done_callback(retrieve_failure)
        return await asyncio.shield(self._coming)

    def writing(self, balancer_id: str) -> asyncio.Lock:
        """Return the lock for writing shared parts of a load balancer, or deleting it.

        Most clouds replace a list of tags as a whole and check no revision. Therefore take this lock to write tags or
        to delete, and read the load balancer while you hold it. The lock works within this process.
        """
        return self._locks.of(balancer_id)

    async def _gather(self) -> Mapping[str, Row]:
        await asyncio.sleep(shared_reads.GATHER)
        ids, self._ids, self._coming = self._ids, [], None
        if len(ids) == 1 and ids[0]:
            row = await self._read_one(ids[0])
            return {} if row is None else {ids[0]: row}
        return await self._read_all()
