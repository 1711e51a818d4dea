# SPDX-License-Identifier: Apache-2.0
"""Audit for load balancers whose Service is gone, e.g. because its finalizer was removed while no process watched.

Orphans are reported in a log line and a metric. They are deleted only if a flag says so, because the load balancers of
a second cluster with the same `--cluster-name` in the project would look like orphans, too. The audit's listing also
shows load balancers that are not ready any more: their Services are checked again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping

from prometheus_client import Counter

from ccm.base.cloud_metrics import CloudGauge
from ccm.cloud import (
    CloudError,
    Kept,
    LoadBalancer,
    LoadBalancers,
    LoadBalancerSpec,
    NotFound,
    NotImplementedByCloud,
    RetryAfter,
)
from ccm.engine.client import ApiError
from ccm.engine.objects import PartialObject

from ..shared import orphan_rules as rules
from ..shared.context import Context

log = logging.getLogger(__name__)

#: The kind of the objects that `Holds` shows.
KIND = "OrphanedLoadBalancer"
ORPHANS = CloudGauge("ccm_orphaned_load_balancers", "Load balancers of this cluster whose Service does not exist.")
DELETED = Counter("ccm_orphaned_load_balancers_deleted", "Orphaned load balancers that were deleted.")


class OrphanAudit:
    """Checks every `period` seconds. `delete`: whether to delete orphans or only report them.

    `in_hand` returns UIDs of Services that a controller is handling, whether they exist or not. `recheck` gets the
    UIDs of Services whose load balancer the listing shows as not ready. `release_unwanted` gets the listing: it cleans
    up for Services that exist and want no load balancer.
    """

    def __init__(
        self,
        context: Context,
        in_hand: Callable[[], set[str]],
        recheck: Callable[[set[str]], None],
        release_unwanted: Callable[[Mapping[str, LoadBalancer]], Awaitable[None]],
        *,
        delete: bool,
        period: float,
    ) -> None:
        self._context, self._delete, self._period = context, delete, period
        self._in_hand, self._recheck, self._release_unwanted = in_hand, recheck, release_unwanted
        self._sightings: dict[str, float] = {}
        self._reported: frozenset[str] = frozenset()

    @property
    def _cloud(self) -> LoadBalancers:
        """The load balancer functions of the current cloud. A reload of the credentials replaces the cloud."""
        balancers = self._context.gateway.cloud.load_balancers
        assert balancers is not None
        return balancers

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self._period)
            try:
                await self.look()
            except NotImplementedByCloud as error:
                log.info("the audit for orphaned load balancers does not run: %s", error)
                return
            except (CloudError, ApiError) as error:
                log.warning("cannot look for orphaned load balancers now, trying again later: %s", error)
            except Exception:  # a bug must not affect Services
                log.exception("the audit for orphaned load balancers failed; the next one follows on schedule")

    def saw(self, listed: Iterable[LoadBalancer]) -> None:
        """Make the first check with the controller's first listing. The cache of Services was filled just before."""
        services = {service.metadata.uid for service in self._context.services.items()}
        uids = [balancer.service_uid for balancer in listed]
        self._sightings = rules.look({}, uids, services, self._context.monotonic())

    async def look(self) -> None:
        """Make one check. Raises CloudError and ApiError if that is not possible."""
        context = self._context
        balancers = await context.gateway.call("load_balancers.list", lambda: self._cloud.list(context.cluster_name))
        listed = {balancer.service_uid: balancer for balancer in balancers if balancer.service_uid}
        self._recheck({uid for uid, balancer in listed.items() if not balancer.ready})
        await self._release_unwanted(listed)
        services = {service.metadata.uid for service in context.services.items()} | self._in_hand()
        if not listed.keys() <= services:
            # The cloud lists Services that the cache does not have. The cache may lag or be wrong, so list all Services
            # from the API server now, after the cloud's listing.
            live, _ = await context.client.list("/api/v1/services", PartialObject)
            if not live:
                log.warning(
                    "the API server does not even list the Service default/kubernetes, so its answer is not trusted"
                )
                return
            services |= {service.metadata.uid for service in live}
        now = context.monotonic()
        self._sightings = rules.look(self._sightings, listed, services, now)
        orphans = rules.orphans(self._sightings, now)
        ORPHANS.of(context.gateway.name).set(len(orphans))
        to_delete = rules.balancers_to_delete(orphans, listed) if self._delete else []
        self._report([listed[uid] for uid in orphans], held=self._delete and not to_delete)
        for balancer in to_delete:
            await self._remove(balancer)

    def _report(self, orphans: list[LoadBalancer], *, held: bool) -> None:
        """Log one line for each orphan that is new, and show in `Holds` those that stay, with the reason."""
        cluster, kept = self._context.cluster_name, dict[str, tuple[str, str]]()
        for balancer in orphans:
            way_out = rules.way_out(cluster, delete=self._delete, held=held, protected=balancer.protected)
            if balancer.protected:
                kept[balancer.name] = "Protected", way_out
            elif held or not self._delete:
                kept[balancer.name] = "TooManyOrphans" if held else "ReportOnly", way_out
            if balancer.service_uid not in self._reported:
                log.warning(
                    "load balancer %s belongs to the Service with UID %s, which does not exist: %s",
                    balancer.name,
                    balancer.service_uid,
                    way_out,
                )
        self._context.holds.replace(KIND, kept)
        self._reported = frozenset(balancer.service_uid for balancer in orphans)

    async def _remove(self, balancer: LoadBalancer) -> None:
        context = self._context
        spec = LoadBalancerSpec(context.cluster_name, balancer.service_uid, "", balancer.name, ports=())
        try:
            await context.gateway.call("load_balancers.delete", lambda: self._cloud.delete(spec))
        except (RetryAfter, NotFound):
            return  # the cloud is deleting it or no longer knows it; the next check shows which
        except CloudError as error:
            log.warning("cannot delete orphaned load balancer %s, trying again later: %s", balancer.name, error)
            return
        if balancer.keep is Kept.LOAD_BALANCER:
            log.info("orphaned load balancer %s stays in the cloud, as its Service requested", balancer.name)
            return
        DELETED.inc()
        log.info("deleted orphaned load balancer %s", balancer.name)
