# SPDX-License-Identifier: Apache-2.0
"""Simulates the parts of a cluster, except the API server, that the playbooks notice: kubelets that report Ready, the
DaemonSet controller with one Pod, garbage collection, and a controller that initialises tainted Nodes."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import json
import ssl
import time
from pathlib import Path
from typing import Any

import aiohttp

from tests.integration.cluster import ApiServer

TAINT = "node.cloudprovider.kubernetes.io/uninitialized"
DAEMONSET = "/apis/apps/v1/namespaces/kube-system/daemonsets/cloud-controller-manager"
PODS = "/api/v1/namespaces/kube-system/pods"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
POD = "cloud-controller-manager-bench"
#: Seconds from the restart of a kubelet to its heartbeat, and from a Node's taint to the end of its initialisation.
HEARTBEAT, INITIALISATION = 1.0, 1.0


def now() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Simulator:
    """The simulated parts of one cluster, as an asynchronous context manager. `folder` is the folder of the farm, which
    notes restarted kubelets there. After `start`, all parts run until the block is left."""

    def __init__(self, server: ApiServer, folder: Path) -> None:
        self._server, self._folder = server, folder
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Simulator:
        trust = ssl.create_default_context(cafile=str(self._server.ca_file))
        self._session = aiohttp.ClientSession(
            headers={"Authorization": f"Bearer {self._server.token}"},
            connector=aiohttp.TCPConnector(ssl=trust, limit=20),
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._session.close()

    def start(self) -> None:
        self._tasks = [asyncio.create_task(part()) for part in (self._kubelets, self._daemonset, self._initialise)]

    async def call(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        """Send one request and return the answer; {} for an object that does not exist, or changed in between."""
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        async with self._session.request(
            method, self._server.url + path, json=body, headers={"Content-Type": kind}
        ) as got:
            if got.status in (404, 409):
                return {}
            if got.status >= 400:
                raise RuntimeError(f"{method} {path}: {got.status} {await got.text()}")
            found: dict[str, Any] = await got.json()
            return found

    async def create_node(self, name: str) -> None:
        labels = {"node-role.kubernetes.io/control-plane": ""} if name.startswith("cp-") else {}
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}
        await self.call("POST", "/api/v1/nodes", node)
        await self.heartbeat(name)

    async def heartbeat(self, name: str) -> None:
        ready = {"type": "Ready", "status": "True", "lastHeartbeatTime": now(), "reason": "KubeletReady"}
        status = {
            "conditions": [ready],
            "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
            "nodeInfo": {"kubeletVersion": "v1.36.3"},
        }
        await self.call("PATCH", f"/api/v1/nodes/{name}/status", {"status": status})

    async def _kubelets(self) -> None:
        """Write heartbeats of the kubelets that the farm restarted, and of the control plane's, which the farm does not
        run."""
        seen = self._folder / "restarted"
        done, last = 0, 0.0
        while True:
            lines = seen.read_text().splitlines() if seen.exists() else []
            for line in lines[done:]:
                name, _, at = line.partition(" ")
                if time.time() < float(at) + HEARTBEAT:
                    break
                await self.heartbeat(name)
                done += 1
            if time.time() > last + 2:
                await self.heartbeat("cp-1")
                last = time.time()
            await asyncio.sleep(0.2)

    async def _daemonset(self) -> None:
        while True:
            found = await self.call("GET", DAEMONSET)
            if found.get("metadata", {}).get("deletionTimestamp"):
                await self.call("DELETE", f"{PODS}/{POD}")
                await self.call("PATCH", DAEMONSET, {"metadata": {"finalizers": None}})
            elif found:
                await self._run_pod(found)
            await asyncio.sleep(0.5)

    async def _run_pod(self, daemonset: dict[str, Any]) -> None:
        status = {
            "observedGeneration": daemonset["metadata"]["generation"],
            "currentNumberScheduled": 1,
            "numberMisscheduled": 0,
            **dict.fromkeys(("desiredNumberScheduled", "numberReady", "updatedNumberScheduled", "numberAvailable"), 1),
        }
        if (daemonset.get("status") or {}).get("observedGeneration") != daemonset["metadata"]["generation"]:
            await self.call("PATCH", f"{DAEMONSET}/status", {"status": status})
        if not await self.call("GET", f"{PODS}/{POD}"):
            template = daemonset["spec"]["template"]
            container = {"name": "ccm", "image": "bench", "command": ["/bin/ccm"]}
            spec = {"nodeName": "cp-1", "terminationGracePeriodSeconds": 0, "containers": [container]}
            metadata = {"name": POD, "labels": template["metadata"]["labels"]}
            await self.call("POST", PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
            ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
            await self.call("PATCH", f"{PODS}/{POD}/status", {"status": ready})
        name = "cloud-controller-manager"
        renewed = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        held = {"holderIdentity": f"{POD}_1", "leaseDurationSeconds": 15, "renewTime": renewed}
        if not await self.call("PATCH", f"{LEASES}/{name}", {"spec": held}):
            kind = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
            await self.call("POST", LEASES, {**kind, "metadata": {"name": name}, "spec": held})

    async def _initialise(self) -> None:
        """Initialise tainted Nodes as the cloud node controller does: set the providerID and remove the taint."""
        since: dict[str, float] = {}
        while True:
            if await self.call("GET", f"{PODS}/{POD}"):
                nodes = (await self.call("GET", "/api/v1/nodes?resourceVersion=0")).get("items", [])
                due = []
                for node in nodes:
                    taints, name = node["spec"].get("taints") or [], node["metadata"]["name"]
                    if not any(taint["key"] == TAINT for taint in taints):
                        since.pop(name, None)
                    elif time.monotonic() > since.setdefault(name, time.monotonic()) + INITIALISATION:
                        due.append((name, node["metadata"]["resourceVersion"], taints))
                await asyncio.gather(*(self._initialise_one(*each) for each in due))
            await asyncio.sleep(0.3)

    async def _initialise_one(self, name: str, version: str, taints: list[dict[str, Any]]) -> None:
        kept = [taint for taint in taints if taint["key"] != TAINT]
        spec = {"providerID": f"sim://north/{name}", "taints": kept or None}
        with contextlib.suppress(RuntimeError):
            await self.call("PATCH", f"/api/v1/nodes/{name}", {"metadata": {"resourceVersion": version}, "spec": spec})


def inventory(folder: Path, cp: str, workers: dict[str, Path]) -> Path:
    """Write the inventory of a bench, and return its path."""
    hosts = {
        name: {"ansible_connection": "local", "ansible_python_interpreter": str(path)} for name, path in workers.items()
    }
    plane = {"ansible_connection": "local", "ansible_python_interpreter": cp}
    groups = {"kube_control_plane": {"hosts": {"cp-1": plane}}, "kube_node": {"hosts": hosts}}
    path = folder / "inventory.json"
    path.write_text(json.dumps({"all": {"children": groups}}))
    return path
