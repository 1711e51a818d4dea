# SPDX-License-Identifier: Apache-2.0
"""Writes the tags of load balancers. `load_balancer_owners` reads tags, and decides which ones to write."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING

from ccm.cloud import NotFound, RetryAfter

from . import load_balancer_owners, sharing_rules
from .job import Job
from .listing import LOAD_BALANCER, Balancers
from .load_balancer_owners import Mark

if TYPE_CHECKING:
    from ..api import Api


class Tags:
    """Writes tags. `soon`: returns the seconds until a Service that waits for Octavia is retried."""

    def __init__(self, api: Api, balancers: Balancers, soon: Callable[[], float]) -> None:
        self._api, self._balancers, self._soon = api, balancers, soon

    async def sign(self, job: Job, owner: Mark, *, keep_floating: bool = False) -> Job:
        """Write the Service's tag, which records what was written. Return the job with the new tags.

        All tags are read again, because others may have changed theirs. Raises RetryAfter and Conflict.
        """
        try:
            async with self._balancers.writing(job.id):
                row = await self._balancers.read(job.id)
                if row["provisioning_status"] != "ACTIVE":
                    raise RetryAfter(f"load balancer {job.id} is {row['provisioning_status']}", self._soon())
                if load_balancer_owners.own_mark(row, job.spec.cluster, job.spec.uid) is None:
                    sharing_rules.refuse_a_namesakes(row, job.spec)
                tags = load_balancer_owners.tags_with(row, job.desired.name, owner)
                if keep_floating and load_balancer_owners.KEEP_FLOATING not in tags:
                    tags.append(load_balancer_owners.KEEP_FLOATING)
                if set(tags) == set(row.get("tags") or ()):
                    return dataclasses.replace(job, row=row)
                body = {"loadbalancer": {"tags": tags}}
                await self._api.call("PUT", LOAD_BALANCER, f"/lbaas/loadbalancers/{job.id}", body=body)
        except NotFound as error:
            raise RetryAfter(str(error), self._soon()) from None
        return dataclasses.replace(job, row={**row, "tags": tags})
