# SPDX-License-Identifier: Apache-2.0
"""`ccm plan` predicts what the runtime then does, with a real API server and the simulated cloud."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ccm.engine.client import KubeClient
from ccm_simcloud.testing import Simulator

from ..cluster import ApiServer
from .conftest import StartCcm
from .support import CLUSTER_CIDR, NODES, SERVICES, ask, eventually, node_body, set_ready


@pytest.fixture
def flags(apiserver: ApiServer, cloud: Simulator, kube: KubeClient, tmp_path: Path) -> list[str]:
    conf = tmp_path / "cloud.conf"
    conf.write_text(cloud.conf())
    kubeconfig = apiserver.kubeconfig()
    return [
        "--cloud-provider=sim",
        f"--cloud-config={conf}",
        f"--kubeconfig={kubeconfig}",
        f"--cluster-cidr={CLUSTER_CIDR}",
    ]


async def plan(flags: list[str], *more: str) -> tuple[int, dict[tuple[str, str], dict[str, Any]]]:
    """Run `ccm plan`; return the exit status, and the planned changes by kind and name."""
    status, out, err = await ask("plan", "--output=json", *flags, *more)
    assert err == "", err
    return status, {(each["kind"], each["name"]): each for each in json.loads(out)["outlooks"]}


async def populate(kube: KubeClient, cloud: Simulator) -> None:
    """Create two Nodes with instances, and a Service."""
    for number, name in enumerate(("w1", "w2"), 1):
        address = {"type": "InternalIP", "address": f"10.0.0.{number}"}
        cloud.add_instance(name, addresses=[address], zone="north-a")
        await kube.create(NODES, node_body(name, number=number))
        await set_ready(kube, name, "True")
    spec = {"type": "LoadBalancer", "ports": [{"port": 80}]}
    await kube.create(SERVICES, {"metadata": {"name": "web"}, "spec": spec})


async def test_what_is_planned_is_done_and_then_nothing_is_left(
    kube: KubeClient, cloud: Simulator, flags: list[str], start_ccm: StartCcm
):
    await populate(kube, cloud)
    status, planned = await plan(flags)
    assert status == 1
    assert {key: each["action"] for key, each in planned.items()} == {
        ("Node", "w1"): "update",
        ("Node", "w2"): "update",
        ("LoadBalancer", "default/web"): "create",
        ("Route", "10.244.1.0/24"): "create",
        ("Route", "10.244.2.0/24"): "create",
    }
    changes = planned["Node", "w1"]["changes"]
    assert "label topology.kubernetes.io/zone: none -> north-a" in changes
    assert "condition NetworkUnavailable is set to False (RouteCreated)" in changes
    assert planned["LoadBalancer", "default/web"]["changes"][0] == "a load balancer is created, with 2 Nodes behind it"
    assert cloud.journal(writes=True) == cloud.journal("tokens.create")
    await start_ccm().leading()

    async def nothing_is_left() -> bool:
        return await plan(flags) == (0, {})

    await eventually(nothing_is_left)
    (balancer,) = cloud.project().load_balancers.rows.values()
    assert len(balancer.targets) == 2
    assert {row.destination for row in cloud.project().routes.rows.values()} == {"10.244.1.0/24", "10.244.2.0/24"}


async def test_another_name_of_the_cluster_is_no_small_change(
    kube: KubeClient, cloud: Simulator, flags: list[str], start_ccm: StartCcm
):
    """`ccm plan` shows what a process with another cluster name would change."""
    await populate(kube, cloud)
    await start_ccm().leading()

    async def nothing_is_left() -> bool:
        return await plan(flags) == (0, {})

    await eventually(nothing_is_left)
    status, planned = await plan(flags, "--cluster-name=other")
    assert status == 1
    assert planned["LoadBalancer", "default/web"]["action"] == "create"
    assert list(planned) == [("LoadBalancer", "default/web")]  # routes to the right machines stay, whoever made them


async def test_machines_that_are_gone(kube: KubeClient, cloud: Simulator, flags: list[str], start_ccm: StartCcm):
    cloud.add_instance("w1")
    gone = cloud.add_instance("w2")
    cloud.project().delete_instance(gone.id)
    for name in ("w1", "w2"):
        provider_id = f"sim://north/{gone.id}" if name == "w2" else ""
        await kube.create(NODES, node_body(name, tainted=name == "w1", providerID=provider_id))
    await set_ready(kube, "w1", "True")
    await set_ready(kube, "w2", "Unknown")
    _, young = await plan(flags)
    assert (young["Node", "w2"]["action"], young["Node", "w2"]["reason"]) == ("wait", "TooYoung")
    assert young["Node", "w2"]["flag"] == "--node-deletion-min-age=5m0s"
    _, off = await plan(flags, "--node-deletion-min-age=0", "--node-deletion-cap=0")
    assert (off["Node", "w2"]["action"], off["Node", "w2"]["reason"]) == ("blocked", "TurnedOff")
    await start_ccm().leading()

    async def is_deleted() -> bool:
        _, found = await plan(flags, "--node-deletion-min-age=0")
        return found.get(("Node", "w2"), {}).get("action") == "delete"

    await eventually(is_deleted)  # once w1 is initialised, the runtime trusts the listing
