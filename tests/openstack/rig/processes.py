# SPDX-License-Identifier: Apache-2.0
"""The rig's processes: started apart from the terminal, found again by their pid files, ended one by one."""

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

START_SECONDS = 180.0
END_SECONDS = 20.0
MARK = "OPENSTACK_RIG"  # in the environment of every process: a pid that was given to another one has not got it


class Processes:
    """Those of one rig, whose folder holds ``run/NAME.pid`` and ``log/NAME.out``."""

    def __init__(self, data: Path) -> None:
        self.data = data
        for folder in ("run", "log"):
            (data / folder).mkdir(parents=True, exist_ok=True)

    def start(self, name: str, command: Sequence[str], env: dict[str, str] | None = None) -> None:
        environment = {**(os.environ if env is None else env), MARK: str(self.data)}
        with self._log(name).open("ab") as log:
            process = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                cwd=self.data,
            )  # fmt: skip
        self._pid_file(name).write_text(str(process.pid))

    def running(self, name: str) -> bool:
        return self._pid(name) is not None

    def wait(self, name: str, ready: Callable[[], bool], seconds: float = START_SECONDS) -> None:
        """Until it is ready. Raises BedError with its last lines when it ended, or took too long."""
        deadline = time.monotonic() + seconds
        while not ready():
            if not self.running(name):
                raise BedError(f"{name} ended; its last lines in {self._log(name)}:\n{self._tail(name)}")
            if time.monotonic() > deadline:
                raise BedError(f"{name} is not ready after {seconds:.0f} s; its last lines:\n{self._tail(name)}")
            time.sleep(0.1)

    def end(self, name: str) -> None:
        """Ask it to end, and insist after a while. One that is not there has ended already."""
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
        """Everything, the database last."""
        names = sorted(file.stem for file in (self.data / "run").glob("*.pid"))
        for name in sorted(names, key=lambda name: name == "mariadb"):
            self.end(name)

    def _pid(self, name: str) -> int | None:
        try:
            pid = int(self._pid_file(name).read_text())
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)  # ours: otherwise it stays as a zombie
            environment = Path(f"/proc/{pid}/environ").read_bytes()
        except (OSError, ValueError):
            return None
        return pid if f"{MARK}={self.data}".encode() in environment.split(b"\0") else None

    def _pid_file(self, name: str) -> Path:
        return self.data / "run" / f"{name}.pid"

    def _log(self, name: str) -> Path:
        return self.data / "log" / f"{name}.out"

    def _tail(self, name: str) -> str:
        lines = self._log(name).read_text(errors="replace").splitlines()
        return "\n".join("    " + line for line in lines[-15:])


def answers(url: str) -> bool:
    """Whether an HTTP server answers there, whatever it says."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        opener.open(url, timeout=10).close()
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True
