# SPDX-License-Identifier: Apache-2.0
"""node-ipam-controller: gives each Node its pod CIDRs, from the ranges of `--cluster-cidr` or from the cloud.

It is for clusters in which kube-controller-manager assigns none, because two allocators would give one range to two
Nodes. So this controller assigns nothing while kube-controller-manager assigns pod CIDRs. `node_ipam_rules` decides.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

from prometheus_client import Counter, Gauge

from ccm.base.cancellation import TaskGroup
from ccm.engine.client import ApiError
from ccm.engine.objects import Node
from ccm.engine.queue import Requeue, WorkQueue

from ..nodes import node_rules
from ..nodes.owners import Share
from ..shared.context import Context, log_failure
from ..shared.event_budget import EventBudget
from ..shared.pod_network_rules import Network, PodNetwork
from ..shared.watched_kinds import NODES
from . import node_ipam_rules as rules

log = logging.getLogger(__name__)

ALLOCATIONS = Counter(
    "node_ipam_controller_cidrset_cidrs_allocations",
    "Pod CIDRs assigned to Nodes (upstream's name and label).",
    ["clusterCIDR"],
)
USAGE = Gauge(
    "node_ipam_controller_cidrset_usage_cidrs",
    "Share of a range's pod CIDRs that Nodes have, from 0 to 1 (upstream's name and label).",
    ["clusterCIDR"],
)
REFUSED = Gauge(
    "ccm_node_ipam_refused", "1 while this controller assigns no pod CIDRs because kube-controller-manager does."
)

MANAGERS = "/api/v1/namespaces/kube-system/pods"
#: Times in seconds. `LOOK`: between two checks for another allocator. `AGAIN`: until a Node that got nothing is tried
#: again.
LOOK, AGAIN = 60.0, 60.0
#: Seconds until the first check is repeated if it got no answer.
LOOK_AGAIN = 2.0


@dataclass(frozen=True)
class NodeIpamOptions:
    """Options of the controller. `services`: ranges of Services; no Node gets a block of `network` that overlaps with
    them; unused with `from_cloud`. `workers`: Nodes written at the same time.

    `from_cloud`: whether the cloud assigns pod CIDRs to instances (`--cidr-allocator-type=CloudAllocator`).
    `of_clouds`: cloud -> ranges that only its Nodes get (`--cloud-cluster-cidr`).
    """

    network: PodNetwork
    services: tuple[Network, ...] = ()
    workers: int = 30
    from_cloud: bool = False
    of_clouds: Mapping[str, Sequence[Network]] = field(default_factory=dict)


class Source(Protocol):
    """Where pod CIDRs come from. It remembers which pod CIDRs each Node has, by the Node's UID."""

    def observe(self, node: Node) -> set[str]:
        """Remember the CIDRs of a Node that has some. Return the UIDs of other Nodes with overlapping ones."""
        ...

    def release(self, uid: str) -> bool:
        """Forget a Node that is gone. Return whether it held something."""
        ...

    def is_news(self, old: Node, new: Node) -> bool:
        """Return whether a change of a Node without pod CIDRs is a reason to try again to assign some."""
        ...

    async def choose(self, node: Node) -> Sequence[str]:
        """Return CIDRs for a Node that has none; they belong to the Node until it is released. () means that this
        source has none for the Node now, and that nothing is wrong.

        Raises NotAssigned, Requeue and CloudError.
        """
        ...

    def usage(self) -> Mapping[str, float]:
        """Return the used share of each range, from 0 to 1."""
        ...


class RangeSource:
    """Gives Nodes blocks of `--cluster-cidr`, as kube-controller-manager's range allocator does. Clouds may have ranges
    of their own. `cloud_of`: returns the cloud of a Node, None for none; unused if no cloud has ranges."""

    def __init__(self, options: NodeIpamOptions, cloud_of: Callable[[Node], str | None] = lambda node: None) -> None:
        self._cloud_of = cloud_of
        self._allocators = rules.Allocators(options.network, options.services, options.of_clouds)
        self.observe, self.release = self._allocators.observe, self._allocators.release

    def is_news(self, old: Node, new: Node) -> bool:
        """Return whether the Node's cloud may be known now."""
        return self._allocators.differ and (
            old.spec.provider_id != new.spec.provider_id
            or node_rules.is_uninitialized(old) != node_rules.is_uninitialized(new)
        )

    async def choose(self, node: Node) -> Sequence[str]:
        allocator = self._allocators.of(node, self._cloud_of)
        if allocator is None:
            return ()
        if (cidrs := allocator.assign(node.metadata.uid)) is not None:
            return cidrs
        greedy = allocator.greedy()
        raise rules.NotAssigned(
            f"no pod CIDR is left in {allocator.exhausted()} ({allocator.flag}). Pods on this Node get no "
            "addresses until another Node is deleted"
            + (f". Nodes with a pod CIDR that is wider than one Node's: {greedy}" if greedy else ""),
            "CIDRNotAvailable",
        )

    def usage(self) -> Mapping[str, float]:
        return {str(block.cluster): block.used / block.size for block in self._allocators.ranges}


