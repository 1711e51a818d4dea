# SPDX-License-Identifier: Apache-2.0
"""Services that are gone although this process never released them.

Either their finalizer was removed by hand, or the API server shows an older state or another cluster. The load
balancer is therefore deleted only if a live read reports the Service gone, after the orphan audit's grace period, and
within the audit's cap. The read suffices if the Service was to be released anyway when it was last seen (`grace`).
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Sized

from ccm.base.cloud_metrics import CloudGauge
from ccm.cloud import CloudError, LoadBalancerSpec, RetryAfter
from ccm.engine import absence_rules
from ccm.engine.events import EventRecorder
from ccm.engine.objects import Service
from ccm.engine.queue import Requeue

from ..shared import orphan_rules
from ..shared.context import Context
from . import keep_rules
from . import service_rules as rules
from .service_balancers import ServiceBalancers
from .service_state import ServiceState
from .waiting_services import Waiting

log = logging.getLogger(__name__)

VANISHED = CloudGauge(
    "ccm_services_vanished",
    "Services that are gone although this process never released them. Their load balancers are kept for five minutes, "
    "and for as long as there are many such Services.",
)

#: The kind of the objects that `Holds` shows.
KIND = "LoadBalancer"
#: The path of all Services.
SERVICES = "/api/v1/services"
#: Seconds until the next check of a Service that reappears while its load balancer is being deleted.
SOON = 0.2


class VanishedServices:
    """The Services that are gone and were not released. `known`: the existing Services. `queue(key)`: adds a key to the
    controller's queue: that of a vanished Service, for `delete`, or that of an existing one.

    The keys of `states` are "namespace/name/UID", because another Service may have the name by now.
    """

    def __init__(
        self,
        context: Context,
        events: EventRecorder,
        balancers: ServiceBalancers,
        known: Sized,
        queue: Callable[[str], object],
    ) -> None:
        self._context, self._events, self._balancers = context, events, balancers
        self._known, self._queue = known, queue
        self.states: dict[str, ServiceState] = {}

    def add(self, key: str, state: ServiceState) -> None:
        state.deletion.vanished_at = self._context.monotonic()
        vanished = f"{key}/{state.service.metadata.uid}"
        self.states[vanished] = state
        VANISHED.of(self._context.gateway.name).set(len(self.states))
        log.warning("Service %s is gone but was not released: keeping its load balancer for %.0f s", key, grace(state))
        if wait := grace(state):
            self._context.holds.put(KIND, vanished, "NotReleased", f"kept for {wait:g} s, then a read decides")
        self._queue(vanished)

    def come_back(self, key: str, service: Service) -> ServiceState | None:
        """Return the state of a Service that only seemed to be gone, None if it never did. Raises Requeue while its
        load balancer is being deleted."""
        vanished = f"{key}/{service.metadata.uid}"
        state = self.states.get(vanished)
        if state is not None:
            if state.deletion.started:
                self._queue(vanished)  # `delete` then finds out that the Service exists
                raise Requeue(SOON)
            self._remove(vanished)
            log.warning("Service %s exists again: keeping its load balancer", key)
        return state

    async def delete(self, key: str) -> Service:
        """Delete the load balancer of a Service that is confirmed gone. Return the Service.

        Raises Requeue and RetryAfter until then, and CloudError and ApiError if a request fails.
        """
        state, now = self.states[key], self._context.monotonic()
        service = state.service
        if await self._context.client.exists(SERVICES, service.metadata):
            state.deletion.started, state.deletion.vanished_at = False, now
            self._queue(key.rpartition("/")[0])
            raise Requeue(absence_rules.GRACE)
        if (left := state.deletion.vanished_at + grace(state) - now) > 0:
            raise Requeue(left)
        unexpected = [each for each in self.states.values() if grace(each)]
        together = len(unexpected)
        if state in unexpected and not orphan_rules.may_delete(together, together + len(self._known)):
            message = (
                f"The Service is gone but was not released, and the same is true of {together - 1} others. That many "
                "are not plausible, so their load balancers are kept. Check --kubeconfig and the state of etcd. If "
                "the Services are really gone, delete the load balancers by hand"
            )
            self._events.event(service, "Warning", "LoadBalancerKept", message)
            self._context.holds.put(KIND, key, "TooManyVanished", message)
            raise Requeue(absence_rules.GRACE)
        if not state.deletion.started:
            self._hold(key, state)
            state.deletion.started, state.deletion.kept = True, await self._balancers.name_of_kept(self._spec(state))
            state.written.fingerprint = None  # if the Service reappears, the load balancer is created again
            self._events.event(service, "Normal", "DeletingLoadBalancer", "Deleting load balancer")
        spec = self._spec(state)
        try:
            await self._balancers.delete(spec, state, is_named=bool(state.ingress))
        except RetryAfter:
            raise
        except Waiting as waiting:
            self._context.holds.put(KIND, key, "NotShown", waiting.reason)
            raise
        except CloudError as error:
            message = f"Error deleting load balancer: {error}"
            self._events.event(service, "Warning", "DeleteLoadBalancerFailed", message)
            raise
        address = state.ingress[0].ip if state.ingress else ""
        self._events.event(service, "Normal", *keep_rules.farewell(spec.keep, state.deletion.kept, address))
        self._remove(key)
        return service

    def _spec(self, state: ServiceState) -> LoadBalancerSpec:
        """Return the spec of the load balancer to delete. The annotations seen last say what to keep of it."""
        spec = state.written.spec or rules.deletion_spec(state.service, self._context.cluster_name)
        return dataclasses.replace(spec, keep=keep_rules.readable_keep(state.service.metadata.annotations))

    def _hold(self, key: str, state: ServiceState) -> None:
        """Raise Requeue if the Service, as it was last seen, forbids the deletion of its load balancer."""
        keeps = self._balancers.keeps
        why = keep_rules.why_held(state.service.metadata.annotations, keeps)
        if not why:
            return
        if why != state.deletion.held:
            state.deletion.held = why
            message = f"The Service is gone, and was last seen with: {why}. Delete the load balancer by hand"
            self._events.event(state.service, "Warning", "LoadBalancerProtected", message)
            self._context.holds.put(KIND, key, "Protected", message)
        raise Requeue(absence_rules.GRACE)

    def _remove(self, key: str) -> None:
        del self.states[key]
        self._context.holds.drop(KIND, key)
        VANISHED.of(self._context.gateway.name).set(len(self.states))


def grace(state: ServiceState) -> float:
    """Return how many seconds a Service must be gone before its load balancer may be deleted. 0 if, when last seen, it
    was being deleted, or had our finalizer and another type than LoadBalancer."""
    return 0.0 if state.deletion.service_was_deleted or rules.needs_cleanup(state.service) else absence_rules.GRACE
