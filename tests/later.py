# SPDX-License-Identifier: Apache-2.0
"""Lets time-outs end without a wait: a test lets the time of its event loop jump as soon as an event has happened.

A short real time-out may end too early on a busy machine, for example before the request that shall have no answer was
sent. So tests set a long time-out, wait for an event, and then jump to the end of the time-out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

T = TypeVar("T")


def jump(seconds: float) -> None:
    """Let `seconds` pass at once in the running event loop, which must be one of asyncio's."""
    loop = asyncio.get_running_loop()
    former = loop.time
    loop.time = lambda: former() + seconds  # type: ignore[method-assign]


async def late(call: Awaitable[T], begun: Awaitable[Any], seconds: float) -> T:
    """Return the result of `call`, or raise its error. As soon as `begun` is done, the time jumps by `seconds`."""
    task, begins = asyncio.ensure_future(call), asyncio.ensure_future(begun)
    try:
        await asyncio.wait({task, begins}, return_when=asyncio.FIRST_COMPLETED)
        jump(seconds)
        return await task
    finally:
        begins.cancel()
