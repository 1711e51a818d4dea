# SPDX-License-Identifier: Apache-2.0
"""Reads the security groups of the VPC and changes their rules. It does not know to whom a rule belongs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from ccm.cloud.toolkit.shared_reads import Shared

from ...api import Api, filters
from ...instance_rules import Row

Permissions = Sequence[Mapping[str, Any]]
Read = Callable[[], Awaitable[list[Row]]]


class SecurityGroups:
    def __init__(self, api: Api) -> None:
        self._api = api
        self._listing: Shared[list[Row]] = Shared(self.read)

    async def all(self) -> list[Row]:
        """Return all groups of the VPC. Calls at about the same time share one read."""
        return await self._listing.get()

    async def read(self) -> list[Row]:
        """Return all groups of the VPC, from a read that begins now."""
        return await self._api.ec2_rows(
            "describe_security_groups", "SecurityGroups", Filters=filters(vpc_id=self._api.vpc)
        )

    async def change(self, id: str, add: Permissions, remove: Permissions) -> None:
        """Add rules to a group and remove others, both in the form of EC2's API."""
        for operation, permissions in (
            ("authorize_security_group_ingress", add),
            ("revoke_security_group_ingress", remove),
        ):
            if permissions:
                await self._api.ec2(operation, GroupId=id, IpPermissions=permissions)


class OneListing:
    """The security groups that one deletion reads. A read for one type of load balancers is used for the other type,
    too."""

    def __init__(self, groups: SecurityGroups) -> None:
        self._groups = groups
        self._rows: list[Row] | None = None

    async def read(self) -> list[Row]:
        self._rows = await self._groups.read()
        return self._rows

    async def get(self) -> list[Row]:
        """Return what `read` returned; if it was not called, a listing that other Services share."""
        return self._rows if self._rows is not None else await self._groups.all()
