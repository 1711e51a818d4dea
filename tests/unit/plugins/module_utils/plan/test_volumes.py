# SPDX-License-Identifier: Apache-2.0
"""Volumes of in-tree plug-ins: what the restart of a Node's kubelet does to them, and what the plan says about it."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.outoftree.ccm.plugins.module_utils.facts import versions
from ansible_collections.outoftree.ccm.plugins.module_utils.plan import volumes
from ansible_collections.outoftree.ccm.plugins.module_utils.plan.plan import make_plan
from ansible_collections.outoftree.ccm.plugins.module_utils.plan.shapes import Choices

EBS, DRIVER = "awsElasticBlockStore", "ebs.csi.aws.com"
STEP = {"component": "kubelet"}


def pod(node: str = "w-1", name: str = "db-0", source: str = EBS) -> dict[str, Any]:
    return {"namespace": "shop", "name": name, "node": node, "sources": [source]}


def found(**more: Any) -> dict[str, Any]:
    return {"persistent": [], "classes": [], "inline": [], "pods": [], "drivers": [DRIVER], "nodes": {}, "unread": [], **more}


def judged(what: dict[str, Any], ignored: tuple[str, ...] = (), reregister: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return a checked plan. It restarts the kubelets of hosts one and two (Nodes w-1 and w-2), and not of host three (w-3)."""
    steps = {"one": {"control_plane": [], "kubelet": STEP}, "two": {"control_plane": [], "kubelet": STEP},
             "three": {"control_plane": [STEP], "kubelet": None}}
    plan: dict[str, Any] = {"problems": [], "warnings": [], "notes": [], "hosts": steps, "reregister": list(reregister),
                            "nodes": {"one": "w-1", "two": "w-2", "three": "w-3"}}
    volumes.check(plan, {"volumes": what}, ignored)
    return plan


PROBLEM = ("the run restarts the kubelet on Node w-1, where Pods use volumes of awsElasticBlockStore, but the CSI driver ebs.csi.aws.com is not "
           "registered there (CSINode). The kubelet could then neither unmount these volumes nor mount them again: shop/db-0")


def test_a_cluster_without_such_volumes_has_nothing_to_say() -> None:
    for nothing in ({}, found(), found(nodes={"w-1": [DRIVER]})):
        plan = judged(nothing)
        assert (plan["problems"], plan["warnings"], plan["notes"], plan["volumes"]) == ([], [], [], [])


def test_a_volume_on_a_node_that_is_restarted_without_the_driver_is_a_no_go() -> None:
    plan = judged(found(pods=[pod(), pod("w-2", "web-0")], nodes={"w-2": [DRIVER], "w-3": [DRIVER]}))
    assert plan["problems"] == [PROBLEM + ". Install the driver on Node w-1, then run again. If it need not be there, add ebs.csi.aws.com to "
                                          "ccm_install_ignore"]
    assert plan["warnings"] == []
    assert plan["notes"] == ["volumes of awsElasticBlockStore, which need the CSI driver ebs.csi.aws.com: used by 2 Pod(s) on 2 Node(s)"]
    (row,) = plan["volumes"]
    assert (row["nodes"], row["restarted_without"], row["restarted_pods"], row["others_without"]) == (["w-1", "w-2"], ["w-1"], ["shop/db-0"], [])


def test_several_nodes_are_one_problem_in_the_order_of_their_numbers() -> None:
    plan = judged(found(pods=[pod("w-2", "b"), pod("w-1", "a"), pod("w-1", "c")], drivers=[]))
    (problem,) = plan["problems"]
    assert problem.startswith("the run restarts the kubelet on the Nodes w-1, w-2, where Pods use")
    assert "is not installed, and not registered there" in problem and problem.count("Install the driver on the Nodes w-1, w-2") == 1
    assert "again: shop/b, shop/a, shop/c." in problem and plan["warnings"] == []


def test_another_driver_or_one_on_another_node_does_not_help() -> None:
    assert len(judged(found(pods=[pod()], nodes={"w-1": ["disk.csi.azure.com"], "w-2": [DRIVER]}))["problems"]) == 1
    assert len(judged(found(pods=[pod()], nodes={"w-1": []}))["problems"]) == 1


def test_with_the_driver_the_note_alone_remains() -> None:
    plan = judged(found(pods=[pod(), pod(name="db-1")], nodes={"w-1": ["disk.csi.azure.com", DRIVER], "w-2": [DRIVER]}))
    assert plan["problems"] == plan["warnings"] == []
    assert plan["notes"] == ["volumes of awsElasticBlockStore, which need the CSI driver ebs.csi.aws.com: used by 2 Pod(s) on 1 Node(s). "
                             "The driver is installed, and registered on all of these Nodes"]


