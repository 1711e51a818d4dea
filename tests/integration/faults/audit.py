# SPDX-License-Identifier: Apache-2.0
"""Checks that cloud and cluster match, and that nothing wrong happened before.

The audit is independent of the controllers' rules: it compares the API server's objects with the simulated cloud's.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import math
import time
from collections import Counter
from collections.abc import AsyncIterator

import pytest

from ccm.engine.client import KubeClient
from ccm.engine.informer import Informer
from ccm.engine.objects import Node, Service
from ccm_simcloud.model import LoadBalancerBody, Port, RouteBody
from ccm_simcloud.testing import Simulator

from ..runtime.support import CLUSTER_CIDR, DEADLINE, NODES, is_tainted

CLUSTER = "kubernetes"
#: What the runtime may write; it must never change an instance, for example.
WRITES = ("load_balancers.", "routes.", "tokens.")


class Witness:
    """Follows every state of the cluster. `problems`: states that occurred and must never occur.

    `excused`: the UIDs of Nodes that the test itself deletes.
    """

    def __init__(self, kube: KubeClient, cloud: Simulator) -> None:
        self.problems: list[str] = []
        self.excused: set[str] = set()
        self.deleted: list[str] = []
        self._cloud = cloud
        self._nodes: Informer[Node] = Informer(kube, NODES, Node, name="witness")
        self._nodes.add_handler(self._on_node)
        self._foreign = self._foreign_things()
        cloud.server.world.subscribe(self._on_cloud)

    @contextlib.asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self._nodes.run())
        try:
            await self._nodes.wait_synced()
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def present(self) -> set[str]:
        """Return the names of all Nodes."""
        return {node.metadata.name for node in self._nodes.items()}

    def provider_ids(self) -> dict[str, str]:
        """Return the providerIDs of all Nodes, by name."""
        return {node.metadata.name: node.spec.provider_id for node in self._nodes.items()}

    def _on_node(self, old: Node | None, new: Node | None) -> None:
        if new is not None or old is None:
            return
        uid, id_ = old.metadata.uid, old.spec.provider_id.rpartition("/")[2]
        if uid in self.excused:
            return
        self.deleted.append(old.metadata.name)
        instances = self._cloud.project().instances.rows
        # A broken watch may have missed the providerID: then the name tells which machine it was.
        if id_ in instances if id_ else any(row.name == old.metadata.name for row in instances.values()):
            self.problems.append(f"Node {old.metadata.name} was deleted while its instance {id_!r} exists")

    def _on_cloud(self) -> None:
        project = self._cloud.project()
        owners = Counter(
            (row.tags.get("cluster"), row.tags["service_uid"])
            for row in project.load_balancers.rows.values()
            if "service_uid" in row.tags
        )
        self.problems += [f"Service {owner} has {count} load balancers" for owner, count in owners.items() if count > 1]
        routes = Counter(str(ipaddress.ip_network(row.destination)) for row in project.routes.rows.values())
        self.problems += [f"{count} routes to {where}" for where, count in routes.items() if count > 1]
        if self._foreign != self._foreign_things():
            self.problems.append("things of others were changed")
            self._foreign = self._foreign_things()

    def _foreign_things(self) -> list[object]:
        """Return load balancers of other clusters, and routes outside our cluster's network."""
        project, ours = self._cloud.project(), ipaddress.ip_network(CLUSTER_CIDR)
        balancers = [row for row in project.load_balancers.rows.values() if row.tags.get("cluster") != CLUSTER]
        routes = [
            row for row in project.routes.rows.values() if not ipaddress.ip_network(row.destination).subnet_of(ours)
        ]
        return [*balancers, *routes]


def add_foreign_things(cloud: Simulator) -> None:
    """Create objects of others in the same account, which the runtime must not touch."""
    project = cloud.project()
    instance = cloud.add_instance("of-somebody-else", addresses=[{"type": "InternalIP", "address": "10.200.0.1"}])
    project.create_route(RouteBody("192.168.77.0/24", instance.id))
    for name, tags in (("bare", {}), ("other", {"cluster": "other", "service_uid": "4711"})):
        project.create_load_balancer(LoadBalancerBody(name, (Port(80, 30000),), tags=tags))


