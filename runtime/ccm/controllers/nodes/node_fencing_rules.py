# SPDX-License-Identifier: Apache-2.0
"""Decide when a Node is fenced, that is, when it gets the taint `node.kubernetes.io/out-of-service`. No I/O.

With this taint, Kubernetes deletes the Pods of a NotReady Node without its kubelet, and detaches volumes that are still
mounted (KEP-2268). If the machine still runs, two machines then write to one volume. So a Node is fenced only if the
cloud reports, more than once, that its machine is shut down or gone, and only if neither another machine, a Ready Node
nor a mass event raises a doubt. `node_witness_rules` decides whether a listing without the machine is plausible.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from ccm.base.text import shorten
from ccm.cloud import CloudError, Instance, InstanceState, NotFound
from ccm.engine.objects import Node
from ccm.gateway.instance_snapshot import Snapshot

from ..shared.limits import LISTED
from . import node_rules
from .node_lifecycle_rules import Missing, Safety
from .node_witness_rules import TOLERATED, Evidence, doubt
from .vouching_rules import other_holder

#: The taint of KEP-2268. The value is a convention; Kubernetes reads the key and the effect.
KEY, VALUE, EFFECT = "node.kubernetes.io/out-of-service", "nodeshutdown", "NoExecute"
#: Annotation with the `timeAdded` of the taint that this controller added. A taint that others added has another time.
SINCE = "ccm.outoftree.dev/out-of-service-since"
#: Seconds that a Node whose instance is gone stays after it was fenced, because volumes are detached at once only from
#: a Node that exists.
KEPT = 60.0


class Objection(msgspec.Struct, frozen=True):
    """Why a Node is not fenced. `waits`: nothing is unusual, and the objection may pass with time."""

    reason: str
    message: str
    waits: bool = False


@dataclass(frozen=True)
class Scene:
    """One listing, the Nodes of this provider, and what these Nodes say about the listing (`node_witness_rules`)."""

    nodes: Sequence[Node]
    snapshot: Snapshot
    evidence: Evidence

    def answer(self, node: Node) -> Instance | CloudError:
        try:
            return self.snapshot.find(node_rules.instance_ref(node))
        except CloudError as error:
            return error

    def claimants(self, node: Node) -> list[Node]:
        """Return all Nodes with the Node's providerID, in any spelling."""
        own = self._same_as(node.spec.provider_id)
        return [each for each in self.nodes if self._same_as(each.spec.provider_id) == own]

    def namesakes(self, node: Node) -> list[Instance]:
        """Return the other instances with the Node's name."""
        own = self.snapshot.canonical(node.spec.provider_id)
        return [each for each in self.snapshot.by_name.get(node.metadata.name, ()) if each.provider_id != own]

    def _same_as(self, provider_id: str) -> str:
        """Return the canonical spelling of a providerID; if it has none, the providerID itself."""
        return self.snapshot.canonical(provider_id) or provider_id

    @functools.cached_property
    def ready_but_off(self) -> list[str]:
        """The names of Ready Nodes whose machines are listed as shut down."""
        ready = (node for node in self.nodes if node_rules.is_ready(node))
        return sorted(node.metadata.name for node in ready if is_off(self.answer(node)))


def is_off(answer: Instance | CloudError) -> bool:
    """Return whether the cloud reports the machine shut down. A suspended one does not count, because it may
    continue."""
    return isinstance(answer, Instance) and answer.state is InstanceState.SHUTDOWN


def is_dead(answer: Instance | CloudError) -> bool:
    """Return whether the cloud reports the machine shut down or gone. Other errors say nothing about the machine."""
    return isinstance(answer, NotFound) or is_off(answer)


def is_fenced(node: Node) -> bool:
    """Return whether the Node has the taint, whoever added it. Kubernetes looks at the key alone."""
    return any(taint.key == KEY for taint in node.spec.taints)


def is_ours(node: Node) -> bool:
    """Return whether the Node has the taint that this controller added."""
    since = node.metadata.annotations.get(SINCE)
    return since is not None and any(
        (taint.key, taint.effect, taint.time_added) == (KEY, EFFECT, since) for taint in node.spec.taints
    )


def is_to_lift(node: Node, answer: Instance | CloudError | None = None) -> bool:
    """Return whether the Node has our taint although its machine may write: the Node is Ready, or the cloud reports
    that the machine exists and is not shut down."""
    may_write = isinstance(answer, Instance) and answer.state is not InstanceState.SHUTDOWN
    return is_ours(node) and (may_write or node_rules.is_ready(node))


def fence_patch(node: Node, stamp: str) -> dict[str, Any]:
    """Return the patch that adds the taint. `stamp`: now, as RFC 3339 in seconds."""
    taint = {"key": KEY, "value": VALUE, "effect": EFFECT, "timeAdded": stamp}
    taints = [*map(node_rules.taint_wire, node.spec.taints), taint]
    return _patch(node, taints, stamp)


