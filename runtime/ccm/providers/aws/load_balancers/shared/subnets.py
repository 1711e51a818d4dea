# SPDX-License-Identifier: Apache-2.0
"""The subnets of the VPC, and which of them a load balancer gets. Calls at about the same time share one read."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from ccm.cloud.toolkit.shared_reads import Shared

from ...api import Api, filters
from ...instance_rules import Row
from . import subnet_rules


class VpcSubnets:
    def __init__(self, api: Api) -> None:
        self._api = api
        self._rows: Shared[list[Row]] = Shared(self._read)
        self._tables: Shared[list[Row]] = Shared(self._read_tables)

    async def rows(self) -> list[Row]:
        return await self._rows.get()

    async def chosen(self, names: Sequence[str], cluster: str, *, internal: bool) -> Sequence[str]:
        """Return the IDs of the subnets that a load balancer gets. `names`: IDs or names, () to choose by tags. Raises
        Invalid if there is no such subnet, or none can be chosen."""
        if names:
            return subnet_rules.named(await self.rows(), names)
        subnets, tables = await asyncio.gather(self.rows(), self._tables.get())
        return subnet_rules.chosen(
            subnets,
            tables,
            cluster=cluster,
            internal=internal,
            zone_types=self._api.zone_types,
            fallback=self._api.subnet,
        )

    async def _read(self) -> list[Row]:
        return await self._api.ec2_rows("describe_subnets", "Subnets", Filters=filters(vpc_id=self._api.vpc))

    async def _read_tables(self) -> list[Row]:
        return await self._api.ec2_rows("describe_route_tables", "RouteTables", Filters=filters(vpc_id=self._api.vpc))
