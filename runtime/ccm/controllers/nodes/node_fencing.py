# SPDX-License-Identifier: Apache-2.0
"""Fences Nodes whose machines are shut down or gone (`--fence-dead-nodes`), and lifts the fences when the machines run
again.

This is a part of the node lifecycle controller, which asks the cloud and passes the answers on. `node_fencing_rules`
decides. Before a Node is fenced, a complete listing and a request for that one instance must report its machine shut
down or gone. Fences that this controller added are lifted with or without the flag.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable

from ccm.cloud import CloudError, Instance, NotFound, Transient
from ccm.engine.client import ApiError, ConflictError, NotFoundError
from ccm.engine.objects import Node
from ccm.gateway.instance_directory import InstanceDirectory

from ..shared.context import Context
from ..shared.event_budget import EventBudget
from . import node_fencing_rules as rules
from . import node_rules
from .node_lifecycle_metrics import FENCED, FENCES_HELD
from .node_lifecycle_rules import Missing, Safety, Window
from .node_witness import Witnesses
from .node_writes import PATCHES
from .window_note import WindowNote

log = logging.getLogger(__name__)

#: Key of the note that records, for the next leader, when Nodes were fenced within the window.
NOTE = "node-fences"


class Fencing:
    """Fences the Nodes of one provider. `is_ours`: returns whether a Node belongs to this provider. `age`: returns a
    Node's age in seconds. `deleted`: returns the UIDs of the Nodes that were deleted within the window before a moment.
    """

    def __init__(
        self,
        context: Context,
        directory: InstanceDirectory,
        witnesses: Witnesses,
        warnings: EventBudget,
        safety: Safety,
        *,
        enabled: bool,
        is_ours: Callable[[Node], bool],
        age: Callable[[Node], float],
        deleted: Callable[[float], set[str]],
    ) -> None:
        self._context, self._directory, self._witnesses = context, directory, witnesses
        self._warnings, self._safety, self._enabled = warnings, safety, enabled
        self._is_ours, self._age, self._deleted = is_ours, age, deleted
        #: Nodes that are not fenced and whose machines the cloud reports shut down or gone.
        self._dead: dict[str, Missing] = {}
        #: UID of a Node that this process fenced -> when (monotonic seconds).
        self._fenced: dict[str, float] = {}
        self._window = Window(safety.window)
        self._note = WindowNote(context, NOTE, self._window)

    async def recall(self) -> None:
        """Load how many Nodes former leaders fenced within the window, if the flag is set. Raises ApiError."""
        if self._enabled:
            await self._note.recall()

    def keep_only(self, nodes: Iterable[Node]) -> None:
        """Forget Nodes that are gone or were replaced, and what the cloud reported about Nodes that are Ready now."""
        left = {node.metadata.uid: node_rules.is_ready(node) for node in nodes}
        self._dead = {name: dead for name, dead in self._dead.items() if left.get(dead.uid) is False}
        self._fenced = {uid: when for uid, when in self._fenced.items() if uid in left}

    def learn(self, node: Node, answer: Instance | CloudError, now: float) -> None:
        """Learn from a read that began at `now`. Any answer but "shut down" or "gone" resets the confirmations, and so
        does the taint of a Node that is already fenced."""
        name, uid, provider_id = node.metadata.name, node.metadata.uid, node.spec.provider_id
        if not self._enabled or not provider_id or rules.is_fenced(node) or not rules.is_dead(answer):
            self._dead.pop(name, None)
            return
        dead = self._dead.get(name)
        if dead is None or (dead.uid, dead.provider_id) != (uid, provider_id):
            dead = self._dead[name] = Missing(uid, provider_id)
        dead.confirm(now, self._safety.interval)

    def next_answer(self) -> float:
        """Return the next moment (monotonic seconds) from which another answer about a dead machine counts as a
        confirmation; infinity if there is none."""
        now, safety = self._context.monotonic(), self._safety
        waiting = (dead for dead in self._dead.values() if dead.confirmed < safety.confirmations)
        return min((due for dead in waiting if (due := dead.last_confirmed + safety.interval) > now), default=math.inf)

    def is_fresh(self, uid: str) -> bool:
        """Return whether a Node was fenced so recently that its volumes may still be attached."""
        return self._context.monotonic() - self._fenced.get(uid, float("-inf")) < rules.KEPT

    async def settle(self, checked: Iterable[Node], nodes: Iterable[Node], now: float) -> list[Node]:
        """Fence those of the Nodes `checked` that may be fenced according to a listing that began at `now` or later.

        `checked`: the Nodes whose answers `learn` has just received. `nodes`: all Nodes. Return those that should have
        been fenced and were not, because the Lease or the Node could not be written.
        """
        likely = [node for node in checked if self._is_confirmed(node)]
        if not likely:
            return []
        try:
            snapshot = await self._directory.list(not_before=now)
        except CloudError as error:
            for node in likely:
                self._hold_unknown(node, error)
            return []
        nodes = list(nodes)
        ours = [node for node in nodes if node.spec.provider_id and self._is_ours(node)]
        scene = rules.Scene(ours, snapshot, self._witnesses.hear(nodes, snapshot))
        chosen = [node for node in likely if self._is_chosen(node, scene)]
        condemned = [node for node in chosen if await self._is_confirmed_dead(node)]
        if not condemned:
            return []
        if not await self._note.record(condemned):
            return condemned
        return [node for node in condemned if not await self._fence(node)]

    def _is_confirmed(self, node: Node) -> bool:
        dead = self._dead.get(node.metadata.name)
        return dead is not None and dead.confirmed >= self._safety.confirmations

    def _is_chosen(self, node: Node, scene: rules.Scene) -> bool:
        now, uid, dead = self._context.monotonic(), node.metadata.uid, self._dead[node.metadata.name]
        others = {each.uid for each in self._dead.values()} | self._window.within(now) | self._deleted(now)
        objection = rules.objection(
            node,
            dead,
            scene,
            age=self._age(node),
            last_seen=self._witnesses.last_seen(uid, dead.provider_id),
            others=len(others - {uid}),
            now=now,
            safety=self._safety,
        )
        if objection is None:
            return True
        self._hold(node, objection)
        return False

    def _hold(self, node: Node, objection: rules.Objection) -> None:
        FENCES_HELD.labels(objection.reason).inc()
        if objection.waits:
            log.info("node %s: not fenced yet: %s", node.metadata.name, objection.message)
            return
        message = f"the Node is not fenced: {objection.message}"
        self._warnings.event(node, "Warning", "FencingHeld", message, topic=objection.reason)

    def _hold_unknown(self, node: Node, error: CloudError) -> None:
        self._dead.pop(node.metadata.name, None)
        self._hold(node, rules.Objection("CloudUnknown", f"the cloud could not say whether its machine runs: {error}"))

    async def _is_confirmed_dead(self, node: Node) -> bool:
        """Return whether a request for this one instance reports it shut down or gone: the last check."""
        try:
            instance = await self._directory.get(node_rules.instance_ref(node))
        except NotFound:
            return True
        except CloudError as error:
            self._hold_unknown(node, error)
            return False
        if rules.is_off(instance):
            return True
        self._hold_unknown(node, Transient(f"a read of {instance.provider_id} returns {instance.state.value}"))
        return False

    async def _fence(self, judged: Node) -> bool:
        """Fence exactly the Node that was judged. The patch names the resourceVersion, so a Node that has just become
        Ready again is left alone. Return False if the patch failed and must be tried again, True also for a Node that
        must not or cannot get the taint."""
        name = judged.metadata.name
        node = self._context.nodes.get(name)
        if node is None or not _is_same(node, judged) or node_rules.is_ready(node) or rules.is_fenced(node):
            return True
        if problem := node_rules.too_many_taints(node):
            self._warnings.event(node, "Warning", "TaintNotSet", problem)
            return True
        stamp = self._context.now().strftime("%Y-%m-%dT%H:%M:%SZ")
        if not await self._patch(node, rules.fence_patch(node, stamp)):
            return False
        self._dead.pop(name, None)
        self._fenced[node.metadata.uid] = self._context.monotonic()
        FENCED.inc()
        message = (
            f"the machine {node.spec.provider_id} is shut down or gone, so the Node has the taint {rules.KEY}: "
            "Kubernetes deletes its Pods and detaches their volumes at once. The taint is removed when the machine "
            "runs again"
        )
        self._warnings.event(node, "Normal", "OutOfService", message)
        log.info("node %s fenced: instance %s is shut down or gone", name, node.spec.provider_id)
        return True

    async def lift(self, node: Node) -> None:
        """Remove the taint of a Node whose machine runs again. If the patch fails, a later pass tries again."""
        if await self._patch(node, rules.lift_patch(node)):
            message = f"the machine runs again, so the Node no longer has the taint {rules.KEY}"
            self._warnings.event(node, "Normal", "BackInService", message)
            log.info("node %s is not fenced any more: its machine runs", node.metadata.name)

    async def _patch(self, node: Node, patch: dict[str, object]) -> bool:
        try:
            await self._context.client.patch(f"/api/v1/nodes/{node.metadata.name}", patch)
        except ApiError as error:
            if not isinstance(error, (ConflictError, NotFoundError)):
                log.warning("cannot change the taint %s of node %s: %s", rules.KEY, node.metadata.name, error)
            return False
        PATCHES.labels("out-of-service-taint").inc()
        return True


def _is_same(node: Node, judged: Node) -> bool:
    return (node.metadata.uid, node.spec.provider_id) == (judged.metadata.uid, judged.spec.provider_id)
