# SPDX-License-Identifier: Apache-2.0
"""An event loop whose time passes at once: waits are exact and cost nothing."""

from __future__ import annotations

import asyncio
import functools
import selectors
import time
from collections.abc import Callable, Coroutine
from typing import Any

#: Seconds of work after which a test that never ends is given up. Of work, not of the clock: the machine may be busy.
PATIENCE = 30.0


class _Selector(selectors.DefaultSelector):
    """Instead of waiting for `timeout` it moves the loop's time by it."""

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
    """Run a coroutine test in a loop of its own that starts at 1000.0 s."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            runner.run(test(*args, **kwargs))

    return run


def now() -> float:
    """Virtual monotonic seconds."""
    return asyncio.get_running_loop().time()
