# SPDX-License-Identifier: Apache-2.0
"""Notices a provider that blocks the event loop. While it does, the whole runtime stands still and renews no Lease."""

from __future__ import annotations

import asyncio
import signal
import sys
import sysconfig
import threading
import time
from types import FrameType, TracebackType

from .trial import Failed

#: How long the event loop may stand still at one place of the code, in seconds.
STANDSTILL = 3.0
TICK = 0.1
#: The folders of Python's own modules and of packages. If the loop stands still in one of these, the message names the
#: code that called it.
_LIBRARIES = tuple(sysconfig.get_paths()[each] for each in ("stdlib", "platstdlib", "purelib", "platlib"))
#: The function of the event loop that waits for events, and then runs what they call.
_RUN_ONCE = asyncio.BaseEventLoop._run_once.__code__  # type: ignore[attr-defined]


class Watchdog:
    """While entered, a thread watches the event loop. `blocked` is a sentence about the place of the code where the
    loop stood still first, "" if it never did.

    In the main thread it also ends the blocking call: SIGUSR1 raises Failed there.
    """

    def __init__(self) -> None:
        self.blocked = ""
        self._thread_id = threading.get_ident()
        self._over = threading.Event()
        self._ticked = time.monotonic()
        self._interrupts = threading.current_thread() is threading.main_thread()

    def __enter__(self) -> Watchdog:
        self._loop = asyncio.get_running_loop()
        if self._interrupts:
            self._former = signal.signal(signal.SIGUSR1, self._interrupt)
        self._tick()
        self._watcher = threading.Thread(target=self._watch, daemon=True, name="ccm-conformance-watchdog")
        self._watcher.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._over.set()
        self._watcher.join()
        self._timer.cancel()
        if self._interrupts:
            signal.signal(signal.SIGUSR1, self._former)

    def _tick(self) -> None:
        self._ticked = time.monotonic()
        self._timer = self._loop.call_later(TICK, self._tick)

    def _watch(self) -> None:
        place, since = None, time.monotonic()
        while not self._over.wait(TICK):
            now, frame = time.monotonic(), sys._current_frames().get(self._thread_id)
            # A loop that gets no CPU time stands still, too. So only time at one instruction counts, and no time during
            # which the loop waits for its next event.
            here = None if frame is None or _waits(frame) else (id(frame), frame.f_lasti)
            if here != place:
                place, since = here, now
            if frame is not None and here is not None and now - max(since, self._ticked) >= STANDSTILL:
                self.blocked = self.blocked or _place(frame)
                place = None
                if self._interrupts:
                    signal.pthread_kill(self._thread_id, signal.SIGUSR1)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if self.blocked:
            raise Failed(self.blocked)


def _waits(frame: FrameType) -> bool:
    """Return whether the event loop waits for its next event, so that nobody blocks it."""
    return frame.f_back is not None and frame.f_back.f_code is _RUN_ONCE and frame.f_code.co_name == "select"


def _place(frame: FrameType) -> str:
    """Return a sentence with the innermost place outside of libraries, and the function of a library that it called."""
    called, outer = frame.f_code.co_qualname, frame
    while outer.f_code.co_filename.startswith(_LIBRARIES) and outer.f_back is not None:
        called, outer = outer.f_code.co_qualname, outer.f_back
    where = f"{outer.f_code.co_qualname} ({outer.f_code.co_filename}:{outer.f_lineno})"
    via = f", in {called}" if called != outer.f_code.co_qualname else ""
    return (
        f"{where} blocks the event loop for more than {STANDSTILL:g} s{via}: use an asynchronous client, or "
        "ccm.cloud.BlockingCalls"
    )
