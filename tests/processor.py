# SPDX-License-Identifier: Apache-2.0
"""Seconds of the processor that this process and all below it have used, servers that still run among them."""

from __future__ import annotations

import os
from collections.abc import Iterator

_TICKS = os.sysconf("SC_CLK_TCK")


def used() -> float:
    """So far. It never counts less than before, unless a child outlives its parent and is nobody's here."""
    own = sum(os.times()[:4])
    if not _has_children():
        return own
    return own + below(os.getpid()) / _TICKS


def below(parent: int, proc: str = "/proc") -> int:
    """Ticks of the living descendants of a process, and of the children that each has waited for.

    It asks the kernel for children, not each process of the machine for its parent: a program that a fixture keeps for
    thousands of tests would otherwise cost more than these tests.
    """
    counted, left = 0, list(_children(parent, proc))
    while left:
        number = left.pop()
        fields = _text(f"{proc}/{number}/stat").rpartition(")")[2].split()  # a name may have spaces and brackets
        counted += sum(map(int, fields[11:15]))
        left += _children(number, proc)
    return counted


def _children(parent: int, proc: str) -> Iterator[int]:
    """Each thread has its own."""
    try:
        threads = os.listdir(f"{proc}/{parent}/task")
    except OSError:  # it has ended
        return
    for thread in threads:
        yield from map(int, _text(f"{proc}/{parent}/task/{thread}/children").split())


def _text(path: str) -> str:
    """Empty if the process has ended. Quicker than a file of Python's."""
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
    """Quick, as unit tests ask it thousands of times."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True
