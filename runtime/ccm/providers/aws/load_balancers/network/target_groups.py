# SPDX-License-Identifier: Apache-2.0
"""Creates target groups of Network Load Balancers, and deletes those that no listener uses any more."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Set
from typing import Any

from ccm.cloud import Conflict, LoadBalancerSpec, NotFound

from ...api import Api
from ...instance_rules import Row
from . import load_balancer_owners as owners
from .reads import NO_GROUP, BalancerReads


class TargetGroups:
    """The target groups of Services. A provider has one such object, which remembers the groups to delete, because no
    load balancer lists them."""

    def __init__(self, api: Api, reads: BalancerReads) -> None:
        self._api, self._reads = api, reads
        self._left: dict[tuple[str, str], set[str]] = {}

    def leave(self, spec: LoadBalancerSpec, arns: Set[str]) -> None:
        """Remember target groups for `delete_left`."""
        if arns:
            self._left.setdefault((spec.cluster, spec.uid), set()).update(arns)

    def forget(self, spec: LoadBalancerSpec) -> None:
        self._left.pop((spec.cluster, spec.uid), None)

    async def delete_left(self, spec: LoadBalancerSpec, used: Set[str]) -> None:
        """Delete the target groups that are no longer used, including those that an earlier write failed to delete."""
        key = (spec.cluster, spec.uid)
        left = self._left.get(key, set())
        left -= used  # their ports came back
        for arn in sorted(left):
            with contextlib.suppress(NotFound):
                await self._api.elb("delete_target_group", missing=NO_GROUP, TargetGroupArn=arn)
            left.discard(arn)
        self._left.pop(key, None)

    async def create(self, arguments: Mapping[str, Any], spec: LoadBalancerSpec, balancer: Row) -> str:
        """Return the ARN of a new target group, or of the target group of an earlier write whose answer was lost. If
        somebody else's group has the name, the new one gets its second name (`other_name`). AWS reports that a name is
        taken only if the settings differ; otherwise it returns the group that has the name. Raises Conflict if both
        names belong to somebody else."""
        names = (arguments["Name"], owners.other_name(arguments["Name"], spec.uid))
        for name in names:
            try:
                answer = await self._api.elb("create_target_group", **{**arguments, "Name": name})
            except Conflict:
                row = await self._reads.group_named(name)
                arn = str(row["TargetGroupArn"]) if row is not None else ""
                tags = (await self._reads.tags([arn])).get(arn, {}) if arn else {}
                mark = owners.mark_of(tags)
                if mark is not None and mark.is_of(spec.cluster, spec.uid):
                    return arn
                continue
            row = answer["TargetGroups"][0]
            if set(row.get("LoadBalancerArns") or ()) <= {balancer["LoadBalancerArn"]}:
                return str(row["TargetGroupArn"])
        raise Conflict(f"the names {' and '.join(names)} for a target group belong to somebody else")
