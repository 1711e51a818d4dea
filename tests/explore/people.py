# SPDX-License-Identifier: Apache-2.0
"""What users, kubelets, administrators and autoscalers do to the cluster and the cloud while the runtime works.

A step whose object does not exist does nothing, so that a shortened sequence still runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ccm.controllers.services.service_rules import FINALIZER
from ccm.providers.sim.volumes import CSI_DRIVER
from ccm_simcloud.model import Address, InstanceBody, InstancePatch, RouteBody, VolumeBody
from tests.kube_store import Document
from tests.merge_patch import merge

from . import connections
from .checks import RACK
from .cloud import CLOUD_CONF, PROJECT
from .process import CLUSTER
from .virtual_time import WORLD

if TYPE_CHECKING:
    from .simulation import Simulation

NAMESPACE = "shop"
UNINITIALISED = {"key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule"}
#: The other component that holds the Lease of a leader migration, and the name of that Lease.
OTHERS, MIGRATION_LEASE = "kube-controller-manager_1", "cloud-provider-extraction-migration"
OLD = "2025-12-01T00:00:00Z"


def _key(name: str) -> str:
    return name if "/" in name else f"{NAMESPACE}/{name}"


def _address(number: int) -> str:
    return f"10.0.{number // 256}.{number % 256}"


def _cidr(number: int) -> str:
    return f"10.{120 + number // 256}.{number % 256}.0/24"


class People:
    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self.store = simulation.store
        #: Machines whose kubelet registers as soon as no Node has the machine's name.
        self.waiting: dict[str, int] = {}
        #: Nodes whose kubelets have the flag --node-ip.
        self._with_address: set[str] = set()
        #: Whether connections to the API server died silently.
        self.lost_connections = False

    def do(self, verb: str, *arguments: Any) -> None:
        getattr(self, verb.replace("-", "_"))(*arguments)

    # Services

    def create_service(self, name: str, port: int = 80) -> None:
        """Create a Service. `name` may begin with a namespace; otherwise the Service is in the usual namespace."""
        if _key(name) in self.store.table("services"):
            return
        ports = [{"name": "http", "protocol": "TCP", "port": port, "nodePort": 30000 + port}]
        is_second = self._simulation.cloud_of(name) is not self._simulation.cloud
        of_class = {"loadBalancerClass": "metal"} if is_second else {}
        self.store.create(
            "services",
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": dict(zip(("namespace", "name"), _key(name).split("/"), strict=True)),
                "spec": {"type": "LoadBalancer", "ports": ports, "externalTrafficPolicy": "Cluster", **of_class},
                "status": {"loadBalancer": {}},
            },
        )

    def delete_service(self, name: str) -> None:
        if _key(name) in self.store.table("services"):
            self.store.delete("services", _key(name))

    def change_port(self, name: str, port: int) -> None:
        ports = [{"name": "http", "protocol": "TCP", "port": port, "nodePort": 30000 + port}]
        self._change("services", _key(name), {"spec": {"ports": ports}})

    def change_type(self, name: str, kind: str) -> None:
        self._change("services", _key(name), {"spec": {"type": kind}})

    def strip_finalizer(self, name: str) -> None:
        """Remove our finalizer by hand, as people do if the deletion of an object takes too long."""
        service = self.store.table("services").get(_key(name))
        if service is not None:
            left = [each for each in service["metadata"].get("finalizers", []) if each != FINALIZER]
            self._change("services", _key(name), {"metadata": {"finalizers": left or None}})

    # Mistakes of users, and what the cloud makes of them

    def spoil(self, name: str) -> None:
        """Set a loadBalancerIP that no load balancer can have, as a user does by mistake."""
        self._change("services", _key(name), {"spec": {"loadBalancerIP": "a-name"}})

    def refuse(self, name: str, how: str) -> None:
        """Let the cloud refuse to create or update the Service's load balancer; changes of its targets succeed."""
        if (service := self.store.table("services").get(_key(name))) is not None:
            self._simulation.cloud.refused[service["metadata"]["uid"]] = how

    def slow_down(self, name: str, seconds: float) -> None:
        if (service := self.store.table("services").get(_key(name))) is not None:
            self._simulation.cloud.slow[service["metadata"]["uid"]] = seconds

    def take_down(self, cloud: str, seconds: float) -> None:
        """Let one of two clouds accept no connections for `seconds`."""
        self._simulation.clouds[cloud].go_down(seconds)

    def namesake(self, name: str, number: int, seconds: float) -> None:
        """Create a machine with a Node's name in the cloud to which the Node does not belong. Delete the machine after
        `seconds`."""
        simulation = self._simulation
        (other,) = [each for each in simulation.clouds.values() if each is not simulation.cloud_of(name)]
        body = InstanceBody(name=name, zone="north-1", addresses=(Address("InternalIP", _address(200 + number)),))
        made = other.project.create_instance(body)
        simulation.loop.call_later(seconds, other.project.delete_instance, made.id, context=WORLD)

    def overlap(self, cloud: str, seconds: float) -> None:
        """Let one of two clouds list the machines of the other one, as credentials of the other one's project do."""
        (other,) = [each for name, each in self._simulation.clouds.items() if name != cloud]
        self._simulation.clouds[cloud].show(other.project, seconds)

    def break_down(self, group: str) -> None:
        """Let a part of the cloud fail until `correct_all`."""
        self._simulation.cloud.broken.add(group)

    @property
    def has_mistakes(self) -> bool:
        cloud = self._simulation.cloud
        return bool(cloud.refused or cloud.slow or cloud.broken or self._spoilt())

    def _spoilt(self) -> list[str]:
        services = self.store.table("services").items()
        return [key for key, service in services if service["spec"].get("loadBalancerIP")]

    def correct_all(self) -> None:
        """Correct all mistakes of users, and end what `refuse`, `slow_down` and `break_down` began."""
        cloud = self._simulation.cloud
        for mistakes in (cloud.refused, cloud.slow, cloud.broken):
            mistakes.clear()
        for key in self._spoilt():
            self._change("services", key, {"spec": {"loadBalancerIP": None}})

    # What users expect

    def expect_served(self, name: str) -> None:
        self._simulation.checks.is_served(_key(name))

    def expect_initialised(self, name: str) -> None:
        self._simulation.checks.is_initialised(name)

    def expect_gone(self, name: str) -> None:
        self._simulation.checks.is_gone(_key(name))

    # Nodes

    def join(self, name: str, number: int, *, old: bool = False) -> None:
        """Create a machine, whose kubelet registers."""
        self._machine(name, number)
        self._register(name, number, old=old)

    def join_old(self, name: str, number: int) -> None:
        self.join(name, number, old=True)

    def settled(self, name: str, number: int) -> None:
        """Create a Node with its route as the runtime leaves it: it existed long before the first process."""
        self._machine(name, number)
        project = self._simulation.cloud_of(name).project
        id_ = next(row.id for row in project.instances.rows.values() if row.name == name)
        cidr = _cidr(number)
        project.create_route(RouteBody(cidr, id_, CLUSTER))
        labels = {"kubernetes.io/hostname": name}
        for domain, kind, value in (
            ("failure-domain.beta.kubernetes.io", "zone", "north-1"),
            ("topology.kubernetes.io", "zone", "north-1"),
            ("failure-domain.beta.kubernetes.io", "region", project.region),
            ("topology.kubernetes.io", "region", project.region),
            ("beta.kubernetes.io", "instance-type", "sim.small"),
            ("node.kubernetes.io", "instance-type", "sim.small"),
        ):
            labels[f"{domain}/{kind}"] = value
        addresses = [
            {"type": "InternalIP", "address": _address(number)},
            {"type": "Hostname", "address": name},
        ]
        network = {"type": "NetworkUnavailable", "status": "False", "reason": "RouteCreated"}
        self.store.create(
            "nodes",
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": name, "labels": labels, "creationTimestamp": OLD},
                "spec": {"podCIDR": cidr, "podCIDRs": [cidr], "providerID": f"sim://{project.region}/{id_}"},
                "status": {"addresses": addresses, "conditions": [network, {"type": "Ready", "status": "True"}]},
            },
        )

    def _machine(self, name: str, number: int) -> None:
        project = self._simulation.cloud_of(name).project
        if all(row.name != name for row in project.instances.rows.values()):
            addresses = (Address("InternalIP", _address(number)),)
            body = InstanceBody(name=name, zone="north-1", addresses=addresses)
            made = project.create_instance(body)
            self._simulation.checks.starts(made.id)

    def _register(self, name: str, number: int, *, old: bool = False) -> None:
        if name in self.store.table("nodes"):
            self.waiting[name] = number
            return
        self.waiting.pop(name, None)
        meta: Document = {"name": name, "labels": {"kubernetes.io/hostname": name}}
        if name in self._with_address:
            meta["annotations"] = {"alpha.kubernetes.io/provided-node-ip": _address(number)}
        if old:
            meta["creationTimestamp"] = OLD
        cidr = _cidr(number)
        self.store.create(
            "nodes",
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": meta,
                "spec": {"podCIDR": cidr, "podCIDRs": [cidr], "taints": [UNINITIALISED]},
                "status": {
                    "addresses": [{"type": "Hostname", "address": name}],
                    "conditions": [{"type": "Ready", "status": "True"}],
                },
            },
        )

    def register_those_who_wait(self) -> None:
        for name, number in list(self.waiting.items()):
            if name not in self.store.table("nodes"):
                self._register(name, number)

    def lose(self, name: str) -> None:
        """Delete the machine; its kubelet falls silent, as after a scale-down or the loss of a spot instance."""
        project = self._simulation.cloud_of(name).project
        for row in list(project.instances.rows.values()):
            if row.name == name:
                project.delete_instance(row.id)
        self.ready(name, "Unknown")

    def replace(self, name: str, number: int) -> None:
        """Replace the machine by another one of the same name, whose kubelet registers once the old Node is gone."""
        self.lose(name)
        self._machine(name, number)
        self.waiting[name] = number

    def replace_known(self, name: str, number: int) -> None:
        """Replace the machine by one whose kubelet gives its address. Without the address, nothing distinguishes it
        from a machine of the same name in another project."""
        self._with_address.add(name)
        self.replace(name, number)

    def drain(self, name: str) -> None:
        """Remove a Node as an administrator does: first the Node, then the machine."""
        if name in self.store.table("nodes"):
            self.store.delete("nodes", name)
        self.lose(name)

    def taint(self, name: str, key: str = "") -> None:
        """Taint a Node as the autoscaler does before it removes the Node; without a key, remove all taints."""
        taints = [{"key": key, "effect": "NoSchedule"}] if key else []
        self._change("nodes", name, {"spec": {"taints": taints}})

    def cordon(self, name: str) -> None:
        self._change("nodes", name, {"spec": {"unschedulable": True}})

    def uncordon(self, name: str) -> None:
        self._change("nodes", name, {"spec": {"unschedulable": None}})

    def power(self, name: str, state: Any) -> None:
        self.switch(name, state)
        self.ready(name, "True" if state == "running" else "Unknown")

    def switch(self, name: str, state: Any) -> None:
        """Change only the state of the machine: its kubelet reports later, if at all."""
        project = self._simulation.cloud_of(name).project
        for row in list(project.instances.rows.values()):
            if row.name == name:
                project.change_instance(row.id, InstancePatch(state=state))
                if state == "running":
                    self._simulation.checks.starts(row.id)

    def ready(self, name: str, status: str) -> None:
        node = self.store.table("nodes").get(name)
        if node is None:
            return
        conditions = [each for each in node["status"]["conditions"] if each["type"] != "Ready"]
        patch = {"status": {"conditions": [*conditions, {"type": "Ready", "status": status}]}}
        self.store.update("nodes", name, lambda before: merge(before, patch), status=True)

    def tag(self, name: str, rack: str = "") -> None:
        """Change the machine's label for its rack, or remove the label."""
        project = self._simulation.cloud_of(name).project
        for row in list(project.instances.rows.values()):
            if row.name == name:
                patch = InstancePatch(labels={RACK: rack} if rack else {})
                project.change_instance(row.id, patch)

    def label(self, name: str, rack: str) -> None:
        """Set the Node's label by hand, as an administrator does."""
        self._change("nodes", name, {"metadata": {"labels": {RACK: rack}}})

    def other_project(self, seconds: float, state: str, numbers: int) -> None:
        """Let the cloud show another project for a while, as credentials of another tenant do. It has machines of the
        names n1 to n`numbers`, all in this state."""
        self._simulation.cloud.show_another(seconds, [f"n{each}" for each in range(1, numbers + 1)], state)

    def cloud_fails(self, seconds: float) -> None:
        self._simulation.cloud.go_down(seconds)

    # Volumes

    def create_volume(self, name: str) -> None:
        """Create a disk, and its PersistentVolume as an administrator does."""
        if name in self.store.table("persistentvolumes"):
            return
        zone = f"north-{1 + len(name) % 2}"
        row = self._simulation.cloud.project.create_volume(VolumeBody(name=name, zone=zone))
        self.store.create(
            "persistentvolumes",
            {
                "apiVersion": "v1",
                "kind": "PersistentVolume",
                "metadata": {"name": name},
                "spec": {"csi": {"driver": CSI_DRIVER, "volumeHandle": row.id}, "capacity": {"storage": "1Gi"}},
            },
        )

    def delete_volume(self, name: str) -> None:
        """Delete the PersistentVolume, and then its disk."""
        volume = self.store.table("persistentvolumes").get(name)
        if volume is not None:
            self.store.delete("persistentvolumes", name)
            self._simulation.cloud.project.delete_volume(volume["spec"]["csi"]["volumeHandle"])

    # Credentials

    def write_conf(self, line: str) -> None:
        """Set one key of cloud.conf, as an administrator does; the file has the key once."""
        key = line.partition(":")[0]
        kept = [each for each in CLOUD_CONF.splitlines() if each.partition(":")[0] != key]
        self._simulation.cloud_conf = "\n".join([*kept, line, ""])

    def new_token(self, token: str) -> None:
        self._simulation.cloud.server._static[token] = PROJECT

    def revoke_token(self, token: str) -> None:
        """Revoke the token and everything issued for it. Do nothing while cloud.conf still has the token, as it may in
        a shortened sequence."""
        if f"token: {token}\n" not in self._simulation.cloud_conf:
            self._simulation.cloud.server._static.pop(token, None)
            self._simulation.cloud.server._issued.clear()

    # Processes

    def others_lead(self) -> None:
        """Give the Lease of the leader migration to the other component."""
        spec = {"holderIdentity": OTHERS, "leaseDurationSeconds": 15, "renewTime": "2026-01-01T00:00:10.000000Z"}
        meta = {"name": MIGRATION_LEASE, "namespace": "kube-system"}
        self.store.create("leases", {"metadata": meta, "spec": spec})

    def others_end(self) -> None:
        """Let the other component end and release the Lease."""
        self._change("leases", f"kube-system/{MIGRATION_LEASE}", {"spec": {"holderIdentity": ""}})

    def lose_connections(self, idle: int) -> None:
        """Let the load balancer before the API servers fail over. `idle`: how many idle connections of a process die.
        """
        self.lost_connections = True
        connections.lose_all(self._simulation.api, idle)

    def kill_leader(self) -> None:
        for process in list(self._simulation.processes):
            if process.leads:
                process.kill()
                return

    def stop_leader(self) -> None:
        for process in self._simulation.processes:
            if process.leads:
                process.main.cancel()
                return

    def _change(self, resource: str, key: str, patch: Document) -> None:
        if key in self.store.table(resource):
            self.store.update(resource, key, lambda before: merge(before, patch))
