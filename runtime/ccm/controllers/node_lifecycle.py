# SPDX-License-Identifier: Apache-2.0
"""cloud-node-lifecycle-controller: deletes Nodes whose instances are gone, taints those whose instances are shut down.

It asks only about Nodes that are not Ready, all of them in one read, and about each less often while its instance
keeps existing. What it may delete is decided in `node_lifecycle_rules`.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from typing import ClassVar

from prometheus_client import Counter, Gauge

from ccm.cloud import CloudError, InstanceState, NotFound
from ccm.engine.client import ApiError, ConflictError, NotFoundError
from ccm.engine.objects import Node

from . import node_rules
from .context import Context
from .node import age_seconds
from .node_lifecycle_rules import Missing, Safety, Verdict, Window, decide

log = logging.getLogger(__name__)

DELETED = Counter("ccm_node_deletions", "Nodes deleted because their instance is gone.")
HELD = Counter("ccm_node_deletions_held", "Passes in which a NotReady Node was not deleted, by reason.", ["reason"])
MISSING = Gauge("ccm_nodes_missing", "Nodes whose instance the cloud reports gone and that still exist.")

#: Longest time between two questions about a NotReady Node whose instance exists, in seconds.
ASK_AGAIN_MAX = 60.0


@dataclass(frozen=True)
class LifecycleOptions:
    """`period`: seconds between passes (`--node-monitor-period`)."""

    period: float = 5.0
    safety: Safety = field(default_factory=Safety)


@dataclass
class _Patience:
    """When to ask about an existing instance again (monotonic seconds)."""

    interval: float
    due: float


class NodeLifecycleController:
    name: ClassVar[str] = "cloud-node-lifecycle-controller"

    def __init__(self, context: Context, options: LifecycleOptions) -> None:
        directory = context.gateway.instances
        if directory is None:
            raise ValueError(f"{self.name} needs a provider with instances")
        self._directory = directory
        self._context = context
        self._options = options
        self._events = context.recorder("cloud-node-lifecycle-controller")
        self._missing: dict[str, Missing] = {}
        self._patience: dict[str, _Patience] = {}
        self._window = Window(options.safety.window)

    async def run(self) -> None:
        await self._context.nodes.wait_synced()
        while True:
            await self._pass()
            await asyncio.sleep(self._options.period)

    async def _pass(self) -> None:
        nodes = {node.metadata.name: node for node in self._context.nodes.items()}
        for known in (self._missing, self._patience):
            for name in known.keys() - nodes.keys():
                del known[name]
        asked = []
        for name, node in nodes.items():
            if node_rules.is_ready(node):
                self._missing.pop(name, None)
                self._patience.pop(name, None)
                await self._set_shutdown_taint(node, False)
            elif self._is_ours(node) and self._is_due(name):
                asked.append(node)
        if asked:
            now = self._context.monotonic()
            await asyncio.gather(*(self._examine(node, now) for node in asked))
        MISSING.set(len(self._missing))
        for name in list(self._missing):
            await self._settle(name)

    def _is_ours(self, node: Node) -> bool:
        """A Node of another cloud is never looked at; one that waits for its initialisation is the node controller's.
        One without a providerID that does not wait is looked at, to be able to say why it is held."""
        if not node.spec.provider_id:
            return not node_rules.is_uninitialized(node)
        return self._directory.owns(node.spec.provider_id)

    def _is_due(self, name: str) -> bool:
        patience = self._patience.get(name)
        return patience is None or self._context.monotonic() >= patience.due

    async def _examine(self, node: Node, now: float) -> None:
        """Ask the cloud about one NotReady Node (the directory makes one read of all these questions)."""
        name = node.metadata.name
        try:
            instance = await self._directory.lookup(node_rules.instance_ref(node), not_before=now)
        except NotFound:
            missing = self._missing.get(name)
            if missing is None or missing.uid != node.metadata.uid:
                missing = self._missing[name] = Missing(node.metadata.uid, node.spec.provider_id)
            missing.provider_id = node.spec.provider_id
            missing.confirm(self._context.monotonic(), self._options.safety.interval)
            self._patience.pop(name, None)
        except CloudError as error:
            # Unknown. What was confirmed before no longer counts: confirmations must come without a doubt in between.
            self._missing.pop(name, None)
            HELD.labels("CloudUnknown").inc()
            self._events.event(
                node,
                "Warning",
                "DeletionHeld",
                f"the Node is not Ready and the cloud could not say whether its instance exists; it is kept: {error}",
            )
            self._be_patient(name)
        else:
            self._missing.pop(name, None)
            await self._set_shutdown_taint(node, instance.state is InstanceState.SHUTDOWN)
            self._be_patient(name)

    def _be_patient(self, name: str) -> None:
        before = self._patience.get(name)
        interval = min(ASK_AGAIN_MAX, before.interval * 2 if before else self._options.period)
        self._patience[name] = _Patience(interval, self._context.monotonic() + interval)

    async def _settle(self, name: str) -> None:
        """Delete or hold one Node whose instance was reported gone, as it is in the cache now."""
        node, missing = self._context.nodes.get(name), self._missing[name]
        if node is None or node.metadata.uid != missing.uid or node_rules.is_ready(node):
            del self._missing[name]
            return
        now = self._context.monotonic()
        recently = self._window.count(now)
        decision = decide(
            missing,
            age=age_seconds(node),
            candidates=sum(1 for other in self._missing.values() if other.provider_id),
            recently=recently,
            nodes=sum(1 for other in self._context.nodes.items() if self._is_ours(other)),
            safety=self._options.safety,
        )
        if decision.verdict is Verdict.DELETE:
            await self._delete(node)
            return
        HELD.labels(decision.reason).inc()
        if decision.verdict is Verdict.HOLD:
            self._events.event(node, "Warning", "DeletionHeld", decision.message)
        else:
            log.info("node %s: instance %s is missing; waiting: %s", name, missing.provider_id, decision.message)

    async def _delete(self, node: Node) -> None:
        name = node.metadata.name
        self._events.event(
            node, "Normal", "DeletingNode", f"Deleting node {name} because its instance {node.spec.provider_id} is gone"
        )
        try:
            await self._context.client.delete(f"/api/v1/nodes/{name}", uid=node.metadata.uid)
        except (NotFoundError, ConflictError):
            del self._missing[name]  # gone already, or another Node under the same name
        except ApiError as error:
            self._events.event(node, "Warning", "DeletingNodeFailed", f"Node {name} could not be deleted: {error}")
        else:
            del self._missing[name]
            self._window.times.append(self._context.monotonic())
            DELETED.inc()
            log.info("node %s deleted: instance %s is gone", name, node.spec.provider_id)

    async def _set_shutdown_taint(self, node: Node, wanted: bool) -> None:
        """Add or remove the shutdown taint, decided from the cache; a lost race is settled in the next pass."""
        key, effect = node_rules.SHUTDOWN_TAINT, "NoSchedule"
        present = any(taint.key == key and taint.effect == effect for taint in node.spec.taints)
        if present == wanted:
            return
        taints = node_rules.taints_without(node.spec.taints, key, effect) or []
        if wanted:
            taints.append({"key": key, "effect": effect})
        patch = {"metadata": {"resourceVersion": node.metadata.resource_version}, "spec": {"taints": taints or None}}
        try:
            await self._context.client.patch(f"/api/v1/nodes/{node.metadata.name}", patch)
        except (ConflictError, NotFoundError):
            pass
        except ApiError as error:
            log.warning("shutdown taint of node %s: %s", node.metadata.name, error)
