# SPDX-License-Identifier: Apache-2.0
"""Take one step for the load balancer of a Service: write it, write its backends, read it, or compare it.

A change of a Service may be refused for as long as nobody corrects it: by the cloud, by a rule of ours, by a bug of a
provider. The backends of what exists follow the Nodes all the same, with what the cloud accepted last.
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
from . import late_answer_rules
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

#: Seconds until a Service is tried again that waits for the second list of Nodes.
NODES_AGAIN = 0.5
#: Seconds after which a change that the cloud still cannot accept keeps the backends from following no longer.
BUSY = 10.0
#: Seconds for which a cloud must not know a load balancer before its backends need not follow: one answer may be wrong.
GONE = 60.0


class ServiceSteps:
    """`waiting`: the keys of the Services whose load balancer is read until it is ready."""

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

    async def take(self, service: Service, spec: LoadBalancerSpec, known: ServiceState) -> LoadBalancer | None:
        """Take the next step for the load balancer. Return its current state, None if there is nothing to do.

        If the change of a Service is refused, the backends of what exists follow the Nodes alone. Raises
        ImplementedElsewhere if another controller serves the Service.
        """
        if known.refused and not known.behind and known.is_unwritten(spec):
            await self.keep_up(service, spec, known)  # before an attempt that may take as long as the last one
        try:
            return await self._take(service, spec, known)
        except (Requeue, ImplementedElsewhere, NotFoundError):
            raise
        except (RetryAfter, ConflictError):
            if known.is_unwritten(spec) and self._is_busy_for_long(known):
                await self.keep_up(service, spec, known)
            raise
        except Exception:
            if known.is_unwritten(spec) and not known.updating:
                known.refused = True
                await self.keep_up(service, spec, known)
            raise

    def _is_busy_for_long(self, known: ServiceState) -> bool:
        since = known.ensuring_since
        late = since is not None and self._context.monotonic() - since >= BUSY
        return late and known.accepted is not None

    async def _take(self, service: Service, spec: LoadBalancerSpec, known: ServiceState) -> LoadBalancer | None:
        if known.written_fingerprint is None or known.compare:  # labels of Nodes may have changed, which calls nobody
            self._nodes.refresh()
        fingerprint = self._balancers.fingerprint(spec, self._nodes.backends)
        listed = self._balancers.take_listed(spec.uid, is_written=known.written_fingerprint is not None)
        known.exists = known.exists or listed is not None

        def fingerprint_of(backends: Backends) -> Hashable:
            """With an unchanged spec, the fingerprint with the old backends is what was written."""
            return known.written_fingerprint if known.spec == spec else self._balancers.fingerprint(spec, backends)

        step = rules.next_step(known, fingerprint, fingerprint_of, listed.fingerprint if listed is not None else "")
        if step is rules.Step.ADOPT and listed is not None:
            backends = known.followed = self._nodes.backends
            self._balancers.at_start[spec.uid] = listed  # for the next attempt, if this one fails
            await self._writes.add_finalizer(service)
            known.wrote(fingerprint, spec, backends, self._context.monotonic())
            return listed
        if step is rules.Step.UPDATE:
            try:
                return await self._update(service, spec, known, self._nodes.backends, fingerprint)
            except NotFound:
                known.written_fingerprint = None  # someone deleted it in the meantime
                return await self._make(service, spec, known)
        if step is rules.Step.LOOK:
            asked = self._context.monotonic()
            found = await self._balancers.look(spec, known, self._waiting)
            if not late_answer_rules.is_overtaken(found, known.written_fingerprint, known.late_until, asked):
                self._warn(service, known, Source.READ if found.ready else Source.GLIMPSE, found)
                return found
        if step is rules.Step.ENSURE:
            self._confirm_nodes(spec, listed)
        if step is rules.Step.NOTHING or (
            step is rules.Step.COMPARE and not await self._deviates(service, spec, known)
        ):
            return None
        return await self._make(service, spec, known)

    async def keep_up(self, service: Service, spec: LoadBalancerSpec, known: ServiceState) -> None:
        """Write the current backends although the change of the Service cannot be written.

        They are written with the desired state that the cloud accepted last, or with `spec` if no write of this process
        was accepted. A failure becomes an Event. What failed is tried again with the next attempt for the Service.
        """
        backends = self._nodes.refresh()
        if known.followed is backends or not self._may_exist(service, known):
            return
        known.behind = True
        if known.accepted is None and not self._are_nodes_confirmed():
            return
        try:
            await self._update(service, known.accepted or spec, known, backends, None)
        except NotFound:
            if not self._is_gone(known):
                return
            known.exists, known.accepted, known.followed = False, None, backends
        except ImplementedElsewhere:
            known.followed = backends
        except RetryAfter:
            return
        except CloudError as error:
            self.report_update_failure(service, str(error))
            return
        known.behind = False

    def _is_gone(self, known: ServiceState) -> bool:
        """Return whether the cloud, which now says that there is no load balancer, has said so for long enough."""
        now = self._context.monotonic()
        known.missed_at = min(known.missed_at, now)
        return now - known.missed_at >= max(GONE, self._balancers.lag)

    def _may_exist(self, service: Service, known: ServiceState) -> bool:
        written = known.accepted is not None or known.tried_at > -math.inf
        return known.exists or written or bool(service.status.load_balancer.ingress)

    def _are_nodes_confirmed(self) -> bool:
        """Return whether the Nodes were listed twice, and the cloud has answered about all of them."""
        if not self._context.nodes.confirmed:
            self._context.nodes.list_again()
            return False
        return self._vouching.has_answers()

    def _confirm_nodes(self, spec: LoadBalancerSpec, listed: LoadBalancer | None) -> None:
        """Raise Requeue before a load balancer of the first listing is written, until the Nodes were listed twice.

        A first list without living Nodes would take them out of the load balancer. So would a cloud that has yet to
        answer about those that the second list adds.
        """
        if listed is not None and not self._are_nodes_confirmed():
            self._balancers.at_start[spec.uid] = listed
            raise Waiting(NODES_AGAIN, "the Nodes are listed once more, or the cloud has yet to answer about some")

    async def _deviates(self, service: Service, spec: LoadBalancerSpec, known: ServiceState) -> bool:
        """Return whether the load balancer must be written again although its Service did not change."""
        asked, known.compare, known.compared_at = known.asked, False, self._context.monotonic()
        try:
            found = await self.comparison.deviates(service, spec, self._nodes.backends, asked=asked)
        except CloudError:
            known.compare = asked
            raise
        known.asked = False
        return found

    async def _update(
        self, service: Service, spec: LoadBalancerSpec, known: ServiceState, backends: Backends, fingerprint: Hashable
    ) -> LoadBalancer:
        """Write only the backends. A failed update is retried as one, after its back-off (W16).

        `fingerprint` covers `spec` and `backends`; None if the desired state of the Service is another one, which stays
        unwritten.
        """
        started = self._context.monotonic()
        known.followed = None
        if fingerprint is not None:
            known.updating = known.unsure = True
        try:
            balancer = await self._balancers.call(
                "update_backends", lambda: self._balancers.cloud.update_backends(spec, backends)
            )
        except (RetryAfter, NotFound, ImplementedElsewhere):
            raise
        except CloudError as error:
            if isinstance(error, Conflict):
                known.written_fingerprint = None  # if it cannot be updated, write all of it
            metrics.NODE_SYNC_ERRORS.inc()
            raise
        if fingerprint is None:
            known.followed, known.missed_at = backends, math.inf
        else:
            known.wrote(fingerprint, spec, backends, self._context.monotonic(), self._balancers.lag)
        metrics.SYNCS.inc()
        metrics.UPDATE_LATENCY.observe(self._context.monotonic() - started)
        if backends:
            self._events.event(service, "Normal", "UpdatedLoadBalancer", "Updated load balancer with new hosts")
        else:
            self._report_no_backends(service)
        self._warn(service, known, Source.UPDATE, balancer)
        self._warn_of_families(service, spec, known, backends)
        return balancer

    async def _make(self, service: Service, spec: LoadBalancerSpec, known: ServiceState) -> LoadBalancer:
        """Create the load balancer, or write all of it, for the current Nodes (S47)."""
        wanted = self._nodes.refresh()
        known.updating = False
        if known.ensuring_since is None:
            known.ensuring_since = self._context.monotonic()
            self._events.event(service, "Normal", "EnsuringLoadBalancer", "Ensuring load balancer")
        if (left := self._balancers.shows_deleted(spec.uid)) > 0:
            # Until then, the cloud could pass off the deleted one as what is wanted.
            raise Waiting(left, "the cloud may still show the one that was deleted")
        await self._writes.add_finalizer(service)
        if not wanted:
            self._report_no_backends(service)
        if not self._may_exist(service, known):
            known.followed = wanted  # whatever this attempt leaves has these
        known.written_fingerprint, known.spec = None, spec  # unknown until the cloud answers
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
        known.wrote(
            self._balancers.fingerprint(spec, wanted), spec, wanted, self._context.monotonic(), self._balancers.lag
        )
        metrics.SYNCS.inc()
        self._warn(service, known, Source.ENSURE, balancer)
        self._warn_of_families(service, spec, known, wanted)
        return balancer

    # Events

    def _warn(self, service: Service, known: ServiceState, source: Source, balancer: LoadBalancer) -> None:
        self._report(service, known.warnings.news(source, balancer.warnings))

    def _warn_of_families(
        self, service: Service, spec: LoadBalancerSpec, known: ServiceState, backends: Backends
    ) -> None:
        self._report(service, known.warnings.news(Source.FRAMEWORK, rules.without_family(spec, backends)))

    def _report(self, service: Service, warnings: list[str]) -> None:
        for warning in warnings:
            self._events.event(service, "Warning", "LoadBalancerWarning", warning)

    def _report_no_backends(self, service: Service) -> None:
        message = "There are no available nodes for LoadBalancer"
        self._events.event(service, "Warning", "UnAvailableLoadBalancer", message)

    def report_update_failure(self, service: Service, what: str) -> None:
        nodes = rules.some_names(self._nodes.backends)
        message = f"Error updating load balancer with new hosts {nodes}: {what}"
        self._events.event(service, "Warning", "UpdateLoadBalancerFailed", message)
