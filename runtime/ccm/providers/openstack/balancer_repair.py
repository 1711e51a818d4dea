# SPDX-License-Identifier: Apache-2.0
"""What is done about a load balancer in ERROR."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NoReturn

from ccm.cloud import CloudError, Conflict, Forbidden, NotFound, RetryAfter, Transient

from . import permissions, sharing_rules
from .balancer_listing import LOAD_BALANCER
from .balancer_parts import Parts
from .balancer_removal import Removal, failed
from .job import Job
from .marks import Row
from .remedies import Remedies

if TYPE_CHECKING:
    from .session import Api

log = logging.getLogger(__name__)


class Repair:
    """`soon`: seconds until a Service that waits for Octavia comes back."""

    def __init__(self, api: Api, parts: Parts, removal: Removal, soon: Callable[[], float]) -> None:
        self._api, self._parts, self._removal, self._soon = api, parts, removal, soon
        self._section = api.settings.load_balancer

    async def mend(self, job: Job, tried: Remedies) -> None:
        """One in ERROR. Returns when it is deleted, to be created again, because nobody can be using it. Otherwise
        Octavia is asked to fail it over, which keeps its address: RetryAfter, or Conflict when only a person can help.

        If that did not help, it is a Conflict, too, and the remedy is tried again after the back-off of that failure.
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
        permissions.check_new(spec.annotations, self._section)  # what could not be made again is not deleted
        try:
            if beside := await self._removal.delete_own(spec, job.id, states=("ERROR",), keep=True):
                raise Conflict(_not_alone(row, beside))
        except NotFound:
            log.info("load balancer %s, which failed, is gone", job.id)

    def _check_remedy(self, tried: Remedies, row: Row, remedy: str) -> None:
        """Raises Conflict when it was tried already since the last success or the last such refusal."""
        if not tried.first(remedy):
            tried.clear()
            raise Conflict(f"{failed(row)}, and {remedy} did not help; it is tried again later")

    async def _fail_over(self, row: Row) -> NoReturn:
        try:
            await self._api.call("PUT", LOAD_BALANCER, f"/lbaas/loadbalancers/{row['id']}/failover")
        except (RetryAfter, Transient):
            raise
        except CloudError as error:
            admin = "needs the role admin, with the older ones of Octavia's policies load-balancer_admin"
            what = admin if isinstance(error, Forbidden) else str(error)
            raise Conflict(
                f"{failed(row)}. It may still be serving, so it is not deleted; to fail it over {what}: "
                f"openstack loadbalancer failover {row['id']}"
            ) from None
        raise RetryAfter(f"load balancer {row['id']} failed and is failed over", 2 * self._soon())


def _not_alone(row: Row, beside: Sequence[str]) -> str:
    return f"{failed(row)}, and it is not this Service's alone{': ' if beside else ''}{', '.join(beside)}"
