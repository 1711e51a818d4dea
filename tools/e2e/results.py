# SPDX-License-Identifier: Apache-2.0
"""Results of specs: reads the lines of the file that the program of the specs writes (--results), and makes a table of
them. Pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

#: Ginkgo's other states are failures: failed, timedout, panicked, aborted ...
PASSED, SKIPPED = "passed", "skipped"
_LABEL = re.compile(r" ?\[[A-Za-z0-9-]+(:[A-Za-z0-9-]+)?\]")
_LONGEST_REASON = 200


@dataclass(frozen=True)
class Result:
    """The result of a spec. `reason`: why it was skipped, or what failed. `requests`: how many requests the spec
    counted; `lost`: how many of them failed. Most specs count none."""

    name: str
    state: str
    seconds: float
    reason: str = ""
    requests: int = 0
    lost: int = 0

    @property
    def title(self) -> str:
        """Return the name without its labels."""
        return _LABEL.sub("", self.name).strip()


def read(lines: Iterable[str]) -> list[Result]:
    """Read a result from each line; blank lines are skipped. Raises ValueError or TypeError for any other line."""
    return [Result(**json.loads(line)) for line in lines if line.strip()]


def table(results: Sequence[Result]) -> str:
    """Return a line for each spec, with its reason below, and a summary."""
    lines = []
    for each in results:
        lines.append(f"{each.state:<8} {each.seconds:6.1f} s  {each.title}")
        if each.requests:
            lines.append(f"{'':19}{each.lost} of {each.requests:,} requests lost")
        if each.reason:
            lines.append(f"{'':19}{' '.join(each.reason.split())[:_LONGEST_REASON]}")
    return "\n".join([*lines, summary(results)])


def summary(results: Sequence[Result]) -> str:
    passed, skipped = (sum(each.state == state for each in results) for state in (PASSED, SKIPPED))
    return f"{passed} of {len(results)} specs passed, {skipped} skipped, {len(failures(results))} failed"


def failures(results: Sequence[Result]) -> list[Result]:
    return [each for each in results if each.state not in (PASSED, SKIPPED)]


def is_success(results: Sequence[Result], may_skip: bool = False) -> bool:
    """Return whether at least one spec passed, and none failed or was skipped. With `may_skip`, specs may skip
    themselves, which they do if the cloud cannot do what they need."""
    allowed = {PASSED, SKIPPED} if may_skip else {PASSED}
    return any(each.state == PASSED for each in results) and all(each.state in allowed for each in results)
