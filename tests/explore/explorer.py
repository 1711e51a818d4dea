# SPDX-License-Identifier: Apache-2.0
"""Makes runs with faults from a seed. Shortens a run that violates an invariant, and keeps the violation."""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from . import workloads
from .faults import Fault, Surprises, episode_of, kind_at
from .known import explain
from .simulation import Outcome, Simulation, simulate

#: How many faults one seed tries alone, and how many second faults together with each of them.
FIRST, SECOND = 5, 3

T = TypeVar("T")
Prepare = Callable[[Simulation], None]
#: Runs the trials that follow from a seed, and returns each with its outcome.
Sequences = Callable[[int, Callable[["Trial"], Outcome]], list[tuple["Trial", Outcome]]]


@dataclass(frozen=True)
class Trial:
    """Everything that a run depends on. `is_open`: whether unplanned faults (`faults.Surprises`) may hit the run."""

    workload: str
    timing: int
    faults: tuple[Fault, ...] = ()
    steps: tuple[int, ...] | None = None
    is_open: bool = False

    def run(self, prepare: Prepare | None = None) -> Outcome:
        found = workloads.find(self.workload)
        surprises = Surprises(self.timing) if self.is_open else None
        return simulate(found, self.faults, seed=self.timing, steps=self.steps, prepare=prepare, surprises=surprises)

    def as_lived(self, outcome: Outcome) -> Trial:
        """Return this trial with the faults that really hit it, for a replay."""
        return replace(self, faults=(*self.faults, *outcome.surprises), is_open=False)

    def plan(self) -> bytes:
        """Return a digest of the steps and the faults: the same for sequences that differ only in timing, or in the
        number of a generated workload."""
        workload = workloads.find(self.workload)
        text = f"{replace(workload, name='')} {self.steps} {self.faults}"
        return hashlib.blake2b(text.encode(), digest_size=8).digest()

    def plans(self, outcome: Outcome) -> Iterator[bytes]:
        """Yield a digest of each episode that the run reached: of its changes, and of the faults that hit it."""
        if outcome.episodes == 1:
            yield self.plan()
            return
        workload, reached = workloads.find(self.workload), set(outcome.points)
        begun = f"{workload.before} {workload.processes}"
        for episode in range(outcome.episodes):
            steps = [(step.at, step.verb, step.arguments) for step in self._steps(workload) if step.episode == episode]
            hit = [str(fault).replace(f"@{episode}=", "=") for fault in self.hits(episode) if fault.point in reached]
            yield hashlib.blake2b(f"{begun} {steps} {hit}".encode(), digest_size=8).digest()

    def hits(self, episode: int) -> tuple[Fault, ...]:
        return tuple(fault for fault in self.faults if episode_of(fault.point) == episode)

    def since(self, episode: int) -> Trial:
        """Return this trial without the episodes before `episode`."""
        steps = workloads.find(self.workload).steps
        numbers = tuple(number for number, step in enumerate(steps) if step.episode >= episode)
        later = tuple(fault for fault in self.faults if episode_of(fault.point) >= episode)
        return replace(self, faults=later, steps=numbers)

    def _steps(self, workload: workloads.Workload) -> list[workloads.Step]:
        return [step for number, step in enumerate(workload.steps) if self.steps is None or number in self.steps]

    def __str__(self) -> str:
        """Return the text that REPLAY takes."""
        parts = [f"{self.workload}@{self.timing}"]
        if self.steps is not None:
            parts.append("steps=" + ",".join(map(str, self.steps)))
        return "; ".join([*parts, *map(str, self.faults)])

    @classmethod
    def parse(cls, text: str) -> Trial:
        head, *rest = [part.strip() for part in text.split(";") if part.strip()]
        name, _, timing = head.partition("@")
        steps = None
        if rest and rest[0].startswith("steps="):
            steps = tuple(int(each) for each in rest.pop(0).removeprefix("steps=").split(",") if each)
        return cls(name, int(timing or 0), tuple(map(Fault.parse, rest)), steps)


@dataclass
class Finding:
    """A violation. `known`: why it is expected today, "" if it is new. `sequence`: the shortest one that was found, or
    any one of a known violation."""

    seed: int
    sequence: Trial
    outcome: Outcome
    known: str = ""


@dataclass
class Report:
    sequences: int = 0
    #: Digests of the sequences without their timing: workload, what happens in it, and faults.
    plans: set[bytes] = field(default_factory=set)
    requests: int = 0
    #: Seconds of CPU, including those for shortening findings.
    cpu: float = 0.0
    #: Faults in the sequences that were run, by kind.
    kinds: dict[str, int] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)


def pick(chance: random.Random, points: Sequence[str]) -> Fault:
    """Choose a fault: first a kind of request, then a request of it, then a fault. Otherwise, almost all faults would
    hit frequent requests, and requests with many kinds of faults."""
    names = sorted({point.partition("#")[0] for point in points})
    name = chance.choice(names)
    point = chance.choice([each for each in points if each.partition("#")[0] == name])
    return Fault(point, kind_at(chance, point))


def sequences_of(seed: int, outcome_of: Callable[[Trial], Outcome]) -> list[tuple[Trial, Outcome]]:
    """Return the sequences of one seed as they were run, with no, one and two faults. No two seeds share a sequence."""
    chance = random.Random(seed)
    known = workloads.WORKLOADS.values()
    usual = [each.name for each in known if each.seldom == 1]
    seldom = {each.seldom: each.name for each in known if each.seldom > 1 and seed % each.seldom == each.seldom - 1}
    made = [*[f"churn-{seed}"] * 3, f"mistakes-{seed}", f"fencing-{seed}"]
    workload = seldom[max(seldom)] if seldom else chance.choice([*usual, *made])
    if workload == workloads.TWO_CLOUDS.name and seed % 2:
        workload = f"clouds-{seed}"
    elif workload == workloads.TWO_CLOUDS.name and seed % 4 == 0:
        workload = f"namesakes-{seed}"
    return _with_faults(workload, seed, chance, outcome_of)


