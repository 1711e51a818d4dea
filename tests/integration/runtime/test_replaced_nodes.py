# SPDX-License-Identifier: Apache-2.0
"""No request is lost while every Node is cordoned or tainted, and rebooted or replaced, one after the other.

The API server and the controller are real, and so is every connection: those of clients, of the simulated cloud, and of
HTTP servers in place of machines, on addresses of 127.0.0.0/8. The same happens with upstream's framework in place of
the controller (tools/bench/peer), which loses some with the policy Cluster. REPLACE_ROUNDS, REPLACE_REQUESTS (how many
at least) and REPLACE_RATE (requests per second) make it longer and harder: `make requests`.

Nothing here depends on how busy the processor is: a request is lost if its connection breaks, or if it has no answer in
the end. How long an answer takes does not matter.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import random
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from bed import go_programs
from bed.progress import Progress
from ccm.engine.client import KubeClient
from ccm_simcloud import forward
from ccm_simcloud.testing import Simulator, running_simulator
from tests.ports import free_port

from .conftest import StartCcm
from .support import DEADLINE, NODES, SERVICES, eventually, get_service, initialised, node_body

ROUNDS, RATE = int(os.environ.get("REPLACE_ROUNDS", "1")), float(os.environ.get("REPLACE_RATE", "100"))
REQUESTS = int(os.environ.get("REPLACE_REQUESTS", "100"))
#: Seconds: the longest answer of an application, and the operator's wait. The wait starts when the load balancer sends
#: no new requests to the Node, or, if that never happens, at the cordon or the taint.
SLOWEST, WAIT = 0.4, 3.0
#: The requests of a connection, one after the other, and each answer.
PER_CONNECTION, ANSWER = 10, b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nserved"
#: How many connections are open at most: twice as many as usual.
OPEN = math.ceil(RATE * SLOWEST)
#: Turns of the event loop without a connection after which a machine counts as idle.
LOOKS = 50
#: Runs upstream's framework, whose path is the first argument, in place of our runtime.
UPSTREAM = "import os, sys; os.execv(sys.argv[1], sys.argv[1:])"
UPSTREAMS = "*,-cloud-node-lifecycle-controller,-node-route-controller"
TAINT = {"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}
SIGNS: dict[str, dict[str, Any]] = {"cordon": {"unschedulable": True}, "taint": {"taints": [TAINT]}}
CALM = {"unschedulable": None, "taints": None}


@pytest.fixture
async def cloud(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Simulator]:
    """Clients, load balancer and machines share one event loop here, and machines that are off refuse connections at
    once. So a connection that takes seconds means a busy processor, and the load balancer waits for it."""
    monkeypatch.setattr(forward, "CONNECT", 60.0)
    project = {"name": "demo", "token": "t", "region": "north", "load_balancer_addresses": "127.0.77.10-127.0.77.99"}
    async with running_simulator({"projects": [project]}, fabric=True) as simulator:
        yield simulator


@dataclass
class Machine:
    """A machine with the node port of one Service. With the policy Cluster, it forwards to Pods elsewhere while it
    runs.

    `ready`: with the policy Local, whether its Pods of the Service are not yet terminating. `accepted`, `answered`: how
    many connections and requests there were, without the health check's connections, which ask nothing.
    """

    address: str
    ports: tuple[int, int]
    ready: bool = True
    accepted: int = 0
    answered: int = 0
    _servers: list[asyncio.Server] = field(default_factory=list)
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)

    async def start(self) -> None:
        node_port, health_port = self.ports
        self._servers = [await asyncio.start_server(self._serve, self.address, node_port, backlog=1024)]
        if health_port:
            self._servers.append(await asyncio.start_server(self._health, self.address, health_port))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        asked = 0
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while await reader.readuntil(b"\r\n\r\n"):
                asked += 1
                self.accepted += asked == 1
                await asyncio.sleep(random.uniform(0.0, SLOWEST))
                writer.write(ANSWER)
                await writer.drain()
                self.answered += 1
        self._writers.discard(writer)
        writer.close()

    async def _health(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            await reader.readline()
            writer.write(b"HTTP/1.0 200 OK\r\n\r\n" if self.ready else b"HTTP/1.0 503 Service Unavailable\r\n\r\n")
            await writer.drain()
        writer.close()

    @property
    def serves(self) -> bool:
        """Whether a client is connected to the node port."""
        return bool(self._writers)

    def die(self) -> None:
        """Switch the machine off, which breaks its connections."""
        for server in self._servers:
            server.close()
        for writer in list(self._writers):
            writer.transport.abort()
        self._writers.clear()


class Clients:
    """The clients. `sent`: the number of requests. `results`: counts of "served" and of each kind of failure."""

    def __init__(self, address: str, port: int) -> None:
        self._to, self.sent, self.results = (address, port), 0, Counter[str]()

    async def run(self) -> None:
        """Open RATE / PER_CONNECTION connections a second, whether or not earlier ones have ended. At most OPEN are
        open, so that a machine that drains is soon without any. When cancelled, wait for answers; at the second time,
        give up."""
        rate, open_ = RATE / PER_CONNECTION, asyncio.Semaphore(OPEN)

        async def one() -> None:
            async with open_:
                await self._connection()

        async with asyncio.TaskGroup() as requests:
            with contextlib.suppress(asyncio.CancelledError):  # then wait for the open requests
                loop = asyncio.get_running_loop()
                due = loop.time()
                while True:
                    await asyncio.sleep(max(1 / rate, 0.01))
                    due = max(due, loop.time() - 0.1)  # what a busy machine missed is not sent at once
                    while due < loop.time():
                        due += 1 / rate
                        if not open_.locked():
                            requests.create_task(one())

    async def _connection(self) -> None:
        self.sent += 1
        try:
            reader, writer = await asyncio.open_connection(*self._to)
        except OSError as error:
            self.results[type(error).__name__] += 1
            return
        try:
            for number in range(PER_CONNECTION):
                self.sent += number > 0
                writer.write(b"GET / HTTP/1.1\r\n\r\n")
                await reader.readexactly(len(ANSWER))
                self.results["served"] += 1
        except (OSError, asyncio.IncompleteReadError) as error:
            self.results[type(error).__name__] += 1
        finally:
            writer.close()

    @property
    def lost(self) -> int:
        """How many requests failed or have no answer yet."""
        return self.sent - self.results["served"]


class World:
    """A cluster of three machines with one Service, and the operator's actions."""

    def __init__(self, kube: KubeClient, cloud: Simulator, drains: bool, sign: str, policy: str) -> None:
        self.kube, self.cloud, self.sign, self.local = kube, cloud, sign, policy == "Local"
        self.drains = drains
        self.machines: dict[str, Machine] = {}
        self._born, self._ports = 0, (0, 0)

    async def serve(self) -> Clients:
        spec: dict[str, Any] = {
            "type": "LoadBalancer",
            "selector": {"app": "web"},
            "externalTrafficPolicy": "Local" if self.local else "Cluster",
            "ports": [{"name": "http", "port": free_port(), "protocol": "TCP"}],
        }
        body = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": spec}
        await self.kube.create(SERVICES, body)
        service = await get_service(self.kube, "web")
        self._ports = service.spec.ports[0].node_port, service.spec.health_check_node_port

        async def address() -> str:
            found = await get_service(self.kube, "web")
            return found.status.load_balancer.ingress[0].ip if found.status.load_balancer.ingress else ""

        # Upstream's framework forgets a Node that becomes a target while it creates the load balancer.
        await eventually(address, what="a load balancer")
        for _ in range(3):
            await self.join()

        async def forwarded() -> str:
            to = await address()
            return to if self.cloud.forwards("TCP", to, spec["ports"][0]["port"]) else ""

        return Clients(await eventually(forwarded), spec["ports"][0]["port"])

    async def join(self) -> None:
        """Let a machine with a new name and a new address join."""
        self._born += 1
        name, address = f"replaced-{self._born}", f"127.0.78.{self._born}"
        self.machines[name] = machine = Machine(address, self._ports)
        await machine.start()
        known = [{"type": "InternalIP", "address": address}]  # as a kubelet with --node-ip registers
        self.cloud.add_instance(name, addresses=known)
        await self.kube.create(NODES, {**node_body(name), "status": {"addresses": known}})
        await eventually(lambda: initialised(self.kube, name))
        await eventually(lambda: self._is_target(address))
        await eventually(lambda: self._is_healthy(machine, True))

    async def _drains(self, address: str) -> bool:
        return any(each.address == address and each.draining for each in self._targets())

    async def _is_healthy(self, machine: Machine, healthy: bool) -> bool:
        """Return whether the load balancer's health check has this result for the machine."""
        key = machine.address, machine.ports[0]
        found = [each.pool.backends[key] for each in self.cloud.fabric.listeners if key in each.pool.backends]
        return any(each.healthy for each in found) is healthy

    async def _is_idle(self, machine: Machine) -> bool:
        """Return whether nobody is connected to the machine or connects within LOOKS turns of the event loop."""
        for _ in range(LOOKS):
            if machine.serves:
                return False
            await asyncio.sleep(0)
        return True

    async def _until_idle(self, machine: Machine) -> None:
        """Wait until nobody is connected to a machine that gets no new connections. Each answer brings the end nearer,
        and so only a wait without an answer is limited in time: on a busy processor, the answers take minutes."""
        accepted = machine.accepted
        while not await self._is_idle(machine):
            answered = machine.answered

            async def goes_on(before: int = answered) -> bool:
                return machine.answered > before or not machine.serves

            await eventually(goes_on, what=f"{machine.address} has connections, and answers no request")
            assert machine.accepted - accepted <= OPEN, "it still gets new connections"

    async def _serves(self, machine: Machine) -> bool:
        return machine.serves

    async def _is_target(self, address: str) -> bool:
        return any(each.address == address and not each.draining for each in self._targets())

    def _targets(self) -> list[Any]:
        return [each for row in self.cloud.project().load_balancers.rows.values() for each in row.targets]

    async def leave(self, name: str) -> None:
        """Cordon or taint the Node, wait until it drains or, with the policy Local, until its Pods are evicted, wait as
        the operator does, and switch the machine off. A request is under way at the cordon or the taint, and if nothing
        drains, also when the machine goes off."""
        machine = self.machines[name]
        await eventually(lambda: self._serves(machine))
        await self.kube.patch(f"{NODES}/{name}", {"spec": SIGNS[self.sign]})
        if self.local:
            machine.ready = False  # they serve until the end of their preStop hooks
            await eventually(lambda: self._is_healthy(machine, False))
        elif self.drains:
            await eventually(lambda: self._drains(machine.address))
        await asyncio.sleep(WAIT)
        if self.drains or self.local:
            await self._until_idle(machine)
        else:
            await eventually(lambda: self._serves(machine))
        machine.die()

    async def reboot(self, name: str) -> None:
        await self.leave(name)
        await asyncio.sleep(1.0)
        machine = self.machines[name]
        machine.ready = True
        await machine.start()
        await self.kube.patch(f"{NODES}/{name}", {"spec": CALM})
        await eventually(lambda: self._is_target(machine.address))
        await eventually(lambda: self._is_healthy(machine, True))

    async def replace(self, name: str) -> None:
        await self.leave(name)
        await self.kube.delete(f"{NODES}/{name}")
        table = self.cloud.project().instances
        self.cloud.project().delete_instance(next(id_ for id_, row in table.rows.items() if row.name == name))
        del self.machines[name]
        await self.join()


