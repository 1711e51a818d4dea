# SPDX-License-Identifier: Apache-2.0
"""`ccm` as a process that says how long one callback took its event loop: `python watched_ccm.py FILE FLAGS...`.

FILE gets, as JSON, the seconds of CPU and the name of the slowest callback since the start or the last SIGUSR1. With
asyncio's own loop: uvloop's callbacks cannot be watched.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from pathlib import Path
from typing import Any


def watch(file: Path) -> None:
    original, longest = asyncio.Handle._run, 0.0

    def run(handle: asyncio.Handle) -> None:
        nonlocal longest
        started = time.thread_time()
        original(handle)
        seconds = time.thread_time() - started
        if seconds > longest:
            longest = seconds
            callback: Any = getattr(handle, "_callback", None)
            what = getattr(callback, "__self__", None) or callback
            file.write_text(json.dumps([longest, repr(what)[:300]]))

    def forget(number: int, frame: object) -> None:
        nonlocal longest
        longest = 0.0

    signal.signal(signal.SIGUSR1, forget)
    asyncio.Handle._run = run  # type: ignore[method-assign]


if __name__ == "__main__":
    sys.modules["uvloop"] = None  # type: ignore[assignment]
    watch(Path(sys.argv[1]))
    from ccm.cli import main

    sys.exit(main(sys.argv[2:]))
