# SPDX-License-Identifier: Apache-2.0
"""Routes of the private network. A route names the gateway's address, so the framework finds the Node without a listing
of servers. One action at a time changes a network."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import Any

from ccm import cloud
from ccm.cloud import Conflict, Invalid, NotFound, RetryAfter, Transient
from ccm.cloud.toolkit.shared_reads import Shared

from . import instance_rules
from .api import MISSING, SOON, Api


class HetznerRoutes:
    #: The cloud locks the network while an action changes it.
    concurrency = 1

    def __init__(self, api: Api) -> None:
        self._api = api
        self._present: Shared[dict[str, str]] = Shared(self._read)

    async def list(self, cluster: str) -> Sequence[cloud.Route]:
        """Return all routes of the network. A network records no owner of a route, so every route inside the cluster's
        CIDR counts as this cluster's."""
        return [
            cloud.Route(destination, "", id=gateway, target_addresses=(gateway,))
            for destination, gateway in (await self._present.get()).items()
        ]

    async def create(self, cluster: str, route: cloud.Route) -> None:
        """Create the route unless it exists. Raises RetryAfter while the action runs. Raises Conflict if another route
        has the destination, and Invalid for an IPv6 destination."""
        if ":" in route.destination:
            raise Invalid(f"route to {route.destination}: private networks have no IPv6")
        gateway = await self._gateway(route)
        there = (await self._present.get()).get(route.destination)
        if there == gateway:
            return
        if there is not None:
            raise Conflict(f"the network has a route to {route.destination} through {there}, not {gateway}")
        await self._change("add_route", route.destination, gateway)

    async def delete(self, cluster: str, route: cloud.Route) -> None:
        there = (await self._present.get()).get(route.destination)
        if there is None or there != route.id:
            return  # gone, or replaced by somebody in the meantime
        await self._change("delete_route", route.destination, there)

    async def _gateway(self, route: cloud.Route) -> str:
        """Return the server's first address in the network. Raises Conflict if the server has none, or one that its
        Node does not have. Raises Transient for an answer of another shape."""
        answer = await self._api.call("GET", f"/servers/{instance_rules.known_id(route.provider_id)}", missing=MISSING)
        try:
            own = instance_rules.private_addresses(answer["server"], self._api.network)
        except (LookupError, TypeError, ValueError):
            raise Transient("the server in the answer does not have the form that the API describes") from None
        if not own:
            raise Conflict(f"{route.provider_id} is not attached to the network {self._api.network}: attach it")
        if route.target_addresses is not None and own[0] not in route.target_addresses:
            raise Conflict(f"{route.provider_id} has the address {own[0]} in the network, which its Node does not have")
        return own[0]

    async def _change(self, what: str, destination: str, gateway: str) -> None:
        path = f"/networks/{self._api.network}/actions/{what}"
        action = await self._api.action("POST", path, {"destination": destination, "gateway": gateway})
        if action["status"] == "running":
            raise RetryAfter(f"the network is being changed ({what} {destination})", SOON)

    async def _read(self) -> dict[str, str]:
        try:
            answer: Any = await self._api.call("GET", f"/networks/{self._api.network}", missing=MISSING)
        except NotFound as error:
            raise Conflict(f"{error}. HCLOUD_NETWORK was deleted; its routes are unknown") from None
        try:
            rows = [(str(row["destination"]), str(row["gateway"])) for row in answer["network"]["routes"]]
            return {str(ipaddress.ip_network(destination)): gateway for destination, gateway in rows}
        except (LookupError, TypeError, ValueError):
            raise Transient("the network in the answer does not have the form that the API describes") from None
