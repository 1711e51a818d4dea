# SPDX-License-Identifier: Apache-2.0
"""Shows one line per step with its seconds; a long step shows that it still runs.

On a terminal the line of the running step is redrawn. Elsewhere (a log, a pipe), a finished step is one plain line, and
a long step prints every 20 s what it is doing.
"""

from __future__ import annotations

import shutil
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

REDRAW_SECONDS = 0.5
SIGN_OF_LIFE_SECONDS = 20.0


class Step:
    """A running step; ``detail`` may be changed from any thread."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.detail = ""
        self.started = time.monotonic()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.started

    def line(self) -> str:
        return f"{self.title}: {self.detail}" if self.detail else self.title


class Progress:
    """Shows steps on ``out`` (standard error by default: standard output is for answers)."""

    def __init__(self, out: TextIO | None = None) -> None:
        self.out = out or sys.stderr
        self.live = self.out.isatty()

    def say(self, text: str) -> None:
        """Print a line that is not a step."""
        print(text, file=self.out, flush=True)

    @contextmanager
    def step(self, title: str) -> Iterator[Step]:
        """Show ``title`` while the block runs, and how long it took when it ends."""
        step = Step(title)
        ended = threading.Event()
        watcher = threading.Thread(target=self._watch, args=(step, ended), daemon=True)
        watcher.start()
        mark = "failed"
        try:
            yield step
            mark = "ok"
        finally:
            ended.set()
            watcher.join()
            self._line(f"{mark:>6} {step.seconds:6.1f} s  {step.line()}")

    def _watch(self, step: Step, ended: threading.Event) -> None:
        if self.live:
            while not ended.wait(REDRAW_SECONDS):
                width = shutil.get_terminal_size().columns - 1
                text = f"   ... {step.seconds:6.1f} s  {step.line()}"
                self.out.write("\r\x1b[K" + text[:width])
                self.out.flush()
        else:
            while not ended.wait(SIGN_OF_LIFE_SECONDS):
                self._line(f"   ... {step.seconds:6.1f} s  {step.line()}")

    def _line(self, text: str) -> None:
        self.out.write(("\r\x1b[K" if self.live else "") + text + "\n")
        self.out.flush()
