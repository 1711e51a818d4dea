# SPDX-License-Identifier: Apache-2.0
"""Servers: pages of all of them, and one by its providerID or its name."""

from __future__ import annotations

from urllib.parse import urlencode

from ccm.cloud import Conflict, Instance, InstanceRef, NotFound, Page

from .api import Api
from .instance_rules import PROVIDER_ID, instance_of


class AcmeInstances:
    def __init__(self, api: Api) -> None:
        self._api = api

    async def list_page(self, token: str | None) -> Page:
        answer = await self._api.call("GET", f"/servers?{urlencode({'after': token or ''})}")
        return Page([instance_of(row) for row in answer["servers"]], answer["next"], answer["count"])

    async def get(self, ref: InstanceRef) -> Instance:
        if ref.provider_id:
            if (match := PROVIDER_ID.fullmatch(ref.provider_id)) is None:
                raise Conflict(f"providerID {ref.provider_id!r} is not of the form acme://srv-...")
            return instance_of(await self._api.call("GET", f"/servers/{match['id']}", missing="no_such_server"))
        named = [each for each in await self._beginning_with(ref.node_name) if each.name == ref.node_name]
        if len(named) > 1:
            raise Conflict(f"{len(named)} servers are named {ref.node_name!r}")
        if not named:
            raise NotFound(f"no server is named {ref.node_name!r}")
        return named[0]

    async def _beginning_with(self, name: str) -> list[Instance]:
        """Read all pages, because this cloud's filter finds every server whose name starts with `name`."""
        instances: list[Instance] = []
        token: str | None = ""
        while token is not None:
            answer = await self._api.call("GET", f"/servers?{urlencode({'hostname': name, 'after': token})}")
            instances += [instance_of(row) for row in answer["servers"]]
            token = answer["next"]
        return instances

    def owns(self, provider_id: str) -> bool:
        return PROVIDER_ID.fullmatch(provider_id) is not None
