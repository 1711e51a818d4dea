# SPDX-License-Identifier: Apache-2.0
"""Reads load balancers, their tags and their parts from Elastic Load Balancing."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from ccm.cloud import NotFound, Transient

from ...api import Api, tags_of
from ...instance_rules import Row
from ..shared.base import Tags, tags_of_all
from . import load_balancer_owners as owners
from .load_balancer_rules import DesiredState
from .load_balancer_steps import Present

NO_BALANCER = ("LoadBalancerNotFound",)
NO_GROUP = ("TargetGroupNotFound",)
#: The maximum number of load balancers on a page.
LARGEST_PAGE = 400
DRAINING = "Target.DeregistrationInProgress"


class BalancerReads:
    def __init__(self, api: Api) -> None:
        self._api = api

    async def named(self, name: str) -> Row | None:
        try:
            answer = await self._api.elb(
                "describe_load_balancers", missing=NO_BALANCER, what=f"load balancer {name}", Names=[name]
            )
        except NotFound:
            return None
        rows = answer.get("LoadBalancers")
        if not isinstance(rows, list) or len(rows) != 1:
            raise Transient(f"DescribeLoadBalancers: {len(rows or ())} load balancers are named {name}")
        return dict(rows[0])

    async def all(self) -> list[Row]:
        size = min(self._api.settings.runtime.page_size, LARGEST_PAGE)
        return await self._api.elb_rows("describe_load_balancers", "LoadBalancers", PageSize=size)

    async def tags(self, arns: Sequence[str]) -> Tags:
        """Return ARN -> tags of the resources that still exist."""
        return await tags_of_all(arns, self._tags)

    async def _tags(self, arns: list[str]) -> Tags:
        answer = await self._api.elb("describe_tags", missing=(*NO_BALANCER, *NO_GROUP), ResourceArns=arns)
        return {str(row["ResourceArn"]): tags_of(row) for row in answer.get("TagDescriptions") or ()}

    async def groups_of(self, arn: str) -> list[Row]:
        try:
            return await self._api.elb_rows(
                "describe_target_groups", "TargetGroups", missing=NO_GROUP, LoadBalancerArn=arn
            )
        except NotFound:
            return []  # it has none yet

    async def all_groups(self) -> list[Row]:
        return await self._api.elb_rows("describe_target_groups", "TargetGroups")

    async def group_named(self, name: str) -> Row | None:
        try:
            answer = await self._api.elb("describe_target_groups", missing=NO_GROUP, Names=[name])
        except NotFound:
            return None
        return next((dict(row) for row in answer.get("TargetGroups") or ()), None)

    async def listeners(self, arn: str) -> list[Row]:
        return await self._api.elb_rows("describe_listeners", "Listeners", LoadBalancerArn=arn)

    async def targets(self, arn: str) -> frozenset[tuple[str, int]]:
        """Return instance and port of each target that is not being deregistered. Raises Transient for an answer
        without a list of targets."""
        answer = await self._api.elb(
            "describe_target_health", missing=NO_GROUP, what=f"target group {arn}", TargetGroupArn=arn
        )
        rows = answer.get("TargetHealthDescriptions")
        if not isinstance(rows, list):
            raise Transient("DescribeTargetHealth: the answer has no targets")
        return frozenset(
            (str(row["Target"]["Id"]), int(row["Target"]["Port"]))
            for row in rows
            if (row.get("TargetHealth") or {}).get("Reason") != DRAINING
        )

    async def present(self, balancer: Row, desired: DesiredState, tags: Mapping[str, str], uid: str) -> Present:
        """Return all parts of a load balancer. A target group that had to take another name (`other_name`) is listed
        under its usual one."""
        arn = str(balancer["LoadBalancerArn"])
        listeners, groups, attributes = await asyncio.gather(
            self.listeners(arn),
            self.groups_of(arn),
            self._api.elb("describe_load_balancer_attributes", missing=NO_BALANCER, LoadBalancerArn=arn),
        )
        own_names = {owners.other_name(listener.group, uid): listener.group for listener in desired.listeners}
        named = {own_names.get(str(row["TargetGroupName"]), str(row["TargetGroupName"])): row for row in groups}
        targets = await asyncio.gather(*(self.targets(str(row["TargetGroupArn"])) for row in named.values()))
        group_attributes = {}
        if desired.group_attributes:
            for name, row in named.items():
                answer = await self._api.elb(
                    "describe_target_group_attributes", missing=NO_GROUP, TargetGroupArn=row["TargetGroupArn"]
                )
                group_attributes[name] = tags_of({"Tags": answer.get("Attributes")})
        return Present(
            balancer,
            listeners,
            named,
            dict(zip(named, targets, strict=True)),
            tags_of({"Tags": attributes.get("Attributes")}),
            group_attributes,
            tags,
        )
