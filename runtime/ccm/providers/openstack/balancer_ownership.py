# SPDX-License-Identifier: Apache-2.0
"""Which load balancer is a Service's: `sharing_rules` decides, and here is what it has to ask the cloud for."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ccm.cloud import Conflict, LoadBalancerSpec, NotFound, RetryAfter

from . import marks, permissions, sharing_rules
from .annotations import PREFIX
from .balancer_listing import Balancers
from .balancer_removal import DELETABLE, Removal
from .floating_ips import FloatingIps
from .marks import Row
from .sharing_rules import GOING

if TYPE_CHECKING:
    from .session import Api

log = logging.getLogger(__name__)


class Ownership:
    """`soon`: seconds until a Service that waits for Octavia comes back."""

    def __init__(
        self, api: Api, balancers: Balancers, floating: FloatingIps, removal: Removal, soon: Callable[[], float]
    ) -> None:
        self._section = api.settings.load_balancer
        self._balancers, self._floating, self._removal, self._soon = balancers, floating, removal, soon

    async def find(self, spec: LoadBalancerSpec, balancer_id: str = "") -> tuple[Row | None, bool]:
        """`_choose` among those that are there now. `balancer_id`: the one that it had; then that alone may be read."""
        rows = await self._balancers.look(balancer_id)
        if balancer_id and not any(marks.own_mark(row, spec.cluster, spec.uid) for row in rows.values()):
            rows = await self._balancers.look()
        return await self.choose(rows, spec)

    async def choose(
        self, rows: Mapping[str, Row], spec: LoadBalancerSpec, *, to_delete: bool = False
    ) -> tuple[Row | None, bool]:
        """The Service's load balancer, and whether it was made for it. Raises Conflict when that cannot be told, and
        RetryAfter when there is one too many."""
        named = permissions.named(spec.annotations, self._section)
        choice = sharing_rules.choose(rows.values(), spec, self._section.sharing, named, to_delete=to_delete)
        for row in () if to_delete else choice.superfluous:
            await self._remove_superfluous(row, spec)
        if choice.row is not None:
            return choice.row, choice.owner
        known = [row for row in choice.candidates if await self._is_known(row, spec)]
        if len(known) == 1:
            return known[0], known[0].get("name") in marks.names_of(spec)
        if choice.candidates:
            ids = ", ".join(row["id"] for row in choice.candidates)
            raise Conflict(
                f"there is a load balancer of this Service's name ({ids}), and nothing shows whether it was made for "
                f"it or for another cluster called {spec.cluster!r}: to take it over, set sharing = project in "
                f"[LoadBalancer] of cloud.conf and the annotation {PREFIX}load-balancer-id; or choose another "
                "--cluster-name, or delete it"
            )
        return None, True

    async def choose_to_delete(self, rows: Mapping[str, Row], spec: LoadBalancerSpec) -> tuple[Row | None, bool]:
        """What nobody can tell to be ours stays, and does not keep the Service from going."""
        try:
            return await self.choose(rows, spec, to_delete=True)
        except Conflict as error:
            log.warning("Service %s/%s is deleted, and not its load balancer: %s", spec.namespace, spec.name, error)
            return None, True

    async def check_no_other(self, rows: Mapping[str, Row], spec: LoadBalancerSpec) -> None:
        """Raises Conflict when the Service may have a load balancer already, which no rule gives to it: a second one
        would have another address, and the first one would be left behind."""
        if (row := sharing_rules.of_former_name(rows.values(), spec)) is not None:
            raise sharing_rules.refusal_of_a_second(row, spec)
        for row in sharing_rules.may_be_ours(rows.values(), spec) if spec.ingress else ():
            if await self._is_known(row, spec):
                raise sharing_rules.refusal_of_a_second(row, spec)

    async def _remove_superfluous(self, row: Row, spec: LoadBalancerSpec) -> None:
        """A load balancer was made twice: the older one stays, if nobody else uses the younger one."""
        if row["provisioning_status"] in GOING:
            return
        text = f"load balancer {row['id']} was made by a request whose answer was lost, and is deleted"
        if row["provisioning_status"] in DELETABLE:
            try:
                beside = await self._removal.delete_own(spec, row["id"])
            except NotFound:
                beside = ()
            if beside:
                raise Conflict(
                    f"load balancer {row['id']} carries the tag of Service {spec.uid}, which has another one, and is "
                    f"not deleted: others use it: {', '.join(beside)}"
                )
        raise RetryAfter(text, self._soon())

    async def _is_known(self, row: Row, spec: LoadBalancerSpec) -> bool:
        sharing = self._section.sharing
        if sharing_rules.proves(spec, [row.get("vip_address") or ""], sharing):
            return True
        on_port = await self._floating.on(row["vip_port_id"]) if row.get("vip_port_id") else None
        return on_port is not None and sharing_rules.proves(spec, [on_port["floating_ip_address"]], sharing)
