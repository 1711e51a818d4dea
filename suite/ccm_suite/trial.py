# SPDX-License-Identifier: Apache-2.0
"""Gives a behaviour its own machines, Nodes and Services, and waits for conditions."""

from __future__ import annotations

import contextlib
import itertools
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from .cloud import Cloud, LoadBalancer, Machine, Settings
from .errors import Failed, SuiteError
from .kube import LEASES, MARK, NODES, UNANSWERED, Kube, Object
from .rights import Rights

T = TypeVar("T")

UNINITIALIZED = "node.cloudprovider.kubernetes.io/uninitialized"
SHUTDOWN = "node.cloudprovider.kubernetes.io/shutdown"
FINALIZER = "service.kubernetes.io/load-balancer-cleanup"
NO_BACKEND = "node.kubernetes.io/exclude-from-external-load-balancers"
HOSTNAME = "kubernetes.io/hostname"
#: Fields that a kubelet always sends.
NODE_INFO = (
    *("architecture", "bootID", "containerRuntimeVersion", "kernelVersion", "kubeProxyVersion", "kubeletVersion"),
    *("machineID", "operatingSystem", "osImage", "systemUUID"),
)
#: Seconds between two polls.
LOOK = 0.5


@dataclass
class World:
    """What all trials of a run share. `patience` multiplies time limits, for slow machines. `lease` is the name of the
    controller's Lease in kube-system. `rights`: None if the controller runs as the suite's user. `stopped` ends all
    waits."""

    kube: Kube
    cloud: Cloud
    run: str
    patience: float = 1.0
    lease: str = "cloud-controller-manager"
    settings: Settings = field(default_factory=Settings)
    rights: Rights | None = None
    numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    stopped: threading.Event = field(default_factory=threading.Event)
    _reads: threading.Lock = field(default_factory=threading.Lock)
    _read: tuple[float, Sequence[LoadBalancer]] = (-math.inf, ())

    def load_balancers(self) -> Sequence[LoadBalancer]:
        """Return all load balancers of the cloud. Threads that wait for a read share the next one, because all of them
        poll, and a read may cost many calls."""
        asked = time.monotonic()
        with self._reads:
            if self._read[0] < asked:
                self._read = time.monotonic(), self.cloud.load_balancers()
            return self._read[1]

    def leader(self) -> str:
        """Return the holder of the controller's Lease, "" for nobody."""
        lease = self.kube.get(f"{LEASES}/{self.lease}") or {"spec": {}}
        return str(lease["spec"].get("holderIdentity") or "")

    def wait(self, seconds: float) -> None:
        """Wait. Raises SuiteError if the run is stopped meanwhile."""
        if self.stopped.wait(seconds):
            raise SuiteError("the run was stopped")


