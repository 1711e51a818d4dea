# SPDX-License-Identifier: Apache-2.0
"""Octavia's load balancers: one listing for all Services that ask at once, and one writer of each at a time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from ccm.cloud import NotFound

from .session import of_project
from .shared import GATHER, ObjectLocks

if TYPE_CHECKING:
    from .session import Api

LOAD_BALANCER = "load-balancer"


class Balancers:
    """All load balancers of the project by ID, in one listing for all who ask at the same time."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._asked: list[str] = []
        self._coming: asyncio.Task[dict[str, dict[str, Any]]] | None = None
        self._locks = ObjectLocks()

    async def look(self, balancer_id: str = "") -> dict[str, dict[str, Any]]:
        """From a read that began after the call. Where nobody else asks, the one of `balancer_id` alone, if it is."""
        self._asked.append(balancer_id)
        if self._coming is None:
            self._coming = asyncio.create_task(self._gather(), name="load balancers")
            self._coming.add_done_callback(_seen)
        return await asyncio.shield(self._coming)

    async def all(self) -> dict[str, dict[str, Any]]:
        return await self.look()

    def writing(self, balancer_id: str) -> asyncio.Lock:
        """Held by the one Service of this process that writes a load balancer's tags or deletes it.

        A PUT replaces the whole list of tags, and Octavia checks no revision. So whoever writes tags, or deletes, does
        it right after a `read`. Writers in other processes are kept out by Octavia itself: what one of them has written
        is PENDING, and our write is refused, until Octavia has carried it out.
        """
        return self._locks.of(balancer_id)

    async def read(self, balancer_id: str) -> dict[str, Any]:
        """One load balancer as it is now. Raises NotFound."""
        path = f"/lbaas/loadbalancers/{balancer_id}"
        answer = await self._api.call("GET", LOAD_BALANCER, path, missing=balancer_id)
        return dict(answer["loadbalancer"])

    async def _gather(self) -> dict[str, dict[str, Any]]:
        await asyncio.sleep(GATHER)
        asked, self._asked, self._coming = self._asked, [], None
        if len(asked) == 1 and asked[0]:
            try:
                row = await self.read(asked[0])
            except NotFound:
                return {}
            theirs = self._api.project_id and row.get("project_id") not in (None, "", self._api.project_id)
            return {} if theirs else {asked[0]: row}
        rows = await self._api.pages(LOAD_BALANCER, "/lbaas/loadbalancers", "loadbalancers", of_project(self._api))
        return {str(row["id"]): row for row in rows}


def _seen(task: asyncio.Task[Any]) -> None:
    """All who asked may have gone: then nobody looks at a failure."""
    _ = task.cancelled() or task.exception()
