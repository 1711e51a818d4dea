# SPDX-License-Identifier: Apache-2.0
"""`ccm explain node NAME`: why a Node is still tainted, or still exists.

The controllers publish what they know in Events about the Node and in the annotations of their Lease. With
`--cloud-provider`, the command also asks the cloud, and applies the controllers' rules to the answer.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence

import msgspec

from ccm.cloud import CloudError, Instance
from ccm.controllers.nodes import node_fencing_rules, node_rules
from ccm.engine.objects import Lease, Node

from ..asking.explanation import Event, Explanation, Looked, Told, event_line, render, told_by
from ..asking.leading import ago, is_led, leader_lines, running
from ..outlooks.gathering import Gathered, Survey, all_routes
from ..outlooks.judging import Judging

#: The components whose Events are relevant.
COMPONENTS = ("cloud-node-controller", "cloud-node-lifecycle-controller", "node-vouching", "route_controller")
#: The controllers that look after every Node.
CONTROLLERS = COMPONENTS[:2]
#: Reasons of Events that explain why a Node is not initialised.
NOT_INITIALISED = (
    "InstanceNotFound",
    "CloudNotAvailable",
    "InitializationFailed",
    "ForeignProviderID",
    "SeveralOwners",
    "OwnersContradict",
    "OtherController",
)
#: Reasons of Events that explain why a Node that is not Ready still exists.
NOT_DELETED = ("DeletionHeld", "DeletionWaits", "DeletingNodeFailed")
#: The reason of an Event that explains why a Node whose machine is shut down or gone is not fenced.
NOT_FENCED = ("FencingHeld",)
#: Reasons of Events that explain what is wrong with a Node that is Ready.
WRONG = ("InstanceNotListed", "OtherMachine", "AddressesNotUpdated", "UpdateFailed")


def explain(
    node: Node, lease: Lease | None, events: Sequence[Event], lease_name: str, now: datetime.datetime
) -> list[str]:
    """Return what the API server alone shows, as lines of text, safe for a terminal. Pure."""
    return render(from_api_server(node, lease, events, lease_name, now), now)


def from_api_server(
    node: Node, lease: Lease | None, events: Sequence[Event], lease_name: str, now: datetime.datetime
) -> Explanation:
    """Return what the API server alone shows."""
    reported = told_by(events, COMPONENTS, node.metadata.uid)
    ready = next((c for c in node.status.conditions if c.type == "Ready"), None)
    state = f"Ready={ready.status} ({ready.reason})" if ready else "it has never reported whether it is Ready"
    leader = leader_lines(lease, lease_name, now)
    names = running(lease)
    if is_led(lease, now) and names and (missing := [name for name in CONTROLLERS if name not in names]):
        leader.append(f"  it does not run {' and '.join(missing)} (--controllers)")
    return Explanation(
        kind="Node",
        name=node.metadata.name,
        state=[
            f"Node {node.metadata.name}: {state}, created {ago(node.metadata.creation_timestamp, now)}",
            f"providerID: {node.spec.provider_id or 'none yet'}",
            "",
            *_state_of(node, reported, now),
        ],
        leader=leader,
        events=reported,
        waits=node_rules.is_uninitialized(node) or not node_rules.is_ready(node),
    )


def _state_of(node: Node, reports: Sequence[Told], now: datetime.datetime) -> list[str]:
    lines = []
    waits = node_rules.is_uninitialized(node)
    if waits:
        lines.append(
            f"It waits for its initialisation (taint {node_rules.UNINITIALIZED_TAINT}); no Pod is scheduled to it."
        )
        lines.append(_why(reports, NOT_INITIALISED, now) or "  No Event gives the reason: see the controller below.")
    if any(taint.key == node_rules.SHUTDOWN_TAINT for taint in node.spec.taints):
        lines.append("Its instance is shut down. The taint is removed when the Node is Ready again.")
    lines += _fenced(node, reports, now)
    if node.metadata.deletion_timestamp:
        lines.append(
            f"It is being deleted and waits for its finalizers: {', '.join(node.metadata.finalizers) or 'none'}."
        )
    elif not node_rules.is_ready(node) and not waits:
        lines.append(
            "It is not Ready. It is deleted if the cloud reports, for long enough, that its instance does not exist."
        )
        lines.append(
            _why(reports, NOT_DELETED, now)
            or "  Nothing holds it: the instance exists, or the controller has not yet confirmed that it is gone, or "
            "the Node is younger than --node-deletion-min-age."
        )
    if node_rules.is_ready(node):
        lines.append("It is Ready, and a Ready Node is never deleted, whatever the cloud reports.")
        if reason := _why(reports, WRONG, now):
            lines.append(reason)
    return lines


def _fenced(node: Node, reports: Sequence[Told], now: datetime.datetime) -> list[str]:
    taint = f"the taint {node_fencing_rules.KEY}: Kubernetes deletes its Pods and detaches their volumes at once."
    if node_fencing_rules.is_ours(node):
        since = node.metadata.annotations[node_fencing_rules.SINCE]
        return [
            f"Its machine was shut down or gone, so it has {taint}",
            f"  Since {since}, until the machine runs again.",
        ]
    if node_fencing_rules.is_fenced(node):
        return [f"It has {taint} Somebody else added it, so the controller does not remove it."]
    reason = _why(reports, NOT_FENCED, now) if not node_rules.is_ready(node) else ""
    return [reason] if reason else []


def _why(reports: Sequence[Told], reasons: Sequence[str], now: datetime.datetime) -> str:
    latest = next((event for event in reversed(reports) if event.reason in reasons), None)
    return f"  {event_line(latest, now)}" if latest else ""


async def with_cloud(shown: Explanation, node: Node, survey: Survey) -> Explanation:
    """Return `shown`, completed with what each cloud says and what the runtime would do."""
    looked = [row for part in survey.parts for row in _looked(node, part)]
    name = node.metadata.name
    outlooks = [outlook for outlook in survey.node_outlooks() if outlook.name == name]
    routes = await survey.outlooks(all_routes)
    mine = {name, ", ".join(node.spec.pod_cidrs), *node.spec.pod_cidrs}
    outlooks += [route for route in routes if route.name in mine]
    waits = any(outlook.is_finding for outlook in outlooks)
    judgings = [part.judging for part in survey.parts if isinstance(part.judging, Judging)]
    near: list[str] = []
    if not node.spec.provider_id and not any(judging.namesakes(name) for judging in judgings):
        near = [similar for judging in judgings for similar in judging.nearest(name)]
    state = list(shown.state)
    if owner := next((outlook.cloud for outlook in outlooks if outlook.cloud), ""):
        state.append(f"It belongs to cloud {owner}.")
    return msgspec.structs.replace(
        shown,
        state=state,
        looked_up=looked,
        nearest=near,
        outlooks=outlooks,
        unasked=list(survey.cluster.unasked),
        waits=waits,
    )


def _looked(node: Node, survey: Gathered) -> list[Looked]:
    where = f"provider {survey.options.cloud_provider}"
    ref = node_rules.instance_ref(node)
    what = f"instance {ref.provider_id}" if ref.provider_id else f"an instance named {ref.node_name!r}"
    judging = survey.judging
    if not isinstance(judging, Judging):
        return [Looked(what, where, f"no answer: {judging}" if judging else "the provider has no instances")]
    if ref.provider_id and not judging.owns(ref.provider_id):
        return [Looked(what, where, "not asked: the providerID is not one of this provider's")]
    listing = f"{where}, listing of {len(judging.snapshot.by_id)} instances"
    rows = [Looked(what, listing, _instance(judging.listed(node)))]
    if node.metadata.name in judging.singles:
        rows.append(Looked("the same, in a read of its own", where, _instance(judging.singles[node.metadata.name])))
    if ref.provider_id:
        names = [namesake.provider_id for namesake in judging.namesakes(node.metadata.name)]
        rows.append(Looked(f"instances named {node.metadata.name!r}", listing, ", ".join(names) or "none"))
    return rows


def _instance(answer: Instance | CloudError) -> str:
    if isinstance(answer, CloudError):
        return str(answer)
    addresses = ", ".join(f"{address.type} {address.address}" for address in answer.addresses) or "no addresses"
    place = f"zone {answer.zone}" if answer.zone else "no zone"
    return f"{answer.provider_id}, named {answer.name!r}, {answer.state.value}, {place}, {addresses}"
