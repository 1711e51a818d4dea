# SPDX-License-Identifier: Apache-2.0
"""`make explore`: python -m tests.explore [OPTIONS]. README.md explains the options."""

from __future__ import annotations

import argparse
import gc
import itertools
import logging
import multiprocessing
import os
import sys
import time
from collections import Counter, defaultdict

from .explorer import Finding, Report, Trial, chains_of, deaths_of, explore, sequences_of

#: The number of seeds after which a worker starts the garbage collector.
COLLECT = 3
#: Option -> the function that runs and returns the sequences of one of its seeds.
KINDS = {"seeds": sequences_of, "chains": chains_of, "deaths": deaths_of}
_runs = itertools.count(1)


def seeds_of(text: str) -> list[int]:
    """Return the seeds in a text such as `7`, `0-999`, or `7,10-20`."""
    found: list[int] = []
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def _explore(of: tuple[str, int]) -> Report:
    kind, seed = of
    report = explore(seed, sequences=KINDS[kind])
    for finding in report.findings:
        finding.outcome.points.clear()  # long, and no longer needed
        finding.outcome.trace.clear()
    if next(_runs) % COLLECT == 0:
        gc.collect()
    return report


def _begin() -> None:
    logging.disable(logging.CRITICAL)
    gc.disable()  # each run leaves many small cycles: they are collected now and then
    gc.collect()
    gc.freeze()  # imported modules stay


def show(finding: Finding, *, story: bool) -> None:
    print(f"\n{'KNOWN' if finding.known else 'NEW'} (seed {finding.seed}) {finding.known}")
    for violation in finding.outcome.violations[:5]:
        print(f"  {violation.invariant}: {violation.text}")
    if story:
        print("\n".join(f"    {line}" for line in finding.outcome.story[-40:]))
    print(f"  replay: make explore REPLAY='{finding.sequence}'")


def main() -> int:
    parser = argparse.ArgumentParser(prog="make explore")
    parser.add_argument("--seeds", default="0-499", help="SEEDS: 7, 0-999, or several with commas between")
    parser.add_argument("--chains", default="", help="CHAINS: seeds whose sequences follow each other in one cluster")
    parser.add_argument("--deaths", default="", help="DEATHS: seeds of machines that die while the cloud is wrong")
    parser.add_argument("--replay", default="", help="REPLAY: one sequence, as a finding names it")
    parser.add_argument(
        "--seconds", type=float, default=0.0, help="stop after so many seconds; 0: when all seeds are done"
    )
    parser.add_argument("--least", type=int, default=0, help="fail with fewer different workloads and fault plans")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":  # otherwise the order of sets differs in each process
        command = [sys.executable, "-m", "tests.explore", *sys.argv[1:]]
        os.execve(sys.executable, command, os.environ | {"PYTHONHASHSEED": "0"})
    if given.replay:
        return replay(given.replay)
    seeds = [(kind, seed) for kind in KINDS for seed in seeds_of(getattr(given, kind))]
    started = time.monotonic()
    total, kinds = Report(), Counter[str]()
    known: dict[str, list[Finding]] = defaultdict(list)
    with multiprocessing.Pool(given.jobs, _begin) as pool:
        for number, report in enumerate(pool.imap_unordered(_explore, seeds, chunksize=2), 1):
            total.sequences += report.sequences
            total.plans |= report.plans
            total.requests += report.requests
            total.cpu += report.cpu
            kinds.update(report.kinds)
            for finding in report.findings:
                if finding.known:
                    known[finding.known].append(finding)
                else:
                    total.findings.append(finding)
                    show(finding, story=True)
            if number % 200 == 0:
                print(f"{number} of {len(seeds)} seeds", flush=True)
            if given.seconds and time.monotonic() - started > given.seconds:
                print(f"stopped after {number} of {len(seeds)} seeds: {given.seconds:g} s are over")
                pool.terminate()
                break
    for found in known.values():
        show(min(found, key=lambda each: (len(each.sequence.faults), len(str(each.sequence)))), story=False)
        print(f"  ({len(found)} sequences)")
    seconds = time.monotonic() - started
    print(
        f"\n{total.sequences} sequences, {len(total.plans)} of them with different workloads or fault plans, "
        f"with {total.requests} reads and writes in {seconds:.0f} s: "
        f"{total.sequences / seconds:.1f} a second, {1000 * total.cpu / max(1, total.sequences):.0f} ms of CPU each"
    )
    print("faults: " + ", ".join(f"{kind} {count}" for kind, count in kinds.most_common()))
    print(f"{len(total.findings)} new, {sum(map(len, known.values()))} known")
    if len(total.plans) < given.least:
        print(f"too few: at least {given.least} different ones were asked for")
        return 1
    return 1 if total.findings else 0


def replay(text: str) -> int:
    """Run one sequence and print what happens."""
    _begin()
    outcome = Trial.parse(text).run()
    print("\n".join(outcome.story))
    for violation in outcome.violations:
        print(f"{violation.invariant}: {violation.text}")
    print(f"{len(outcome.points)} reads and writes, {outcome.seconds:.0f} s of virtual time, digest {outcome.digest}")
    return 1 if outcome.violations else 0


if __name__ == "__main__":
    sys.exit(main())
