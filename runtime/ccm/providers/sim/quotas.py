# SPDX-License-Identifier: Apache-2.0
"""Quotas of a project."""

from __future__ import annotations

from ccm import cloud

from .api import Api, Quotas


class SimQuotas:
    def __init__(self, api: Api) -> None:
        self._api = api

    async def list(self) -> list[cloud.Quota]:
        quotas = await self._api.call("GET", "/quotas", Quotas)
        return [cloud.Quota(each.kind, each.used, each.limit) for each in quotas.items]
