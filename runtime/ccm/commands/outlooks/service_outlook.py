# SPDX-License-Identifier: Apache-2.0
"""What the service controller would do with one Service now. No I/O; `service_rules` decides."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from ccm.base.durations import spell
from ccm.cloud import (
    CloudError,
    Conflict,
    ImplementedElsewhere,
    Invalid,
    Kept,
    KeptLoadBalancer,
    LoadBalancer,
    NotFound,
    RetryAfter,
)
from ccm.controllers.services import class_rules, keep_rules
from ccm.controllers.services import service_rules as rules
from ccm.controllers.services.class_rules import ServedClasses
from ccm.controllers.services.service import ServiceOptions
from ccm.controllers.services.service_rules import Step
from ccm.controllers.shared import orphan_rules
from ccm.engine.absence_rules import GRACE
from ccm.engine.objects import Service

from ..asking.answers import ASK_DOCTOR, Action, Outlook, counted

UNCHANGED = "a load balancer whose fingerprint is that of its Service is not written"
WRITTEN = "a load balancer with another fingerprint, or with none, is written as a whole"
NO_COMPARISON = "the provider cannot say what differs, so all of it is written"


@dataclass(frozen=True)
class Evidence:
    """What the cloud said about the load balancer of one Service.

    `step`: the result of `service_rules.next_step`; None if the Service has a value that cannot be used, or wants no
    load balancer. `problem`: that value, in words. `listed`: the load balancer in the listing, None if it is not there.
    `read`: the load balancer from a read of its own, or the error; None if there was no need to read it. `deviations`:
    what differs from what would be written; None if it was not compared, or if the provider cannot compare. `backends`:
    how many Nodes serve. `held`: why a load balancer that nobody wants must not be deleted. `keep`: which part of it
    stays.
    """

    step: Step | None = None
    problem: str = ""
    listed: LoadBalancer | None = None
    read: LoadBalancer | CloudError | None = None
    deviations: Sequence[str] | CloudError | None = None
    backends: int = 0
    held: str = ""
    keep: Kept | None = None


def service_outlook(
    service: Service,
    evidence: Evidence | CloudError,
    classes: ServedClasses,
    implausible_because: str = "",
    *,
    former: Collection[str] = (),
) -> Outlook:
    """Return the outlook of one Service. `evidence`: an error if the cloud's load balancers could not be listed.
    `classes`: the classes of the Services that this controller serves; `former`: the classes that leaders served.
    `implausible_because`: why the cloud may be another project, from `first_listing`; "" if it is believed."""
    if (
        class_rules.is_handed_over(service, classes, former)
        and isinstance(evidence, Evidence)
        and evidence.listed is not None
    ):
        return _handed_over(service, evidence.listed, classes)
    if not rules.wants_it_served(service, classes):
        return _unwanted(service, evidence, classes, implausible_because)
    if isinstance(evidence, CloudError):
        return _unknown(service, evidence)
    if evidence.step is None:
        return _refused(service, evidence.problem)
    if implausible_because and (evidence.step is not Step.ADOPT):
        return _outlook(
            service,
            Action.BLOCKED,
            reason="ListingNotBelieved",
            because=implausible_because,
            rule="nothing is written before a listing has at least half of the Ready Nodes",
            flag="--cloud-config",
            to_do="check the project, the region and the filter in --cloud-config",
        )
    outlook = _adopted(service, evidence) if evidence.step is Step.ADOPT else _written(service, evidence)
    if evidence.backends == 0 and outlook.action is not Action.UNKNOWN:
        notes = ["no Node serves it: there are no available nodes (Event UnAvailableLoadBalancer)"]
        return _with_notes(outlook, notes)
    return outlook


def _adopted(service: Service, evidence: Evidence) -> Outlook:
    """Return the outlook of a load balancer whose fingerprint is right: nothing is written to the cloud, unless the
    load balancer failed there."""
    assert evidence.listed is not None
    changes = _status_changes(service, evidence.listed)
    name = evidence.listed.name
    if evidence.listed.ready:
        action = Action.UPDATE if changes else Action.NOTHING
        because = f"load balancer {name} is as its Service wants it"
        return _outlook(service, action, changes=changes, because=because, rule=UNCHANGED, when=_at_once(changes))
    if isinstance(evidence.read, Conflict):
        return _failed(service, evidence.read)
    if isinstance(evidence.read, CloudError) and not isinstance(evidence.read, (RetryAfter, NotFound)):
        return _unknown(service, evidence.read)
    because = f"the cloud is still working on load balancer {name}"
    when = "when the cloud is done; the controller reads it again every few seconds"
    return _outlook(service, Action.WAIT, because=because, when=when, rule=UNCHANGED)


def _refused(service: Service, problem: str) -> Outlook:
    return _outlook(
        service, Action.BLOCKED, reason="SyncLoadBalancerFailed", because=f"Error syncing load balancer: {problem}",
        to_do="correct the field of the Service that the reason names, or do what it says",
        rule="a Service with a value that cannot be used gets no change", when="when the Service changes",
    )  # fmt: skip


def _unknown(service: Service, error: CloudError) -> Outlook:
    return _outlook(service, Action.UNKNOWN, reason="CloudNotAvailable", because=str(error), to_do=ASK_DOCTOR)


def _failed(service: Service, error: Conflict) -> Outlook:
    rule = "a load balancer that failed in the cloud is replaced"
    change = "the load balancer is deleted, and created again"
    when = "at the next audit (--orphan-audit-period), or when the Service or a Node changes"
    return _outlook(service, Action.UPDATE, changes=[change], because=str(error), rule=rule, when=when)


def _written(service: Service, evidence: Evidence) -> Outlook:
    for error in (evidence.read, evidence.deviations):
        if isinstance(error, Invalid):
            return _refused(service, str(error))
        if isinstance(error, ImplementedElsewhere):
            rule = "what another controller serves is left to it"
            return _outlook(service, Action.NOTHING, because=str(error), rule=rule)
    if evidence.listed is None and isinstance(evidence.read, NotFound):
        change = f"a load balancer is created, with {counted(evidence.backends, 'Node')} behind it"
        rule = "a Service of type LoadBalancer gets a load balancer, unless its class is another controller's"
        return _outlook(
            service,
            Action.CREATE,
            changes=[change, *_finalizer(service)],
            because="the cloud has none for it",
            rule=rule,
            when="at once",
        )
    if isinstance(evidence.read, Conflict):
        return _failed(service, evidence.read)
    if isinstance(evidence.read, CloudError) and not isinstance(evidence.read, RetryAfter):
        return _unknown(service, evidence.read)
    there = evidence.listed or (evidence.read if isinstance(evidence.read, LoadBalancer) else None)
    name = there.name if there is not None else "of this Service"
    if isinstance(evidence.deviations, CloudError):
        changes, note = [f"load balancer {name} is written"], [f"what differs is unknown: {evidence.deviations}"]
    elif evidence.deviations is None:
        changes, note = [f"load balancer {name} is written"], [NO_COMPARISON]
    elif evidence.deviations:
        changes, note = [f"load balancer {name}: {deviation}" for deviation in evidence.deviations], []
    else:
        changes, note = [f"only the fingerprint of load balancer {name} is written"], []
    because = f"load balancer {name} does not have the fingerprint of its Service"
    return _outlook(
        service,
        Action.UPDATE,
        changes=[*changes, *_finalizer(service)],
        because=because,
        rule=WRITTEN,
        when="at once",
        notes=note,
    )


def _handed_over(service: Service, listed: LoadBalancer, classes: ServedClasses) -> Outlook:
    why = class_rules.why_kept(service, listed.name, classes)
    rule = "a load balancer whose Service was left to another controller by a flag stays"
    return _outlook(service, Action.NOTHING, reason="ClassNotServed", because=why, rule=rule)


def _unwanted(
    service: Service, evidence: Evidence | CloudError, classes: ServedClasses, implausible_because: str
) -> Outlook:
    spec = service.spec
    listed = evidence.listed if isinstance(evidence, Evidence) else None
    if not rules.is_to_be_released(service, classes) and listed is None:
        if not classes.exclude(service):
            why = f"its type is {spec.type}"
        else:
            why = f"its class is {spec.load_balancer_class}" if spec.load_balancer_class else "it has no class"
        rule = f"only Services of type LoadBalancer are served, {classes}"
        return _outlook(service, Action.NOTHING, because=why, rule=rule)
    if isinstance(evidence, CloudError):
        return _unknown(service, evidence)
    rule = "a Service that wants no load balancer loses it, and then the finalizer"
    if evidence.held:
        to_do = "correct or remove the annotation that the reason names"
        return _outlook(
            service, Action.BLOCKED, reason="LoadBalancerProtected", because=evidence.held, to_do=to_do, rule=rule
        )
    is_ours = rules.FINALIZER in service.metadata.finalizers
    if implausible_because and listed is None and is_ours:
        return _outlook(
            service,
            Action.BLOCKED,
            reason="ListingNotBelieved",
            because=f"the cloud has no load balancer of it, and may be another project: {implausible_because}",
            rule="a cloud without the load balancer is believed if it lists at least half of the Ready Nodes",
            flag="--cloud-config",
            to_do=f"correct --cloud-config; if the load balancer really is gone, remove {rules.FINALIZER} by hand",
        )
    changes = [_end_of(listed.name if listed else "", evidence.keep)]
    if is_ours:
        changes.append(f"finalizer {rules.FINALIZER} is removed")
    because = "it is being deleted" if service.metadata.deletion_timestamp else "it wants no load balancer any more"
    return _outlook(service, Action.DELETE, changes=changes, because=because, rule=rule, when="at once")


def _end_of(name: str, keep: Kept | None) -> str:
    """Return what becomes of a load balancer that nobody wants. `name`: "" if the cloud lists none."""
    if keep is Kept.LOAD_BALANCER:
        return f"load balancer {name} stays without backends" if name else "what is left of a load balancer stays"
    deleted = f"load balancer {name} is deleted" if name else "what is left of a load balancer is deleted"
    return f"{deleted}, and its address stays" if keep is Kept.ADDRESS else deleted


def kept_outlooks(kept: Iterable[KeptLoadBalancer]) -> list[Outlook]:
    """Return the outlooks of load balancers and addresses that are kept because their former Services asked for it."""
    return [
        Outlook(
            kind="LoadBalancer",
            name=each.name or each.address,
            action=Action.NOTHING,
            reason="Kept",
            because=f"it is kept for namespace {each.namespace}, and no Service has it",
            rule="what a Service asked to keep stays until a Service takes it back, or a person deletes it",
            notes=[keep_rules.way_back(each)],
        )
        for each in kept
    ]


def orphan_outlooks(
    listed: Mapping[str, LoadBalancer], services: Collection[str], options: ServiceOptions, cluster: str
) -> list[Outlook]:
    """Return the outlooks of this cluster's load balancers whose Service does not exist. `listed`: UID of a Service ->
    its load balancer; `services`: the UIDs of all Services."""
    uids = orphan_rules.orphans(orphan_rules.look({}, listed, services, -GRACE), 0.0)
    held = options.delete_orphans and not orphan_rules.balancers_to_delete(uids, listed)
    deletes = options.delete_orphans and not held and options.audit_period > 0
    flags = (
        f"--orphan-audit-period={spell(options.audit_period)} "
        f"--delete-orphaned-load-balancers={str(options.delete_orphans).lower()}"
    )

    def outlook(uid: str, orphan: LoadBalancer) -> Outlook:
        goes = deletes and not orphan.protected
        way_out = orphan_rules.way_out(cluster, delete=options.delete_orphans, held=held, protected=orphan.protected)
        return Outlook(
            kind="LoadBalancer",
            name=orphan.name,
            action=Action.DELETE if goes else Action.BLOCKED,
            changes=[_end_of(orphan.name, orphan.keep)] if goes else [],
            reason="Orphan",
            because=f"it belongs to the Service with UID {uid}, which does not exist",
            rule=f"a load balancer without its Service for {GRACE:.0f} s is an orphan, and is reported",
            flag=flags,
            when=f"{spell(GRACE)} after the first audit that sees it" if goes else "",
            to_do="" if goes else way_out,
        )

    return [outlook(uid, listed[uid]) for uid in uids]


def _status_changes(service: Service, balancer: LoadBalancer) -> list[str]:
    changes = _finalizer(service)
    wire = rules.ingress_wire(balancer.ingress)
    if balancer.ready and not rules.same_ingress(service.status.load_balancer.ingress, wire):
        new = ", ".join(ingress.ip or ingress.hostname for ingress in balancer.ingress) or "none"
        old = ", ".join(ingress.ip or ingress.hostname for ingress in service.status.load_balancer.ingress) or "none"
        changes.append(f"status.loadBalancer.ingress: {old} -> {new}")
    return changes


def _finalizer(service: Service) -> list[str]:
    return [] if rules.FINALIZER in service.metadata.finalizers else [f"finalizer {rules.FINALIZER} is added"]


def _at_once(changes: Sequence[str]) -> str:
    return "at once" if changes else ""


def _outlook(service: Service, action: Action, **more: Any) -> Outlook:
    meta = service.metadata
    return Outlook(kind="LoadBalancer", name=f"{meta.namespace}/{meta.name}", action=action, **more)


def _with_notes(outlook: Outlook, notes: list[str]) -> Outlook:
    return msgspec.structs.replace(outlook, notes=[*outlook.notes, *notes])
