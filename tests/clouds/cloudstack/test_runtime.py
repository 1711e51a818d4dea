# SPDX-License-Identifier: Apache-2.0
"""The runtime as a process, between a real API server and the CloudStack-shaped cloud: Nodes that come and go, and a
load balancer. The process runs at --v=9, and its log never shows a key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ccm.conformance import Trouble
from ccm.engine.client import KubeClient, NotFoundError
from tests.integration.cluster import ApiServer
from tests.integration.runtime.support import (
    NODES,
    SERVICES,
    Ccm,
    eventually,
    get_node,
    get_service,
    initialised,
    is_tainted,
    node_body,
)
from tests.ports import free_port

from .face import API_KEY, SECRET, Face
from .world import CloudStackWorld, cloudstack, config


async def test_nodes_and_a_service(apiserver: ApiServer, kube: KubeClient, tmp_path: Path) -> None:
    async with cloudstack() as (face, _):
        path, port = tmp_path / "cloud-config", free_port()
        path.write_text(config(face).text)
        flags: dict[str, Any] = {
            "cloud-provider": "cloudstack",
            "cloud-config": path,
            "kubeconfig": apiserver.kubeconfig(),
            "bind-address": "127.0.0.1",
            "secure-port": port,
            "leader-elect": "false",
            "configure-cloud-routes": "false",
            "node-monitor-period": "1s",
            "node-deletion-min-age": "0s",
            "v": 9,
        }
        names = [f"worker-{number}" for number in range(5)]
        for number, name in enumerate(names):
            await kube.create(NODES, node_body(name, number=number + 1))
        await kube.create(NODES, node_body("other", providerID="exoscale://321"))
        ccm = Ccm([f"--{name}={value}" for name, value in flags.items()], tmp_path / "ccm.log", port)
        try:
            await _nodes(kube, face, names)
            await _a_service(kube, face, names)
            await _a_node_goes(kube, face)
        finally:
            await ccm.stop()
            print(ccm.text)
        assert "Traceback" not in ccm.text and SECRET not in ccm.text and API_KEY not in ccm.text


async def _nodes(kube: KubeClient, face: Face, names: list[str]) -> None:
    await eventually(lambda: initialised(kube, *names))
    for name in names:
        node = await get_node(kube, name)
        machine = next(each for each in face.region.machines.values() if each["name"] == name)
        assert node is not None and node.spec.provider_id == f"external-cloudstack://{machine['id']}"
        assert [(each.type, each.address) for each in node.status.addresses] == [
            ("InternalIP", machine["nic"][0]["ipaddress"]),
            ("Hostname", name),
        ]
        labels = node.metadata.labels
        assert labels["topology.kubernetes.io/zone"] == labels["topology.kubernetes.io/region"] == "zone-1"
        assert labels["node.kubernetes.io/instance-type"] == "MediumInstance"
    other = await get_node(kube, "other")
    assert other is not None and is_tainted(other)


async def _a_service(kube: KubeClient, face: Face, names: list[str]) -> None:
    ports = [{"name": f"p{port}", "port": port, "protocol": "TCP"} for port in (80, 443)]
    body = {"type": "LoadBalancer", "selector": {"app": "web"}, "ports": ports}
    await kube.create(SERVICES, {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": body})

    async def served() -> bool:
        return bool((await get_service(kube, "web")).status.load_balancer.ingress)

    await eventually(served)
    (ingress,) = (await get_service(kube, "web")).status.load_balancer.ingress
    assert {each["publicip"] for each in face.region.rules.values()} == {ingress.ip}
    assert {len(each) for each in face.region.assigned.values()} == {len(names)}
    assert len(face.region.firewall) == len(face.region.rules) == 2

    await kube.delete(f"{SERVICES}/web")

    async def gone() -> bool:
        try:
            await get_service(kube, "web")
        except NotFoundError:
            return True
        return False

    await eventually(gone)
    assert face.region.parts() == frozenset()


async def _a_node_goes(kube: KubeClient, face: Face) -> None:
    """While listings are incomplete, no Node is deleted. Afterwards, only the Node without a machine is deleted."""
    world = CloudStackWorld(face)
    gone = next(number for number, row in face.region.machines.items() if row["name"] == "worker-4")
    async with world.trouble(Trouble.SHORT_LISTING):
        before = len(face.exchanges)

        async def asked() -> bool:
            return len(face.exchanges) >= before + 4

        await eventually(asked)
        for number in range(5):
            assert await get_node(kube, f"worker-{number}") is not None
    face.region.delete_machine(gone)

    async def left() -> bool:
        return await get_node(kube, "worker-4") is None

    await eventually(left)
    for number in range(4):
        assert await get_node(kube, f"worker-{number}") is not None
    assert await get_node(kube, "other") is not None
