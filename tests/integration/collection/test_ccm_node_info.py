# SPDX-License-Identifier: Apache-2.0
"""ccm_node_info reports the Nodes' initialisation and providerIDs, and waits until Nodes are initialised."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ccm.engine.client import KubeClient
from ccm_simcloud.testing import Simulator

from ..runtime.conftest import StartCcm
from ..runtime.support import NODES, TAINT, node_body
from .ansible import call, task
from .conftest import Interloper


@pytest.fixture
async def one_of_each(kube: KubeClient) -> None:
    await kube.create(NODES, node_body("ours", tainted=False, providerID="sim://north/i-1"))
    address = {"type": "InternalIP", "address": "10.0.0.9"}
    await kube.patch(f"{NODES}/ours/status", {"status": {"addresses": [address]}})
    await kube.create(NODES, node_body("waiting"))
    await kube.create(NODES, node_body("old", tainted=False))
    await kube.create(NODES, node_body("strange", tainted=False, providerID="aws:///eu-1a/i-0f"))


def classes(result: dict[str, Any]) -> dict[str, str]:
    return {node["name"]: node["class"] for node in result["nodes"]}


async def test_every_node_has_its_class_and_a_wait_names_what_is_missing(kubeconfig: str, one_of_each: None):
    ours = {"provider_id_prefix": "sim://"}
    run = await call(
        kubeconfig,
        task("ccm_node_info", **ours, expected_provider_ids={"ours": "sim://north/i-1"}),
        task("ccm_node_info", **ours, names=["ours"], expected_provider_ids={"ours": "sim://north/i-2"}),
        task("ccm_node_info", names=["strange"]),
        task("ccm_node_info", names=["waiting"], wait_for="tainted"),
        task("ccm_node_info", names=["ours", "waiting", "lost"], wait_for="initialized", wait_timeout=0),
        task("ccm_cluster_info", **ours),
    )
    everything, mismatched, any_cloud, tainted, timed_out, cluster = run

    assert classes(everything) == {
        "ours": "initialized",
        "waiting": "uninitialized",
        "old": "unmanaged",
        "strange": "foreign",
    }
    reasons = {node["name"]: node["reason"] for node in everything["nodes"]}
    assert reasons["ours"] == ""
    assert TAINT["key"] in reasons["waiting"]
    assert "--cloud-provider=external" in reasons["old"]
    assert "aws:///eu-1a/i-0f" in reasons["strange"] and "drain and delete" in reasons["strange"]
    assert classes(mismatched) == {"ours": "mismatched"}
    assert "sim://north/i-2 is expected" in mismatched["nodes"][0]["reason"]
    assert classes(any_cloud) == {"strange": "initialized"}
    assert mismatched["nodes"][0]["addresses"] == [{"type": "InternalIP", "address": "10.0.0.9"}]
    assert not tainted.get("failed")

    assert timed_out["failed"]
    assert classes(timed_out) == {"ours": "initialized", "waiting": "uninitialized"}
    assert timed_out["missing"] == {
        "waiting": ["providerID", "an IP address", f"removal of the taint {TAINT['key']}"],
        "lost": ["the Node itself"],
    }
    assert "after 0 s" in timed_out["msg"] and "waiting: missing providerID" in timed_out["msg"]
    assert "ours: missing" not in timed_out["msg"]

    assert classes(cluster) == classes(everything)
    assert cluster["version"].startswith("v1.")
    assert not any(result["changed"] for result in run)


async def test_a_wait_ends_when_the_runtime_initialised_the_node(
    kube: KubeClient, cloud: Simulator, start_ccm: StartCcm, kubeconfig: str, interloper: Interloper
):
    instance = cloud.add_instance("late", addresses=[{"type": "InternalIP", "address": "10.0.0.8"}])
    await kube.create(NODES, node_body("late"))
    wait = task("ccm_node_info", names=["late"], provider_id_prefix="sim://", wait_for="initialized", wait_timeout=120)
    (before,) = await call(kubeconfig, task("ccm_node_info", names=["late"]))
    assert classes(before) == {"late": "uninitialized"}
    asked = asyncio.Event()

    async def ask() -> None:
        asked.set()

    interloper.reads = dict.fromkeys((NODES, f"{NODES}/late"), ask)
    waiting = asyncio.create_task(call(interloper.kubeconfig, wait))
    await asyncio.wait_for(asked.wait(), 120)
    await start_ccm().leading()
    (after,) = await waiting
    assert not after.get("failed"), after
    assert classes(after) == {"late": "initialized"}
    assert after["nodes"][0]["provider_id"] == f"sim://north/{instance.id}"
    assert after["nodes"][0]["taints"] == ["node.kubernetes.io/not-ready:NoSchedule"]
