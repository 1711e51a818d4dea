# SPDX-License-Identifier: Apache-2.0
"""The node controllers with the real engine and gateway, in virtual time.

Only the API server, the cloud and the notes on the Lease are doubles.
"""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Callable
from typing import Any

from ccm.base.clock import SystemClock
from ccm.cloud import Address, AddressType, Cloud, Instance, Limits, NotFound, Page, ProviderConfig
from ccm.controllers.nodes.node import NodeController, NodeOptions
from ccm.controllers.nodes.node_label_rules import Refresh
from ccm.controllers.nodes.node_lifecycle import LifecycleOptions, NodeLifecycleController
from ccm.controllers.nodes.node_lifecycle_rules import Safety
from ccm.controllers.nodes.vouching import Vouching
from ccm.controllers.shared.cache_rules import kept_node, kept_service
from ccm.controllers.shared.context import Context
from ccm.engine.api_errors import ApiError
from ccm.engine.events import EventRecorder
from ccm.engine.informer import Informer
from ccm.engine.objects import Node, Service
from ccm.gateway.gateway import Gateway
from tests.kube_in_memory import KubeInMemory

from ..gateway.virtual import now

TAINT = {"key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule"}
SHUTDOWN = {"key": "node.cloudprovider.kubernetes.io/shutdown", "effect": "NoSchedule"}
NODE_IP = "alpha.kubernetes.io/provided-node-ip"
START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


class LoopClock(SystemClock):
    """The loop's virtual time. `skew`: seconds by which the wall clock is ahead."""

    skew = 0.0

    def monotonic(self) -> float:
        return now()

    def now(self) -> datetime.datetime:
        return START + datetime.timedelta(seconds=now() - 1000.0 + self.skew)


class Api(KubeInMemory):
    """An API server with Nodes and Events. `fault`, before the work, may return an error to raise."""

    def __init__(self) -> None:
        super().__init__("nodes")
        self.fault: Callable[[str, str], Exception | None] = lambda verb, path: None

    def refusal(self, verb: str, path: str, patch: dict[str, Any]) -> Exception | None:
        return self.fault(verb, path)

    # Changes that others make to the cluster.

    def add(
        self,
        name: str,
        *,
        tainted: bool = True,
        ready: str | None = None,
        age: float = 3600.0,
        labels: dict[str, str] | None = None,
        annotations: dict[str, str] | None = None,
        addresses: tuple[tuple[str, str], ...] = (),
        taints: tuple[dict[str, str], ...] = (),
        **spec: Any,
    ) -> dict[str, Any]:
        """Create a Node. `age`: seconds by the API server's clock. `ready`: the condition's status, or None."""
        created = START + datetime.timedelta(seconds=now() - 1000.0 - age)
        node = {
            "metadata": {
                "name": name,
                "uid": f"uid-{self.store.version}",
                "creationTimestamp": created.strftime("%Y-%m-%dT%H:%M:%SZ"),
                "labels": labels or {},
                "annotations": annotations or {},
            },
            "spec": {**spec, "taints": [*taints, *([TAINT] if tainted else [])]},
            "status": {
                "addresses": [{"type": kind, "address": address} for kind, address in addresses],
                "conditions": [] if ready is None else [{"type": "Ready", "status": ready}],
            },
        }
        self.put("nodes", node)
        return node

    def change(self, name: str, patch: dict[str, Any]) -> None:  # type: ignore[override]
        super().change("nodes", name, patch)

    def set_ready(self, name: str, status: str) -> None:
        self.change(name, {"status": {"conditions": [{"type": "Ready", "status": status}]}})

    def remove(self, name: str) -> None:  # type: ignore[override]
        super().remove("nodes", name)

    # What tests read.

    @property
    def nodes(self) -> dict[str, dict[str, Any]]:
        return self.objects["nodes"]

    def count(self, verb: str, part: str = "/nodes/") -> int:
        return sum(1 for found, path in self.requests if found == verb and part in path)

    def tainted(self, name: str, key: str = TAINT["key"]) -> bool:
        return any(taint["key"] == key for taint in self.nodes[name]["spec"].get("taints", []))

    def addresses(self, name: str) -> list[tuple[str, str]]:
        return [(a["type"], a["address"]) for a in self.nodes[name]["status"].get("addresses", [])]

    def labels(self, name: str) -> dict[str, str]:
        return self.nodes[name]["metadata"]["labels"]


def machine(name: str, ip: str = "10.0.0.1", provider_id: str = "", **fields: Any) -> Instance:
    addresses = (Address(AddressType.INTERNAL_IP, ip),) if ip else ()
    return Instance(provider_id or f"fake://{name}", name, addresses=addresses, **fields)


