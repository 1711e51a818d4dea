# SPDX-License-Identifier: Apache-2.0
"""`ccm explain service NAMESPACE/NAME`: what happens to the Service's load balancer, and why."""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Iterable, Sequence

from ccm.cloud import Backend, CloudError, LoadBalancer
from ccm.controllers.nodes.vouching_rules import Vouched
from ccm.controllers.services import backend_rules
from ccm.controllers.services import service_rules as rules
from ccm.controllers.services.class_rules import ServedClasses
from ccm.controllers.services.drain_rules import Mode, leaving
from ccm.controllers.services.keep_rules import outlives_it
from ccm.controllers.services.service import ServiceController
from ccm.controllers.services.service_condition_rules import shown
from ccm.engine.objects import Service

from ..asking.answers import Action, Outlook
from ..asking.explanation import Explanation, Looked, Told, event_line, together
from ..asking.leading import ago
from ..outlooks.balancer_reads import BalancerReads
from ..outlooks.gathering import Gathered, Survey, not_run
from ..outlooks.judging import Judging
from ..outlooks.service_outlook import Evidence, service_outlook

#: The component of the Events about Services.
COMPONENTS = ("service-controller",)
#: Reasons of Events that explain why a Service has no load balancer.
FAILED = ("SyncLoadBalancerFailed", "UpdateLoadBalancerFailed", "DeleteLoadBalancerFailed")
#: Number of Nodes that an answer names.
NAMED = 10


def state_of(service: Service, reports: Sequence[Told], now: datetime.datetime, classes: ServedClasses) -> list[str]:
    """Return the Service's state, in sentences. `reports`: the Events about the Service. `classes`: the classes
    of the Services that this controller serves."""
    since = ago(service.metadata.creation_timestamp, now)
    meta, spec = service.metadata, service.spec
    lines = [f"Service {meta.namespace}/{meta.name}: type {spec.type}, created {since}"]
    addresses = [ingress.ip or ingress.hostname for ingress in service.status.load_balancer.ingress]
    if addresses:
        lines.append(f"Its load balancer's address: {', '.join(addresses)}")
    elif classes.include(service):
        lines.append("It waits for the address of a load balancer.")
        failed = [report for report in reports if report.reason in FAILED]
        lines += [f"  {event_line(failed[-1], now)}"] if failed else []
        if not failed and (condition := shown(service)) is not None:
            lines.append(f"  {ago(condition.last_transition_time, now)}: {condition.message}")
    if classes.exclude(service):
        whose = f"Its class {spec.load_balancer_class}" if spec.load_balancer_class else "A Service without a class"
        lines.append(f"{whose} is for another controller.")
    elif spec.load_balancer_class:
        lines.append(f"Its class {spec.load_balancer_class} is served by this controller (--load-balancer-class).")
    if outlives := outlives_it(meta.annotations):
        lines.append(outlives)
    if meta.deletion_timestamp:
        lines.append(f"It is being deleted and waits for its finalizers: {', '.join(meta.finalizers) or 'none'}.")
    return lines


def waits(service: Service, classes: ServedClasses) -> bool:
    """Return whether the state alone shows that something is left to do."""
    has_address = bool(service.status.load_balancer.ingress)
    return rules.is_to_be_released(service, classes) or (classes.include(service) and not has_address)


async def ask_clouds(service: Service, survey: Survey) -> Explanation:
    """Ask the clouds whose controllers the Service concerns, or all clouds if it concerns none. Return what they say
    and what the runtime would do."""
    concerned = [part for part in survey.parts if rules.concerns_us(service, part.classes)]
    parts = concerned or survey.parts
    return together([each.name for each in parts], await asyncio.gather(*(ask_cloud(service, each) for each in parts)))


