# SPDX-License-Identifier: Apache-2.0
"""Reads of Elastic Load Balancing for Classic Load Balancers, which have an API of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ccm.cloud import NotFound, Transient

from ...api import Api, tags_of
from ...instance_rules import Row
from ..network.reads import LARGEST_PAGE, NO_BALANCER, TAGGED


class ClassicReads:
    def __init__(self, api: Api) -> None:
        self._api = api

    async def named(self, name: str) -> Row | None:
        try:
            answer = await self._api.classic(
                "describe_load_balancers", missing=NO_BALANCER, what=f"load balancer {name}", LoadBalancerNames=[name]
            )
        except NotFound:
            return None
        rows = answer.get("LoadBalancerDescriptions")
        if not isinstance(rows, list) or len(rows) != 1:
            raise Transient(f"DescribeLoadBalancers: {len(rows or ())} Classic Load Balancers are named {name}")
        return dict(rows[0])

    async def all(self) -> list[Row]:
        size = min(self._api.settings.runtime.pagesize, LARGEST_PAGE)
        return await self._api.classic_rows("describe_load_balancers", "LoadBalancerDescriptions", PageSize=size)

    async def tags(self, names: Sequence[str]) -> dict[str, dict[str, str]]:
        """Name -> tags, of those that still exist."""
        found: dict[str, dict[str, str]] = {}
        for start in range(0, len(names), TAGGED):
            some = list(names[start : start + TAGGED])
            try:
                answer = await self._api.classic("describe_tags", missing=NO_BALANCER, LoadBalancerNames=some)
            except NotFound:  # one of them is gone; which one, the answer does not say
                if len(some) > 1:
                    for each in some:
                        found |= await self.tags([each])
                continue
            rows = answer.get("TagDescriptions")
            if not isinstance(rows, list):
                raise Transient("DescribeTags: the answer has no tags")
            found |= {str(row["LoadBalancerName"]): tags_of(row) for row in rows}
        return found

    async def attributes(self, name: str) -> Mapping[str, Any]:
        answer = await self._api.classic(
            "describe_load_balancer_attributes",
            missing=NO_BALANCER,
            what=f"load balancer {name}",
            LoadBalancerName=name,
        )
        found = answer.get("LoadBalancerAttributes")
        if not isinstance(found, dict):
            raise Transient("DescribeLoadBalancerAttributes: the answer has no attributes")
        return found
