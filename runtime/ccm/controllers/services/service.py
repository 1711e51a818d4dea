# SPDX-License-Identifier: Apache-2.0
"""service-lb-controller: maintains a load balancer in the cloud for every Service that its classes include.

All work on an existing Service uses one queue key, so two operations on it never run at the same time. At start, one
listing shows what the cloud has; a Service whose fingerprint the cloud already has needs no write. Changes of Nodes are
collected, and a burst causes at most one update of each Service. Waiting for the cloud occupies no worker: the key
returns to the queue. If many Services wait, one listing shows the state of most of their load balancers.
docs/reference/parity.md explains IDs such as S47.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import ClassVar

import msgspec

from ccm.base.cancellation import TaskGroup
from ccm.cloud import (
    CloudError,
    ComparesLoadBalancers,
    ImplementedElsewhere,
    LoadBalancer,
    LoadBalancerSpec,
    RetryAfter,
)
from ccm.engine.client import ApiError, ConflictError, NotFoundError
from ccm.engine.objects import Service
from ccm.engine.queue import LOST_RACE, Priority, Requeue, WorkQueue
from ccm.gateway.breaker import HeldBack

from ..nodes.vouching import Vouching
from ..shared.context import Context, log_failure
from . import comparison_rules, late_answer_rules
from . import service_metrics as metrics
from . import service_rules as rules
from .allocations import ServiceAllocations
from .class_rules import UNDECLARED, ServedClasses
from .drain_rules import Mode
from .followed_nodes import FollowedNodes
from .handed_over import HandedOver
from .orphans import OrphanAudit
from .service_balancers import ServiceBalancers
from .service_condition_rules import appears, is_left_behind
from .service_conditions import ServiceConditions
from .service_holders import Held, ServiceHolders
from .service_release import ServiceRelease
from .service_state import ServiceState
from .service_steps import BEHIND, ServiceSteps
from .service_writes import ServiceWrites
from .vanished_services import VanishedServices
from .waiting_services import Waiting, WaitingServices

log = logging.getLogger(__name__)

#: How many times in a row the API server may not know a Service that the cache shows, before that counts as an error.
LOST_RACES = 5
#: Failures in a row after which the queue's own back-off, which begins with 5, 10 and 20 s, is longer than `BEHIND`.
SHORTER = 3


class ServiceOptions(msgspec.Struct, frozen=True):
    """Options of the service controller.

    `workers`: Services written at the same time; the provider's limits apply as well. `debounce`, `debounce_max`: a
    burst of Node changes ends after `debounce` seconds without a change, at most `debounce_max` after the first.
    `poll`, `poll_max`: seconds between reads of a load balancer that the cloud is still working on. `ready_only`: only
    Ready Nodes are backends. `drains`: which Nodes drain. `audit_period`: seconds between audits for load balancers
    whose Service is gone, 0 for none; `delete_orphans`: whether the audit deletes them. `classes`: our Services.
    """

    workers: int = 20
    debounce: float = 1.0
    debounce_max: float = 10.0
    poll: float = 0.5
    poll_max: float = 5.0
    ready_only: bool = False
    drains: Mode = Mode.LEAVING
    audit_period: float = 600.0
    delete_orphans: bool = False
    classes: ServedClasses = UNDECLARED


def _key(service: Service) -> str:
    return f"{service.metadata.namespace}/{service.metadata.name}"


class ServiceController:
    name: ClassVar[str] = "service-lb-controller"

    def __init__(
        self, context: Context, options: ServiceOptions, vouching: Vouching, holders: ServiceHolders | None = None
    ) -> None:
        if context.gateway.cloud.load_balancers is None:
            raise ValueError(f"{self.name} needs a provider with load balancers")
        self._vouching, self._held = vouching, Held(holders, context.gateway.name, self._has)
        self._context = context
        self._options = options
        self._events = context.recorder("service-controller")
        self._queue: WorkQueue[str] = WorkQueue(context.of_cloud("service"), base_delay=5.0, max_delay=300.0)
        self._known: dict[str, ServiceState] = {}
        self._waiting: set[str] = set()
        self._allocations = ServiceAllocations()
        self._balancers = ServiceBalancers(context, self._allocations, options.poll)
        self._classes = classes = options.classes
        self._handed_over = HandedOver(context, self._events, classes)
        self._writes = ServiceWrites(context.client, classes)
        self._vanished = VanishedServices(context, self._events, self._balancers, self._known, self._queue.add)
        self._nodes = FollowedNodes(
            context,
            vouching,
            self._balancers.drain,
            ready_only=options.ready_only,
            drains=options.drains,
            debounce=options.debounce,
            debounce_max=options.debounce_max,
        )
        self._steps = ServiceSteps(
            context,
            self._events,
            self._balancers,
            self._writes,
            self._allocations,
            self._nodes,
            vouching,
            self._waiting,
        )
        self._conditions = ServiceConditions(self._writes, classes, context.now, context.monotonic)
        self._waits = WaitingServices(self._events, self._conditions, context.monotonic)
        self._release = ServiceRelease(
            context, self._events, self._balancers, self._writes, self._conditions, self._waits, classes, self._follow
        )
        self._cloud_replaced = asyncio.Event()
        self._may_write = False

    async def run(self) -> None:
        context, options = self._context, self._options
        await asyncio.gather(context.services.wait_synced(), context.nodes.wait_synced())
        self._balancers.take_over()
        self._balancers.warn_about_draining(options.drains)
        context.services.add_handler(self._allocations.on_service)  # must know all Services before the first is served
        context.services.add_handler(self._on_service)
        context.gateway.on_replace(self._cloud_replaced.set)
        context.gateway.on_recovery("load_balancers", self._queue.add)
        async with TaskGroup() as tasks:
            tasks.create_task(self._queue.run_workers(options.workers, self._sync, on_error=log_failure(log)))
            tasks.create_task(self._waits.run())
            audit = await self._learn()
            tasks.create_task(self._nodes.follow(self._update_backends))
            tasks.create_task(self._follow_cloud())
            if isinstance(self._balancers.cloud, ComparesLoadBalancers):
                comparison = self._steps.comparison
                tasks.create_task(comparison.run(lambda: rules.comparable(self._known, self._classes), self._compare))
            if options.audit_period and context.gateway.cloud.has_cluster_id:  # else other clusters look orphaned
                tasks.create_task(audit.run())

    async def _learn(self) -> OrphanAudit:
        """Learn what must be known before a load balancer is written: the instances, and what the cloud has.

        Meanwhile, load balancers are already deleted, because a deletion needs neither.
        """
        context, options = self._context, self._options
        await self._vouching.ready()
        await self._balancers.begin()
        audit = OrphanAudit(
            context,
            self._in_hand,
            self._recheck,
            self._release_unwanted,
            delete=options.delete_orphans,
            period=options.audit_period,
        )
        audit.saw(self._balancers.at_start.values())
        self._nodes.begin()
        self._held.join()
        await self._handed_over.record()
        self._may_write = True
        self._check_all()
        await self._release_unwanted(self._balancers.at_start)
        return audit

    def _has(self, uid: str) -> bool:
        """Return whether this cloud may have the load balancer of the Service: it listed or served it."""
        served = (state for state in (*self._known.values(), *self._vanished.states.values()) if state.is_wanted)
        return uid in self._balancers.at_start or any(state.service.metadata.uid == uid for state in served)

    def _in_hand(self) -> set[str]:
        """Return the UIDs of the Services that this controller handles; those that are gone count until released."""
        return {state.service.metadata.uid for state in (*self._known.values(), *self._vanished.states.values())}

    def _recheck(self, uids: set[str]) -> None:
        """Look at load balancers that were ready and are not any more, because they may have failed in the cloud."""
        for key, state in self._known.items():
            if state.polling.settled and state.service.metadata.uid in uids:
                state.polling.look_again()
                self._queue.add(key, Priority.LOW)

    async def _release_unwanted(self, listed: Mapping[str, LoadBalancer]) -> None:
        """Queue the Services that exist and want no load balancer of ours although the cloud has one, except those that
        were handed over. They changed while no process led, so no event reports the change."""
        unwanted = {
            key: service
            for service in self._context.services.items()
            if (key := service.metadata.uid) in listed
            and not rules.wants_it_served(service, self._classes)
            and not self._balancers.shows_deleted(key)
        }
        self._balancers.at_start |= {uid: listed[uid] for uid in unwanted}
        for service in await self._handed_over.keep(unwanted.values(), listed):
            self._queue.add(_key(service))

    # --- events -------------------------------------------------------------------------------------------------

    def _on_service(self, old: Service | None, new: Service | None) -> None:
        service = new or old
        assert service is not None
        key = _key(service)
        if new is None:
            state = self._known.get(key)
            if state is not None:  # gone although we did not release it: someone removed our finalizer
                same = state.service.metadata.uid == service.metadata.uid
                state.deletion.service_was_deleted = same and service.metadata.deletion_timestamp is not None
                self._queue.add(key)
            return
        if (state := self._known.get(key)) is not None and comparison_rules.is_asked_for(old, new):
            state.comparing.due = state.comparing.requested = True
        classes = self._classes
        concerns_us = rules.concerns_us(new, classes) or is_left_behind(new)
        if concerns_us if old is None else rules.needs_update(old, new, classes):
            self._queue.add(key)
        elif old is not None and appears(old, new) and (state.is_served if state is not None else is_left_behind(new)):
            self._queue.add(key, Priority.LOW)  # a write of a former leader was carried out late

    def _update_backends(self) -> None:
        """Queue every Service whose load balancer has other backends than the current ones."""
        for key, state in self._known.items():
            spec, current = state.following.accepted or state.written.spec, state.following.backends
            follows = spec is not None and current is self._nodes.backends(spec)
            if self._classes.include(state.service) and not follows:
                self._queue.add(key, Priority.LOW)  # users wait for new and changed Services

    async def _follow_cloud(self) -> None:
        """Check every Service again when the cloud was replaced. A load balancer that is up to date needs no write."""
        while True:
            await self._cloud_replaced.wait()
            self._cloud_replaced.clear()
            await self._vouching.ready()
            await self._balancers.begin()
            self._check_all()

    def _check_all(self) -> None:
        """Queue every known Service, because the cloud has just been listed. Services that do not work yet go first,
        because if Nodes have changed since the last writes, all load balancers must be written, which takes long."""
        for key, state in self._known.items():
            works = rules.works(state.service, self._balancers.at_start.get(state.service.metadata.uid))
            self._queue.add(key, Priority.LOW if works else Priority.NORMAL)

    def _compare(self, key: str) -> None:
        self._known[key].comparing.due = True
        self._queue.add(key)

    # --- one Service --------------------------------------------------------------------------------------------

    async def _sync(self, key: str) -> None:
        service = self._context.services.get(key)
        state = self._vanished.states.get(key) or self._known.get(key)
        try:
            if key in self._vanished.states:
                self._allocations.released(await self._vanished.delete(key))
                self._waits.end(key)
                return
            if state is not None and (service is None or service.metadata.uid != state.service.metadata.uid):
                self._vanish(key, state)
                state = None
            if service is None:
                return
            if state is None:
                state = self._known[key] = self._vanished.come_back(key, service) or ServiceState(service)
            state.service, state.following.updating = service, False
            # A Service that is being deleted can no longer be given our finalizer.
            if rules.wants_it_served(service, self._classes):
                state.is_wanted = True
                await self._ensure(key, service, state)
            elif self._held.leaves_to_others(service):
                self._forget(key)
            else:
                await self._release.clean_up(service, state)
                if service.metadata.deletion_timestamp is None and not self._classes.exclude(service):
                    await self._conditions.served(service)
                self._forget(key)
        except Requeue as later:
            if service is not None and isinstance(later, Waiting):
                reason = later.reason
                self._waits.begin(key, service, lambda: reason)
            raise
        except RetryAfter as error:  # not a failure: the cloud is still working
            after = error.retry_after or self._options.poll
            raise Requeue(self._waits.again(key, service, str(error), after)) from None
        except ConflictError:  # not a failure: the queue tries again soon
            if service is not None:
                self._waits.begin(key, service, lambda: "others change the Service at each attempt to write it")
            raise
        except Exception as error:
            if state is not None and isinstance(error, NotFoundError):
                state.lost_races += 1
                if state.lost_races <= LOST_RACES:
                    raise Requeue(LOST_RACE) from None  # it was deleted; the cache will catch up
            self._wait_for(key, False)
            self._waits.end(key)
            await self._failed(service, state, error)
            wait = getattr(error, "retry_after", None)
            # A call that was held back need not be tried again after `BEHIND`: the end of the outage ends the wait.
            is_behind = state is not None and state.following.behind and not isinstance(error, HeldBack)
            if is_behind and wait is None and self._queue.failures(key) >= SHORTER:
                wait = BEHIND
            if wait is not None:
                raise Requeue(min(wait, BEHIND) if is_behind else wait) from error
            raise
        if state is not None:
            state.lost_races, state.reported = 0, False

    async def _failed(self, service: Service | None, state: ServiceState | None, error: Exception) -> None:
        metrics.FAILURES.labels(type(error).__name__).inc()
        if service is None:
            return
        if state is not None:
            if state.reported and getattr(error, "retry_after", None) is not None:
                return  # in an outage, hundreds of Services are retried every few seconds with the same error
            state.reported = True
        expected = isinstance(error, (CloudError, ApiError, rules.ServiceRuleError))
        problem = str(error) if expected else f"unexpected {type(error).__name__}: {error}"
        if state is not None and state.following.updating:
            self._steps.report_update_failure(service, problem)
        else:
            message = f"Error syncing load balancer: {problem}"
            self._events.event(service, "Warning", "SyncLoadBalancerFailed", message)
            if not isinstance(error, ApiError):  # otherwise the condition could not be written either
                await self._conditions.waits(service, "SyncLoadBalancerFailed", message)

    def _forget(self, key: str) -> None:
        if (state := self._known.pop(key, None)) is not None:
            self._allocations.released(state.service)
            self._conditions.forget(state.service)
        self._wait_for(key, False)
        self._waits.end(key)

    def _wait_for(self, key: str, waiting: bool) -> None:
        (self._waiting.add if waiting else self._waiting.discard)(key)
        metrics.WAITING.of(self._context.gateway.name).set(len(self._waiting))

    async def _ensure(self, key: str, service: Service, state: ServiceState) -> None:
        """Take the next step for a Service that wants a load balancer, and report the result on the Service."""
        if self._context.gateway.doubt or not self._may_write:
            self._waits.begin(key, service, self._what_is_missing)
            return
        state.use(self._balancers.cloud)
        state.deletion.started, state.deletion.held = False, ""
        spec = await self._desired(service, state)
        if state.polling.provisional and not self._may_be_late(state):
            state.polling.look_again()
            self._wait_for(key, True)
        try:
            balancer = await self._steps.take(service, spec, state)
        except ImplementedElsewhere:
            backends = self._nodes.backends(spec)
            state.is_elsewhere(self._balancers.fingerprint(spec, backends), spec, backends)
            self._waits.end(key)
            await self._conditions.served(service)
            return
        if balancer is None:
            await self._keep(key, service, state)
        elif balancer.ready:
            await self._publish(key, service, state, balancer)
        else:
            self._poll(key, state)

    async def _keep(self, key: str, service: Service, state: ServiceState) -> None:
        """Restore the Service's finalizer and addresses if they were lost, when the cloud needs no write."""
        self._waits.end(key)
        await self._writes.restore(service, state.ingress)
        await self._conditions.served(service)
        self._look_later(key, state)

    def _poll(self, key: str, state: ServiceState) -> None:
        """Raise Waiting until the next read of a load balancer that is not ready."""
        self._wait_for(key, True)
        after = min(self._options.poll_max, self._options.poll * 1.5 ** min(20, state.polling.reads))
        state.polling.reads += 1
        raise Waiting(after, "the cloud is still working on it")

    async def _publish(self, key: str, service: Service, state: ServiceState, balancer: LoadBalancer) -> None:
        """Write the addresses of the load balancer, which is ready, to the Service."""
        self._wait_for(key, False)
        self._waits.end(key)
        await self._writes.publish(service, balancer.ingress)
        state.ingress = tuple(balancer.ingress)
        await self._conditions.served(service)
        if state.polling.ensuring_since is not None:
            metrics.ENSURE_LATENCY.observe(self._context.monotonic() - state.polling.ensuring_since)
            state.polling.ensuring_since = None
            self._events.event(service, "Normal", "EnsuredLoadBalancer", "Ensured load balancer")
        state.polling.settle(provisional=self._may_be_late(state))
        self._look_later(key, state)
        if state.comparing.requested:  # a user asked for it during the write
            self._compare(key)

    def _may_be_late(self, state: ServiceState) -> bool:
        return late_answer_rules.is_late(state.written.late_until, self._context.monotonic())

    def _look_later(self, key: str, state: ServiceState) -> None:
        """Look at the load balancer once more when the cloud no longer shows the state before the write."""
        if state.polling.provisional:
            self._queue.add_after(key, state.written.late_until - self._context.monotonic(), Priority.LOW)

    async def _desired(self, service: Service, state: ServiceState) -> LoadBalancerSpec:
        """Return the Service's desired load balancer. Raises ServiceRuleError if the Service breaks a rule, after the
        backends of an existing load balancer were updated."""
        try:
            return rules.load_balancer_spec(
                service,
                self._context.cluster_name,
                needs_node_ports=self._context.gateway.cloud.needs_node_ports,
                keeps=self._balancers.keeps,
            )
        except rules.ServiceRuleError:
            await self._follow(service, state)
            raise

    async def _follow(self, service: Service, state: ServiceState) -> None:
        """Update the backends of an existing load balancer although the rest of the Service is not written."""
        if self._context.gateway.doubt or not self._may_write:
            return
        state.following.exists = state.following.exists or service.metadata.uid in self._balancers.at_start
        await self._steps.keep_up(service, rules.tolerant_spec(service, self._context.cluster_name), state)

    def _what_is_missing(self) -> str:
        error = (cloud := self._context.gateway).doubt or (cloud.last_error if cloud.failing_since is not None else "")
        return "the cloud has yet to list its instances and load balancers" + (f" ({error})" if error else "")

    def _vanish(self, key: str, state: ServiceState) -> None:
        """Handle a Service that is gone without being released, or was replaced by another one of its name."""
        if state.written.spec is None and rules.FINALIZER not in state.service.metadata.finalizers:
            self._forget(key)
            return
        del self._known[key]
        self._conditions.forget(state.service)
        self._wait_for(key, False)
        self._vanished.add(key, state)
