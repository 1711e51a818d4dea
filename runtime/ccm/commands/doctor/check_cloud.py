# SPDX-License-Identifier: Apache-2.0
"""Checks the cloud's answers, and what they mean for Nodes, Services, load balancers and routes. No I/O."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence

from ccm.cloud import (
    CloudError,
    ConfigError,
    Forbidden,
    Instance,
    NotImplementedByCloud,
    Quota,
    QuotaExceeded,
    RateLimited,
    Unauthorized,
)
from ccm.controllers.nodes import node_rules
from ccm.controllers.nodes.ownership_rules import overlap
from ccm.controllers.services.class_rules import ServedClasses
from ccm.engine.objects import Node, Service, object_key

from ..asking.answers import Action, Outlook, counted
from ..asking.explanation import Event
from .diagnosis import Check, State, some

CREDENTIALS, QUOTAS, NODES, SERVICES, OWNERS, PLAN = "credentials", "quotas", "nodes", "services", "owners", "plan"
NO_QUOTAS = "this provider cannot read quotas; one that is used up shows in Events of Services"
RAISE_QUOTA = "raise the quota of the project, or remove what nobody needs"
#: The used share of a quota from which on there is a warning.
NEARLY = 0.9


def answered(answers: Mapping[str, CloudError | None], provider: str, subject: str = "the cloud") -> list[Check]:
    """Check the credentials. `answers`: each kind of call, such as "list instances" -> its error, None if the cloud
    answered. `subject`: how a sentence names the cloud."""
    good = [what for what, error in answers.items() if error is None]
    checks = []
    if good:
        text = f"provider {provider}: the cloud accepts the credentials, and answers: {', '.join(good)}"
        checks.append(Check(CREDENTIALS, State.OK, text))
    by_error: dict[str, tuple[CloudError, list[str]]] = {}
    for what, error in answers.items():
        if error is not None:
            by_error.setdefault(str(error), (error, []))[1].append(what)
    return [*(_failed(error, what, subject) for error, what in by_error.values()), *checks]


def overlaps(listed: Mapping[str, Iterable[Instance]]) -> list[Check]:
    """Check that no two clouds have a machine in common, because then both reach one project.

    `listed`: cloud -> its instances.
    """
    pairs = itertools.combinations(listed, 2)
    sentences = [overlap(later, listed[later], first, listed[first]) for first, later in pairs]
    problems = [each.partition(". ") for each in sentences if each]
    checks = [Check(CREDENTIALS, State.PROBLEM, text, f"{to_do}: one is not served") for text, _, to_do in problems]
    if not checks and len(listed) > 1:
        return [Check(CREDENTIALS, State.OK, f"{' and '.join(listed)} have no machine in common")]
    return checks


def quotas(listed: Sequence[Quota] | CloudError | None, subject: str = "the cloud") -> list[Check]:
    """Check the quotas. `listed`: what the cloud said; None if the provider cannot read quotas. `subject`: how a
    sentence names the cloud."""
    if listed is None:
        return [Check(QUOTAS, State.NOTE, NO_QUOTAS)]
    if isinstance(listed, (Unauthorized, Forbidden, NotImplementedByCloud)):
        return [Check(QUOTAS, State.NOTE, f"{subject} does not show them, which no controller needs: {listed}")]
    if isinstance(listed, CloudError):
        return [Check(QUOTAS, State.UNKNOWN, f"{subject} gives no answer: list quotas: {listed}")]
    checks, texts = [], []
    for quota in listed:
        text = f"{quota.kind}: {quota.used} of {quota.limit}"
        if quota.used >= quota.limit:
            checks.append(Check(QUOTAS, State.WARNING, f"a quota is used up: {text}", RAISE_QUOTA))
        elif quota.used >= NEARLY * quota.limit:
            checks.append(Check(QUOTAS, State.WARNING, f"a quota is nearly used up: {text}", RAISE_QUOTA))
        else:
            texts.append(text)
    if texts:
        checks.append(Check(QUOTAS, State.OK, "; ".join(texts)))
    return checks or [Check(QUOTAS, State.OK, f"{subject} names no quota")]


def _failed(error: CloudError, what: Sequence[str], subject: str) -> Check:
    text = f"{', '.join(what)}: {error}"
    if isinstance(error, (Unauthorized, Forbidden, ConfigError)):
        to_do = "correct the credentials or their permissions in --cloud-config; the controller reads the file again"
        return Check(CREDENTIALS, State.PROBLEM, f"{subject} refuses: {text}", to_do)
    if isinstance(error, RateLimited):
        wait = f" for {error.retry_after:.0f} s" if error.retry_after else ""
        to_do = "find out who else calls the cloud with these credentials; the controller waits and tries again"
        return Check(CREDENTIALS, State.WARNING, f"{subject} throttles{wait}: {text}", to_do)
    if isinstance(error, QuotaExceeded):
        return Check(CREDENTIALS, State.PROBLEM, f"a quota is used up: {text}", RAISE_QUOTA)
    to_do = "check the endpoint in --cloud-config and the network; the controller keeps what is there meanwhile"
    return Check(CREDENTIALS, State.UNKNOWN, f"{subject} gives no answer: {text}", to_do)


def nodes(every: Sequence[Node], outlooks: Iterable[Outlook]) -> list[Check]:
    """Count Nodes by state, and report those that need attention. `outlooks`: those of the node controllers; empty if
    the cloud was not asked."""
    by_name = {outlook.name: outlook for outlook in outlooks if outlook.kind == "Node"}
    counts: dict[str, int] = {}
    for node in every:
        waits, ready = node_rules.is_uninitialized(node), node_rules.is_ready(node)
        name = "waiting for initialisation" if waits else "Ready" if ready else "not Ready"
        counts[name] = counts.get(name, 0) + 1
    text = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
    checks = [Check(NODES, State.OK, f"{counted(len(every), 'Node')}: {text}" if every else "no Nodes")]
    groups: dict[tuple[Action, str], list[Outlook]] = {}
    for node_outlook in by_name.values():
        if node_outlook.reason and node_outlook.action in (Action.BLOCKED, Action.WAIT, Action.DELETE, Action.UNKNOWN):
            groups.setdefault((node_outlook.action, node_outlook.reason), []).append(node_outlook)
    states = {Action.BLOCKED: State.PROBLEM, Action.UNKNOWN: State.UNKNOWN}
    for (action, reason), several in sorted(groups.items()):
        names, first = some(each.name for each in several), several[0]
        sentence = f"{reason}: {names}: {first.because}"
        checks.append(Check(NODES, states.get(action, State.WARNING), sentence, f"ccm explain node {first.name}"))
    odd = [each for each in by_name.values() if each.notes]
    if odd:
        sentence = f"{some(each.name for each in odd)}: {odd[0].notes[0]}"
        checks.append(Check(NODES, State.WARNING, sentence, f"ccm explain node {odd[0].name}"))
    if not by_name:
        stuck = [node.metadata.name for node in every if node_rules.is_uninitialized(node)]
        if stuck:
            sentence = f"{some(stuck)} wait for their initialisation"
            checks.append(Check(NODES, State.WARNING, sentence, f"ccm explain node {sorted(stuck)[0]}"))
    return checks


def services(
    every: Iterable[Service], events: Iterable[Event], outlooks: Iterable[Outlook], classes: ServedClasses
) -> list[Check]:
    """Report Services that wait for a load balancer, with the latest failure, and load balancers that differ from their
    Services. `events`: the Events of failed syncs."""
    latest: dict[str, Event] = {}
    for event in sorted(events, key=lambda each: each.last_timestamp or ""):
        if event.source.component == "service-controller":
            latest[event.involved_object.uid] = event
    served = [each for each in every if classes.include(each)]
    waiting = [each for each in served if not each.status.load_balancer.ingress]
    checks = []
    for service in sorted(waiting, key=object_key):
        name, failure = object_key(service), latest.get(service.metadata.uid)
        to_do = f"ccm explain service {name}"
        if failure is None:
            checks.append(Check(SERVICES, State.WARNING, f"{name} waits for a load balancer", to_do))
        else:
            text = f"{name} waits for a load balancer: {failure.message}"
            checks.append(Check(SERVICES, State.PROBLEM, text, to_do))
    failed = [outlook for outlook in outlooks if outlook.kind == "LoadBalancer" and outlook.action is Action.UPDATE]
    for service_outlook in failed:
        text = f"load balancer of {service_outlook.name}: {service_outlook.because}"
        checks.append(Check(SERVICES, State.WARNING, text, f"ccm explain service {service_outlook.name}"))
    text = f"{len(served) - len(waiting)} of {len(served)} Services of type LoadBalancer have an address"
    return [*checks, Check(SERVICES, State.OK, text)]


def owners(outlooks: Sequence[Outlook], *, asked: bool) -> list[Check]:
    """Report load balancers and routes that nobody owns, routes that the controller deletes, and what is kept without a
    Service. `asked`: whether the cloud listed them."""
    lost = [outlook for outlook in outlooks if outlook.reason in ("Orphan", "Unclaimed")]
    going = [outlook for outlook in outlooks if outlook.kind == "Route" and outlook.action is Action.DELETE]
    checks = [
        Check(OWNERS, State.WARNING, f"{_noun(each)} {each.name}: {each.because}", each.to_do or each.when)
        for each in (*lost, *going)
    ]
    if kept := [outlook for outlook in outlooks if outlook.reason == "Kept"]:
        text = f"kept without a Service: {some(each.name for each in kept)}: {kept[0].notes[0]}"
        checks.append(Check(OWNERS, State.OK, text))
    if checks or not asked:
        return checks
    return [Check(OWNERS, State.OK, "every load balancer and route of this cluster has an owner")]


def _noun(outlook: Outlook) -> str:
    return "load balancer" if outlook.kind == "LoadBalancer" else "route"


def planned(outlooks: Iterable[Outlook]) -> list[Check]:
    """Report how much the controller would change."""
    changes = [outlook for outlook in outlooks if outlook.action in (Action.CREATE, Action.UPDATE, Action.DELETE)]
    if not changes:
        return [Check(PLAN, State.OK, "the controller would change nothing now")]
    text = (
        f"the controller would change {counted(len(changes), 'object')} now: {some(change.name for change in changes)}"
    )
    return [Check(PLAN, State.WARNING, text, "ccm plan, with the same flags, names each change")]
