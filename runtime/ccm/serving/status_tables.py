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
        Table("Nodes", ("State", "Nodes"), [(node.state, f"{node.objects}") for node in status.nodes], frozenset({1})),
        Table(
            "Services of type LoadBalancer",
            ("State", "Services"),
            [(service.state, f"{service.objects}") for service in status.services],
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
                    queue.name,
                    f"{queue.waiting}",
                    duration(queue.oldest),
                    f"{queue.running}",
                    duration(queue.longest),
                    f"{queue.delayed}",
                    f"{queue.failing}",
                )
                for queue in status.queues
            ],
            frozenset(range(1, 7)),
            "No controller runs in this process.",
        ),
        *(table for cloud in status.clouds for table in _cloud(cloud)),
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
                    call.operation,
                    f"{call.succeeded}",
                    f"{call.failed}",
                    duration(call.mean),
                    ", ".join(f"{name} {number}" for name, number in sorted(call.results.items())),
                )
                for call in cloud.calls
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
                    budget.group,
                    f"{budget.per_second:g}" if budget.per_second > 0 else "no limit",
                    f"{budget.burst:g}" if budget.per_second > 0 else "",
                    f"{budget.left:.0f}" if budget.per_second > 0 else "",
                    duration(budget.paused) if budget.paused > 0 else "no",
                )
                for budget in cloud.budgets
            ],
            frozenset({1, 2, 3, 4}),
        ),
        Table(
            f"Breakers{suffix}",
            ("Group", "State", "Failures", "Next probe", "Last error"),
            [
                (
                    breaker.group,
                    "open: calls are rejected" if breaker.open else "closed",
                    f"{breaker.failures}",
                    f"in {duration(breaker.probe_in)}" if breaker.open else "",
                    breaker.error,
                )
                for breaker in cloud.breakers
            ],
            frozenset({2}),
            "All are closed: no group of calls fails.",
        ),
    ]


def _more(shown: Sequence[object], every: int) -> str:
    return f"The first {len(shown)} of {every}." if every > len(shown) else ""
