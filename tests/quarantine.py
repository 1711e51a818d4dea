# SPDX-License-Identifier: Apache-2.0
"""Flaky tests, until their cause is fixed: they run and are reported, but cannot fail a run.

tests/quarantine.txt has one test a line: the first day in quarantine, the test, and why. After 14 days, `make lint`
fails. For example:

    2026-11-25 tests/integration/faults/test_cloud.py::test_a_slow_cloud waits for a second of the clock, issue 32
"""

from __future__ import annotations

import datetime
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LIST = ROOT / "tests" / "quarantine.txt"
DAYS = 14


@dataclass(frozen=True)
class Entry:
    """A test in quarantine. `test`: a node ID of pytest, without parameters if the entry is for all of them."""

    since: datetime.date
    test: str
    why: str

    def has(self, node_id: str) -> bool:
        return node_id == self.test or node_id.startswith(f"{self.test}[")


def parse(lines: Iterable[str]) -> list[Entry]:
    """Return the entries in these lines. Raises ValueError for a line that is no entry."""
    entries = []
    for line in lines:
        if not line.strip() or line.startswith("#"):
            continue
        day, *rest = line.split(maxsplit=2)
        if len(rest) != 2:
            raise ValueError(f"{line.strip()!r} is not a day, a test and a reason")
        entries.append(Entry(datetime.date.fromisoformat(day), *rest))
    return entries


def entry_of(node_id: str, entries: Iterable[Entry]) -> Entry | None:
    return next((entry for entry in entries if entry.has(node_id)), None)


def problems(entries: Iterable[Entry], today: datetime.date, root: Path) -> list[str]:
    """Return what a person must do about the list."""
    result = []
    for entry in entries:
        path, _, function = entry.test.partition("::")
        name = function.rpartition("::")[2].partition("[")[0]
        source = root / path
        if not name or not source.is_file() or not re.search(rf"\bdef {re.escape(name)}\(", source.read_text()):
            result.append(f"{entry.test}: there is no such test; remove the line")
        if entry.since > today:
            result.append(f"{entry.test}: {entry.since} is in the future")
        if (today - entry.since).days > DAYS:
            result.append(f"{entry.test}: in quarantine since {entry.since}, {DAYS} days at most; fix it, or remove it")
    return result


def main() -> int:
    try:
        found = problems(parse(LIST.read_text().splitlines()), datetime.date.today(), ROOT)
    except ValueError as error:
        found = [str(error)]
    for problem in found:
        print(f"{LIST.relative_to(ROOT)}: {problem}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
