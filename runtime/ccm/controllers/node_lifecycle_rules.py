# SPDX-License-Identifier: Apache-2.0
"""When a Node may be deleted: pure decisions, no I/O.

Upstream deletes at the first "not found" of a NotReady Node, without grace, confirmation, cap or precondition. Here a
Node goes only when every rule below says so; otherwise it is held, and the reason is reported.
Whether the listing that lacks its instance can be believed is decided in `node_witness_rules`.
"""

from __future__ import annotations

import datetime
import enum
import json
import math
from collections import Counter
from dataclasses import dataclass, field

from .node_witness_rules import Doubt


class Verdict(enum.Enum):
    DELETE = "delete"
    #: Not yet, and nothing is unusual: it needs more confirmations or age, or it is not its turn.
    WAIT = "wait"
    #: Not by us as things stand; a person is told why.
    HOLD = "hold"


@dataclass(frozen=True)
class Safety:
    """The rules of deletion. Times in seconds.

    `min_age`: a younger Node is never deleted, since clouds list new instances late (kubernetes issue 58334).
    `confirmations`: fresh reads that must report the instance gone, at least `interval` apart.
    `cap_share`, `cap_min`: Nodes that may go within `window`: the larger of the share of all Nodes and the minimum.
    More missing Nodes wait for their turn. A share of 0 and a minimum of 0 turn deletion off.

    The defaults delete ten missing Nodes of a cluster of any size in at most five batches within 12 minutes, and a
    third of a large one as well. The first batch goes about 75 s after the machines: kube-controller-manager takes 50.
    """

    min_age: float = 300.0
    confirmations: int = 2
    interval: float = 5.0
    cap_share: float = 0.10
    cap_min: int = 2
    window: float = 180.0

    def cap(self, nodes: int) -> int:
        """How many of `nodes` may go within the window."""
        return max(self.cap_min, math.floor(nodes * self.cap_share + 1e-9))  # 100 * 0.29 is a little less than 29


@dataclass
class Missing:
    """What is known about an instance that was reported gone. Times are monotonic seconds.

    `refused`: how often the API server did not delete the Node.
    """

    uid: str
    provider_id: str
    confirmed: int = 0
    last_confirmed: float = -math.inf
    refused: int = 0

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
    """The deletions of the last `length` seconds, by the Nodes' UIDs: one that was sent twice is one."""

    length: float
    times: dict[str, float] = field(default_factory=dict)

    def add(self, uid: str, now: float) -> None:
        self.times[uid] = now

    def remove(self, uid: str) -> None:
        """It was not deleted after all."""
        self.times.pop(uid, None)

    def within(self, now: float) -> set[str]:
        """The UIDs of those that count."""
        self.times = {uid: time for uid, time in self.times.items() if now - time < self.length}
        return set(self.times)

    def frees(self, now: float) -> float:
        """Seconds until the first of those that count no longer does; 0 when there is none."""
        return max(0.0, min(self.times.values(), default=-math.inf) + self.length - now)

    def told(self, now: float, wall: datetime.datetime) -> str:
        """What the next leader has to know, as JSON: how many deletions at which second (RFC 3339, UTC).

        Seconds and not UIDs, so that it stays small however many Nodes go: it is kept in an annotation.
        """
        seconds = Counter(
            (wall - datetime.timedelta(seconds=now - time)).astimezone(datetime.UTC).strftime(_SECOND)
            for time in self.times.values()
            if now - time < self.length
        )
        return json.dumps(dict(sorted(seconds.items())), separators=(",", ":"))

    def recall(self, told: str, now: float, wall: datetime.datetime) -> None:
        """Add what a former leader told. A time in the future (clocks differ) counts as now; ValueError for a text
        that `told` does not write."""
        try:
            seconds = {_moment(text): int(count) for text, count in json.loads(told).items()}
        except (AttributeError, TypeError, ValueError) as error:
            raise ValueError(f"{told[:100]!r} does not tell deletions: {error}") from None
        for moment, count in seconds.items():
            ago = max(0.0, (wall - moment).total_seconds())
            if ago < self.length:
                self.times |= {f"{moment.isoformat()} {number}": now - ago for number in range(count)}


_SECOND = "%Y-%m-%dT%H:%M:%SZ"


def _moment(text: str) -> datetime.datetime:
    return datetime.datetime.strptime(text, _SECOND).replace(tzinfo=datetime.UTC)


def certain_age(by_creation: float, watched_for: float | None) -> float:
    """The age of a Node in seconds that can be relied upon.

    `by_creation`: by its creationTimestamp and our wall clock, either of which may be wrong or jump. `watched_for`: how
    long this process has known it, by the monotonic clock; None when it was there before this process watched.
    """
    return by_creation if watched_for is None else min(by_creation, watched_for)


def turn(missing: Missing, *, seen: bool, created: str | None, name: str) -> tuple[int, bool, str, str]:
    """Sorts missing Nodes by who goes first.

    A Node that the API server refused to delete lets others go first. Then come Nodes whose instances this process saw:
    whoever invents Nodes cannot be one of them. Then the oldest by `created` (creationTimestamp, which the API server
    sets), so that invented Nodes never overtake those that were there before.
    """
    return missing.refused, not seen, created or "", name


def decide(
    missing: Missing, *, age: float, doubt: Doubt | None, used: int, nodes: int, cap: int, safety: Safety
) -> Decision:
    """May this Node be deleted now?

    `age`: of the Node in seconds; `doubt`: what speaks against the listing that lacks its instance; `used`: other Nodes
    that were deleted within the window or go first; `cap`: how many of `nodes` may.
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
    if cap == 0:
        return Decision(
            Verdict.HOLD,
            "TurnedOff",
            "its instance is gone, but --node-deletion-cap=0 turns deletion off: delete the Node by hand",
        )
    if doubt:
        return Decision(Verdict.HOLD if doubt.lasting else Verdict.WAIT, "ListingDoubted", doubt.message)
    if used >= cap:
        return Decision(
            Verdict.WAIT,
            "RateLimited",
            f"{used} other Nodes were deleted or go first; at most {cap} of {nodes} Nodes are deleted within "
            f"{safety.window:.0f} s (--node-deletion-cap, --node-deletion-window)",
        )
    return Decision(Verdict.DELETE)
