# SPDX-License-Identifier: Apache-2.0
"""How long one callback takes the event loop, in CPU time of its thread: a busy machine makes no test fail.

Works with asyncio's own loops. What a test's stand-ins do (a small API server, say) is not counted: see `excuse`.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

#: The longest that anything may take the loop, in seconds.
LIMIT = 0.05


@dataclass
class LoopWatch:
    """`longest`: seconds of CPU of the slowest callback so far, and what it was."""

    longest: tuple[float, str] = (0.0, "nothing ran")
    _excused: float = 0.0
    _patches: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def excuse(self, owner: Any, *names: str) -> None:
        """Do not count these synchronous methods of `owner`, until the watch ends."""
        for name in names:
            original = getattr(owner, name)
            setattr(owner, name, self._excusing(original))
            self._patches.callback(setattr, owner, name, original)

    def _excusing(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            started, before = time.thread_time(), self._excused
            try:
                return function(*args, **kwargs)
            finally:  # once, also where one excused function calls another
                self._excused = before + time.thread_time() - started

        return run

    def check(self) -> None:
        seconds, what = self.longest
        assert seconds < LIMIT, f"{what} took the event loop for {seconds * 1000:.0f} ms of CPU"


@contextlib.contextmanager
def watched_loop() -> Iterator[LoopWatch]:
    """Watch all callbacks of all loops of this process. The garbage collector rests: its pauses depend on the test."""
    watch, original = LoopWatch(), asyncio.Handle._run

    def run(handle: asyncio.Handle) -> None:
        started, excused = time.thread_time(), watch._excused
        original(handle)
        seconds = time.thread_time() - started - (watch._excused - excused)
        if seconds > watch.longest[0]:
            watch.longest = (seconds, _name(handle))

    gc.collect()
    gc.disable()
    asyncio.Handle._run = run  # type: ignore[method-assign]
    try:
        yield watch
    finally:
        asyncio.Handle._run = original  # type: ignore[method-assign]
        gc.enable()
        watch._patches.close()


def quick(decide: Callable[[], Any], expected: type[Exception] | tuple[type[Exception], ...]) -> Any:
    """What it decides, or the expected error that it raises. Fails where the best of three tries takes the thread for
    more than the limit: the first try may pay for what is loaded, and any for the garbage of others."""
    least = math.inf
    for _ in range(3):
        started = time.thread_time()
        try:
            found = decide()
        except expected as error:
            found = error
        least = min(least, time.thread_time() - started)
        if least < LIMIT:
            return found
    raise AssertionError(f"{decide} took {least:.3f} s")


def _name(handle: asyncio.Handle) -> str:
    callback = getattr(handle, "_callback", None)
    task = getattr(callback, "__self__", None)
    if isinstance(task, asyncio.Task):
        return f"task {task.get_name()} ({getattr(task.get_coro(), '__qualname__', '?')})"
    return repr(callback)[:200]
