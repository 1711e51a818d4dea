# SPDX-License-Identifier: Apache-2.0
"""Changes the Nodes' security groups: adds a load balancer's rules to its targets' groups, and removes them from all
other groups."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from ...api import Api
from ...instances import Ec2Instances
from ..shared.security_groups import Read, SecurityGroups
from . import node_group_rules
from .load_balancer_rules import DesiredState
from .node_group_rules import Change


class NodeGroups:
    def __init__(self, api: Api, instances: Ec2Instances, groups: SecurityGroups) -> None:
        self._api, self._instances, self._groups = api, instances, groups
        self._last_answer: tuple[int, Sequence[str], frozenset[frozenset[str]]] = (-1, (), frozenset())
        self._changing = asyncio.Lock()

    @property
    def is_on(self) -> bool:
        return not self._api.settings.common.disablesecuritygroupingress

    async def memberships(self, ids: Sequence[str]) -> frozenset[frozenset[str]]:
        """Return the sets of security groups that these instances have; usually all have the same set. Hundreds of
        Services have the same thousands of instances, so the last answer is kept until instances are read again."""
        reads, known_ids, group_sets = self._last_answer
        if reads != self._instances.reads or known_ids != ids:
            rows = await self._instances.rows(ids)
            group_sets = frozenset(
                frozenset(str(group["GroupId"]) for group in row.get("SecurityGroups") or ()) for row in rows.values()
            )
            self._last_answer = (self._instances.reads, ids, group_sets)
        return group_sets

    async def changes(
        self, name: str, cluster: str, ids: Sequence[str], desired: DesiredState, subnets: Sequence[str]
    ) -> list[Change]:
        """Return the changes that the load balancer `name` still needs in the security groups of Nodes, [] if
        cloud.conf disables such changes. `subnets`: CIDRs of the load balancer's subnets. Reads all groups of the VPC,
        so that no group keeps a rule for a former target."""
        if not self.is_on:
            return []
        groups = await self._groups.read()
        by_id = {str(group["GroupId"]): group for group in groups}
        rows = await self._instances.rows(ids)
        opened = {node_group_rules.group_of(row, by_id, cluster) for row in rows.values()} - {""}
        return node_group_rules.changes(name, groups, opened, node_group_rules.desired_rules(name, desired, subnets))

    async def change(
        self, name: str, cluster: str, ids: Sequence[str], desired: DesiredState, subnets: Sequence[str]
    ) -> None:
        """Make the changes for one load balancer at a time, because all load balancers share the rule MTU, which is
        removed with the last of them."""
        async with self._changing:
            await self._apply(await self.changes(name, cluster, ids, desired, subnets))

    async def close(self, name: str, read: Read) -> bool:
        """Remove a load balancer's rules from the groups that `read` returns. Return whether there were any; False if
        cloud.conf disables such changes."""
        if not self.is_on:
            return False
        async with self._changing:
            changes = node_group_rules.changes(name, await read(), set(), [])
            await self._apply(changes)
            return bool(changes)

    async def _apply(self, changes: Sequence[Change]) -> None:
        for change in changes:
            add, remove = node_group_rules.permissions(change.add), node_group_rules.permissions(change.remove)
            await self._groups.change(change.group, add, remove)
