# SPDX-License-Identifier: Apache-2.0
"""The runtime as a process with the provider `azure`, between a real API server and the stand-in: Nodes are added,
stopped and deleted, and no Node is deleted because a scale set cannot be read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ccm.engine.client import KubeClient
from tests.integration.cluster import ApiServer
from tests.integration.runtime.support import NODES, Ccm, eventually, get_node, initialised, is_tainted, node_body
from tests.ports import free_port

from .face import SECRET, Face, Fault
from .resources import BASE, SUBSCRIPTION
from .world import azure, config

SHUTDOWN = "node.cloudprovider.kubernetes.io/shutdown"
START = f"azure:///subscriptions/{SUBSCRIPTION}/resourceGroups/kube-rg/providers/Microsoft.Compute"


async def test_nodes_come_stop_and_go(apiserver: ApiServer, kube: KubeClient, tmp_path: Path, monkeypatch: Any) -> None:
    async with azure() as (face, _):
        path, port, given = tmp_path / "azure.json", free_port(), config(face)
        path.write_text(given.text)
        for name, text in given.environment.items():
            monkeypatch.setenv(name, text)
        flags: dict[str, Any] = {
            "cloud-provider": "azure",
            "cloud-config": path,
            "kubeconfig": apiserver.kubeconfig(),
            "bind-address": "127.0.0.1",
            "secure-port": port,
            "leader-elect": "false",
            "node-monitor-period": "1s",
            "node-deletion-min-age": "0s",
            "v": 9,
        }
        names = [f"worker-{number}" for number in range(4)]
        for number, name in enumerate(names[:3]):
            await kube.create(NODES, node_body(name, number=number + 1))
        # The providerID as an in-tree kubelet wrote it: partly in upper case.
        number = next(iter(face.group.set_machines["pool-b"]))
        theirs = f"{START}/virtualMachineScaleSets/POOL-B/virtualMachines/{number}".replace("kube-rg", "KUBE-RG")
        await kube.create(NODES, node_body("worker-3", number=4, providerID=theirs))
        await kube.create(
            NODES, node_body("other", providerID=f"{START}/virtualMachines/a".replace("kube-rg", "other"))
        )
        ccm = Ccm([f"--{name}={value}" for name, value in flags.items()], tmp_path / "ccm.log", port)
        try:
            await eventually(lambda: initialised(kube, *names))
            await _described(kube, face, theirs)
            await _stops(kube, face)
            await _goes(kube, face)
        finally:
            await ccm.stop()
            print(ccm.text)
        assert "Traceback" not in ccm.text
        assert not any(secret in ccm.text for secret in (*face.tokens, SECRET))


async def _described(kube: KubeClient, face: Face, theirs: str) -> None:
    (number,) = face.group.set_machines["pool-a"]
    expected = {
        "worker-0": (f"{START}/virtualMachines/Worker-0", "Standard_D4s_v3", "1"),
        "worker-1": (f"{START}/virtualMachines/vm-1", "Standard_D4s_v3", "westeurope-2"),
        "worker-2": (f"{START}/virtualMachineScaleSets/pool-a/virtualMachines/{number}", "Standard_D8s_v3", "1"),
        "worker-3": (theirs, "Standard_D8s_v3", "1"),
    }
    for name, (provider_id, type, zone) in expected.items():
        node = await get_node(kube, name)
        assert node is not None and node.spec.provider_id == provider_id
        assert [each.type for each in node.status.addresses] == ["Hostname", "InternalIP", "ExternalIP"]
        assert node.status.addresses[0].address == name
        assert node.status.addresses[1].address.startswith("10.240.0.")
        assert node.metadata.labels["node.kubernetes.io/instance-type"] == type
        assert node.metadata.labels["topology.kubernetes.io/zone"] == zone
        assert node.metadata.labels["topology.kubernetes.io/region"] == "westeurope"
    other = await get_node(kube, "other")
    assert other is not None and is_tainted(other)


async def _stops(kube: KubeClient, face: Face) -> None:
    (row,) = face.group.set_machines["pool-a"].values()
    row["properties"]["instanceView"]["statuses"][1] = {"code": "PowerState/deallocated", "level": "Info"}

    async def stopped() -> bool:
        node = await get_node(kube, "worker-2")
        return node is not None and any(taint.key == SHUTDOWN for taint in node.spec.taints)

    await eventually(stopped)


async def _goes(kube: KubeClient, face: Face) -> None:
    """While a scale set cannot be read, none of its Nodes is deleted. Afterwards, only the Node without a machine is
    deleted."""
    face.group.set_machines["pool-b"].clear()
    face.faults.append(
        fault := Fault("status", path=f"(?i){BASE}/Microsoft.Compute/virtualMachineScaleSets/pool-b/virtualMachines.*")
    )
    before = len(face.exchanges)

    async def asked() -> bool:
        return len(face.exchanges) >= before + 8

    await eventually(asked)
    for number in range(4):
        assert await get_node(kube, f"worker-{number}") is not None
    face.faults.remove(fault)

    async def left() -> bool:
        return await get_node(kube, "worker-3") is None

    await eventually(left)
    for number in range(3):
        assert await get_node(kube, f"worker-{number}") is not None
    assert await get_node(kube, "other") is not None
