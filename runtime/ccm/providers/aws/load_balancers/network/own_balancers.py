# SPDX-License-Identifier: Apache-2.0
"""Finds the Network Load Balancers of Services, and gives kept ones to the Services that take them back.

AWS cannot rename a load balancer, so one that a Service took back keeps the name that it got from its former Service.
Therefore names are remembered, from listings and writes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from ccm.cloud import LoadBalancerSpec
from ccm.cloud.toolkit import kept_load_balancers
from ccm.cloud.toolkit.ownership_marks import Mark

from ...api import Api, pairs
from ...instance_rules import Row
from . import load_balancer_owners as owners
from .reads import NO_BALANCER, BalancerReads


class OwnBalancers:
    """The Network Load Balancers of Services, with what is remembered about their names. A provider has one such
    object."""

    def __init__(self, api: Api, reads: BalancerReads) -> None:
        self._api, self._reads = api, reads
        #: The names of load balancers that were taken back.
        self._names: dict[tuple[str, str], str] = {}
        #: The clusters whose load balancers were listed.
        self._listed: set[str] = set()
        self._taking_back = asyncio.Lock()

    def name(self, spec: LoadBalancerSpec) -> str:
        return self._names.get((spec.cluster, spec.uid), spec.default_name)

    async def of_cluster(self, cluster: str) -> Sequence[tuple[Row, Mapping[str, str], Mark]]:
        """Return all load balancers of a cluster's Services, their tags and marks, and remember their names."""
        marked = [(row, tags, owners.mark_of(tags)) for row, tags in await self.all()]
        own = [(row, tags, mark) for row, tags, mark in marked if mark is not None and mark.is_of(cluster, mark.uid)]
        for row, _, mark in own:
            self._learn(LoadBalancerSpec(cluster, mark.uid, "", "", ()), str(row["LoadBalancerName"]))
        self._listed.add(cluster)
        return own

    def _learn(self, spec: LoadBalancerSpec, name: str) -> None:
        if name != spec.default_name:
            self._names[spec.cluster, spec.uid] = name

    def forget(self, spec: LoadBalancerSpec) -> None:
        self._names.pop((spec.cluster, spec.uid), None)

    async def all(self) -> Sequence[tuple[Row, Mapping[str, str]]]:
        """Return all Network Load Balancers whose names have the form that controllers use, and their tags."""
        rows = {
            str(row["LoadBalancerArn"]): row
            for row in await self._reads.all()
            if row.get("Type") == "network" and owners.NAME.fullmatch(str(row["LoadBalancerName"]))
        }
        return [(rows[arn], tags) for arn, tags in (await self._reads.tags(list(rows))).items()]

    async def find(self, spec: LoadBalancerSpec) -> Row | None:
        """Return the load balancer that has the name of the Service's load balancer, None if there is none. The caller
        must check in the tags that it belongs to the Service. The name of a load balancer that the Service took back
        is known from a write, a listing, or the annotation. A Service may be deleted before the first listing of its
        cluster, so if nothing has the name, the cluster is listed once."""
        row = await self._reads.named(self.name(spec))
        if row is None and spec.cluster not in self._listed:
            await self.of_cluster(spec.cluster)
            if self.name(spec) != spec.default_name:
                row = await self._reads.named(self.name(spec))
        is_known = (spec.cluster, spec.uid) in self._names
        if row is None and not is_known and owners.NAME.fullmatch(spec.take_back):
            row = await self._reads.named(spec.take_back)
            mark = owners.mark_of(await self._tags(str(row["LoadBalancerArn"]))) if row is not None else None
            if mark is None or not mark.is_of(spec.cluster, spec.uid):
                return None
            self._learn(spec, spec.take_back)
        return row

    async def take_back(self, spec: LoadBalancerSpec) -> Row:
        """Give the Service the load balancer that it names and that is kept for its namespace, unless the Service took
        it back before. Return the load balancer. Raises Conflict if there is none."""
        if not owners.NAME.fullmatch(spec.take_back):
            raise kept_load_balancers.nothing_kept(spec)
        async with self._taking_back:  # two Services may name the same one
            row = await self._reads.named(spec.take_back)
            arn = str(row["LoadBalancerArn"]) if row is not None else ""
            tags = await self._tags(arn) if arn else {}
            mark = owners.mark_of(tags)
            if row is None or (mark is not None and not mark.is_of(spec.cluster, spec.uid)):
                raise kept_load_balancers.nothing_kept(spec)
            if mark is None:
                if not spec.namespace or owners.kept_for(tags, spec.cluster) != spec.namespace:
                    raise kept_load_balancers.nothing_kept(spec)
                taken = pairs(owners.taken_back_tags(tags, spec))
                await self._api.elb("add_tags", missing=NO_BALANCER, ResourceArns=[arn], Tags=taken)
            self._learn(spec, spec.take_back)
            return row

    async def _tags(self, arn: str) -> Mapping[str, str]:
        return (await self._reads.tags([arn])).get(arn, {})
