# SPDX-License-Identifier: Apache-2.0
"""Decides when calls of a group are not made because the cloud fails.

The question is whose failure it is. Five objects that fail in a row, or five failures of calls about no object (a
listing), are an outage. One object that fails five times is not. Nor are the objects of one namespace alone: what they
have in common may be a mistake of their owner, so they are held back, and nobody else is.

While calls are held back, one at a time probes whether the cloud works again, after pauses that double. An object that
has not failed need not wait for the end of a pause: what it gets to know is new. In an outage nothing is, so after
two such probes have failed, those wait, too. They count as probes: the cloud gets no more calls because of them.

The more objects wait, the more seldom each of them asks, and the end of the outage calls all of them: hundreds of
Services cost next to nothing meanwhile. Objects that had failed before are not called: that may be their own fault.
"""

from __future__ import annotations

import enum
from collections import Counter, OrderedDict
from typing import NamedTuple

from ccm.base.rounds import namespace_of
from ccm.cloud.errors import CloudError, Transient

#: How many failing objects, or failed calls about no object, open the breaker of a group: its calls are held back.
BREAKER_THRESHOLD = 5
#: First and longest time for which calls are held back, in seconds; each failed probe doubles it.
BREAKER_FIRST, BREAKER_MAX = 1.0, 30.0
#: How many early probes may fail: probes before the end of a pause, for objects of a namespace without failures.
EARLY_PROBES = 2
#: A failing object waits this many times as long as other objects, which therefore come first.
AFTER_OTHERS = 1.25
#: All waiting objects together try this many calls a second, unless one of them would wait longer than `WAIT_MAX`
#: seconds.
ASKED, WAIT_MAX = 4.0, 120.0
#: How many failing objects are remembered.
REMEMBERED_FAILURES = 1000
#: How many waiting objects are woken at the end of an outage; others return by themselves, within `WAIT_MAX`.
REMEMBERED_WAITING = 20_000


class Subject(NamedTuple):
    """The object of a call. `owner`: its namespace; an object of the cluster is its own owner."""

    key: str
    owner: str

    @classmethod
    def of(cls, key: str) -> Subject:
        return cls(key, namespace_of(key) or key)


class HeldBack(Transient):
    """The call was not made. The object's turn comes at the latest after `retry_after`, or when the outage ends."""


class Pass(enum.Enum):
    """How a call may be made. `PROBE`: a pause is over. `EARLY`: before that, for an object that has not failed."""

    FREE = enum.auto()
    PROBE = enum.auto()
    EARLY = enum.auto()


class Breaker:
    """Of one group. `failures`: in a row, for people. `open_until`: the end of the pause. Times are monotonic.
    `shown_open`: whether the metric says that it is open."""

    def __init__(self, group: str) -> None:
        self.group = group
        self.failures = 0
        self.open_until = 0.0
        self.last_error = ""
        self.shown_open = False
        self._held = 0.0
        self._opened_at = 0.0
        self._probes: set[Pass] = set()
        self._early_failures = 0
        # Since the last success: the objects that failed, and how many calls about no object did.
        self._evidence: set[str] = set()
        self._accused: set[str] = set()  # their owners
        self._unattributed = 0
        # Until the end of the outage: objects that were held back before they failed.
        self._waiting: dict[str, None] = {}
        # Objects that have not succeeded since they failed, with their owners: a success of another one says nothing.
        self._failing: OrderedDict[str, str] = OrderedDict()
        self._owners: Counter[str] = Counter()

    @property
    def is_open(self) -> bool:
        """Whether calls of somebody are held back."""
        return len(self._evidence) + self._unattributed >= BREAKER_THRESHOLD

    @property
    def is_open_for_all(self) -> bool:
        return self.is_open and self._sole_owner is None

    @property
    def _sole_owner(self) -> str | None:
        return next(iter(self._accused)) if len(self._accused) == 1 and not self._unattributed else None

    def check(self, subject: Subject | None, now: float) -> Pass:
        """How the call may be made. Raises HeldBack if it may not."""
        if not self.is_open:
            return Pass.FREE
        if (owner := self._sole_owner) is not None and (subject is None or subject.owner != owner):
            return Pass.FREE
        kind = self._kind(subject, now)
        if kind is None or kind in self._probes:
            raise HeldBack(
                f"call not made: the cloud failed {self.failures} times in a row, most recently: {self.last_error}",
                retry_after=self._wait(subject, now),
            )
        self._probes.add(kind)
        return kind

    def ended(self, kind: Pass) -> None:
        """A call with this pass has ended, also without a result."""
        self._probes.discard(kind)

    def take_waiting(self) -> list[str]:
        """The objects that were held back, if nothing holds them back any more, in the order of their first call."""
        if not self._waiting or self.is_open:
            return []
        waiting, self._waiting = list(self._waiting), {}
        return waiting

    def succeeded(self, subject: Subject | None = None) -> None:
        self.failures, self._held, self._early_failures, self._unattributed = 0, 0.0, 0, 0
        self._evidence.clear()
        self._accused.clear()
        if subject is not None:
            self._forget(subject.key)

    def failed(self, error: CloudError, subject: Subject | None, now: float, kind: Pass) -> None:
        """Only the failure that opens the breaker and failed probes set the time: concurrent calls fail together and
        add no information."""
        was_open = self.is_open
        self.failures += 1
        self.last_error = str(error)
        if subject is None:
            self._unattributed += 1
        else:
            self._evidence.add(subject.key)
            self._accused.add(subject.owner)
            self._remember(subject)
        self._early_failures += kind is Pass.EARLY
        if self.is_open and not was_open:
            self._opened_at = now
        if self.is_open and (not was_open or kind is not Pass.FREE):
            self._held = min(BREAKER_MAX, self._held * 2 or BREAKER_FIRST)
            self.open_until = now + self._held

    def _kind(self, subject: Subject | None, now: float) -> Pass | None:
        """Of the probe that the call would be; None if there is none for it now."""
        if subject is not None and subject.key not in self._failing:
            allowed = 1 if self._owners[subject.owner] else EARLY_PROBES
            if self._early_failures < allowed and Pass.EARLY not in self._probes:
                return Pass.EARLY
        return Pass.PROBE if now >= self.open_until else None

    def _wait(self, subject: Subject | None, now: float) -> float:
        """Until the end of the pause. While a probe is under way nobody knows how long it takes: the longer the outage
        has lasted, the more seldom one looks."""
        pause = self.open_until - now
        if pause <= 0:
            pause = min(BREAKER_MAX, now - self._opened_at)
        pause = max(BREAKER_FIRST, pause)
        if subject is None:
            return pause
        if subject.key in self._failing:
            return pause * AFTER_OTHERS
        if len(self._waiting) < REMEMBERED_WAITING:
            self._waiting[subject.key] = None
        return max(pause, min(WAIT_MAX, len(self._waiting) / ASKED))

    def _remember(self, subject: Subject) -> None:
        if subject.key not in self._failing:
            self._owners[subject.owner] += 1
        self._failing[subject.key] = subject.owner
        self._failing.move_to_end(subject.key)
        if len(self._failing) > REMEMBERED_FAILURES:
            self._forget(next(iter(self._failing)))

    def _forget(self, key: str) -> None:
        owner = self._failing.pop(key, None)
        if owner is not None:
            self._owners[owner] -= 1
            if not self._owners[owner]:
                del self._owners[owner]
