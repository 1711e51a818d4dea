# SPDX-License-Identifier: Apache-2.0
"""Lists the instances of the whole project, by default 500 on a page, and finds single instances."""

from __future__ import annotations

from collections.abc import Sequence

from ccm.cloud import Conflict, Instance, InstanceRef, NotFound, Page, Transient
from ccm.cloud.toolkit.json_api import Query

from . import instance_rules
from .api import Api
from .instance_rules import MISSING, Row


class ComputeInstances:
    def __init__(self, api: Api) -> None:
        self._api = api

    async def list_page(self, token: str | None) -> Page:
        """Return a page, with one request for all zones. Instances of a zone that does not answer are unknown."""
        listing = await self._api.instances(token)
        return Page(self._instances(listing.rows), listing.next, unreachable=listing.unreachable)

    async def get(self, ref: InstanceRef) -> Instance:
        if ref.provider_id:
            return await self._by_id(ref.provider_id)
        name, scope = ref.node_name, self._api.scope
        if not instance_rules.DOTTED.fullmatch(name):
            raise NotFound(f"no instance of Compute Engine can have the name {name!r}")
        # A name with a dot may be a host name that a user chose. The API documents no filter for host names.
        query = [("filter", f'name = "{name}"')] if instance_rules.NAME.fullmatch(name) else []
        instances, unreachable = await self._all(query)
        named = [each for each in instances if each.is_named(name)]
        if len(named) > 1:
            ids = ", ".join(sorted(each.provider_id for each in named))
            raise Conflict(f"{len(named)} instances in {scope} are named {name!r} ({ids}): rename all but one")
        if not named and unreachable:
            raise Transient(f"it is unknown whether an instance is named {name!r}: {unreachable}")
        if not named:
            raise NotFound(f"{scope} has no instance named {name!r}")
        return named[0]

    def owns(self, provider_id: str) -> bool:
        place = instance_rules.place(provider_id)
        return place is not None and place.project == self._api.scope.project

    async def _by_id(self, provider_id: str) -> Instance:
        place = instance_rules.place(provider_id)
        if place is None or place.project != self._api.scope.project:
            project = self._api.scope.project
            raise Conflict(f"providerID {provider_id!r} is not of the form gce://{project}/ZONE/NAME")
        path = f"/projects/{place.project}/zones/{place.zone}/instances/{place.name}"
        row = await self._api.call("GET", path, missing=MISSING)
        (instance,) = self._instances([row])
        if instance.provider_id != provider_id:
            raise Transient(f"GET {path}: the answer is about {instance.provider_id}")
        return instance

    async def _all(self, query: Query) -> tuple[list[Instance], str]:
        """Return the instances of all pages, and why some instances may be missing, "" if none can be missing. Raises
        Transient if a page repeats."""
        instances: list[Instance] = []
        doubts: list[str] = []
        token, tokens = None, set[str | None]()
        while token not in tokens:
            tokens.add(token)
            page = await self._api.instances(token, query)
            instances += self._instances(page.rows)
            doubts += [page.unreachable] if page.unreachable else []
            token = page.next
            if token is None:
                return instances, "; ".join(doubts)
        raise Transient("the listing of instances repeats a page")

    def _instances(self, rows: Sequence[Row]) -> list[Instance]:
        ipv6_first = self._api.settings.common.stack_type == "IPV6"
        return [instance_rules.instance(row, self._api.scope, ipv6_first) for row in rows]
