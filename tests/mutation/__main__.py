# SPDX-License-Identifier: Apache-2.0
"""Would the tests notice? Change one operator at a time in every module that only decides, and run its tests.

    python -m tests.mutation [PATTERN] [--most N] [--side-by-side N]

Prints each change that no test noticed, and the share of noticed ones for each file. Fails below the threshold. Changes
that make no difference are listed with the reason in `equivalent.yml`; an entry that matches nothing is an error, too.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import yaml

from .mutants import Mutant, mutants
from .targets import ROOT, Target, targets

#: Of the changes in all files together, and of those in each file, so many must be noticed.
THRESHOLD = 0.95
EQUIVALENT = Path(__file__).with_name("equivalent.yml")


@dataclass(frozen=True)
class Result:
    target: Target
    noticed: int
    survivors: tuple[Mutant, ...]
    problem: str = ""

    @property
    def tried(self) -> int:
        return self.noticed + len(self.survivors)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description="Would the tests notice a change?")
    parser.add_argument("pattern", nargs="?", default="", help="only files whose path contains this")
    parser.add_argument("--most", type=int, default=0, metavar="N", help="at most N changes for each file")
    parser.add_argument("--side-by-side", type=int, default=2, metavar="N", help="how many files at a time (2)")
    arguments = parser.parse_args()
    known = equivalents()
    chosen = targets(arguments.pattern)
    if not chosen:
        parser.error(f"no file that only decides has {arguments.pattern!r} in its path")
    with ThreadPoolExecutor(arguments.side_by_side) as pool:
        results = list(pool.map(lambda target: _report(_try(target, known, arguments.most)), chosen))
    stale = [] if arguments.pattern or arguments.most else sorted(set(known) - _found(chosen))
    for name, text, change in stale:
        print(f"equivalent.yml: {name}: {change!r} in {text!r} is no change that can be made any more")
    tried, noticed = sum(each.tried for each in results), sum(each.noticed for each in results)
    print(f"{noticed} of {tried} changes noticed ({noticed / max(1, tried):.1%})")
    weak = [each for each in results if each.problem or each.noticed < THRESHOLD * each.tried]
    for each in weak:
        print(f"{each.target.name}: {each.problem or f'fewer than {THRESHOLD:.0%} noticed'}", file=sys.stderr)
    return 1 if weak or stale else 0


def equivalents() -> dict[tuple[str, str, str], str]:
    """(file, line, change) -> why it makes no difference."""
    found = {}
    for name, entries in (yaml.safe_load(EQUIVALENT.read_text()) or {}).items():
        for entry in entries:
            found[name, entry["line"], entry["change"]] = entry["why"]
    return found


def _found(chosen: list[Target]) -> set[tuple[str, str, str]]:
    return {(each.name, one.text, one.change) for each in chosen for one in mutants(each.path.read_text())}


def _try(target: Target, known: dict[tuple[str, str, str], str], most: int) -> Result:
    source = target.path.read_text()
    chosen = [each for each in mutants(source) if (target.name, each.text, each.change) not in known]
    if most and len(chosen) > most:
        chosen = random.Random(target.name).sample(chosen, most)
    if not target.tests:
        return Result(target, 0, tuple(chosen), "no test has it")
    job = {
        "module": target.module,
        "path": str(target.path),
        "tests": [str(path) for path in target.tests],
        "sources": [source, *(each.source for each in chosen)],
    }
    command = [sys.executable, "-m", "tests.mutation.worker"]
    with tempfile.TemporaryDirectory(prefix="mutation-", ignore_cleanup_errors=True) as folder:
        environment = {**os.environ, "TMPDIR": folder}  # what tests leave behind goes with it
        done = subprocess.run(
            command, cwd=ROOT, input=json.dumps(job), capture_output=True, text=True, check=False, env=environment
        )
    outcomes = done.stdout.split()
    if len(outcomes) != len(chosen) + 1:
        why = "its tests fail without any change" if outcomes == ["noticed"] else done.stderr.strip()[-500:]
        return Result(target, 0, (), why or "the worker ended early")
    survivors = tuple(each for each, outcome in zip(chosen, outcomes[1:], strict=True) if outcome == "survived")
    return Result(target, len(chosen) - len(survivors), survivors)


def _report(result: Result) -> Result:
    for each in result.survivors:
        print(f"{result.target.name}:{each.line}: {each.change}\n    {each.text}")
    share = f"{result.noticed} of {result.tried}" if not result.problem else result.problem
    print(f"{time.strftime('%H:%M:%S')} {result.target.name}: {share} noticed", flush=True)
    return result


if __name__ == "__main__":
    sys.exit(main())
