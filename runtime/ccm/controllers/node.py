# SPDX-License-Identifier: Apache-2.0
"""cloud-node-controller: initialises Nodes with the `uninitialized` taint and keeps addresses as the cloud has them.

Addresses are written before the taint is lifted (upstream does it the other way round: reference W11); the taint goes
together with labels and providerID in one patch, and both patches are guarded by the resourceVersion of what was read,
so nothing that others write meanwhile is lost.
"""

from __future__ import annotations

import asyncio
import datetime
import logging
from dataclasses import dataclass
from typing import ClassVar

from prometheus_client import Histogram

from ccm.cloud import CloudError, Instance, NotFound
from ccm.engine.client import ApiError, ConflictError, NotFoundError
from ccm.engine.objects import Node
from ccm.engine.queue import Requeue, WorkQueue

from . import node_rules as rules
from .context import Context, log_failure

log = logging.getLogger(__name__)

_BUCKETS = (1, 4, 16, 64, 256, 1024)
TAINT_DELAY = Histogram(
    "node_controller_cloud_provider_taint_removal_delay_seconds",
    "Seconds between a Node's creation and the removal of its uninitialized taint.",
    buckets=_BUCKETS,
)
SYNC_DELAY = Histogram(
    "node_controller_initial_node_sync_delay_seconds",
    "Seconds between a Node's creation and the end of its initialisation.",
    buckets=_BUCKETS,
)

#: Writes of one Node that lose against other writers before it is put back into the queue.
CONFLICT_RETRIES = 10


@dataclass(frozen=True)
class NodeOptions:
    """`workers`: Nodes written at the same time; `refresh`: seconds between passes over all Nodes' addresses."""

    workers: int = 30
    refresh: float = 300.0


