# SPDX-License-Identifier: Apache-2.0
"""One read of the cloud for all who ask for the same at the same time, and one writer of an object at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

T = TypeVar("T")

#: For so long those who ask are gathered, in seconds.
GATHER = 0.05


class Shared(Generic[T]):
    """`get` gives the outcome of a read that began after it was asked for, so that it shows what was written before."""

    def __init__(self, read: Callable[[], Awaitable[T]]) -> None:
        self._read = read
        self._coming: asyncio.Task[T] | None = None

    async def get(self) -> T:
        if self._coming is None:
            self._coming = asyncio.create_task(self._gather(), name="a read that is shared")
            self._coming.add_done_callback(seen)
        return await asyncio.shield(self._coming)

    async def _gather(self) -> T:
        await asyncio.sleep(GATHER)
        self._coming = None  # who asks from now on gets the next one
        return await self._read()


class ObjectLocks:
    """A lock for each object of the cloud, by its ID. A lock that nobody holds or waits for is forgotten."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def of(self, object_id: str) -> asyncio.Lock:
        return self._locks.setdefault(object_id, asyncio.Lock())


def seen(task: asyncio.Task[T]) -> None:
    """All askers may have gone: then nobody looks at a failure."""
    _ = task.cancelled() or task.exception()
