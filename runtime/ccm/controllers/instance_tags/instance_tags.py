# SPDX-License-Identifier: Apache-2.0
"""instance-tags-controller: adds the tags of `--instance-tags` to the instances of Nodes.

Other tools find the cluster's machines by such tags. When Nodes appear, and every ten minutes, the controller lists the
tags of instances and finds those that are missing. A kubelet chooses its providerID, so only Nodes that the cloud
vouches for count. `instance_tags_rules` decides.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from prometheus_client import Counter

from ccm.base.cancellation import TaskGroup
from ccm.base.cloud_metrics import CloudGauge
from ccm.cloud import CloudError, InstanceTags, NotFound
from ccm.engine.objects import Node
from ccm.engine.queue import Requeue, WorkQueue

from ..nodes.owners import Share
from ..nodes.vouching import Vouching
from ..nodes.vouching_rules import Vouched
from ..shared.context import Context, log_failure
from ..shared.event_budget import EventBudget
from . import instance_tags_rules as rules

log = logging.getLogger(__name__)

TAGGED = Counter("ccm_instances_tagged", "Instances to which missing tags were added.")
MISSING = CloudGauge(
    "ccm_instances_without_tags",
    "Instances of Nodes without some of the tags of --instance-tags, at the last check, by reason: Missing (they are "
    "added), OtherValue (a key has another value, which is kept).",
    ["reason"],
)

#: Times in seconds. `AUDIT`: between two checks of the tags of all instances if nothing changes. `GATHER`: to collect
#: new Nodes before a check. `RETRY`: after a check that failed.
AUDIT, GATHER, RETRY = 600.0, 1.0, 15.0


@dataclass(frozen=True)
class InstanceTagsOptions:
    """Options of the controller. `tags`: the tags that each instance must have. `workers`: how many instances are
    tagged at the same time."""

    tags: Mapping[str, str]
    workers: int = 5


class InstanceTagsController:
    name: ClassVar[str] = "instance-tags-controller"

    def __init__(
        self, context: Context, options: InstanceTagsOptions, vouching: Vouching, share: Share | None = None
    ) -> None:
        """`share`: the Nodes of this cloud; None if there is one cloud. Raises ValueError for a provider without
        instance tags."""
        if context.gateway.cloud.instance_tags is None or context.gateway.instances is None:
            raise ValueError(f"{self.name} needs a provider with instance tags")
        self._context, self._options, self._vouching, self._share = context, options, vouching, share
        self._directory = context.gateway.instances
        self._events = EventBudget(context.recorder(self.name), context.monotonic)
        self._queue: WorkQueue[str] = WorkQueue(context.of_cloud("InstanceTags"), base_delay=1.0, max_delay=AUDIT)
        self._missing_gauge = MISSING.of(context.gateway.name)
        self._wake = asyncio.Event()
        #: The tags that were missing at the last check and have not been added since, by name of the Node.
        self._missing: dict[str, Mapping[str, str]] = {}

    @property
    def _cloud(self) -> InstanceTags:
        """The tag functions of the current cloud. A reload of the credentials replaces the cloud."""
        tags = self._context.gateway.cloud.instance_tags
        assert tags is not None
        return tags

    async def run(self) -> None:
        await self._context.nodes.wait_synced()
        await self._vouching.ready()
        self._context.nodes.add_handler(self._on_node)
        self._vouching.on_change(self._wake.set)
        self._context.gateway.on_recovery("instance_tags", self._queue.add)
        async with TaskGroup() as tasks:
            tasks.create_task(self._queue.run_workers(self._options.workers, self._sync, on_error=log_failure(log)))
            tasks.create_task(self._look_for_ever())

    def _on_node(self, old: Node | None, new: Node | None) -> None:
        if rules.is_news(old, new):
            self._wake.set()

    async def _look_for_ever(self) -> None:
        self._wake.set()
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(AUDIT):
                    await self._wake.wait()
            await asyncio.sleep(GATHER)
            self._wake.clear()
            try:
                await self._look()
            except CloudError as error:
                log.warning("cannot read the tags of instances, trying again: %s", error)
                self._wake.set()
                await asyncio.sleep(error.retry_after or RETRY)

    async def _look(self) -> None:
        """Compare one listing with all Nodes. Skip Nodes whose instance is not listed, and Nodes for which the cloud
        does not vouch."""
        listed = await self._context.gateway.call("instance_tags.list", lambda: self._cloud.list())
        tags = {self._directory.same_as(provider_id): has for provider_id, has in listed.items()}
        self._missing.clear()
        others = 0
        for node in self._context.nodes.items():
            has = tags.get(self._directory.same_as(node.spec.provider_id)) if self._is_vouched(node) else None
            if has is None:
                continue
            difference = rules.compare(self._options.tags, has)
            if difference.missing:
                self._missing[node.metadata.name] = difference.missing
                self._queue.add(node.metadata.name)
            if difference.other:
                others += 1
                message = rules.other_message(self._options.tags, difference, node.spec.provider_id)
                self._events.event(node, "Warning", "InstanceTagKept", message)
        self._missing_gauge.labels("Missing").set(len(self._missing))
        self._missing_gauge.labels("OtherValue").set(others)

    def _is_vouched(self, node: Node) -> bool:
        if self._share is not None and not self._share.has(node):
            return False
        return bool(node.spec.provider_id) and isinstance(self._vouching.judge(node), Vouched)

    async def _sync(self, name: str) -> None:
        node, missing = self._context.nodes.get(name), self._missing.get(name)
        if node is None or missing is None or not self._is_vouched(node):
            return
        provider_id = self._directory.same_as(node.spec.provider_id)
        try:
            await self._context.gateway.call("instance_tags.add", lambda: self._cloud.add(provider_id, missing))
        except NotFound:
            return  # the lifecycle controller decides what happens to the Node
        except CloudError as error:
            self._events.event(
                node, "Warning", "InstanceNotTagged", f"cannot add tags to instance {provider_id}: {error}"
            )
            if error.retry_after is not None:
                raise Requeue(error.retry_after) from error
            raise
        self._missing.pop(name, None)
        self._missing_gauge.labels("Missing").set(len(self._missing))
        TAGGED.inc()
        log.info("node %s: added tags to instance %s: %s", name, provider_id, ", ".join(sorted(missing)))
