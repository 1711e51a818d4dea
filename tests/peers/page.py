# SPDX-License-Identifier: Apache-2.0
"""The table of suites, which docs/reference/parity.md includes from results.md. Pure except for `is_stale`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from .compare import KINDS, Result
from .tables import Root

RESULTS = Path(__file__).parent / "results.md"


def table(results: Sequence[Result], roots: Mapping[str, Root]) -> list[str]:
    lines = [_row("peer", "version", "cases", "agreed", *(kind.replace("-", " ") for kind in KINDS))]
    lines.append("|---|---|" + "---:|" * (2 + len(KINDS)))
    totals = [0] * (2 + len(KINDS))
    for result in results:
        kinds = list(result.explained.values())
        row = [result.cases, result.agreed, *(kinds.count(kind) for kind in KINDS)]
        totals = [total + number for total, number in zip(totals, row, strict=True)]
        root = roots[result.suite]
        lines.append(_row(f"`{root.module}`", root.version, *row))
    lines.append(_row("**all**", "", *totals))
    return lines


def _row(*cells: object) -> str:
    return "| " + " | ".join(map(str, cells)) + " |"


def text(lines: Sequence[str]) -> str:
    return "<!-- Written by `make peers-tests`. -->\n" + "\n".join(lines) + "\n"


def is_stale(lines: Sequence[str], path: Path = RESULTS) -> bool:
    """Write the table to the file; return whether the file had another one."""
    before = path.read_text() if path.exists() else ""
    path.write_text(text(lines))
    return before != text(lines)
