# SPDX-License-Identifier: Apache-2.0
"""Makes one small mistake at a time in each module that only decides, and runs its tests to see whether they notice.

    python -m tools.mutation [PATTERN ...] [--most N] [--side-by-side N]

Prints each change that no test noticed, and the share of noticed changes for each file. Fails below the threshold.
Changes that make no difference are listed with the reason in `equivalent.yml`. In a run of all changes in all files, an
entry that matches nothing is an error, too."""

from __future__ import annotations

import argparse
import functools
import json
import os
import queue
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE
from typing import Any

import yaml

from .mutants import Mutant, mutants
from .targets import DRAWN, ROOT, Target, targets

#: The share of changes that must be noticed, in all files together and in each file.
THRESHOLD = 0.95
EQUIVALENT = Path(__file__).with_name("equivalent.yml")


@dataclass(frozen=True)
class Result:
    target: Target
    noticed: int
    survivors: tuple[Mutant, ...]
    problem: str = ""
    endless: int = 0
    seconds: float = 0  # of the processor

    @property
    def tried(self) -> int:
        return self.noticed + len(self.survivors)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.mutation", description="Would the tests notice a change?")
    parser.add_argument("patterns", nargs="*", metavar="PATTERN", help="only files whose path contains one of these")
    parser.add_argument("--most", type=int, default=0, metavar="N", help="at most N changes for each file")
    parser.add_argument("--side-by-side", type=int, default=2, metavar="N", help="how many files at a time (2)")
    arguments = parser.parse_args()
    known = equivalents()
    chosen = targets(*arguments.patterns)
    for pattern in arguments.patterns:
        if not any(pattern in each.name for each in chosen):
            parser.error(f"{pattern!r} matches no module that is mutated (pure modules, see tools/mutation/targets.py)")
    with Workers(arguments.side_by_side) as workers, ThreadPoolExecutor(arguments.side_by_side) as pool:
        results = list(pool.map(lambda target: _report(_try(target, known, arguments.most, workers.do)), chosen))
    stale = [] if arguments.patterns or arguments.most else [each for each in known if not is_found(each, chosen)]
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
    """Changes that make no difference. `change` ("BEFORE -> AFTER") in any line with the text `line`, in the whole file
    or only in `function`.
    """

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


class Workers:
    """Processes that have imported what all tests use. Each does one job at a time, in forks."""

    def __init__(self, number: int) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="mutation-", ignore_cleanup_errors=True)
        # Files that tests leave are removed with this folder.
        environment = {**os.environ, "TMPDIR": self._folder.name, "DRAWN_TEXTS": str(DRAWN)}
        command = [sys.executable, "-m", "tools.mutation.worker"]
        self._all = [
            subprocess.Popen(command, cwd=ROOT, env=environment, text=True, stdin=PIPE, stdout=PIPE)
            for _ in range(number)
        ]
        self._free: queue.SimpleQueue[subprocess.Popen[str]] = queue.SimpleQueue()
        for each in self._all:
            self._free.put(each)

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        for each in self._all:
            each.communicate()  # a worker ends with its input
        self._folder.cleanup()

    def do(self, job: dict[str, Any]) -> dict[str, Any]:
        """Let a free worker do a job, and return its answer. `worker` describes the form of both."""
        worker = self._free.get()
        assert worker.stdin is not None and worker.stdout is not None
        worker.stdin.write(json.dumps(job) + "\n")
        worker.stdin.flush()
        answer = worker.stdout.readline() or json.dumps({"outcomes": [], "why": "the worker ended early"})
        self._free.put(worker)
        found: dict[str, Any] = json.loads(answer)
        return found


def _try(target: Target, known: list[Equivalent], most: int, do: Callable[[dict[str, Any]], dict[str, Any]]) -> Result:
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
    answer = do(job)
    outcomes: list[str] = answer["outcomes"]
    if len(outcomes) != len(chosen) + 1:
        return Result(target, 0, (), answer["why"])
    survivors = tuple(each for each, outcome in zip(chosen, outcomes[1:], strict=True) if outcome == "survived")
    return Result(target, len(chosen) - len(survivors), survivors, "", outcomes.count("endless"), answer["seconds"])


def _report(result: Result) -> Result:
    for each in result.survivors:
        print(f"{result.target.name}:{each.line}: {each.change}\n    {each.text}")
    share = f"{result.noticed} of {result.tried}" if not result.problem else result.problem
    endless = f", {result.endless} by running out of time" if result.endless else ""
    taken = f", {result.seconds:.0f} s of the processor"
    print(f"{time.strftime('%H:%M:%S')} {result.target.name}: {share} noticed{endless}{taken}", flush=True)
    return result


if __name__ == "__main__":
    sys.exit(main())