def deaths_of(seed: int, outcome_of: Callable[[Trial], Outcome]) -> list[tuple[Trial, Outcome]]:
    """Return the sequences of `deaths-SEED` as they were run, with no, one and two faults."""
    return _with_faults(f"deaths-{seed}", seed, random.Random(f"faults of deaths {seed}"), outcome_of)


def _with_faults(
    workload: str, seed: int, chance: random.Random, outcome_of: Callable[[Trial], Outcome]
) -> list[tuple[Trial, Outcome]]:
    plain = Trial(workload, seed)
    outcome = outcome_of(plain)
    done = [(plain, outcome)]
    if outcome.violations:
        return done
    firsts = {pick(chance, outcome.points): None for _ in range(FIRST)}
    for first in firsts:
        one = Trial(workload, seed, (first,))
        result = outcome_of(one)
        done.append((one, result))
        if result.violations or first.point not in result.points:
            continue
        later = result.points[result.points.index(first.point) + 1 :]
        for second in {pick(chance, later): None for _ in range(SECOND if later else 0)}:
            two = Trial(workload, seed, (first, second))
            done.append((two, outcome_of(two)))
    return done


def chains_of(seed: int, outcome_of: Callable[[Trial], Outcome]) -> list[tuple[Trial, Outcome]]:
    """Return the chain of one seed as it was run: each episode is a sequence with no, one or two faults."""
    chain = Trial(f"chain-{seed}", seed, is_open=True)
    outcome = outcome_of(chain)
    return [(chain.as_lived(outcome), outcome)]


def shrink(sequence: Trial, invariants: set[str], prepare: Prepare | None = None) -> tuple[Trial, Outcome]:
    """Return the shortest sequence found that violates one of these invariants, and its outcome. Try fewer faults
    first, then fewer steps."""
    best, outcome = sequence, sequence.run(prepare)

    def attempt(candidate: Trial) -> bool:
        nonlocal best, outcome
        result = candidate.run(prepare)
        if result.invariants & invariants:
            best, outcome = candidate, result
            return True
        return False

    thinned(sequence.faults, lambda fewer: attempt(replace(best, faults=fewer)))
    number = len(workloads.find(sequence.workload).steps)
    steps = best.steps if best.steps is not None else tuple(range(number))
    if not attempt(replace(best, steps=())):
        thinned(steps, lambda fewer: attempt(replace(best, steps=fewer)))
    return best, outcome


def thinned(items: tuple[T, ...], is_enough: Callable[[tuple[T, ...]], bool]) -> tuple[T, ...]:
    """Return the items that `is_enough` needs. Try without halves first, then without ever smaller parts."""
    size = (len(items) + 1) // 2
    while size:
        for start in reversed(range(0, len(items), size)):
            fewer = items[:start] + items[start + size :]
            if is_enough(fewer):
                items = fewer
        size = (size + 1) // 2 if size > 1 else 0
    return items


def explore(seed: int, prepare: Prepare | None = None, sequences: Sequences = sequences_of) -> Report:
    """Run the sequences of one seed, or its chain. Compare those that go wrong with known mistakes, and shorten them if
    necessary."""
    report, started = Report(), time.process_time()

    def outcome_of(sequence: Trial) -> Outcome:
        outcome = sequence.run(prepare)
        sequence = sequence.as_lived(outcome)
        report.sequences += outcome.episodes
        report.plans.update(sequence.plans(outcome))
        report.requests += outcome.requests
        for fault in sequence.faults:
            report.kinds[fault.kind] = report.kinds.get(fault.kind, 0) + 1
        return outcome

    for sequence, outcome in sequences(seed, outcome_of):
        if outcome.violations:
            report.findings.append(judge(seed, sequence, outcome, prepare))
    report.cpu = time.process_time() - started
    return report


def judge(seed: int, trial: Trial, outcome: Outcome, prepare: Prepare | None = None) -> Finding:
    """Return the finding of a violation. Of a chain, keep only the last episodes if they show it, too. Then shorten the
    trial, unless a known mistake explains the violation by one fault or, in a chain, by the newest faults."""
    for number in (1, 2, 4, 8) if outcome.episodes > 1 else ():
        latest = trial.since(outcome.episodes - number)
        result = latest.run(prepare)
        if result.invariants & outcome.invariants:
            trial, outcome = latest, result
            break
    # Old episodes of a chain rarely explain a violation, and shortening a whole chain takes long.
    recent = tuple(fault for fault in trial.faults if episode_of(fault.point) >= outcome.episodes - 2)
    if known := explain(trial.faults, outcome.violations):
        if len(trial.faults) < 2 or (outcome.episodes > 1 and explain(recent, outcome.violations)):
            return Finding(seed, trial, outcome, known)
        alone = replace(trial, faults=trial.faults[-1:])  # the first fault by itself did no harm
        result = alone.run(prepare)
        if result.violations and (known := explain(alone.faults, result.violations)):
            return Finding(seed, alone, result, known)
    short, result = shrink(trial, outcome.invariants, prepare)
    return Finding(seed, short, result, explain(short.faults, result.violations))


__all__ = ["Finding", "Report", "Trial", "chains_of", "deaths_of", "explore", "sequences_of", "shrink"]