class NodeIpamController:
    name: ClassVar[str] = "node-ipam-controller"

    def __init__(
        self,
        context: Context,
        options: NodeIpamOptions,
        *,
        source: Source | None = None,
        share: Share | None = None,
    ) -> None:
        """`share`: a view of the owners of Nodes, for ranges of single clouds; None if the process has one cloud."""
        self._context, self._options = context, options
        self._source = source or (RangeSource(options, share.owners.have) if share else RangeSource(options))
        self._events = EventBudget(context.recorder(self.name), context.monotonic)
        self._queue: WorkQueue[str] = WorkQueue("NodeCIDRs", base_delay=0.1, max_delay=60.0)
        #: The Pod of kube-controller-manager that assigns pod CIDRs, "" for none.
        self._other = ""
        #: Names of Nodes that got no pod CIDR (NotAssigned): they are tried again as soon as a Node releases some.
        self._starved: set[str] = set()

    async def run(self) -> None:
        await self._context.nodes.wait_synced()
        while not await self._look_once():  # two allocators would give one range to two Nodes
            await asyncio.sleep(LOOK_AGAIN)
        await self._read_all()
        self._context.nodes.add_handler(self._on_node)
        self._context.gateway.on_recovery("instances", self._queue.add)
        async with TaskGroup() as tasks:
            tasks.create_task(self._queue.run_workers(self._options.workers, self._sync, on_error=log_failure(log)))
            tasks.create_task(self._look_for_ever())

    async def _read_all(self) -> None:
        """Remember what all Nodes have, from a consistent read, because the cache may not show a former leader's last
        write."""
        while True:
            try:
                nodes, _ = await self._context.client.list(NODES.path, Node)
            except ApiError as error:
                log.warning("cannot read which pod CIDRs are in use, trying again: %s", error)
                await asyncio.sleep(error.retry_after or 1.0)
            else:
                break
        for node in nodes:
            self._source.observe(node)
        self._measure()

    async def _look_for_ever(self) -> None:
        while True:
            await asyncio.sleep(LOOK)
            await self._look_once()

    async def _look_once(self) -> bool:
        """Check whether kube-controller-manager assigns pod CIDRs. Without an answer, the last one stays valid.

        Return whether there was an answer.
        """
        try:
            params = {"labelSelector": "component=kube-controller-manager"}
            pods, _ = await self._context.client.list(MANAGERS, rules.ManagerPod, params=params)
        except ApiError as error:
            log.warning("cannot read whether kube-controller-manager assigns pod CIDRs: %s", error)
            return False
        allocator = rules.other_allocator(pods)
        if allocator and not self._other:
            log.error(
                "no pod CIDR is assigned: Pod %s has --allocate-node-cidrs, and two allocators give one range to two "
                "Nodes. Set --allocate-node-cidrs=false there, or switch node-ipam-controller off",
                allocator,
            )
        elif self._other and not allocator:
            log.info("kube-controller-manager assigns no pod CIDRs any more")
        self._other = allocator
        REFUSED.set(1 if allocator else 0)
        return True

    def _on_node(self, old: Node | None, new: Node | None) -> None:
        if old is not None and (new is None or new.metadata.uid != old.metadata.uid):
            self._starved.discard(old.metadata.name)
            if self._source.release(old.metadata.uid):
                for name in self._starved:
                    self._queue.add(name)
                self._measure()
        if new is None:
            return
        if rules.needs_cidrs(new):
            if (
                old is None
                or not rules.needs_cidrs(old)
                or old.metadata.uid != new.metadata.uid
                or self._source.is_news(old, new)
            ):
                self._queue.add(new.metadata.name)
        elif old is None or rules.pod_networks(old) != rules.pod_networks(new):
            self._observe(new)

    def _observe(self, node: Node) -> None:
        self._starved.discard(node.metadata.name)
        others = self._source.observe(node)
        self._measure()
        if others:
            names = sorted(each.metadata.name for each in self._context.nodes.items() if each.metadata.uid in others)
            self._events.event(
                node,
                "Warning",
                "CIDRConflict",
                f"pod CIDRs {', '.join(node.spec.pod_cidrs)} overlap with those of {', '.join(names[:5])}: "
                "delete one of the Nodes and restart its kubelet, so that it gets others",
            )

    async def _sync(self, name: str) -> None:
        node = self._context.nodes.get(name)
        if node is None or not rules.needs_cidrs(node):
            return
        if self._other:
            self._events.event(
                node,
                "Warning",
                "CIDRNotAssigned",
                f"Pod {self._other} assigns pod CIDRs (--allocate-node-cidrs), so node-ipam-controller assigns none",
            )
            raise Requeue(AGAIN)
        try:
            cidrs = await self._source.choose(node)
        except rules.NotAssigned as error:
            self._starved.add(name)
            self._events.event(node, "Warning", error.reason, str(error))
            raise Requeue(AGAIN) from None
        self._starved.discard(name)
        if not cidrs:
            return
        # After a conflict with another writer, the queue tries again, and the CIDRs stay reserved.
        await self._context.client.patch(f"{NODES.path}/{name}", rules.patch(node, cidrs))
        for cidr in cidrs:
            ALLOCATIONS.labels(self._options.network.range_of(cidr)).inc()
        self._measure()
        log.info("node %s: assigned pod CIDRs %s", name, ", ".join(cidrs))

    def _measure(self) -> None:
        for cluster, share in self._source.usage().items():
            USAGE.labels(cluster).set(share)