def test_a_restarted_node_without_such_pods_and_without_the_driver_is_only_named() -> None:
    plan = judged(found(pods=[pod("w-2")], nodes={"w-2": [DRIVER]}))
    assert plan["problems"] == plan["warnings"] == [] and plan["volumes"][0]["idle_without"] == ["w-1"]
    assert plan["notes"][0].endswith("on 1 Node(s). The driver is installed, and registered on all of these Nodes. It is not registered on Node w-1, "
                                     "where no Pod uses them")
    assert judged(found(pods=[pod("w-2")], unread=["csinodes.storage.k8s.io"]))["volumes"][0]["idle_without"] == []


def test_an_operator_accepts_the_driver_by_its_name() -> None:
    what = found(pods=[pod()])
    plan = judged(what, (DRIVER,))
    assert plan["problems"] == [] and plan["warnings"] == [PROBLEM + ". ccm_install_ignore accepts this"]
    assert len(judged(what, ("disk.csi.azure.com",))["problems"]) == 1


def test_a_node_that_is_not_restarted_is_a_warning() -> None:
    plan = judged(found(pods=[pod("w-3", "db-3"), pod(name="db-0")], nodes={"w-1": [DRIVER]}))
    assert plan["problems"] == []
    assert plan["warnings"] == [
        "volumes of awsElasticBlockStore, which need the CSI driver ebs.csi.aws.com: the driver is not registered on Node w-3 (CSINode), where "
        "Pods use them. The run does not restart the kubelet there, but it can neither unmount these volumes nor mount them again. Install the "
        "driver there: shop/db-3"]
    assert plan["notes"] == ["volumes of awsElasticBlockStore, which need the CSI driver ebs.csi.aws.com: used by 2 Pod(s) on 2 Node(s)"]


def test_an_agent_that_is_registered_again_is_restarted() -> None:
    assert "Node w-3" in judged(found(pods=[pod("w-3")]), reregister=("three",))["problems"][0]


def test_both_kinds_of_nodes_are_named_each_with_its_pods() -> None:
    plan = judged(found(pods=[pod(), pod("w-3", "db-3")], drivers=[]))
    assert plan["problems"][0].count("shop/db-") == 1 and "again: shop/db-0." in plan["problems"][0]
    (warning,) = plan["warnings"]
    assert warning.endswith("there: shop/db-3")


@pytest.mark.parametrize(("what", "words"), [
    ({"persistent": [{"name": "pv-1", "source": EBS, "claim": ""}]}, "PersistentVolume pv-1"),
    ({"persistent": [{"name": f"pv-{number}", "source": EBS, "claim": ""} for number in (10, 2)]}, "2 PersistentVolumes pv-2, pv-10"),
    ({"classes": [{"name": "gp2", "source": EBS, "default": True, "claims": 0}]}, "StorageClass gp2 (default, 0 claim(s))"),
    ({"classes": [{"name": name, "source": EBS, "default": False, "claims": 3} for name in ("gp2", "io1")]},
     "2 StorageClasses gp2 (3 claim(s)), io1 (3 claim(s))"),
    ({"inline": [{"kind": "Deployment", "namespace": "shop", "name": "web", "source": EBS}]}, "inline in Deployment shop/web"),
    ({"pods": [pod("")]}, "used by 1 Pod(s) on 0 Node(s)"),
])
def test_what_no_running_pod_uses_is_a_warning_without_the_driver_and_a_note_with_it(what: dict[str, Any], words: str) -> None:
    head = "volumes of awsElasticBlockStore, which need the CSI driver ebs.csi.aws.com: "
    plan = judged(found(**what, nodes={"w-1": [DRIVER], "w-2": [DRIVER]}))
    assert plan["problems"] == plan["warnings"] == [] and plan["notes"] == [head + words + ". The driver is installed"]
    plan = judged(found(**what, drivers=["disk.csi.azure.com"]))
    assert plan["problems"] == [] and plan["notes"] == [head + words]
    assert plan["warnings"] == [head + "there is no such CSIDriver. No running Pod uses them, but no new Pod can, and no volume can be created. "
                                       "Install the driver, or delete what you no longer need"]


def test_a_registered_driver_without_its_object_is_a_warning() -> None:
    (warning,) = judged(found(pods=[pod()], nodes={"w-1": [DRIVER]}, drivers=[]))["warnings"]
    assert warning.endswith("there is no such CSIDriver. The driver is registered where Pods use them, so apply its manifests again")


