# SPDX-License-Identifier: Apache-2.0
"""The controller under test: a command that is restarted when it ends, as a Deployment does."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from .errors import SuiteError

#: Seconds between the end of a process and the next start.
BACK_OFF = 2.0
#: Seconds that a process has to end after SIGTERM, as many as a Pod has by default.
GRACE = 30.0
#: How many lines of the controller's log an error shows.
LINES = 15


def command_of(template: str, variables: Mapping[str, str]) -> list[str]:
    """Return the words of a command, with its {names} replaced. Raises SuiteError for an unknown name, or a command
    that cannot be split."""
    try:
        return [word.format_map(dict(variables)) for word in shlex.split(template)]
    except KeyError as error:
        known = ", ".join(f"{{{name}}}" for name in sorted(variables))
        raise SuiteError(f"--controller: {{{error.args[0]}}} is unknown; there are {known}") from error
    except ValueError as error:
        raise SuiteError(f"--controller: {error}") from error


class Controller:
    """The controller's process, which is restarted whenever it exits. `ended`: how many times it exited by itself."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        self._command, self._log = list(command), log
        self._environment = {**os.environ, **environment}
        self._process: subprocess.Popen[bytes] | None = None
        self._wanted = threading.Event()
        self._keeper: threading.Thread | None = None
        self.ended = 0

    def start(self) -> None:
        """Start the process, and restart it whenever it ends. Raises SuiteError if the command cannot be executed."""
        self._spawn()
        self._wanted.set()
        self._keeper = threading.Thread(target=self._keep, daemon=True)
        self._keeper.start()

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal, wait, and return the exit status (negative for a signal). After GRACE, kill the process."""
        self._wanted.clear()
        if self._keeper is not None:
            self._keeper.join()
        process = self._process
        if process is None:
            return 0
        if process.poll() is None:
            process.send_signal(number)
        try:
            return process.wait(GRACE)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()

    def last_lines(self) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-LINES:])

    def _spawn(self) -> None:
        with self._log.open("ab") as log:
            try:
                self._process = subprocess.Popen(
                    self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self._environment
                )
            except OSError as error:
                raise SuiteError(f"--controller: {self._command[0]}: {error.strerror}") from error

    def _keep(self) -> None:
        while self._wanted.is_set():
            assert self._process is not None
            if self._process.poll() is not None:
                self.ended += 1
                time.sleep(BACK_OFF)
                if self._wanted.is_set():
                    self._spawn()
            time.sleep(0.1)
