# SPDX-License-Identifier: Apache-2.0
"""The audit for load balancers whose Service is gone, e.g. because its finalizer was removed while nobody watched.

They are reported (log, metric); deleting them has to be switched on, since a second cluster of the same
`--cluster-name` in the same project would look just like this.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from prometheus_client import Counter, Gauge

from ccm.cloud import (
    CloudError,
    LoadBalancer,
    LoadBalancers,
    LoadBalancerSpec,
    NotFound,
    NotImplementedByCloud,
    RetryAfter,
)
from ccm.engine.client import ApiError
from ccm.engine.objects import PartialObject

from . import orphan_rules as rules
from .context import Context

log = logging.getLogger(__name__)

ORPHANS = Gauge("ccm_orphaned_load_balancers", "Load balancers of this cluster whose Service does not exist.")
DELETED = Counter("ccm_orphaned_load_balancers_deleted", "Orphaned load balancers that were deleted.")


class OrphanAudit:
    """Looks every `period` seconds; `delete` what is found, or only report it.

    `in_hand` gives UIDs of Services that somebody takes care of, whether they exist or not.
    """

    def __init__(self, context: Context, *, delete: bool, period: float, in_hand: Callable[[], set[str]] = set) -> None:
        self._context, self._delete, self._period, self._in_hand = context, delete, period, in_hand
        self._sightings: dict[str, float] = {}
        self._reported: frozenset[str] = frozenset()

    @property
    def _cloud(self) -> LoadBalancers:
        """The present cloud's: it is replaced when credentials are reloaded."""
        found = self._context.gateway.cloud.load_balancers
        assert found is not None
        return found

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self._period)
            try:
                await self.look()
            except NotImplementedByCloud as error:
                log.info("orphaned load balancers are not looked for: %s", error)
                return
            except (CloudError, ApiError) as error:
                log.warning("orphaned load balancers are looked for later, now that is not possible: %s", error)
            except Exception:  # a bug; but the Services must not suffer from it
                log.exception("the look for orphaned load balancers failed; the next one comes in time")

    def saw(self, listed: Iterable[LoadBalancer]) -> None:
        """The first look, at what was listed at start; the cache of Services was filled just before."""
        services = {service.metadata.uid for service in self._context.services.items()}
        uids = [balancer.service_uid for balancer in listed]
        self._sightings = rules.look({}, uids, services, self._context.monotonic())

    async def look(self) -> None:
        """One look. Raises CloudError and ApiError when it cannot be done."""
        context = self._context
        balancers = await context.gateway.call("load_balancers.list", lambda: self._cloud.list(context.cluster_name))
        listed = {balancer.service_uid: balancer for balancer in balancers if balancer.service_uid}
        services = {service.metadata.uid for service in context.services.items()} | self._in_hand()
        if not listed.keys() <= services:
            # The cache may lag or be wrong: those that it lacks are asked for, after the cloud was.
            live, _ = await context.client.list("/api/v1/services", PartialObject)
            if not live:
                log.warning("the API server lists not even the Service default/kubernetes: that is not believed")
                return
            services |= {service.metadata.uid for service in live}
        now = context.monotonic()
        self._sightings = rules.look(self._sightings, listed, services, now)
        found = rules.orphans(self._sightings, now)
        ORPHANS.set(len(found))
        deletable = self._delete and rules.may_delete(len(found), len(listed))
        self._report([listed[uid] for uid in found], held=self._delete and not deletable)
        if deletable:
            for uid in found:
                await self._remove(listed[uid])

    def _report(self, found: list[LoadBalancer], *, held: bool) -> None:
        """One line for each that is new."""
        way_out = "it is deleted"
        if held:
            way_out = "there are so many that none is deleted: check --cluster-name and --kubeconfig"
        elif not self._delete:
            way_out = (
                f"delete it by hand, or set --delete-orphaned-load-balancers when no other cluster of this project is "
                f"named {self._context.cluster_name!r}"
            )
        for balancer in found:
            if balancer.service_uid not in self._reported:
                log.warning(
                    "load balancer %s belongs to the Service with UID %s, which does not exist: %s",
                    balancer.name,
                    balancer.service_uid,
                    way_out,
                )
        self._reported = frozenset(balancer.service_uid for balancer in found)

    async def _remove(self, balancer: LoadBalancer) -> None:
        context = self._context
        spec = LoadBalancerSpec(context.cluster_name, balancer.service_uid, "", balancer.name, ports=())
        try:
            await context.gateway.call("load_balancers.delete", lambda: self._cloud.delete(spec))
        except (RetryAfter, NotFound):
            return  # the cloud is at it, or does not know it any more; the next look tells
        except CloudError as error:
            log.warning("orphaned load balancer %s is not deleted, trying again later: %s", balancer.name, error)
            return
        DELETED.inc()
        log.info("orphaned load balancer %s is deleted", balancer.name)
