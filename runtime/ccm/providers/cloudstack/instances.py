# SPDX-License-Identifier: Apache-2.0
"""Lists the virtual machines of the user or the project, in pages of 100 by default, and finds single machines."""

from __future__ import annotations

from ccm.cloud import Conflict, Instance, InstanceRef, NotFound, Page

from . import instance_rules as rules
from .api import Api
from .instance_rules import Row

COMMAND, NAME = "listVirtualMachines", "virtualmachine"
#: The details of each machine that a listing requests. Further details make the listing slow.
DETAILS = "min,nics,servoff"


class CloudStackInstances:
    def __init__(self, api: Api) -> None:
        self._api = api

    async def list_page(self, token: str | None) -> Page:
        page = await self._api.rows_page(COMMAND, NAME, token, details=DETAILS)
        return Page([self._instance(row) for row in page.rows], page.next, page.total)

    async def get(self, ref: InstanceRef) -> Instance:
        if ref.provider_id:
            return self._instance(await self._api.one(COMMAND, NAME, rules.known_id(ref.provider_id), details=DETAILS))
        # The API also finds machines whose names only contain the text, and ignores case.
        rows = await self._api.every_row(COMMAND, NAME, name=ref.node_name, details=DETAILS)
        named = [each for each in map(self._instance, rows) if each.is_named(ref.node_name)]
        if len(named) > 1:
            ids = ", ".join(sorted(each.provider_id for each in named))
            raise Conflict(f"{len(named)} virtual machines are named {ref.node_name!r} ({ids}): rename all but one")
        if not named:
            raise NotFound(f"no virtual machine is named {ref.node_name!r}")
        return named[0]

    def owns(self, provider_id: str) -> bool:
        return rules.machine_id(provider_id) is not None

    def canonical(self, provider_id: str) -> str | None:
        id_ = rules.machine_id(provider_id)
        return None if id_ is None else f"{rules.PREFIX}{id_}"

    def _instance(self, row: Row) -> Instance:
        return rules.instance(row, self._api.settings.common.region)
