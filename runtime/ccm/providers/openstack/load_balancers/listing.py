# SPDX-License-Identifier: Apache-2.0
"""Octavia's load balancers: concurrent callers share one listing, and in this process, one caller at a time writes the
shared parts of a load balancer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ccm.cloud import NotFound
from ccm.cloud.toolkit.shared_balancers import SharedBalancers

from ..api import of_project
from .load_balancer_owners import Listing, Row

if TYPE_CHECKING:
    from ..api import Api

LOAD_BALANCER = "load-balancer"


class Balancers(SharedBalancers[Row]):
    """All load balancers of the project by ID, in one listing for all concurrent callers.

    Octavia itself locks out writers in other processes: after a write, a load balancer is PENDING and refuses our
    writes until Octavia has carried the change out.
    """

    def __init__(self, api: Api) -> None:
        super().__init__(self._of_project, self._if_of_project)
        self._api = api

    async def read(self, balancer_id: str) -> dict[str, Any]:
        """Return one load balancer as it is now. Raises NotFound if Octavia does not have it."""
        path = f"/lbaas/loadbalancers/{balancer_id}"
        answer = await self._api.call("GET", LOAD_BALANCER, path, missing=balancer_id)
        return dict(answer["loadbalancer"])

    async def _if_of_project(self, balancer_id: str) -> dict[str, Any] | None:
        try:
            row = await self.read(balancer_id)
        except NotFound:
            return None
        theirs = self._api.project_id and row.get("project_id") not in (None, "", self._api.project_id)
        return None if theirs else row

    async def _of_project(self) -> Listing:
        rows = await self._api.pages(LOAD_BALANCER, "/lbaas/loadbalancers", "loadbalancers", of_project(self._api))
        return Listing((str(row["id"]), row) for row in rows)
