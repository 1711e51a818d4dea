# SPDX-License-Identifier: Apache-2.0
"""A cluster that never rests: random changes by people, kubelets and the cloud, which a seed repeats."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter

from ccm.engine.client import ConflictError, KubeClient, NotFoundError
from ccm.engine.objects import Node
from ccm_simcloud import strict
from ccm_simcloud.model import Instance, InstancePatch
from ccm_simcloud.testing import Simulator

from ..runtime.support import NODES, SERVICES, get_node, node_body, set_ready
from .audit import Witness


class Churn:
    """The changes of a cluster with `nodes` Nodes and `services` Services; `step` makes one change."""

    def __init__(
        self, kube: KubeClient, cloud: Simulator, witness: Witness, *, seed: int, nodes: int, services: int
    ) -> None:
        self.done: Counter[str] = Counter()
        self._kube, self._cloud, self._witness = kube, cloud, witness
        self._random = random.Random(seed)
        self._numbers = range(nodes)
        self._services = {f"web-{number}" for number in range(services)}
        self._absent: set[str] = set()  # Services that do not exist at the moment
        self._others = 0
        self._steps = {
            self.create_service: 4,
            self.delete_service: 3,
            self.change_ports: 3,
            self.change_type: 2,
            self.remove_instance: 3,
            self.replace_instance: 2,
            self.add_node: 6,
            self.remove_node: 1,
            self.stop_instance: 1,
            self.change_address: 1,
            self.others: 1,
        }

    async def begin(self) -> None:
        await asyncio.gather(*(self._register(number) for number in self._numbers))
        await asyncio.gather(*(self._create_service(name) for name in sorted(self._services)))

    async def run(self, per_second: float) -> None:
        """Make changes until cancelled."""
        while True:
            await self.changes(1, per_second)

    async def changes(self, count: int, per_second: float = 10.0) -> None:
        """Make `count` changes, at most `per_second` a second."""
        for _ in range(count):
            await asyncio.gather(self.step(), asyncio.sleep(1 / per_second))

    async def step(self) -> None:
        (action,) = self._random.choices(list(self._steps), list(self._steps.values()))
        try:
            await action()
            self.done[action.__name__] += 1
        except (NotFoundError, ConflictError):
            pass  # the runtime or an earlier step has changed the object meanwhile

    async def rest(self) -> None:
        """Start all stopped machines again, and let each Node be Ready if it has its own instance, otherwise not Ready.
        Then the expected final state is known."""
        for number in self._numbers:
            row = self._instance(number)
            node = await get_node(self._kube, name_of(number))
            if row is not None and row.state == "stopped":
                self._cloud.project().change_instance(row.id, InstancePatch(state="running"))
            if node is not None and row is not None and node.spec.provider_id == provider_id(row.id):
                await set_ready(self._kube, name_of(number), "True")
            elif node is not None:
                # The last step may have ended after it deleted the instance and before its kubelet fell silent; or the
                # Node is being deleted right now.
                with contextlib.suppress(NotFoundError):
                    await self._silence(number)

    # Services

    async def create_service(self) -> None:
        if self._absent:
            name = self._random.choice(sorted(self._absent))
            await self._create_service(name)
            self._absent.discard(name)

    async def _create_service(self, name: str) -> None:
        ports = [{"name": "http", "port": self._random.choice([80, 8080])}]
        body = {"metadata": {"name": name}, "spec": {"type": "LoadBalancer", "ports": ports, "selector": {"app": name}}}
        await self._kube.create(SERVICES, body)

    async def delete_service(self) -> None:
        if len(self._absent) > len(self._services) / 3:
            return  # while there is no leader, deleted Services stay, and cannot be created again
        name = self._random.choice(sorted(self._services - self._absent))
        await self._kube.delete(f"{SERVICES}/{name}")
        self._absent.add(name)

    async def change_ports(self) -> None:
        port = {"name": "http", "port": self._random.randrange(80, 90)}
        await self._patch_service({"spec": {"ports": [port]}})

    async def change_type(self) -> None:
        kind = self._random.choice(["ClusterIP", "LoadBalancer", "LoadBalancer"])
        await self._patch_service({"spec": {"type": kind}})

    async def _patch_service(self, patch: dict[str, object]) -> None:
        name = self._random.choice(sorted(self._services - self._absent))
        await self._kube.patch(f"{SERVICES}/{name}", patch)

    # Nodes

    async def add_node(self) -> None:
        """Register a Node that is missing, with a new machine if that is missing, too."""
        absent = [number for number in self._numbers if name_of(number) not in self._witness.present()]
        if absent:
            await self._register(self._random.choice(absent))

    async def _register(self, number: int) -> None:
        name = name_of(number)
        if self._instance(number) is None:
            self._cloud.add_instance(name, addresses=[{"type": "InternalIP", "address": self._address(number)}])
        await self._kube.create(NODES, node_body(name, number=number))
        await set_ready(self._kube, name, "True")

    async def remove_instance(self) -> None:
        """Delete an instance for good, unless many are gone. Its kubelet falls silent."""
        if self._many_are_gone():
            return
        number = self._random.choice(self._numbers)
        if (row := self._instance(number)) is not None:
            self._cloud.project().delete_instance(row.id)
        await self._silence(number)

    async def replace_instance(self) -> None:
        """Replace an instance by one of the same name: the old Node must be deleted before the new kubelet
        registers."""
        number = self._random.choice(self._numbers)
        row = self._instance(number)
        if row is None or self._many_are_gone():
            return
        self._cloud.project().delete_instance(row.id)
        self._cloud.add_instance(row.name, addresses=[{"type": "InternalIP", "address": self._address(number)}])
        await self._silence(number)

    async def remove_node(self) -> None:
        """Delete a Node as an administrator does, whatever the state of its instance."""
        name = name_of(self._random.choice(self._numbers))
        node = await self._kube.get(f"{NODES}/{name}", Node)
        self._witness.excused.add(node.metadata.uid)
        await self._kube.delete(f"{NODES}/{name}", uid=node.metadata.uid)

    async def stop_instance(self) -> None:
        number = self._random.choice(self._numbers)
        row = self._instance(number)
        if row is not None:
            self._cloud.project().change_instance(row.id, InstancePatch(state="stopped"))
            await self._silence(number)

    async def change_address(self) -> None:
        number = self._random.choice(self._numbers)
        row = self._instance(number)
        if row is not None:
            addresses = [{"type": "InternalIP", "address": self._address(number)}]
            self._cloud.project().change_instance(row.id, _patch(addresses))

    async def others(self) -> None:
        """Add somebody else's instance in the same account. Of more than 20, remove one."""
        self._others += 1
        self._cloud.add_instance(f"other-{self._others}")
        rows = [row for row in self._cloud.project().instances.rows.values() if row.name.startswith("other-")]
        if len(rows) > 20:
            self._cloud.project().delete_instance(self._random.choice(rows).id)

    def _many_are_gone(self) -> bool:
        """Return whether a quarter of the Nodes wait for their deletion. If half of them did, the runtime would rightly
        delete none. This could happen on a slow machine, where no leader lives long enough to delete one."""
        there = {provider_id(row.id) for row in self._cloud.project().instances.rows.values()}
        nodes = self._witness.provider_ids()
        return sum(1 for each in nodes.values() if each not in there) * 4 >= len(nodes)

    async def _silence(self, number: int) -> None:
        await set_ready(self._kube, name_of(number), "Unknown")

    def _instance(self, number: int) -> Instance | None:
        rows = self._cloud.project().instances.rows.values()
        return next((row for row in rows if row.name == name_of(number)), None)

    def _address(self, number: int) -> str:
        return f"10.{self._random.randrange(10, 100)}.{number}.{self._random.randrange(1, 255)}"


def name_of(number: int) -> str:
    return f"churn-{number}"


def provider_id(id_: str) -> str:
    return f"sim://north/{id_}"


def _patch(addresses: list[dict[str, str]]) -> InstancePatch:
    return strict.convert({"addresses": addresses}, InstancePatch, "")
