# SPDX-License-Identifier: Apache-2.0
"""Decides when calls of a group are not made because the cloud fails. No I/O.

The question is whose failure it is. Five failures in a row, of different objects or of calls about no object (a
listing), are an outage. One object that fails five times is not. Nor are failing objects of a single namespace, because
the cause may be a mistake of their owner, so only the calls of that namespace are held back.

While calls are held back, one call probes after each pause whether the cloud works again; the pauses double. A new
object need not wait for the end of a pause, because nobody knows yet whether its call fails. After two such early
probes have failed, new objects take turns (`ccm.gateway.newcomers`), because one mistake in a hundred namespaces looks
like an outage until another object succeeds. A turn is a probe, too: if it fails, the pause is prolonged.

The more objects wait, the less often each of them tries, so hundreds of waiting Services make few calls. At the end of
the outage all of them are woken, the last one first, because if many made the same mistake and there was no outage, the
last one is the least likely to have made it. Objects that failed before they were held back are not woken, because it
may be their own fault.
"""

from __future__ import annotations

import enum
import math
from collections import Counter, OrderedDict
from typing import NamedTuple

from ccm.base.rounds import namespace_of
from ccm.cloud.errors import CloudError, Transient

from .newcomers import LONGEST_WAIT, Newcomers

#: How many failing objects, plus failed calls about no object, open the breaker of a group, so that its calls are held
#: back.
BREAKER_THRESHOLD = 5
#: First and longest time for which calls are held back, in seconds; each failed probe doubles it.
BREAKER_FIRST, BREAKER_MAX = 1.0, 30.0
#: How many early probes, which are calls of new objects before the end of a pause, may fail if the object's namespace
#: has no failures. After that, new objects wait for turns.
EARLY_PROBES = 2
#: A failing object waits this many times as long as other objects, which therefore come first.
AFTER_OTHERS = 1.25
#: All waiting objects together try this many calls a second, or more, so that none of them waits longer than
#: `WAIT_MAX` seconds.
TRIES_PER_SECOND, WAIT_MAX = 4.0, 120.0
#: How many failing objects are remembered.
REMEMBERED_FAILURES = 1000
#: How many waiting objects are woken at the end of an outage; others return by themselves, within `WAIT_MAX`.
REMEMBERED_WAITING = 20_000


class Subject(NamedTuple):
    """The object of a call. `owner`: its namespace, or the object itself if it is cluster-scoped."""

    key: str
    owner: str

    @classmethod
    def of(cls, key: str) -> Subject:
        return cls(key, namespace_of(key) or key)


class HeldBack(Transient):
    """The call was not made. Try again after `retry_after` seconds; waiting objects are woken when the outage ends."""


class Pass(enum.Enum):
    """How a call may be made. `FREE`: calls like it are not held back. `PROBE`: the pause is over. `EARLY`: the
    object is new, so the pause need not be over."""

    FREE = enum.auto()
    PROBE = enum.auto()
    EARLY = enum.auto()


