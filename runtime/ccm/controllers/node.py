# SPDX-License-Identifier: Apache-2.0
"""cloud-node-controller: initialises Nodes with the `uninitialized` taint and keeps them as the cloud describes them.

Addresses are written before the taint is removed. Upstream does it the other way round, and a failed write of
addresses waits five minutes there. The taint goes together with labels and providerID in one patch. Both patches name
the resourceVersion that was read, so nothing that others write meanwhile is lost.

A refresh is one listing. It only compares; what differs is written by the same workers that initialise Nodes, so that
it is bounded as they are and a failed write is tried again.
"""

from __future__ import annotations

import asyncio
import datetime
import logging
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from prometheus_client import Counter, Gauge, Histogram

from ccm.cloud import CloudError, Instance, NotFound
from ccm.engine.client import ApiError, ConflictError, NotFoundError
from ccm.engine.objects import Node, parse_time
from ccm.engine.queue import Requeue, WorkQueue
from ccm.gateway.instance_directory import InstanceDirectory
from ccm.gateway.instance_snapshot import Snapshot

from . import node_rules as rules
from .context import Context, log_failure
from .event_budget import EventBudget
from .instance_warnings import InstanceWarnings
from .stretches import STRETCH
from .vouching import Vouching
from .vouching_rules import Refused, judge

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
NOT_INITIALISED = Counter(
    "ccm_node_initialization_failures",
    "Attempts that left a Node tainted, by reason: InstanceNotFound, CloudNotAvailable, InitializationFailed (the Node "
    "and its instance contradict each other), OtherMachine and SameProviderID (its providerID is another machine's, or "
    "another Node's), ForeignProviderID, ApiServerRefused.",
    ["reason"],
)
NOT_UPDATED = Counter(
    "ccm_node_update_failures",
    "Initialised Nodes that could not be brought in line with their instance, by reason: AddressesNotUpdated (the "
    "kubelet's --node-ip is not among the cloud's addresses), OtherMachine and SameProviderID (its providerID is "
    "another machine's, or another Node's), ApiServerRefused.",
    ["reason"],
)
PATCHES = Counter(
    "ccm_node_patches",
    "Patches of Nodes, by what they write: addresses, initialisation, labels, shutdown-taint.",
    ["kind"],
)
REFRESH = Histogram(
    "ccm_node_refresh_duration_seconds",
    "How long it took to list the instances and compare all Nodes with them, by result: success, failure.",
    ["result"],
    buckets=(0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120),
)
VANISHED = Gauge(
    "ccm_nodes_ready_without_instance",
    "Ready Nodes whose instance the cloud did not list at the last refresh. They are kept as long as they are Ready.",
)

# There from the start, so that the first one is seen as a rise.
for _family, _values in (
    (
        NOT_INITIALISED,
        (
            "InstanceNotFound",
            "CloudNotAvailable",
            "InitializationFailed",
            "OtherMachine",
            "SameProviderID",
            "ForeignProviderID",
            "ApiServerRefused",
        ),
    ),
    (NOT_UPDATED, ("AddressesNotUpdated", "OtherMachine", "SameProviderID", "ApiServerRefused")),
    (PATCHES, ("addresses", "initialisation", "labels", "shutdown-taint")),
    (REFRESH, ("success", "failure")),
):
    for _value in _values:
        _family.labels(_value)

#: Writes of one Node that lose against other writers before it is put back into the queue.
CONFLICT_RETRIES = 10
#: How long after a refresh that failed the next one comes, in seconds, if that is sooner than the period.
REFRESH_RETRY = 30.0
#: A period is lengthened by up to this share of itself, so that replicas and clusters do not ask in step.
JITTER = 0.1


@dataclass(frozen=True)
class NodeOptions:
    """`workers`: Nodes written at the same time; `refresh`: seconds between comparisons of all Nodes with the cloud;
    `legacy_labels`: write the deprecated spelling of zone, region and type labels, too; `refresh_labels`: overwrite
    those of initialised Nodes that differ from the cloud's."""

    workers: int = 30
    refresh: float = 300.0
    legacy_labels: bool = True
    refresh_labels: bool = False


