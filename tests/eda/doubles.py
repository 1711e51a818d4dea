# SPDX-License-Identifier: Apache-2.0
"""A cluster on which `site.yml` runs without machines: hosts and the programs in the cluster are simulated as in `make
bench-collection`, and the API server is real.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tools.bench_collection import farm
from tools.bench_collection.__main__ import control_plane_files, start_farm, worker_files
from tools.bench_collection.simulator import DAEMONSET, POD, PODS, Simulator, inventory
from tools.packaging import environments

from ..integration.cluster import ApiServer
from ..integration.collection.machine import Machine, command_line

#: A label that no Node has, and the patch that stops the controller with it.
NOWHERE = {"example.com/nowhere": "true"}
STOP = {"spec": {"template": {"spec": {"nodeSelector": NOWHERE}}}}
EVENTS = "/api/v1/namespaces/default/events"
MANAGER = "/etc/kubernetes/controller-manager"
Object = dict[str, Any]


class Cluster(Simulator):
    """A simulated cluster whose DaemonSet may have no Pod, and whose control plane shows its arguments in a mirror Pod.
    """

    def __init__(self, server: ApiServer, folder: Path, plane: Machine) -> None:
        super().__init__(server, folder)
        self.plane = plane

    async def _run_pod(self, daemonset: Object) -> None:
        if NOWHERE.items() <= (daemonset["spec"]["template"]["spec"].get("nodeSelector") or {}).items():
            await self.call("DELETE", f"{PODS}/{POD}")
            generation = daemonset["metadata"]["generation"]
            counts = dict.fromkeys(("desiredNumberScheduled", "numberReady", "numberAvailable"), 0)
            status = {**counts, "observedGeneration": generation}
            await self.call("PATCH", f"{DAEMONSET}/status", {"status": status})
        else:
            await super()._run_pod(daemonset)
        await self._mirror()

    async def _mirror(self) -> None:
        """Show the control plane's static Pod in the API server, with the arguments of the running process, as its
        kubelet does.
        """
        name, running = "kube-controller-manager-cp-1", json.loads((self.plane.folder / "running.json").read_text())
        command = running["kube-controller-manager"]
        found = await self.call("GET", f"{PODS}/{name}")
        if found and found["spec"]["containers"][0]["command"] == command:
            return
        await self.call("DELETE", f"{PODS}/{name}")
        container = {"name": "kube-controller-manager", "image": "k:1", "command": command}
        spec = {"nodeName": "cp-1", "terminationGracePeriodSeconds": 0, "containers": [container]}
        metadata = {"name": name, "labels": {"component": "kube-controller-manager", "tier": "control-plane"}}
        await self.call("POST", PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})


class Doubles:
    def __init__(self, cluster: Cluster, hosts: Path, apiserver: ApiServer, workers: list[str], health: int) -> None:
        self._cluster, self._folder, self._health = cluster, cluster.plane.folder.parent, health
        self.inventory, self.kubeconfig, self.workers = hosts, apiserver.kubeconfig(), workers

    async def get(self, path: str) -> Object:
        return await self._cluster.call("GET", path)

    async def join_without_the_flag(self, worker: str) -> None:
        root = self._folder / worker
        for path, text in worker_files(self._health).items():
            (root / path.lstrip("/")).write_text(text)
        await self._cluster.call("DELETE", f"/api/v1/nodes/{worker}")
        farm.start_kubelet(root, root, int((root / "kubelet.pid").read_text()))
        await self._cluster.create_node(worker)

    async def has_the_flag(self, worker: str) -> bool:
        root = self._folder / worker
        command = root / "proc" / (root / "kubelet.pid").read_text() / "cmdline"
        return b"--cloud-provider=external" in command.read_bytes()

    async def revert_the_control_plane(self) -> None:
        plane = self._cluster.plane.folder
        (plane / MANAGER.lstrip("/")).write_text(control_plane_files()[MANAGER])
        running = json.loads((plane / "running.json").read_text())
        running["kube-controller-manager"] = command_line(plane, "kube-controller-manager")
        (plane / "running.json").write_text(json.dumps(running))

    async def is_external(self) -> bool:
        running = json.loads((self._cluster.plane.folder / "running.json").read_text())
        return not any("openstack" in word for word in running["kube-controller-manager"])

    async def stop_the_controller(self) -> None:
        await self._cluster.call("PATCH", DAEMONSET, STOP)

    async def hold_a_deletion(self, worker: str) -> None:
        node = await self.get(f"/api/v1/nodes/{worker}")
        about = {"kind": "Node", "name": worker, "uid": node["metadata"]["uid"]}
        event = {"reason": "DeletionHeld", "type": "Warning", "message": "no answer", "involvedObject": about}
        await self._cluster.call("POST", EVENTS, {"metadata": {"generateName": "held-"}, **event})
        status = {"conditions": [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}]}
        await self._cluster.call("PATCH", f"/api/v1/nodes/{worker}/status", {"status": status})

    async def let_it_go(self, worker: str) -> None:
        await self._cluster.heartbeat(worker)


@pytest.fixture
async def doubles(environment: Path, tmp_path: Path) -> AsyncIterator[Doubles]:
    """Yield a cluster with an API server of its own. `site.yml` has not migrated the cluster yet."""
    checkout, folder = environments.REPOSITORY, tmp_path / "hosts"
    for place in (folder, tmp_path / "api"):
        place.mkdir()
    apiserver = ApiServer(tmp_path / "api")
    health = farm.health_server()
    files = worker_files(health.server_port)
    workers = {name: farm.build(folder / name, name, files, folder / "farm") for name in ("w-1", "w-2")}
    plane = Machine(folder / "cp-1", control_plane_files())
    answers = start_farm(folder, checkout, environment / "bin")
    try:
        async with Cluster(apiserver, folder, plane) as cluster:
            for name in ("cp-1", *workers):
                await cluster.create_node(name)
            cluster.start()
            hosts = inventory(folder, str(plane.folder / "python"), workers)
            data = json.loads(hosts.read_text())
            data["all"]["vars"] = {
                "ccm_install_kubeconfig": str(apiserver.kubeconfig()),
                "ccm_install_provider_id_prefix": "sim://",
                "ccm_runtime_cloud_provider": "sim",
                "ccm_runtime_image": "bench",
                "ccm_runtime_command": ["/bin/ccm"],
            }
            hosts.write_text(json.dumps(data))
            yield Doubles(cluster, hosts, apiserver, list(workers), health.server_port)
    finally:
        answers.kill()
        answers.wait()
        health.shutdown()
        apiserver.close()
