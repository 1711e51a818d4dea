# SPDX-License-Identifier: Apache-2.0
"""Services that are gone although this process never released them.

Their finalizer was removed by hand, or the API server shows an older state or another cluster. So a load balancer is
deleted only when a live read says that its Service is gone, after the orphan audit's grace, and within its cap.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sized

from prometheus_client import Gauge

from ccm.cloud import CloudError, RetryAfter
from ccm.engine import absence_rules
from ccm.engine.events import EventRecorder
from ccm.engine.objects import Service
from ccm.engine.queue import Requeue

from . import orphan_rules
from . import service_rules as rules
from .context import Context
from .service_balancers import ServiceBalancers
from .service_state import ServiceState

log = logging.getLogger(__name__)

VANISHED = Gauge(
    "ccm_services_vanished",
    "Services that are gone although this process never released them. Their load balancers are kept for five minutes, "
    "and as long as there are many of them.",
)

#: Where all Services are.
SERVICES = "/api/v1/services"
#: A Service that is there again while its load balancer is being deleted is looked at again so soon, in seconds.
SOON = 0.2


class VanishedServices:
    """`known`: the Services that are there; `queue(key)` has a key served by `delete`, or by whom it belongs to.

    Its keys are "namespace/name/UID": another Service may have the name by now.
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
        state.vanished_at = self._context.monotonic()
        vanished = f"{key}/{state.service.metadata.uid}"
        self.states[vanished] = state
        VANISHED.set(len(self.states))
        log.warning("Service %s vanished and was not released: its load balancer stays for %.0f s", key, grace(state))
        self._queue(vanished)

    def come_back(self, key: str, service: Service) -> ServiceState | None:
        """What is known of a Service that had only seemed to be gone. Raises Requeue while it is being deleted."""
        vanished = f"{key}/{service.metadata.uid}"
        state = self.states.get(vanished)
        if state is not None:
            if state.deleting:
                self._queue(vanished)  # which finds out that the Service lives
                raise Requeue(SOON)
            self._remove(vanished)
            log.warning("Service %s is there again: its load balancer stays", key)
        return state

    async def delete(self, key: str) -> Service:
        """Delete the load balancer of a Service that vanished, once that is sure. Returns the Service.

        Raises Requeue and RetryAfter until then, and ApiError when the API server does not say whether it lives.
        """
        state, now = self.states[key], self._context.monotonic()
        service = state.service
        if await self._context.client.exists(SERVICES, service.metadata):
            state.deleting, state.vanished_at = False, now
            self._queue(key.rpartition("/")[0])
            raise Requeue(absence_rules.GRACE)
        if (left := state.vanished_at + grace(state) - now) > 0:
            raise Requeue(left)
        unexpected = [each for each in self.states.values() if grace(each)]
        together = len(unexpected)
        if state in unexpected and not orphan_rules.may_delete(together, together + len(self._known)):
            message = (
                f"The Service vanished and was not released, as did {together - 1} others: so many are not "
                "believed, and their load balancers stay. Check --kubeconfig and the state of etcd. If the Services "
                "are really gone, delete the load balancers by hand"
            )
            self._events.event(service, "Warning", "LoadBalancerKept", message)
            raise Requeue(absence_rules.GRACE)
        if not state.deleting:
            state.deleting, state.mark = True, None  # should it come back, it is made anew
            self._events.event(service, "Normal", "DeletingLoadBalancer", "Deleting load balancer")
        try:
            spec = state.spec or rules.deletion_spec(service, self._context.cluster_name)
            await self._balancers.delete(spec, state)
        except RetryAfter:
            raise
        except CloudError as error:
            message = f"Error deleting load balancer: {error}"
            self._events.event(service, "Warning", "DeleteLoadBalancerFailed", message)
            raise
        self._events.event(service, "Normal", "DeletedLoadBalancer", "Deleted load balancer")
        self._remove(key)
        return service

    def _remove(self, key: str) -> None:
        del self.states[key]
        VANISHED.set(len(self.states))


def grace(state: ServiceState) -> float:
    """For how many seconds a Service must be gone. One that was going when it was last seen was meant to go."""
    return 0.0 if state.was_going or rules.needs_cleanup(state.service) else absence_rules.GRACE
