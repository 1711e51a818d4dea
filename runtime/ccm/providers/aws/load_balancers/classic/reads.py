# SPDX-License-Identifier: Apache-2.0
"""Reads Classic Load Balancers, which have an API of their own in Elastic Load Balancing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ccm.cloud import NotFound, Transient

from ...api import Api, tags_of
from ...instance_rules import Row
from ..network.reads import LARGEST_PAGE, NO_BALANCER
from ..shared.base import Tags, tags_of_all


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
        size = min(self._api.settings.runtime.page_size, LARGEST_PAGE)
        return await self._api.classic_rows("describe_load_balancers", "LoadBalancerDescriptions", PageSize=size)

    async def tags(self, names: Sequence[str]) -> Tags:
        """Return name -> tags of the load balancers that still exist."""
        return await tags_of_all(names, self._tags)

    async def _tags(self, names: list[str]) -> Tags:
        answer = await self._api.classic("describe_tags", missing=NO_BALANCER, LoadBalancerNames=names)
        rows = answer.get("TagDescriptions")
        if not isinstance(rows, list):
            raise Transient("DescribeTags: the answer has no tags")
        return {str(row["LoadBalancerName"]): tags_of(row) for row in rows}

    async def attributes(self, name: str) -> Mapping[str, Any]:
        answer = await self._api.classic(
            "describe_load_balancer_attributes",
            missing=NO_BALANCER,
            what=f"load balancer {name}",
            LoadBalancerName=name,
        )
        attributes = answer.get("LoadBalancerAttributes")
        if not isinstance(attributes, dict):
            raise Transient("DescribeLoadBalancerAttributes: the answer has no attributes")
        return attributes
