# SPDX-License-Identifier: Apache-2.0
"""An event loop in virtual time: waits are exact and take no real time."""

from __future__ import annotations

import asyncio
import functools
import selectors
import time
from collections.abc import Callable, Coroutine
from typing import Any

#: Seconds of CPU time after which an endless test fails. Not wall-clock time, because the machine may be busy.
PATIENCE = 30.0


class _Selector(selectors.DefaultSelector):
    """Moves the loop's time forward by `timeout` instead of waiting."""

    loop: VirtualLoop

    def select(self, timeout: float | None = None) -> list[Any]:
        assert time.process_time() < self.loop.given_up, "the test never ends"
        ready = super().select(0)
        if not ready and timeout is None:
            raise AssertionError("deadlock: every task waits and no timer is set")
        if not ready and timeout:
            self.loop.now += timeout
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self.now = 1000.0
        self.given_up = time.process_time() + PATIENCE
        selector = _Selector()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        return self.now


def in_virtual_time(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a coroutine test in its own virtual loop, whose time starts at 1000.0 s."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            runner.run(test(*args, **kwargs))

    return run


def now() -> float:
    """Return the virtual monotonic time in seconds."""
    return asyncio.get_running_loop().time()
