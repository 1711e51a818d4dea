# SPDX-License-Identifier: Apache-2.0
"""Three clouds in one process, beside a controller on upstream's framework: if one cloud fails or changes, no object of
another cloud is written because of it, as the API server's audit log shows.

The clouds are OpenStack, the simulated cloud under the name metro, and machines in a file. Each cloud has the same
number of Nodes, and of Services, which name the cloud by their class. The framework has a cloud of its own, and the
Services without a class. While one cloud is down, only new Nodes of the others are written. While machines of one cloud
are deleted, only objects of that cloud are written.

`AUDITED=full` has 500 Nodes and 100 Services in each cloud, and deletes 200 machines.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import re
import subprocess
from collections.abc import AsyncIterator, Awaitable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bed import go_programs
from bed.progress import Progress
from ccm.engine.client import KubeClient
from ccm.engine.objects import Node, Service
from tests.ports import free_port

from ..cluster import ApiServer
from . import audited_clouds
from .audited_clouds import AuditedCloud, SimulatedCloud
from .conftest import StartCcm
from .support import NODES, SERVICES, Ccm, eventually, initialised, node_body, set_ready

# The first run on a machine builds the framework.
pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]


@dataclass(frozen=True)
class Size:
    """`nodes`, `services`: the number in each cloud. `going`: how many machines of one cloud are deleted. `passes`: how
    many times each cloud's controller checks the Nodes during an outage. `quiet`: after this many checks without a
    write, nothing is left to do.
    """

    nodes: int
    services: int
    going: int
    passes: int
    quiet: int


SMALL = Size(12, 4, 5, 10, 15)
#: At the default period of 5 s, 360 checks take 30 minutes.
FULL = Size(500, 100, 200, 360, 40)
OURS, PEERS = "ccm-audited", "peer-audited"
#: Seconds after which a wait fails: more than a busy machine needs.
PATIENCE = 900.0
#: Nodes of each cloud whose kubelets are silent during an outage: only those are asked about, and could be deleted.
SILENT = 3
EXCLUDED = {"node.kubernetes.io/exclude-from-external-load-balancers": ""}
WRITES = ("create", "update", "patch", "delete", "deletecollection")


@pytest.fixture(scope="module")
def apiserver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """Start an API server for this file alone, with an audit log."""
    server = ApiServer(tmp_path_factory.mktemp("audited"), audit=True)
    yield server
    server.close()


class World:
    """The clouds, a process that serves them, and what it wrote since the last `mark`."""

    def __init__(
        self,
        kube: KubeClient,
        server: ApiServer,
        clouds: list[AuditedCloud],
        peers: SimulatedCloud,
        folder: Path,
        size: Size,
    ) -> None:
        self.kube, self.server, self.size, self.peers, self._folder = kube, server, size, peers, folder
        self.clouds = {each.name: each for each in clouds}
        self.files = {each.name: folder / f"{each.name}.conf" for each in clouds}
        self._begins = {OURS: 0, PEERS: 0}
        self._calls: dict[str, int] = {}

    @property
    def names(self) -> list[str]:
        return list(self.clouds)

    def write_configs(self, **secrets: str) -> None:
        """Write the clouds' configuration files. `secrets`: by cloud, the secret to write instead of the cloud's
        own.
        """
        for name, cloud in self.clouds.items():
            self.files[name].write_text(cloud.conf(secrets.get(name, cloud.secret)))

    async def start(self, start_ccm: StartCcm) -> None:
        self.ccm: Ccm = start_ccm(
            program=audited_clouds.with_metro(self._folder),
            kubeconfig=self.server.kubeconfig(OURS),
            cloud_provider=",".join(self.names),
            cloud_config=",".join(f"{name}={path}" for name, path in self.files.items()),
            load_balancer_class=",".join(f"example.com/{name}={name}" for name in self.names),
            default_load_balancer_provider="none",
            configure_cloud_routes="false",
            node_monitor_period="200ms",
            node_deletion_min_age="0s",
            node_deletion_cap="100%",
            node_status_update_frequency="5s",
            orphan_audit_period="10s",
            kube_api_qps=500,
            kube_api_burst=500,
            concurrent_service_syncs=10,
        )
        await self.ccm.leading()

    @contextlib.asynccontextmanager
    async def peer(self, program: Path) -> AsyncIterator[None]:
        """Run upstream's framework with its own cloud and Lease."""
        conf, log = self._folder / "peer.conf", self._folder / "peer.log"
        conf.write_text(self.peers.conf(self.peers.secret))
        flags = {
            "cloud-provider": "sim",
            "cloud-config": conf,
            "kubeconfig": self.server.kubeconfig(PEERS),
            "leader-elect-resource-name": "upstream",
            "configure-cloud-routes": "false",
            "bind-address": "127.0.0.1",
            "secure-port": free_port(),
        }
        with log.open("wb") as output:
            arguments = [str(program), *(f"--{name}={value}" for name, value in flags.items())]
            process = await asyncio.to_thread(subprocess.Popen, arguments, stdout=output, stderr=output)
        try:
            yield
            assert process.poll() is None, log.read_text()[-4000:]
        finally:
            process.kill()
            process.wait(10)

    async def in_parallel(self, *work: Awaitable[Any], at_once: int = 20) -> None:
        slots = asyncio.Semaphore(at_once)

        async def one(job: Awaitable[Any]) -> None:
            async with slots:
                await job

        await asyncio.gather(*map(one, work))

    async def register(self, name: str, **labels: str) -> None:
        """Register a Node that is Ready from the first moment: upstream deletes others that its cloud does not have."""
        body = node_body(name)
        body["metadata"]["labels"] = labels
        body["status"] = {"conditions": [{"type": "Ready", "status": "True", "reason": "Test", "message": ""}]}
        await self.kube.create(NODES, body)

    async def serve(self, cloud: str, number: int) -> None:
        spec: dict[str, Any] = {"type": "LoadBalancer", "ports": [{"port": 80}]}
        spec |= {} if cloud == "peer" else {"loadBalancerClass": f"example.com/{cloud}"}
        await self.kube.create(SERVICES, {"metadata": {"name": f"{cloud}-{number}"}, "spec": spec})

    async def addresses(self) -> dict[str, list[str]]:
        """Return the addresses of each Service that wants a load balancer."""
        services, _ = await self.kube.list(SERVICES, Service)
        ours = [each for each in services if each.spec.type == "LoadBalancer"]
        return {each.metadata.name: [entry.ip for entry in each.status.load_balancer.ingress] for each in ours}

    async def are_served(self) -> bool:
        addresses = await self.addresses()
        return len(addresses) == self.size.services * (len(self.clouds) + 1) and all(addresses.values())

    async def are_initialised(self) -> bool:
        nodes, _ = await self.kube.list(NODES, Node)
        every = self.size.nodes * len(self.clouds) + self.size.services
        return len(nodes) == every and all(node.spec.provider_id for node in nodes)

    async def nodes(self) -> set[str]:
        nodes, _ = await self.kube.list(NODES, Node)
        return {node.metadata.name for node in nodes}

    async def passes(self) -> float:
        """Return how many times the controllers of all clouds have checked the Nodes."""
        _, page = await self.ccm.get("/metrics", self.server.token)
        name = "cloud_node_lifecycle_controller_monitor_nodes_duration_seconds_count"
        found = re.search(rf"^{name} (\S+)$", page, re.MULTILINE)
        assert found is not None
        return float(found[1])

    async def let_pass(self) -> None:
        """Wait until each cloud's controller has checked the Nodes `Size.passes` more times."""
        until = await self.passes() + self.size.passes * len(self.clouds)

        async def passed() -> bool:
            return await self.passes() >= until

        await eventually(passed, PATIENCE)

    def audited(self, user: str) -> list[tuple[str, str, str]]:
        """Return verb, resource and name of each write of a user to a Node or Service."""
        return [
            (each["verb"], each["objectRef"]["resource"], each["objectRef"].get("name", ""))
            for each in self.server.audited(user)
            if each["verb"] in WRITES and each.get("objectRef", {}).get("resource") in ("nodes", "services")
        ]

    async def settle(self) -> None:
        """Wait until no Service reports that it waits, and neither process has written anything during `Size.quiet`
        checks of the Nodes.

        A Service whose cloud was down may wait for its next attempt for five minutes.
        """

        async def no_service_waits() -> bool:
            services = (await self.kube.get(SERVICES, dict))["items"]
            return not any(service["status"].get("conditions") for service in services)

        while True:
            await eventually(no_service_waits, PATIENCE)
            before = [len(self.audited(user)) for user in (OURS, PEERS)], self._now()
            until = await self.passes() + self.size.quiet * len(self.clouds)
            while await self.passes() < until:
                await asyncio.sleep(0.2)
            if before == ([len(self.audited(user)) for user in (OURS, PEERS)], self._now()):
                return

    def mark(self) -> None:
        self._begins = {user: len(self.audited(user)) for user in (OURS, PEERS)}
        self._calls = self._now()

    def _now(self) -> dict[str, int]:
        return {name: cloud.writes() for name, cloud in {**self.clouds, "peer": self.peers}.items()}

    def written(self, user: str = OURS) -> set[tuple[str, str, str]]:
        """Return the writes to Nodes and Services since the mark."""
        return set(self.audited(user)[self._begins[user] :])

    def changed(self) -> set[str]:
        """Return the clouds in which something was changed since the mark."""
        return {name for name, count in self._now().items() if count != self._calls[name]}


