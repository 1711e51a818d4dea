# SPDX-License-Identifier: Apache-2.0
"""Instances: listed in pages, and found by ID or by name."""

from __future__ import annotations

from ccm import cloud
from ccm.cloud import Conflict, InstanceRef, NotFound, Page

from .api import Api, Instance
from .instance_rules import PROVIDER_ID, instance


class SimInstances:
    def __init__(self, api: Api) -> None:
        self._api = api

    async def list_page(self, token: str | None) -> Page:
        listing = await self._api.page("/instances", Instance, (), token)
        return Page([instance(row) for row in listing.items], listing.next_page_token, listing.total)

    async def get(self, ref: InstanceRef) -> cloud.Instance:
        if ref.provider_id:
            match = PROVIDER_ID.fullmatch(ref.provider_id)
            if match is None:
                raise Conflict(f"providerID {ref.provider_id!r} is not of the form sim://REGION/i-…")
            path = f"/instances/{match['id']}"
            return instance(await self._api.call("GET", path, Instance, missing="instance_not_found"))
        named = await self._api.list("/instances", Instance, [("name", ref.node_name)])
        if not named:
            raise NotFound(f"project {self._api.settings.project} has no instance named {ref.node_name!r}")
        if len(named) > 1:
            ids = ", ".join(row.id for row in named)
            raise Conflict(f"{len(named)} instances are named {ref.node_name!r} ({ids}): rename all but one")
        return instance(named[0])

    def owns(self, provider_id: str) -> bool:
        match = PROVIDER_ID.fullmatch(provider_id)
        return match is not None and self._api.region in ("", match["region"])
