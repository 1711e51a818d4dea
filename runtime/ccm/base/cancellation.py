# SPDX-License-Identifier: Apache-2.0
"""Cancellations that nobody asked for.

If a task waits for something that is cancelled by itself, such as a connection or a future of a library, the task gets
CancelledError as if it had to end. asyncio then takes it for a task that ended as asked: its TaskGroup goes on without
it, and no line is in the log. So those who run such tasks distinguish the two cases here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def is_requested() -> bool:
    """Return whether the CancelledError just caught was meant for the present task: somebody called its `cancel`."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


class TaskGroup(asyncio.TaskGroup):
    """A TaskGroup that fails if one of its tasks gets a cancellation that nobody asked for."""

    def create_task(self, coro: Coroutine[Any, Any, T], **how: Any) -> asyncio.Task[T]:  # type: ignore[override]
        task = super().create_task(_never_silent(coro), **how)
        task.add_done_callback(lambda _: coro.close())  # a task that is cancelled at once never started it
        return task


async def _never_silent(coro: Coroutine[Any, Any, T]) -> T:
    try:
        return await coro
    except asyncio.CancelledError as cancelled:
        if is_requested():
            raise
        name = getattr(coro, "__qualname__", "a task")
        raise RuntimeError(f"something that {name} waited for was cancelled") from cancelled