async def ask_cloud(service: Service, survey: Gathered) -> Explanation:
    """Return what the cloud says and what the runtime would do; without state, leader and Events."""
    name = f"{service.metadata.namespace}/{service.metadata.name}"
    explanation = Explanation(kind="Service", name=name, state=[])
    if survey.flags_of(ServiceController.name) is None:
        why = not_run(survey.options, survey.gateway).get(ServiceController.name, "it does not run")
        outlook = Outlook(
            kind="LoadBalancer",
            name=name,
            action=Action.BLOCKED if rules.concerns_us(service, survey.classes) else Action.NOTHING,
            because=f"{ServiceController.name} does not run: {why}",
            rule="the service controller serves Services of type LoadBalancer",
            flag="--controllers",
        )
        explanation.outlooks.append(outlook)
        return explanation
    blind = survey.refused or (survey.judging if isinstance(survey.judging, CloudError) else None)
    if blind is not None:
        where = _provider(survey)
        explanation.looked_up.append(Looked("the cloud", where, f"no answer: {blind}"))
        explanation.outlooks.append(service_outlook(service, blind, survey.classes))
        return explanation
    backends = survey.backends()
    reads = BalancerReads(survey.context, survey.services or [service], backends, survey.classes)
    await reads.list()
    evidence = await reads.about(service, compare=True)
    explanation.looked_up.extend(_looked(service, survey, evidence, reads))
    implausible_because = survey.judging.implausible_because if isinstance(survey.judging, Judging) else ""
    explanation.outlooks.append(
        service_outlook(service, evidence, survey.classes, implausible_because, former=survey.former_classes)
    )
    return explanation


def _looked(
    service: Service, survey: Gathered, evidence: Evidence | CloudError, reads: BalancerReads
) -> Iterable[Looked]:
    where, cluster = _provider(survey), survey.options.cluster_name
    if survey.later is not None and survey.classes.include(service):
        serving = reads.backends(rules.tolerant_spec(service, cluster))
        yield Looked("the Nodes behind it", f"API server, {where}", serving_line(serving, survey.later))
    what, listing = "its load balancer, by its UID", f"{where}, listing of cluster {cluster}"
    if isinstance(evidence, CloudError):
        yield Looked(what, listing, f"no answer: {evidence}")
        return
    yield Looked(what, listing, _balancer(evidence.listed))
    if evidence.read is not None:
        answer = str(evidence.read) if isinstance(evidence.read, CloudError) else _balancer(evidence.read)
        yield Looked("the same, in a read of its own", where, answer)
    if isinstance(evidence.deviations, CloudError):
        yield Looked("differences from the Service", where, f"no answer: {evidence.deviations}")
    elif evidence.deviations is not None:
        yield Looked("differences from the Service", where, "; ".join(evidence.deviations) or "none")


def _provider(survey: Gathered) -> str:
    return f"provider {survey.options.cloud_provider}"


def _balancer(balancer: LoadBalancer | None) -> str:
    if balancer is None:
        return "none"
    state = "ready" if balancer.ready else "not ready"
    addresses = ", ".join(ingress.ip or ingress.hostname for ingress in balancer.ingress) or "no address"
    return f"{balancer.name}: {state}, {addresses}"


def serving_line(serving: Sequence[Backend], judging: Judging) -> str:
    """Return which Nodes serve, which of these drain, and why other Nodes do not serve."""
    reasons, nodes = [], judging.nodes
    names = {each.node_name for each in serving}
    for node in nodes:
        if node.metadata.name not in names:
            answer = backend_rules.service_of(node, judging.judge)
            why = "it is not Ready" if isinstance(answer, Vouched) else answer
            reasons.append(f"not {node.metadata.name}: {why}")
    draining = {each.node_name for each in serving if each.draining}
    goes = {each.metadata.name: leaving(each, Mode.CORDONED) for each in nodes if each.metadata.name in draining}
    drains = [f"{name} drains: {why.because}" for name, why in goes.items() if why is not None]
    some = ", ".join(each.node_name for each in serving[:NAMED]) + (", ..." if len(serving) > NAMED else "")
    shown = reasons[:NAMED] + ([f"and {len(reasons) - NAMED} others"] if len(reasons) > NAMED else [])
    count = f"{len(serving)} of {len(nodes)}" + (f": {some}" if some else "")
    return "; ".join([count, *drains[:NAMED], *shown])