@pytest.fixture
async def world(
    kube: KubeClient, apiserver: ApiServer, start_ccm: StartCcm, tmp_path: Path
) -> AsyncIterator[World]:
    size = FULL if os.environ.get("AUDITED") == "full" else SMALL
    program = await asyncio.to_thread(go_programs.ensure, "peer", Progress())
    async with audited_clouds.running(tmp_path) as (clouds, peers):
        found = World(kube, apiserver, clouds, peers, tmp_path, size)
        names = {each: [f"{each}-{number}" for number in range(size.nodes)] for each in found.names}
        for net, cloud in enumerate(clouds, 1):
            cloud.add_machines(names[cloud.name], net)
        names["peer"] = [f"peer-{number}" for number in range(size.services)]
        peers.add_machines(names["peer"], 9)
        found.write_configs()
        async with found.peer(program):
            await found.start(start_ccm)
            await found.in_parallel(*(found.register(each) for each in itertools.chain.from_iterable(names.values())))
            await eventually(found.are_initialised, PATIENCE)
            served = [(cloud, number) for cloud in (*found.names, "peer") for number in range(size.services)]
            await found.in_parallel(*(found.serve(*each) for each in served))
            await eventually(found.are_served, PATIENCE)
            await found.settle()
            yield found
            await found.ccm.stop()


