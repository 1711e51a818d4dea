# SPDX-License-Identifier: Apache-2.0
"""Runs cloud-provider-openstack and our runtime on a table of Services, one after the other, and records what each
creates and leaves."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Collection, Mapping
from pathlib import Path
from typing import Any

from ccm.engine.client import KubeClient
from ccm.providers.openstack.annotations import PREFIX
from tests.comparison import rounds
from tests.comparison.belongings import Belongings
from tests.comparison.rounds import Rounds, Seen
from tests.integration.cluster import ApiServer
from tests.integration.runtime.support import NODES, SERVICES, Ccm, eventually, initialised, node_body, set_ready

from .belongings import belongings, leftovers
from .conftest import run_ccm
from .customer import Site
from .peer import Peer
from .peer_services import Table, bodies, conf
from .test_services_and_routes import NO_ROUTES, quiet

SECONDS = 600.0


class Stage:
    def __init__(self, apiserver: ApiServer, kube: KubeClient, site: Site, folder: Path) -> None:
        self.apiserver, self.kube, self.site, self.folder = apiserver, kube, site, folder

    @contextlib.asynccontextmanager
    async def ours(self, text: str) -> AsyncIterator[None]:
        async with self._running(run_ccm(self.apiserver, self.site, self.folder, conf=text, **NO_ROUTES)):
            yield

    @contextlib.asynccontextmanager
    async def theirs(self, text: str, syncs: int) -> AsyncIterator[None]:
        async with self._running(Peer(self.apiserver, text, self.site.name, self.folder, syncs=syncs)):
            yield

    @contextlib.asynccontextmanager
    async def _running(self, process: Peer | Ccm) -> AsyncIterator[None]:
        self.site.rig.reset()
        self.site.rig.load_balancers(0.1)
        try:
            yield
        finally:
            await process.stop()
            print(process.text[-4000:])  # shown by pytest when the test failed

    async def create(self, services: Mapping[str, Mapping[str, Any]], table: Table) -> Mapping[str, Belongings]:
        hosts = [name for name, case in table.cases.items() if not case.shares]
        for name in hosts:
            await self.kube.create(SERVICES, services[name])
        await self._served(hosts, services)
        for name in services.keys() - set(hosts):
            host = (await self.look([table.cases[name].shares]))[table.cases[name].shares]
            body = dict(services[name])
            balancer = host.ids["load balancer", ""]
            annotations = {**body["metadata"]["annotations"], f"{PREFIX}load-balancer-id": balancer}
            await self.kube.create(SERVICES, {**body, "metadata": {**body["metadata"], "annotations": annotations}})
        await self._served(list(services), services)
        await quiet(self.site, 2.0)
        return await self.look(services)

    async def _served(self, names: list[str], services: Mapping[str, Mapping[str, Any]]) -> None:
        waits = [name for name in names if "loadBalancerClass" not in services[name]["spec"]]
        await rounds.served(self.kube, waits, SECONDS)

    async def look(self, names: Collection[str]) -> Mapping[str, Belongings]:
        found = [body for body in await rounds.bodies(self.kube) if body["metadata"]["name"] in names]
        return await asyncio.to_thread(belongings, self.site, found)

    async def take_over(self, services: Mapping[str, Any]) -> tuple[Mapping[str, Belongings], Counter[str]]:
        calls = await quiet(self.site)
        writes = Counter({call: count for call, count in calls.items() if " GET " not in call})
        return await self.look(services), writes

    async def delete(self, services: Mapping[str, Any], before: frozenset[str]) -> Counter[str]:
        await rounds.delete(self.kube, services, SECONDS)
        await quiet(self.site, 1.0)
        left = await asyncio.to_thread(leftovers, self.site)
        return Counter(each.split()[0] for each in left ^ before)


async def compare(stage: Stage, table: Table, names: Mapping[str, str]) -> Rounds:
    site, text = stage.site, conf(stage.site, table, names)
    services = bodies(table, names)
    before = await asyncio.to_thread(leftovers, site)
    async with stage.theirs(text, table.syncs):
        theirs = await stage.create(services, table)
    async with stage.ours(text):
        taken, writes = await stage.take_over(services)
        of_theirs = Seen(theirs, taken, writes, await stage.delete(services, before))
        await asyncio.to_thread(_delete_kept, site, before)
        ours = await stage.create(services, table)
    async with stage.theirs(text, table.syncs):
        given, writes = await stage.take_over(services)
        of_ours = Seen(ours, given, writes, await stage.delete(services, before))
    await asyncio.to_thread(_delete_kept, site, before)
    return Rounds(of_theirs, of_ours)


def _delete_kept(site: Site, before: frozenset[str]) -> None:
    """Remove floating IPs that a Service kept, so that each round starts from the same state."""
    for address in site.cloud.network.ips(project_id=site.project):
        if f"{type(address).__name__} {address.id}" not in before:
            site.cloud.network.delete_ip(address)


async def join(stage: Stage, count: int = 3) -> None:
    """Create Nodes for the site's servers, initialised by our runtime. The label `side` is "left" for two Nodes, and
    "right" for the others."""
    names = [f"node-{number}" for number in range(count)]
    async with stage.ours(stage.site.conf()):
        for number, name in enumerate(names):
            body = node_body(name, number=number + 1)
            body["metadata"]["labels"] = {"side": "left" if number < 2 else "right"}
            await stage.kube.create(NODES, body)
            await set_ready(stage.kube, name, "True")
        await eventually(lambda: initialised(stage.kube, *names), SECONDS)
