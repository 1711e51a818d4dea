# SPDX-License-Identifier: Apache-2.0
"""One read of the cloud for all concurrent callers of the same read, and one writer per object at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

T = TypeVar("T")

#: How long to collect callers before a read, in seconds.
GATHER = 0.05


class Shared(Generic[T]):
    """One read for all callers that wait for it. `get` returns the result of a read that starts after the call, so that
    it shows all earlier writes."""

    def __init__(self, read: Callable[[], Awaitable[T]]) -> None:
        self._read = read
        self._coming: asyncio.Task[T] | None = None

    async def get(self) -> T:
        if self._coming is None:
            self._coming = asyncio.create_task(self._gather(), name="a read that is shared")
            self._coming.add_done_callback(retrieve_failure)
        return await asyncio.shield(self._coming)

    async def _gather(self) -> T:
        await asyncio.sleep(GATHER)
        self._coming = None  # later callers get the next read
        return await self._read()


class ObjectLocks:
    """A lock for each object of the cloud, by ID. Locks without holders and waiters are discarded."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def of(self, object_id: str) -> asyncio.Lock:
        return self._locks.setdefault(object_id, asyncio.Lock())


def retrieve_failure(task: asyncio.Task[T]) -> None:
    """Retrieve the task's failure. asyncio logs a failure that nobody retrieves, as when all callers were cancelled."""
    _ = task.cancelled() or task.exception()
