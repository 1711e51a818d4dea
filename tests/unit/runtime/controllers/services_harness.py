# SPDX-License-Identifier: Apache-2.0
"""The service and route controllers with the real engine and gateway, in virtual time.

Only the API server, the cloud and the notes on the Lease are doubles. `Balancers` and `RouteTable` implement the
contract's capabilities over plain dictionaries and record their calls.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from ccm.cloud import (
    Address,
    AddressType,
    Backend,
    Cloud,
    Ingress,
    Instance,
    Limits,
    LoadBalancer,
    LoadBalancerSpec,
    NotFound,
    Page,
    ProviderConfig,
    Route,
)
from ccm.controllers.nodes.vouching import Vouching
from ccm.controllers.routes.route import RouteController, RouteOptions
from ccm.controllers.services.service import ServiceController, ServiceOptions
from ccm.controllers.services.service_rules import FINALIZER
from ccm.controllers.shared.cache_rules import kept_node, kept_service
from ccm.controllers.shared.context import Context
from ccm.controllers.shared.pod_network_rules import NODE_PREFIX, PodNetwork, parse_cluster_cidrs
from ccm.engine.events import EventRecorder
from ccm.engine.informer import Informer
from ccm.engine.objects import Node, ObjectMeta, Service
from ccm.gateway.gateway import Gateway
from tests.kube_in_memory import KubeInMemory

from ..gateway.virtual import now
from .nodes_harness import LoopClock, until

CLUSTER_CIDR = "10.120.0.0/16,a00:100::/32"


class Api(KubeInMemory):
    """An API server with Nodes, Services and Events.

    `fault(path, patch)` may return an error to raise, also for a read, whose patch is {}.
    """

    def __init__(self) -> None:
        super().__init__("nodes", "services")
        self.misuse: list[str] = []
        self.fault: Callable[[str, dict[str, Any]], Exception | None] = lambda path, patch: None

    def refusal(self, verb: str, path: str, patch: dict[str, Any]) -> Exception | None:
        return self.fault(path, patch) if "/events" not in path else None

    # Changes that others make to the cluster.

    def delete_service(self, name: str) -> None:
        """Delete a Service as a user does: with finalizers, it only gets a deletionTimestamp."""
        self.store.delete("services", f"shop/{name}")

    # What tests read.

    def service(self, name: str = "web") -> dict[str, Any]:
        return self.objects["services"][f"shop/{name}"]

    def ingress(self, name: str = "web") -> list[dict[str, Any]]:
        return self.service(name).get("status", {}).get("loadBalancer", {}).get("ingress", [])

    @property
    def reads(self) -> list[str]:
        """Return the paths of single objects that were read."""
        return [path for verb, path in self.requests if verb == "GET"]

    def condition(self, name: str) -> tuple[str, str] | None:
        """Return status and reason of the Node's condition NetworkUnavailable; None without it."""
        for each in self.objects["nodes"][name]["status"].get("conditions", []):
            if each["type"] == "NetworkUnavailable":
                return each["status"], each["reason"]
        return None

    # The methods of a KubeClient.

    async def patch(self, path: str, patch: dict[str, Any], *, strategic: bool = False, **how: Any) -> ObjectMeta:
        is_status = path.split("/")[-1] == "status" and patch.keys() <= {"metadata", "status"}
        if not is_status and "/events/" not in path:
            self.misuse.append(f"{path} was sent {sorted(patch)}, which is no write of a status")
        return await super().patch(path, patch, strategic=strategic, **how)


