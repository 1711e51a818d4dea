# SPDX-License-Identifier: Apache-2.0
"""The runtime as a process with the provider `gce`, between a real API server and the stand-in: Nodes are added,
stopped and deleted, and no Node is deleted because a zone does not answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ccm.engine.client import KubeClient
from tests.integration.cluster import ApiServer
from tests.integration.runtime.support import NODES, Ccm, eventually, get_node, initialised, is_tainted, node_body
from tests.ports import free_port

from .face import PEM, Face, Fault
from .project import PROJECT, ZONES
from .world import config, gce

SHUTDOWN = "node.cloudprovider.kubernetes.io/shutdown"


async def test_nodes_come_stop_and_go(apiserver: ApiServer, kube: KubeClient, tmp_path: Path) -> None:
    async with gce() as (face, _):
        path, port = tmp_path / "gce.conf", free_port()
        path.write_text(config(face, tmp_path).text)
        flags: dict[str, Any] = {
            "cloud-provider": "gce",
            "cloud-config": path,
            "kubeconfig": apiserver.kubeconfig(),
            "bind-address": "127.0.0.1",
            "secure-port": port,
            "leader-elect": "false",
            "node-monitor-period": "1s",
            "node-deletion-min-age": "0s",
            "v": 9,
        }
        names = [f"worker-{number}" for number in range(5)]
        for number, name in enumerate(names):
            await kube.create(NODES, node_body(name, number=number + 1))
        await kube.create(NODES, node_body("other", providerID=f"gce://other/{ZONES[0]}/other"))
        ccm = Ccm([f"--{name}={value}" for name, value in flags.items()], tmp_path / "ccm.log", port)
        try:
            await eventually(lambda: initialised(kube, *names))
            await _described(kube, face, names)
            await _stops(kube, face)
            await _goes(kube, face)
        finally:
            await ccm.stop()
            print(ccm.text)
        assert "Traceback" not in ccm.text
        assert not any(secret in ccm.text for secret in (*face.tokens, *PEM.splitlines()[1:-1]))


async def _described(kube: KubeClient, face: Face, names: list[str]) -> None:
    for number, name in enumerate(names):
        zone, node = ZONES[number % 3], await get_node(kube, name)
        (interface,) = face.project.rows[zone, name]["networkInterfaces"]
        assert node is not None and node.spec.provider_id == f"gce://{PROJECT}/{zone}/{name}"
        assert [(each.type, each.address) for each in node.status.addresses if each.type != "Hostname"] == [
            ("InternalIP", interface["networkIP"]),
            ("ExternalIP", interface["accessConfigs"][0]["natIP"]),
        ]
        assert node.metadata.labels["topology.kubernetes.io/zone"] == zone
        assert node.metadata.labels["topology.kubernetes.io/region"] == "europe-west1"
        assert node.metadata.labels["node.kubernetes.io/instance-type"] == "e2-standard-4"
    other = await get_node(kube, "other")
    assert other is not None and is_tainted(other)


async def _stops(kube: KubeClient, face: Face) -> None:
    """An instance stops, like a spot instance that Compute Engine preempts."""
    face.project.rows[ZONES[0], "worker-3"]["status"] = "TERMINATED"

    async def stopped() -> bool:
        node = await get_node(kube, "worker-3")
        return node is not None and any(taint.key == SHUTDOWN for taint in node.spec.taints)

    await eventually(stopped)


async def _goes(kube: KubeClient, face: Face) -> None:
    """While a zone does not answer, none of its Nodes is deleted. Afterwards, only the Node without an instance is
    deleted."""
    del face.project.rows[ZONES[1], "worker-4"]
    face.project.doubts = {ZONES[1]: "UNREACHABLE"}
    face.faults.append(fault := Fault("status", status=503, path=f"/projects/{PROJECT}/zones/{ZONES[1]}/.*"))
    before = len(face.exchanges)

    async def asked() -> bool:
        return len(face.exchanges) >= before + 4

    await eventually(asked)
    for number in range(5):
        assert await get_node(kube, f"worker-{number}") is not None
    face.project.doubts = {}
    face.faults.remove(fault)

    async def left() -> bool:
        return await get_node(kube, "worker-4") is None

    await eventually(left)
    for number in range(4):
        assert await get_node(kube, f"worker-{number}") is not None
    assert await get_node(kube, "other") is not None
