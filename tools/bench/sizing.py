# SPDX-License-Identifier: Apache-2.0
"""The tables of docs/reference/sizing.md. The rest of that page is written by hand."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from . import table

#: The tables replace the text between these comments of the page.
BLOCK = re.compile(r"(<!-- `make bench` writes this: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)

Runs = Mapping[str, Sequence[Mapping[str, Any]]]


def nodes(runs: Runs) -> str:
    """Return a table with one row for each number of Nodes. Pure."""
    many = [run for run in runs["large"] if run["size"] > 5000 and "restart" in run]
    measured = [*table.medians(runs["growth"]), *many]
    ours = sorted((run for run in measured if run["side"] == "ours"), key=lambda run: int(run["size"]))
    lines = [
        "| Nodes | Peak memory | CPU time to initialise all of them | Time to initialise all of them | Cloud calls |",
        "|---:|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {run['size']:,} | {run['peak']:.0f} MiB | {run['cpu_done']:.1f} s | {run['seconds']:.1f} s "
        f"| {run['cloud_calls']} |"
        for run in ours
    ]
    return "\n".join(lines)


def services(runs: Runs) -> str:
    """Return a table of what Services and routes cost, from the same rows as docs/performance.md. Pure."""
    rows = table.rows(runs)
    kinds = ("restart with", "200 new Services", "100 routes", "a Node joins")
    lines = ["| What | Measured |", "|---|---|"]
    lines += [f"| {row.what[0].upper()}{row.what[1:]} | {row.ours} |" for row in rows if row.what.startswith(kinds)]
    return "\n".join(lines)


def render(page: str, runs: Runs) -> str:
    """Return the page with the tables of these runs. Raises KeyError if a comment names another table. Pure."""
    made = {"nodes": nodes, "services": services}
    return BLOCK.sub(lambda found: f"{found[1]}\n{made[found[2]](runs)}\n\n{found[3]}", page)