class NodeController:
    name: ClassVar[str] = "cloud-node-controller"

    def __init__(self, context: Context, options: NodeOptions) -> None:
        directory = context.gateway.instances
        if directory is None:
            raise ValueError(f"{self.name} needs a provider with instances")
        self._directory = directory
        self._context = context
        self._options = options
        self._events = context.recorder("cloud-node-controller")
        self._queue: WorkQueue[str] = WorkQueue("Nodes", base_delay=0.5, max_delay=60.0)
        #: When a tainted Node was first seen, in monotonic seconds: its instance must be read no earlier than that.
        self._seen: dict[str, float] = {}

    async def run(self) -> None:
        self._context.nodes.add_handler(self._on_node)
        await self._context.nodes.wait_synced()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._queue.run_workers(self._options.workers, self._sync, on_error=log_failure(log)))
            tasks.create_task(self._refresh_for_ever())

    def _on_node(self, old: Node | None, new: Node | None) -> None:
        if new is None:
            assert old is not None
            self._seen.pop(old.metadata.name, None)
            return
        if rules.is_uninitialized(new):
            if old is None or old.metadata.uid != new.metadata.uid or not rules.is_uninitialized(old):
                self._seen[new.metadata.name] = self._context.monotonic()
                self._directory.expect()
                self._queue.add(new.metadata.name)
        elif rules.reconciled_labels(new.metadata.labels):
            self._queue.add(new.metadata.name)

    async def _sync(self, name: str) -> None:
        node = self._context.nodes.get(name)
        if node is None:
            return
        if not rules.is_uninitialized(node):
            await self._reconcile_labels(node)
            return
        if node.spec.provider_id and not self._directory.owns(node.spec.provider_id):
            self._events.event(
                node,
                "Warning",
                "ForeignProviderID",
                f"providerID {node.spec.provider_id!r} is not one of provider {self._context.gateway.cloud.name!r}: "
                "this controller leaves the Node and its taint alone",
            )
            return
        not_before = self._seen.get(name, self._context.monotonic())
        try:
            instance = await self._directory.lookup(rules.instance_ref(node), not_before=not_before)
            await self._initialise(node, instance)
        except CloudError as error:
            # What was read is too old for the next attempt: a missing instance may appear, a failing cloud recover.
            self._seen[name] = self._context.monotonic()
            kind = "InstanceNotFound" if isinstance(error, NotFound) else "CloudNotAvailable"
            self._events.event(node, "Warning", kind, f"not initialised: {error}")
            if error.retry_after is not None:
                raise Requeue(error.retry_after) from error
            raise
        except rules.NodeRuleError as error:
            self._seen[name] = self._context.monotonic()
            self._events.event(node, "Warning", "InitializationFailed", str(error))
            raise

    async def _initialise(self, node: Node, instance: Instance) -> None:
        """Write addresses, then everything else. Each patch names the resourceVersion that it was decided upon; when
        another writer was faster, read again and decide again, with the same instance."""
        path = f"/api/v1/nodes/{node.metadata.name}"
        for _ in range(CONFLICT_RETRIES):
            plan = rules.plan_initialisation(node, instance)
            version = node.metadata.resource_version
            try:
                if plan.status is not None:
                    guarded = {"metadata": {"resourceVersion": version}, **plan.status}
                    version = (await self._context.client.patch(f"{path}/status", guarded)).resource_version
                metadata = {**plan.node.get("metadata", {}), "resourceVersion": version}
                await self._context.client.patch(path, {**plan.node, "metadata": metadata})
            except ConflictError:
                node = await self._context.client.get(path, Node)
                if not rules.is_uninitialized(node):
                    return
                continue
            except NotFoundError:
                return
            self._initialised(node, instance)
            return
        raise Requeue(1.0)

    def _initialised(self, node: Node, instance: Instance) -> None:
        name = node.metadata.name
        self._seen.pop(name, None)
        delay = age_seconds(node)
        TAINT_DELAY.observe(delay)
        SYNC_DELAY.observe(delay)
        self._events.event(node, "Normal", "Synced", "Node synced successfully")
        log.info("node %s initialised as %s, %.1f s after its creation", name, instance.provider_id, delay)

    async def _reconcile_labels(self, node: Node) -> None:
        labels = rules.reconciled_labels(node.metadata.labels)
        if labels:
            metadata = {"labels": labels, "resourceVersion": node.metadata.resource_version}
            try:
                await self._context.client.patch(f"/api/v1/nodes/{node.metadata.name}", {"metadata": metadata})
            except ConflictError:
                raise Requeue(0.2) from None
            except NotFoundError:
                pass

    async def _refresh_for_ever(self) -> None:
        """At start and then every `refresh` seconds: one listing, and a patch for each Node whose addresses differ."""
        while True:
            try:
                await self._refresh()
            except CloudError as error:
                log.warning("addresses are not refreshed: %s", error)
            await asyncio.sleep(self._options.refresh)

    async def _refresh(self) -> None:
        nodes = [
            node
            for node in self._context.nodes.items()
            if not rules.is_uninitialized(node) and self._directory.owns(node.spec.provider_id)
        ]
        if not nodes:
            return
        snapshot = await self._directory.list(not_before=self._context.monotonic())
        for node in nodes:
            try:
                # Against the Node as it is now, not as it was before the listing.
                current = self._context.nodes.get(node.metadata.name)
                if current is None or rules.is_uninitialized(current):
                    continue
                instance = snapshot.find(rules.instance_ref(current))
                patch = rules.status_patch(current, instance) if instance.addresses else None
                if patch is not None:
                    await self._context.client.patch(f"/api/v1/nodes/{current.metadata.name}/status", patch)
            except rules.NodeRuleError as error:
                self._events.event(node, "Warning", "AddressesNotUpdated", str(error))
            except (NotFound, NotFoundError):
                continue  # the lifecycle controller's business
            except ApiError as error:
                log.warning("addresses of node %s are not refreshed: %s", node.metadata.name, error)


def age_seconds(node: Node) -> float:
    """Seconds since the API server created the Node; 0 when it does not say."""
    if not node.metadata.creation_timestamp:
        return 0.0
    created = datetime.datetime.fromisoformat(node.metadata.creation_timestamp)
    return max(0.0, (datetime.datetime.now(datetime.UTC) - created).total_seconds())
