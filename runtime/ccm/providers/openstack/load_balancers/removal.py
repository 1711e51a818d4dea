# SPDX-License-Identifier: Apache-2.0
"""Releases a Service's load balancer: deletes it if nobody else uses it, otherwise leaves it to the others.

Every deletion of a load balancer goes through `Removal`. `Removal` first reads the load balancer again, while no other
Service of this process may change the tags. It also checks the listeners, because tags can be lost and a cascading
delete removes everything.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ccm.cloud import Conflict, LoadBalancerSpec, NotFound, RetryAfter

from . import load_balancer_owners
from . import load_balancer_steps as diff
from .floating_ips import FloatingIps
from .listing import LOAD_BALANCER, Balancers
from .load_balancer_owners import Row
from .parts import SOON, Parts
from .sharing_rules import Claim, made_by_a_controller, used_beside

if TYPE_CHECKING:
    from ..api import Api

log = logging.getLogger(__name__)

#: The states in which Octavia accepts the deletion of a load balancer.
DELETABLE = ("ACTIVE", "ERROR")


class Removal:
    def __init__(self, api: Api, balancers: Balancers, parts: Parts, floating: FloatingIps) -> None:
        self._api, self._balancers, self._parts, self._floating = api, balancers, parts, floating
        self._cascade = api.settings.load_balancer.cascade_delete

    async def give_up(
        self, spec: LoadBalancerSpec, balancer_id: str, *, owner: bool, keep: bool, kept_tag: str = ""
    ) -> bool:
        """Take one step towards deleting the load balancer or, if others use it, removing this Service from it. Return
        False if no step was left.

        `owner`: the load balancer was created for this Service. `keep`: keep its floating IP. `kept_tag`: keep the load
        balancer and give it this tag, unless it failed; "" to delete it. Raises NotFound if it is gone, RetryAfter
        while Octavia is working on it, and Conflict if it failed and others use it.
        """
        async with self._balancers.writing(balancer_id):
            floating = None if keep else await self._floating_made(spec, balancer_id, owner=owner)
            row, listeners = await self._look(balancer_id)
            claim = Claim.of(spec, row, owner=owner)
            beside = used_beside(row, listeners, claim)
            if claim.is_used_by(row) and not beside and made_by_a_controller(row, spec):
                if kept_tag and row["provisioning_status"] != "ERROR":
                    return await self._leave(row, claim, listeners, tag=kept_tag)
                if await self._delete(row) and floating is not None:
                    await self._floating.delete(floating)
                return True
            if claim.is_used_by(row) and beside:
                log.info("Service %s leaves load balancer %s to others: %s", spec.uid, balancer_id, ", ".join(beside))
            tag = load_balancer_owners.KEEP_FLOATING if owner and floating is None else ""
            return await self._leave(row, claim, listeners, tag=tag)

    async def delete_own(
        self, spec: LoadBalancerSpec, balancer_id: str, *, states: Sequence[str] = DELETABLE, keep: bool = False
    ) -> tuple[str, ...]:
        """Take one step to delete a load balancer that has the Service's mark and name: all of it, or, without cascade,
        one listener while it has any. So call this again until NotFound.

        `keep`: keep its floating IP. Return () after a step; otherwise the reasons why there was none, such as what
        others have on the load balancer. Raises NotFound if it is gone, and RetryAfter if its state is none of
        `states`, or while its listeners change.
        """
        async with self._balancers.writing(balancer_id):
            floating = None if keep else await self._floating_made(spec, balancer_id, owner=True)
            row, listeners = await self._look(balancer_id, states)
            claim = Claim.of(spec, row, owner=row.get("name") in load_balancer_owners.names_of(spec))
            if claim.mark is None or not claim.owner or not made_by_a_controller(row, spec):
                return ("it does not have this Service's mark and name",)
            if beside := used_beside(row, listeners, claim):
                return beside
            if await self._delete(row) and floating is not None:
                await self._floating.delete(floating)
        return ()

    async def _floating_made(self, spec: LoadBalancerSpec, balancer_id: str, *, owner: bool) -> Row | None:
        """Return the floating IP to delete, None for none. Must run before the load balancer is deleted, because
        nothing refers to the floating IP afterwards."""
        row = await self._balancers.read(balancer_id)
        if load_balancer_owners.KEEP_FLOATING in (row.get("tags") or ()):
            return None
        return await self._floating.made(row, spec.uid, owner=owner, address=spec.load_balancer_ip)

    async def _look(self, balancer_id: str, states: Sequence[str] = DELETABLE) -> tuple[Row, Sequence[Row]]:
        """Read a load balancer and its listeners right before a write. Raises NotFound and RetryAfter."""
        listeners = await self._parts.listeners({"id": balancer_id})
        row = await self._balancers.read(balancer_id)
        if row["provisioning_status"] not in states:
            raise RetryAfter(f"load balancer {balancer_id} is {row['provisioning_status']}", SOON)
        if {listener["id"] for listener in listeners} != {listener["id"] for listener in row.get("listeners") or ()}:
            raise RetryAfter(f"the listeners of load balancer {balancer_id} are being changed", SOON)
        return row, listeners

    async def _delete(self, row: Row) -> bool:
        """Delete the whole load balancer and return True, or delete one part (no cascade) and return False.

        Octavia changes no part of a load balancer in ERROR, so such a load balancer is always deleted as a whole.
        """
        path = f"/loadbalancers/{row['id']}"
        cascade = self._cascade or row["provisioning_status"] == "ERROR"
        if not cascade:
            observed = await self._parts.outline(row)
            for listener in observed.listeners:
                await self._parts.do(diff.removal(listener, observed)[0])
                return False
        with contextlib.suppress(NotFound):
            await self._octavia("DELETE", f"{path}?cascade=true" if cascade else path, missing=str(row["id"]))
        return True

    async def _leave(self, row: Row, claim: Claim, listeners: Sequence[Row], *, tag: str) -> bool:
        """Remove the Service from a load balancer that stays: its listeners, one at a time, then its tags.

        `tag`: a tag to add, "" for none. The tag KEEP_FLOATING makes a later deletion of the load balancer keep its
        floating IP. Return False if nothing of the Service was left. Raises Conflict if the load balancer failed.
        """
        if row["provisioning_status"] == "ERROR":
            raise Conflict(f"{failed(row)}, so this Service cannot be removed from it")
        left = load_balancer_owners.tags_without(row, claim.mark, claim.name)
        own_tag = claim.service_tag(row, left)
        own = [] if own_tag in left else listeners  # if the tag stays, the listeners belong to a namesake
        own = [
            each
            for each in own
            if diff.is_ours(each, own_tag, owner=claim.owner and not load_balancer_owners.service_tags(row))
        ]
        if own:
            await self._parts.do(diff.removal(own[0], await self._parts.outline(row))[0])
            return True
        if list(left) == list(row.get("tags") or ()):
            return False
        if tag and tag not in left:
            left = [*left, tag]
        await self._octavia("PUT", f"/loadbalancers/{row['id']}", {"loadbalancer": {"tags": list(left)}})
        return True

    async def _octavia(self, method: str, path: str, body: Any = None, *, missing: str = "") -> Any:
        return await self._api.call(method, LOAD_BALANCER, f"/lbaas{path}", body=body, missing=missing)


def failed(row: Row) -> str:
    return f"load balancer {row['id']} ({row['name']}) is in state ERROR in Octavia"
