# SPDX-License-Identifier: Apache-2.0
"""Writes the table of specs in docs/testing.md: their results in the last recorded runs (`make test-e2e RECORD=1`)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from tools.e2e.results import PASSED, SKIPPED, Result

PAGE = Path(__file__).parents[2] / "docs" / "testing.md"
RECORDED = Path(__file__).with_name("recorded")
MARK = "<!-- {}: written by `make docs` from tools/e2e/recorded -->"
#: Title of a table, which its mark on the page names -> its columns: name of a results file -> title of the column.
TABLES = {
    "Load balancers": {"pass-through": "Pass-through", "proxy": "Proxy"},
    "Conformance": {"before": "Before", "migrated": "Migrated", "rolled-back": "Rolled back"},
    "Dual-stack": {
        "dual-stack-before": "Before",
        "dual-stack-migrated": "Migrated",
        "dual-stack-rolled-back": "Rolled back",
    },
    "OpenStack": {"openstack-ours": "outoftree.ccm", "openstack-theirs": "cloud-provider-openstack"},
}


def record(column: str, results: Sequence[Result], folder: Path = RECORDED) -> Path:
    """Store the results of this column, sorted by the specs' titles; return the file."""
    rows = [
        {
            **{"spec": each.title, "state": each.state, "seconds": round(each.seconds, 1)},
            **{"reason": _short(each.reason), "requests": each.requests, "lost": each.lost},
        }
        for each in sorted(results, key=lambda each: each.title)
    ]
    file = folder / f"{column}.json"
    folder.mkdir(exist_ok=True)
    file.write_text(json.dumps(rows, indent=1) + "\n")
    return file


def table(columns: Mapping[str, str], folder: Path = RECORDED) -> str:
    """Return a table in Markdown with a row for each spec. `columns`: name of a results file -> title of its column."""
    recorded = [_read(folder / f"{name}.json") for name in columns]
    specs = sorted({spec for rows in recorded for spec in rows})
    lines = [f"| Spec | {' | '.join(columns.values())} |", f"|{'---|' * (len(columns) + 1)}"]
    for spec in specs:
        lines.append(f"| {spec} | {' | '.join(rows.get(spec, 'not run') for rows in recorded)} |")
    return "\n".join(lines) + "\n"


def filled(text: str) -> str:
    """Return the page with the current tables behind their marks. Raises ValueError if the page lacks a mark."""
    for title, columns in TABLES.items():
        mark = MARK.format(title)
        if mark not in text:
            raise ValueError(f"{PAGE}: there is no line {mark!r}")
        text = re.sub(re.escape(mark) + r"\n(\|.*\n)*", f"{mark}\n{table(columns)}".replace("\\", r"\\"), text)
    return text


def _read(file: Path) -> dict[str, str]:
    rows = json.loads(file.read_text()) if file.exists() else []
    return {row["spec"]: _cell(**{key: value for key, value in row.items() if key != "spec"}) for row in rows}


def _cell(state: str, seconds: float, reason: str, requests: int = 0, lost: int = 0) -> str:
    if state == SKIPPED:
        return f"{state}: {reason}"
    counted = f", {lost} of {requests:,} requests lost" if requests else ""
    return f"{state}, {seconds:.0f} s{counted}" + (f": {reason}" if reason and state != PASSED else "")


def _short(reason: str) -> str:
    return " ".join(reason.split())[:200]


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text()))
