# SPDX-License-Identifier: Apache-2.0
"""Which state a Node or a Service is in, for the status page, and which objects to name. No I/O."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ccm.controllers.nodes import node_rules
from ccm.controllers.nodes.node import age_seconds
from ccm.controllers.nodes.node_lifecycle import SHUTDOWN
from ccm.controllers.services import service_rules
from ccm.controllers.services.class_rules import ServedClasses
from ccm.engine.objects import Node, Service, parse_time
from ccm.serving.status_report import Count, Unfinished

GOING = "being deleted"
UNINITIALIZED = "waits for initialisation"
SHUT_DOWN = "instance shut down"
NOT_READY = "not ready"
READY = "ready"
NO_ADDRESS = "waits for an address"
RELEASING = "waits to be released"
SERVED = "has an address"
NODE_STATES = (READY, UNINITIALIZED, NOT_READY, SHUT_DOWN, GOING)
SERVICE_STATES = (SERVED, NO_ADDRESS, RELEASING)
FAILING = "failing"
#: An object that waits is named once it has waited for this long, in seconds.
SLOW = 10.0


@dataclass(frozen=True, slots=True)
class Failure:
    """A key of a queue whose last attempt failed. `seconds`: since the first of `tries` failures in a row."""

    queue: str
    key: str
    error: str
    seconds: float
    tries: int


#: Queue -> the kind of its keys; the keys of another queue are shown by the queue's name.
KINDS: Mapping[str, str] = {"Nodes": "Node", "service": "Service", "PersistentVolumes": "PersistentVolume"}


def node_state(node: Node) -> str:
    if node.metadata.deletion_timestamp:
        return GOING
    if node_rules.is_uninitialized(node):
        return UNINITIALIZED
    if node_rules.has_taint(node.spec.taints, *SHUTDOWN):
        return SHUT_DOWN
    return READY if node_rules.is_ready(node) else NOT_READY


def service_state(service: Service, classes: ServedClasses) -> str:
    """Return the state of a Service, "" if it needs no load balancer of ours."""
    if service_rules.is_to_be_released(service, classes):
        return RELEASING
    if not service_rules.wants_it_served(service, classes):
        return ""
    return SERVED if service.status.load_balancer.ingress else NO_ADDRESS


def count(states: Iterable[str], order: Sequence[str]) -> list[Count]:
    """Return how many objects are in each state. All states are named, so that the rows do not move."""
    counts = Counter(states)
    return [Count(state, counts[state]) for state in order]


def unfinished(
    nodes: Iterable[Node],
    services: Iterable[Service],
    failures: Iterable[Failure],
    now: datetime.datetime,
    classes: ServedClasses,
) -> list[Unfinished]:
    """Return the objects that fail, then those that have waited for `SLOW` or longer; in each group, the oldest first.

    Several clouds have queues of their own. An object that fails in several of them for one reason is one row.
    """
    rows: dict[tuple[str, str, str], Unfinished] = {}
    for failure in failures:
        row = Unfinished(_kind(failure.queue), failure.key, FAILING, failure.seconds, failure.tries, failure.error)
        former = rows.setdefault((row.kind, row.name, row.reason), row)
        if former.seconds < row.seconds:
            rows[row.kind, row.name, row.reason] = row
    candidates = list(rows.values())
    named = {(candidate.kind, candidate.name) for candidate in candidates}
    for node in nodes:
        if node_state(node) == UNINITIALIZED and ("Node", node.metadata.name) not in named:
            waited = age_seconds(node, now)
            candidates.append(Unfinished("Node", node.metadata.name, UNINITIALIZED, waited, 0, ""))
    for service in services:
        state, name = service_state(service, classes), f"{service.metadata.namespace}/{service.metadata.name}"
        if state in (NO_ADDRESS, RELEASING) and ("Service", name) not in named:
            since = service.metadata.deletion_timestamp if state == RELEASING else service.metadata.creation_timestamp
            candidates.append(Unfinished("Service", name, state, _since(since, now), 0, ""))
    late = [candidate for candidate in candidates if candidate.state == FAILING or candidate.seconds >= SLOW]
    return sorted(late, key=lambda each: (each.state != FAILING, -each.seconds, each.kind, each.name))


def _kind(queue: str) -> str:
    """Return the kind of the keys of a queue. Each of several clouds has queues of its own, such as `Nodes-static`."""
    return KINDS.get(queue.partition("-")[0], queue)


def _since(text: str | None, now: datetime.datetime) -> float:
    try:
        return max(0.0, (now - parse_time(text or "")).total_seconds())
    except (ValueError, TypeError):  # TypeError: a time without a time zone
        return 0.0
