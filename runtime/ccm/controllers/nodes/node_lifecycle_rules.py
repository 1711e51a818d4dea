# SPDX-License-Identifier: Apache-2.0
"""Decide when a Node may be deleted. No I/O.

Upstream deletes a NotReady Node at the first "not found", without grace period, confirmation, cap or precondition.
Here a Node is deleted only if every rule below allows it. Otherwise it is held and the reason is reported.
`node_witness_rules` decides whether a listing without the Node's instance is plausible.
"""

from __future__ import annotations

import datetime
import enum
import json
import math
from collections import Counter
from collections.abc import Callable

import msgspec

from ccm.engine.objects import Node

from .node_rules import is_uninitialized
from .node_witness_rules import Doubt


class Verdict(enum.Enum):
    DELETE = "delete"
    #: The Node is not deleted yet, and nothing is unusual: it needs more confirmations or must be older, a doubt about
    #: the listing may pass, it was just fenced, or other Nodes go first.
    WAIT = "wait"
    #: The Node is kept, and waiting does not help. An Event says what must change.
    HOLD = "hold"


class Safety(msgspec.Struct, frozen=True):
    """The limits for deleting and fencing Nodes. Times are in seconds.

    `min_age`: a younger Node is never deleted, because clouds list new instances late (kubernetes issue 58334).
    `confirmations`: fresh reads that must report the instance gone, at least `interval` apart.
    `cap_share`, `cap_min`: Nodes that may be deleted within `window`: the larger of the share of all Nodes and the
    minimum. Further missing Nodes wait. A share of 0 and a minimum of 0 turn deletion off.

    With the defaults, ten missing Nodes of a cluster of any size are deleted in at most five batches, the last of them
    at most 12 minutes after the first. The same holds for a third of a large cluster. The first batch follows about
    75 s after the machines are gone; for the first 50 s, kube-controller-manager still reports the Nodes as Ready.
    """

    min_age: float = 300.0
    confirmations: int = 2
    interval: float = 5.0
    cap_share: float = 0.10
    cap_min: int = 2
    window: float = 180.0

    def cap(self, nodes: int) -> int:
        """Return how many of `nodes` may be deleted within the window."""
        return max(self.cap_min, math.floor(nodes * self.cap_share + 1e-9))  # 100 * 0.29 is a little less than 29


class Missing(msgspec.Struct):
    """What is known about an instance that was reported gone (for fencing: shut down or gone). Times are monotonic
    seconds.

    `refused`: how many times the API server did not delete the Node.
    """

    uid: str
    provider_id: str
    confirmed: int = 0
    last_confirmed: float = -math.inf
    refused: int = 0

    def confirm(self, now: float, interval: float) -> None:
        """Count another "gone" answer, unless the last one that counted is less than `interval` old."""
        if now - self.last_confirmed >= interval:
            self.confirmed += 1
            self.last_confirmed = now


class Decision(msgspec.Struct, frozen=True):
    verdict: Verdict
    reason: str = ""
    message: str = ""


class Window(msgspec.Struct):
    """The deletions, or fences, of the last `length` seconds, by Node UID (for routes, by providerID). A deletion that
    is sent twice counts once."""

    length: float
    times: dict[str, float] = msgspec.field(default_factory=dict)

    def add(self, uid: str, now: float) -> None:
        self.times[uid] = now

    def remove(self, uid: str) -> None:
        """Remove a Node that was not deleted or fenced after all."""
        self.times.pop(uid, None)

    def within(self, now: float) -> set[str]:
        """Return the UIDs of the deletions that count."""
        self.times = {uid: time for uid, time in self.times.items() if now - time < self.length}
        return set(self.times)

    def frees(self, now: float) -> float:
        """Return the seconds until the oldest deletion stops counting; 0 if there is none."""
        return max(0.0, min(self.times.values(), default=-math.inf) + self.length - now)

    def record(self, now: float, wall: datetime.datetime) -> str:
        """Return what the next leader needs to know, as JSON: the number of deletions by second (RFC 3339, UTC).

        The record contains no UIDs, so that it fits into an annotation however many Nodes are deleted.
        """
        seconds = Counter(
            (wall - datetime.timedelta(seconds=now - time)).astimezone(datetime.UTC).strftime(_SECOND)
            for time in self.times.values()
            if now - time < self.length
        )
        return json.dumps(dict(sorted(seconds.items())), separators=(",", ":"))

    def recall(self, record: str, now: float, wall: datetime.datetime) -> None:
        """Add the deletions that a former leader recorded. A time in the future (clocks differ) counts as now.

        Raises ValueError for text that is not such a record.
        """
        try:
            seconds = {_moment(text): int(count) for text, count in json.loads(record).items()}
        except (AttributeError, TypeError, ValueError) as error:
            raise ValueError(f"{record[:100]!r} is not a record of deletions: {error}") from None
        for moment, count in seconds.items():
            ago = max(0.0, (wall - moment).total_seconds())
            if ago < self.length:
                self.times |= {f"{moment.isoformat()} {number}": now - ago for number in range(count)}


_SECOND = "%Y-%m-%dT%H:%M:%SZ"


def _moment(text: str) -> datetime.datetime:
    return datetime.datetime.strptime(text, _SECOND).replace(tzinfo=datetime.UTC)


def concerns_us(node: Node, owns: Callable[[str], bool]) -> bool:
    """Return whether a Node is checked while it is not Ready. Nodes in deletion or of another cloud are not.

    A Node without a providerID is checked only if it is initialised, to report why it is held. `owns`: whether a
    providerID belongs to this provider.
    """
    if node.metadata.deletion_timestamp:
        return False
    if not node.spec.provider_id:
        return not is_uninitialized(node)
    return owns(node.spec.provider_id)


def certain_age(by_creation: float, watched_for: float | None) -> float:
    """Return the smaller of a Node's two ages, in seconds.

    `by_creation`: from the creationTimestamp and our wall clock, either of which may be wrong or jump. `watched_for`:
    how long this process has known the Node, by the monotonic clock; None if it existed before this process watched,
    and then nothing limits `by_creation`.
    """
    return by_creation if watched_for is None else min(by_creation, watched_for)


def turn(missing: Missing, *, seen: bool, created: str | None, name: str) -> tuple[int, bool, str, str]:
    """Return the sort key of a missing Node: lower keys are deleted first.

    A Node that the API server refused to delete goes last. Nodes whose instances this process saw go first, because an
    attacker cannot invent such a Node. Among the rest, the oldest go first, by creationTimestamp (`created`). The API
    server sets it, so invented Nodes never overtake those that existed before.
    """
    return missing.refused, not seen, created or "", name


def decide(
    missing: Missing, *, age: float, doubt: Doubt | None, used: int, nodes: int, cap: int, safety: Safety
) -> Decision:
    """Decide whether this Node may be deleted now.

    `age`: the Node's age in seconds; `doubt`: why the listing without its instance is not trusted; `used`: how many
    other Nodes were deleted within the window or go first; `cap`: how many of `nodes` may be deleted.
    """
    if not missing.provider_id:
        return Decision(
            Verdict.HOLD,
            "NoProviderID",
            "no instance has this Node's name, but the Node never had a providerID, so its instance may still exist: "
            "delete the Node by hand if it is no longer needed",
        )
    if missing.confirmed < safety.confirmations:
        return Decision(
            Verdict.WAIT, "Unconfirmed", f"reported gone {missing.confirmed} of {safety.confirmations} times"
        )
    if age < safety.min_age:
        return Decision(
            Verdict.WAIT, "TooYoung", f"the Node is {age:.0f} s old; Nodes under {safety.min_age:.0f} s are kept"
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
