# SPDX-License-Identifier: Apache-2.0
"""Nodes that registered without a cloud are initialised, and nothing else about them changes."""

from __future__ import annotations

from functools import partial
from typing import Any

from ccm.engine.client import KubeClient
from ccm.engine.objects import Node
from ccm_simcloud.testing import Simulator

from ..runtime.conftest import StartCcm
from ..runtime.support import NODES, TAINT, node_body
from .ansible import call, task
from .conftest import Interloper

OTHER = {"key": "dedicated", "value": "db", "effect": "NoSchedule"}
TAINTED = f"{TAINT['key']}=true:NoSchedule"


def adopt(name: str, *, check: bool = False, **more: Any) -> dict[str, Any]:
    return task("ccm_node_adopt", check=check, diff=True, name=name, **{"provider_id_prefix": "sim://"} | more)


async def taints(kube: KubeClient, name: str) -> set[str]:
    """Return the keys of a Node's taints without not-ready.

    The API server adds that taint to each new Node, and only a kubelet's report removes it.
    """
    node = await kube.get(f"{NODES}/{name}", Node)
    return {taint.key for taint in node.spec.taints} - {"node.kubernetes.io/not-ready"}


async def version(kube: KubeClient, name: str) -> str:
    return (await kube.get(f"{NODES}/{name}", Node)).metadata.resource_version


async def test_only_what_has_to_change_is_touched(kube: KubeClient, kubeconfig: str):
    bodies = [
        node_body("old", tainted=False),
        node_body("ours", tainted=False, providerID="sim://north/i-1"),
        node_body("strange", tainted=False, providerID="aws:///eu-1a/i-0f"),
        node_body("strange-tainted", providerID="aws:///eu-1a/i-0e"),
        node_body("stuck"),
    ]
    names = [body["metadata"]["name"] for body in bodies]
    bodies.append(node_body("released"))
    bodies[-1]["spec"]["taints"].append(OTHER)
    for body in bodies:
        await kube.create(NODES, body)
    before = {name: await version(kube, name) for name in names}
    foretold, foretold_release, ours, strange, strange_tainted, lost, released, released_again = await call(
        kubeconfig,
        adopt("old", check=True),
        adopt("stuck", check=True, state="released"),
        adopt("ours", wait=False),
        adopt("strange"),
        adopt("strange-tainted"),
        adopt("lost"),
        adopt("released", state="released"),
        adopt("released", state="released"),
    )
    assert {name: await version(kube, name) for name in names} == before

    assert foretold["changed"] and foretold_release["changed"]
    assert TAINTED not in foretold["diff"]["before"] and TAINTED in foretold["diff"]["after"]
    assert TAINTED in foretold_release["diff"]["before"] and TAINTED not in foretold_release["diff"]["after"]
    assert not ours["changed"] and not ours.get("failed")
    for refused in (strange, strange_tainted):
        assert refused["failed"] and not refused["changed"]
        assert "was not changed" in refused["msg"] and "aws:///eu-1a/i-0" in refused["msg"]
    assert lost["failed"] and "the cluster has no Node lost" in lost["msg"]

    assert released["changed"] and released["node"]["class"] == "unmanaged"
    assert await taints(kube, "released") == {OTHER["key"]}
    assert not released_again["changed"] and not released_again.get("failed")


async def test_the_runtime_initialises_what_is_adopted(
    kube: KubeClient, cloud: Simulator, start_ccm: StartCcm, kubeconfig: str
):
    instance = cloud.add_instance("old", zone="north-b", addresses=[{"type": "InternalIP", "address": "10.0.0.7"}])
    for name in ("old", "orphan"):
        body = node_body(name, tainted=False)
        body["spec"]["taints"] = [OTHER]
        await kube.create(NODES, body)
    await start_ccm(controllers="cloud-node-controller").leading()
    first, second, orphan = await call(
        kubeconfig, adopt("old", wait_timeout=300), adopt("old"), adopt("orphan", wait_timeout=1)
    )

    assert not first.get("failed"), first
    assert first["changed"]
    adopted = first["node"]
    assert (adopted["class"], adopted["provider_id"], adopted["zone"]) == (
        "initialized",
        f"sim://north/{instance.id}",
        "north-b",
    )
    assert {"type": "InternalIP", "address": "10.0.0.7"} in adopted["addresses"]
    assert await taints(kube, "old") == {OTHER["key"]}
    assert not second["changed"] and not second.get("failed")
    assert second["node"]["resource_version"] == adopted["resource_version"]

    assert orphan["failed"]
    assert "did not initialise Node orphan within 1 s. Missing: providerID" in orphan["msg"]
    assert "The taint was removed again" in orphan["msg"]
    assert any("InstanceNotFound" in event for event in orphan["events"])
    assert orphan["events"][-1] in orphan["msg"]
    assert await taints(kube, "orphan") == {OTHER["key"]}
    # The module returns the Node as it is once the taint is removed again.
    assert not orphan["node"]["uninitialized"]


