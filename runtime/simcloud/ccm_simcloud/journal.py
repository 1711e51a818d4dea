# SPDX-License-Identifier: Apache-2.0
"""The journal of calls, so that a test can count them."""

from __future__ import annotations

import time
from collections import Counter, deque

from msgspec import Struct

#: The maximum number of entries; the counts include all calls since the last clearing.
KEPT = 200_000


class Entry(Struct):
    """One call. `status` is 0 until it is answered, and remains 0 if it never is. `time` is in Unix seconds."""

    sequence: int
    time: float
    method: str
    path: str
    operation: str
    project: str
    write: bool
    status: int = 0
    duration: float = 0.0
    faults: tuple[str, ...] = ()


class Journal:
    def __init__(self) -> None:
        self.entries: deque[Entry] = deque(maxlen=KEPT)
        self.counts: Counter[str] = Counter()
        self.sequence = 0

    def begin(self, method: str, path: str, operation: str, project: str, write: bool) -> Entry:
        self.sequence += 1
        entry = Entry(self.sequence, time.time(), method, path, operation, project, write)
        self.entries.append(entry)
        self.counts[operation] += 1
        return entry

    def select(self, *, operation: str = "", project: str = "", since: int = 0, writes: bool = False) -> list[Entry]:
        """Return entries after the sequence number `since`; `operation` is exact, or `instances.*` for a group.
        `writes`: only calls that write."""
        group = operation.removesuffix("*") if operation.endswith("*") else None
        return [
            entry
            for entry in self.entries
            if entry.sequence > since
            and (not operation or (entry.operation.startswith(group) if group else entry.operation == operation))
            and (not project or entry.project == project)
            and (not writes or entry.write)
        ]

    def clear(self) -> None:
        """Delete all entries and counts. Sequence numbers continue."""
        self.entries.clear()
        self.counts.clear()
