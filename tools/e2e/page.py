# SPDX-License-Identifier: Apache-2.0
"""Writes the table of specs in docs/testing.md: their results in the last recorded runs (`make test-e2e RECORD=1`)."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

from tools.e2e.results import SKIPPED, Result

PAGE = Path(__file__).parents[2] / "docs" / "testing.md"
RECORDED = Path(__file__).with_name("recorded")
MARK = "<!-- Written by `make docs` from tools/e2e/recorded -->"
MODES = ("pass-through", "proxy")


def record(mode: str, results: Sequence[Result], folder: Path = RECORDED) -> Path:
    """Store the results of this mode, sorted by the specs' titles; return the file."""
    rows = [
        {
            **{"spec": each.title, "state": each.state, "seconds": round(each.seconds, 1)},
            **{"reason": _short(each.reason), "requests": each.requests, "lost": each.lost},
        }
        for each in sorted(results, key=lambda each: each.title)
    ]
    file = folder / f"{mode}.json"
    folder.mkdir(exist_ok=True)
    file.write_text(json.dumps(rows, indent=1) + "\n")
    return file


def table(folder: Path = RECORDED) -> str:
    """Return a table in Markdown with a row for each spec and a column for each mode."""
    recorded = {mode: _read(folder / f"{mode}.json") for mode in MODES}
    specs = sorted({spec for rows in recorded.values() for spec in rows})
    lines = ["| Spec | Pass-through | Proxy |", "|---|---|---|"]
    for spec in specs:
        lines.append(f"| {spec} | {' | '.join(recorded[mode].get(spec, 'not run') for mode in MODES)} |")
    return "\n".join(lines) + "\n"


def filled(text: str) -> str:
    """Return the page with the current table behind the mark. Raises ValueError if the page has no mark."""
    if MARK not in text:
        raise ValueError(f"{PAGE}: there is no line {MARK!r}")
    return re.sub(re.escape(MARK) + r"\n(\|.*\n)*", lambda _: f"{MARK}\n{table()}", text)


def _read(file: Path) -> dict[str, str]:
    rows = json.loads(file.read_text()) if file.exists() else []
    return {row["spec"]: _cell(**{key: value for key, value in row.items() if key != "spec"}) for row in rows}


def _cell(state: str, seconds: float, reason: str, requests: int = 0, lost: int = 0) -> str:
    if state == SKIPPED:
        return f"{state}: {reason}"
    return f"{state}, {seconds:.0f} s" + (f", {lost} of {requests:,} requests lost" if requests else "")


def _short(reason: str) -> str:
    return " ".join(reason.split())[:200]


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text()))
