# SPDX-License-Identifier: Apache-2.0
"""Writes the targets of target groups. If one instance of a call does not run, AWS registers none of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...api import Api
from ...errors import UnfitInstance
from ...instances import Ec2Instances
from .load_balancer_steps import Step
from .reads import NO_GROUP


class TargetWrites:
    def __init__(self, api: Api, instances: Ec2Instances) -> None:
        self._api, self._instances = api, instances

    async def do(self, step: Step, arn: str) -> frozenset[str]:
        """Register or deregister targets. Return the instances that were not registered because they do not run. Raises
        UnfitInstance if AWS refuses a deregistration, or a registration although all its instances run."""
        rows = step.arguments["Targets"]
        try:
            await self._send(step.operation, arn, rows)
        except UnfitInstance:
            running = await self._instances.running([row["Id"] for row in rows])
            fit = [row for row in rows if row["Id"] in running]
            if step.operation != "register_targets" or len(fit) == len(rows):
                raise
            if fit:
                await self._send(step.operation, arn, fit)
            return frozenset(row["Id"] for row in rows) - running
        return frozenset()

    async def can(self, step: Step) -> bool:
        """Return whether a registration would add a target, because at least one of its instances runs."""
        return bool(await self._instances.running([row["Id"] for row in step.arguments["Targets"]]))

    async def _send(self, operation: str, arn: str, rows: Sequence[Mapping[str, Any]]) -> None:
        await self._api.elb(operation, missing=NO_GROUP, TargetGroupArn=arn, Targets=rows)


def warnings(stopped: Iterable[str]) -> list[str]:
    names = sorted(stopped)
    if not names:
        return []
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return [
        f"AWS accepts only running instances as targets: {', '.join(names[:5])}{more} get no traffic yet, "
        "and are added by a later comparison once they run"
    ]
