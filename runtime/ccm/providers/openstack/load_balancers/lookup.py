# SPDX-License-Identifier: Apache-2.0
"""Finds the load balancer of a Service. `sharing_rules` decides; this file reads what the decision needs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ccm.cloud import Conflict, LoadBalancerSpec, NotFound, RetryAfter

from ..annotations import PREFIX
from . import load_balancer_owners, permissions, sharing_rules
from .floating_ips import FloatingIps
from .listing import Balancers
from .load_balancer_owners import Listing, Row
from .removal import DELETABLE, Removal
from .sharing_rules import GOING

if TYPE_CHECKING:
    from ..api import Api

log = logging.getLogger(__name__)


class Ownership:
    """Finds the load balancer of a Service. `soon`: returns the seconds until a Service that waits for Octavia is
    retried."""

    def __init__(
        self, api: Api, balancers: Balancers, floating: FloatingIps, removal: Removal, soon: Callable[[], float]
    ) -> None:
        self._section = api.settings.load_balancer
        self._balancers, self._floating, self._removal, self._soon = balancers, floating, removal, soon

    async def find(self, spec: LoadBalancerSpec, balancer_id: str = "") -> tuple[Row | None, bool]:
        """Read the load balancers and apply `choose`. `balancer_id`: the last known load balancer of the Service. If it
        still has the Service's tag, no second read follows, which would list all load balancers."""
        rows = await self._balancers.look(balancer_id)
        if balancer_id and not any(
            load_balancer_owners.own_mark(row, spec.cluster, spec.uid) for row in Listing.of(rows).with_uid(spec.uid)
        ):
            rows = await self._balancers.look()
        return await self.choose(rows, spec)

    async def choose(
        self, rows: Mapping[str, Row], spec: LoadBalancerSpec, *, to_delete: bool = False
    ) -> tuple[Row | None, bool]:
        """Return the Service's load balancer, None without one, and whether it was created for the Service.

        Raises Conflict if the owner cannot be determined, and RetryAfter if a superfluous load balancer must be deleted
        first.
        """
        named = permissions.named(spec.annotations, self._section)
        choice = sharing_rules.choose(rows, spec, self._section.sharing, named, to_delete=to_delete)
        for row in () if to_delete else choice.superfluous:
            await self._remove_superfluous(row, spec)
        if choice.row is not None:
            return choice.row, choice.owner
        known = [row for row in choice.candidates if await self._is_known(row, spec)]
        if len(known) == 1:
            return known[0], known[0].get("name") in load_balancer_owners.names_of(spec)
        if choice.candidates:
            ids = ", ".join(row["id"] for row in choice.candidates)
            raise Conflict(
                f"a load balancer with this Service's name exists ({ids}), and nothing shows whether it was created "
                f"for this Service or for another cluster named {spec.cluster!r}: to take it over, set sharing = "
                f"project in [LoadBalancer] of cloud.conf and the annotation {PREFIX}load-balancer-id; otherwise "
                "choose another --cluster-name, or delete it"
            )
        return None, True

    async def choose_to_delete(self, rows: Mapping[str, Row], spec: LoadBalancerSpec) -> tuple[Row | None, bool]:
        """Like `choose`, before a deletion. A load balancer whose owner is unknown is kept and does not block the
        Service's deletion: the result is then (None, True)."""
        try:
            return await self.choose(rows, spec, to_delete=True)
        except Conflict as error:
            log.warning("Service %s/%s is deleted without its load balancer: %s", spec.namespace, spec.name, error)
            return None, True

    async def check_no_other(self, rows: Mapping[str, Row], spec: LoadBalancerSpec) -> None:
        """Raises Conflict if the Service may already have a load balancer that no rule assigns to it.

        A second one would have another address, and the first one would be left behind.
        """
        if (row := sharing_rules.of_former_name(rows, spec)) is not None:
            raise sharing_rules.refusal_of_a_second(row, spec)
        for row in sharing_rules.may_be_ours(rows.values(), spec) if spec.ingress else ():
            if await self._is_known(row, spec):
                raise sharing_rules.refusal_of_a_second(row, spec)

    async def _remove_superfluous(self, row: Row, spec: LoadBalancerSpec) -> None:
        """Take one step to delete the younger of two load balancers, and raise RetryAfter; do nothing if it is being
        deleted already. Raises Conflict if others use it."""
        if row["provisioning_status"] in GOING:
            return
        text = f"load balancer {row['id']} is being deleted: it was created by a request whose answer was lost"
        if row["provisioning_status"] in DELETABLE:
            try:
                beside = await self._removal.delete_own(spec, row["id"])
            except NotFound:
                beside = ()
            if beside:
                raise Conflict(
                    f"load balancer {row['id']} has the tag of Service {spec.uid}, which has another load balancer. "
                    f"It is not deleted, because others use it: {', '.join(beside)}"
                )
        raise RetryAfter(text, self._soon())

    async def _is_known(self, row: Row, spec: LoadBalancerSpec) -> bool:
        sharing = self._section.sharing
        if sharing_rules.proves(spec, [row.get("vip_address") or ""], sharing):
            return True
        on_port = await self._floating.on(row["vip_port_id"]) if row.get("vip_port_id") else None
        return on_port is not None and sharing_rules.proves(spec, [on_port["floating_ip_address"]], sharing)