class Balancers:
    """Load balancers that become ready `provision` seconds after a write. `latency`: seconds of each call, by verb.

    `calls`: (start time, verb, name of the Service). `fault(verb, spec)` may return an error to raise before the work,
    `after` one to raise after the work. `most`: maximum of concurrent writes. `misuse`: forbidden
    calls that were made. The test fails at its end, because a controller survives an assertion within a call.
    """

    def __init__(self) -> None:
        self.made: dict[str, dict[str, Any]] = {}
        self.calls: list[tuple[float, str, str]] = []
        self.fault: Callable[[str, LoadBalancerSpec | None], BaseException | None] = lambda verb, spec: None
        self.after: Callable[[str, LoadBalancerSpec | None], BaseException | None] = lambda verb, spec: None
        self.latency: dict[str, float] = {}
        self.provision = 0.0
        self.fingerprinted = True
        self.ip_mode: str | None = None
        self.warnings: tuple[str, ...] = ()
        self.most = self._under_way = 0
        self.misuse: list[str] = []
        self.writing: set[str] = set()

    def count(self, *verbs: str, name: str = "") -> int:
        return sum(1 for _, verb, who in self.calls if verb in verbs and name in ("", who))

    def hosts(self, name: str = "web") -> list[str]:
        (found,) = [each for each in self.made.values() if each["name"] == name]
        return found["hosts"]

    def members(self, name: str = "web") -> dict[str, list[str]]:
        """Return the addresses of each Node, as they were written to the load balancer of this Service."""
        (found,) = [each for each in self.made.values() if each["name"] == name]
        return {backend.node_name: [each.address for each in backend.addresses] for backend in found["backends"]}

    def labels(self, host: str, name: str = "web") -> dict[str, str]:
        """Return the labels of a Node, as they were written to the load balancer."""
        (found,) = [each for each in self.made.values() if each["name"] == name]
        return next(dict(backend.labels) for backend in found["backends"] if backend.node_name == host)

    async def _call(self, verb: str, spec: LoadBalancerSpec | None, work: Callable[[], Any]) -> Any:
        self.calls.append((now(), verb, spec.name if spec else ""))
        write = verb in ("ensure", "update", "delete")
        if write:
            assert spec is not None
            if spec.uid in self.writing:
                self.misuse.append(f"two writes of {spec.name} at a time")
            self.writing.add(spec.uid)
            self.most = max(self.most, len(self.writing))
        try:
            await asyncio.sleep(self.latency.get(verb, 0.01))
            if (error := self.fault(verb, spec)) is not None:
                raise error
            result = work()
            if (error := self.after(verb, spec)) is not None:
                raise error
            return result
        finally:
            if write:
                self.writing.discard(spec.uid)  # type: ignore[union-attr]

    def _answer(self, uid: str) -> LoadBalancer:
        row = self.made[uid]
        ready = now() >= row["ready_at"]
        ingress = (Ingress(ip=row["ip"], ip_mode=self.ip_mode),) if ready else ()
        return LoadBalancer(uid, row["name"], ingress, row["fingerprint"], ready, self.warnings)

    def _find(self, spec: LoadBalancerSpec) -> LoadBalancer:
        if spec.uid not in self.made:
            raise NotFound(f"no load balancer for {spec.name}")
        return self._answer(spec.uid)

    def fingerprint(self, spec: LoadBalancerSpec, backends: Sequence[Backend]) -> str:
        if not self.fingerprinted:
            return ""
        desired = (
            spec.ports,
            spec.source_ranges,
            spec.session_affinity,
            spec.load_balancer_ip,
            spec.annotations.get("lb"),
        )
        return repr((desired, [(backend.provider_id, backend.internal_ip) for backend in backends]))

    async def list(self, cluster: str) -> Sequence[LoadBalancer]:
        return await self._call("list", None, lambda: [self._answer(uid) for uid in self.made])

    async def get(self, spec: LoadBalancerSpec) -> LoadBalancer:
        return await self._call("get", spec, lambda: self._find(spec))

    async def ensure(self, spec: LoadBalancerSpec, backends: Sequence[Backend]) -> LoadBalancer:
        return await self._call("ensure", spec, lambda: self._write(spec, backends))

    async def update_backends(self, spec: LoadBalancerSpec, backends: Sequence[Backend]) -> LoadBalancer:
        return await self._call("update", spec, lambda: self._find(spec) and self._write(spec, backends))

    async def delete(self, spec: LoadBalancerSpec) -> None:
        return await self._call("delete", spec, lambda: self._find(spec) and self.made.pop(spec.uid) and None)

    def _write(self, spec: LoadBalancerSpec, backends: Sequence[Backend]) -> LoadBalancer:
        row = self.made.setdefault(spec.uid, {"ip": spec.load_balancer_ip or f"192.0.2.{len(self.made) % 250 + 1}"})
        row |= {
            "name": spec.name,
            "ports": [(port.protocol, port.port, port.node_port) for port in spec.ports],
            "hosts": [backend.node_name for backend in backends],
            "backends": list(backends),
            "fingerprint": self.fingerprint(spec, backends),
            "ready_at": now() + self.provision,
        }
        return self._answer(spec.uid)


class RouteTable:
    """Routes by ID. `calls`: (verb, destination). `fault(verb, route)` may return an error to raise."""

    concurrency = 10

    def __init__(self) -> None:
        self.routes: dict[str, Route] = {}
        self.calls: list[tuple[str, str]] = []
        self.fault: Callable[[str, Route | None], BaseException | None] = lambda verb, route: None
        self.latency = 0.01
        self.addresses_kept = False
        self.most = self._under_way = self._number = 0

    def add(self, destination: str, to: str, **fields: Any) -> None:
        self._number += 1
        route = Route(destination, f"fake://{to}" if to else "", str(self._number), **fields)
        self.routes[route.id] = route

    def table(self) -> set[tuple[str, str]]:
        return {(route.destination, route.provider_id.removeprefix("fake://")) for route in self.routes.values()}

    def count(self, verb: str) -> int:
        return sum(1 for found, _ in self.calls if found == verb)

    async def _call(self, verb: str, route: Route | None) -> None:
        self.calls.append((verb, route.destination if route else ""))
        self._under_way += 1
        self.most = max(self.most, self._under_way)
        try:
            await asyncio.sleep(self.latency)
            if (error := self.fault(verb, route)) is not None:
                raise error
        finally:
            self._under_way -= 1

    async def list(self, cluster: str) -> Sequence[Route]:
        await self._call("list", None)
        return list(self.routes.values())

    async def create(self, cluster: str, route: Route) -> None:
        await self._call("create", route)
        addresses = (route.target_addresses or ()) if self.addresses_kept else None
        self.add(route.destination, route.provider_id.removeprefix("fake://"), target_addresses=addresses)

    async def delete(self, cluster: str, route: Route) -> None:
        await self._call("delete", route)
        self.routes.pop(route.id, None)


