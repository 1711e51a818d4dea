# SPDX-License-Identifier: Apache-2.0
"""Routes to Pods."""

from __future__ import annotations

from collections.abc import Sequence

from ccm import cloud
from ccm.cloud import Invalid, NotFound

from .api import Api, Route
from .instance_rules import PROVIDER_ID


class SimRoutes:
    concurrency = 10

    def __init__(self, api: Api) -> None:
        self._api = api

    async def list(self, cluster: str) -> Sequence[cloud.Route]:
        rows = await self._api.list("/routes", Route)
        return [_route(row) for row in rows]

    async def create(self, cluster: str, route: cloud.Route) -> None:
        match = PROVIDER_ID.fullmatch(route.provider_id)
        if match is None:
            raise Invalid(f"route to {route.destination}: {route.provider_id!r} is not an instance of this cloud")
        body = {"destination": route.destination, "instance_id": match["id"], "owner": cluster}
        await self._api.call("POST", "/routes", Route, body=body)

    async def delete(self, cluster: str, route: cloud.Route) -> None:
        try:
            await self._api.call("DELETE", f"/routes/{route.id}", type(None), missing="route_not_found")
        except NotFound:
            return


def _route(row: Route) -> cloud.Route:
    blackhole = row.state == "blackhole"
    provider_id = "" if blackhole else f"sim://{row.region}/{row.instance_id}"
    return cloud.Route(row.destination, provider_id, row.id, blackhole, row.owner)
