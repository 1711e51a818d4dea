# SPDX-License-Identifier: Apache-2.0
"""Machines from a file, with a real API server: Nodes follow the file, and Services keep their addresses."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from ccm.engine.client import KubeClient

from .conftest import StartCcm
from .support import NODES, SERVICES, Ccm, eventually, get_lease, get_node, get_service, initialised, node_body

#: Flags that make the safety rules fast enough for a test.
FAST = {"node_monitor_period": "200ms", "node_deletion_min_age": "0s"}


class Machines:
    """The file of machines. Each write replaces the whole file, as editors and configuration management do."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, *names: str) -> None:
        self.write_text("".join(f"- {{name: {name}, addresses: [10.0.1.{n}]}}\n" for n, name in enumerate(names)))

    def write_text(self, text: str) -> None:
        part = self.path.with_suffix(".part")
        part.write_text(text)
        os.replace(part, self.path)


@pytest.fixture
def machines(tmp_path: Path) -> Machines:
    return Machines(tmp_path / "machines.yaml")


def start(start_ccm: StartCcm, machines: Machines, more: str = "", **flags: Any) -> Ccm:
    conf = f"cluster: cellar\nzone: rack-1\nmachines_file: {machines.path}\n{more}"
    return start_ccm(conf=conf, cloud_provider="static", configure_cloud_routes="false", **flags)


async def test_nodes_come_and_go_with_the_file(kube: KubeClient, machines: Machines, start_ccm: StartCcm) -> None:
    machines.write("static-0", "static-1", "static-2")
    ccm = start(start_ccm, machines, **FAST)
    await ccm.leading()
    for name in ("static-0", "static-1", "static-2"):
        await kube.create(NODES, node_body(name))
    await eventually(lambda: initialised(kube, "static-0", "static-1", "static-2"))
    node = await get_node(kube, "static-1")
    assert node is not None and node.spec.provider_id == "static://cellar/static-1"
    assert node.metadata.labels["topology.kubernetes.io/zone"] == "rack-1"

    await kube.create(NODES, node_body("static-3"))  # not in the file yet
    await asyncio.sleep(1)
    assert not await initialised(kube, "static-3")
    machines.write("static-0", "static-1", "static-2", "static-3")
    await eventually(lambda: initialised(kube, "static-3"))

    machines.write_text("")  # an empty file proves nothing
    await asyncio.sleep(3)
    assert [await get_node(kube, f"static-{number}") is not None for number in range(4)] == [True] * 4

    machines.write("static-0", "static-1", "static-2")

    async def is_gone() -> bool:
        return await get_node(kube, "static-3") is None

    await eventually(is_gone)
    assert [await get_node(kube, f"static-{number}") is not None for number in range(3)] == [True] * 3


async def test_the_lease_tells_what_the_provider_has_nothing_for(
    kube: KubeClient, machines: Machines, start_ccm: StartCcm
) -> None:
    machines.write("static-0")
    await start(start_ccm, machines).leading()
    annotations = (await get_lease(kube)).metadata.annotations
    assert annotations["ccm.outoftree.dev/not-offered"] == "service-lb-controller,node-route-controller"
    assert annotations["ccm.outoftree.dev/controllers"] == "cloud-node-controller,cloud-node-lifecycle-controller"


async def test_services_keep_their_addresses_over_a_restart(
    kube: KubeClient, machines: Machines, start_ccm: StartCcm
) -> None:
    machines.write("pool-0")
    pool = "load_balancer_addresses: [192.0.2.10-192.0.2.13]\n"
    ccm = start(start_ccm, machines, pool)
    await ccm.leading()
    await kube.create(NODES, node_body("pool-0"))
    for number in range(3):
        await kube.create(SERVICES, service(f"pool-{number}"))
    await eventually(lambda: served(kube, 3))
    before = await addresses(kube, 3)
    assert len(set(before)) == 3

    await ccm.stop()
    await kube.create(SERVICES, service("pool-3"))  # asks first, but must not get another Service's address
    ccm = start(start_ccm, machines, pool)
    await ccm.leading()
    await eventually(lambda: served(kube, 4))
    after = await addresses(kube, 4)
    assert after[:3] == before
    assert len(set(after)) == 4


def service(name: str) -> dict[str, Any]:
    ports = [{"name": "http", "port": 80, "protocol": "TCP"}]
    spec = {"type": "LoadBalancer", "selector": {"app": name}, "ports": ports}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}


async def addresses(kube: KubeClient, count: int) -> list[str]:
    services = [await get_service(kube, f"pool-{number}") for number in range(count)]
    return [ingress.ip for each in services for ingress in each.status.load_balancer.ingress]


async def served(kube: KubeClient, count: int) -> bool:
    return len(await addresses(kube, count)) == count
