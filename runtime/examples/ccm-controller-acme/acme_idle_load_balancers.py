# SPDX-License-Identifier: Apache-2.0
"""idle-load-balancer-controller: warns on each Service whose load balancer has had no ready endpoint for a while.

Such a load balancer costs money and serves nothing, but nobody notices, because the Service looks healthy.
"""

from __future__ import annotations

import logging
from typing import ClassVar

import msgspec
from prometheus_client import Gauge

from ccm.controllers import ControllerContext, ControllerSpec, Watched, log_failure
from ccm.engine.objects import ObjectMeta, Service, object_key
from ccm.engine.queue import Requeue, WorkQueue

log = logging.getLogger(__name__)

IDLE = Gauge("acme_idle_load_balancers", "Services whose load balancer has had no ready endpoint for too long.")


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options of the controller. `patience`: seconds without a ready endpoint until the Service is reported."""

    patience: float = 300.0

    def __post_init__(self) -> None:
        if self.patience < 0:
            raise ValueError(f"patience must be 0 or more, not {self.patience:g}")


class Conditions(msgspec.Struct, frozen=True):
    #: Null means ready, as in the API.
    ready: bool | None = None


class Endpoint(msgspec.Struct, frozen=True):
    conditions: Conditions = Conditions()


class EndpointSlice(msgspec.Struct, frozen=True):
    """The fields of an EndpointSlice that the controller reads."""

    metadata: ObjectMeta = ObjectMeta()
    endpoints: list[Endpoint] | None = None


SLICES: Watched[EndpointSlice] = Watched("endpointslices", EndpointSlice, group="discovery.k8s.io")


class IdleLoadBalancerController:
    name: ClassVar[str] = "idle-load-balancer-controller"

    def __init__(self, context: ControllerContext, options: Options) -> None:
        self._context, self._options = context, options
        self._slices = context.cache(SLICES)
        self._events = context.recorder(self.name)
        self._queue: WorkQueue[str] = WorkQueue("idle-load-balancers")
        #: When a Service was first seen without a ready endpoint, in monotonic seconds.
        self._since: dict[str, float] = {}
        self._reported: set[str] = set()

    async def run(self) -> None:
        self._context.services.add_handler(self._on_service)
        self._slices.add_handler(self._on_slice)
        await self._context.services.wait_synced()
        await self._slices.wait_synced()
        await self._queue.run_workers(1, self._sync, on_error=log_failure(log))

    def _on_service(self, old: Service | None, new: Service | None) -> None:
        self._queue.add(object_key(new or old))

    def _on_slice(self, old: EndpointSlice | None, new: EndpointSlice | None) -> None:
        if key := _service_of(new or old):
            self._queue.add(key)

    async def _sync(self, key: str) -> None:
        service = self._context.services.get(key)
        if service is None or not service.status.load_balancer.ingress or self._is_ready(key):
            self._since.pop(key, None)
            self._reported.discard(key)
        elif key not in self._reported:
            now = self._context.monotonic()
            left = self._since.setdefault(key, now) + self._options.patience - now
            if left > 0:
                raise Requeue(left)
            self._reported.add(key)
            self._events.event(
                service,
                "Warning",
                "IdleLoadBalancer",
                f"no endpoint has been ready for {self._options.patience:g} s, and the load balancer still exists",
            )
        IDLE.set(len(self._reported))

    def _is_ready(self, key: str) -> bool:
        return any(
            endpoint.conditions.ready is not False
            for found in self._slices.items()
            if _service_of(found) == key
            for endpoint in found.endpoints or ()
        )


def _service_of(endpoints: EndpointSlice | None) -> str:
    """Return the key of the Service that owns a slice; "" if there is none."""
    assert endpoints is not None
    name = endpoints.metadata.labels.get("kubernetes.io/service-name", "")
    return f"{endpoints.metadata.namespace}/{name}" if name else ""


SPEC = ControllerSpec(
    name=IdleLoadBalancerController.name,
    summary="Warns about load balancers without a ready endpoint.",
    watches=(SLICES,),
    section=Options,
    make=IdleLoadBalancerController,
)