def lift_patch(node: Node) -> dict[str, Any]:
    """Return the patch that removes the taint again."""
    return _patch(node, node_rules.taints_without(node.spec.taints, KEY, EFFECT), None)


def _patch(node: Node, taints: list[dict[str, Any]] | None, stamp: str | None) -> dict[str, Any]:
    metadata = {"resourceVersion": node.metadata.resource_version, "annotations": {SINCE: stamp}}
    return {"metadata": metadata, "spec": {"taints": taints}}


def objection(
    node: Node,
    dead: Missing,
    scene: Scene,
    *,
    age: float,
    last_seen: float | None,
    others: int,
    now: float,
    safety: Safety,
) -> Objection | None:
    """Return why the Node may not be fenced now, None if it may.

    `dead`: the answers that reported its machine shut down or gone; `age`: the Node's age in seconds; `last_seen`: when
    this process saw the Node's instance, None for never; `others`: how many other Nodes have dead machines, or were
    fenced or deleted within the window; `now`: monotonic seconds.
    """
    return (
        _too_early(dead, age, safety)
        or _other_machine(node, scene)
        or _not_listed_dead(node, scene)
        or _contradicted(node, scene, last_seen, now, safety)
        or _mass_event(scene.evidence, others, safety)
    )


def _too_early(dead: Missing, age: float, safety: Safety) -> Objection | None:
    if dead.confirmed < safety.confirmations:
        message = f"reported shut down or gone {dead.confirmed} of {safety.confirmations} times"
        return Objection("Unconfirmed", message, waits=True)
    if age < safety.min_age:
        message = f"the Node is {age:.0f} s old; Nodes under {safety.min_age:.0f} s are not fenced"
        return Objection("TooYoung", message, waits=True)
    return None


def _other_machine(node: Node, scene: Scene) -> Objection | None:
    """Return an objection if another machine may run the Node's kubelet: one with the Node's name, or the machine of
    another Node with its providerID. None otherwise."""
    if namesakes := scene.namesakes(node):
        return Objection(
            "OtherMachine",
            f"instance {namesakes[0].provider_id} has the Node's name, too, and may be its machine: delete the Node if "
            f"its machine was {node.spec.provider_id}",
        )
    answer = scene.answer(node)
    if isinstance(answer, Instance) and (problem := other_holder(node, answer, scene.claimants(node))):
        return Objection("SameProviderID", problem)
    return None


def _not_listed_dead(node: Node, scene: Scene) -> Objection | None:
    answer = scene.answer(node)
    if is_dead(answer):
        return None
    why = str(answer) if isinstance(answer, CloudError) else f"it lists {answer.provider_id} as {answer.state.value}"
    return Objection("CloudUnknown", f"the cloud's listing does not confirm that the machine is off or gone: {why}")


def _contradicted(node: Node, scene: Scene, last_seen: float | None, now: float, safety: Safety) -> Objection | None:
    evidence = scene.evidence
    if len(scene.ready_but_off) > TOLERATED:
        return Objection(
            "StateDoubted",
            f"the cloud reports the machines of {len(scene.ready_but_off)} Ready Nodes shut down "
            f"({shorten(', '.join(scene.ready_but_off), LISTED)}), so its states are not trusted",
        )
    if is_off(scene.answer(node)):
        return None
    cap = safety.cap(evidence.listed + len(evidence.absent))
    listing = doubt(evidence, last_seen=last_seen, cap=cap, now=now)
    return Objection("ListingDoubted", listing.message, waits=not listing.lasting) if listing else None


def _mass_event(evidence: Evidence, others: int, safety: Safety) -> Objection | None:
    """Return an objection in a mass event, None otherwise.

    In a mass event, many other machines are off or gone, too, so the cloud may be wrong about them; or fewer than half
    of the Nodes are Ready and listed, so there is nowhere to move the Pods to.
    """
    cap = safety.cap(evidence.known)
    if others >= cap:
        return Objection(
            "MassEvent",
            f"the machines of {others} other Nodes are shut down or gone, too, or were a short time ago; at most {cap} "
            f"of {evidence.known} Nodes are fenced within {safety.window:.0f} s (--node-deletion-cap, "
            f"--node-deletion-window). If the machine is off for good, add the taint {KEY} by hand",
        )
    ready = evidence.listed if evidence.ready else 0
    if ready * 2 < evidence.known:
        return Objection(
            "MassEvent",
            f"only {ready} of {evidence.known} Nodes are Ready; Nodes are fenced while at least half of them are. If "
            f"the machine is off for good, add the taint {KEY} by hand",
        )
    return None