def test_several_plug_ins_have_a_row_each_and_parts_are_separated() -> None:
    plan = judged(found(pods=[pod(), pod("w-2", "files", "azureFile")], nodes={"w-1": [DRIVER], "w-2": [DRIVER]},
                        persistent=[{"name": "pv-1", "source": EBS, "claim": ""}, {"name": "pv-2", "source": "azureFile", "claim": ""}]))
    assert [(row["source"], row["driver"], row["persistent_volumes"], row["pods"], row["installed"]) for row in plan["volumes"]] == [
        (EBS, DRIVER, ["pv-1"], ["shop/db-0"], True), ("azureFile", "file.csi.azure.com", ["pv-2"], ["shop/files"], False)]
    assert "PersistentVolume pv-1; used by 1 Pod(s) on 1 Node(s)" in plan["notes"][0]
    assert len(plan["problems"]) == 1 and "file.csi.azure.com" in plan["problems"][0]


def test_what_no_driver_serves_is_a_warning_whatever_is_restarted() -> None:
    plan = judged(found(pods=[pod(source="photonPersistentDisk")]))
    assert plan["problems"] == []
    assert plan["notes"] == ["volumes of photonPersistentDisk: used by 1 Pod(s) on 1 Node(s)"]
    assert plan["warnings"] == ["volumes of photonPersistentDisk: no release that this collection supports serves them, and no CSI driver does. "
                                "Delete what you no longer need: used by 1 Pod(s) on 1 Node(s)"]


def test_a_missing_right_is_a_note_and_what_it_hides_is_not_judged() -> None:
    said = ("volumes of in-tree plug-ins were not checked completely, because the kubeconfig's user may not list {0}. Grant the right to list "
            "them in the whole cluster, then run again")
    plan = judged(found(unread=["pods", "jobs.batch"]))
    assert plan["problems"] == plan["warnings"] == [] and plan["notes"] == [said.format("pods, jobs.batch")]
    plan = judged(found(pods=[pod()], unread=["csinodes.storage.k8s.io"]))
    assert plan["problems"] == plan["warnings"] == [] and plan["notes"][-1] == said.format("csinodes.storage.k8s.io")
    plan = judged(found(pods=[pod()], drivers=[], unread=["csidrivers.storage.k8s.io"]))
    assert "is not registered there" in plan["problems"][0] and "not installed" not in plan["problems"][0]
    plan = judged(found(persistent=[{"name": "pv-1", "source": EBS, "claim": ""}], drivers=[], unread=["csidrivers.storage.k8s.io"]))
    assert plan["warnings"] == [] and "is installed" not in plan["notes"][0] and plan["volumes"][0]["installed"] is None


@pytest.mark.parametrize("volume", [volume for volume in versions.IN_TREE_VOLUMES if volume.driver])
def test_each_plug_in_is_judged_by_its_own_driver(volume: versions.InTreeVolume) -> None:
    what = found(pods=[pod(source=volume.source)], drivers=[volume.driver], nodes={"w-1": [volume.driver]})
    assert judged(what)["problems"] == []
    assert volume.driver in judged({**what, "nodes": {}})["problems"][0]


def test_the_plan_of_a_migration_refuses_and_its_report_has_the_rows(host_facts: Any, cluster_facts: Any) -> None:
    facts = {"w-1": host_facts("w-1", {"/var/lib/kubelet/kubeadm-flags.env": 'KUBELET_KUBEADM_ARGS="--node-ip=10.0.0.1"\n'})}
    cluster = {**cluster_facts(("w-1", "initialized")), "volumes": found(pods=[pod()])}
    plan = make_plan(facts, cluster, [])
    assert not plan["go"] and plan["report"]["volumes"] == plan["volumes"] and plan["volumes"][0]["restarted_without"] == ["w-1"]
    assert any(line.startswith("PROBLEM: the run restarts the kubelet on Node w-1") for line in plan["table"])
    assert make_plan(facts, cluster, [], choices=Choices(volumes_ignore=[DRIVER]))["go"]
    cluster["volumes"]["nodes"] = {"w-1": [DRIVER]}
    assert make_plan(facts, cluster, [])["go"]


def test_a_second_run_restarts_nothing_and_is_not_refused(host_facts: Any, cluster_facts: Any) -> None:
    env = {"/var/lib/kubelet/kubeadm-flags.env": 'KUBELET_KUBEADM_ARGS="--cloud-provider=external"\n'}
    cluster = {**cluster_facts(("w-1", "initialized")), "volumes": found(pods=[pod()])}
    plan = make_plan({"w-1": host_facts("w-1", env, ["--cloud-provider=external"])}, cluster, [])
    assert plan["go"] and any("does not restart the kubelet there" in text for text in plan["warnings"])