class NodeController:
    name: ClassVar[str] = "cloud-node-controller"

    def __init__(self, context: Context, options: NodeOptions, vouching: Vouching) -> None:
        if context.gateway.instances is None:
            raise ValueError(f"{self.name} needs a provider with instances")
        self._vouching = vouching
        self._directory: InstanceDirectory = context.gateway.instances
        self._context = context
        self._options = options
        events = context.recorder("cloud-node-controller")
        self._warnings = EventBudget(events, context.monotonic)
        self._instance_warnings = InstanceWarnings(self._warnings)
        #: A budget of their own, so that they take no turn of a warning.
        self._successes = EventBudget(events, context.monotonic)
        self._queue: WorkQueue[str] = WorkQueue("Nodes", base_delay=0.5, max_delay=60.0)
        #: When a tainted Node was first seen, in monotonic seconds: its instance must be read no earlier than that.
        self._seen: dict[str, float] = {}
        #: What the cloud said about a tainted Node, with its UID, while it is not written: a conflict is no reason to
        #: ask again.
        self._found: dict[str, tuple[str, Instance]] = {}
        #: Initialised Nodes that differ from their instance, as of the last refresh.
        self._repairs: dict[str, Instance] = {}

    async def run(self) -> None:
        self._context.nodes.add_handler(self._on_node)
        await self._context.nodes.wait_synced()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._queue.run_workers(self._options.workers, self._sync, on_error=log_failure(log)))
            tasks.create_task(self._refresh_for_ever())

    def _on_node(self, old: Node | None, new: Node | None) -> None:
        if new is None:
            assert old is not None
            self._forget(old.metadata.name)
            return
        if rules.is_uninitialized(new):
            if old is None or rules.asks_anew(old, new):
                self._ask_anew(new.metadata.name)
                self._directory.expect()
                self._queue.add(new.metadata.name)
            return
        self._seen.pop(new.metadata.name, None)
        self._found.pop(new.metadata.name, None)
        if rules.reconciled_labels(new.metadata.labels, legacy=self._options.legacy_labels):
            self._queue.add(new.metadata.name)

    def _forget(self, name: str) -> None:
        for known in (self._seen, self._found, self._repairs):
            known.pop(name, None)
        self._instance_warnings.forget(name)

    def _ask_anew(self, name: str) -> None:
        """What is known is too old for the next attempt: a missing instance may appear, a wrong one be corrected."""
        self._seen[name] = self._context.monotonic()
        self._found.pop(name, None)

    async def _sync(self, name: str) -> None:
        node = self._context.nodes.get(name)
        if node is None:
            return
        initialised = not rules.is_uninitialized(node)
        try:
            await (self._repair(node) if initialised else self._initialise(node))
        except ApiError as error:
            if 400 <= error.status < 500 and error.status != 429:  # it would be refused the next time, too
                self._found.pop(name, None)
                (NOT_UPDATED if initialised else NOT_INITIALISED).labels("ApiServerRefused").inc()
                reason = "UpdateFailed" if initialised else "InitializationFailed"
                self._warnings.event(
                    node, "Warning", reason, f"the API server refuses the change: {error}", topic="API"
                )
            raise
        finally:
            if self._context.nodes.get(name) is None:  # it went meanwhile, and nobody asks for what was learnt
                self._forget(name)

    async def _initialise(self, node: Node) -> None:
        name = node.metadata.name
        if node.spec.provider_id and not self._directory.owns(node.spec.provider_id):
            self._not_initialised(
                node,
                "ForeignProviderID",
                f"providerID {node.spec.provider_id!r} is not one of provider {self._context.gateway.cloud.name!r}: "
                "this controller leaves the Node and its taint alone",
            )
            return
        try:
            uid, instance = self._found.get(name, ("", None))
            if instance is None or uid != node.metadata.uid:
                not_before = self._seen.get(name, self._context.monotonic())
                instance = await self._directory.lookup(rules.instance_ref(node), not_before=not_before)
                if wrong := await self._vouching.problem(node, instance, not_before=not_before):
                    raise rules.NodeRuleError(f"not initialised: {wrong.message}", reason=wrong.reason)
                self._instance_warnings.tell(node, instance)
                self._found[name] = (node.metadata.uid, instance)
            written = await self._write(node, "initialisation", self._initialisation(instance))
        except CloudError as error:
            self._ask_anew(name)
            reason = "InstanceNotFound" if isinstance(error, NotFound) else "CloudNotAvailable"
            self._not_initialised(node, reason, f"not initialised: {error}")
            if error.retry_after is not None:
                raise Requeue(error.retry_after) from error
            raise
        except rules.NodeRuleError as error:
            self._ask_anew(name)
            self._not_initialised(node, error.reason, str(error), topic=str(error))
            raise
        if written is not None:
            self._tell_initialised(written, instance)

    def _initialisation(self, instance: Instance) -> Callable[[Node], rules.Plan]:
        def plan(node: Node) -> rules.Plan:
            if not rules.is_uninitialized(node):
                return rules.Plan()
            return rules.plan_initialisation(node, instance, legacy=self._options.legacy_labels)

        return plan

    def _not_initialised(self, node: Node, reason: str, message: str, *, topic: str = "") -> None:
        NOT_INITIALISED.labels(reason).inc()
        self._warnings.event(node, "Warning", reason, message, topic=topic)

    def _tell_initialised(self, node: Node, instance: Instance) -> None:
        name = node.metadata.name
        self._seen.pop(name, None)
        self._found.pop(name, None)
        delay = age_seconds(node, self._context.now())
        TAINT_DELAY.observe(delay)
        SYNC_DELAY.observe(delay)
        self._successes.event(node, "Normal", "Synced", "Node synced successfully")
        if unusable := rules.unusable_labels(instance):
            self._warnings.event(
                node,
                "Warning",
                "LabelsNotUsable",
                f"the cloud names labels that a Node cannot have, they are left out: {', '.join(unusable)}",
            )
        log.info("node %s initialised as %s, %.1f s after its creation", name, instance.provider_id, delay)

    async def _repair(self, node: Node) -> None:
        """Write what the last refresh found to differ, and make both spellings of labels agree."""
        name = node.metadata.name
        instance = self._repairs.get(name)
        await self._write(node, "labels", lambda node: self._plan_repair(node, instance))
        if self._repairs.get(name) is instance:
            self._repairs.pop(name, None)

    def _plan_repair(self, node: Node, instance: Instance | None) -> rules.Plan:
        legacy, refresh = self._options.legacy_labels, self._options.refresh_labels
        return rules.plan_repair(node, instance, legacy=legacy, refresh_labels=refresh)

    async def _write(self, node: Node, kind: str, plan_for: Callable[[Node], rules.Plan]) -> Node | None:
        """Write what `plan_for` says; the Node that it was decided upon, None when there was nothing to do.

        Each patch names the resourceVersion that it was decided upon; when another writer was faster, read again and
        decide again, from the same facts.
        """
        path, uid = f"/api/v1/nodes/{node.metadata.name}", node.metadata.uid
        for _ in range(CONFLICT_RETRIES):
            plan = plan_for(node)
            if plan.is_empty or node.metadata.uid != uid:  # the facts are not about its successor
                return None
            version = node.metadata.resource_version
            try:
                if plan.status is not None:
                    guarded = {"metadata": {"resourceVersion": version}, **plan.status}
                    version = (await self._context.client.patch(f"{path}/status", guarded)).resource_version
                    PATCHES.labels("addresses").inc()
                if plan.node is not None:
                    metadata = {**plan.node.get("metadata", {}), "resourceVersion": version}
                    await self._context.client.patch(path, {**plan.node, "metadata": metadata})
                    PATCHES.labels(kind).inc()
                return node
            except ConflictError:
                try:
                    node = await self._context.client.get(path, Node)
                except NotFoundError:
                    return None
            except NotFoundError:
                return None
        raise Requeue(1.0)

    async def _refresh_for_ever(self) -> None:
        """At start and then every `refresh` seconds, sooner after a failure."""
        while True:
            started, result, wait = self._context.monotonic(), "failure", self._options.refresh
            try:
                await self._refresh()
                result = "success"
            except CloudError as error:
                wait = min(wait, max(REFRESH_RETRY, error.retry_after or 0.0))
                log.warning("Nodes are not compared with the cloud, again in %.0f s: %s", wait, error)
            except Exception:  # a bug; but Nodes that join, and the other controllers, must not suffer from it
                wait = min(wait, REFRESH_RETRY)
                log.exception("Nodes are not compared with the cloud, again in %.0f s", wait)
            REFRESH.labels(result).observe(self._context.monotonic() - started)
            await asyncio.sleep(wait * random.uniform(1.0, 1.0 + JITTER))

    async def _refresh(self) -> None:
        """Compare all initialised Nodes with one listing; what differs is put into the queue. Raises CloudError."""
        names = [node.metadata.name for node in self._context.nodes.items() if self._is_comparable(node)]
        if not names:
            VANISHED.set(0)
            return
        snapshot = await self._directory.list(not_before=self._context.monotonic())
        self._repairs = {}
        vanished = 0
        for number, name in enumerate(names, 1):
            # The Node as it is now, not as it was before the listing.
            node = self._context.nodes.get(name)
            if node is not None and self._is_comparable(node):
                vanished += not self._compare(node, snapshot)
            if number % STRETCH == 0:
                await asyncio.sleep(0)
        VANISHED.set(vanished)

    def _is_comparable(self, node: Node) -> bool:
        return not rules.is_uninitialized(node) and self._directory.owns(node.spec.provider_id)

    def _compare(self, node: Node, snapshot: Snapshot) -> bool:
        """Compare one Node with its instance; False when it is Ready and the cloud lists no such instance."""
        try:
            instance = snapshot.find(rules.instance_ref(node))
        except NotFound as error:
            if not rules.is_ready(node):
                return True  # the lifecycle controller's business
            message = f"{error}. The Node is Ready and therefore kept, with its addresses and labels as they are"
            if replaced := snapshot.by_name.get(node.metadata.name):
                message += (
                    f". {replaced[0].provider_id} has its name: if that is its machine now, delete the Node, so that "
                    "it registers anew"
                )
            self._warnings.event(node, "Warning", "InstanceNotListed", message)
            return False
        except CloudError as error:
            self._warnings.event(node, "Warning", "CloudNotAvailable", f"not compared with its instance: {error}")
            return True
        namesakes = snapshot.by_name.get(node.metadata.name, ())
        verdict = judge(node, instance, self._vouching.claimants(node.spec.provider_id), namesakes)
        if isinstance(verdict, Refused):
            message = f"{verdict.message}. Nothing is written to it"
            NOT_UPDATED.labels(verdict.reason).inc()
            self._warnings.event(node, "Warning", verdict.reason, message, topic=message)
            return True
        self._instance_warnings.tell(node, instance)
        plan = self._plan_repair(node, instance)
        if plan.problem:
            NOT_UPDATED.labels("AddressesNotUpdated").inc()
            self._warnings.event(node, "Warning", "AddressesNotUpdated", plan.problem, topic=plan.problem)
        if not plan.is_empty:
            self._repairs[node.metadata.name] = instance
            self._queue.add(node.metadata.name)
        return True


def age_seconds(node: Node, now: datetime.datetime) -> float:
    """Seconds since the API server created the Node, by our wall clock; 0 when it does not say, or not as RFC 3339."""
    try:
        return max(0.0, (now - parse_time(node.metadata.creation_timestamp or "")).total_seconds())
    except (ValueError, TypeError):  # TypeError: a time without its zone
        return 0.0
