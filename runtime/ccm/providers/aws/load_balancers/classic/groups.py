# SPDX-License-Identifier: Apache-2.0
"""Creates and deletes the security groups of Classic Load Balancers, and lets the Nodes' groups admit traffic from
them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ccm.cloud import Conflict, LoadBalancerSpec, RetryAfter

from ...api import Api, pairs
from ...instance_rules import Row
from ...instances import Ec2Instances
from ..network import node_group_rules
from ..network.load_balancer_rules import SERVICE_TAG
from ..shared.security_groups import SecurityGroups
from . import group_rules as rules
from .group_rules import Change
from .load_balancer_rules import DesiredState

NO_GROUP = ("InvalidGroup.NotFound",)
#: How long to wait before looking again for a group that exists and is not listed yet, in seconds.
SOON = 5.0


class ClassicGroups:
    def __init__(self, api: Api, instances: Ec2Instances, groups: SecurityGroups) -> None:
        self._api, self._instances, self._groups = api, instances, groups

    async def all(self) -> list[Row]:
        return await self._groups.all()

    async def prepared(
        self, groups: Sequence[Row], spec: LoadBalancerSpec, desired: DesiredState, cluster: str
    ) -> Sequence[str]:
        """Return the IDs of the groups that a load balancer gets; its traffic comes from the first one. If neither the
        Service nor cloud.conf names the groups, the load balancer has a group of its own: create it if it is missing,
        and write its rules."""
        rules.check_asked(groups, (*desired.groups, *desired.extra))
        if desired.groups:
            return list(dict.fromkeys((*desired.groups, *desired.extra)))
        own = rules.own_group(groups, desired.own_group, cluster)
        if own is None:
            own = await self._create(spec, desired)
        await self._apply(rules.own_change(own, desired))
        return list(dict.fromkeys((str(own["GroupId"]), *desired.extra)))

    async def node_changes(self, groups: Sequence[Row], lead: str, ids: Sequence[str], cluster: str) -> list[Change]:
        """Return the changes that the security groups of Nodes still need; [] if cloud.conf disables such changes.
        `ids`: the targets' instances."""
        common = self._api.settings.common
        if common.disablesecuritygroupingress:
            return []
        by_id = {str(group["GroupId"]): group for group in groups}
        rows = await self._instances.rows(ids)
        opened = {node_group_rules.group_of(row, by_id, cluster) for row in rows.values()} - {""}
        return rules.node_changes(groups, lead, opened, cluster, untouched=common.elbsecuritygroup)

    async def open(self, groups: Sequence[Row], lead: str, ids: Sequence[str], cluster: str) -> None:
        for change in await self.node_changes(groups, lead, ids, cluster):
            await self._apply(change)

    async def close(self, groups: Sequence[Row], lead: str, cluster: str) -> None:
        """Remove the rules by which Nodes admit traffic from a security group that the Service does not own."""
        await self.open(groups, lead, (), cluster)

    async def remove(self, groups: Sequence[Row], own: Row) -> None:
        """Delete a load balancer's own group, with every rule that names it. Raises RetryAfter while the load balancer
        still uses the group."""
        id = str(own["GroupId"])
        for reference in rules.references(groups, id):
            await self._apply(reference)
        await self._api.ec2("delete_security_group", missing=NO_GROUP, what=f"security group {id}", GroupId=id)

    async def _create(self, spec: LoadBalancerSpec, desired: DesiredState) -> Row:
        try:
            answer = await self._api.ec2(
                "create_security_group",
                GroupName=desired.own_group,
                Description=f"Security group for Kubernetes ELB {desired.name} ({spec.namespace}/{spec.name})",
                VpcId=self._api.vpc,
                TagSpecifications=[{"ResourceType": "security-group", "Tags": pairs(_group_tags(desired))}],
            )
        except Conflict:
            raise RetryAfter(f"security group {desired.own_group} exists, and EC2 does not list it yet", SOON) from None
        return {"GroupId": str(answer["GroupId"]), "GroupName": desired.own_group}

    async def _apply(self, change: Change) -> None:
        await self._groups.change(change.group, rules.permissions(change.add), rules.permissions(change.remove))


def _group_tags(desired: DesiredState) -> Mapping[str, str]:
    """Return the tags that cloud-provider-aws gives a group: without the Service's name, which is in the
    description."""
    return {key: value for key, value in desired.tags.items() if key != SERVICE_TAG}