class Breaker:
    """The breaker of one group of calls. `failures`: how many calls failed in a row, for people. `open_until`: the end
    of the pause. Times are monotonic. `shown_open`: whether the metric shows the breaker as open."""

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
        self._newcomers = Newcomers()
        # Since the last success: the objects that failed, and how many calls about no object did.
        self._evidence: set[str] = set()
        self._accused: set[str] = set()  # their owners
        self._unattributed = 0
        # Objects that were held back and had not failed before. They are remembered until the end of the outage.
        self._waiting: dict[str, None] = {}
        # Objects that have not succeeded since they failed, with their owners. Success of others removes none of them.
        self._failing: OrderedDict[str, str] = OrderedDict()
        self._owners: Counter[str] = Counter()

    @property
    def is_open(self) -> bool:
        """Whether any calls are held back."""
        return len(self._evidence) + self._unattributed >= BREAKER_THRESHOLD

    @property
    def is_open_for_all(self) -> bool:
        return self.is_open and self._sole_owner is None

    @property
    def _sole_owner(self) -> str | None:
        return next(iter(self._accused)) if len(self._accused) == 1 and not self._unattributed else None

    def check(self, subject: Subject | None, now: float) -> Pass:
        """Return how the call may be made. Raises HeldBack if it may not be made."""
        if not self.is_open:
            return Pass.FREE
        if (owner := self._sole_owner) is not None and (subject is None or subject.owner != owner):
            return Pass.FREE
        if subject is not None and subject.key not in self._failing:
            self._meet(subject, now)
        kind = self._kind(subject, now)
        if kind is None or kind in self._probes:
            raise HeldBack(
                f"call not made: the cloud failed {self.failures} times in a row, most recently: {self.last_error}",
                retry_after=self._wait(subject, now),
            )
        self._probes.add(kind)
        return kind

    def ended(self, kind: Pass) -> None:
        """Record that a call with this pass has ended, with or without a result."""
        self._probes.discard(kind)

    def take_waiting(self) -> list[str]:
        """Return the objects that were held back, the last one first, and forget them; [] while calls are held back."""
        if not self._waiting or self.is_open:
            return []
        waiting, self._waiting = list(reversed(self._waiting)), {}
        return waiting

    def succeeded(self, subject: Subject | None = None) -> None:
        self.failures, self._held, self._early_failures, self._unattributed = 0, 0.0, 0, 0
        self._evidence.clear()
        self._accused.clear()
        if subject is not None:
            self._forget(subject.key)
            self._newcomers.answered(subject.key)

    def failed(self, error: CloudError, subject: Subject | None, now: float, kind: Pass) -> None:
        """Record a failed call. Only the failure that opens the breaker, and failed probes, set the pause, because
        other calls that were in progress fail together with them and add no information."""
        was_open = self.is_open
        self.failures += 1
        self.last_error = str(error)
        if subject is None:
            self._unattributed += 1
        else:
            self._evidence.add(subject.key)
            self._accused.add(subject.owner)
            self._remember(subject)
            self._newcomers.answered(subject.key)
        if kind is Pass.EARLY:
            self._early_failures += 1
            self._newcomers.failed(now)
        if self.is_open and not was_open:
            self._opened_at = now
        if self.is_open and (not was_open or kind is not Pass.FREE):
            self._held = min(BREAKER_MAX, self._held * 2 or BREAKER_FIRST)
            self.open_until = now + self._held

    def _meet(self, subject: Subject, now: float) -> None:
        """Offer a turn to an object that has not failed. If its namespace has failures, offer only a turn that is due
        now."""
        self._newcomers.asks(*subject, now, 0.0 if self._owners[subject.owner] else LONGEST_WAIT)

    def _kind(self, subject: Subject | None, now: float) -> Pass | None:
        """Return the kind of probe that the call may be now, None if it may not be one."""
        if subject is not None and Pass.EARLY not in self._probes and self._may_be_early(subject, now):
            return Pass.EARLY
        return Pass.PROBE if now >= self.open_until else None

    def _may_be_early(self, subject: Subject, now: float) -> bool:
        wait = self._newcomers.wait(subject.key, now)
        if wait < math.inf and self._early_failures < (1 if self._owners[subject.owner] else EARLY_PROBES):
            return True
        return wait <= 0.0

    def _wait(self, subject: Subject | None, now: float) -> float:
        """Return the seconds until the caller may try again: normally until the end of the pause, longer for a failing
        object or if many objects wait, and shorter for an object whose turn comes earlier. While a probe is under way,
        nobody knows how long it takes, so the wait grows with the outage."""
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
        turn = max(BREAKER_FIRST, self._newcomers.wait(subject.key, now))
        return min(turn, max(pause, min(WAIT_MAX, len(self._waiting) / TRIES_PER_SECOND)))

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