class Trial:
    """One try of a behaviour. The names of its machines, Nodes and namespace begin with the behaviour's ID, so that
    none belongs to two behaviours."""

    def __init__(self, world: World, id: str) -> None:
        self.world, self.id = world, id
        self.kube, self.cloud = world.kube, world.cloud
        self.namespace = f"{id.replace('.', '-')}-{world.run}"[:63].rstrip("-")
        self._nodes: list[str] = []
        self._machines: list[Machine] = []
        self._neighbours: list[Trial] = []
        self._has_namespace = False
        self._balancers: dict[str, str] = {}
        self.figures: dict[str, float] = {}

    # Machines and Nodes

    def machine(self) -> Machine:
        """Create a machine in the cloud; it is deleted at the end."""
        machine = self.cloud.create_machine(f"{self.id.replace('.', '-')}-{next(self.world.numbers)}-{self.world.run}")
        self._machines.append(machine)
        return machine

    def adopt(self, machine: Machine) -> None:
        """Let the clean-up delete this machine, too."""
        self._machines.append(machine)

    def join(
        self,
        machine: Machine,
        *,
        ready: bool = True,
        is_backend: bool = False,
        fields: Mapping[str, Any] | None = None,
    ) -> str:
        """Create the Node as a kubelet with --cloud-provider=external does; return its name. `is_backend`: whether load
        balancers may have the machine as a member, those of other behaviours, too. `fields`: further fields of the
        Node's metadata.
        """
        metadata = dict(fields or {})
        labels = {HOSTNAME: machine.name, MARK: self.world.run, **metadata.pop("labels", {})}
        if not is_backend:
            labels[NO_BACKEND] = "true"
        taint = {"key": UNINITIALIZED, "value": "true", "effect": "NoSchedule"}
        self.kube.create(
            NODES,
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": machine.name, "labels": labels, **metadata},
                "spec": {"taints": [taint]},
                "status": {"nodeInfo": dict.fromkeys(NODE_INFO, "") | {"systemUUID": machine.system_uuid}},
            },
        )
        self._nodes.append(machine.name)
        self.set_ready(machine.name, ready=ready)
        return machine.name

    def set_ready(self, name: str, *, ready: bool) -> None:
        """Set the condition Ready: True as the kubelet does, or Unknown as the node lifecycle controller does for a
        silent kubelet."""
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        condition = {
            "type": "Ready",
            "status": "True" if ready else "Unknown",
            "reason": "KubeletReady" if ready else "NodeStatusUnknown",
            "message": "as told by the suite",
            "lastHeartbeatTime": now,
            "lastTransitionTime": now,
        }
        others = [each for each in self.conditions(name) if each["type"] != "Ready"]
        self.kube.patch(f"{NODES}/{name}/status", {"status": {"conditions": [*others, condition]}})

    def node(self, name: str) -> Object:
        """Return the Node. Raises Failed if it is gone."""
        node = self.kube.get(f"{NODES}/{name}")
        if node is None:
            raise Failed(f"the Node {name} is gone")
        return node

    def conditions(self, name: str) -> list[Object]:
        return list(self.node(name).get("status", {}).get("conditions", []))

    def taints(self, name: str) -> set[str]:
        return {taint["key"] for taint in self.node(name)["spec"].get("taints", [])}

    def member(self, *, is_backend: bool = False) -> Machine:
        """Create a machine with a Node, wait until the Node is initialised, and return the machine."""
        machine = self.machine()
        self.join(machine, is_backend=is_backend)
        self.initialised(machine)
        return machine

    def initialised(self, machine: Machine, seconds: float = 60) -> Object:
        """Wait until the taint `uninitialized` is gone; return the Node."""
        self.until("the taint uninitialized is lifted", lambda: UNINITIALIZED not in self.taints(machine.name), seconds)
        return self.node(machine.name)

    def exists(self, name: str) -> bool:
        """Return whether there is a Node with this name."""
        return self.kube.get(f"{NODES}/{name}") is not None

    def gone(self, name: str, seconds: float) -> float:
        """Wait until the Node is deleted; return the seconds that it took."""
        return self.until(f"the Node {name} is deleted", lambda: not self.exists(name), seconds)

    def stays(self, name: str, seconds: float) -> None:
        """Check for `seconds` that the Node exists. Raises Failed if it is deleted."""
        self.always("the Node is there", lambda: self.exists(name), seconds)

    # Services

    @property
    def services(self) -> str:
        """Return the path of this behaviour's Services."""
        return f"/api/v1/namespaces/{self.namespace}/services"

    def neighbour(self) -> Trial:
        """Return a trial with a namespace of its own, as another tenant has it. It is cleaned up with this one."""
        self._neighbours.append(Trial(self.world, f"{self.id}-{len(self._neighbours)}"))
        return self._neighbours[-1]

    def service(
        self,
        name: str = "web",
        ports: Sequence[Object] = (),
        annotations: Mapping[str, str] | None = None,
        **spec: Any,
    ) -> Object:
        """Create a Service of type LoadBalancer, by default with port 80; `ports` and `spec` replace defaults. Raises
        Unsupported if the cloud has no load balancers."""
        if not self._has_namespace:
            self.world.load_balancers()  # may be unsupported
            namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}}
            self.kube.create("/api/v1/namespaces", namespace)
            self._has_namespace = True
        body = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name, "annotations": {**self.world.settings.annotations, **(annotations or {})}},
            "spec": {
                "type": "LoadBalancer",
                "selector": {"app": name},
                "ports": list(ports) or [{"name": "http", "port": 80, "protocol": "TCP"}],
                **spec,
            },
        }
        return self.kube.create(self.services, body)

    def read_service(self, name: str = "web") -> Object:
        service = self.kube.get(f"{self.services}/{name}")
        if service is None:
            raise Failed(f"the Service {name} is gone")
        return service

    def change(self, **spec: Any) -> None:
        """Change fields of the spec of the Service `web`. A list replaces the former list."""
        self.kube.patch(f"{self.services}/web", {"spec": spec})

    def change_port(self, number: int) -> None:
        """Change the first port of the Service `web`; it keeps its node port."""
        self.change_port_of("web", number)

    def change_port_of(self, name: str, number: int) -> None:
        operation = {"op": "replace", "path": "/spec/ports/0/port", "value": number}
        self.kube.patch(f"{self.services}/{name}", [operation], "json-patch")

    def add_port(self, number: int) -> None:
        self.change(ports=[*self.read_service()["spec"]["ports"], {"name": "more", "port": number, "protocol": "TCP"}])

    def has_finalizer(self) -> bool:
        return FINALIZER in self.read_service()["metadata"].get("finalizers", [])

    def released(self, seconds: float) -> None:
        """Wait until the Service `web`, which is being deleted, is gone."""
        self.until("the Service is gone", lambda: self.kube.get(f"{self.services}/web") is None, seconds)

    def addresses(self, name: str = "web") -> list[str]:
        """Return the IP addresses and host names in the Service's status."""
        ingress = self.read_service(name).get("status", {}).get("loadBalancer", {}).get("ingress") or []
        return [each.get("ip") or each["hostname"] for each in ingress]

    def served(self, name: str = "web", seconds: float = 90) -> str:
        """Wait until the Service has an address; return the first one."""
        self.until(f"the Service {name} has an address", lambda: self.addresses(name), seconds)
        address = self.addresses(name)[0]
        self._balancers.pop(address, None)
        self.balancer(address)
        return address

    def balancer(self, address: str) -> LoadBalancer | None:
        """Return the load balancer that had this address when served() last returned it, or else at the first call.
        Return None if that load balancer is gone: another one may have the address now.
        """
        balancers = self.world.load_balancers()
        if address not in self._balancers:
            self._balancers |= {each.address: each.id for each in balancers if each.address == address}
        return next((each for each in balancers if each.id == self._balancers.get(address)), None)

    def has_member(self, address: str, machine: Machine) -> bool:
        balancer = self.balancer(address)
        return balancer is not None and bool(balancer.members & {one for _, one in machine.addresses})

    def service_events(self, name: str = "web") -> list[Object]:
        """Return the Events about a Service of this behaviour."""
        return self._events(self.namespace, name)

    def node_events(self, name: str) -> list[Object]:
        """Return the Events about a Node. They are in the namespace `default`, because a Node has none."""
        return self._events("default", name)

    def _events(self, namespace: str, name: str) -> list[Object]:
        events = self.kube.list(f"/api/v1/namespaces/{namespace}/events")
        return [event for event in events if event["involvedObject"]["name"] == name]

    def warned(self, events: Callable[[], list[Object]]) -> None:
        """Wait for a Warning among these Events."""
        self.until("a Warning about it", lambda: any(event["type"] == "Warning" for event in events()), 60)

    # Patience

    def until(self, what: str, check: Callable[[], Any], seconds: float, timer: float = 0.0) -> float:
        """Wait until `check` is true; return the seconds that it took. `timer`: seconds of a controller's timer, which
        is no slower on a slow machine. Raises Failed after `timer` plus `seconds` times patience."""
        begin = time.monotonic()
        limit, last = timer + seconds * self.world.patience, ""
        while True:
            try:
                if check():
                    return time.monotonic() - begin
                last = ""
            except UNANSWERED as error:  # the API server may be away
                last = f" ({type(error).__name__})"
            if time.monotonic() - begin > limit:
                raise Failed(f"{what}: not within {limit:g} s{last}")
            self.world.wait(LOOK)

    def always(self, what: str, check: Callable[[], Any], seconds: float) -> None:
        """Check for `seconds` that `check` stays true. Raises Failed as soon as it is not."""
        begin = time.monotonic()
        while (passed := time.monotonic() - begin) < seconds:
            if not check():
                raise Failed(f"{what}: no longer after {passed:.0f} s")
            self.world.wait(LOOK)

    @staticmethod
    def equal(what: str, seen: T, wanted: T) -> None:
        if seen != wanted:
            raise Failed(f"{what} is {seen!r}, not {wanted!r}")

    def clean_up(self) -> None:
        """Remove the Services and Nodes of this behaviour. Its machines stay until `delete_machines`. Other behaviours
        may need a load balancer meanwhile, and some clouds refuse one with a member whose machine has just gone."""
        for neighbour in self._neighbours:
            neighbour.clean_up()
        if self._has_namespace:
            for service in self.kube.list(self.services):
                self.kube.delete(f"{self.services}/{service['metadata']['name']}")
            with contextlib.suppress(Failed):  # the controller has not released it, and the namespace then stays
                self.until("the Services are gone", lambda: not self.kube.list(self.services), 30)
            self.kube.delete(f"/api/v1/namespaces/{self.namespace}")
        for name in self._nodes:
            self.kube.delete(f"{NODES}/{name}")

    def delete_machines(self) -> None:
        """Delete the machines in the cloud."""
        for neighbour in self._neighbours:
            neighbour.delete_machines()
        for machine in self._machines:
            self.cloud.delete_machine(machine)
