# SPDX-License-Identifier: Apache-2.0
"""Writes the table of docs/providers/index.md: a row for each fact, a column for each provider."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from . import FACTS, OPERATIONS, RESULTS, read

PAGE = Path(__file__).parents[2] / "docs" / "providers" / "index.md"
MARK = "<!-- Written by `make docs` from tests/comparison/results -->\n"
_HEADINGS = {
    "nodes equal": "Node objects that are equal",
    "load balancers equal": "Load balancers that are equal",
    "taken over by ours": "Taken over from theirs",
    "taken over by theirs": "Given back to theirs",
    "faults survived": "Faults survived",
}


def table() -> str:
    """Return the Markdown from the mark to the end of the table."""
    providers = sorted(path.stem for path in RESULTS.glob("*.yml"))
    found = {name: read(name) for name in providers}
    rows = [["", *(f"[`{name}`]({name}.md)" for name in providers)]]
    rows += [["Beside", *(found[name].get("beside", "") for name in providers)]]
    rows += [[_HEADINGS[fact], *(found[name].get(fact, "-") for name in providers)] for fact in FACTS]
    for operation in OPERATIONS:
        rows.append([f"Calls: {operation}", *(_calls(found[name], operation) for name in providers)])
    rows += [["Evidence", *(found[name].get("evidence", "") for name in providers)]]
    head, *body = [_line(row) for row in rows]
    return MARK + "\n".join([head, _line(["---"] * (len(providers) + 1)), *body]) + "\n"


def render(page: Path = PAGE) -> None:
    """Replace the table of the page. Raises ValueError if the page has no mark."""
    text = page.read_text(encoding="utf-8")
    begin = text.index(MARK)
    rest = text[begin + len(MARK) :].splitlines(keepends=True)
    after = next((n for n, line in enumerate(rest) if not line.startswith("|")), len(rest))
    page.write_text(text[:begin] + table() + "".join(rest[after:]), encoding="utf-8")


def _calls(results: dict[str, Any], operation: str) -> str:
    counted = results.get("calls", {}).get(operation)
    if counted is None:
        return "-"
    theirs = "not run" if counted["theirs"] is None else counted["theirs"]
    return f"{counted['ours']} : {theirs}"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