async def audit(kube: KubeClient, cloud: Simulator, *, expect_gone: bool = True) -> list[str]:
    """Return the current mismatches; [] if everything is right.

    `expect_gone`: whether a Node with a providerID whose instance is gone is a mismatch.
    """
    project, problems = cloud.project(), []
    nodes, _ = await kube.list(NODES, Node)
    services, _ = await kube.list("/api/v1/services", Service)
    instances = {row.name: row for row in project.instances.rows.values()}
    ids = {row.id: row for row in project.instances.rows.values()}
    names = Counter(row.name for row in project.instances.rows.values())

    targets, wanted_routes = [], {}
    for node in nodes:
        name, id_ = node.metadata.name, node.spec.provider_id.rpartition("/")[2]
        instance = ids.get(id_) if id_ else instances.get(name)
        if instance is None:
            if expect_gone and id_:
                problems.append(f"Node {name} exists and its instance {id_} does not")
            continue
        if names[instance.name] > 1:
            continue
        if not id_ or is_tainted(node):
            problems.append(f"Node {name} is not initialised although its instance {instance.id} exists")
            continue
        have = {(address.type, address.address) for address in node.status.addresses}
        if missing := {(each.type, each.address) for each in instance.addresses} - have:
            problems.append(f"Node {name} lacks the addresses {missing}")
        stopped = any(taint.key == "node.cloudprovider.kubernetes.io/shutdown" for taint in node.spec.taints)
        ready = any(each.type == "Ready" and each.status == "True" for each in node.status.conditions)
        if ready and stopped:
            problems.append(f"Node {name} is Ready and has the shutdown taint")
        internal = next((each.address for each in instance.addresses if each.type == "InternalIP"), None)
        targets.append((instance.id, internal))
        for cidr in node.spec.pod_cidrs:
            wanted_routes[cidr] = instance.id
            network = next((each for each in node.status.conditions if each.type == "NetworkUnavailable"), None)
            if network is None or network.status != "False":
                problems.append(f"Node {name} is not marked as having its route")

    ours = ipaddress.ip_network(CLUSTER_CIDR)
    routes = {
        row.destination: row.instance_id
        for row in project.routes.rows.values()
        if ipaddress.ip_network(row.destination).subnet_of(ours) and row.state == "active"
    }
    problems += _differences("route", wanted_routes, routes)
    problems += [f"route {row.id} is a blackhole" for row in project.routes.rows.values() if row.state == "blackhole"]

    wanted = {service.metadata.uid: service for service in services if _wants(service)}
    balancers = {
        row.tags["service_uid"]: row
        for row in project.load_balancers.rows.values()
        if row.tags.get("cluster") == CLUSTER and "service_uid" in row.tags
    }
    for uid in balancers.keys() - wanted.keys():
        problems.append(f"load balancer {balancers[uid].name} is leaked: no Service has the UID {uid}")
    for uid, service in wanted.items():
        name, row = service.metadata.name, balancers.get(uid)
        if row is None:
            problems.append(f"Service {name} has no load balancer")
            continue
        if row.state != "active":
            problems.append(f"the load balancer of Service {name} is {row.state}")
        ports = sorted((port.protocol, port.port, port.node_port) for port in service.spec.ports)
        if sorted((port.protocol, port.port, port.node_port) for port in row.ports) != ports:
            problems.append(f"the load balancer of Service {name} has other ports: {row.ports}")
        if sorted((target.instance_id, target.address) for target in row.targets) != sorted(targets):
            missing = set(targets) - {(target.instance_id, target.address) for target in row.targets}
            problems.append(
                f"the load balancer of Service {name} has {len(row.targets)} targets for {len(targets)} Nodes, "
                f"it lacks {sorted(missing)[:3]}"
            )
        if [entry.ip for entry in service.status.load_balancer.ingress] != [row.ip]:
            problems.append(f"Service {name} does not tell its load balancer's address {row.ip}")
    for service in services:
        if not _wants(service) and (service.metadata.finalizers or service.status.load_balancer.ingress):
            problems.append(f"Service {service.metadata.name} was not released")
    return problems


def wrong_writes(cloud: Simulator) -> list[str]:
    """Return writes that the runtime must not make. Changes that the test itself makes do not count."""
    return [
        f"{entry.method} {entry.path}" for entry in cloud.journal(writes=True) if not entry.operation.startswith(WRITES)
    ]


async def passes(
    kube: KubeClient, cloud: Simulator, witness: Witness, seconds: float = DEADLINE, **options: bool
) -> None:
    """Wait until the audit finds nothing. Fail if the number of its findings reaches no new minimum for `seconds`, if
    the witness has problems, or after wrong writes."""
    fewest, deadline = math.inf, 0.0
    while problems := await audit(kube, cloud, **options):
        if len(problems) < fewest:
            fewest, deadline = len(problems), time.monotonic() + seconds
        if time.monotonic() > deadline:
            pytest.fail(f"{len(problems)} problems, for {seconds:g} s:\n" + "\n".join(problems[:20]))
        await asyncio.sleep(0.3)
    assert not witness.problems, "\n".join(witness.problems)
    assert wrong_writes(cloud) == []


def _wants(service: Service) -> bool:
    return service.spec.type == "LoadBalancer" and service.metadata.deletion_timestamp is None


def _differences(what: str, wanted: dict[str, str], present: dict[str, str]) -> list[str]:
    return [
        f"{what} {key}: wanted {wanted.get(key)}, the cloud has {present.get(key)}"
        for key in sorted(wanted.keys() | present.keys())
        if wanted.get(key) != present.get(key)
    ]
