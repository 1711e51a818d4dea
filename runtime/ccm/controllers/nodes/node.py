# SPDX-License-Identifier: Apache-2.0
"""cloud-node-controller: initialises Nodes that have the `uninitialized` taint and keeps them in line with the cloud.

The controller writes addresses before it removes the taint. Upstream does the opposite, and there a failed write of
addresses is retried only after five minutes. One write removes the taint and sets labels and providerID. Each write
names the resourceVersion on which it is based, so changes by other writers are never lost (`node_writes`).

A refresh only compares the Nodes with one listing. The workers that initialise Nodes also write the differences, so the
same limits apply and a failed write is retried.
"""

from __future__ import annotations

import asyncio
import datetime
import logging
import random
from collections.abc import Callable
from typing import ClassVar

import msgspec
from prometheus_client import Counter, Histogram

from ccm.base.cancellation import TaskGroup
from ccm.base.cloud_metrics import CloudGauge
from ccm.cloud import CloudError, Instance, NotFound
from ccm.engine.client import ApiError, ConflictError, NotFoundError
from ccm.engine.objects import Node, parse_time
from ccm.engine.queue import Blocked, Requeue, WorkQueue
from ccm.gateway.instance_directory import InstanceDirectory
from ccm.gateway.instance_snapshot import Snapshot

from ..shared.context import Context, log_failure
from ..shared.event_budget import EventBudget
from ..shared.stretches import STRETCH
from . import node_rules as rules
from .instance_warnings import InstanceWarnings
from .node_label_rules import Refresh
from .node_writes import PATCHES, NodeWrites
from .owners import OwnershipUnclear, Share
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
    "Attempts that left a Node tainted, by reason: InstanceNotFound, CloudNotAvailable, InstanceIncomplete (the cloud "
    "cannot describe the machine yet), InitializationFailed (the Node and its instance contradict each other), "
    "OtherMachine and SameProviderID (the providerID belongs to another machine or another Node), ForeignProviderID, "
    "ApiServerRefused.",
    ["reason"],
)
NOT_UPDATED = Counter(
    "ccm_node_update_failures",
    "Initialised Nodes that could not be updated from their instance, by reason: AddressesNotUpdated (the kubelet's "
    "--node-ip is not among the cloud's addresses), OtherMachine and SameProviderID (the providerID belongs to another "
    "machine or another Node), ApiServerRefused.",
    ["reason"],
)
REFRESH = Histogram(
    "ccm_node_refresh_duration_seconds",
    "Seconds needed to list the instances and compare all Nodes with them, by result: success, failure.",
    ["result"],
    buckets=(0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120),
)
VANISHED = CloudGauge(
    "ccm_nodes_ready_without_instance",
    "Ready Nodes whose instance was missing from the cloud's last listing. They are kept while they are Ready.",
)

# Create all labels at start, so that the first increment is visible as a rise.
for _family, _values in (
    (
        NOT_INITIALISED,
        (
            "InstanceNotFound",
            "CloudNotAvailable",
            "InstanceIncomplete",
            "InitializationFailed",
            "OtherMachine",
            "SameProviderID",
            "ForeignProviderID",
            "ApiServerRefused",
        ),
    ),
    (NOT_UPDATED, ("AddressesNotUpdated", "OtherMachine", "SameProviderID", "ApiServerRefused")),
    (PATCHES, ("addresses", "initialisation", "labels", "shutdown-taint", "out-of-service-taint")),
    (REFRESH, ("success", "failure")),
):
    for _value in _values:
        _family.labels(_value)

#: Conflicts with other writers after which a Node returns to the queue.
CONFLICT_RETRIES = 10
#: Seconds until the next refresh after one that failed, if that is sooner than the period.
REFRESH_RETRY = 30.0
#: A period is lengthened by up to this share, so that replicas and clusters do not send requests in step.
JITTER = 0.1


class NodeOptions(msgspec.Struct, frozen=True):
    """Options of the node controller.

    `workers`: Nodes written at the same time. `refresh`: seconds between comparisons of all Nodes with the cloud.
    `legacy_labels`: also write the deprecated zone, region and type labels. `refresh_labels`: what a
    refresh does to labels of initialised Nodes.
    """

    workers: int = 30
    refresh: float = 300.0
    legacy_labels: bool = True
    refresh_labels: Refresh = Refresh.MISSING


