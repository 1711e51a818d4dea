# SPDX-License-Identifier: Apache-2.0
"""Distinguishes a requested cancellation of a task from one that nobody requested.

If a library cancels something that a task waits for, such as a connection or a future, the task gets a CancelledError
as if somebody had cancelled the task. asyncio then assumes that the task ended on request: its TaskGroup continues
without the task, and logs nothing.
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
        task.add_done_callback(lambda _: coro.close())  # a task that is cancelled before it runs never awaits it
        return task


async def _never_silent(coro: Coroutine[Any, Any, T]) -> T:
    try:
        return await coro
    except asyncio.CancelledError as cancelled:
        if is_requested():
            raise
        name = getattr(coro, "__qualname__", "a task")
        raise RuntimeError(f"something that {name} waited for was cancelled") from cancelled
