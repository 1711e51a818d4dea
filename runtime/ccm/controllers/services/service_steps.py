# SPDX-License-Identifier: Apache-2.0
"""Take one step for the load balancer of a Service: write it, write its backends, read it, or compare it.

The cloud, a rule of ours, or a bug of a provider may refuse a change of a Service until somebody corrects it.
Meanwhile, the backends of an existing load balancer follow the Nodes, with the desired state that the cloud accepted
last.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Hashable

from ccm.cloud import (
    Backends,
    CloudError,
    Conflict,
    ImplementedElsewhere,
    LoadBalancer,
    LoadBalancerSpec,
    NotFound,
    RetryAfter,
)
from ccm.engine.client import ConflictError, NotFoundError
from ccm.engine.events import EventRecorder
from ccm.engine.objects import Service
from ccm.engine.queue import Requeue

from ..nodes.vouching import Vouching
from ..shared.context import Context
from . import keep_rules, late_answer_rules
from . import service_metrics as metrics
from . import service_rules as rules
from .allocations import ServiceAllocations
from .comparison import Comparison
from .followed_nodes import FollowedNodes
from .service_balancers import ServiceBalancers
from .service_state import ServiceState
from .service_writes import ServiceWrites
from .told_warnings import Source
from .waiting_services import Waiting

log = logging.getLogger(__name__)

#: Seconds until a Service that waits for the second list of Nodes is tried again.
NODES_AGAIN = 0.5
#: Maximum seconds until the next attempt while the backends are behind the Nodes, even if the failed change of the
#: Service asks for a longer pause.
BEHIND = 30.0
#: Seconds for which a change that the cloud cannot accept yet may keep the backends from following the Nodes.
BUSY = 10.0
#: Seconds for which a cloud must report that a load balancer does not exist before its backends need not follow the
#: Nodes, because one answer may be wrong.
GONE = 60.0


class ServiceSteps:
    """Takes the next step for the load balancer of a Service. `waiting`: the keys of the Services whose load balancer
    is read until it is ready."""

    def __init__(
        self,
        context: Context,
        events: EventRecorder,
        balancers: ServiceBalancers,
        writes: ServiceWrites,
        allocations: ServiceAllocations,
        nodes: FollowedNodes,
        vouching: Vouching,
        waiting: Collection[str],
    ) -> None:
        self._context, self._events, self._balancers, self._writes = context, events, balancers, writes
        self._allocations, self._nodes, self._vouching, self._waiting = allocations, nodes, vouching, waiting
        self.comparison = Comparison(context, events, lambda: balancers.cloud)

    async def take(self, service: Service, spec: LoadBalancerSpec, state: ServiceState) -> LoadBalancer | None:
        """Take the next step for the load balancer. Return its current state, None if there is nothing to do.

        If the change of a Service is refused, the backends of an existing load balancer still follow the Nodes. Raises
        ImplementedElsewhere if another controller serves the Service.
        """
        unread = keep_rules.misspelled(service.metadata.annotations)
        self._report(service, state.warnings.news(Source.ANNOTATIONS, unread))
        if state.following.refused and not state.following.behind and state.is_unwritten(spec):
            await self.keep_up(service, spec, state)  # before an attempt that may take as long as the last one
        try:
            return await self._take(service, spec, state)
        except (Requeue, ImplementedElsewhere, NotFoundError):
            raise
        except (RetryAfter, ConflictError):
            if state.is_unwritten(spec) and self._is_busy_for_long(state):
                await self.keep_up(service, spec, state)
            raise
        except Exception:
            if state.is_unwritten(spec) and not state.following.updating:
                state.following.refused = True
                await self.keep_up(service, spec, state)
            raise

    def _is_busy_for_long(self, state: ServiceState) -> bool:
        since = state.polling.ensuring_since
        late = since is not None and self._context.monotonic() - since >= BUSY
        return late and state.following.accepted is not None

    async def _take(self, service: Service, spec: LoadBalancerSpec, state: ServiceState) -> LoadBalancer | None:
        # Labels of Nodes may have changed, which alone causes no update.
        if state.written.fingerprint is None or state.comparing.due:
            self._nodes.refresh()
        fingerprint = self._balancers.fingerprint(spec, self._nodes.backends(spec))
        listed = self._balancers.take_listed(spec.uid, is_written=state.written.fingerprint is not None)
        state.following.exists = state.following.exists or listed is not None

        def fingerprint_of(backends: Backends) -> Hashable:
            """Return the fingerprint of `spec` with `backends`, those that were written last."""
            same = state.written.spec == spec
            return state.written.fingerprint if same else self._balancers.fingerprint(spec, backends)

        step = rules.next_step(state, fingerprint, fingerprint_of, listed.fingerprint if listed is not None else "")
        match step:
            case rules.Step.ADOPT:
                assert listed is not None
                return await self._adopt(service, spec, state, fingerprint, listed)
            case rules.Step.ENSURE:
                self._confirm_nodes(spec, listed)
                return await self._make(service, spec, state)
            case rules.Step.UPDATE:
                return await self._update_or_make(service, spec, state, fingerprint)
            case rules.Step.LOOK:
                return await self._look(service, spec, state)
            case rules.Step.COMPARE:
                return await self._compare(service, spec, state)
            case rules.Step.NOTHING:
                return None

    async def _adopt(
        self, service: Service, spec: LoadBalancerSpec, state: ServiceState, fingerprint: Hashable, listed: LoadBalancer
    ) -> LoadBalancer:
        backends = state.following.backends = self._nodes.backends(spec)
        self._balancers.at_start[spec.uid] = listed  # for the next attempt, if this one fails
        await self._writes.add_finalizer(service)
        state.wrote(fingerprint, spec, backends, self._context.monotonic())
        return listed

    async def _update_or_make(
        self, service: Service, spec: LoadBalancerSpec, state: ServiceState, fingerprint: Hashable
    ) -> LoadBalancer:
        try:
            return await self._update(service, spec, state, self._nodes.backends(spec), fingerprint)
        except NotFound:
            state.written.fingerprint = None  # someone deleted it in the meantime
            return await self._make(service, spec, state)

    async def _look(self, service: Service, spec: LoadBalancerSpec, state: ServiceState) -> LoadBalancer:
        """Read the load balancer. Write it again if the last write relied on a late answer."""
        asked_at = self._context.monotonic()
        balancer = await self._balancers.look(spec, state, self._waiting)
        written = state.written
        if late_answer_rules.is_overtaken(balancer, written.fingerprint, written.late_until, asked_at):
            return await self._make(service, spec, state)
        self._warn(service, state, Source.READ if balancer.ready else Source.GLIMPSE, balancer)
        return balancer

    async def _compare(self, service: Service, spec: LoadBalancerSpec, state: ServiceState) -> LoadBalancer | None:
        return await self._make(service, spec, state) if await self._deviates(service, spec, state) else None

    async def keep_up(self, service: Service, spec: LoadBalancerSpec, state: ServiceState) -> None:
        """Write the current backends although the change of the Service cannot be written.

        They are written with the desired state that the cloud accepted last, or with `spec` if no write of this process
        was accepted. A failure becomes an Event. A failed write is repeated at the next attempt for the Service. So is
        a write that the cloud has yet to finish, because it may fail there, and nothing else reads the result.
        """
        self._nodes.refresh()
        following, spec = state.following, state.following.accepted or spec
        backends = self._nodes.backends(spec)
        if following.backends is backends or not self._may_exist(service, state):
            return
        following.behind = True
        if following.accepted is None and not self._are_nodes_confirmed():
            return
        try:
            balancer = await self._update(service, spec, state, backends, None)
            if spec.uid in self._balancers.at_start:  # what was listed is older
                self._balancers.at_start[spec.uid] = balancer
            if not balancer.ready:
                following.backends = None
                return
        except NotFound:
            if not self._is_gone(state):
                return
            following.exists, following.accepted, following.backends = False, None, backends
        except ImplementedElsewhere:
            following.backends = backends
        except RetryAfter:
            return
        except CloudError as error:
            self.report_update_failure(service, str(error))
            return
        following.behind = False

    def _is_gone(self, state: ServiceState) -> bool:
        """Return whether the cloud, which now says that there is no load balancer, has said so for long enough."""
        following, now = state.following, self._context.monotonic()
        following.missed_at = min(following.missed_at, now)
        return now - following.missed_at >= max(GONE, self._balancers.lag)

    def _may_exist(self, service: Service, state: ServiceState) -> bool:
        written = state.following.accepted is not None or state.written.tried_at > -math.inf
        return state.following.exists or written or bool(service.status.load_balancer.ingress)

    def _are_nodes_confirmed(self) -> bool:
        """Return whether the Nodes were listed twice, and the cloud has answered about all of them, or has been silent
        for too long. If the Nodes were listed once, list them again."""
        if not self._context.nodes.confirmed:
            self._context.nodes.list_again()
            return False
        return self._vouching.has_answers()

    def _confirm_nodes(self, spec: LoadBalancerSpec, listed: LoadBalancer | None) -> None:
        """Raise Requeue before a load balancer of the first listing is written, until the Nodes are confirmed.

        If existing Nodes are missing from the first list, the write would remove them from the load balancer. It would
        also remove Nodes that only the second list contains, and about which the cloud has yet to answer.
        """
        if listed is not None and not self._are_nodes_confirmed():
            self._balancers.at_start[spec.uid] = listed
            raise Waiting(NODES_AGAIN, "the Nodes are listed once more, or the cloud has yet to answer about some")

    async def _deviates(self, service: Service, spec: LoadBalancerSpec, state: ServiceState) -> bool:
        """Return whether the load balancer must be written again although its Service did not change."""
        comparing, requested = state.comparing, state.comparing.requested
        comparing.due, comparing.at = False, self._context.monotonic()
        try:
            deviates = await self.comparison.deviates(service, spec, self._nodes.backends(spec), requested=requested)
        except CloudError:
            comparing.due = requested
            raise
        comparing.requested = False
        return deviates

    async def _update(
        self, service: Service, spec: LoadBalancerSpec, state: ServiceState, backends: Backends, fingerprint: Hashable
    ) -> LoadBalancer:
        """Write only the backends. If that fails, the retry after its back-off writes only the backends, too (W16),
        except after a Conflict: then everything is written. The caller handles NotFound.

        `fingerprint` covers `spec` and `backends`; None if the Service's desired state is not `spec` and stays
        unwritten.
        """
        started, following = self._context.monotonic(), state.following
        following.backends = None
        if fingerprint is not None:
            following.updating = following.unconfirmed = True
        try:
            balancer = await self._balancers.call(
                "update_backends", lambda: self._balancers.cloud.update_backends(spec, backends)
            )
        except (RetryAfter, NotFound, ImplementedElsewhere):
            raise
        except CloudError as error:
            if isinstance(error, Conflict):
                state.written.fingerprint = None  # if it cannot be updated, write all of it
            metrics.NODE_SYNC_ERRORS.inc()
            raise
        if fingerprint is None:
            following.backends, following.missed_at = backends, math.inf
        else:
            state.wrote(fingerprint, spec, backends, self._context.monotonic(), self._balancers.lag)
        metrics.SYNCS.inc()
        metrics.UPDATE_LATENCY.observe(self._context.monotonic() - started)
        if backends:
            self._events.event(service, "Normal", "UpdatedLoadBalancer", "Updated load balancer with new hosts")
        else:
            self._report_no_backends(service)
        self._warn(service, state, Source.UPDATE, balancer)
        self._warn_of_families(service, spec, state, backends)
        return balancer

    async def _make(self, service: Service, spec: LoadBalancerSpec, state: ServiceState) -> LoadBalancer:
        """Create the load balancer, or write all of it, for the current Nodes (S47). Raises Waiting while the cloud may
        still show a deleted load balancer."""
        self._nodes.refresh()
        backends = self._nodes.backends(spec)
        state.following.updating = False
        if state.polling.ensuring_since is None:
            state.polling.ensuring_since = self._context.monotonic()
            self._events.event(service, "Normal", "EnsuringLoadBalancer", "Ensuring load balancer")
        if (left := self._balancers.shows_deleted(spec.uid)) > 0:
            # Until then, the cloud could show the deleted load balancer in place of the new one.
            raise Waiting(left, "the cloud may still show the one that was deleted")
        await self._writes.add_finalizer(service)
        if not backends:
            self._report_no_backends(service)
        if not self._may_exist(service, state):
            state.following.backends = backends  # a load balancer that this attempt creates has them
        state.written.fingerprint, state.written.spec = None, spec  # unknown until the cloud answers
        state.deletion.known = state.deletion.confirmed = False
        state.deletion.again_at = -math.inf

        async def ensure() -> LoadBalancer:
            answer = await self._balancers.cloud.ensure(spec, backends)
            if isinstance(answer, LoadBalancer):  # the gateway reports any other type
                self._allocations.answered(service, (each.ip for each in answer.ingress))
            return answer

        try:
            balancer = await self._balancers.call("ensure", ensure)
        finally:  # the cloud may have created it at any moment until now
            state.written.tried_at = self._context.monotonic()
        state.wrote(
            self._balancers.fingerprint(spec, backends), spec, backends, self._context.monotonic(), self._balancers.lag
        )
        metrics.SYNCS.inc()
        self._warn(service, state, Source.ENSURE, balancer)
        self._warn_of_families(service, spec, state, backends)
        return balancer

    # Events

    def _warn(self, service: Service, state: ServiceState, source: Source, balancer: LoadBalancer) -> None:
        self._report(service, state.warnings.news(source, balancer.warnings))

    def _warn_of_families(
        self, service: Service, spec: LoadBalancerSpec, state: ServiceState, backends: Backends
    ) -> None:
        self._report(service, state.warnings.news(Source.FRAMEWORK, rules.without_family(spec, backends)))

    def _report(self, service: Service, warnings: list[str]) -> None:
        for warning in warnings:
            self._events.event(service, "Warning", "LoadBalancerWarning", warning)

    def _report_no_backends(self, service: Service) -> None:
        message = "There are no available nodes for LoadBalancer"
        self._events.event(service, "Warning", "UnAvailableLoadBalancer", message)

    def report_update_failure(self, service: Service, problem: str) -> None:
        nodes = rules.some_names(self._nodes.undrained)
        message = f"Error updating load balancer with new hosts {nodes}: {problem}"
        self._events.event(service, "Warning", "UpdateLoadBalancerFailed", message)
