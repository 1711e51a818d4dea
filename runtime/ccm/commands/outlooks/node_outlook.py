# SPDX-License-Identifier: Apache-2.0
"""What the node controllers would do with one Node now. No I/O; the decisions are those of the controllers' rules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from ccm.base.durations import spell
from ccm.cloud import CloudError, Conflict, Instance, InstanceState, NotFound
from ccm.controllers.nodes import node_rules
from ccm.controllers.nodes.node import NodeOptions
from ccm.controllers.nodes.node_label_rules import RECORD, Refresh, others_labels
from ccm.controllers.nodes.node_lifecycle import SHUTDOWN, LifecycleOptions
from ccm.controllers.nodes.node_rules import NodeRuleError, Plan
from ccm.engine.objects import Node, NodeAddress

from ..asking.answers import ASK_DOCTOR, Action, Outlook
from .judging import Judging

RENAME = "give the Node and its instance the same name, or correct --cloud-config if it names another project"
REGISTER = "if its machine was replaced, delete the Node and restart its kubelet, so that it registers again"
AGAIN = "the controller asks again at least once a minute, and at once when the Node's providerID changes"
REFRESH_RULE = "a refresh writes addresses that differ from the instance's, and labels (--refresh-node-labels)"
KEPT_LABELS = "labels of an initialised Node are kept, as upstream does"
NOT_RECORDED = "the controller has no record of that value, so it is kept; remove the label to get the instance's value"


def node_outlook(node: Node, judging: Judging, options: NodeOptions, provider: str) -> Outlook:
    """Return what the node controller would do; the outlooks of the lifecycle controller are not in it."""
    if node.metadata.deletion_timestamp:
        return _outlook(node, Action.NOTHING, because="it is being deleted")
    if node_rules.is_uninitialized(node):
        return _initialisation(node, judging, options, provider)
    return _refresh(node, judging, options)


def _initialisation(node: Node, judging: Judging, options: NodeOptions, provider: str) -> Outlook:
    rule = f"the taint {node_rules.UNINITIALIZED_TAINT} stays until the cloud has said which machine the Node is"
    blocked: dict[str, Any] = {"action": Action.BLOCKED, "rule": rule, "when": AGAIN}
    provider_id = node.spec.provider_id
    if provider_id and not judging.owns(provider_id):
        to_do = "drain and delete the Node and restart its kubelet; do not do this to a server of k3s or RKE2"
        because = node_rules.foreign_provider_id(node, provider)
        rule = "a Node of another provider is left alone"
        return _outlook(
            node, Action.BLOCKED, rule=rule, flag="--cloud-provider", reason="ForeignProviderID", because=because,
            to_do=to_do,
        )  # fmt: skip
    instance = judging.listed(node)
    if isinstance(instance, NotFound):
        near = judging.nearest(node.metadata.name)
        notes = [f"similar names in the cloud: {', '.join(near)}"] if near and not provider_id else []
        to_do = REGISTER if provider_id else RENAME
        return _outlook(node, reason="InstanceNotFound", because=str(instance), to_do=to_do, notes=notes, **blocked)
    if isinstance(instance, Conflict):
        to_do = "rename all instances but one, or give the Node the providerID of its machine (--provider-id)"
        return _outlook(node, reason="CloudNotAvailable", because=str(instance), to_do=to_do, **blocked)
    if isinstance(instance, CloudError):
        return unknown(node, instance)
    if wrong := judging.contradiction(node, instance):
        return _outlook(node, reason=wrong.reason, because=wrong.message, to_do="see the reason", **blocked)
    try:
        plan = node_rules.plan_initialisation(
            node, instance, legacy=options.legacy_labels, refresh=options.refresh_labels
        )
    except NodeRuleError as error:
        return _outlook(node, reason=error.reason, because=str(error), to_do="see the reason", **blocked)
    return _outlook(
        node,
        Action.UPDATE,
        changes=writes(node, plan),
        because=f"it waits for its initialisation, and it is instance {instance.provider_id}",
        rule=rule,
        flag=f"--legacy-node-labels={str(options.legacy_labels).lower()}",
        when="at once",
        notes=_about(instance),
    )


def _refresh(node: Node, judging: Judging, options: NodeOptions) -> Outlook:
    legacy = options.legacy_labels
    if not judging.owns(node.spec.provider_id):
        return _not_ours(node, legacy=legacy)
    instance = judging.listed(node)
    if isinstance(instance, NotFound):
        if not node_rules.is_ready(node):
            return _outlook(node, Action.NOTHING, reason="InstanceNotFound", because=str(instance))
        because = node_rules.ready_but_not_listed(instance, judging.namesakes(node.metadata.name))
        rule = "a Ready Node is never deleted, whatever the cloud reports"
        to_do = f"check --cloud-config; {REGISTER}"
        return _outlook(
            node, Action.BLOCKED, reason="InstanceNotListed", because=because, rule=rule, to_do=to_do, when=AGAIN
        )
    if isinstance(instance, CloudError):
        return unknown(node, instance)
    if wrong := judging.contradiction(node, instance):
        return _outlook(
            node,
            Action.BLOCKED,
            reason=wrong.reason,
            because=wrong.message,
            rule="nothing is written to a Node that is not the instance's machine",
            to_do="see the reason",
        )
    plan = node_rules.plan_repair(node, instance, legacy=legacy, refresh=options.refresh_labels)
    notes = _about(instance) + kept_labels(node, instance, options)
    flag = f"--node-status-update-frequency={spell(options.refresh)}"
    if plan.problem:
        to_do = "correct the kubelet's --node-ip or the instance's network"
        return _outlook(
            node,
            Action.BLOCKED,
            changes=writes(node, plan),
            reason="AddressesNotUpdated",
            because=plan.problem,
            rule=REFRESH_RULE,
            flag=flag,
            to_do=to_do,
            notes=notes,
        )
    if plan.is_empty:
        return _outlook(
            node, Action.NOTHING, because=f"it has what its instance {instance.provider_id} has", notes=notes
        )
    return _outlook(
        node,
        Action.UPDATE,
        changes=writes(node, plan),
        because=f"it differs from its instance {instance.provider_id}",
        rule=REFRESH_RULE,
        flag=flag,
        when="at once, and at each refresh",
        notes=notes,
    )


def initialised(node: Node, judging: Judging, options: NodeOptions) -> Node:
    """Return the Node as it will be once it is initialised, which happens before load balancers and routes. Return it
    unchanged if it is already initialised or cannot be initialised."""
    instance = judging.listed(node) if node_rules.is_uninitialized(node) else None
    if not isinstance(instance, Instance) or judging.contradiction(node, instance):
        return node
    try:
        plan = node_rules.plan_initialisation(
            node, instance, legacy=options.legacy_labels, refresh=options.refresh_labels
        )
    except NodeRuleError:
        return node
    replace = msgspec.structs.replace
    status = node.status
    if plan.status is not None:
        status = replace(status, addresses=msgspec.convert(plan.status["status"]["addresses"], list[NodeAddress]))
    taints = [taint for taint in node.spec.taints if taint.key != node_rules.UNINITIALIZED_TAINT]
    spec = replace(node.spec, provider_id=node.spec.provider_id or instance.provider_id, taints=taints)
    labels = {**node.metadata.labels, **_labels(plan)}
    kept = {key: value for key, value in labels.items() if value is not None}
    metadata = replace(node.metadata, labels=kept)
    return replace(node, metadata=metadata, spec=spec, status=status)


def _not_ours(node: Node, *, legacy: bool) -> Outlook:
    """Return the outlook of an initialised Node that has no providerID, or another provider's."""
    plan = node_rules.plan_repair(node, None, legacy=legacy)
    changes = writes(node, plan)
    action = Action.UPDATE if changes else Action.NOTHING
    if node.spec.provider_id:
        because = f"its providerID {node.spec.provider_id} is not one of this provider's"
        return _outlook(
            node, action, changes=changes, reason="ForeignProviderID", because=because,
            rule="a Node of another provider is left alone", flag="--cloud-provider",
        )  # fmt: skip
    return _outlook(
        node,
        Action.BLOCKED,
        changes=changes,
        reason="NoProviderID",
        because="it has neither a providerID nor the taint, so no controller initialises it",
        rule=f"a Node is initialised only while it has the taint {node_rules.UNINITIALIZED_TAINT}",
        to_do="start its kubelet with --cloud-provider=external, and taint it; site.yml does both",
    )


