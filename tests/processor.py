# SPDX-License-Identifier: Apache-2.0
"""The processor seconds that this process and all its descendants have used, including servers that still run."""

from __future__ import annotations

import os
from collections.abc import Iterator

_TICKS = os.sysconf("SC_CLK_TCK")


def used() -> float:
    """Return the seconds so far. They never decrease, unless a descendant outlives its parent and is no longer ours."""
    own = sum(os.times()[:4])
    if not _has_children():
        return own
    return own + below(os.getpid()) / _TICKS


def below(parent: int, proc: str = "/proc") -> int:
    """Return the ticks of a process's living descendants, and of the children for which each has waited.

    It reads the kernel's lists of children: to read every process of the machine would cost more than most tests.
    """
    counted, left = 0, list(_children(parent, proc))
    while left:
        number = left.pop()
        fields = _text(f"{proc}/{number}/stat").rpartition(")")[2].split()  # a name may have spaces and brackets
        counted += sum(map(int, fields[11:15]))
        left += _children(number, proc)
    return counted


def _children(parent: int, proc: str) -> Iterator[int]:
    """Yield the children of a process; the kernel lists them by thread."""
    try:
        threads = os.listdir(f"{proc}/{parent}/task")
    except OSError:  # it has ended
        return
    for thread in threads:
        yield from map(int, _text(f"{proc}/{parent}/task/{thread}/children").split())


def _text(path: str) -> str:
    """Read a file of /proc; "" if the process has ended. This is quicker than Python's file objects."""
    try:
        file = os.open(path, os.O_RDONLY)
    except OSError:
        return ""
    try:
        return os.read(file, 65536).decode(errors="replace")
    except OSError:
        return ""
    finally:
        os.close(file)


def _has_children() -> bool:
    """Return whether this process has children. It must be quick, because unit tests call it thousands of times."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True
