# SPDX-License-Identifier: Apache-2.0
"""Decides whether a measured value grows. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass

#: The first part of a run, which is not judged because caches fill.
WARM_UP = 0.3


@dataclass(frozen=True)
class Verdict:
    """The verdict on a value. `growth`: its rise from the end of the warm-up to the end of the run, by least
    squares."""

    name: str
    first: float
    last: float
    most: float
    growth: float
    tolerance: float

    @property
    def flat(self) -> bool:
        return self.growth <= self.tolerance

    def as_json(self) -> dict[str, object]:
        return {**asdict(self), "flat": self.flat}


def judge(name: str, samples: Sequence[tuple[float, float]], tolerance: float) -> Verdict:
    """Judge a value. `samples`: (round or seconds, value) in order. Raises ValueError for fewer than ten after the
    warm-up."""
    end = samples[-1][0]
    kept = [(when, value) for when, value in samples if when >= end * WARM_UP]
    if len(kept) < 10:
        raise ValueError(f"{name}: {len(kept)} samples after the warm-up are too few to judge")
    times, values = [when for when, _ in kept], [value for _, value in kept]
    slope = statistics.linear_regression(times, values).slope
    tenth = max(1, len(values) // 10)
    return Verdict(
        name,
        first=statistics.median(values[:tenth]),
        last=statistics.median(values[-tenth:]),
        most=max(value for _, value in samples),
        growth=slope * (times[-1] - times[0]),
        tolerance=tolerance,
    )


def table(verdicts: Sequence[Verdict]) -> str:
    """Return the verdicts as a table for people."""
    lines = [f"{'':44}{'first':>9}{'last':>9}{'most':>9}{'growth':>9}{'allowed':>9}"]
    for one in verdicts:
        figures = "".join(f"{value:9.1f}" for value in (one.first, one.last, one.most, one.growth, one.tolerance))
        lines.append(f"{one.name:44}{figures}  {'flat' if one.flat else 'GROWS'}")
    return "\n".join(lines)