class Machines:
    """The instances of the cloud: by default one for each providerID of a Node, with the current name and addresses of
    the first Node that has it.

    `put` sets an instance, `hide` removes one from the cloud. `error` is raised by every call. `missing`: providerIDs
    that are missing from listings only. `calls`: "list", "get ID", or
    "get NAME" for an instance without an ID.
    """

    def __init__(self, api: Api) -> None:
        self._api = api
        self._put: dict[str, Instance] = {}
        self._hidden: set[str] = set()
        self.missing: set[str] = set()
        self.error: BaseException | None = None
        self.calls: list[str] = []

    def put(self, name: str, *ips: str, provider_id: str = "", **fields: Any) -> None:
        provider_id = provider_id or f"fake://{name}"
        addresses = tuple(Address(AddressType.INTERNAL_IP, ip) for ip in ips)
        self._put[provider_id] = Instance(provider_id, name, addresses=addresses, **fields)
        self._hidden.discard(provider_id)

    def hide(self, name: str) -> None:
        self._hidden.add(f"fake://{name}")

    def all(self) -> list[Instance]:
        found = dict(self._put)
        for node in self._api.objects["nodes"].values():
            provider_id = self.canonical(node["spec"].get("providerID", ""))
            if self.owns(provider_id) and provider_id not in found:
                addresses = [(each["type"], each["address"]) for each in node["status"].get("addresses", [])]
                instance = Instance(
                    provider_id,
                    node["metadata"]["name"],
                    addresses=tuple(Address(AddressType(kind), address) for kind, address in addresses),
                )
                found[provider_id] = instance
        return [instance for provider_id, instance in found.items() if provider_id not in self._hidden]

    async def list_page(self, token: str | None) -> Page:
        self.calls.append("list")
        await asyncio.sleep(0.01)
        if self.error is not None:
            raise self.error
        return Page([each for each in self.all() if each.provider_id not in self.missing])

    async def get(self, ref: Any) -> Instance:
        self.calls.append(f"get {ref.provider_id or ref.node_name}")
        await asyncio.sleep(0.01)
        if self.error is not None:
            raise self.error
        for each in self.all():
            if each.provider_id == ref.provider_id if ref.provider_id else each.name == ref.node_name:
                return each
        raise NotFound(f"no instance {ref.provider_id or ref.node_name}")

    def owns(self, provider_id: str) -> bool:
        return provider_id.startswith(("fake://", "FAKE://"))

    def canonical(self, provider_id: str) -> str:
        """Return the current spelling: an older one has its scheme in capitals."""
        return provider_id.replace("FAKE://", "fake://")


