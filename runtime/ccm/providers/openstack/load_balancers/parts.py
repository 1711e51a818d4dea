# SPDX-License-Identifier: Apache-2.0
"""Reads the parts of a load balancer, and writes one at a time. `load_balancer_steps` decides what to write."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ccm.cloud import Conflict, Forbidden, NotFound, RetryAfter
from ccm.cloud.toolkit.steps import Step

from . import load_balancer_steps as diff
from .listing import LOAD_BALANCER

if TYPE_CHECKING:
    from ..api import Api
    from .listener_rules import Listener

Row = Mapping[str, Any]
#: Protocol and port of a listener -> the ID of its pool.
Pools = Mapping[tuple[str, int], str]
#: Seconds until the next read after something disappeared during a write.
SOON = 1.5


class Parts:
    def __init__(self, api: Api) -> None:
        self._api = api

    async def listeners(self, row: Row) -> list[dict[str, Any]]:
        return await self._of(row, "listeners")

    async def outline(self, row: Row) -> diff.Observed:
        """Return listeners and pools, without members and monitors. This takes two calls."""
        listeners, pools = await asyncio.gather(self._of(row, "listeners"), self._of(row, "pools"))
        return diff.Observed(listeners, pools, {}, {})

    async def observe(self, row: Row) -> diff.Observed:
        """Return all parts of a load balancer. This takes two calls, and one more for each pool and each monitor.

        Raises RetryAfter if a part disappears in the meantime.
        """
        observed = await self.outline(row)
        try:
            members = await asyncio.gather(*(self._members(str(pool["id"])) for pool in observed.pools))
            monitors = {
                str(pool["id"]): await self._monitor(str(part))
                for pool in observed.pools
                if (part := pool.get("healthmonitor_id"))
            }
        except NotFound as error:
            raise RetryAfter(str(error), SOON) from None
        by_pool = {str(pool["id"]): part for pool, part in zip(observed.pools, members, strict=True)}
        return diff.Observed(observed.listeners, observed.pools, by_pool, monitors)

    async def _members(self, pool_id: str) -> list[dict[str, Any]]:
        path = f"/lbaas/pools/{pool_id}/members"
        return await self._api.pages(LOAD_BALANCER, path, "members", missing=pool_id)

    async def _monitor(self, monitor_id: str) -> Row:
        path = f"/lbaas/healthmonitors/{monitor_id}"
        answer = await self._api.call("GET", LOAD_BALANCER, path, missing=monitor_id)
        return dict(answer["healthmonitor"])

    async def pools(self, row: Row, name: str, owner: bool, listeners: Sequence[Listener], known: Pools) -> Pools:
        """Return (protocol, port) -> the ID of the pool, for `listeners`.

        If there is one port and the load balancer is the Service's own (`owner`), with one listener and one pool, `row`
        shows the pool. Otherwise return `known` if it has all ports and their pools still exist; if not, read the
        listeners. Raises Conflict if a port has no pool.
        """
        keys = [(each.protocol, each.port) for each in listeners]
        own = [str(pool["id"]) for pool in row.get("pools") or ()]
        if len(keys) == 1 and len(own) == 1 and len(row.get("listeners") or ()) == 1 and owner:
            return {keys[0]: own[0]}
        if not (set(keys) <= known.keys() and {known[key] for key in keys} <= set(own)):
            known = {
                (each["protocol"], int(each["protocol_port"])): each["default_pool_id"]
                for each in await self._of(row, "listeners")
                if each.get("default_pool_id") and diff.is_ours(each, name, owner=owner)
            }
        if absent := [f"{port}/{protocol}" for protocol, port in keys if (protocol, port) not in known]:
            raise Conflict(f"load balancer {row['id']} has no pool for {', '.join(absent)}")
        return known

    async def are_well(self, row: Row) -> bool:
        """Return whether no part of a load balancer is in ERROR. This takes one call. Also return False if Octavia does
        not report the states."""
        path = f"/lbaas/loadbalancers/{row['id']}/status"
        try:
            answer = await self._api.call("GET", LOAD_BALANCER, path, missing=str(row["id"]))
        except (Forbidden, NotFound):
            return False
        return not _has_error((answer or {}).get("statuses"))

    async def do(self, step: Step) -> Any:
        """Run one step and return the answer. If its object disappeared in the meantime, raise RetryAfter."""
        ids = step.path.split("/")[2:3]
        try:
            return await self._api.call(
                step.method, LOAD_BALANCER, f"/lbaas{step.path}", body=step.body, missing=ids[0] if ids else ""
            )
        except NotFound as error:
            raise RetryAfter(str(error), SOON) from None

    async def _of(self, row: Row, kind: str) -> list[dict[str, Any]]:
        return await self._api.pages(LOAD_BALANCER, f"/lbaas/{kind}", kind, {"loadbalancer_id": row["id"]})


def _has_error(tree: Any) -> bool:
    """Return whether a tree of states contains ERROR, at any depth; True for anything that is not a tree."""
    if isinstance(tree, Mapping):
        return tree.get("provisioning_status") == "ERROR" or any(
            _has_error(each) for each in tree.values() if isinstance(each, (Mapping, list))
        )
    return any(_has_error(each) for each in tree) if isinstance(tree, list) else True
