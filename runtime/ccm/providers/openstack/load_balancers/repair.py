# SPDX-License-Identifier: Apache-2.0
"""Recovery of a load balancer in ERROR."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NoReturn

from ccm.cloud import CloudError, Conflict, Forbidden, NotFound, RetryAfter, Transient

from . import permissions, sharing_rules
from .job import Job
from .listing import LOAD_BALANCER
from .load_balancer_owners import Row
from .parts import Parts
from .remedies import Remedies
from .removal import Removal, failed

if TYPE_CHECKING:
    from ..api import Api

log = logging.getLogger(__name__)


class Repair:
    """Repairs load balancers in ERROR. `soon`: returns the seconds until the next call for a Service that waits."""

    def __init__(self, api: Api, parts: Parts, removal: Removal, soon: Callable[[], float]) -> None:
        self._api, self._parts, self._removal, self._soon = api, parts, removal, soon
        self._section = api.settings.load_balancer

    async def repair(self, job: Job, tried: Remedies) -> None:
        """Repair a load balancer in ERROR.

        If the Service's status has no address yet, so that nobody uses the load balancer, delete it and return, so that
        it is created again. Otherwise let Octavia fail it over, which keeps its address, and raise RetryAfter, or
        Conflict if only a person can help. Also raises Conflict if the remedy did not help; the remedy is tried again
        after the back-off of that failure.
        """
        spec, row = job.spec, job.row
        if spec.ingress:
            claim = sharing_rules.Claim.of(spec, row, owner=job.owner)
            beside = sharing_rules.used_beside(row, await self._parts.listeners(row), claim)
            if beside or not job.owner or not sharing_rules.made_by_a_controller(row, spec):
                raise Conflict(_not_alone(row, beside))
            self._check_remedy(tried, row, "failing it over")
            await self._fail_over(row)
        self._check_remedy(tried, row, "creating it again")
        permissions.check_new(spec.annotations, self._section)  # do not delete what could not be created again
        try:
            if beside := await self._removal.delete_own(spec, job.id, states=("ERROR",), keep=True):
                raise Conflict(_not_alone(row, beside))
        except NotFound:
            log.info("load balancer %s, which failed, is already gone", job.id)

    def _check_remedy(self, tried: Remedies, row: Row, remedy: str) -> None:
        """Raises Conflict if the remedy was already tried since the last success or the last such error."""
        if not tried.first(remedy):
            tried.clear()
            raise Conflict(f"{failed(row)}, and {remedy} did not help; trying again later")

    async def _fail_over(self, row: Row) -> NoReturn:
        try:
            await self._api.call("PUT", LOAD_BALANCER, f"/lbaas/loadbalancers/{row['id']}/failover")
        except (RetryAfter, Transient):
            raise
        except CloudError as error:
            admin = "this needs the role admin (load-balancer_admin with older policies of Octavia)"
            what = admin if isinstance(error, Forbidden) else str(error)
            raise Conflict(
                f"{failed(row)}. It may still serve traffic, so it is not deleted. Octavia refused to fail it "
                f"over: {what}. Run: openstack loadbalancer failover {row['id']}"
            ) from None
        raise RetryAfter(f"load balancer {row['id']} is in state ERROR and is being failed over", 2 * self._soon())


def _not_alone(row: Row, beside: Sequence[str]) -> str:
    return f"{failed(row)}, and it does not belong to this Service alone{': ' if beside else ''}{', '.join(beside)}"
