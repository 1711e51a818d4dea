# SPDX-License-Identifier: Apache-2.0
"""etcd is replaced while a process leads, by an empty etcd or an older state: nothing is deleted in the cloud. What a
person deletes is deleted there, too."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from ccm.engine.absence_rules import GRACE
from ccm.engine.client import KubeClient
from ccm_simcloud.testing import Simulator

from ..cluster import ApiServer
from .conftest import StartCcm
from .support import SERVICES, Ccm, eventually, get_service
from .test_services_and_routes import LIFECYCLE_OFF, balancers, nodes_of, served, service_body, targets

NODES, NAMES = 3, ("web", "api", "db")
FLAGS = {**LIFECYCLE_OFF, "route_reconciliation_period": "1s"}


@pytest.fixture
def apiserver(tmp_path: Path) -> Iterator[ApiServer]:
    """Yield an API server for one test, which may replace its data."""
    folder = tmp_path / "apiserver"
    folder.mkdir()
    server = ApiServer(folder)
    yield server
    server.close()


class Cluster:
    """Nodes with routes, and Services with load balancers. `before`: a copy of etcd without these Services."""

    def __init__(self, apiserver: ApiServer, kube: KubeClient, cloud: Simulator, ccm: Ccm) -> None:
        self.apiserver, self.kube, self.cloud, self.ccm = apiserver, kube, cloud, ccm
        self.before = Path()

    async def begin(self) -> None:
        await self.ccm.leading()
        await nodes_of(self.kube, self.cloud, "wrong-", NODES)
        await eventually(lambda: self._routes(NODES))
        self.before = await asyncio.to_thread(self.apiserver.save)
        for number, name in enumerate(NAMES):
            await eventually(lambda name=name, number=number: self._create(name, 80 + number))  # type: ignore[misc]
            await eventually(lambda name=name: served(self.kube, name))  # type: ignore[misc]
        await eventually(lambda: targets(self.cloud, NODES))

    async def _create(self, name: str, port: int) -> bool:
        await self.kube.create(SERVICES, service_body(name, port))
        return True

    async def _routes(self, count: int) -> bool:
        return len(self.cloud.project().routes.ids) == count

    def state(self) -> tuple[set[str], int, int]:
        """Return the load balancers' IDs, the number of members of each, and the number of routes."""
        found = balancers(self.cloud)
        members = {len(balancer.targets) for balancer in found}
        return {balancer.id for balancer in found}, members.pop(), len(self.cloud.project().routes.ids)

    async def audits(self) -> None:
        """Wait until the controller has compared the routes three more times."""
        before = self.cloud.calls("routes.list")
        await eventually(lambda: asyncio.sleep(0, self.cloud.calls("routes.list") > before + 2))

    def deletions(self) -> int:
        operations = ("load_balancers.delete", "routes.delete", "load_balancers.set_targets")
        return sum(len([each for each in self.cloud.journal(name) if each.write]) for name in operations)


@pytest.fixture
async def cluster(apiserver: ApiServer, kube: KubeClient, cloud: Simulator, start_ccm: StartCcm) -> Cluster:
    made = Cluster(apiserver, kube, cloud, start_ccm(**FLAGS))
    await made.begin()
    return made


async def test_a_snapshot_older_than_all_services_costs_nothing(cluster: Cluster, admin_token: str):
    state, deletions = cluster.state(), cluster.deletions()
    await asyncio.to_thread(cluster.apiserver.restore, cluster.before)
    await cluster.ccm.until_logged(r"services: 3 of 4 objects are missing from a list: the list is not trusted")
    await cluster.audits()
    assert (cluster.state(), cluster.deletions()) == (state, deletions)
    assert cluster.ccm.process.poll() is None
    _, metrics = await cluster.ccm.get("/metrics", admin_token)
    assert 'ccm_objects_doubted{name="services"} 3.0' in metrics
    assert 'ccm_lists_doubted_total{name="services"}' in metrics

    # A new Service is served, and an ordinary deletion does not wait for minutes, unlike a doubtful one.
    await cluster.kube.create(SERVICES, service_body("new", 90))
    await eventually(lambda: served(cluster.kube, "new"))
    await cluster.kube.delete(f"{SERVICES}/new")
    await eventually(lambda: asyncio.sleep(0, len(balancers(cluster.cloud)) == len(NAMES)), GRACE / 4)


async def test_an_empty_etcd_ends_the_process(cluster: Cluster, start_ccm: StartCcm):
    """The next process finds a cluster without Nodes. It deletes no routes, although the cloud shows only other
    instances, as with the credentials of another project."""
    state, deletions = cluster.state(), cluster.deletions()
    await asyncio.to_thread(cluster.apiserver.restore, None)
    assert await cluster.ccm.wait() == 1
    assert "serves another cluster than before: its Namespace kube-system has the UID" in cluster.ccm.text
    assert "Traceback" not in cluster.ccm.text
    assert (cluster.state(), cluster.deletions()) == (state, deletions)
    project = cluster.cloud.project()
    # This leaves the routes as they are, unlike a deletion.
    project._commit(*((project.instances, id, None) for id in list(project.instances.ids)))
    cluster.cloud.add_instance("theirs")
    again = start_ccm(**FLAGS)  # as the kubelet does
    await again.leading()
    await cluster.audits()
    assert (cluster.state(), cluster.deletions()) == (state, deletions)


async def test_an_ordinary_deletion_is_not_doubted(cluster: Cluster):
    await cluster.kube.delete(f"{SERVICES}/{NAMES[0]}")
    await eventually(lambda: asyncio.sleep(0, len(balancers(cluster.cloud)) == len(NAMES) - 1), GRACE / 4)
    assert (await get_service(cluster.kube, NAMES[1])).status.load_balancer.ingress
