# SPDX-License-Identifier: Apache-2.0
"""`/livez` and `/readyz` (upstream has neither path, and of its checks, only `leaderElection` can fail).

Alive: this process can still work; a failing check makes the kubelet restart it. Ready: it works or could take over
now: its caches are fresh, no work is stuck, and the cloud answers. A short failure of the cloud does not make it
unready; of several clouds, one that does not answer is shown and tolerated while another one works.

Anyone may request the result. The reasons of a failure appear only in the log, and for authorized clients.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping

import msgspec
from prometheus_client import CollectorRegistry, Counter, Gauge

log = logging.getLogger(__name__)


class Tolerated(msgspec.Struct, frozen=True):
    """Why a check fails although its path passes. The failure is counted and logged. The path's list of checks shows
    "tolerated", and the check's own path fails."""

    reason: str


#: Returns why the check fails, or None.
Check = Callable[[], str | Tolerated | None]

#: The metrics of `/metrics/slis`.
SLIS = CollectorRegistry()
_HEALTHCHECK = Gauge(
    "kubernetes_healthcheck", "Result of a check: 1 passed, 0 failed.", ["name", "type"], registry=SLIS
)
_HEALTHCHECKS = Counter(
    "kubernetes_healthchecks", "Number of checks, by result.", ["name", "type", "status"], registry=SLIS
)


class Outcome(msgspec.Struct, frozen=True):
    """The result of the checks of one path. `failed`, `tolerated`: names -> reasons. `left_out`: the names that the
    client excludes."""

    path: str
    checks: tuple[str, ...]
    failed: dict[str, str]
    left_out: frozenset[str]
    tolerated: dict[str, str] = msgspec.field(default_factory=dict)

    def response(self, *, verbose: bool, reasons: bool) -> tuple[int, str]:
        """Return HTTP status and body in the format of Kubernetes components. `reasons`: include why a check failed."""
        lines = []
        for name in self.checks:
            if name in self.left_out:
                lines.append(f"[+]{name} excluded: ok")
            elif name in self.failed:
                lines.append(f"[-]{name} failed: {self.failed[name] if reasons else 'reason withheld'}")
            elif name in self.tolerated:
                lines.append(f"[+]{name} tolerated: {self.tolerated[name] if reasons else 'reason withheld'}")
            else:
                lines.append(f"[+]{name} ok")
        if surplus := sorted(self.left_out - set(self.checks)):
            quoted = ", ".join(f'"{name}"' for name in surplus)
            lines.append(f"warn: some health checks cannot be excluded: no matches for {quoted}")
        if self.failed:
            return 500, "\n".join([*lines, f"{self.path} check failed", ""])
        return 200, "\n".join([*lines, f"{self.path} check passed", ""]) if verbose else "ok"


class Health:
    """The checks of the paths `/healthz`, `/livez` and `/readyz`, by path name."""

    def __init__(self, **checks: Mapping[str, Check]) -> None:
        self._checks = checks
        self._logged: dict[str, str] = {}

    @property
    def paths(self) -> list[str]:
        return list(self._checks)

    def one(self, path: str, name: str) -> tuple[int, str] | None:
        """Return HTTP status and body of `/<path>/<check>`; None if there is no such check. A tolerated failure of the
        check is a failure here."""
        check = self._checks[path].get(name)
        if check is None:
            return None
        answer = self._ask(path, name, check)
        reason = answer.reason if isinstance(answer, Tolerated) else answer
        return (200, "ok") if reason is None else (500, f"internal server error: {reason}\n")

    def all(
        self, path: str, *, verbose: bool = False, exclude: Iterable[str] = (), reasons: bool = False
    ) -> tuple[int, str]:
        """Return HTTP status and body in the format of Kubernetes components. `reasons`: include why a check failed."""
        return self.look(path, exclude=exclude).response(verbose=verbose, reasons=reasons)

    def look(self, path: str, *, exclude: Iterable[str] = ()) -> Outcome:
        """Run the checks of a path except those in `exclude`, and return their outcome."""
        checks, left_out = self._checks[path], set(exclude)
        answers = {name: self._ask(path, name, check) for name, check in checks.items() if name not in left_out}
        failed = {name: reason for name, reason in answers.items() if isinstance(reason, str)}
        tolerated = {name: each.reason for name, each in answers.items() if isinstance(each, Tolerated)}
        self._log_changes(path, failed, tolerated)
        return Outcome(path, tuple(checks), failed, frozenset(left_out), tolerated)

    def _ask(self, path: str, name: str, check: Check) -> str | Tolerated | None:
        reason = check()
        _HEALTHCHECK.labels(name, path).set(1 if reason is None else 0)
        _HEALTHCHECKS.labels(name, path, "success" if reason is None else "error").inc()
        return reason

    def _log_changes(self, path: str, failed: Mapping[str, str], tolerated: Mapping[str, str]) -> None:
        """Log the failing and the tolerated checks if they are not the same ones as the last time."""
        every = {**failed, **tolerated}
        names = ", ".join(every)
        if names and names != self._logged.get(path):
            verb = "fails" if failed else "passes in spite of"
            log.warning("%s %s: %s", path, verb, "; ".join(f"{name}: {reason}" for name, reason in every.items()))
        self._logged[path] = names
