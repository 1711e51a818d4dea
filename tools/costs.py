# SPDX-License-Identifier: Apache-2.0
"""Shows what the tests cost and what they found: a table of all parts and files, from the results of the last runs.

    python -m tools.costs [--keep FOLDER] [--against FILE]

build/results has the results of `make test` and `make test-ci`. Each table is kept as JSON, so that a later one can be
compared with it: `--against` adds the CPU seconds of an earlier table, by default of the newest one.

Waiting is a test's seconds minus its CPU seconds, or zero if the test's processes used more CPU seconds than that.
Commits are those of the last two months that changed both the file of tests and the product, because the tests found
something or had to follow the product. tools/costs.yml notes which other checks show the same as a file of tests.
"""

from __future__ import annotations

import argparse
import datetime
import json
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import yaml

from tools.results import ROOT, Test, read

RESULTS = ROOT / "build" / "results"
KEPT = ROOT / "build" / "costs"
#: What a user installs.
PRODUCT = ("plugins/", "roles/", "playbooks/", "runtime/ccm/", "runtime/simcloud/")
MONTHS = 2

Row = dict[str, Any]


def rows_of(part: str, tests: Iterable[Test]) -> list[Row]:
    """Return a row for each file of a part. A test without a file, such as a scenario's, has a separate row."""
    files: dict[str, Row] = {}
    for test in tests:
        name = test.file or test.name
        row = files.setdefault(name, {"part": part, "file": name, "tests": 0, "seconds": 0.0, "cpu": 0.0})
        row["tests"] += 1
        row["seconds"] += test.seconds
        row["cpu"] += test.cpu or 0.0
    return list(files.values())


def part_row(figures: Row, files: Sequence[Row]) -> Row:
    """Return the row of a part. Its seconds are not the sum of the files' seconds, because files run in parallel."""
    return {"part": figures["part"], "file": "", "tests": sum(row["tests"] for row in files)} | {
        name: figures[name] for name in ("seconds", "cpu")
    }


def found(log: str) -> dict[str, int]:
    """Return, for each file of tests, how many commits changed both it and the product. `log`: the text of `history`.
    """
    counts: dict[str, int] = {}
    for commit in log.split("\0"):
        paths = commit.split("\n")
        if any(path.startswith(PRODUCT) for path in paths):
            for path in paths:
                if path.startswith("tests/"):
                    counts[path] = counts.get(path, 0) + 1
    return counts


def history() -> str:
    command = ["git", "log", f"--since={MONTHS}.months", "--name-only", "--format=%x00"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def completed(
    rows: Iterable[Row], commits: dict[str, int], guards: dict[str, str], earlier: Iterable[Row]
) -> list[Row]:
    """Return the rows with all columns, the most expensive first, each part before its files. `commits`:
    file of tests -> number of commits. `guards`: file of tests -> the other checks that show the same. `earlier`: the
    rows of an earlier table.
    """
    before = {(row["part"], row["file"]): row["cpu"] for row in earlier}
    all_rows = [
        row
        | {
            "waiting": max(0.0, row["seconds"] - row["cpu"]),
            "commits": commits.get(row["file"], 0) if row["file"] else None,
            "guards": guards.get(row["file"], ""),
            "before": before.get((row["part"], row["file"])),
        }
        for row in rows
    ]
    parts = {row["part"]: row["cpu"] for row in all_rows if not row["file"]}
    return sorted(all_rows, key=lambda row: (-parts.get(row["part"], 0), row["part"], bool(row["file"]), -row["cpu"]))


def table(rows: Sequence[Row]) -> str:
    lines = ["seconds      CPU  before  waiting  tests  commits  part, file (what shows the same)"]
    for row in rows:
        before = "" if row["before"] is None else f"{row['before']:.1f}"
        commits = "" if row["commits"] is None else row["commits"]
        name = f"  {row['file']}" if row["file"] else row["part"]
        guards = f" ({row['guards']})" if row["guards"] else ""
        lines.append(
            f"{row['seconds']:7.1f}  {row['cpu']:7.1f}  {before:>6}  {row['waiting']:7.1f}  {row['tests']:5}"
            f"  {commits:>7}  {name}{guards}"
        )
    return "\n".join(lines)


def collect(results: Path) -> list[Row]:
    """Return the rows of every part that has results."""
    rows = []
    for path in sorted(results.glob("*/part.json")):
        figures = json.loads(path.read_text())
        files = [row for xml in sorted(path.parent.glob("*.xml")) for row in rows_of(figures["part"], read(xml))]
        rows += [part_row(figures, files), *files]
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", metavar="FOLDER", type=Path, default=KEPT)
    parser.add_argument("--against", metavar="FILE", type=Path)
    options = parser.parse_args(arguments)
    rows = collect(RESULTS)
    if not rows:
        print("There are no results: run `make test` first, or `make test-ci`.", file=sys.stderr)
        return 1
    options.keep.mkdir(parents=True, exist_ok=True)
    kept = sorted(options.keep.glob("*.json"))
    against = options.against or (kept[-1] if kept else None)
    earlier = json.loads(against.read_text()) if against else []
    guards = yaml.safe_load((ROOT / "tools" / "costs.yml").read_text())
    print(table(completed(rows, found(history()), guards, earlier)))
    if rows != earlier:
        name = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H%M%SZ.json")
        (options.keep / name).write_text(json.dumps(rows, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
