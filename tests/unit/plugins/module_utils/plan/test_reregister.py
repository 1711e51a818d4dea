# SPDX-License-Identifier: Apache-2.0
"""Which Nodes of k3s and RKE2 are registered again, and what a drain does with each Pod."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.nodes import classify
from ansible_collections.outoftree.ccm.plugins.module_utils.plan.plan import make_plan
from ansible_collections.outoftree.ccm.plugins.module_utils.plan.shapes import Choices
from ansible_collections.outoftree.ccm.plugins.module_utils.plan.reregister import fates


def plan(tree_facts: Any, cluster_facts: Any, providers: dict[str, str], reregister: bool) -> dict[str, Any]:
    hosts = {name: tree_facts(f"k3s/{name.partition('-')[2]}") for name in ("k3s-server", "k3s-agent")}
    for name, facts in hosts.items():
        facts["node_name"] = name
    cluster = cluster_facts(*((name, "foreign") for name in providers))
    for node in cluster["nodes"]:
        node["provider_id"], node["control_plane"] = providers[node["name"]], node["name"] == "k3s-server"
        node["uninitialized"] = False
        node["class"], node["reason"] = classify(node, "sim://")
    made: dict[str, Any] = make_plan(hosts, cluster, ["k3s-server"], choices=Choices(reregister=reregister))
    return made


EMBEDDED = {"k3s-server": "k3s://k3s-server", "k3s-agent": "k3s://k3s-agent"}


def test_nodes_of_the_embedded_controller_are_reported_with_their_way_out(tree_facts: Any, cluster_facts: Any) -> None:
    made = plan(tree_facts, cluster_facts, EMBEDDED, False)
    server, agent = (next(text for text in made["warnings"] if f"Node {name} is not adopted" in text) for name in EMBEDDED)
    assert "drain and delete the Node" in agent and "set ccm_install_reregister to true" in agent
    assert "must not be deleted, because that removes its member from etcd" in server
    assert "drain and delete" not in server and "ccm_install_reregister" not in server
    assert made["reregister"] == [] and made["go"]


def test_agents_are_registered_anew_when_asked_and_servers_never(tree_facts: Any, cluster_facts: Any) -> None:
    made = plan(tree_facts, cluster_facts, EMBEDDED, True)
    assert made["reregister"] == ["k3s-agent"] and made["node_only"] and made["adopt"] == []
    (edit,) = (edit for edit in made["edits"] if edit["component"] == "node")
    assert (edit["host"], edit["now"], edit["then"]) == ("k3s-agent", "k3s://k3s-agent", "set by the runtime")
    assert [text for text in made["warnings"] if ("not adopted" in text or "not in the inventory" in text) and "k3s-agent" in text] == []
    assert any("Node k3s-server is not adopted" in text for text in made["warnings"])


def test_a_run_that_was_killed_after_the_node_was_deleted_is_taken_up(tree_facts: Any, cluster_facts: Any) -> None:
    gone = {"k3s-server": "k3s://k3s-server"}
    assert plan(tree_facts, cluster_facts, gone, True)["reregister"] == ["k3s-agent"] and plan(tree_facts, cluster_facts, gone, True)["go"]
    assert "the cluster has no such Node" in plan(tree_facts, cluster_facts, gone, False)["problems"][0]


def test_a_node_of_another_cloud_is_never_registered_anew(tree_facts: Any, cluster_facts: Any) -> None:
    made = plan(tree_facts, cluster_facts, EMBEDDED | {"k3s-agent": "aws:///eu-1a/i-0f"}, True)
    assert made["reregister"] == [] and any("Node k3s-agent is not adopted" in text for text in made["warnings"])


def pod(owner: str = "", volumes: Any = (), phase: str = "Running", mirror: bool = False) -> dict[str, Any]:
    owners = [{"kind": owner, "controller": True}] if owner else []
    annotations = {"kubernetes.io/config.mirror": "x"} if mirror else {}
    return {"metadata": {"namespace": "n", "name": "p", "ownerReferences": owners, "annotations": annotations},
            "spec": {"volumes": list(volumes)}, "status": {"phase": phase}}


@pytest.mark.parametrize(("body", "evicted", "refused"), [
    (pod("ReplicaSet"), True, ""),
    (pod("DaemonSet"), False, ""),
    (pod("DaemonSet", [{"emptyDir": {}}]), False, ""),
    (pod("Node", mirror=True), False, ""),
    (pod(), False, "no controller"),
    (pod(phase="Succeeded"), True, ""),
    (pod("StatefulSet", [{"configMap": {}}, {"emptyDir": {}}]), False, "emptyDir"),
    (pod("ReplicaSet", [{"configMap": {}}]), True, ""),
])
def test_the_fate_of_a_pod(body: dict[str, Any], evicted: bool, refused: str) -> None:
    told = fates([body], False)
    assert bool(told.evict) is evicted and (refused in "".join(told.refused)) and bool(told.refused) is bool(refused)
    forced = fates([body], True)
    assert forced.refused == [] and bool(forced.evict) is (evicted or bool(refused))


@pytest.mark.parametrize("stays", [pod("DaemonSet"), pod(), pod("ReplicaSet", [{"emptyDir": {}}])])
def test_a_pod_that_stays_keeps_no_other_pod(stays: dict[str, Any]) -> None:
    assert fates([stays, pod("ReplicaSet")], False).evict == [("n", "p")]