async def test_what_someone_else_does_meanwhile_is_not_lost(kube: KubeClient, interloper: Interloper):
    changes = {
        "busy": {"taints": [OTHER]},
        "taken": {"providerID": "aws:///eu-1a/i-0d"},
        "overtaken": {"providerID": "sim://north/i-4"},
    }
    for name, change in changes.items():
        await kube.create(NODES, node_body(name, tainted=False))
        interloper.strikes[f"{NODES}/{name}"] = partial(kube.patch, f"{NODES}/{name}", {"spec": change})
    run = await call(interloper.kubeconfig, *(adopt(name, wait=False) for name in changes))
    busy, taken, overtaken = run

    assert not busy.get("failed"), busy
    assert interloper.statuses[f"{NODES}/busy"] == [409, 200]
    assert await taints(kube, "busy") == {OTHER["key"], TAINT["key"]}
    assert busy["changed"] and busy["node"]["class"] == "uninitialized"

    for name in ("taken", "overtaken"):
        assert interloper.statuses[f"{NODES}/{name}"] == [409]
        assert await taints(kube, name) == set()
    assert taken["failed"] and "was not changed" in taken["msg"] and "aws:///eu-1a/i-0d" in taken["msg"]
    assert not overtaken.get("failed"), overtaken
    assert not overtaken["changed"] and "diff" not in overtaken
    assert overtaken["node"]["class"] == "initialized"


async def test_many_nodes_are_adopted_side_by_side_and_a_failure_begins_no_other(
    kube: KubeClient, cloud: Simulator, start_ccm: StartCcm, kubeconfig: str
):
    names = [f"many-{number:02}" for number in range(12)]
    for name in names:
        cloud.add_instance(name, addresses=[{"type": "InternalIP", "address": "10.0.0.7"}])
        await kube.create(NODES, node_body(name, tainted=False))
    for name in ("many-orphan", "many-later", "many-last"):
        await kube.create(NODES, node_body(name, tainted=False))
    await start_ccm(controllers="cloud-node-controller").leading()
    many = {"provider_id_prefix": "sim://", "wait_timeout": 20}
    rest = ["many-orphan", "many-later", "many-last"]
    foretold, first, second, failed = await call(
        kubeconfig,
        task("ccm_node_adopt", check=True, diff=True, names=names, **many),
        task("ccm_node_adopt", diff=True, names=names, parallel=6, **many),
        task("ccm_node_adopt", names=names, **many),
        task("ccm_node_adopt", names=[names[0], *rest], parallel=2, **many | {"wait_timeout": 1}),
    )
    nothing, lost, both, neither, wide, none = await call(
        kubeconfig,
        task("ccm_node_adopt", names=[]),
        task("ccm_node_adopt", names=["nobody"]),
        task("ccm_node_adopt", name="a", names=["b"]),
        task("ccm_node_adopt"),
        task("ccm_node_adopt", names=names, parallel=101),
        task("ccm_node_adopt", names=names, parallel=0),
    )
    assert foretold["changed"] and len(foretold["diff"]) == len(names) == len(first["diff"])
    assert first["changed"] and [each["name"] for each in first["nodes"]] == names, first
    assert all(each["changed"] and not each["problem"] for each in first["nodes"])
    # The module waited for all Nodes at the same time, and not for one after the other.
    assert sum(each["waited"] for each in first["nodes"]) > 1.5 * first["waited"]
    assert not second["changed"] and not second.get("failed")
    # Two Nodes at a time: the orphan and the Node beside it fail, and the last one is not begun.
    assert failed["failed"] and "2 of 4 Nodes failed, and 1 were not begun" in failed["msg"], failed["msg"]
    assert "did not initialise Node many-orphan within 1 s" in failed["msg"]
    assert await taints(kube, "many-last") == set() == await taints(kube, "many-orphan")
    assert not nothing["changed"] and not nothing.get("failed") and nothing["nodes"] == []
    assert lost["failed"] and "the cluster has no Node nobody" in lost["msg"]
    assert both["failed"] and "mutually exclusive" in both["msg"]
    assert neither["failed"] and "one of the following is required" in neither["msg"]
    for refused in (wide, none):
        assert refused["failed"] and "set a number from 1 to 100" in refused["msg"]