async def test_what_happens_in_one_cloud_is_written_to_no_other_one(world: World) -> None:
    kube, size = world.kube, world.size
    # Since the start, each controller has written only to its own objects. Ours has no access to the framework's cloud.
    assert not {name for _, _, name in set(world.audited(OURS)) if name.startswith("peer-")}
    assert {name.partition("-")[0] for _, _, name in set(world.audited(PEERS))} == {"peer"}
    nodes, addresses = await world.nodes(), await world.addresses()

    for number, (down, cloud) in enumerate(world.clouds.items()):
        healthy = [name for name in world.names if name != down]
        silent = [f"{name}-{each}" for name in world.names for each in range(SILENT)]
        await world.in_parallel(*(set_ready(kube, name, "Unknown") for name in silent))
        await world.settle()
        world.mark()
        cloud.go_down()
        newcomers = {f"{name}-new{number}" for name in healthy}
        for name in healthy:
            world.clouds[name].add_machines([f"{name}-new{number}"], 20 + number)
        await world.in_parallel(*(world.register(name, **EXCLUDED) for name in newcomers))
        await eventually(lambda names=newcomers: initialised(kube, *names), PATIENCE)  # type: ignore[misc]
        await world.let_pass()
        assert {name for _, _, name in world.written()} == newcomers, f"{down} is down"
        assert (world.written(PEERS), world.changed()) == (set(), set()), f"{down} is down"
        nodes |= newcomers
        assert await world.nodes() == nodes, f"{down} is down"
        cloud.come_back()
        await world.in_parallel(*(set_ready(kube, name, "True") for name in silent))
        await world.settle()

    # The credentials of two clouds are swapped: both refuse them, and the former ones stay in use.
    first, second = (each for each in world.clouds.values() if each.secret)
    world.mark()
    world.write_configs(**{first.name: second.secret, second.name: first.secret})

    async def are_refused() -> bool:
        _, page = await world.ccm.get("/metrics", world.server.token)
        refused = re.findall(r'^ccm_cloud_config_reloads_total{cloud="(\w+)",result="refused"} [1-9]', page, re.M)
        return set(refused) == {first.name, second.name}

    await eventually(are_refused, PATIENCE)
    await world.let_pass()
    assert (world.written(), world.written(PEERS), world.changed()) == (set(), set(), set())
    assert await world.nodes() == nodes
    world.write_configs()
    await world.settle()

    # Machines of one cloud are deleted: their Nodes go, and nothing of another cloud is written.
    going = {f"{first.name}-{number}" for number in range(size.going)}
    world.mark()
    first.delete_machines(going)
    await world.in_parallel(*(set_ready(kube, name, "Unknown") for name in sorted(going)))

    async def are_gone() -> bool:
        return not going & await world.nodes()

    await eventually(are_gone, PATIENCE)
    await world.settle()
    written = world.written()
    assert {name for verb, _, name in written if verb == "delete"} == going
    assert {name for _, resource, name in written if resource == "nodes"} == going
    assert {name.partition("-")[0] for _, _, name in written} == {first.name}
    # The framework removes Nodes that are not Ready from its own load balancers, whichever cloud the Nodes belong to.
    assert (world.written(PEERS), world.changed() - {"peer"}) == (set(), {first.name})
    assert await world.nodes() == nodes - going
    # The remaining machines were written to the load balancers that the Services had: none was replaced.
    assert await world.addresses() == addresses
