# SPDX-License-Identifier: Apache-2.0
"""The processes of the OpenStack services: starts them apart from the terminal, finds them again by pid files, and
stops them one by one.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path

from bed.errors import BedError

START_SECONDS = 600.0  # enough even on a busy machine
END_SECONDS = 20.0


class Processes:
    """The processes of one rig, whose folder has ``run/NAME.pid`` and ``log/NAME.out``."""

    def __init__(self, data: Path) -> None:
        self.data = data
        for folder in ("run", "log"):
            (data / folder).mkdir(parents=True, exist_ok=True)

    def start(self, name: str, command: Sequence[str], env: dict[str, str] | None = None) -> None:
        with self._log(name).open("ab") as log:
            process = subprocess.Popen(
                command,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd=self.data,
            )
        self._pid_file(name).write_text(f"{process.pid} {_started(process.pid)}")

    def running(self, name: str) -> bool:
        return self._pid(name) is not None

    def wait(self, name: str, ready: Callable[[], bool], seconds: float = START_SECONDS) -> None:
        """Wait until a process is ready. Raises BedError with its last lines if it has ended, or takes too long."""
        deadline = time.monotonic() + seconds
        while not ready():
            if not self.running(name):
                raise BedError(f"{name} ended; its last lines in {self._log(name)}:\n{self._tail(name)}")
            if time.monotonic() > deadline:
                raise BedError(f"{name} is not ready after {seconds:.0f} s; its last lines:\n{self._tail(name)}")
            time.sleep(0.1)

    def end(self, name: str) -> None:
        """Stop a process with SIGTERM, and with SIGKILL after END_SECONDS. A process that does not exist is no
        error."""
        deadline = time.monotonic() + END_SECONDS
        sent = None
        while (pid := self._pid(name)) is not None:
            wanted = signal.SIGTERM if time.monotonic() < deadline else signal.SIGKILL
            if sent != wanted:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, wanted)
                sent = wanted
            time.sleep(0.05)
        self._pid_file(name).unlink(missing_ok=True)

    def end_all(self) -> None:
        """Stop all processes, the database last."""
        names = sorted(file.stem for file in (self.data / "run").glob("*.pid"))
        for name in sorted(names, key=lambda name: name == "mariadb"):
            self.end(name)

    def _pid(self, name: str) -> int | None:
        try:
            pid, started = map(int, self._pid_file(name).read_text().split())
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)  # our own child would stay as a zombie
            return pid if _started(pid) == started else None
        except (OSError, ValueError):
            return None

    def _pid_file(self, name: str) -> Path:
        return self.data / "run" / f"{name}.pid"

    def _log(self, name: str) -> Path:
        return self.data / "log" / f"{name}.out"

    def _tail(self, name: str) -> str:
        lines = self._log(name).read_text(errors="replace").splitlines()
        return "\n".join("    " + line for line in lines[-15:])


def _started(pid: int) -> int:
    """Return when the process started, in the kernel's ticks. It tells the process from a later one with the same
    number."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


def answers(url: str) -> bool:
    """Return whether an HTTP server answers at this URL, whatever the answer is."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        opener.open(url, timeout=10).close()
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True
