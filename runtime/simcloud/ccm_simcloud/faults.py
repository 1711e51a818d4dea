# SPDX-License-Identifier: Apache-2.0
"""Faults of the cloud: rules, and their effect on one call. This module only decides; the server applies the result."""

from __future__ import annotations

import fnmatch
import itertools
import random
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Annotated, Literal

from msgspec import Meta, Struct

from .model import Seconds

Action = Literal[
    "status",  # answer with `status`
    "timeout",  # never answer, and close the connection after `seconds`
    "delay",  # answer after `seconds`
    "hang_up",  # close the connection without an answer
    "truncate",  # send half of the body
    "empty_list",  # a listing is empty, with total 0
    "short_list",  # a listing omits the second half of the page and all later pages; the total is correct
    "stale",  # reads return the state `seconds` ago
    "rate_limit",  # 429 above `per_second`
    "provision_error",  # the load balancer is accepted and ends in the state "error"
]


class Match(Struct, frozen=True):
    """The calls that a rule is about: those that match all set fields. `operation` may contain `*`; `path` is a
    regular expression that is searched in the path and query."""

    method: str = ""
    path: str = ""
    operation: str = ""
    project: str = ""

    def __post_init__(self) -> None:
        try:
            re.compile(self.path)
        except re.error as error:
            raise ValueError(f"path: {self.path!r} is not a regular expression: {error}") from None

    def fits(self, method: str, path: str, operation: str, project: str) -> bool:
        return (
            (not self.method or self.method.upper() == method)
            and (not self.operation or fnmatch.fnmatchcase(operation, self.operation))
            and (not self.project or self.project == project)
            and (not self.path or re.search(self.path, path) is not None)
        )


class Rule(Struct, frozen=True):
    """What fails, for which calls, and for how long.

    `count`: the maximum number of calls on which the rule acts. `probability`: the probability that the rule acts on a
    matching call. `for_seconds`: how long the rule is active. `after_effect` (status, timeout, hang_up): the call is
    carried out, and only its answer is lost.
    """

    action: Action
    match: Match = Match()
    status: Annotated[int, Meta(ge=200, le=599)] = 500
    code: str = "internal"
    message: str = "simulated fault"
    body: Literal["json", "html"] = "json"
    retry_after: Annotated[float, Meta(ge=0)] | None = None
    seconds: Seconds | None = None
    per_second: Annotated[float, Meta(gt=0)] | None = None
    burst: Annotated[int, Meta(ge=1)] | None = None
    after_effect: bool = False
    count: Annotated[int, Meta(ge=1)] | None = None
    probability: Annotated[float, Meta(ge=0, le=1)] = 1.0
    for_seconds: Annotated[float, Meta(gt=0)] | None = None

    def __post_init__(self) -> None:
        if self.action in ("delay", "stale") and self.seconds is None:
            raise ValueError(f"action {self.action} requires `seconds`")
        if self.action == "rate_limit" and self.per_second is None:
            raise ValueError("action rate_limit requires `per_second`")


class Bucket:
    """A token bucket; `take` returns 0, or the seconds until a token is available."""

    def __init__(self, per_second: float, burst: int | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._size, self._clock = per_second, float(burst or max(1, round(per_second))), clock
        self._tokens, self._filled = self._size, clock()

    def take(self) -> float:
        now = self._clock()
        self._tokens = min(self._size, self._tokens + (now - self._filled) * self._rate)
        self._filled = now
        if self._tokens >= 1:
            self._tokens -= 1
            return 0.0
        return (1 - self._tokens) / self._rate


@dataclass
class Active:
    """An active rule. `hits`: how many times it acted."""

    id: str
    rule: Rule
    ends: float | None
    bucket: Bucket | None
    hits: int = 0

    def acts(self, now: float, chance: Callable[[], float]) -> bool:
        """Return whether the rule acts on a matching call now; counts the call if so."""
        rule = self.rule
        if self.ends is not None and now >= self.ends:
            return False
        if rule.count is not None and self.hits >= rule.count:
            return False
        if rule.probability < 1 and chance() >= rule.probability:
            return False
        if self.bucket is not None and self.bucket.take() == 0:
            return False
        self.hits += 1
        return True


@dataclass(frozen=True)
class Plan:
    """The effects on one call. Delays add up, and the longest staleness counts. Of the rules that fail the call
    (`fatal`), and of those that spoil its answer (`spoil`), the first one counts."""

    delay: float = 0.0
    stale: float = 0.0
    fatal: Rule | None = None
    spoil: Literal["", "truncate", "empty_list", "short_list"] = ""
    provision_error: bool = False
    ids: tuple[str, ...] = ()


@dataclass
class FaultBook:
    """All active rules, in the order of their addition."""

    clock: Callable[[], float] = time.monotonic
    chance: Callable[[], float] = field(default_factory=lambda: random.Random(0).random)
    active: dict[str, Active] = field(default_factory=dict)
    _numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def add(self, rules: Iterable[Rule]) -> list[str]:
        """Activate rules. Return their IDs."""
        ids = []
        for rule in rules:
            fault_id = f"f-{next(self._numbers)}"
            ends = self.clock() + rule.for_seconds if rule.for_seconds is not None else None
            bucket = Bucket(rule.per_second, rule.burst, self.clock) if rule.per_second is not None else None
            self.active[fault_id] = Active(fault_id, rule, ends, bucket)
            ids.append(fault_id)
        return ids

    def clear(self) -> None:
        self.active.clear()

    def plan(self, method: str, path: str, operation: str, project: str) -> Plan:
        """Return the effects of the rules on this call."""
        if not self.active:
            return Plan()
        now, delay, stale, provision_error = self.clock(), 0.0, 0.0, False
        fatal: Rule | None = None
        spoil: Literal["", "truncate", "empty_list", "short_list"] = ""
        ids = []
        for active in self.active.values():
            rule = active.rule
            if fatal is not None and rule.action in ("status", "timeout", "hang_up", "rate_limit"):
                continue
            if not rule.match.fits(method, path, operation, project) or not active.acts(now, self.chance):
                continue
            ids.append(active.id)
            match rule.action:
                case "delay":
                    delay += rule.seconds or 0.0
                case "stale":
                    stale = max(stale, rule.seconds or 0.0)
                case "provision_error":
                    provision_error = True
                case "truncate" | "empty_list" | "short_list":
                    spoil = spoil or rule.action
                case _:
                    fatal = rule
        return Plan(delay, stale, fatal, spoil, provision_error, tuple(ids))
