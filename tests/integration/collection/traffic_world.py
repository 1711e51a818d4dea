# SPDX-License-Identifier: Apache-2.0
"""A cluster in which traffic flows, without machines: Nodes, Pods and load balancers are addresses of 127.0.0.0/8.

The API server, the runtime and the simulated cloud with its load balancers are real. This file has as much of the
DaemonSet and namespace controllers, of a kubelet and of kube-proxy as a check of the traffic needs. `World.broken` is a
set of words for what does not work.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import random
import ssl
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import aiohttp

from ccm_simcloud.testing import Simulator

from ..cluster import ApiServer
from ..kubelet import FEATURE, running_kubelet
from ..runtime.support import DEADLINE

NAMESPACE = "outoftree-ccm-check"
#: A network for this process only, so that parallel tests do not collide.
BASE = f"127.{20 + os.getpid() % 200}"
PORTS = (80, 8081)
LATE = 1.5  # seconds until kube-proxy has written its rules


def addresses(count: int) -> list[str]:
    return [f"{BASE}.2.{number}" for number in range(1, count + 1)]


def pool() -> str:
    """Return the range of the load balancers' addresses."""
    return f"{BASE}.1.1-{BASE}.1.200"


class World:
    """The cluster. `nodes`: names. `broken`: what does not work."""

    def __init__(self, apiserver: ApiServer, cloud: Simulator, nodes: list[str]) -> None:
        self.apiserver, self.cloud, self.nodes = apiserver, cloud, nodes
        self.broken: set[str] = set()
        self.servers: dict[str, asyncio.subprocess.Process] = {}
        #: The environment of the containers, by Node.
        self.environment: dict[str, dict[str, str]] = {}
        self.proxies: dict[tuple[str, int], asyncio.Server] = {}
        self.service: dict[str, Any] = {}
        #: The traffic policy that kube-proxy applies.
        self.policy = ""
        #: Whether a Pod has asked the Service.
        self.asked = asyncio.Event()

    def number(self, node: str) -> int:
        return self.nodes.index(node) + 1

    async def call(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> Any:
        data = None if body is None else json.dumps(body)
        headers = {"Authorization": f"Bearer {self.apiserver.token}", "Content-Type": kind}
        async with self.session.request(method, self.apiserver.url + path, data=data, headers=headers) as answer:
            return (await answer.json()) if answer.status < 300 else None

    # -- DaemonSets, Pods and namespaces -------------------------------------------------------------------------------

    async def follow(self) -> None:
        while True:
            namespace = await self.call("GET", f"/api/v1/namespaces/{NAMESPACE}")
            if namespace is not None:
                await self.step(namespace)
            await asyncio.sleep(0.1)

    async def step(self, namespace: dict[str, Any]) -> None:
        place = f"/api/v1/namespaces/{NAMESPACE}"
        self.service = await self.call("GET", f"{place}/services/check") or {}
        if "deletionTimestamp" not in namespace["metadata"]:
            found = await self.call("GET", f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets")
            for item in found["items"]:
                for node in self.nodes:
                    if node not in self.servers:
                        await self.start(node, item["spec"]["template"])
            return
        for node, server in list(self.servers.items()):
            server.kill()
            await server.wait()
            del self.servers[node]
        await self.call("DELETE", f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets/check")
        for node in self.nodes:
            await self.call("DELETE", f"{place}/pods/check-{node}", {"gracePeriodSeconds": 0})
        if self.service:
            await self.call("DELETE", f"{place}/services/check")
            return
        namespace["spec"]["finalizers"] = []
        await self.call("PUT", f"{place}/finalize", namespace)

    async def start(self, node: str, template: dict[str, Any]) -> None:
        place, name, ip = f"/api/v1/namespaces/{NAMESPACE}/pods", f"check-{node}", f"{BASE}.4.{self.number(node)}"
        spec = template["spec"] | {"nodeName": node}
        meta = template["metadata"] | {"name": name}
        if await self.call("POST", place, {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}) is None:
            return
        container = spec["containers"][0]
        self.environment[node] = os.environ | {item["name"]: item.get("value", node) for item in container["env"]}
        self.servers[node] = await asyncio.create_subprocess_exec(
            sys.executable, *container["command"][1:], ip, env=self.environment[node]
        )
        status: dict[str, Any] = {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}]}
        ready = {"type": "Ready", "status": "True"}
        if "image" in self.broken:
            waiting = {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}
            state = {"name": "check", "image": "i", "imageID": "", "ready": False, "restartCount": 0, "state": waiting}
            status, ready = {"phase": "Pending", "containerStatuses": [state]}, ready | {"status": "False"}
        else:
            await self.until_open(ip)
        body = {"status": status | {"conditions": [ready]}}
        await self.call("PATCH", f"{place}/{name}/status", body, "application/merge-patch+json")

    async def until_open(self, ip: str) -> None:
        async with asyncio.timeout(DEADLINE):
            while True:
                with contextlib.suppress(OSError):
                    _, writer = await asyncio.open_connection(ip, 8080)
                    writer.close()
                    return
                await asyncio.sleep(0.05)

    async def command(self, pod: str, words: list[str]) -> tuple[int, bytes, bytes]:
        """Run a command of a Pod, with local addresses in place of those that a Pod would reach."""
        job, node = json.loads(words[-1]), pod.removeprefix("check-")
        for target in job["targets"]:
            target["host"] = self.seen(node, target)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, *words[1:-1], json.dumps(job)),
            env=self.environment[node],
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate()
        if any(target["name"] == "service:" for target in job["targets"]):
            self.asked.set()
        return process.returncode or 0, out, err

    def seen(self, asker: str, target: dict[str, Any]) -> str:
        kind, _, other = target["name"].partition(":")
        if kind == "pod" and "routes" in self.broken and self.nodes[1] in (asker, other):
            return f"{BASE}.6.1"
        if kind == "service":
            return f"{BASE}.5.1"
        return f"{BASE}.3.{self.number(other)}" if kind in ("node", "health") else target["host"]

    # -- kube-proxy ----------------------------------------------------------------------------------------------------

    async def proxy(self) -> None:
        """While there is a Service, listen on its ports at BASE.5.1, and on its Nodes' ports at two addresses of each
        Node: BASE.2.N for the cloud's load balancers, BASE.3.N for Pods. BASE.6.1 accepts connections and is silent.
        """
        while True:
            wanted: set[tuple[str, int]] = {(f"{BASE}.6.1", 8080)}
            if self.service:
                spec = self.service["spec"]
                if spec["externalTrafficPolicy"] != self.policy:
                    policy = spec["externalTrafficPolicy"]
                    if "late-proxy" in self.broken:
                        await self.asked.wait()
                    await asyncio.sleep(LATE)  # kube-proxy first writes its rules, and then opens a health port
                    self.policy = policy
                    continue
                if "address" in self.broken:  # another server of the cloud has the address
                    ingress = (self.service["status"]["loadBalancer"] or {}).get("ingress") or []
                    wanted |= {(item["ip"], 80) for item in ingress}
                wanted |= {(f"{BASE}.5.1", port) for port in PORTS}
                ports = [spec["ports"][0].get("nodePort"), spec.get("healthCheckNodePort")]
                for node in self.nodes:
                    for side in (2, 3):
                        wanted |= {(f"{BASE}.{side}.{self.number(node)}", port) for port in ports if port}
            for key in wanted - self.proxies.keys():
                answer = stranger if key[0].startswith(f"{BASE}.1.") else self.accept
                self.proxies[key] = await asyncio.start_server(answer, *key)
            for key in self.proxies.keys() - wanted:
                self.proxies.pop(key).close()
            await asyncio.sleep(0.1)

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        address, port = writer.get_extra_info("sockname")[:2]
        _, _, side, number = address.split(".")
        node = self.nodes[int(number) - 1] if side in "23" else ""
        try:
            if self.is_silent(side, node, port):
                await reader.read()  # until the client gives up
            elif side in "23" and port == self.service["spec"].get("healthCheckNodePort"):
                await reader.readuntil(b"\r\n\r\n")
                writer.write(b"HTTP/1.0 200 OK\r\n\r\n{}")
            else:
                await self.pass_on(self.chosen(node), reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    def is_silent(self, side: str, node: str, port: int) -> bool:
        health = port == (self.service.get("spec") or {}).get("healthCheckNodePort")
        blocked = "health" in self.broken and health and node in self.nodes[:2]
        return side == "6" or blocked or ("security-group" in self.broken and side == "2" and not health)

    def chosen(self, node: str) -> str:
        local = node and self.policy == "Local"
        return node if local else random.choice(list(self.servers))

    async def pass_on(self, node: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back, forth = await asyncio.open_connection(f"{BASE}.4.{self.number(node)}", 8080)
        forth.write(await reader.readuntil(b"\r\n\r\n"))
        writer.write(await back.read())
        await writer.drain()
        forth.close()

    # -- the cloud -----------------------------------------------------------------------------------------------------

    def tamper(self) -> None:
        """Let the cloud's network differ from its load balancers."""
        wanted = self.cloud.fabric._wanted

        def other() -> Any:
            right = wanted()
            ports = dict(right.ports)
            if "ports" in self.broken:
                ports = {(protocol, ip, port + 5): rules for (protocol, ip, port), rules in ports.items()}
            if "targets" in self.broken:
                ports = {
                    key: dataclasses.replace(rules, backends=rules.backends[: len(rules.backends) // 2])
                    for key, rules in ports.items()
                }
            if "address" in self.broken:
                ports = {}
            return dataclasses.replace(right, ports=ports)

        self.cloud.fabric._wanted = other


async def stranger(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(asyncio.IncompleteReadError, OSError):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.0 200 OK\r\n\r\nIt works!")
    writer.close()


@contextlib.asynccontextmanager
async def running_world(
    apiserver: ApiServer, cloud: Simulator, folder: Path, names: Sequence[str]
) -> AsyncIterator[World]:
    """Create Nodes that are instances of the cloud, and run the cluster's stand-ins. Existing Nodes only get a status.
    """
    world, count = World(apiserver, cloud, list(names)), len(names)
    trust = ssl.create_default_context(cafile=str(apiserver.ca_file))
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trust)) as world.session,
        running_kubelet(apiserver.authority, folder, addresses(count)) as kubelet,
    ):
        kubelet.command = world.command
        for name, address in zip(world.nodes, addresses(count), strict=True):
            instance = cloud.add_instance(name, addresses=[{"type": "InternalIP", "address": address}])
            meta = {"name": name, "labels": {"kubernetes.io/os": "linux"}}
            spec = {"providerID": f"sim://north/{instance.id}"}
            node = {"apiVersion": "v1", "kind": "Node", "metadata": meta, "spec": spec}
            await world.call("POST", "/api/v1/nodes", node)
            status = {
                "addresses": [{"type": "InternalIP", "address": address}],
                "conditions": [{"type": "Ready", "status": "True"}],
                "declaredFeatures": [FEATURE],
                "daemonEndpoints": {"kubeletEndpoint": {"Port": kubelet.port}},
            }
            path = f"/api/v1/nodes/{name}/status"
            await world.call("PATCH", path, {"status": status}, "application/merge-patch+json")
        world.tamper()
        tasks = [asyncio.create_task(world.follow()), asyncio.create_task(world.proxy())]
        try:
            yield world
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for server in world.proxies.values():
                server.close()
            for process in world.servers.values():
                process.kill()
                await process.wait()
