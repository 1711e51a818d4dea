# SPDX-License-Identifier: Apache-2.0
"""Calls to a failing cloud, for any capability. The cases are in the modules of their capabilities; those about
instances are in `failures`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager
from typing import Any

from ccm.cloud import CloudError, Transient

from ..trial import Failed, Trial
from ..world import NotRun, Trouble, World

#: A method, and its arguments.
Call = tuple[Any, ...]


def troubled(trial: Trial, about: str, kind: Trouble) -> AbstractAsyncContextManager[None]:
    """Return the context in which the cloud has this trouble; enter it before creating anything. `about`: the
    capability that the case calls. Raises NotRun if this capability calls no cloud."""
    if about not in trial.world.asking:
        raise NotRun(f"needs {about.replace('_', ' ')} from a cloud; this provider implements them itself")
    return trial.world.trouble(kind)


async def errors_in(
    trial: Trial,
    trouble: AbstractAsyncContextManager[None],
    kind: Trouble,
    expected: type[CloudError],
    calls: Iterable[Call],
) -> list[CloudError]:
    """Return the error of each call during trouble, which must be `expected`; none if the cloud never answers."""
    async with trouble:
        if kind is Trouble.HANG:
            for call, *args in calls:
                await unanswered(trial, call, *args)
            return []
        return [
            await trial.expect((expected,), f"{call.__name__} when {kind.value}", call, *args) for call, *args in calls
        ]


async def unanswered(trial: Trial, call: Callable[..., Awaitable[Any]], *args: Any) -> None:
    """Make a call while the cloud never answers. Check that it ends with Transient, or continues until it is cancelled
    at its deadline. Raises Failed otherwise."""
    name = getattr(call, "__name__", repr(call))
    task = asyncio.ensure_future(call(*args))
    await asyncio.wait({task}, timeout=trial.cloud.limits.deadline)
    if not task.done():
        await trial.cancelled(task, name)  # as the gateway does
        return
    error = task.exception() if not task.cancelled() else None
    if not isinstance(error, Transient):
        raise Failed(f"the cloud did not answer, and {name} ended with {error!r} instead of Transient")


def say_when(errors: Iterable[CloudError]) -> None:
    """Check that errors in Trouble.RATE_LIMITED have the seconds that the cloud requested. Raises Failed."""
    for error in errors:
        seconds = getattr(error, "retry_after", None)
        if seconds is None or not World.RETRY_AFTER - 2 <= seconds <= World.RETRY_AFTER + 2:
            raise Failed(f"the cloud requested {World.RETRY_AFTER:g} s, RateLimited has {seconds} s")
