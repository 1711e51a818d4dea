# SPDX-License-Identifier: Apache-2.0
"""When a Node may be deleted: pure decisions, no I/O.

Upstream deletes at the first "not found" of a NotReady Node, without grace, confirmation, cap or precondition
(reference W4, W5). Here a Node goes only when every rule below says so; otherwise it is held, and the reason is told.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, field


class Verdict(enum.Enum):
    DELETE = "delete"
    #: Not yet, and nothing is unusual: more confirmations or age are needed.
    WAIT = "wait"
    #: Not by us as things stand; a person is told why.
    HOLD = "hold"


@dataclass(frozen=True)
class Safety:
    """The rules of deletion. Times in seconds.

    `min_age`: a younger Node is never deleted, since clouds list new instances late (kubernetes issue 58334).
    `confirmations`: fresh reads that must report the instance gone, at least `interval` apart.
    `cap_share`, `cap_min`: Nodes that may go within `window`: the larger of the share of all Nodes and the minimum.
    When more are missing than that, something else is wrong and none goes.
    """

    min_age: float = 300.0
    confirmations: int = 2
    interval: float = 5.0
    cap_share: float = 0.10
    cap_min: int = 2
    window: float = 600.0

    def cap(self, nodes: int) -> int:
        """How many of `nodes` may go within the window."""
        return max(self.cap_min, math.floor(nodes * self.cap_share + 1e-9))  # 100 * 0.29 is a little less than 29


@dataclass
class Missing:
    """What is known about an instance that was reported gone. Times are monotonic seconds."""

    uid: str
    provider_id: str
    confirmed: int = 0
    last_confirmed: float = -math.inf

    def confirm(self, now: float, interval: float) -> None:
        """Another read said "gone"; counts only when the last one that counted is `interval` past."""
        if now - self.last_confirmed >= interval:
            self.confirmed += 1
            self.last_confirmed = now


@dataclass(frozen=True)
class Decision:
    verdict: Verdict
    reason: str = ""
    message: str = ""


@dataclass
class Window:
    """The deletions of the last `length` seconds."""

    length: float
    times: list[float] = field(default_factory=list)

    def count(self, now: float) -> int:
        self.times = [time for time in self.times if now - time < self.length]
        return len(self.times)


def decide(missing: Missing, *, age: float, candidates: int, recently: int, nodes: int, safety: Safety) -> Decision:
    """May this Node be deleted now?

    `age`: of the Node in seconds; `candidates`: Nodes that are missing at this moment, this one included; `recently`:
    deletions within the window; `nodes`: all Nodes of ours, those deleted recently not counted.
    """
    if not missing.provider_id:
        return Decision(
            Verdict.HOLD,
            "NoProviderID",
            "no instance has this Node's name, but it never had a providerID, so it cannot be said to be gone: "
            "delete the Node by hand if it should go",
        )
    if missing.confirmed < safety.confirmations:
        return Decision(
            Verdict.WAIT, "Unconfirmed", f"reported gone {missing.confirmed} of {safety.confirmations} times"
        )
    if age < safety.min_age:
        return Decision(
            Verdict.WAIT, "TooYoung", f"the Node is {age:.0f} s old; Nodes under {safety.min_age:.0f} s stay"
        )
    cap = safety.cap(nodes + recently)
    if candidates + recently > cap:
        return Decision(
            Verdict.HOLD,
            "TooManyMissing",
            f"the cloud reports the instances of {candidates} Nodes gone and {recently} went within the last "
            f"{safety.window:.0f} s; at most {cap} of {nodes + recently} may (--node-deletion-cap), so none goes. "
            "If they are really gone, delete the Nodes by hand",
        )
    return Decision(Verdict.DELETE)