class LeaseNotes:
    """The notes on the Lease, which survive the process. `fault(verb)` may return an error to raise."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.calls: list[str] = []
        self.fault: Callable[[str], Exception | None] = lambda verb: None

    def _called(self, verb: str) -> None:
        self.calls.append(verb)
        if (error := self.fault(verb)) is not None:
            raise error

    async def read(self, key: str) -> str | None:
        self._called("read")
        return self.texts.get(key)

    async def write(self, key: str, text: str) -> None:
        self._called("write")
        self.texts[key] = text


class FakeCloud(Cloud):
    name = "fake"

    def __init__(self, machines: Machines, balancers: Balancers, routes: RouteTable, limits: Limits) -> None:
        super().__init__(ProviderConfig())
        self.instances, self.load_balancers, self.routes, self.limits = machines, balancers, routes, limits


class Cluster:
    """An API server, a cloud, and the process between them. An async context manager."""

    def __init__(self, **limits: Any) -> None:
        self.api, self.clock = Api(), LoopClock()
        self.cloud, self.routes, self.machines = Balancers(), RouteTable(), Machines(self.api)
        self.notes = LeaseNotes()
        self.limits = Limits(**{"calls_per_second": 1e6, "burst": 10**6, "concurrency": 1000} | limits)

    async def __aenter__(self) -> Cluster:
        self._connect()
        self._tasks: list[asyncio.Task[None]] = []
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()
        await self.gateway.close()
        assert not self.api.misuse + self.cloud.misuse

    def _connect(self) -> None:
        self.gateway = Gateway(FakeCloud(self.machines, self.cloud, self.routes, self.limits), clock=now)

    async def stop(self) -> None:
        """Stop the process and prepare a new one. Cluster and cloud stay as they are."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        await self.gateway.close()
        self._connect()  # the next process remembers nothing

    def _context(self) -> Context:
        recorders: dict[str, EventRecorder] = {}

        def recorder(component: str) -> EventRecorder:
            if component not in recorders:
                recorders[component] = EventRecorder(self.api, component, host="test", clock=self.clock)  # type: ignore[arg-type]
                self._tasks.append(asyncio.create_task(recorders[component].run()))
            return recorders[component]

        nodes: Informer[Node] = Informer(
            self.api, "/api/v1/nodes", Node, name="nodes", keep=kept_node, clock=self.clock, doubtful=True
        )  # type: ignore[arg-type]
        services: Informer[Service] = Informer(
            self.api,  # type: ignore[arg-type]
            "/api/v1/services",
            Service,
            name="services",
            keep=kept_service,
            clock=self.clock,
            doubtful=True,
        )
        self._tasks += [asyncio.create_task(nodes.run()), asyncio.create_task(services.run())]
        return Context(
            self.api,  # type: ignore[arg-type]
            self.gateway,
            nodes,
            services,
            recorder,
            "kubernetes",
            self.notes,
            monotonic=now,
        )

    def _vouch(self, context: Context) -> Vouching:
        vouching = Vouching(context)
        self._tasks.append(asyncio.create_task(vouching.run()))
        return vouching

    def serve(self, **options: Any) -> ServiceController:
        """Start the service controller."""
        context = self._context()
        vouching = self._vouch(context)
        controller = ServiceController(context, ServiceOptions(**options), vouching)
        self._tasks.append(asyncio.create_task(controller.run()))
        return controller

    def route(self, **options: Any) -> RouteController:
        """Start the route controller."""
        context = self._context()
        network = PodNetwork(parse_cluster_cidrs(CLUSTER_CIDR), options.pop("node_prefix", NODE_PREFIX))
        controller = RouteController(context, RouteOptions(network, **options), self._vouch(context))
        self._tasks.append(asyncio.create_task(controller.run()))
        return controller

    def add_node(self, name: str, *pod_cidrs: str, provider_id: str | None = None, **fields: Any) -> None:
        """Create or replace a Node. `fields`: taints, labels, ready, addresses, conditions, uid, created,
        system_uuid."""
        conditions = [*fields.pop("conditions", []), {"type": "Ready", "status": fields.pop("ready", "True")}]
        system_uuid = fields.pop("system_uuid", "")
        addresses = fields.pop("addresses", (f"10.0.0.{len(self.api.objects['nodes']) % 250 + 1}",))
        self.api.put(
            "nodes",
            {
                "metadata": {
                    "name": name,
                    "uid": fields.pop("uid", f"uid-of-{name}"),
                    "labels": fields.pop("labels", {}),
                    "creationTimestamp": fields.pop("created", "2026-01-01T00:00:00Z"),
                },
                "spec": {
                    "providerID": f"fake://{name}" if provider_id is None else provider_id,
                    "podCIDRs": list(pod_cidrs),
                    **fields,
                },
                "status": {
                    "addresses": [{"type": "InternalIP", "address": each} for each in addresses],
                    "conditions": conditions,
                    "nodeInfo": {"systemUUID": system_uuid},
                },
            },
        )

    def add_service(self, name: str = "web", *, port: int = 80, finalizer: bool = False, **spec: Any) -> None:
        """Create or replace a Service. `spec`: fields of its spec, and also annotations, uid, status."""
        meta: dict[str, Any] = {
            "name": name,
            "namespace": "shop",
            "uid": spec.pop("uid", f"uid-of-{name}"),
            "annotations": spec.pop("annotations", {}),
        }
        if finalizer:
            meta["finalizers"] = [FINALIZER]
        status = spec.pop("status", {})
        ports = [{"name": "http", "protocol": "TCP", "port": port, "nodePort": 30000 + port}]
        document = {"metadata": meta, "spec": {"type": "LoadBalancer", "ports": ports, **spec}, "status": status}
        self.api.put("services", document)

    async def begin(self) -> None:
        """Start with one Node and one Service, and wait until the Service is served."""
        self.add_node("n0")
        self.add_service()
        self.serve()
        await self.served()

    async def served(self, *names: str) -> None:
        await until(lambda: all(self.api.ingress(name) for name in names or ["web"]), 3600)


__all__ = ["CLUSTER_CIDR", "FINALIZER", "Api", "Balancers", "Cluster", "Machines", "RouteTable", "until"]
