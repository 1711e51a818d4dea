# SPDX-License-Identifier: Apache-2.0
"""service-lb-controller: maintains a load balancer in the cloud for every Service of type LoadBalancer.

All work on one Service uses one queue key, so two operations on it never run at the same time. At start, one listing
shows what the cloud has; a Service whose fingerprint the cloud already has needs no write. Changes of Nodes are
collected, and each burst causes one update per Service. Waiting for the cloud occupies no worker: the key returns to
the queue, and one listing answers for all waiting Services. IDs such as S47 and W16 refer to docs/reference/parity.md.
"""

from __future__ import annotations

import asyncio
import logging
import math
from dataclasses import dataclass
from typing import Any, ClassVar

from ccm.cloud import (
    Backends,
    CloudError,
    ComparesLoadBalancers,
    Conflict,
    ImplementedElsewhere,
    LoadBalancer,
    LoadBalancerSpec,
    NotFound,
    RetryAfter,
)
from ccm.engine.client import ApiError, ConflictError, NotFoundError
from ccm.engine.objects import Node, Service
from ccm.engine.queue import Priority, Requeue, WorkQueue

from . import comparison_rules, late_answer_rules
from . import service_metrics as metrics
from . import service_rules as rules
from .allocations import ServiceAllocations
from .comparison import Comparison
from .context import Context, log_failure
from .orphans import OrphanAudit
from .service_balancers import ServiceBalancers
from .service_release import ServiceRelease
from .service_state import ServiceState
from .service_writes import ServiceWrites
from .vanished_services import VanishedServices
from .vouching import Vouching

log = logging.getLogger(__name__)

#: Seconds before the next attempt after a conflict with another writer, and how many conflicts are not an error.
LOST_RACE, LOST_RACES = 0.2, 5
#: Seconds until a Service is tried again that waits for the second list of Nodes.
NODES_AGAIN = 0.5


@dataclass(frozen=True)
class ServiceOptions:
    """Options of the service controller.

    `workers`: Services written at a time; the provider's limits apply as well. `debounce`, `debounce_max`: a burst of
    Node changes ends after `debounce` seconds without a change, at the latest `debounce_max` seconds after the first.
    `poll`, `poll_max`: seconds between reads of a load balancer that the cloud is still working on. `ready_only`: only
    Ready Nodes are backends. `audit_period`: seconds between audits for load balancers whose Service is gone, 0 for
    none; `delete_orphans`: whether the audit deletes them.
    """

    workers: int = 20
    debounce: float = 1.0
    debounce_max: float = 10.0
    poll: float = 0.5
    poll_max: float = 5.0
    ready_only: bool = False
    audit_period: float = 600.0
    delete_orphans: bool = False


