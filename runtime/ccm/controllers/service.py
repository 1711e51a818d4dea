# SPDX-License-Identifier: Apache-2.0
"""service-lb-controller: a load balancer of the cloud for every Service of type LoadBalancer.

Everything about one Service goes through one queue key, so nothing about it ever happens twice at a time (reference
W17). At start, one listing tells what the cloud has; a Service whose fingerprint is the cloud's already costs no write
(W13). Changes of Nodes are gathered, and cause one update per Service per burst (W15). Waiting for the cloud holds no
worker: the key goes back into the queue, and one listing answers for all that wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, TypeVar

from prometheus_client import Counter, Gauge, Histogram

from ccm.cloud import (
    AllocatesAddresses,
    Backends,
    CloudError,
    ComparesLoadBalancers,
    Conflict,
    ImplementedElsewhere,
    Ingress,
    LoadBalancer,
    LoadBalancers,
    LoadBalancerSpec,
    NotFound,
    NotImplementedByCloud,
    RetryAfter,
    Transient,
)
from ccm.engine.client import ApiError, ConflictError, NotFoundError
from ccm.engine.objects import Node, Service
from ccm.engine.queue import Priority, Requeue, WorkQueue

from . import comparison_rules, orphan_rules
from . import service_rules as rules
from .allocations import ServiceAllocations
from .comparison import Comparison
from .context import Context, log_failure
from .orphans import OrphanAudit
from .vouching import Vouching

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
ENSURE_LATENCY = Histogram(
    "ccm_load_balancer_ensure_duration_seconds",
    "From the first attempt to write a load balancer to its being ready in the cloud.",
    buckets=(0.1, 0.5, 1, 2, 5, 10, 20, 40, 80, 160, 320, 640),
)
FAILURES = Counter("ccm_service_sync_failures", "Failed attempts to serve or release a Service, by error.", ["error"])
WAITING = Gauge("ccm_load_balancers_pending", "Load balancers that are written and that the cloud is still working on.")

VANISHED = Gauge(
    "ccm_services_vanished",
    "Services that are gone although this process never released them. Their load balancers are kept for five minutes, "
    "and as long as there are many of them.",
)

#: Where all Services are.
SERVICES = "/api/v1/services"
#: So many waiting load balancers are looked at by one listing rather than one by one.
BULK = 3
#: Every so many looks at a waiting load balancer it is read alone: only that tells that it failed in the cloud.
READ_EVERY = 6
#: After losing a race against another writer the next attempt comes so soon, in seconds; so often, then it is an error.
LOST_RACE, LOST_RACES = 0.2, 5
#: A load balancer that the cloud does not know when it is to be deleted is asked for again so much later, in seconds.
CONFIRM = 5.0
#: The least time between two attempts, whatever a cloud says, in seconds.
AT_LEAST = 0.1


@dataclass(frozen=True)
class ServiceOptions:
    """`workers`: Services written at a time; the provider's limits bound them further.

    `debounce`, `debounce_max`: a burst of Node changes ends when none came for `debounce` seconds, at the latest
    `debounce_max` seconds after its first. `poll`, `poll_max`: seconds between looks at a load balancer that the cloud
    is still working on. `ready_only`: only Ready Nodes are backends. `audit_period`: seconds between looks for load
    balancers whose Service is gone, 0 for none; `delete_orphans`: such ones are deleted.
    """

    workers: int = 20
    debounce: float = 1.0
    debounce_max: float = 10.0
    poll: float = 0.5
    poll_max: float = 5.0
    ready_only: bool = False
    audit_period: float = 600.0
    delete_orphans: bool = False


@dataclass
class _Known:
    """What this process knows about one Service.

    `mark`: what the cloud was last told, None when that is not known (`ServiceController._mark`); `spec` and `backends`
    are what it was made from. `updating`: a write of the backends alone is being tried; `unsure`: it failed, so they
    must be written again. `polls`: looks at the cloud since it was written; `settled`: it is ready and the Service says
    where. `tried_at`: when it was last tried to make it; `met`: the cloud knew it when it was to be deleted;
    `again_at`: when a cloud that did not is asked again. `told`: an Event said what is wrong since the last success.
    `vanished_at`: since when the Service is gone without our having released it. `ingress`: what its status was last
    given. `cloud`: the one that all this is about. `was_going`: it was being deleted when it was last seen.
    `compare`: its load balancer is to be compared with it; `asked`: for a user; `compared_at`: when it was.
    """

    service: Service
    mark: Hashable = None
    spec: LoadBalancerSpec | None = None
    backends: Backends = field(default_factory=Backends)
    unsure: bool = False
    updating: bool = False
    polls: int = 0
    settled: bool = False
    written_at: float = 0.0
    ensuring_since: float | None = None
    deleting: bool = False
    tried_at: float = -math.inf
    met: bool = False
    again_at: float = -math.inf
    lost_races: int = 0
    told: bool = False
    vanished_at: float = math.inf
    ingress: tuple[Ingress, ...] = ()
    cloud: LoadBalancers | None = None
    was_going: bool = False
    compare: bool = False
    asked: bool = False
    compared_at: float = -math.inf

    def wrote(self, mark: Hashable, spec: LoadBalancerSpec, backends: Backends, now: float) -> None:
        self.mark, self.spec, self.backends, self.written_at = mark, spec, backends, now
        self.unsure, self.updating, self.settled, self.polls = False, False, False, 0


class _Listing(NamedTuple):
    """All load balancers by Service UID, for all who ask at the time; `begun` in monotonic seconds."""

    begun: float
    found: Mapping[str, LoadBalancer]


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
        self._known: dict[str, _Known] = {}
        #: By the key "namespace/name/UID": beside it another Service may have the name by now.
        self._vanished: dict[str, _Known] = {}
        self._comparison = Comparison(context, self._events, lambda: self._cloud)
        self._allocations = ServiceAllocations()
        self._introduced: LoadBalancers | None = None
        self._listed: dict[str, LoadBalancer] = {}
        self._waiting: set[str] = set()
        self._listing: _Listing | None = None
        self._listing_now = asyncio.Lock()
        self._cloud_replaced = asyncio.Event()
        self._nodes_changed = asyncio.Event()
        self._changed_at = 0.0
        self._backends: Backends = Backends()
        self._backends_stale = False

    @property
    def _cloud(self) -> LoadBalancers:
        """The present cloud's: it is replaced when credentials are reloaded."""
        found = self._context.gateway.cloud.load_balancers
        assert found is not None
        if found is not self._introduced:
            self._introduced = found
            if isinstance(found, AllocatesAddresses):
                found.use_allocations(self._allocations)
        return found

    async def run(self) -> None:
        context, options = self._context, self._options
        await asyncio.gather(context.services.wait_synced(), context.nodes.wait_synced())
        context.services.add_handler(self._allocations.on_service)  # all Services, before the first one is served
        await self._vouching.ready()
        self._listed = await self._list_for_sure()
        audit = OrphanAudit(context, delete=options.delete_orphans, period=options.audit_period, in_hand=self._in_hand)
        audit.saw(self._listed.values())
        self._backends = self._backends_now()
        context.services.add_handler(self._on_service)
        context.nodes.add_handler(self._on_node)
        self._vouching.on_change(self._on_verdict)
        context.gateway.on_replace(self._cloud_replaced.set)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._queue.run_workers(options.workers, self._sync, on_error=log_failure(log)))
            tasks.create_task(self._follow_nodes())
            tasks.create_task(self._follow_cloud())
            if isinstance(self._cloud, ComparesLoadBalancers):
                tasks.create_task(self._comparison.run(self._settled, self._compare))
            if options.audit_period and context.gateway.cloud.has_cluster_id:  # else others' look like orphans
                tasks.create_task(audit.run())

    def _in_hand(self) -> set[str]:
        """UIDs of the Services that the queue takes care of, also of those that are gone and not yet released."""
        return {known.service.metadata.uid for known in (*self._known.values(), *self._vanished.values())}

    async def _list_for_sure(self) -> dict[str, LoadBalancer]:
        """What the cloud has, by Service UID; asked until it answers: without it every Service would be written."""
        delay = 1.0
        while True:
            try:
                return await self._list()
            except NotImplementedByCloud as error:
                log.warning("every Service is written once, since load balancers cannot be listed: %s", error)
                return {}
            except CloudError as error:
                delay = min(30.0, delay * 2)
                wait = error.retry_after or delay
                log.warning("load balancers cannot be listed, trying again in %.0f s: %s", wait, error)
                await asyncio.sleep(wait)

    async def _list(self) -> dict[str, LoadBalancer]:
        found = await self._call("list", lambda: self._cloud.list(self._context.cluster_name))
        return {balancer.service_uid: balancer for balancer in found}

    def _backends_now(self) -> Backends:
        return rules.backends(self._context.nodes.items(), self._vouching.judge, ready_only=self._options.ready_only)

    # --- events -------------------------------------------------------------------------------------------------

    def _on_service(self, old: Service | None, new: Service | None) -> None:
        service = new or old
        assert service is not None
        key = f"{service.metadata.namespace}/{service.metadata.name}"
        if new is None:
            known = self._known.get(key)
            if known is not None:  # without our finalizer: somebody removed it by hand
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
                self._backends_stale = True  # for whoever writes next
            return
        self._on_verdict()

    def _on_verdict(self) -> None:
        """A Node, or what the cloud says of one, changed in a way that may concern load balancers."""
        self._backends_stale = True
        self._changed_at = self._context.monotonic()
        self._nodes_changed.set()

    async def _follow_nodes(self) -> None:
        """Wait for a burst of Node changes to end, then look once at every Service."""
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
            except Exception:  # a bug; but what is known goes on to be served
                self._backends_stale = True
                log.exception("the backends stay as they are")
            NODE_SYNC_LATENCY.observe(self._context.monotonic() - first)
            for key, known in self._known.items():
                if rules.wants_load_balancer(known.service) and known.backends is not self._backends:
                    self._queue.add(key, Priority.LOW)  # users wait for new and changed Services

    async def _follow_cloud(self) -> None:
        """Look at every Service again when the cloud was replaced. What it has as it should be costs no write."""
        while True:
            await self._cloud_replaced.wait()
            self._cloud_replaced.clear()
            self._listing, self._listed = None, await self._list_for_sure()
            for key in self._known:
                self._queue.add(key)

    def _settled(self) -> list[comparison_rules.Compared]:
        """The Services whose load balancer is ready, and as this process last wrote or recognised it."""
        return [
            comparison_rules.Compared(key, known.written_at, known.compared_at)
            for key, known in self._known.items()
            if known.settled and known.mark is not None and rules.wants_load_balancer(known.service)
        ]

    def _compare(self, key: str) -> None:
        self._known[key].compare = True
        self._queue.add(key)

    def _refresh_backends(self) -> None:
        """Equal ones stay the same object: thousands of Nodes are compared once, not for each Service."""
        if self._backends_stale:
            self._backends_stale = False
            found = self._backends_now()
            if found != self._backends or [each.labels for each in found] != [each.labels for each in self._backends]:
                self._backends = found

    # --- one Service --------------------------------------------------------------------------------------------

    async def _sync(self, key: str) -> None:
        service = self._context.services.get(key)
        known = self._vanished.get(key) or self._known.get(key)
        try:
            if key in self._vanished:
                await self._delete_vanished(key, self._vanished[key])
                return
            if known is not None and (service is None or service.metadata.uid != known.service.metadata.uid):
                self._vanish(key, known)
                known = None
            if service is None:
                return
            if known is None:
                known = self._known[key] = self._come_back(key, service) or _Known(service)
            known.service, known.updating = service, False
            # One that is going already cannot be given our finalizer any more.
            if rules.wants_load_balancer(service) and service.metadata.deletion_timestamp is None:
                await self._ensure(key, service, known)
            else:
                await self._clean_up(service, known)
                self._forget(key)
        except Requeue:
            raise
        except RetryAfter as error:  # nothing is wrong, the cloud is at work
            raise Requeue(max(AT_LEAST, error.retry_after or self._options.poll)) from None
        except Exception as error:
            if known is not None and isinstance(error, (ConflictError, NotFoundError)):
                known.lost_races += 1
                if known.lost_races <= LOST_RACES:
                    raise Requeue(LOST_RACE) from None  # another writer was faster; the cache will show it in a moment
            self._wait_for(key, False)
            self._failed(service, known, error)
            if (wait := getattr(error, "retry_after", None)) is not None:
                raise Requeue(max(AT_LEAST, wait)) from error
            raise
        if known is not None:
            known.lost_races, known.told = 0, False

    def _failed(self, service: Service | None, known: _Known | None, error: Exception) -> None:
        FAILURES.labels(type(error).__name__).inc()
        if service is None:
            return
        if known is not None:
            if known.told and getattr(error, "retry_after", None) is not None:
                return  # in an outage hundreds of Services come back every few seconds, with nothing new to say
            known.told = True
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
        WAITING.set(len(self._waiting))

    async def _ensure(self, key: str, service: Service, known: _Known) -> None:
        spec = rules.load_balancer_spec(service, self._context.cluster_name)
        if known.cloud is not self._cloud:
            known.mark, known.cloud = None, self._cloud  # what another cloud was told says nothing about this one
        mark, known.deleting = self._mark(spec, self._backends), False
        balancer = self._recognised(known, spec, mark)
        if balancer is not None:
            await self._add_finalizer(service)
        elif known.mark != mark or known.unsure or known.mark is None:
            balancer = await self._write(service, spec, known)
            if balancer is None:  # another controller serves it
                known.settled = True
                return
        elif known.settled:
            if not known.compare or not await self._deviates(service, spec, known):
                await self._restore(service, known)
                return
            balancer = await self._make(service, spec, known)
        else:
            balancer = await self._look(spec, known)
        self._wait_for(key, not balancer.ready)
        if not balancer.ready:
            known.polls += 1
            raise Requeue(min(self._options.poll_max, self._options.poll * 1.5 ** min(20, known.polls - 1)))
        await self._publish(service, balancer.ingress)
        known.ingress = tuple(balancer.ingress)
        if known.ensuring_since is not None:
            ENSURE_LATENCY.observe(self._context.monotonic() - known.ensuring_since)
            known.ensuring_since = None
            for warning in balancer.warnings:
                self._events.event(service, "Warning", "LoadBalancerWarning", warning)
            self._events.event(service, "Normal", "EnsuredLoadBalancer", "Ensured load balancer")
        known.settled, known.polls = True, 0
        if known.asked:  # while it was being written
            self._compare(key)

    def _mark(self, spec: LoadBalancerSpec, backends: Backends) -> Hashable:
        """What the cloud would be told for this wish, to be compared: a change that no write would show is none (W14).

        Raises Transient when the provider fails.
        """
        try:
            found = self._cloud.fingerprint(spec, backends)
        except Exception as error:
            raise Transient(
                f"load_balancers.fingerprint: a bug of the provider: {type(error).__name__}: {error}"
            ) from error
        return found or (repr(spec), backends.digest)

    def _recognised(self, known: _Known, spec: LoadBalancerSpec, mark: Hashable) -> LoadBalancer | None:
        """What the cloud had at our start, if it is what is wanted: then there is nothing to write (W13)."""
        if known.mark is not None:
            return None
        listed = self._listed.pop(spec.uid, None)
        if listed is None or not listed.fingerprint or listed.fingerprint != mark:
            return None
        known.wrote(mark, spec, self._backends, self._context.monotonic())
        return listed

    async def _deviates(self, service: Service, spec: LoadBalancerSpec, known: _Known) -> bool:
        """Whether the load balancer must be written again, although nothing that it is made from changed."""
        asked, known.compare, known.compared_at = known.asked, False, self._context.monotonic()
        try:
            found = await self._comparison.deviates(service, spec, self._backends, asked=asked)
        except CloudError:
            known.compare = asked
            raise
        known.asked = False
        return found

    async def _look(self, spec: LoadBalancerSpec, known: _Known) -> LoadBalancer:
        """The load balancer as the cloud has it now; one listing answers for all that wait."""
        if len(self._waiting) >= BULK and known.polls % READ_EVERY:
            with contextlib.suppress(NotImplementedByCloud):
                found = await self._listing_since(known.written_at)
                if spec.uid in found:
                    return found[spec.uid]
        try:
            return await self._call("get", lambda: self._cloud.get(spec))
        except (NotFound, Conflict):
            known.mark = None  # it vanished or failed while we waited: it is made again
            raise

    async def _listing_since(self, moment: float) -> Mapping[str, LoadBalancer]:
        """A listing that was begun after `moment`, and not long ago."""
        async with self._listing_now:
            now = self._context.monotonic()
            if self._listing is None or self._listing.begun < max(moment, now - self._options.poll):
                self._listing = _Listing(now, await self._list())
            return self._listing.found

    async def _write(self, service: Service, spec: LoadBalancerSpec, known: _Known) -> LoadBalancer | None:
        """Bring the cloud to what is wanted, by the least write that does it; None when it is served elsewhere."""
        try:
            if known.mark is not None and known.mark == self._mark(spec, known.backends):
                try:
                    return await self._update(service, spec, known)
                except NotFound:
                    known.mark = None  # it vanished under us
            return await self._make(service, spec, known)
        except ImplementedElsewhere:
            known.wrote(self._mark(spec, self._backends), spec, self._backends, self._context.monotonic())
            return None

    async def _update(self, service: Service, spec: LoadBalancerSpec, known: _Known) -> LoadBalancer:
        """Write the backends alone. What fails is tried again as an update, after its back-off (W16)."""
        wanted, started = self._backends, self._context.monotonic()
        known.updating = known.unsure = True
        try:
            balancer = await self._call("update_backends", lambda: self._cloud.update_backends(spec, wanted))
        except (RetryAfter, NotFound, ImplementedElsewhere):
            raise
        except CloudError as error:
            if isinstance(error, Conflict):
                known.mark = None  # what cannot be updated is ensured
            NODE_SYNC_ERRORS.inc()
            raise
        known.wrote(self._mark(spec, wanted), spec, wanted, self._context.monotonic())
        SYNCS.inc()
        UPDATE_LATENCY.observe(self._context.monotonic() - started)
        if wanted:
            self._events.event(service, "Normal", "UpdatedLoadBalancer", "Updated load balancer with new hosts")
        else:
            self._tell_of_no_backends(service)
        return balancer

    async def _make(self, service: Service, spec: LoadBalancerSpec, known: _Known) -> LoadBalancer:
        """Create it, or bring all of it to what is wanted, for the Nodes as they are this moment (S47)."""
        self._refresh_backends()
        wanted = self._backends
        known.updating = False
        if known.ensuring_since is None:
            known.ensuring_since = self._context.monotonic()
            self._events.event(service, "Normal", "EnsuringLoadBalancer", "Ensuring load balancer")
        await self._add_finalizer(service)
        if not wanted:
            self._tell_of_no_backends(service)
        known.mark, known.spec = None, spec  # until it is answered, nobody knows
        known.tried_at, known.met, known.again_at = self._context.monotonic(), False, -math.inf

        async def ensure() -> LoadBalancer:
            answer = await self._cloud.ensure(spec, wanted)
            if isinstance(answer, LoadBalancer):  # the gateway reports everything else
                self._allocations.answered(service, (each.ip for each in answer.ingress))
            return answer

        balancer = await self._call("ensure", ensure)
        known.wrote(self._mark(spec, wanted), spec, wanted, self._context.monotonic())
        SYNCS.inc()
        return balancer

    def _tell_of_no_backends(self, service: Service) -> None:
        message = "There are no available nodes for LoadBalancer"
        self._events.event(service, "Warning", "UnAvailableLoadBalancer", message)

    async def _restore(self, service: Service, known: _Known) -> None:
        """Write our finalizer and the addresses again where they were lost."""
        if known.ingress:  # it is ours, and not served elsewhere
            await self._add_finalizer(service)
            if not service.status.load_balancer.ingress:
                await self._publish(service, known.ingress)

    async def _publish(self, service: Service, ingress: Sequence[Ingress]) -> None:
        """Write the ingress addresses where they differ."""
        wire = rules.ingress_wire(ingress)
        if not rules.same_ingress(service.status.load_balancer.ingress, wire):
            await self._patch_status(service, {"status": {"loadBalancer": {"ingress": wire}}})

    async def _clean_up(self, service: Service, known: _Known) -> None:
        """Delete the load balancer, also what is left of a half-made one (W19), then let the Service go."""
        ours = rules.FINALIZER in service.metadata.finalizers
        if not ours and known.spec is None and service.metadata.uid not in self._listed:
            return
        if not known.deleting:
            known.deleting = True
            self._events.event(service, "Normal", "DeletingLoadBalancer", "Deleting load balancer")
        known.mark = None  # should it be wanted again before we are done, it is made anew
        await self._delete(self._spec_for_deletion(service), known)
        self._listed.pop(service.metadata.uid, None)
        patch: dict[str, Any] = {}
        if service.status.load_balancer.ingress:
            patch["status"] = {"loadBalancer": None}
        if ours:
            kept = [finalizer for finalizer in service.metadata.finalizers if finalizer != rules.FINALIZER]
            patch["metadata"] = {"finalizers": kept or None, "resourceVersion": service.metadata.resource_version}
        if patch:
            with contextlib.suppress(NotFoundError):
                await self._patch_status(service, patch)
        self._events.event(service, "Normal", "DeletedLoadBalancer", "Deleted load balancer")

    def _vanish(self, key: str, known: _Known) -> None:
        """The Service is gone without our having released it, or another one has its name.

        Its finalizer was removed by hand, or the API server shows an older state or another cluster. So its load
        balancer stays for a while (`_delete_vanished`).
        """
        service = known.service
        if known.spec is None and rules.FINALIZER not in service.metadata.finalizers:
            self._forget(key)
            return
        del self._known[key]
        self._wait_for(key, False)
        known.vanished_at = self._context.monotonic()
        self._vanished[f"{key}/{service.metadata.uid}"] = known
        VANISHED.set(len(self._vanished))
        log.warning(
            "Service %s vanished and was not released: its load balancer stays for %.0f s",
            key,
            self._vanished_for(known),
        )
        self._queue.add(f"{key}/{service.metadata.uid}")

    @staticmethod
    def _vanished_for(known: _Known) -> float:
        """For how many seconds a Service must be gone. One that was going when it was last seen was meant to go."""
        return 0.0 if known.was_going or rules.needs_cleanup(known.service) else orphan_rules.GRACE

    def _come_back(self, key: str, service: Service) -> _Known | None:
        """What is known of a Service that had only seemed to be gone. Raises Requeue while it is being deleted."""
        vanished = f"{key}/{service.metadata.uid}"
        known = self._vanished.get(vanished)
        if known is not None:
            if known.deleting:
                self._queue.add(vanished)  # which finds out that the Service lives
                raise Requeue(LOST_RACE)
            del self._vanished[vanished]
            VANISHED.set(len(self._vanished))
            log.warning("Service %s is there again: its load balancer stays", key)
        return known

    async def _delete_vanished(self, key: str, known: _Known) -> None:
        """Delete the load balancer of a Service that vanished, once that is sure: the rules are the orphan audit's.

        Raises ApiError when the API server does not say whether the Service lives.
        """
        service, now = known.service, self._context.monotonic()
        if await self._context.client.exists(SERVICES, service.metadata):
            known.deleting, known.vanished_at = False, now
            self._queue.add(key.rpartition("/")[0])
            raise Requeue(orphan_rules.GRACE)
        if (left := known.vanished_at + self._vanished_for(known) - now) > 0:
            raise Requeue(left)
        vanished = [each for each in self._vanished.values() if self._vanished_for(each)]
        if known in vanished and not orphan_rules.may_delete(len(vanished), len(vanished) + len(self._known)):
            message = (
                f"The Service vanished and was not released, as did {len(vanished) - 1} others: so many are not "
                "believed, and their load balancers stay. Check --kubeconfig and the state of etcd. If the Services "
                "are really gone, delete the load balancers by hand"
            )
            self._events.event(service, "Warning", "LoadBalancerKept", message)
            raise Requeue(orphan_rules.GRACE)
        if not known.deleting:
            known.deleting, known.mark = True, None  # should it come back, it is made anew
            self._events.event(service, "Normal", "DeletingLoadBalancer", "Deleting load balancer")
        try:
            await self._delete(known.spec or self._spec_for_deletion(service), known)
        except RetryAfter:
            raise
        except CloudError as error:
            message = f"Error deleting load balancer: {error}"
            self._events.event(service, "Warning", "DeleteLoadBalancerFailed", message)
            raise
        self._events.event(service, "Normal", "DeletedLoadBalancer", "Deleted load balancer")
        del self._vanished[key]
        VANISHED.set(len(self._vanished))
        self._allocations.released(service)

    def _spec_for_deletion(self, service: Service) -> LoadBalancerSpec:
        """Identity is enough to delete, so a Service with unusable annotations can still go."""
        meta = service.metadata
        try:
            return rules.load_balancer_spec(service, self._context.cluster_name)
        except rules.ServiceRuleError:
            return LoadBalancerSpec(self._context.cluster_name, meta.uid, meta.namespace, meta.name, ports=())

    async def _delete(self, spec: LoadBalancerSpec, known: _Known) -> None:
        """Returns when nothing is left.

        A Service has our finalizer, so something may well be there, and once the finalizer is gone nobody looks for it
        any more: a cloud that knows of nothing is asked once more, after `CONFIRM`, since one wrong answer of it would
        leak a load balancer. The same goes for one that is eventually consistent, until its listings have caught up.
        Neither is needed once the cloud said that it was at it.
        """
        if (left := known.again_at - self._context.monotonic()) > 0:
            raise Requeue(left)
        again_at = known.tried_at + self._context.gateway.cloud.limits.listing_lag
        try:
            await self._call("delete", lambda: self._cloud.delete(spec))
        except RetryAfter:
            known.met = True
            raise
        except ImplementedElsewhere:
            return
        except NotFound:
            if known.again_at == -math.inf:
                again_at = max(again_at, self._context.monotonic() + CONFIRM)
        if (left := again_at - self._context.monotonic()) > 0 and not known.met:
            known.again_at = again_at
            raise Requeue(left)

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
