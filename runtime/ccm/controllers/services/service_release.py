# SPDX-License-Identifier: Apache-2.0
"""Delete the load balancer of a Service that no longer wants one, then release the Service.

Users can take back a change of the type, and the cache may show an old state, because a watch that resumes sends every
change, one after the other. So a read of the Service comes first. The deletion of a Service cannot be taken back, so it
needs no read.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from ccm.cloud import Kept
from ccm.engine.client import NotFoundError
from ccm.engine.events import EventRecorder
from ccm.engine.objects import Service, object_path
from ccm.engine.queue import Requeue

from ..shared.context import Context
from . import keep_rules
from . import service_rules as rules
from .class_rules import ServedClasses
from .service_balancers import ServiceBalancers
from .service_conditions import ServiceConditions
from .service_state import ServiceState
from .service_steps import BEHIND
from .service_writes import ServiceWrites
from .vanished_services import SERVICES
from .waiting_services import Waiting, WaitingServices

log = logging.getLogger(__name__)

#: Seconds until the next look at a Service whose state in the cache is old. Its next watch event ends the wait.
CATCH_UP = 5.0
#: Seconds until the next look at a Service whose load balancer is protected. A change of the Service ends the wait.
HELD = 300.0


class ServiceRelease:
    """Deletes load balancers and releases their Services. `follow`: updates the backends of a load balancer that stays
    although its Service is being deleted."""

    def __init__(
        self,
        context: Context,
        events: EventRecorder,
        balancers: ServiceBalancers,
        writes: ServiceWrites,
        conditions: ServiceConditions,
        waits: WaitingServices,
        classes: ServedClasses,
        follow: Callable[[Service, ServiceState], Awaitable[None]],
    ) -> None:
        self._context, self._events, self._balancers, self._writes = context, events, balancers, writes
        self._conditions, self._waits, self._classes, self._follow = conditions, waits, classes, follow

    async def clean_up(self, service: Service, state: ServiceState) -> None:
        """Delete the load balancer, even a partially created one (W19), then release the Service.

        Does nothing for a Service that is not ours and never had a load balancer of ours. Raises Requeue and RetryAfter
        until the deletion is done, and CloudError and ApiError if a request fails.
        """
        ours = rules.is_to_be_released(service, self._classes)
        if not ours and state.written.spec is None and service.metadata.uid not in self._balancers.at_start:
            return
        # A deletion that the cloud has confirmed goes on.
        if not state.deletion.confirmed and not await self._is_confirmed(service):
            log.info(
                "Service %s/%s is not as the cache shows it: keeping its load balancer until the cache has caught up",
                service.metadata.namespace,
                service.metadata.name,
            )
            raise Waiting(CATCH_UP, "the API server shows an older state of the Service")
        spec = rules.deletion_spec(service, self._context.cluster_name)
        if not state.deletion.started:
            await self._hold(service, state)
            state.deletion.started, state.deletion.kept = True, await self._balancers.name_of_kept(spec)
            if spec.keep is not Kept.LOAD_BALANCER:
                self._events.event(service, "Normal", "DeletingLoadBalancer", "Deleting load balancer")
        state.written.fingerprint = None  # a Service that wants it again before the deletion is done gets a new one
        await self._balancers.delete(spec, state, is_named=bool(service.status.load_balancer.ingress))
        listed = self._balancers.at_start.pop(service.metadata.uid, None)
        ingress = state.ingress or (listed.ingress if listed is not None else ())
        await self._writes.release(service, ingress)
        address = ingress[0].ip if ingress else ""
        self._events.event(service, "Normal", *keep_rules.farewell(spec.keep, state.deletion.kept, address))

    async def _hold(self, service: Service, state: ServiceState) -> None:
        """Raise Requeue while the load balancer must not be deleted. The Service keeps its finalizer and says why."""
        keeps = self._balancers.keeps
        why, before = keep_rules.why_held(service.metadata.annotations, keeps), state.deletion.held
        state.deletion.held = why
        if not why:
            return
        self._waits.end(f"{service.metadata.namespace}/{service.metadata.name}")  # what it waited for is over
        if why != before:
            self._events.event(service, "Warning", "LoadBalancerProtected", why)
        await self._conditions.waits(service, "LoadBalancerProtected", why)
        if service.spec.type == "LoadBalancer":  # it has its node ports, so it serves until it is really deleted
            await self._follow(service, state)
        raise Requeue(BEHIND if state.following.behind else HELD)

    async def _is_confirmed(self, service: Service) -> bool:
        """Return whether the API server agrees that the Service wants no load balancer."""
        if service.metadata.deletion_timestamp is not None:
            return True
        try:
            live = await self._context.client.get(object_path(SERVICES, service.metadata), Service)
        except NotFoundError:
            return False  # it vanished: `vanished_services` decides when the cache shows it
        return rules.is_still_unwanted(service, live, self._classes)
