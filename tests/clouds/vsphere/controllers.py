# SPDX-License-Identifier: Apache-2.0
"""cloud-provider-vsphere and this runtime as processes, on the same API server and the same vCenter."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from bed import go_programs
from bed.progress import Progress
from ccm.engine.client import KubeClient
from ccm.engine.objects import Node
from tests.integration.cluster import ApiServer
from tests.integration.runtime.support import NODES, Ccm, eventually, get_node, is_tainted
from tests.ports import free_port

from .proxy import Proxy
from .table import Row, node_of
from .vcenter import PASSWORD, USER

PATIENCE = 300.0
SHUTDOWN = "node.cloudprovider.kubernetes.io/shutdown"
TRIES = 5
#: Reasons of Events about Nodes that are not initialised.
REFUSALS = ("InstanceIncomplete", "InitializationFailed")
#: The fields of a Node that its controller writes.
State = dict[str, Any]


def conf(proxy: Proxy, text: str = "", **keys: str) -> str:
    """Return a vsphere.conf that both controllers read. `keys`: keys of `[Global]`. `text`: more sections."""
    given = {"port": proxy.port, "user": USER, "password": PASSWORD, "ca-file": proxy.ca_file, **keys}
    lines = [f'{key} = "{value}"' for key, value in given.items()]
    return "\n".join(["[Global]", *lines, '[VirtualCenter "127.0.0.1"]', text, ""])


class Controllers:
    """Starts one controller at a time."""

    def __init__(self, apiserver: ApiServer, kube: KubeClient, folder: Path) -> None:
        self._apiserver, self.kube, self._folder = apiserver, kube, folder
        self._count = 0

    def ours(self, text: str, **flags: Any) -> Ccm:
        config, port, log = self._files(text)
        own = {"node-deletion-min-age": "0s", "node-monitor-period": "1s", "controllers": "*,-service,-route"}
        return Ccm(self._arguments(config, port, own | flags), log, port)

    def theirs(self, text: str, **flags: Any) -> Theirs:
        config, port, log = self._files(text)
        own = {"allow-untagged-cloud": "true", "node-monitor-period": "1s"}
        return Theirs(self._arguments(config, port, own | flags), log)

    def _files(self, text: str) -> tuple[Path, int, Path]:
        self._count += 1
        config = self._folder / f"vsphere-{self._count}.conf"
        config.write_text(text)
        return config, free_port(), self._folder / f"controller-{self._count}.log"

    def _arguments(self, config: Path, port: int, flags: Mapping[str, Any]) -> list[str]:
        given: dict[str, Any] = {
            "cloud-provider": "vsphere",
            "cloud-config": config,
            "kubeconfig": self._apiserver.kubeconfig(),
            "leader-elect": "false",
            "bind-address": "127.0.0.1",
            "secure-port": port,
            **flags,
        }
        return [f"--{name}={value}" for name, value in given.items()]


class Theirs:
    """A process of cloud-provider-vsphere."""

    def __init__(self, arguments: list[str], log: Path) -> None:
        self.log = log
        program = go_programs.ensure("vsphere-cloud-controller-manager", Progress())
        environment = {**os.environ, "ENABLE_ALPHA_DUAL_STACK": "1"}
        with log.open("w") as output:
            self._process = subprocess.Popen([program, *arguments], stdout=output, stderr=output, env=environment)

    @property
    def text(self) -> str:
        return self.log.read_text()

    def passes(self) -> int:
        """Return how many times the process has checked all Nodes."""
        return len(re.findall(r"Update \d+ nodes status took", self.text))

    def refuses(self, node: str) -> bool:
        """Return whether the process has failed with a Node several times. The first failures do not count, because its
        cache may not have the machine yet."""
        return self.text.count(f" error syncing '{node}'") >= TRIES

    async def stop(self) -> None:
        self._process.terminate()
        try:
            await asyncio.wait_for(asyncio.to_thread(self._process.wait), 10)
        except TimeoutError:
            self._process.kill()
            self._process.wait()


async def register(kube: KubeClient, table: tuple[Row, ...], uuids: Mapping[str, str]) -> None:
    for row in table:
        if row.node:
            await kube.create(NODES, node_of(row, uuids[row.name]))


async def answered(kube: KubeClient, program: Ccm | Theirs, table: Iterable[Row]) -> dict[str, State]:
    """Wait until each Node is initialised, or the controller has reported why it is not, and until Nodes whose machines
    are off have the taint for that. Return the Nodes' states."""
    names = [row.node for row in table if row.node]
    off = {row.node for row in table if not row.is_on}

    async def is_answered(name: str) -> bool:
        node = await get_node(kube, name)
        assert node is not None
        if not is_tainted(node):
            is_off = any(each.key == SHUTDOWN for each in node.spec.taints)
            return bool(node.status.addresses) and is_off == (name in off)
        if isinstance(program, Theirs):
            return program.refuses(name)
        selector = f"involvedObject.uid={node.metadata.uid}"
        events = await kube.get("/api/v1/events", dict, params={"fieldSelector": selector})
        return any(each["reason"] in REFUSALS for each in events["items"])

    for name in names:
        try:
            await eventually(lambda name=name: is_answered(name), PATIENCE, f"an answer about Node {name}")
        except BaseException:
            print(program.text)
            raise
    return {name: await state(kube, name) for name in names}


async def state(kube: KubeClient, name: str) -> State:
    """Return the fields of a Node that a controller writes."""
    node = await kube.get(f"{NODES}/{name}", dict)
    taints = [each["key"] for each in node["spec"].get("taints", ()) if "cloudprovider" in each["key"]]
    return {
        "labels": node["metadata"].get("labels", {}),
        "providerID": node["spec"].get("providerID", ""),
        "taints": sorted(taints),
        "addresses": [f"{each['type']}={each['address']}" for each in node["status"].get("addresses", ())],
    }


async def remove(kube: KubeClient) -> None:
    """Delete all Nodes."""
    nodes, _ = await kube.list(NODES, Node)
    for node in nodes:
        await kube.delete(f"{NODES}/{node.metadata.name}")


def shown(states: Mapping[str, State]) -> str:
    return json.dumps(states, indent=1, sort_keys=True)
