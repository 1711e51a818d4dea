# SPDX-License-Identifier: Apache-2.0
"""The runtime as a process with the provider `libcloud`, between a real API server and a DigitalOcean-shaped API: Nodes
come and go, and a broken listing removes none. It runs at --v=9 and never shows the token."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ccm.conformance import Trouble
from ccm.engine.client import KubeClient
from tests.integration.cluster import ApiServer
from tests.integration.runtime.support import NODES, Ccm, eventually, get_node, initialised, is_tainted, node_body
from tests.ports import free_port

from .droplets import TOKEN, Droplets, DropletWorld, running

CONFIG = """\
driver: digitalocean
url: {url}
token: {token}
calls_per_second: 100
"""


async def test_nodes_come_and_go(apiserver: ApiServer, kube: KubeClient, tmp_path: Path) -> None:
    async with running() as (droplets, url):
        config, port = tmp_path / "libcloud.yaml", free_port()
        config.write_text(CONFIG.format(token=TOKEN, url=url))
        flags: dict[str, Any] = {
            "cloud-provider": "libcloud",
            "cloud-config": config,
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
        await kube.create(NODES, node_body("other", providerID="linode://321"))
        ccm = Ccm([f"--{name}={value}" for name, value in flags.items()], tmp_path / "ccm.log", port)
        try:
            await eventually(lambda: initialised(kube, *names))
            for name in names:
                row = next(each for each in droplets.rows.values() if each["name"] == name)
                node = await get_node(kube, name)
                assert node is not None and node.spec.provider_id == f"digitalocean://{row['id']}"
                addresses = [each["ip_address"] for each in row["networks"]["v4"]]
                assert [(each.type, each.address) for each in node.status.addresses] == [
                    ("Hostname", name),
                    ("InternalIP", addresses[0]),
                    ("ExternalIP", addresses[1]),
                ]
                assert node.metadata.labels["topology.kubernetes.io/region"] == "sfo3"
                assert node.metadata.labels["node.kubernetes.io/instance-type"] == "s-1vcpu-1gb"
            other = await get_node(kube, "other")
            assert other is not None and is_tainted(other)
            await _goes(kube, droplets)
        finally:
            await ccm.stop()
            print(ccm.text)
        assert "Traceback" not in ccm.text and TOKEN not in ccm.text


async def _goes(kube: KubeClient, droplets: Droplets) -> None:
    """While listings are incomplete, no Node is deleted. Afterwards, only worker-4 is deleted, whose droplet is
    gone."""
    gone = next(number for number, row in droplets.rows.items() if row["name"] == "worker-4")
    before = len(droplets.calls())

    async def asked() -> bool:
        return len(droplets.calls(before)) >= 4

    async with DropletWorld(droplets).trouble(Trouble.SHORT_LISTING):
        await eventually(asked)
        for number in range(5):
            assert await get_node(kube, f"worker-{number}") is not None
    del droplets.rows[gone]

    async def left() -> bool:
        return await get_node(kube, "worker-4") is None

    await eventually(left)
    for number in range(4):
        assert await get_node(kube, f"worker-{number}") is not None
    assert await get_node(kube, "other") is not None
