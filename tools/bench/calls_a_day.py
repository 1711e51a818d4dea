# SPDX-License-Identifier: Apache-2.0
"""Counts the calls to the cloud in a day of a cluster, with and without each feature.

`python tools/bench/calls_a_day.py` prints the table. The runtime is the real one, in the virtual time of
`tests/explore`: API server and cloud are in memory, and a day takes minutes. So only calls are counted, not time. The
cloud is the simulated one, whose pages have 100 instances.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import random
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parents[2])]

from ccm.engine.queue import QUEUES
from tests.explore.process import Process, in_process
from tests.explore.simulation import Outcome, Simulation
from tests.explore.virtual_time import VirtualLoop, virtual_time
from tests.explore.workloads import AUTOSCALER, Step, Workload

NODES, SERVICES, HOURS = 500, 100, 24
#: Seconds for a process to start, to lead and to look at everything once.
START = 600.0
HOUR = 3600.0
OFF = ("--load-balancer-drain-nodes=never", "--refresh-node-labels=missing")
#: A feature -> the flags with which it is on; all others are off.
FEATURES = {
    "none of them": OFF,
    "Nodes that leave drain (default)": ("--load-balancer-drain-nodes=leaving", OFF[1]),
    "cordoned Nodes drain, too": ("--load-balancer-drain-nodes=cordoned", OFF[1]),
    "dead machines are fenced": (*OFF, "--fence-dead-nodes"),
    "labels follow the machine": (OFF[0], "--refresh-node-labels=always"),
    "all of them": ("--load-balancer-drain-nodes=cordoned", "--refresh-node-labels=always", "--fence-dead-nodes"),
}


class Calls(NamedTuple):
    """The calls of one day by operation, those of the start, and what went wrong."""

    day: Counter[str]
    start: Counter[str]
    problems: Sequence[str]


def busy_hour(hour: int, nodes: int) -> list[Step]:
    """Return what happens in an hour: the autoscaler removes a Node, another one joins, a spot notice comes and is
    withdrawn, a machine is switched off and on, another one gets a label, and a Node is cordoned and uncordoned."""
    at = hour * HOUR
    gone, noticed, off, labelled = (f"n{1 + (part * nodes // 4 + hour) % nodes}" for part in range(4))
    cordoned = f"n{1 + (7 * nodes // 8 + hour) % nodes}"
    return [
        Step(at + 60, "taint", (gone, AUTOSCALER)),
        Step(at + 180, "drain", (gone,)),
        Step(at + 600, "join", (f"n{nodes + 1 + hour}", nodes + 1 + hour)),
        Step(at + 1200, "taint", (noticed, "karpenter.sh/disrupted")),
        Step(at + 1500, "taint", (noticed,)),
        Step(at + 1800, "power", (off, "stopped")),
        Step(at + 2100, "power", (off, "running")),
        Step(at + 2700, "tag", (labelled, str(hour))),
        Step(at + 3000, "cordon", (cordoned,)),
        Step(at + 3300, "uncordon", (cordoned,)),
    ]


class Day(Simulation):
    """A day without faults. `calls`: how many times each operation of the cloud was called."""

    def __init__(self, loop: VirtualLoop, workload: Workload, seconds: float) -> None:
        self.calls: Counter[str] = Counter()
        self.at_start: Counter[str] = Counter()
        self._seconds = seconds
        super().__init__(loop, workload, (), seed=0)

    def reach(self, what: str, process: Process) -> str:
        if what.startswith("cloud "):
            self.calls[what.removeprefix("cloud ")] += 1
        return ""

    async def run(self) -> Outcome:
        self.start_process()
        await asyncio.sleep(START)
        self.at_start, self.calls = self.calls, Counter()
        begun = self.loop.now
        for step in self._workload.steps:
            await asyncio.sleep(max(0.0, begun + step.at - self.loop.now))
            self.people.do(step.verb, *step.arguments)
        await asyncio.sleep(max(0.0, begun + self._seconds - self.loop.now))
        self.story = [f"{invariant}: {text}" for invariant, text in self.checks.problems()]
        day = self.calls
        await self._end()
        self.calls = day
        return self.outcome(self._seconds)


def measure(flags: Sequence[str], *, busy: bool, nodes: int, services: int, hours: float) -> Calls:
    """Count the calls in `hours`. The same arguments give the same numbers."""
    random.seed(0)
    QUEUES.clear()
    before: list[tuple[Any, ...]] = [("settled", f"n{each}", each) for each in range(1, nodes + 1)]
    before += [("create_service", f"web-{each}", 80) for each in range(services)]
    steps = [step for hour in range(int(hours)) for step in busy_hour(hour, nodes)] if busy else []
    workload = Workload("day", tuple(before), tuple(steps), arguments=tuple(flags))
    with virtual_time() as loop, in_process():
        day = Day(loop, workload, hours * HOUR)
        run = loop.create_task(day.run())
        try:
            found = loop.run_until_complete(run)
        finally:
            day.close(run)
    problems = [*found.story, *(f"{each.invariant}: {each.text}" for each in found.violations)]
    return Calls(day.calls, day.at_start, problems)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=NODES)
    parser.add_argument("--services", type=int, default=SERVICES)
    parser.add_argument("--hours", type=float, default=HOURS)
    given = parser.parse_args()
    logging.disable(logging.CRITICAL)
    print(f"calls to the cloud in {given.hours:g} h with {given.nodes} Nodes and {given.services} Services")
    print("\n| What is on | Quiet day | Busy day | of these, writes of load balancers |\n|---|---|---|---|")
    went_wrong = False
    for name, flags in FEATURES.items():
        quiet, busy = (
            measure(flags, busy=each, nodes=given.nodes, services=given.services, hours=given.hours)
            for each in (False, True)
        )
        gc.collect()
        writes = sum(
            count for what, count in busy.day.items() if what.startswith("load_balancers") and is_write(what)
        )
        print(f"| {name} | {quiet.day.total():,} | {busy.day.total():,} | {writes:,} |", flush=True)
        for problem in (*quiet.problems, *busy.problems):
            went_wrong = True
            print(f"  WRONG: {problem}", file=sys.stderr)
        for kind, day in (("quiet", quiet.day), ("busy", busy.day)):
            print(f"  {kind}: {dict(day.most_common())}", file=sys.stderr)
    return 1 if went_wrong else 0


def is_write(operation: str) -> bool:
    return not operation.endswith((".list", ".get"))


if __name__ == "__main__":
    sys.exit(main())
