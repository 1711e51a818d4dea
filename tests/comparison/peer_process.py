# SPDX-License-Identifier: Apache-2.0
"""A vendor's released controller as a process."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bed import go_programs
from bed.progress import Progress


class PeerProcess:
    """One process, without leader election. If the program is not in the cache, Go compiles it first, which takes
    minutes."""

    def __init__(
        self, program: str, flags: Mapping[str, Any], log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        """Start it. `program`: its name in `bed.go_programs`. `environment`: variables besides those of the tests."""
        self.log = log
        command = [str(go_programs.ensure(program, Progress())), *(f"--{key}={value}" for key, value in flags.items())]
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                command, stdout=output, stderr=output, env={**os.environ, **(environment or {})}, cwd="/"
            )

    @property
    def text(self) -> str:
        return self.log.read_text(errors="replace")

    async def stop(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            try:
                await asyncio.to_thread(self.process.wait, 10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                await asyncio.to_thread(self.process.wait)
