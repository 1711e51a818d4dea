# SPDX-License-Identifier: Apache-2.0
"""Seconds of the processor that this process and all below it have used, servers that still run among them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def used() -> float:
    """So far. It never counts less than before, unless a child outlives its parent and is nobody's here."""
    own = sum(os.times()[:4])
    if not _has_children():
        return own
    return own + below(os.getpid(), _stats()) / _TICKS


def below(parent: int, stats: Iterable[str]) -> int:
    """Ticks of the living descendants of a process, and of the children that each has waited for.

    `stats`: lines of /proc/PID/stat.
    """
    parents, ticks = {}, {}
    for stat in stats:
        number, _, rest = stat.partition(" (")
        fields = rest.rpartition(")")[2].split()  # a program's name may have spaces and brackets
        parents[int(number)], ticks[int(number)] = int(fields[1]), sum(map(int, fields[11:15]))
    children: dict[int, list[int]] = {}
    for number, its_parent in parents.items():
        children.setdefault(its_parent, []).append(number)
    counted, left = 0, children.get(parent, [])
    while left:
        number = left.pop()
        counted += ticks[number]
        left += children.get(number, [])
    return counted


def _has_children() -> bool:
    """Quick, as unit tests ask it thousands of times."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _stats() -> Iterator[str]:
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                yield Path("/proc", name, "stat").read_text(errors="replace")
            except OSError:  # it has ended
                continue
