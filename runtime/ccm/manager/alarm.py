# SPDX-License-Identifier: Apache-2.0
"""An alarm from the kernel. It interrupts running Python code, whereas a timer of the event loop waits for its turn.

SIGSTOP and swapping can freeze a process in the middle of an iteration of its event loop. When it wakes, callbacks that
were ready run before any timer. The kernel delivers SIGALRM before all of them.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

#: When each alarm is due, in monotonic seconds, and its callback. All alarms share one timer of the kernel.
_alarms: dict[object, tuple[float, Callable[[], None]]] = {}


def set_alarm(seconds: float, callback: Callable[[], None]) -> Callable[[], None]:
    """Call `callback` after `seconds`, in the main thread, between any two steps of its code. Returns a function that
    cancels the alarm.

    Call it in the main thread; nothing else in the process may use SIGALRM.
    """
    key = object()
    _alarms[key] = (time.monotonic() + seconds, callback)
    signal.signal(signal.SIGALRM, lambda *_: _ring())
    _arm()

    def cancel() -> None:
        _alarms.pop(key, None)
        _arm()

    return cancel


def _arm() -> None:
    next_due = min((due for due, _ in _alarms.values()), default=None)
    # 0 would disarm the timer.
    left = 0.0 if next_due is None else max(1e-6, next_due - time.monotonic())
    signal.setitimer(signal.ITIMER_REAL, left)


def _ring() -> None:
    now = time.monotonic()
    for key, (due, callback) in list(_alarms.items()):
        if due <= now:
            del _alarms[key]
            callback()
    _arm()
