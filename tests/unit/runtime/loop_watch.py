# SPDX-License-Identifier: Apache-2.0
"""Measures how long one callback holds the event loop, in executed lines of Python.

The thread's CPU time only selects the callbacks to count, and fails those that are too slow in any case, such as a
regular expression that does not finish. Works with asyncio's own loops. `excuse` exempts a test's stand-ins, such as
a small API server.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, TypeVar

T = TypeVar("T")

#: How many lines of Python one callback may execute at most, which takes 30 to 60 ms. The slowest callback that passes,
#: on the largest Node, executes 226,000.
MOST = 300_000
#: Seconds of CPU. The lines of a faster callback are not counted, because it delays nobody.
SUSPECT = 0.01
#: The maximum CPU seconds of one callback. A callback that needs more in every try fails, however few its lines.
HOPELESS = 1.0
TRIES = 3


class Lines:
    """A context manager that counts the lines of Python that run inside it."""

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> Lines:
        self._former = sys.gettrace()
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._former)

    def _trace(self, frame: FrameType, event: str, _: Any) -> Any:
        self.count += event == "line"
        return self._trace


@dataclass
class LoopWatch:
    """Measures each callback of the event loop.

    `longest`: CPU seconds and name of the slowest callback. `suspects`: the name of the only callback to measure, whose
    executed lines count as well (`most_lines`); "" for all callbacks. `rests`: callbacks that start now are not
    measured.
    """

    suspects: str = ""
    longest: tuple[float, str] = (0.0, "nothing ran")
    most_lines: int = 0
    rests: bool = False
    _lines: Lines = field(default_factory=Lines)
    _excused: float = 0.0
    _patches: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def excuse(self, owner: Any, *names: str) -> None:
        """Exempt these synchronous methods of `owner` from measuring until the watch ends."""
        for name in names:
            original = getattr(owner, name)
            setattr(owner, name, self._excusing(original))
            self._patches.callback(setattr, owner, name, original)

    def _excusing(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            started, before, lines = time.thread_time(), self._excused, self._lines.count
            try:
                return function(*args, **kwargs)
            finally:  # excused only once where one excused function calls another
                self._excused, self._lines.count = before + time.thread_time() - started, lines

        return run

    def run(self, handle: asyncio.Handle, original: Callable[[asyncio.Handle], None]) -> None:
        if self.rests or (self.suspects and _name(handle) != self.suspects):
            original(handle)
            return
        started, excused, self._lines.count = time.thread_time(), self._excused, 0
        with self._lines if self.suspects else contextlib.nullcontext():
            original(handle)
        seconds = time.thread_time() - started - (self._excused - excused)
        if seconds > self.longest[0]:
            self.longest = (seconds, _name(handle))
        self.most_lines = max(self.most_lines, self._lines.count)


def watched(scenario: Callable[[LoopWatch], T]) -> T:
    """Return what the scenario returns. Fails if one of its callbacks does too much.

    If a callback is slow, the scenario runs again and the lines of that callback are counted.
    """
    least = HOPELESS
    for _ in range(TRIES):
        with _watching(LoopWatch()) as watch:
            found = scenario(watch)
        seconds, what = watch.longest
        least = min(least, seconds)
        if seconds < HOPELESS:
            break
    assert least < HOPELESS, f"{what} took the event loop for {seconds:.1f} s of CPU"
    if seconds >= SUSPECT:
        with _watching(LoopWatch(suspects=what)) as counting:
            scenario(counting)
        assert counting.most_lines < MOST, f"{what} took the event loop for {counting.most_lines:,} lines of Python"
    return found


@contextlib.contextmanager
def _watching(watch: LoopWatch) -> Iterator[LoopWatch]:
    """Watch all callbacks of all loops of this process. The garbage collector is off: its pauses would be measured."""
    original = asyncio.Handle._run
    gc.collect()
    gc.disable()
    asyncio.Handle._run = lambda handle: watch.run(handle, original)  # type: ignore[method-assign]
    try:
        yield watch
    finally:
        asyncio.Handle._run = original  # type: ignore[method-assign]
        gc.enable()
        watch._patches.close()


def quick(decide: Callable[[], Any], expected: type[Exception] | tuple[type[Exception], ...]) -> Any:
    """Return the result of `decide`, or the expected error that `decide` raises. Fails if `decide` runs more lines of
    Python, or needs more CPU time, than one callback of the event loop may."""

    def outcome() -> Any:
        try:
            return decide()
        except expected as error:
            return error

    least = HOPELESS
    for _ in range(TRIES):
        started = time.thread_time()
        found = outcome()
        least = min(least, time.thread_time() - started)
        if least < SUSPECT:
            return found
    assert least < HOPELESS, f"{decide} took {least:.1f} s of CPU"
    with Lines() as lines:
        outcome()
    assert lines.count < MOST, f"{decide} took {lines.count:,} lines of Python"
    return found


def _name(handle: asyncio.Handle) -> str:
    callback = getattr(handle, "_callback", None)
    task = getattr(callback, "__self__", None)
    if isinstance(task, asyncio.Task):
        return getattr(task.get_coro(), "__qualname__", "a task")
    return getattr(callback, "__qualname__", "") or repr(callback)[:200]