class Machines:
    """The instances of a cloud.

    `error` is raised by every call. `answer` gets each answer and returns the one to give instead. `calls`: "list",
    "page", "get ID", or "get NAME" for an instance without an ID.
    """

    def __init__(self, *machines: Any) -> None:
        self.all: list[Any] = list(machines)
        self.calls: list[str] = []
        self.error: BaseException | None = None
        self.answer: Callable[[Any], Any] = lambda found: found
        self.latency = 0.05
        self.page = 1000

    def remove(self, name: str) -> None:
        self.all = [machine for machine in self.all if machine.name != name]

    def put(self, new: Instance) -> None:
        self.remove(new.name)
        self.all.append(new)

    async def _answer(self, call: str, find: Callable[[], Any]) -> Any:
        self.calls.append(call)
        found: Any = None
        try:
            found = find()  # the state at the start of the call, returned after `latency`
        except NotFound as error:
            found = error
        await asyncio.sleep(self.latency)
        if self.error is not None:
            raise self.error
        if isinstance(found, NotFound):
            raise found
        return self.answer(found)

    async def list_page(self, token: str | None) -> Page:
        def page() -> Page:
            first, last = int(token or 0), int(token or 0) + self.page
            return Page(self.all[first:last], str(last) if len(self.all) > last else None)

        return await self._answer("list" if token is None else "page", page)

    async def get(self, ref: Any) -> Instance:
        def find() -> Instance:
            for each in self.all:
                if isinstance(each, Instance) and (
                    each.provider_id == ref.provider_id if ref.provider_id else each.name == ref.node_name
                ):
                    return each
            raise NotFound(f"no instance {ref.provider_id or ref.node_name}")

        return await self._answer(f"get {ref.provider_id or ref.node_name}", find)

    def owns(self, provider_id: str) -> bool:
        return provider_id.startswith("fake://")


class FakeCloud(Cloud):
    name = "fake"

    def __init__(self, machines: Machines) -> None:
        super().__init__(ProviderConfig())
        self.instances = machines
        self.limits = Limits(calls_per_second=1e6, burst=10**6, concurrency=1000, deadline=10.0)


class Notes:
    """Notes that a leader leaves for the next one. `failure` is raised by both methods."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.failure: ApiError | None = None

    async def read(self, key: str) -> str | None:
        if self.failure:
            raise self.failure
        return self.texts.get(key)

    async def write(self, key: str, text: str) -> None:
        if self.failure:
            raise self.failure
        self.texts[key] = text


class Cluster:
    """An API server, a cloud, and the process between them. An async context manager."""

    def __init__(self, *machines: Any) -> None:
        self.api, self.cloud, self.clock, self.notes = Api(), Machines(*machines), LoopClock(), Notes()

    async def __aenter__(self) -> Cluster:
        self.gateway = Gateway(FakeCloud(self.cloud), clock=now)
        self.nodes: Informer[Node] = Informer(
            self.api, "/api/v1/nodes", Node, name="nodes", keep=kept_node, clock=self.clock
        )
        services: Informer[Service] = Informer(
            self.api, "/api/v1/services", Service, name="services", keep=kept_service
        )
        self._tasks = [asyncio.create_task(self.nodes.run())]
        self._recorders: dict[str, EventRecorder] = {}
        self.context = Context(
            self.api,  # type: ignore[arg-type]
            self.gateway,
            self.nodes,
            services,
            self._recorder,
            "kubernetes",
            self.notes,
            monotonic=now,
            now=self.clock.now,
        )
        self.vouching = Vouching(self.context)
        await self.nodes.wait_synced()
        await asyncio.sleep(0)
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.gateway.close()

    def _recorder(self, component: str) -> EventRecorder:
        if component not in self._recorders:
            recorder = EventRecorder(self.api, component, host="test", clock=self.clock)  # type: ignore[arg-type]
            self._recorders[component] = recorder
            self._tasks.append(asyncio.create_task(recorder.run()))
        return self._recorders[component]

    def run(self, controller: NodeController | NodeLifecycleController) -> asyncio.Task[None]:
        task = asyncio.create_task(controller.run())
        self._tasks.append(task)
        return task

    def initialise_nodes(
        self,
        *,
        workers: int = 30,
        refresh: float = 300.0,
        legacy: bool = True,
        refresh_labels: Refresh = Refresh.MISSING,
    ) -> asyncio.Task[None]:
        options = NodeOptions(workers, refresh, legacy, refresh_labels)
        return self.run(NodeController(self.context, options, self.vouching))

    def watch_over_nodes(self, *, fence: bool = False, **safety: Any) -> asyncio.Task[None]:
        return self.run(NodeLifecycleController(self.context, LifecycleOptions(5.0, Safety(**safety), fence)))


async def until(condition: Callable[[], Any], seconds: float = 60.0) -> None:
    """Wait in virtual time for the condition, in growing steps. Fails after `seconds`."""
    began = now()
    while not condition():
        assert now() < began + seconds, f"not within {seconds:g} s"
        await asyncio.sleep(max(0.01, (now() - began) / 50))


__all__ = ["NODE_IP", "SHUTDOWN", "TAINT", "Api", "ApiError", "Cluster", "LoopClock", "Machines", "machine", "until"]
