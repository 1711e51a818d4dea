# SPDX-License-Identifier: Apache-2.0
"""The runtime as a process, between a real API server and the Hetzner-shaped cloud: Nodes, routes, and load
balancers."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from ccm.engine.client import KubeClient, NotFoundError
from tests.integration.cluster import ApiServer
from tests.integration.runtime.support import (
    CLUSTER_CIDR,
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

from .face import TOKEN, Face
from .world import hetzner

VARIABLES = """\
HCLOUD_TOKEN={token}
HCLOUD_ENDPOINT={url}
HCLOUD_NETWORK=kube
HCLOUD_LOAD_BALANCERS_LOCATION=fsn1
HCLOUD_CALLS_PER_SECOND=100
"""


async def test_nodes_routes_and_a_service_for_few_calls(apiserver: ApiServer, kube: KubeClient, tmp_path: Path) -> None:
    async with hetzner() as (face, _):
        config, port = tmp_path / "hetzner.env", free_port()
        config.write_text(VARIABLES.format(token=TOKEN, url=face.url))
        flags: dict[str, Any] = {
            "cloud-provider": "hetzner",
            "cloud-config": config,
            "kubeconfig": apiserver.kubeconfig(),
            "cluster-cidr": CLUSTER_CIDR,
            "bind-address": "127.0.0.1",
            "secure-port": port,
            "leader-elect": "false",
            "controllers": "*,-cloud-node-lifecycle",
        }
        names = [f"worker-{number}" for number in range(5)]
        for number, name in enumerate(names):
            await kube.create(NODES, node_body(name, number=number + 1))
        await kube.create(NODES, node_body("robot", providerID="hrobot://321"))
        ccm = Ccm([f"--{name}={value}" for name, value in flags.items()], tmp_path / "ccm.log", port)
        try:
            await _nodes_and_routes(kube, face, names)
            await _a_service(kube, face, names)
        finally:
            await ccm.stop()
            print(ccm.text)
        assert "Traceback" not in ccm.text and TOKEN not in ccm.text


async def _nodes_and_routes(kube: KubeClient, face: Face, names: list[str]) -> None:
    await eventually(lambda: initialised(kube, *names))
    for name in names:
        node = await get_node(kube, name)
        server = next(each for each in face.project.servers.values() if each["name"] == name)
        assert node is not None and node.spec.provider_id == f"hcloud://{server['id']}"
        assert [(each.type, each.address) for each in node.status.addresses] == [
            ("Hostname", name),
            ("ExternalIP", server["public_net"]["ipv4"]["ip"]),
            ("InternalIP", server["private_net"][0]["ip"]),
        ]
        assert node.metadata.labels["instance.hetzner.cloud/provided-by"] == "cloud"
        assert node.metadata.labels["topology.kubernetes.io/region"] == server["location"]["name"]
    robot = await get_node(kube, "robot")
    assert robot is not None and is_tainted(robot) and not robot.status.addresses
    network = next(iter(face.project.networks.values()))

    async def routed() -> bool:
        return len(network["routes"]) == len(names)

    await eventually(routed)
    gateways = {server["private_net"][0]["ip"] for server in face.project.servers.values()}
    assert {each["gateway"] for each in network["routes"]} == gateways


async def _a_service(kube: KubeClient, face: Face, names: list[str]) -> None:
    ports = [{"name": f"p{port}", "port": port, "protocol": "TCP"} for port in (80, 443)]
    body = {"type": "LoadBalancer", "selector": {"app": "web"}, "ports": ports}
    before = len(face.exchanges)
    await kube.create(SERVICES, {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": body})

    async def served() -> bool:
        return bool((await get_service(kube, "web")).status.load_balancer.ingress)

    await eventually(served)
    (balancer,) = face.project.load_balancers.values()
    service = await get_service(kube, "web")
    shown = [each.ip for each in service.status.load_balancer.ingress]
    public = balancer["public_net"]
    assert shown == [public["ipv4"]["ip"], public["ipv6"]["ip"], balancer["private_net"][0]["ip"]]
    assert len(balancer["targets"]) == len(names)
    assert len(_about_balancers(face, before)) <= 4, _about_balancers(face, before)

    before = len(face.exchanges)
    await kube.delete(f"{NODES}/{names[0]}")

    async def left() -> bool:
        return len(balancer["targets"]) == len(names) - 1

    await eventually(left)
    assert len(_about_balancers(face, before)) <= 2, _about_balancers(face, before)

    await kube.delete(f"{SERVICES}/web")

    async def gone() -> bool:
        try:
            await get_service(kube, "web")
        except NotFoundError:
            return True
        return False

    await eventually(gone)
    assert face.project.load_balancers == {}
    kinds = Counter(each.method for each in face.exchanges if each.path == "/load_balancers" and each.method == "POST")
    assert kinds == {"POST": 1}


def _about_balancers(face: Face, since: int) -> list[str]:
    return [call for call in face.calls(since) if "/load_balancers" in call]
