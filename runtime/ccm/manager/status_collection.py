# SPDX-License-Identifier: Apache-2.0
"""Collects what `/statusz` reports from the parts of this process. It reads caches and counters only."""

from __future__ import annotations

import datetime
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from ccm import __version__
from ccm.controllers.services.class_rules import ServedClasses
from ccm.controllers.shared.context import RUNNING
from ccm.controllers.shared.holds import Holds
from ccm.engine.informer import Informer
from ccm.engine.objects import Node, Service
from ccm.engine.queue import QUEUES
from ccm.gateway.gateway import DURATION, REQUESTS, Gateway
from ccm.serving.health import Health
from ccm.serving.status_report import (
    ROWS,
    Breaker,
    Budget,
    Calls,
    CloudState,
    Held,
    Process,
    Queue,
    Series,
    Status,
)

from . import object_state_rules as rules
from .leadership import Leadership
from .status_history import GOOD, STEP, History, cloud_durations, cloud_results


@dataclass(frozen=True)
class Sources:
    """The parts of a process that a report needs. `started`: monotonic seconds."""

    provider: str
    cluster: str
    leadership: Leadership
    gateways: Sequence[Gateway]
    nodes: Informer[Node]
    services: Informer[Service]
    holds: Holds
    health: Health
    classes: ServedClasses
    history: History
    started: float


def report(sources: Sources) -> Status:
    """Return the present state of this process."""
    now = datetime.datetime.now(datetime.UTC)
    nodes, services = list(sources.nodes.items()), list(sources.services.items())
    failures = [
        rules.Failure(queue.name, each.key, each.error, queue.age(each.since), each.tries)
        for queue in QUEUES
        for each in queue.failing
    ]
    unfinished = rules.unfinished(nodes, services, failures, now, sources.classes)
    monotonic = sources.holds.monotonic()
    held = [Held(each.kind, each.name, each.rule, each.message, monotonic - each.since) for each in sources.holds.all()]
    return Status(
        process=_process(sources),
        nodes=rules.count(map(rules.node_state, nodes), rules.NODE_STATES),
        services=rules.count(
            (rules.service_state(service, sources.classes) for service in services), rules.SERVICE_STATES
        ),
        unfinished=unfinished[:ROWS],
        unfinished_in_all=len(unfinished),
        held=held[:ROWS],
        held_in_all=len(held),
        queues=_queues(),
        clouds=[_cloud(gateway, now) for gateway in sources.gateways],
        step=STEP,
        history=[Series(name, values) for name, values in sources.history.series().items()],
    )


def _process(sources: Sources) -> Process:
    main = sources.leadership.main
    role = "alone" if main is None else "leader" if main.is_leader else "standby"
    ready = sources.health.look("readyz")
    running = [sample.labels["name"] for family in RUNNING.collect() for sample in family.samples if sample.value]
    return Process(
        identity=sources.leadership.identity,
        role=role,
        leader="" if main is None else main.identity if main.is_leader else main.holder,
        lease="" if main is None else f"{main.namespace}/{main.name}",
        version=__version__,
        provider=sources.provider,
        cluster=sources.cluster,
        uptime=time.monotonic() - sources.started,
        controllers=sorted(running),
        problems=[f"{name}: {reason}" for name, reason in (ready.failed | ready.tolerated).items()],
    )


def _queues() -> list[Queue]:
    rows = []
    for queue in sorted(QUEUES, key=lambda queue: queue.name):
        running = queue.running
        longest = max(running.values(), default=0.0)
        rows.append(
            Queue(
                queue.name,
                queue.depth,
                queue.oldest_age,
                len(running),
                longest,
                queue.delayed,
                queue.failures_now,
            )
        )
    return rows


def _cloud(gateway: Gateway, now: datetime.datetime) -> CloudState:
    state = gateway.state
    failing = None if gateway.failing_since is None else time.monotonic() - gateway.failing_since
    return CloudState(
        name=gateway.name,
        answered=None if gateway.last_success is None else (now - gateway.last_success).total_seconds(),
        failing=failing,
        error=gateway.last_error if failing is not None else "",
        under_way=state.under_way,
        concurrency=state.concurrency,
        calls=_calls(gateway.name),
        budgets=[
            Budget(budget.group, max(0.0, budget.per_second), budget.burst, budget.left, budget.paused_for)
            for budget in state.budgets
        ],
        breakers=[
            Breaker(breaker.group, breaker.is_open, breaker.failures, breaker.open_for, breaker.last_error)
            for breaker in state.breakers
        ],
    )


def _calls(cloud: str) -> list[Calls]:
    good: dict[str, int] = defaultdict(int)
    bad: dict[str, dict[str, int]] = defaultdict(dict)
    for operation, result, number in cloud_results(REQUESTS.of(cloud)):
        if result in GOOD:
            good[operation] += int(number)
        else:
            bad[operation][result] = int(number)
    return [
        Calls(
            operation,
            good[operation],
            sum(bad[operation].values()),
            bad[operation],
            seconds / number if number else 0.0,
        )
        for operation, seconds, number in sorted(cloud_durations(DURATION.of(cloud)))
    ]
