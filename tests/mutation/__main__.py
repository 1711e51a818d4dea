# SPDX-License-Identifier: Apache-2.0
"""Would the tests notice? Change one operator at a time in every module that only decides, and run its tests.

    python -m tests.mutation [PATTERN] [--most N] [--side-by-side N]

Prints each change that no test noticed, and the share of noticed ones for each file. Fails below the threshold. Changes
that make no difference are listed with the reason in `equivalent.yml`; an entry that matches nothing is an error, too.
"""

from __future__ import annotations

import argparse
import functools
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
    endless: int = 0

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
    stale = [] if arguments.pattern or arguments.most else [each for each in known if not is_found(each, chosen)]
    for each in stale:
        where = f"{each.file}: {each.function}" if each.function else each.file
        print(f"equivalent.yml: {where}: {each.change!r} in {each.line!r} is no change that can be made any more")
    tried, noticed = sum(each.tried for each in results), sum(each.noticed for each in results)
    print(f"{noticed} of {tried} changes noticed ({noticed / max(1, tried):.1%})")
    weak = [each for each in results if each.problem or each.noticed < THRESHOLD * each.tried]
    for each in weak:
        print(f"{each.target.name}: {each.problem or f'fewer than {THRESHOLD:.0%} noticed'}", file=sys.stderr)
    return 1 if weak or stale else 0


@dataclass(frozen=True)
class Equivalent:
    """Makes no difference in any line with this text of a file, or of one function of it."""

    file: str
    line: str
    change: str
    function: str = ""

    def is_it(self, target: Target, mutant: Mutant) -> bool:
        found = (target.name, mutant.text, mutant.change)
        return found == (self.file, self.line, self.change) and self.function in ("", mutant.function)


def equivalents() -> list[Equivalent]:
    found = yaml.safe_load(EQUIVALENT.read_text()) or {}
    return [
        Equivalent(name, each["line"], each["change"], each.get("in", ""))
        for name, all_ in found.items()
        for each in all_
    ]


def is_found(known: Equivalent, chosen: list[Target]) -> bool:
    near = (each for each in chosen if each.name == known.file)
    return any(known.is_it(target, one) for target in near for one in _all_changes(target.path))


@functools.cache
def _all_changes(path: Path) -> list[Mutant]:
    return mutants(path.read_text())


def _try(target: Target, known: list[Equivalent], most: int) -> Result:
    source = target.path.read_text()
    chosen = [each for each in mutants(source) if not any(one.is_it(target, each) for one in known)]
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
    return Result(target, len(chosen) - len(survivors), survivors, endless=outcomes.count("endless"))


def _report(result: Result) -> Result:
    for each in result.survivors:
        print(f"{result.target.name}:{each.line}: {each.change}\n    {each.text}")
    share = f"{result.noticed} of {result.tried}" if not result.problem else result.problem
    endless = f", {result.endless} by running out of time" if result.endless else ""
    print(f"{time.strftime('%H:%M:%S')} {result.target.name}: {share} noticed{endless}", flush=True)
    return result


if __name__ == "__main__":
    sys.exit(main())