class ServiceController:
    name: ClassVar[str] = "service-lb-controller"

    def __init__(self, context: Context, options: ServiceOptions, vouching: Vouching) -> None:
        if context.gateway.cloud.load_balancers is None:
            raise ValueError(f"{self.name} needs a provider with load balancers")
        self._vouching = vouching
        self._context = context
        self._options = options
        self._events = context.recorder("service-controller")
        self._queue: WorkQueue[str] = WorkQueue("service", base_delay=5.0, max_delay=300.0)
        self._known: dict[str, ServiceState] = {}
        self._waiting: set[str] = set()
        self._allocations = ServiceAllocations()
        self._balancers = ServiceBalancers(context, self._allocations, options.poll)
        self._writes = ServiceWrites(context.client)
        self._release = ServiceRelease(context, self._events, self._balancers, self._writes)
        self._vanished = VanishedServices(context, self._events, self._balancers, self._known, self._queue.add)
        self._comparison = Comparison(context, self._events, lambda: self._balancers.cloud)
        self._cloud_replaced = asyncio.Event()
        self._nodes_changed = asyncio.Event()
        self._changed_at = 0.0
        self._backends: Backends = Backends()
        self._backends_stale = False

    async def run(self) -> None:
        context, options = self._context, self._options
        await asyncio.gather(context.services.wait_synced(), context.nodes.wait_synced())
        context.services.add_handler(self._allocations.on_service)  # must know all Services before the first is served
        await self._vouching.ready()
        await self._balancers.begin()
        audit = OrphanAudit(
            context, self._in_hand, self._recheck, delete=options.delete_orphans, period=options.audit_period
        )
        audit.saw(self._balancers.at_start.values())
        self._backends = self._backends_now()
        context.services.add_handler(self._on_service)
        self._vouching.nodes.add_handler(self._on_node)
        self._vouching.on_change(self._on_verdict)
        context.gateway.on_replace(self._cloud_replaced.set)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._queue.run_workers(options.workers, self._sync, on_error=log_failure(log)))
            tasks.create_task(self._follow_nodes())
            tasks.create_task(self._follow_cloud())
            if isinstance(self._balancers.cloud, ComparesLoadBalancers):
                tasks.create_task(self._comparison.run(lambda: rules.comparable(self._known), self._compare))
            if options.audit_period and context.gateway.cloud.has_cluster_id:  # else those of others look like orphans
                tasks.create_task(audit.run())

    def _in_hand(self) -> set[str]:
        """Return the UIDs of Services in the queue's care, including those that are gone but not yet released."""
        return {state.service.metadata.uid for state in (*self._known.values(), *self._vanished.states.values())}

    def _recheck(self, uids: set[str]) -> None:
        """Look at load balancers that were ready and are not any more: they may have failed in the cloud."""
        for key, known in self._known.items():
            if known.settled and known.service.metadata.uid in uids:
                known.look_again()
                self._queue.add(key, Priority.LOW)

    def _backends_now(self) -> Backends:
        return rules.backends(self._vouching.nodes.items(), self._vouching.judge, ready_only=self._options.ready_only)

    # --- events -------------------------------------------------------------------------------------------------

    def _on_service(self, old: Service | None, new: Service | None) -> None:
        service = new or old
        assert service is not None
        key = f"{service.metadata.namespace}/{service.metadata.name}"
        if new is None:
            known = self._known.get(key)
            if known is not None:  # it went without our release: someone removed our finalizer
                same = known.service.metadata.uid == service.metadata.uid
                known.was_going = same and service.metadata.deletion_timestamp is not None
                self._queue.add(key)
            return
        if (known := self._known.get(key)) is not None and comparison_rules.is_asked_for(old, new):
            known.compare = known.asked = True
        if (old is None and rules.concerns_us(new)) or (old is not None and rules.needs_update(old, new)):
            self._queue.add(key)

    def _on_node(self, old: Node | None, new: Node | None) -> None:
        if rules.serves_alike(old, new, self._vouching.judge, ready_only=self._options.ready_only):
            if old is not None and new is not None and old.metadata.labels != new.metadata.labels:
                self._backends_stale = True  # for the next write
            return
        self._on_verdict()

    def _on_verdict(self) -> None:
        """React to a change of a Node, or of what the cloud says about it, that may affect load balancers."""
        self._backends_stale = True
        self._changed_at = self._context.monotonic()
        self._nodes_changed.set()

    async def _follow_nodes(self) -> None:
        """Wait for a burst of Node changes to end, then check every Service once."""
        while True:
            await self._nodes_changed.wait()
            first = self._context.monotonic()
            while True:
                now = self._context.monotonic()
                due = min(self._changed_at + self._options.debounce, first + self._options.debounce_max)
                if now >= due:
                    break
                await asyncio.sleep(due - now)
            self._nodes_changed.clear()
            try:
                self._refresh_backends()
            except Exception:  # a bug; continue with the known backends
                self._backends_stale = True
                log.exception("cannot update the list of backends; the previous one stays in use")
            metrics.NODE_SYNC_LATENCY.observe(self._context.monotonic() - first)
            for key, known in self._known.items():
                if rules.wants_load_balancer(known.service) and known.backends is not self._backends:
                    self._queue.add(key, Priority.LOW)  # users wait for new and changed Services

    async def _follow_cloud(self) -> None:
        """Check every Service again when the cloud was replaced. A load balancer that is up to date needs no write."""
        while True:
            await self._cloud_replaced.wait()
            self._cloud_replaced.clear()
            await self._balancers.begin()
            for key in self._known:
                self._queue.add(key)

    def _compare(self, key: str) -> None:
        self._known[key].compare = True
        self._queue.add(key)

    def _refresh_backends(self) -> None:
        """Update the backends. Equal ones stay the same object, so Nodes are compared once and not for each Service."""
        if self._backends_stale:
            self._backends_stale = False
            found = self._backends_now()
            if found != self._backends or [each.labels for each in found] != [each.labels for each in self._backends]:
                self._backends = found

    # --- one Service --------------------------------------------------------------------------------------------

    async def _sync(self, key: str) -> None:
        service = self._context.services.get(key)
        known = self._vanished.states.get(key) or self._known.get(key)
        try:
            if key in self._vanished.states:
                self._allocations.released(await self._vanished.delete(key))
                return
            if known is not None and (service is None or service.metadata.uid != known.service.metadata.uid):
                self._vanish(key, known)
                known = None
            if service is None:
                return
            if known is None:
                known = self._known[key] = self._vanished.come_back(key, service) or ServiceState(service)
            known.service, known.updating = service, False
            # A Service that is being deleted can no longer be given our finalizer.
            if rules.wants_load_balancer(service) and service.metadata.deletion_timestamp is None:
                await self._ensure(key, service, known)
            else:
                await self._release.clean_up(service, known)
                self._forget(key)
        except Requeue:
            raise
        except RetryAfter as error:  # not a failure: the cloud is still working
            raise Requeue(error.retry_after or self._options.poll) from None
        except Exception as error:
            if known is not None and isinstance(error, (ConflictError, NotFoundError)):
                known.lost_races += 1
                if known.lost_races <= LOST_RACES:
                    raise Requeue(LOST_RACE) from None  # another writer was faster; the cache will catch up
            self._wait_for(key, False)
            self._failed(service, known, error)
            if (wait := getattr(error, "retry_after", None)) is not None:
                raise Requeue(wait) from error
            raise
        if known is not None:
            known.lost_races, known.reported = 0, False

    def _failed(self, service: Service | None, known: ServiceState | None, error: Exception) -> None:
        metrics.FAILURES.labels(type(error).__name__).inc()
        if service is None:
            return
        if known is not None:
            if known.reported and getattr(error, "retry_after", None) is not None:
                return  # in an outage, hundreds of Services are retried every few seconds with the same error
            known.reported = True
        expected = isinstance(error, (CloudError, ApiError, rules.ServiceRuleError))
        what = str(error) if expected else f"unexpected {type(error).__name__}: {error}"
        if known is not None and known.updating:
            nodes = rules.some_names(self._backends)
            message = f"Error updating load balancer with new hosts {nodes}: {what}"
            self._events.event(service, "Warning", "UpdateLoadBalancerFailed", message)
        else:
            self._events.event(service, "Warning", "SyncLoadBalancerFailed", f"Error syncing load balancer: {what}")

    def _forget(self, key: str) -> None:
        if (known := self._known.pop(key, None)) is not None:
            self._allocations.released(known.service)
        self._wait_for(key, False)

    def _wait_for(self, key: str, waiting: bool) -> None:
        (self._waiting.add if waiting else self._waiting.discard)(key)
        metrics.WAITING.set(len(self._waiting))

    async def _ensure(self, key: str, service: Service, known: ServiceState) -> None:
        spec = rules.load_balancer_spec(service, self._context.cluster_name)
        if known.cloud is not self._balancers.cloud:  # what was written to another cloud does not count for this one
            known.mark, known.cloud = None, self._balancers.cloud
        known.deleting = False
        if known.provisional and not late_answer_rules.is_late(known.late_until, self._context.monotonic()):
            known.look_again()
            self._wait_for(key, True)
        try:
            balancer = await self._take_step(service, spec, known)
        except ImplementedElsewhere:
            mark = self._balancers.mark(spec, self._backends)
            known.wrote(mark, spec, self._backends, self._context.monotonic())
            known.settled = True
            return
        if balancer is None:
            await self._writes.restore(service, known.ingress)
            self._look_later(key, known)
            return
        self._wait_for(key, not balancer.ready)
        if not balancer.ready:
            known.polls += 1
            raise Requeue(min(self._options.poll_max, self._options.poll * 1.5 ** min(20, known.polls - 1)))
        await self._writes.publish(service, balancer.ingress)
        known.ingress = tuple(balancer.ingress)
        if known.ensuring_since is not None:
            metrics.ENSURE_LATENCY.observe(self._context.monotonic() - known.ensuring_since)
            known.ensuring_since = None
            for warning in balancer.warnings:
                self._events.event(service, "Warning", "LoadBalancerWarning", warning)
            self._events.event(service, "Normal", "EnsuredLoadBalancer", "Ensured load balancer")
        known.settled, known.polls = True, 0
        known.provisional = late_answer_rules.is_late(known.late_until, self._context.monotonic())
        self._look_later(key, known)
        if known.asked:  # a user asked while it was being written
            self._compare(key)

    def _look_later(self, key: str, known: ServiceState) -> None:
        """Look at the load balancer once more when the cloud no longer shows what was before the write."""
        if known.provisional:
            self._queue.add_after(key, known.late_until - self._context.monotonic(), Priority.LOW)

    async def _take_step(self, service: Service, spec: LoadBalancerSpec, known: ServiceState) -> LoadBalancer | None:
        """Take the next step for the load balancer. Return its current state, None if there is nothing to do.

        Raises ImplementedElsewhere if another controller serves the Service.
        """
        if known.mark is None:
            self._refresh_backends()
        mark = self._balancers.mark(spec, self._backends)
        listed = self._balancers.take_listed(spec.uid, is_written=known.mark is not None)
        fingerprint = listed.fingerprint if listed is not None else ""
        # With an unchanged spec, the mark with the old backends is what was written.
        step = rules.next_step(
            known, mark, lambda old: known.mark if known.spec == spec else self._balancers.mark(spec, old), fingerprint
        )
        if step is rules.Step.ADOPT and listed is not None:
            backends = self._backends
            self._balancers.at_start[spec.uid] = listed  # for the next attempt, if this one fails
            await self._writes.add_finalizer(service)
            known.wrote(mark, spec, backends, self._context.monotonic())
            return listed
        if step is rules.Step.UPDATE:
            try:
                return await self._update(service, spec, known, mark)
            except NotFound:
                known.mark = None  # someone deleted it in the meantime
                return await self._make(service, spec, known)
        if step is rules.Step.LOOK:
            asked = self._context.monotonic()
            found = await self._balancers.look(spec, known, self._waiting)
            if not late_answer_rules.is_overtaken(found, known.mark, known.late_until, asked):
                return found
        if step is rules.Step.ENSURE:
            self._confirm_nodes(spec, listed)
        if step is rules.Step.NOTHING or (
            step is rules.Step.COMPARE and not await self._deviates(service, spec, known)
        ):
            return None
        return await self._make(service, spec, known)

    def _confirm_nodes(self, spec: LoadBalancerSpec, listed: LoadBalancer | None) -> None:
        """Raise Requeue before a load balancer of the first listing is written, until the Nodes were listed twice.

        A first list without living Nodes would take them out of the load balancer. So would a cloud that has yet to
        answer about those that the second list adds.
        """
        nodes = self._context.nodes
        if listed is None or (nodes.confirmed and self._vouching.has_answers()):
            return
        self._balancers.at_start[spec.uid] = listed
        if not nodes.confirmed:
            nodes.list_again()
        raise Requeue(NODES_AGAIN)

    async def _deviates(self, service: Service, spec: LoadBalancerSpec, known: ServiceState) -> bool:
        """Return whether the load balancer must be written again although its Service did not change."""
        asked, known.compare, known.compared_at = known.asked, False, self._context.monotonic()
        try:
            found = await self._comparison.deviates(service, spec, self._backends, asked=asked)
        except CloudError:
            known.compare = asked
            raise
        known.asked = False
        return found

    async def _update(self, service: Service, spec: LoadBalancerSpec, known: ServiceState, mark: Any) -> LoadBalancer:
        """Write only the backends, which `mark` covers. A failed update is retried as one, after its back-off (W16)."""
        wanted, started = self._backends, self._context.monotonic()
        known.updating = known.unsure = True
        try:
            balancer = await self._balancers.call(
                "update_backends", lambda: self._balancers.cloud.update_backends(spec, wanted)
            )
        except (RetryAfter, NotFound, ImplementedElsewhere):
            raise
        except CloudError as error:
            if isinstance(error, Conflict):
                known.mark = None  # if it cannot be updated, write all of it
            metrics.NODE_SYNC_ERRORS.inc()
            raise
        known.wrote(mark, spec, wanted, self._context.monotonic(), self._balancers.lag)
        metrics.SYNCS.inc()
        metrics.UPDATE_LATENCY.observe(self._context.monotonic() - started)
        if wanted:
            self._events.event(service, "Normal", "UpdatedLoadBalancer", "Updated load balancer with new hosts")
        else:
            self._report_no_backends(service)
        return balancer

    async def _make(self, service: Service, spec: LoadBalancerSpec, known: ServiceState) -> LoadBalancer:
        """Create the load balancer, or write all of it, for the current Nodes (S47)."""
        self._refresh_backends()
        wanted = self._backends
        known.updating = False
        if known.ensuring_since is None:
            known.ensuring_since = self._context.monotonic()
            self._events.event(service, "Normal", "EnsuringLoadBalancer", "Ensuring load balancer")
        if (left := self._balancers.shows_deleted(spec.uid)) > 0:
            raise Requeue(left)  # until then, the cloud could pass off the deleted one as what is wanted
        await self._writes.add_finalizer(service)
        if not wanted:
            self._report_no_backends(service)
        known.mark, known.spec = None, spec  # unknown until the cloud answers
        known.met, known.again_at = False, -math.inf

        async def ensure() -> LoadBalancer:
            answer = await self._balancers.cloud.ensure(spec, wanted)
            if isinstance(answer, LoadBalancer):  # the gateway reports any other type
                self._allocations.answered(service, (each.ip for each in answer.ingress))
            return answer

        try:
            balancer = await self._balancers.call("ensure", ensure)
        finally:  # the cloud may have created it at any moment until now
            known.tried_at = self._context.monotonic()
        known.wrote(self._balancers.mark(spec, wanted), spec, wanted, self._context.monotonic(), self._balancers.lag)
        metrics.SYNCS.inc()
        return balancer

    def _report_no_backends(self, service: Service) -> None:
        message = "There are no available nodes for LoadBalancer"
        self._events.event(service, "Warning", "UnAvailableLoadBalancer", message)

    def _vanish(self, key: str, known: ServiceState) -> None:
        """Handle a Service that is gone without being released, or was replaced by another one of its name."""
        if known.spec is None and rules.FINALIZER not in known.service.metadata.finalizers:
            self._forget(key)
            return
        del self._known[key]
        self._wait_for(key, False)
        self._vanished.add(key, known)
