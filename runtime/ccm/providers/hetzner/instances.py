# SPDX-License-Identifier: Apache-2.0
"""Lists the servers of the project, in pages of 50, and finds single servers."""

from __future__ import annotations

from ccm.cloud import Conflict, Instance, InstanceRef, NotFound, Page

from . import instance_rules
from .api import MISSING, Api
from .instance_rules import Row


class HetznerInstances:
    def __init__(self, api: Api) -> None:
        self._api = api

    async def list_page(self, token: str | None) -> Page:
        page = await self._api.page("/servers", "servers", token)
        return Page([self._instance(row) for row in page.rows], page.next, page.total)

    async def get(self, ref: InstanceRef) -> Instance:
        if ref.provider_id:
            path = f"/servers/{instance_rules.known_id(ref.provider_id)}"
            answer = await self._api.call("GET", path, missing=MISSING)
            return self._instance(answer.get("server") if isinstance(answer, dict) else None)
        rows = await self._api.rows("/servers", "servers", query=[("name", ref.node_name)])
        if not rows:  # the query is exact, and a kubelet registers in lower case
            rows = await self._api.rows("/servers", "servers")
        named = [instance for instance in map(self._instance, rows) if instance.is_named(ref.node_name)]
        if len(named) > 1:
            ids = ", ".join(each.provider_id for each in named)
            raise Conflict(f"{len(named)} servers are named {ref.node_name!r} ({ids}): rename all but one")
        if not named:
            raise NotFound(f"the project has no server named {ref.node_name!r}")
        return named[0]

    def owns(self, provider_id: str) -> bool:
        return instance_rules.server_id(provider_id) is not None

    def _instance(self, row: Row | None) -> Instance:
        variables = self._api.settings.variables
        return instance_rules.instance(
            row or {},
            self._api.network,
            variables.hcloud_instances_address_family,
            variables.hcloud_instances_zone_label_enabled,
        )