async def lost_while_nodes_go(
    kube: KubeClient, cloud: Simulator, start_ccm: StartCcm, mode: str, sign: str, policy: str
) -> int:
    """Reboot or replace each machine in turn under traffic; return how many requests were lost. `mode`: the value of
    --load-balancer-drain-nodes, or "upstream" for upstream's framework."""
    if mode == "upstream":
        path = await asyncio.to_thread(go_programs.ensure, "peer", Progress())
        start_ccm(program=("-c", UPSTREAM, str(path)), configure_cloud_routes="false", controllers=UPSTREAMS)
    else:
        await start_ccm(controllers="*,-cloud-node-lifecycle", load_balancer_drain_nodes=mode).leading()
    world = World(kube, cloud, mode != "upstream", sign, policy)
    clients = await world.serve()
    traffic = asyncio.create_task(clients.run())
    turn = 0
    while turn < ROUNDS or clients.sent < REQUESTS:
        turn += 1
        for number, name in enumerate(list(world.machines)):
            await (world.replace if (turn + number) % 2 else world.reboot)(name)
        print(f"{clients.sent} requests, {clients.lost} lost or under way, load {os.getloadavg()[0]:.0f}", flush=True)
    for _ in range(2):  # the second time, a request without an answer is lost
        traffic.cancel()
        await asyncio.wait({traffic}, timeout=DEADLINE)
    for machine in world.machines.values():
        machine.die()
    print(f"{mode}, {sign}, {policy}: {clients.sent} requests, {clients.lost} lost: {dict(clients.results)}")
    assert clients.results["served"]
    return clients.lost


@pytest.mark.parametrize(
    ("mode", "sign", "policy"),
    [("cordoned", "cordon", "Cluster"), ("cordoned", "cordon", "Local"), ("leaving", "taint", "Cluster")],
)
async def test_no_request_is_lost_when_nodes_go(
    kube: KubeClient, cloud: Simulator, start_ccm: StartCcm, mode: str, sign: str, policy: str
) -> None:
    assert await lost_while_nodes_go(kube, cloud, start_ccm, mode, sign, policy) == 0


@pytest.mark.parametrize(("sign", "policy"), [("cordon", "Cluster"), ("taint", "Cluster"), ("cordon", "Local")])
async def test_upstream_loses_requests_when_nodes_go(
    kube: KubeClient, cloud: Simulator, start_ccm: StartCcm, sign: str, policy: str
) -> None:
    """With the policy Cluster, a cordoned or tainted Node gets requests until its machine goes off. With the policy
    Local, none is lost: the health check follows the Pods, whatever the controller does."""
    lost = await lost_while_nodes_go(kube, cloud, start_ccm, "upstream", sign, policy)
    assert (lost > 0) is (policy == "Cluster")