def unknown(node: Node, error: CloudError) -> Outlook:
    """Return the outlook of a Node about which the cloud gives no answer."""
    return _outlook(node, Action.UNKNOWN, reason="CloudNotAvailable", because=str(error), to_do=ASK_DOCTOR)


def _outlook(node: Node, action: Action, **more: Any) -> Outlook:
    return Outlook(kind="Node", name=node.metadata.name, action=action, **more)


def shutdown_outlook(node: Node, instance: Instance | CloudError, options: LifecycleOptions) -> Outlook | None:
    """Return what happens to the taint of a Node whose instance is shut down; None if nothing happens."""
    tainted = node_rules.has_taint(node.spec.taints, *SHUTDOWN)
    off = isinstance(instance, Instance) and instance.state is not InstanceState.RUNNING
    if node_rules.is_ready(node):
        change, because = f"taint {SHUTDOWN[0]} is removed", "it is Ready again"
        wrong = tainted
    else:
        change, because = f"taint {SHUTDOWN[0]} is added", "its instance is shut down"
        wrong = off and not tainted
    if not wrong:
        return None
    when = f"within {spell(options.period)}"
    flag = f"--node-monitor-period={spell(options.period)}"
    rule = "a Node that is not Ready and whose instance is shut down has a taint until it is Ready"
    if problem := node_rules.too_many_taints(node):
        return _outlook(node, Action.BLOCKED, reason="TaintNotSet", because=problem, rule=rule, to_do="remove taints")
    return _outlook(node, Action.UPDATE, changes=[change], because=because, rule=rule, flag=flag, when=when)


