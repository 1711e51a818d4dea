# SPDX-License-Identifier: Apache-2.0
"""Runs programs and captures their output: it appears in error messages, never directly on the screen."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from bed.errors import BedError

T = TypeVar("T")
R = TypeVar("R")


class CommandFailed(BedError):
    """A program ended with an error; ``output`` is all that it wrote."""

    def __init__(self, command: Sequence[str], code: int, output: str) -> None:
        self.code = code
        self.output = output
        tail = "\n".join("    " + line for line in output.strip().splitlines()[-15:])
        super().__init__(f"`{shlex.join(command)}` ended with {code}:\n{tail}")


def run(
    *command: str,
    stdin: str | None = None,
    env: dict[str, str] | None = None,
    cwd: str | None = None,
    check: bool = True,
    timeout: float = 600,
) -> str:
    """Run ``command`` and return what it wrote to standard output.

    ``timeout`` is in seconds. Raises CommandFailed for a non-zero exit unless ``check`` is off,
    BedError when the program is missing or does not end in time.
    """
    try:
        done = subprocess.run(
            command, input=stdin, env=env, cwd=cwd, text=True, timeout=timeout, capture_output=True, check=False,
            stdin=subprocess.DEVNULL if stdin is None else None,
        )  # fmt: skip
    except FileNotFoundError as error:
        raise BedError(f"{command[0]} is not installed: run `bed prerequisites`") from error
    except subprocess.TimeoutExpired as error:
        raise BedError(f"`{shlex.join(command)}` did not end within {timeout:.0f} s") from error
    if check and done.returncode != 0:
        raise CommandFailed(command, done.returncode, done.stdout + done.stderr)
    return done.stdout


def in_parallel(work: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """Run ``work`` on all ``items`` at once; return the results, or raise the first failure when all have ended."""
    items = list(items)
    if not items:
        return []
    with ThreadPoolExecutor(max_workers=len(items)) as pool:
        return [future.result() for future in [pool.submit(work, item) for item in items]]
