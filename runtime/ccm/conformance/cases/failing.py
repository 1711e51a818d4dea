# SPDX-License-Identifier: Apache-2.0
"""Asking a cloud that fails, whatever it is asked for. The cases are with their capabilities; those about instances are
in `failures`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager
from typing import Any

from ccm.cloud import CloudError, Transient

from ..trial import Failed, Trial
from ..world import NotRun, Trouble, World

#: A method, and what it is asked with.
Call = tuple[Any, ...]


def troubled(trial: Trial, about: str, kind: Trouble) -> AbstractAsyncContextManager[None]:
    """The trouble, for a capability that asks the cloud; to be called before anything is made. Raises NotRun."""
    if about not in trial.world.asking:
        raise NotRun(f"needs {about.replace('_', ' ')} that a cloud is asked about; this provider keeps them itself")
    return trial.world.trouble(kind)


async def errors_in(
    trial: Trial,
    trouble: AbstractAsyncContextManager[None],
    kind: Trouble,
    expected: type[CloudError],
    calls: Iterable[Call],
) -> list[CloudError]:
    """The error of each call while there is trouble, which must be `expected`; none where nobody answers."""
    async with trouble:
        if kind is Trouble.HANG:
            for call, *args in calls:
                await unanswered(trial, call, *args)
            return []
        return [
            await trial.expect((expected,), f"{call.__name__} when {kind.value}", call, *args) for call, *args in calls
        ]


async def unanswered(trial: Trial, call: Callable[..., Awaitable[Any]], *args: Any) -> None:
    """While nobody answers, a call ends with Transient, or goes on until it is cancelled at its deadline."""
    name = getattr(call, "__name__", repr(call))
    task = asyncio.ensure_future(call(*args))
    await asyncio.wait({task}, timeout=trial.cloud.limits.deadline)
    if not task.done():
        await trial.cancelled(task, name)  # the gateway would
        return
    error = task.exception() if not task.cancelled() else None
    if not isinstance(error, Transient):
        raise Failed(f"nobody answered, and {name} ended with {error!r} instead of Transient")


def say_when(errors: Iterable[CloudError]) -> None:
    """Whether errors in Trouble.RATE_LIMITED name the seconds that the cloud does. Raises Failed."""
    for error in errors:
        told = getattr(error, "retry_after", None)
        if told is None or not World.RETRY_AFTER - 2 <= told <= World.RETRY_AFTER + 2:
            raise Failed(f"the cloud said {World.RETRY_AFTER:g} s, RateLimited says {told} s")