class NodeController:
    name: ClassVar[str] = "cloud-node-controller"

    def __init__(self, context: Context, options: NodeOptions, vouching: Vouching, share: Share | None = None) -> None:
        """`share`: the Nodes of this cloud if the process has several clouds, otherwise None. Raises ValueError for a
        provider without instances."""
        if context.gateway.instances is None:
            raise ValueError(f"{self.name} needs a provider with instances")
        self._vouching, self._share = vouching, share
        self._directory: InstanceDirectory = context.gateway.instances
        self._context = context
        self._options = options
        events = context.recorder("cloud-node-controller")
        self._warnings = EventBudget(events, context.monotonic)
        self._instance_warnings = InstanceWarnings(self._warnings)
        #: A separate budget, so that successes never displace a warning.
        self._successes = EventBudget(events, context.monotonic)
        self._writes = NodeWrites(context.client)
        self._queue: WorkQueue[str] = WorkQueue(context.of_cloud("Nodes"), base_delay=0.5, max_delay=60.0)
        #: When a tainted Node appeared, changed so that an attempt may succeed, or failed last (monotonic seconds): its
        #: instance must be read no earlier than that.
        self._not_before: dict[str, float] = {}
        #: The instance of a tainted Node, with the Node's UID, kept until the Node is written, because a conflict must
        #: not cause another cloud request.
        self._instances: dict[str, tuple[str, Instance]] = {}
        #: Initialised Nodes that differed from their instance in the last refresh.
        self._repairs: dict[str, Instance] = {}

    async def run(self) -> None:
        self._context.nodes.add_handler(self._on_node)
        await self._context.nodes.wait_synced()
        self._context.gateway.on_recovery("instances", self._queue.add)
        async with TaskGroup() as tasks:
            tasks.create_task(self._queue.run_workers(self._options.workers, self._sync, on_error=log_failure(log)))
            tasks.create_task(self._refresh_for_ever())

    def _on_node(self, old: Node | None, new: Node | None) -> None:
        if new is None:
            assert old is not None
            self._forget(old.metadata.name)
            return
        if rules.is_uninitialized(new):
            if old is None or rules.may_succeed_now(old, new):
                self._discard_facts(new.metadata.name)
                self._directory.expect()
                self._queue.add(new.metadata.name)
            return
        self._not_before.pop(new.metadata.name, None)
        self._instances.pop(new.metadata.name, None)
        if old is not None and rules.is_uninitialized(old):  # initialised, by anyone: earlier failures do not count
            self._queue.forget(new.metadata.name)
        is_concerned = self._share is None or self._share.concerns(new)
        if is_concerned and rules.reconciled_labels(new.metadata.labels, legacy=self._options.legacy_labels):
            self._queue.add(new.metadata.name)

    def _forget(self, name: str) -> None:
        if self._share is not None:
            self._share.owners.forget(name)
        for known in (self._not_before, self._instances, self._repairs):
            known.pop(name, None)
        self._instance_warnings.forget(name)
        self._queue.forget(name)

    def _discard_facts(self, name: str) -> None:
        """Discard cached facts before the next attempt, because a missing instance may appear, and a wrong one may be
        fixed."""
        self._not_before[name] = self._context.monotonic()
        self._instances.pop(name, None)

    async def _sync(self, name: str) -> None:
        node = self._context.nodes.get(name)
        if node is None:
            return
        initialised = not rules.is_uninitialized(node)
        try:
            await (self._repair(node) if initialised else self._initialise(node))
        except NotFoundError:
            raise  # the Node was deleted: the queue looks once more
        except ApiError as error:
            if 400 <= error.status < 500 and error.status != 429:  # a retry would be refused as well
                self._instances.pop(name, None)
                (NOT_UPDATED if initialised else NOT_INITIALISED).labels("ApiServerRefused").inc()
                reason = "UpdateFailed" if initialised else "InitializationFailed"
                self._warnings.event(
                    node, "Warning", reason, f"the API server refused the change: {error}", topic="API"
                )
            raise
        finally:
            if self._context.nodes.get(name) is None:  # deleted in the meantime, so the cached facts are useless
                self._forget(name)

    async def _initialise(self, node: Node) -> None:
        name = node.metadata.name
        if self._share is not None and not await self._is_ours(node, self._share):
            return
        if node.spec.provider_id and not self._directory.owns(node.spec.provider_id):
            message = rules.foreign_provider_id(node, self._context.gateway.cloud.name)
            self._not_initialised(node, "ForeignProviderID", message)
            raise Blocked(message)
        try:
            uid, instance = self._instances.get(name, ("", None))
            if instance is None or uid != node.metadata.uid:
                not_before = self._not_before.get(name, self._context.monotonic())
                instance = await self._directory.lookup(rules.instance_ref(node), not_before=not_before)
                if wrong := await self._vouching.problem(node, instance, not_before=not_before):
                    raise rules.NodeRuleError(f"not initialised: {wrong.message}", reason=wrong.reason)
                self._instance_warnings.report(node, instance)
                self._instances[name] = (node.metadata.uid, instance)
            written = await self._write(node, "initialisation", self._initialisation(instance))
        except CloudError as error:
            self._discard_facts(name)
            if isinstance(error, NotFound):
                if self._share is not None:
                    self._share.owners.forget(name)
                latest = self._directory.latest if node.spec.provider_id else None
                namesakes = latest.by_name.get(name, ()) if latest is not None else ()
                self._not_initialised(node, "InstanceNotFound", rules.not_found(error, namesakes))
            else:
                self._not_initialised(node, "CloudNotAvailable", f"not initialised: {error}")
            if error.retry_after is not None:
                raise Requeue(error.retry_after) from error
            raise
        except rules.NodeRuleError as error:
            self._discard_facts(name)
            self._not_initialised(node, error.reason, str(error), topic=str(error))
            raise
        if written is not None:
            self._report_initialised(written, instance)

    async def _is_ours(self, node: Node, share: Share) -> bool:
        """Return whether the Node belongs to this cloud. Raises OwnershipUnclear if no cloud is known to own it, and
        Blocked if no answer of a cloud can change that."""
        name = node.metadata.name
        try:
            return await share.includes(node, not_before=self._not_before.get(name, self._context.monotonic()))
        except OwnershipUnclear as unclear:
            if not unclear.is_silence:  # a read that is under way may still answer
                self._discard_facts(name)
            if share.reports:
                self._not_initialised(node, unclear.reason, str(unclear), topic=unclear.reason)
            if unclear.is_final:
                raise Blocked(str(unclear)) from None
            raise

    def _initialisation(self, instance: Instance) -> Callable[[Node], rules.Plan]:
        def plan(node: Node) -> rules.Plan:
            if not rules.is_uninitialized(node):
                return rules.Plan()
            legacy, refresh = self._options.legacy_labels, self._options.refresh_labels
            return rules.plan_initialisation(node, instance, legacy=legacy, refresh=refresh)

        return plan

    def _not_initialised(self, node: Node, reason: str, message: str, *, topic: str = "") -> None:
        NOT_INITIALISED.labels(reason).inc()
        self._warnings.event(node, "Warning", reason, message, topic=topic)

    def _report_initialised(self, node: Node, instance: Instance) -> None:
        name = node.metadata.name
        self._not_before.pop(name, None)
        self._instances.pop(name, None)
        delay = age_seconds(node, self._context.now())
        TAINT_DELAY.observe(delay)
        SYNC_DELAY.observe(delay)
        self._successes.event(node, "Normal", "Synced", "Node synced successfully")
        if unusable := rules.unusable_labels(instance):
            self._warnings.event(
                node,
                "Warning",
                "LabelsNotUsable",
                f"the cloud reports labels that are not valid on a Node; they are left out: {', '.join(unusable)}",
            )
        log.info("node %s initialised as %s, %.1f s after its creation", name, instance.provider_id, delay)

    async def _repair(self, node: Node) -> None:
        """Write the differences found by the last refresh, and make both spellings of labels agree."""
        name = node.metadata.name
        instance = self._repairs.get(name)
        await self._write(node, "labels", lambda node: self._plan_repair(node, instance))
        if self._repairs.get(name) is instance:
            self._repairs.pop(name, None)

    def _plan_repair(self, node: Node, instance: Instance | None) -> rules.Plan:
        legacy, refresh = self._options.legacy_labels, self._options.refresh_labels
        return rules.plan_repair(node, instance, legacy=legacy, refresh=refresh)

    async def _write(self, node: Node, kind: str, plan_for: Callable[[Node], rules.Plan]) -> Node | None:
        """Write what `plan_for` decides. Return the Node that the decision was based on, None if there was nothing
        to do, or if the Node is gone or replaced.

        After a conflict, the Node is read again and the decision is repeated with the same facts. Raises Requeue after
        `CONFLICT_RETRIES` conflicts, or if the cache shows that there is something to do after all. Raises ApiError.
        """
        name, uid = node.metadata.name, node.metadata.uid
        for _ in range(CONFLICT_RETRIES):
            plan = plan_for(node)
            if plan.is_empty or node.metadata.uid != uid:  # the facts do not apply to a successor
                break
            try:
                await self._writes.write(node, plan, kind)
                return node
            except ConflictError:
                try:
                    node = await self._context.client.get(f"/api/v1/nodes/{name}", Node)
                except NotFoundError:
                    break
        else:
            raise Requeue(random.uniform(1.0, 1.0 + JITTER))
        cached = self._context.nodes.get(name)
        if cached is not None and cached.metadata.uid == uid and not plan_for(cached).is_empty:
            raise Requeue(1.0)  # the read after the conflict was older than the cache
        return None

    async def _refresh_for_ever(self) -> None:
        """Refresh at start and then every `refresh` seconds, sooner after a failure."""
        while True:
            started, result, wait = self._context.monotonic(), "failure", self._options.refresh
            try:
                await self._refresh()
                result = "success"
            except CloudError as error:
                wait = min(wait, max(REFRESH_RETRY, error.retry_after or 0.0))
                log.warning("cannot compare Nodes with the cloud, next try in %.0f s: %s", wait, error)
            except Exception:  # a bug must not stop the initialisation of Nodes or the other controllers
                wait = min(wait, REFRESH_RETRY)
                log.exception("cannot compare Nodes with the cloud, next try in %.0f s", wait)
            REFRESH.labels(result).observe(self._context.monotonic() - started)
            await asyncio.sleep(wait * random.uniform(1.0, 1.0 + JITTER))

    async def _refresh(self) -> None:
        """Compare all initialised Nodes with one listing and queue those that differ. Raises CloudError."""
        names = [node.metadata.name for node in self._context.nodes.items() if self._is_comparable(node)]
        if not names:
            VANISHED.of(self._context.gateway.name).set(0)
            return
        snapshot = await self._directory.list(not_before=self._context.monotonic())
        self._repairs = {}
        vanished = 0
        for number, name in enumerate(names, 1):
            # Read the Node again: it may have changed during the listing.
            node = self._context.nodes.get(name)
            if node is not None and self._is_comparable(node):
                vanished += not self._compare(node, snapshot)
            if number % STRETCH == 0:
                await asyncio.sleep(0)
        VANISHED.of(self._context.gateway.name).set(vanished)

    def _is_comparable(self, node: Node) -> bool:
        is_ours = self._share is None or self._share.has(node)
        return is_ours and not rules.is_uninitialized(node) and self._directory.owns(node.spec.provider_id)

    def _compare(self, node: Node, snapshot: Snapshot) -> bool:
        """Compare one Node with its instance. Return False if it is Ready and the cloud does not list the instance."""
        try:
            instance = snapshot.find(rules.instance_ref(node))
        except NotFound as error:
            if not rules.is_ready(node):
                return True  # the lifecycle controller handles it
            message = rules.ready_but_not_listed(error, snapshot.by_name.get(node.metadata.name, ()))
            self._warnings.event(node, "Warning", "InstanceNotListed", message)
            return False
        except CloudError as error:
            self._warnings.event(node, "Warning", "CloudNotAvailable", f"cannot compare with its instance: {error}")
            return True
        namesakes = snapshot.by_name.get(node.metadata.name, ())
        verdict = judge(node, instance, self._vouching.claimants(node.spec.provider_id), namesakes)
        if isinstance(verdict, Refused):
            message = f"{verdict.message}. Nothing is written to the Node"
            NOT_UPDATED.labels(verdict.reason).inc()
            self._warnings.event(node, "Warning", verdict.reason, message, topic=message)
            return True
        self._instance_warnings.report(node, instance)
        plan = self._plan_repair(node, instance)
        if plan.problem:
            NOT_UPDATED.labels("AddressesNotUpdated").inc()
            self._warnings.event(node, "Warning", "AddressesNotUpdated", plan.problem, topic=plan.problem)
        if not plan.is_empty:
            self._repairs[node.metadata.name] = instance
            self._queue.add(node.metadata.name)
        return True


def age_seconds(node: Node, now: datetime.datetime) -> float:
    """Return seconds since the Node's creation by our wall clock; 0 if the timestamp is missing or not RFC 3339."""
    try:
        return max(0.0, (now - parse_time(node.metadata.creation_timestamp or "")).total_seconds())
    except (ValueError, TypeError):  # TypeError: a time without a time zone
        return 0.0
