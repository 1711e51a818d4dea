# SPDX-License-Identifier: Apache-2.0
"""The tables of a status report, for the page and the text alike. No I/O, and no markup."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .status_report import CloudState, Status, duration, subject


@dataclass(frozen=True)
class Table:
    """One table. `rows`: cells in the order of `head`. `numbers`: the columns to align to the right. `empty`: the text
    if there are no rows."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    numbers: frozenset[int] = frozenset()
    empty: str = "none"
    note: str = ""


def tables(status: Status) -> list[Table]:
    return [
        _process(status),
        Table("Nodes", ("State", "Nodes"), [(each.state, f"{each.objects}") for each in status.nodes], frozenset({1})),
        Table(
            "Services of type LoadBalancer",
            ("State", "Services"),
            [(each.state, f"{each.objects}") for each in status.services],
            frozenset({1}),
        ),
        Table(
            "Slowest and stuck",
            ("Kind", "Name", "State", "For", "Failures", "Reason"),
            [
                (each.kind, each.name, each.state, duration(each.seconds), f"{each.tries}", each.reason)
                for each in status.unfinished
            ],
            frozenset({3, 4}),
            "Everything is as it should be.",
            _more(status.unfinished, status.unfinished_in_all),
        ),
        Table(
            "Held deletions",
            ("Kind", "Name", "Rule", "For", "Why"),
            [(each.kind, each.name, each.rule, duration(each.seconds), each.message) for each in status.held],
            frozenset({3}),
            "No deletion is held.",
            _more(status.held, status.held_in_all),
        ),
        Table(
            "Queues",
            ("Queue", "Waiting", "Oldest", "Running", "Longest", "Later", "Failing"),
            [
                (
                    each.name,
                    f"{each.waiting}",
                    duration(each.oldest),
                    f"{each.running}",
                    duration(each.longest),
                    f"{each.delayed}",
                    f"{each.failing}",
                )
                for each in status.queues
            ],
            frozenset(range(1, 7)),
            "No controller runs in this process.",
        ),
        *(table for each in status.clouds for table in _cloud(each)),
    ]


def _process(status: Status) -> Table:
    process = status.process
    rows = [
        ("version", process.version),
        ("provider", process.provider),
        ("cluster", process.cluster),
        ("runs for", duration(process.uptime)),
        ("controllers", ", ".join(process.controllers) or "none: it does not lead"),
    ]
    return Table("Process", ("What", "Value"), rows)


def _cloud(cloud: CloudState) -> list[Table]:
    suffix = f": {cloud.name}" if cloud.name else ""
    answered = "never" if cloud.answered is None else f"{duration(cloud.answered)} ago"
    return [
        Table(
            f"Cloud calls{suffix}",
            ("Operation", "Succeeded", "Failed", "Mean", "Failures"),
            [
                (
                    each.operation,
                    f"{each.succeeded}",
                    f"{each.failed}",
                    duration(each.mean),
                    ", ".join(f"{name} {number}" for name, number in sorted(each.results.items())),
                )
                for each in cloud.calls
            ],
            frozenset({1, 2, 3}),
            "No call was made.",
            f"{subject(cloud)} answered last: {answered}. Calls in progress: {cloud.under_way} of {cloud.concurrency}.",
        ),
        Table(
            f"Call budget{suffix}",
            ("Group", "Per second", "Burst", "Left", "Paused"),
            [
                (
                    each.group,
                    f"{each.per_second:g}" if each.per_second > 0 else "no limit",
                    f"{each.burst:g}" if each.per_second > 0 else "",
                    f"{each.left:.0f}" if each.per_second > 0 else "",
                    duration(each.paused) if each.paused > 0 else "no",
                )
                for each in cloud.budgets
            ],
            frozenset({1, 2, 3, 4}),
        ),
        Table(
            f"Breakers{suffix}",
            ("Group", "State", "Failures", "Next probe", "Last error"),
            [
                (
                    each.group,
                    "open: calls are rejected" if each.open else "closed",
                    f"{each.failures}",
                    f"in {duration(each.probe_in)}" if each.open else "",
                    each.error,
                )
                for each in cloud.breakers
            ],
            frozenset({2}),
            "All are closed: no group of calls fails.",
        ),
    ]


def _more(shown: Sequence[object], every: int) -> str:
    return f"The first {len(shown)} of {every}." if every > len(shown) else ""
