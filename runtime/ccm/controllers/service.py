# SPDX-License-Identifier: Apache-2.0
"""service-lb-controller: a load balancer of the cloud for every Service of type LoadBalancer.

Everything about one Service goes through one queue key, so nothing about it ever happens twice at a time. At start, one
listing tells what the cloud has; a Service whose fingerprint is the cloud's already costs no write (reference W13).
Changes of Nodes are gathered, and cause one update per Service per burst (W15). Waiting for the cloud holds no worker:
the key goes back into the queue.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from prometheus_client import Counter, Histogram

from ccm.cloud import (
    Backend,
    CloudError,
    Conflict,
    ImplementedElsewhere,
    LoadBalancer,
    LoadBalancerSpec,
    NotFound,
    RetryAfter,
)
from ccm.engine.client import ApiError, ConflictError, NotFoundError
from ccm.engine.objects import Node, Service
from ccm.engine.queue import Requeue, WorkQueue

from . import service_rules as rules
from .context import Context, log_failure

log = logging.getLogger(__name__)

T = TypeVar("T")

_BUCKETS = tuple(2.0**n for n in range(15))
SYNCS = Counter("service_controller_loadbalancer_sync", "Load balancers written to the cloud, for whatever reason.")
NODE_SYNC_ERRORS = Counter("service_controller_nodesync_error", "Failed updates of a load balancer's backends.")
NODE_SYNC_LATENCY = Histogram(
    "service_controller_nodesync_latency_seconds",
    "From a change of Nodes to the update being queued.",
    buckets=_BUCKETS,
)
UPDATE_LATENCY = Histogram(
    "service_controller_update_loadbalancer_host_latency_seconds",
    "The update of one load balancer's backends.",
    buckets=_BUCKETS,
)


@dataclass(frozen=True)
class ServiceOptions:
    """`workers`: Services worked on at a time. `debounce`, `debounce_max`: a burst of Node changes ends when none came
    for `debounce` seconds, at the latest `debounce_max` seconds after its first. `poll`, `poll_max`: seconds between
    looks at a load balancer that the cloud is still working on."""

    workers: int = 10
    debounce: float = 1.0
    debounce_max: float = 10.0
    poll: float = 0.5
    poll_max: float = 5.0


@dataclass
class _Known:
    """What this process knows about one Service: what it last wrote, and how long it has been waiting for the cloud."""

    service: Service
    spec: LoadBalancerSpec | None = None
    backends: tuple[Backend, ...] = ()
    written: bool = False
    polls: int = 0
    deleting: bool = False


class ServiceController:
    name: ClassVar[str] = "service-lb-controller"

    def __init__(self, context: Context, options: ServiceOptions) -> None:
        if context.gateway.cloud.load_balancers is None or context.gateway.instances is None:
            raise ValueError(f"{self.name} needs a provider with load balancers and instances")
        self._cloud = context.gateway.cloud.load_balancers
        self._owns = context.gateway.instances.owns
        self._context = context
        self._options = options
        self._events = context.recorder("service-controller")
        self._queue: WorkQueue[str] = WorkQueue("service", base_delay=5.0, max_delay=300.0)
        self._known: dict[str, _Known] = {}
        self._listed: dict[str, LoadBalancer] = {}
        self._nodes_changed = asyncio.Event()
        self._changed_at = 0.0
        self._backends: tuple[Backend, ...] = ()

    async def run(self) -> None:
        context = self._context
        await asyncio.gather(context.services.wait_synced(), context.nodes.wait_synced())
        self._listed = await self._list_for_sure()
        self._backends = rules.backends(context.nodes.items(), self._owns)
        context.services.add_handler(self._on_service)
        context.nodes.add_handler(self._on_node)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._queue.run_workers(self._options.workers, self._sync, on_error=log_failure(log)))
            tasks.create_task(self._follow_nodes())

    async def _list_for_sure(self) -> dict[str, LoadBalancer]:
        """What the cloud has, by Service UID; asked until it answers: without it every Service would be written."""
        delay = 1.0
        while True:
            try:
                found = await self._context.gateway.call(
                    "load_balancers.list", lambda: self._cloud.list(self._context.cluster_name)
                )
                return {balancer.service_uid: balancer for balancer in found}
            except CloudError as error:
                delay = min(30.0, delay * 2)
                log.warning("load balancers cannot be listed, trying again in %.0f s: %s", delay, error)
                await asyncio.sleep(error.retry_after or delay)

    # --- events -------------------------------------------------------------------------------------------------

    def _on_service(self, old: Service | None, new: Service | None) -> None:
        service = new or old
        assert service is not None
        key = f"{service.metadata.namespace}/{service.metadata.name}"
        if new is None:
            if key in self._known:  # without our finalizer: somebody removed it by hand
                self._queue.add(key)
        elif (old is None and rules.concerns_us(new)) or (old is not None and rules.needs_update(old, new)):
            self._queue.add(key)

    def _on_node(self, old: Node | None, new: Node | None) -> None:
        if old is not None and new is not None:
            relevant = rules.backends([old], self._owns) != rules.backends([new], self._owns)
        else:
            relevant = any(rules.is_backend(node, self._owns) for node in (old, new) if node is not None)
        if relevant:
            self._changed_at = self._context.monotonic()
            self._nodes_changed.set()

    async def _follow_nodes(self) -> None:
        """Wait for a burst of Node changes to end, then look once at every Service."""
        while True:
            await self._nodes_changed.wait()
            self._nodes_changed.clear()
            first = self._context.monotonic()
            while True:
                now = self._context.monotonic()
                due = min(self._changed_at + self._options.debounce, first + self._options.debounce_max)
                if now >= due:
                    break
                await asyncio.sleep(due - now)
            self._nodes_changed.clear()
            current = rules.backends(self._context.nodes.items(), self._owns)
            if current != self._backends:
                self._backends = current
                NODE_SYNC_LATENCY.observe(self._context.monotonic() - first)
                for key, known in self._known.items():
                    if rules.wants_load_balancer(known.service):
                        self._queue.add(key)

    # --- one Service --------------------------------------------------------------------------------------------

    async def _sync(self, key: str) -> None:
        service = self._context.services.get(key)
        known = self._known.get(key)
        try:
            if known is not None and (service is None or service.metadata.uid != known.service.metadata.uid):
                await self._delete_forgotten(key, known)
                known = None
            if service is None:
                return
            if known is None:
                known = self._known[key] = _Known(service)
            known.service = service
            if rules.wants_load_balancer(service) and not rules.needs_cleanup(service):
                await self._ensure(service, known)
            else:
                await self._clean_up(service, known)
                self._known.pop(key, None)
        except Requeue:
            raise
        except RetryAfter as error:
            raise Requeue(error.retry_after or self._options.poll) from None  # nothing is wrong, the cloud is at work
        except (ConflictError, NotFoundError):
            raise Requeue(0.2) from None  # another writer was faster; the cache will show it in a moment
        except (CloudError, ApiError, rules.ServiceRuleError) as error:
            if service is not None:
                self._events.event(
                    service, "Warning", "SyncLoadBalancerFailed", f"Error syncing load balancer: {error}"
                )
            retry_after = getattr(error, "retry_after", None)
            if retry_after is not None:
                raise Requeue(retry_after) from error
            raise

    async def _ensure(self, service: Service, known: _Known) -> None:
        spec = rules.load_balancer_spec(service, self._context.cluster_name)
        wanted = self._backends
        if known.written and known.spec == spec and known.backends == wanted and not known.polls:
            return
        if known.polls and known.spec == spec and known.backends == wanted:
            try:
                balancer = await self._call("get", lambda: self._cloud.get(spec))
            except (NotFound, Conflict):
                known.written, known.polls = False, 0  # it vanished or failed while we waited: ensure it again
                raise
        else:
            written = await self._write(service, spec, wanted, known)
            if written is None:
                known.spec, known.backends, known.written = spec, wanted, True
                return
            balancer = written
        known.spec, known.backends, known.written = spec, wanted, True
        if not balancer.ready:
            known.polls += 1
            raise Requeue(min(self._options.poll_max, self._options.poll * 1.5 ** (known.polls - 1)))
        known.polls = 0
        await self._publish(service, balancer)

    async def _write(
        self, service: Service, spec: LoadBalancerSpec, wanted: tuple[Backend, ...], known: _Known
    ) -> LoadBalancer | None:
        """Bring the cloud to what is wanted, by the least write that does it; None when it is served elsewhere."""
        listed = self._listed.pop(spec.uid, None)
        if (
            listed is not None
            and listed.ready
            and listed.fingerprint
            and listed.fingerprint == self._cloud.fingerprint(spec, wanted)
        ):
            await self._add_finalizer(service)
            return listed
        only_backends = known.written and known.spec == spec
        if not only_backends:
            self._events.event(service, "Normal", "EnsuringLoadBalancer", "Ensuring load balancer")
            await self._add_finalizer(service)
        if not wanted:
            self._events.event(
                service, "Warning", "UnAvailableLoadBalancer", "There are no available nodes for LoadBalancer"
            )
        started = self._context.monotonic()
        try:
            if only_backends:
                balancer = await self._call("update_backends", lambda: self._cloud.update_backends(spec, wanted))
                self._events.event(service, "Normal", "UpdatedLoadBalancer", "Updated load balancer with new hosts")
                UPDATE_LATENCY.observe(self._context.monotonic() - started)
            else:
                balancer = await self._call("ensure", lambda: self._cloud.ensure(spec, wanted))
        except ImplementedElsewhere:
            return None
        except RetryAfter:
            raise
        except NotFound:
            known.written = False  # it vanished under us: the next attempt makes it anew
            raise Requeue(0.0) from None
        except CloudError as error:
            if only_backends:
                known.written = not isinstance(error, Conflict)  # what cannot be updated is ensured
                NODE_SYNC_ERRORS.inc()
                self._events.event(
                    service, "Warning", "UpdateLoadBalancerFailed", f"Error updating load balancer: {error}"
                )
            raise
        SYNCS.inc()
        return balancer

    async def _publish(self, service: Service, balancer: LoadBalancer) -> None:
        """Write the ingress addresses where they differ; the Service is served from now on."""
        wire = rules.ingress_wire(balancer.ingress)
        if rules.same_ingress(service.status.load_balancer.ingress, wire):
            return
        await self._patch_status(service, {"status": {"loadBalancer": {"ingress": wire}}})
        self._events.event(service, "Normal", "EnsuredLoadBalancer", "Ensured load balancer")

    async def _clean_up(self, service: Service, known: _Known) -> None:
        """Delete the load balancer, also what is left of a half-made one (W19), then let the Service go."""
        spec = self._spec_for_deletion(service)
        if not known.deleting:
            known.deleting = True
            self._events.event(service, "Normal", "DeletingLoadBalancer", "Deleting load balancer")
        await self._delete(spec)
        self._listed.pop(service.metadata.uid, None)
        patch: dict[str, Any] = {}
        if service.status.load_balancer.ingress:
            patch["status"] = {"loadBalancer": None}
        if rules.FINALIZER in service.metadata.finalizers:
            kept = [finalizer for finalizer in service.metadata.finalizers if finalizer != rules.FINALIZER]
            patch["metadata"] = {"finalizers": kept or None, "resourceVersion": service.metadata.resource_version}
        if patch:
            with contextlib.suppress(NotFoundError):
                await self._patch_status(service, patch)
        self._events.event(service, "Normal", "DeletedLoadBalancer", "Deleted load balancer")

    async def _delete_forgotten(self, key: str, known: _Known) -> None:
        """The Service is gone, or another one has its name: its load balancer goes, without an object to tell."""
        if known.spec is not None or rules.FINALIZER in known.service.metadata.finalizers:
            await self._delete(known.spec or self._spec_for_deletion(known.service))
        del self._known[key]

    def _spec_for_deletion(self, service: Service) -> LoadBalancerSpec:
        """Identity is enough to delete, so a Service with unusable annotations can still go."""
        meta = service.metadata
        try:
            return rules.load_balancer_spec(service, self._context.cluster_name)
        except rules.ServiceRuleError:
            return LoadBalancerSpec(self._context.cluster_name, meta.uid, meta.namespace, meta.name, ports=())

    async def _delete(self, spec: LoadBalancerSpec) -> None:
        with contextlib.suppress(NotFound, ImplementedElsewhere):
            await self._call("delete", lambda: self._cloud.delete(spec))

    async def _add_finalizer(self, service: Service) -> None:
        if rules.FINALIZER in service.metadata.finalizers:
            return
        finalizers = [*service.metadata.finalizers, rules.FINALIZER]
        await self._patch_status(
            service,
            {"metadata": {"finalizers": finalizers, "resourceVersion": service.metadata.resource_version}},
        )

    async def _patch_status(self, service: Service, patch: dict[str, Any]) -> None:
        """Finalizers, too, go through the status subresource: then `services/status` is the only right to write."""
        meta = service.metadata
        await self._context.client.patch(f"/api/v1/namespaces/{meta.namespace}/services/{meta.name}/status", patch)

    async def _call(self, verb: str, function: Callable[[], Awaitable[T]]) -> T:
        return await self._context.gateway.call(f"load_balancers.{verb}", function)
