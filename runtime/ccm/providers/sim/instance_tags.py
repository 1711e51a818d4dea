# SPDX-License-Identifier: Apache-2.0
"""Tags of instances, which are labels here."""

from __future__ import annotations

from collections.abc import Mapping

from ccm.cloud import Conflict

from .api import Api, Instance
from .instance_rules import PROVIDER_ID


class SimInstanceTags:
    """The tags of instances: labels in this cloud. They also become labels of the Node, except in the domains of
    Kubernetes."""

    def __init__(self, api: Api) -> None:
        self._api = api

    async def list(self) -> Mapping[str, Mapping[str, str]]:
        rows = await self._api.list("/instances", Instance)
        return {f"sim://{row.region}/{row.id}": row.labels for row in rows}

    async def add(self, provider_id: str, tags: Mapping[str, str]) -> None:
        match = PROVIDER_ID.fullmatch(provider_id)
        if match is None:
            raise Conflict(f"providerID {provider_id!r} is not of the form sim://REGION/i-…")
        path, body = f"/instances/{match['id']}/labels", {"labels": dict(tags)}
        await self._api.call("POST", path, Instance, body=body, missing="instance_not_found")
