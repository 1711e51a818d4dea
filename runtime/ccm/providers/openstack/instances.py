# SPDX-License-Identifier: Apache-2.0
"""Instances: nova's servers with neutron's ports.

Two listings serve any number of Nodes: first servers, then ports, so that the ports of every listed server are known.
`instance_rules` converts them.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import re
import time
from collections import OrderedDict
from collections.abc import Awaitable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ccm import cloud
from ccm.cloud import Conflict, InstanceRef, NotFound, Page, Transient

from . import instance_rules as rules
from .api import COMPUTE, NETWORK, Api, of_project
from .instance_rules import Row

log = logging.getLogger(__name__)

#: How many listings may be in progress; older ones are abandoned.
LISTINGS = 4
#: The maximum number of servers that one listing reads one by one, because they have ports but were not listed.
DOUBTS = 3
#: The maximum number of IDs in one call, so that its URL does not become too long.
AT_ONCE = 50


@dataclass(frozen=True)
class _Progress:
    """A listing in progress: when it began (Unix time, by our clock), what has arrived so far, and the marker of the
    next page of servers or ports."""

    began: float
    servers: tuple[Row, ...] = ()
    ports: tuple[Row, ...] = ()
    servers_complete: bool = False
    marker: str | None = None


class OpenStackInstances:
    def __init__(self, api: Api) -> None:
        self._api = api
        self._listings: OrderedDict[str, _Progress] = OrderedDict()
        self._numbers = itertools.count(1)
        self._flavours: dict[str, str] = {}
        self._deleted: set[str] = set()
        self._unused: list[str] = []

    async def list_page(self, token: str | None) -> Page:
        """Read one page of servers or ports. Only the last page contains instances, and it contains all of them,
        because their ports are known only then. Raises Transient for a listing that has expired."""
        progress = _Progress(time.time()) if token is None else self._listings.get(token)
        if progress is None:
            raise Transient(f"the listing of page {token} has expired: start a new listing")
        if not progress.servers_complete:
            rows, marker = await self._api.page(COMPUTE, "/servers/detail", "servers", (), progress.marker)
            servers = (*progress.servers, *rows)
            return self._to_be_continued(token, _Progress(progress.began, servers, (), marker is None, marker))
        rows, marker = await self._api.page(
            NETWORK, "/ports", "ports", [*_FIELDS, *of_project(self._api)], progress.marker
        )
        ports = (*progress.ports, *rows)
        if marker is not None:
            return self._to_be_continued(token, _Progress(progress.began, progress.servers, ports, True, marker))
        await self._doubt(progress.began, progress.servers, ports)
        instances = await self._instances(progress.servers, ports, complete=True)
        self._forget(token)
        return Page(instances)

    async def get(self, ref: InstanceRef) -> cloud.Instance:
        """Return the instance of a Node. This takes two calls, and more only if the server has trunks, or a flavor
        whose name is not a valid label value. Raises Conflict for a providerID of another form, and Transient if nova
        does not describe the server."""
        if ref.provider_id:
            id = rules.server_id(ref.provider_id, self._api.region)
            if id is None:
                raise Conflict(f"providerID {ref.provider_id!r} is not of the form openstack:///ID of this region")
            server, ports = await _both(self._server(id), self._ports_of(id))
        else:
            server = await self._named(ref.node_name)
            ports = await self._ports_of(str(server["id"]))
        if rules.is_outline(server):
            raise Transient(f"server {server['id']}: the part of the cloud that hosts it does not respond")
        for trunk in rules.trunk_subports(ports):
            ports = [*ports, *await self._ports_of(trunk)]
        return (await self._instances([server], ports))[0]

    def owns(self, provider_id: str) -> bool:
        return rules.server_id(provider_id, self._api.region) is not None

    def canonical(self, provider_id: str) -> str | None:
        id = rules.server_id(provider_id, self._api.region)
        return None if id is None else self._spelt(id)

    def _spelt(self, id: str) -> str:
        return rules.provider_id(id, self._api.region, self._api.settings.runtime.regional)

    def _forget(self, token: str | None) -> None:
        """Drop the progress that a token stands for, because listings are large. Call it only after the page was read:
        a page whose read failed may be requested again."""
        if token is not None:
            self._listings.pop(token, None)

    def _to_be_continued(self, before: str | None, progress: _Progress) -> Page:
        self._forget(before)
        token = str(next(self._numbers))
        self._listings[token] = progress
        while len(self._listings) > LISTINGS:
            self._listings.popitem(last=False)
        return Page([], token)

    async def _doubt(self, began: float, servers: Iterable[Row], ports: Iterable[Row]) -> None:
        """Raises Transient if an existing server was not listed.

        nova silently omits servers in a cell that does not respond. Such servers still have ports. A server created
        since this listing began may have appeared between the two listings.
        """
        unlisted = rules.unlisted(servers, ports)
        self._deleted &= set(unlisted)  # the others have no ports any more
        for id in [each for each in unlisted if each not in self._deleted][:DOUBTS]:
            try:
                server = await self._server(id)
            except NotFound:
                self._deleted.add(id)  # permanent: IDs are never reused
                continue
            if not rules.made_since(server, began + self._api.clock_ahead):
                raise Transient(f"the listing of servers is incomplete: server {id} exists but is missing from it")

    async def _instances(
        self, servers: Iterable[Row], ports: Iterable[Row], *, complete: bool = False
    ) -> list[cloud.Instance]:
        """Convert servers. `complete`: these are all servers, so networks in which no server has an address are
        reported."""
        servers = list(servers)
        of_device: dict[str, list[Row]] = {}
        by_id = {}
        for port in ports:
            of_device.setdefault(str(port.get("device_id")), []).append(port)
            by_id[str(port["id"])] = port
        parents = {str(server["id"]): of_device.get(str(server["id"]), []) for server in servers}
        names = await self._network_names(itertools.chain.from_iterable(parents.values()), by_id)
        if complete:
            self._report_unused_networks(rules.unused_networks(servers, names.values(), self._api.settings.networking))
        await self._learn_flavours(servers)
        settings, region = self._api.settings, self._api.region
        return [
            rules.instance(
                server,
                parents[str(server["id"])],
                rules.subport_addresses(parents[str(server["id"])], by_id, names),
                settings.networking,
                region,
                settings.runtime.regional,
                self._flavours,
            )
            if not rules.is_outline(server)
            # Invalid under the contract, so the framework treats the listing as incomplete.
            else cloud.Instance(self._spelt(str(server["id"])), name=None)  # type: ignore[arg-type]
            for server in servers
        ]

    def _report_unused_networks(self, unused: list[str]) -> None:
        """Log the names in `internal-network-name` whose networks have no servers, once, and again when the names
        change. Such a name is probably a typo, and then the addresses in the intended network are ignored."""
        if unused and unused != self._unused:
            log.warning(
                "internal-network-name: no server has an address in a network named %s; compare the names with those of"
                " `openstack network list`",
                " or ".join(map(repr, unused)),
            )
        self._unused = unused

    async def _learn_flavours(self, servers: Iterable[Row]) -> None:
        """Load the IDs of all flavors if a server has a new flavor whose name is not a valid label value."""
        names = {rules.flavour(server) for server in servers}
        if all(rules.LABEL_VALUE.fullmatch(name) or name in self._flavours for name in names):
            return
        rows = await self._api.pages(COMPUTE, "/flavors", "flavors", (("is_public", "None"),))
        self._flavours = dict.fromkeys(names, "") | {str(row.get("name")): str(row["id"]) for row in rows}

    async def _network_names(self, parents: Iterable[Row], ports: Mapping[str, Row]) -> dict[str, str]:
        """Return ID -> name of the networks of trunk subports. Without trunks, no call is made."""
        subports = itertools.chain.from_iterable(rules.trunk_subports(parents).values())
        network_ids = sorted({str(ports[subport]["network_id"]) for subport in subports if subport in ports})
        names: dict[str, str] = {}
        for start in range(0, len(network_ids), AT_ONCE):
            some = network_ids[start : start + AT_ONCE]
            query = [("fields", "id"), ("fields", "name"), *(("id", each) for each in some)]
            rows = await self._api.pages(NETWORK, "/networks", "networks", query)
            names |= {str(row["id"]): str(row.get("name")) for row in rows}
        return names

    async def _server(self, id: str) -> Row:
        answer = await self._api.call("GET", COMPUTE, f"/servers/{id}", missing=id)
        server = answer.get("server") if isinstance(answer, dict) else None
        if not isinstance(server, dict) or str(server.get("id")).lower() != id:
            raise Transient(f"GET compute /servers/{id}: the response is about another object")
        return server

    async def _named(self, name: str) -> Row:
        """Find a server by its name, or by its name in lower case, as Nodes are named.

        nova takes the name as a regular expression, and may ignore case, so the result is filtered. Raises NotFound if
        there is none, and Conflict if there are several.
        """
        query = [("name", f"^{re.escape(name)}$")]
        rows = await self._api.pages(COMPUTE, "/servers/detail", "servers", query)
        named = [row for row in rows if name in (row_name := str(row.get("name") or ""), row_name.lower())]
        if not named:
            raise NotFound(f"the project has no server named {name!r}")
        if len(named) > 1:
            ids = ", ".join(sorted(str(row["id"]) for row in named))
            raise Conflict(f"{len(named)} servers are named {name!r} ({ids}): give the Node a providerID or rename")
        return named[0]

    async def _ports_of(self, device: str) -> list[dict[str, Any]]:
        return await self._api.pages(NETWORK, "/ports", "ports", [*_FIELDS, ("device_id", device)])


_FIELDS = [("fields", name) for name in rules.PORT_FIELDS]


async def _both(first: Awaitable[Row], second: Awaitable[list[dict[str, Any]]]) -> tuple[Row, list[dict[str, Any]]]:
    """Wait for both results. A failure of the first one takes precedence over a failure of the second."""
    one, other = await asyncio.gather(first, second, return_exceptions=True)
    if isinstance(one, BaseException):
        raise one
    if isinstance(other, BaseException):
        raise other
    return one, other
