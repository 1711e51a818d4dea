# SPDX-License-Identifier: Apache-2.0
"""`ccm` as a process that records how much a single callback does while it holds the event loop.

    python watched_ccm.py FILE FLAGS...

FILE gets, as JSON, the most lines of Python and the most CPU seconds that one callback has used since the start or the
last SIGUSR1, each with the callback's name. Seconds depend on what else the machine does, because caches are shared;
lines do not. The process uses asyncio's own loop, because uvloop's callbacks cannot be watched.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT))

from tests.unit.runtime.loop_watch import Lines  # noqa: E402


class Watch:
    def __init__(self, file: Path) -> None:
        self._file, self._original, self._lines = file, asyncio.Handle._run, Lines()
        self.forget()

    def forget(self, *_: Any) -> None:
        self._most: dict[str, tuple[float, str]] = {"lines": (0, ""), "seconds": (0.0, "")}

    def run(self, handle: asyncio.Handle) -> None:
        self._lines.count, started = 0, time.thread_time()
        with self._lines:
            self._original(handle)
        amounts = {"lines": self._lines.count, "seconds": time.thread_time() - started}
        more = {key: (amount, _name(handle)) for key, amount in amounts.items() if amount > self._most[key][0]}
        if more:
            self._most |= more
            self._file.write_text(json.dumps(self._most))


def _name(handle: asyncio.Handle) -> str:
    callback: Any = getattr(handle, "_callback", None)
    return repr(getattr(callback, "__self__", None) or callback)[:300]


def watch(file: Path) -> None:
    watched = Watch(file)
    signal.signal(signal.SIGUSR1, watched.forget)
    asyncio.Handle._run = lambda handle: watched.run(handle)  # type: ignore[method-assign]


if __name__ == "__main__":
    sys.modules["uvloop"] = None  # type: ignore[assignment]
    watch(Path(sys.argv[1]))
    from ccm.cli import main

    sys.exit(main(sys.argv[2:]))
