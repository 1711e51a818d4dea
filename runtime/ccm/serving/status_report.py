# SPDX-License-Identifier: Apache-2.0
"""What `/statusz` and `ccm status` report: plain data, which is also their JSON. No I/O.

Text such as names and errors may come from strangers, so the code that shows it escapes it. Times are in seconds.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct


class Process(Struct, frozen=True, rename="camel", kw_only=True):
    """The process that reports."""

    identity: Annotated[str, Meta(description="The process's name in the Lease: the host's name and a random part.")]
    role: Annotated[str, Meta(description="`leader`, `standby`, or `alone` without leader election.")]
    leader: Annotated[str, Meta(description="The identity of the leader; empty if this process knows none.")]
    lease: Annotated[str, Meta(description="The Lease, NAMESPACE/NAME; empty without leader election.")]
    version: Annotated[str, Meta(description="The version of this program.")]
    provider: Annotated[str, Meta(description="`--cloud-provider`.")]
    cluster: Annotated[str, Meta(description="`--cluster-name`.")]
    uptime: Annotated[float, Meta(description="Seconds since this process started.")]
    controllers: Annotated[list[str], Meta(description="The controllers that run in this process now.")]
    problems: Annotated[list[str], Meta(description="Why a check of `/readyz` fails, one sentence for each check.")]


class Count(Struct, frozen=True, rename="camel"):
    """How many objects are in a state."""

    state: Annotated[str, Meta(description="The state, in words.")]
    objects: Annotated[int, Meta(description="How many objects.")]


class Unfinished(Struct, frozen=True, rename="camel"):
    """An object that is not as it should be, and why."""

    kind: Annotated[str, Meta(description="`Node`, `Service`, `PersistentVolume`, or the name of another work queue.")]
    name: Annotated[str, Meta(description="The object's name; NAMESPACE/NAME for a Service.")]
    state: Annotated[str, Meta(description="`failing`, or what the object waits for.")]
    seconds: Annotated[float, Meta(description="How long it has been in this state, in seconds.")]
    tries: Annotated[int, Meta(description="Failed attempts in a row.")]
    reason: Annotated[str, Meta(description="The last error; empty if there was none.")]


class Queue(Struct, frozen=True, rename="camel"):
    """One work queue."""

    name: Annotated[str, Meta(description="The queue's name, as in the metrics `workqueue_*`.")]
    waiting: Annotated[int, Meta(description="Keys that wait for a worker.")]
    oldest: Annotated[float, Meta(description="The longest wait of a key so far, in seconds.")]
    running: Annotated[int, Meta(description="Keys that are being processed.")]
    longest: Annotated[float, Meta(description="The longest processing of a key so far, in seconds.")]
    delayed: Annotated[int, Meta(description="Keys that wait until a set time, such as that of a retry.")]
    failing: Annotated[int, Meta(description="Keys whose last attempt failed.")]


class Calls(Struct, frozen=True, rename="camel"):
    """The calls of one operation since this process started."""

    operation: Annotated[str, Meta(description="The operation, such as `instances.list`.")]
    succeeded: Annotated[int, Meta(description="Calls that succeeded.")]
    failed: Annotated[int, Meta(description="Calls that failed.")]
    results: Annotated[
        dict[str, int], Meta(description="The failed calls by result, as in `ccm_cloud_requests_total`.")
    ]
    mean: Annotated[float, Meta(description="How long a call took on average, in seconds.")]


class Budget(Struct, frozen=True, rename="camel"):
    """A rate limit of calls to the cloud."""

    group: Annotated[str, Meta(description="`all calls`, or the group, such as `load_balancers`.")]
    per_second: Annotated[float, Meta(description="Calls per second; 0 for no limit.")]
    burst: Annotated[float, Meta(description="Calls that may start at once.")]
    left: Annotated[float, Meta(description="Calls that may start now; below 0, calls wait.")]
    paused: Annotated[float, Meta(description="Seconds left of a pause that the cloud requested.")]


class Breaker(Struct, frozen=True, rename="camel"):
    """A group of calls that fails."""

    group: Annotated[str, Meta(description="The group, such as `instances`.")]
    open: Annotated[bool, Meta(description="Whether the group's calls are rejected without asking the cloud.")]
    failures: Annotated[int, Meta(description="Failures in a row.")]
    probe_in: Annotated[float, Meta(description="Seconds until one call is let through again.")]
    error: Annotated[str, Meta(description="The last error.")]


class CloudState(Struct, frozen=True, rename="camel", kw_only=True):
    """One cloud, as its gateway sees it."""

    name: Annotated[
        str, Meta(description="The cloud's provider, if the process has several clouds; empty otherwise.")
    ] = ""
    answered: Annotated[
        float | None, Meta(description="Seconds since the cloud's last answer; null if there was none.")
    ]
    failing: Annotated[
        float | None, Meta(description="For how many seconds the cloud has failed; null while it answers.")
    ]
    error: Annotated[str, Meta(description="The error while the cloud fails.")]
    under_way: Annotated[int, Meta(description="Calls in progress.")]
    concurrency: Annotated[int, Meta(description="How many calls may be in progress at a time.")]
    calls: Annotated[list[Calls], Meta(description="Calls by operation.")]
    budgets: Annotated[list[Budget], Meta(description="Rate limits.")]
    breakers: Annotated[list[Breaker], Meta(description="Groups of calls that fail.")]


class Held(Struct, frozen=True, rename="camel"):
    """An object whose deletion a rule holds back for now."""

    kind: Annotated[
        str,
        Meta(description="`Node`, `LoadBalancer`, `OrphanedLoadBalancer`, `HandedOverService` or `Route`."),
    ]
    name: Annotated[
        str,
        Meta(
            description="The name of a Node or of a load balancer, the destination of a route, or NAMESPACE/NAME or "
            "NAMESPACE/NAME/UID of a Service."
        ),
    ]
    rule: Annotated[str, Meta(description="The rule that holds the deletion, as a word.")]
    message: Annotated[str, Meta(description="The rule as a sentence.")]
    seconds: Annotated[float, Meta(description="How long the deletion has been held, in seconds.")]


class Series(Struct, frozen=True, rename="camel"):
    """Values of the last hour."""

    name: Annotated[str, Meta(description="What was measured, with its unit.")]
    values: Annotated[list[float], Meta(description="One value for each sample, the oldest first.")]


class Status(Struct, frozen=True, rename="camel", kw_only=True):
    """What one process answers at `/statusz`. A standby has no work, but reports Nodes and Services from its caches."""

    process: Annotated[Process, Meta(description="The process that reports.")]
    nodes: Annotated[list[Count], Meta(description="Nodes by state.")]
    services: Annotated[list[Count], Meta(description="Services of type LoadBalancer by state.")]
    unfinished: Annotated[list[Unfinished], Meta(description="The slowest and the stuck objects, the oldest first.")]
    unfinished_in_all: Annotated[
        int, Meta(description="How many such objects there are; `unfinished` has the first 25.")
    ]
    held: Annotated[list[Held], Meta(description="Held deletions, the oldest first.")]
    held_in_all: Annotated[int, Meta(description="How many such deletions there are; `held` has the first 25.")]
    queues: Annotated[list[Queue], Meta(description="Work queues.")]
    clouds: Annotated[list[CloudState], Meta(description="The clouds, in the order of `--cloud-provider`.")]
    step: Annotated[float, Meta(description="Seconds between two values of `history`.")]
    history: Annotated[list[Series], Meta(description="The last hour, as far as this process ran.")]


#: The maximum number of rows of a list of objects.
ROWS = 25


def duration(seconds: float) -> str:
    """Return a duration for people, such as 0.2 s, 45 s, 12 min, 3 h or 2 days."""
    for length, unit in ((86400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.1f} s" if 0 < seconds < 10 else f"{max(0.0, seconds):.0f} s"


def headline(status: Status) -> str:
    """Return the first sentence, which says who leads."""
    process = status.process
    if process.role == "alone":
        return f"{process.identity} works without leader election."
    if process.role == "leader":
        return f"{process.identity} leads: it holds the Lease {process.lease}."
    if process.leader:
        return f"{process.identity} is a standby. {process.leader} leads by the Lease {process.lease}."
    return f"{process.identity} is a standby. It knows no leader: nobody holds the Lease {process.lease}."


def advice(status: Status) -> list[str]:
    """Return what is not as it should be, one sentence each; [] if all is well."""
    lines = list(status.process.problems)
    for cloud in status.clouds:
        lines += _advice_about(cloud)
    if failing := _failing(status):
        lines.append(f"Objects whose last attempt failed: {failing}.")
    if status.held_in_all:
        lines.append(f"Deletions that a rule holds: {status.held_in_all}.")
    return lines


def _failing(status: Status) -> int:
    """Return how many objects fail. An object may have one row for each reason, so count each object once. If the list
    was cut off, return the sum of the queues, in which an object counts once for each cloud."""
    if status.unfinished_in_all > len(status.unfinished):
        return sum(queue.failing for queue in status.queues)
    return len({(each.kind, each.name) for each in status.unfinished if each.state == "failing"})


def subject(cloud: CloudState) -> str:
    """Return how the start of a sentence names the cloud."""
    return f"Cloud {cloud.name}" if cloud.name else "The cloud"


def _advice_about(cloud: CloudState) -> list[str]:
    lines = []
    if cloud.failing is not None:
        lines.append(f"{subject(cloud)} has failed for {duration(cloud.failing)}: {cloud.error}")
    lines += [
        f"{subject(cloud)} failed {breaker.failures} times in a row: calls of the group {breaker.group} are not made "
        f"for {duration(breaker.probe_in)}."
        for breaker in cloud.breakers
        if breaker.open
    ]
    return lines + [
        f"{subject(cloud)} asked for a pause of {budget.group}: {duration(budget.paused)} are left."
        for budget in cloud.budgets
        if budget.paused > 0
    ]
