# SPDX-License-Identifier: Apache-2.0
"""A turn that runs on one machine take one after another."""

from __future__ import annotations

import fcntl
from pathlib import Path


class Turn:
    """The turn of a run. `file`: runs with the same file never have their turns at the same time; None: it is always
    this run's turn. The kernel ends the turn of a process that ends."""

    def __init__(self, file: Path | None) -> None:
        self._open = file.open("ab") if file else None

    def take(self, *, wait: bool) -> bool:
        """Return whether it is this run's turn now. `wait`: wait for it."""
        if self._open is None:
            return True
        try:
            fcntl.flock(self._open, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            return False
        return True

    def end(self) -> None:
        """Let another run have its turn."""
        if self._open is not None:
            fcntl.flock(self._open, fcntl.LOCK_UN)