def kept_labels(node: Node, instance: Instance, options: NodeOptions) -> list[str]:
    """Return sentences about the labels that differ from the instance's and are kept."""
    present, legacy = node.metadata.labels, options.legacy_labels
    every = node_rules.plan_repair(node, instance, legacy=legacy, refresh=Refresh.ALWAYS)
    written = node_rules.plan_repair(node, instance, legacy=legacy, refresh=options.refresh_labels)
    wrong = _labels(every).keys() - _labels(written).keys()
    others = others_labels(instance, present, node.metadata.annotations)
    return [
        f"label {key} is {present.get(key, '')!r}, the instance's value is {_labels(every)[key] or ''!r}: "
        f"{KEPT_LABELS} (--refresh-node-labels={options.refresh_labels.value})"
        for key in sorted(wrong)
    ] + [
        f"label {key} is {present[key]!r}, the instance's value is {value!r}: {NOT_RECORDED}"
        for key, value in sorted(others.items())
    ]


def _labels(plan: Plan) -> Mapping[str, str | None]:
    labels: Mapping[str, str | None] = (plan.node or {}).get("metadata", {}).get("labels", {})
    return labels


def writes(node: Node, plan: Plan) -> list[str]:
    """Return the patches of a plan as sentences."""
    changes = []
    if plan.status is not None:
        new = ", ".join(f"{address['type']} {address['address']}" for address in plan.status["status"]["addresses"])
        old = ", ".join(f"{address.type} {address.address}" for address in node.status.addresses) or "none"
        changes.append(f"status.addresses: {old} -> {new}")
    if plan.node is None:
        return changes
    spec = plan.node.get("spec", {})
    if "providerID" in spec:
        changes.append(f"spec.providerID: none -> {spec['providerID']}")
    if "taints" in spec:
        kept = {(each["key"], each.get("effect", "")) for each in spec["taints"] or ()}
        gone = [taint.key for taint in node.spec.taints if (taint.key, taint.effect) not in kept]
        changes += [f"taint {key} is removed" for key in dict.fromkeys(gone)]
    changes += [
        f"label {key}: {node.metadata.labels.get(key, 'none')} -> {value or 'none'}"
        for key, value in sorted(_labels(plan).items(), key=lambda label: label[0])
    ]
    if RECORD in plan.node.get("metadata", {}).get("annotations", {}):
        changes.append(f"annotation {RECORD}: the labels that the controller changes with the instance")
    return changes


def _about(instance: Instance) -> list[str]:
    return [f"the cloud warns of its instance: {each}" for each in instance.warnings]


def merged(first: Outlook, second: Outlook | None) -> Outlook:
    """Join the outlooks of two controllers that act on one Node: the changes of both, and the reason of the first, or
    of the second if the first does nothing."""
    if second is None:
        return first
    if first.action is Action.NOTHING:
        return msgspec.structs.replace(second, notes=[*first.notes, *second.notes])
    changes, notes = [*first.changes, *second.changes], [*first.notes, *second.notes]
    if second.action in (Action.WAIT, Action.BLOCKED):
        notes.append(second.because)
    return msgspec.structs.replace(first, changes=changes, notes=notes)


def one_each(outlooks: Iterable[Outlook]) -> list[Outlook]:
    """Join the outlooks of each Node, because several controllers may act on it. Outlooks of other objects stay as they
    are, because two routes may have one destination."""
    nodes: dict[str, Outlook] = {}
    others = []
    for outlook in outlooks:
        if outlook.kind == "Node":
            nodes[outlook.name] = merged(nodes[outlook.name], outlook) if outlook.name in nodes else outlook
        else:
            others.append(outlook)
    return [*nodes.values(), *others]
