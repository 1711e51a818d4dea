# SPDX-License-Identifier: Apache-2.0
"""Odd clusters and hosts: which are refused before the first edit, and what the problem says."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from ansible_collections.outoftree.ccm.plugins.module_utils.facts import nodes
from ansible_collections.outoftree.ccm.plugins.module_utils.plan.plan import make_plan
from ansible_collections.outoftree.ccm.plugins.module_utils.plan.shapes import Choices

MANIFESTS = "/etc/kubernetes/manifests/"
FLAGS_ENV = "/var/lib/kubelet/kubeadm-flags.env"


@pytest.fixture
def control_plane(fixture_text: Any, host_facts: Any) -> Any:
    def build(name: str, version: str = "v1.36.3", kubelet: str = "v1.36.3", crlf: bool = False) -> dict[str, Any]:
        texts = {f"{MANIFESTS}{part}.yaml": fixture_text(f"kubeadm-1.36/{part}.yaml").replace("v1.36.3", version)
                 for part in ("kube-apiserver", "kube-controller-manager")}
        texts[FLAGS_ENV] = 'KUBELET_KUBEADM_ARGS="--node-ip=10.0.0.1"\n'
        if crlf:
            texts = {path: text.replace("\n", "\r\n") for path, text in texts.items()}
        facts: dict[str, Any] = host_facts(name, texts, components={
            "kube-apiserver": ["--enable-admission-plugins=NodeRestriction"],
            "kube-controller-manager": ["--cloud-config=/etc/kubernetes/cloud.conf", "--cloud-provider="]})
        facts["kubelet"]["version"] = kubelet
        return facts

    return build


def problems(detected: dict[str, Any], cluster: dict[str, Any], control_plane: list[str]) -> str:
    plan = make_plan(detected, cluster, control_plane)
    assert not plan["go"] and plan["report"]["problems"] == plan["problems"]
    return "\n".join(plan["problems"])


@pytest.mark.parametrize(("version", "words"), [("v1.33.5-eks-113cf36", "EKS"), ("v1.33.5-gke.1080000", "GKE")])
def test_a_managed_cluster_is_known_by_its_version(control_plane: Any, cluster_facts: Any, version: str, words: str) -> None:
    text = problems({"cp-1": control_plane("cp-1")}, cluster_facts(("cp-1", "unmanaged"), version=version), ["cp-1"])
    assert "managed cluster" in text and words in text and version in text and "nothing to migrate" in text


@pytest.mark.parametrize(("label", "words"), [("eks.amazonaws.com/nodegroup", "EKS"), ("cloud.google.com/gke-nodepool", "GKE"),
                                              ("kubernetes.azure.com/cluster", "AKS")])
def test_a_managed_cluster_is_known_by_its_nodes(control_plane: Any, cluster_facts: Any, label: str, words: str) -> None:
    summary = nodes.summary({"metadata": {"name": "cp-1", "labels": {label: "x"}}, "spec": {}}, "")
    assert summary["managed_by"].startswith(words)
    cluster = cluster_facts(("cp-1", "unmanaged"))
    cluster["nodes"][0]["managed_by"] = summary["managed_by"]
    text = problems({"cp-1": control_plane("cp-1")}, cluster, ["cp-1"])
    assert "managed cluster" in text and "cp-1" in text and label in text


def test_control_planes_that_disagree_about_the_version(control_plane: Any, cluster_facts: Any) -> None:
    hosts = {"cp-1": control_plane("cp-1"), "cp-2": control_plane("cp-2", version="v1.35.4", kubelet="v1.35.4")}
    text = problems(hosts, cluster_facts(("cp-1", "unmanaged"), ("cp-2", "unmanaged")), ["cp-1", "cp-2"])
    assert "run different versions of kube-apiserver: 1.35 on cp-2, 1.36 on cp-1. Finish the upgrade" in text
    assert "of kube-controller-manager" in text


@pytest.mark.parametrize("kubelet", ["v1.36.3", "v1.31.0"])
def test_kubelets_outside_the_version_skew(control_plane: Any, cluster_facts: Any, kubelet: str) -> None:
    facts = control_plane("cp-1", version="v1.35.4", kubelet=kubelet)
    text = problems({"cp-1": facts}, cluster_facts(("cp-1", "unmanaged"), version="v1.35.4"), ["cp-1"])
    assert f"cp-1: its kubelet is {kubelet} and the API server is v1.35.4" in text


def test_older_kubelets_within_the_skew_are_fine(control_plane: Any, cluster_facts: Any) -> None:
    facts = control_plane("cp-1", kubelet="v1.33.0")
    assert make_plan({"cp-1": facts}, cluster_facts(("cp-1", "unmanaged")), ["cp-1"])["go"]


def test_a_component_that_is_both_a_static_pod_and_a_unit(control_plane: Any, tree_facts: Any, cluster_facts: Any) -> None:
    facts, units = control_plane("cp-1"), tree_facts("systemd/control-plane")
    facts["units"] = {"kube-apiserver": units["units"]["kube-apiserver"]}
    facts["files"].update(units["files"])
    text = problems({"cp-1": facts}, cluster_facts(("cp-1", "unmanaged")), ["cp-1"])
    assert f"{MANIFESTS}kube-apiserver.yaml and the unit kube-apiserver.service" in text and "Remove the one" in text


def test_a_control_plane_that_the_group_lacks(control_plane: Any, cluster_facts: Any) -> None:
    text = problems({"cp-1": control_plane("cp-1")}, cluster_facts(("cp-1", "unmanaged"), ("cp-2", "unmanaged")), ["cp-1"])
    assert "Node cp-2 is a control plane, but no host of kube_control_plane is that Node" in text


def test_servers_and_agents_in_the_wrong_group(tree_facts: Any, cluster_facts: Any) -> None:
    hosts = {"k3s-server": tree_facts("k3s/server"), "k3s-agent": tree_facts("k3s/agent")}
    cluster = cluster_facts(("k3s-server", "foreign"), ("k3s-agent", "foreign"), version="v1.33.4", kubeadm="")
    text = problems(hosts, cluster, ["k3s-agent"])
    assert "k3s-agent: is in kube_control_plane but runs k3s-agent.service, an agent. Move it to kube_node" in text
    assert "k3s-server: runs k3s.service, a server, but is not in kube_control_plane" in text


def test_a_server_that_does_not_vote_in_etcd(tree_facts: Any, cluster_facts: Any) -> None:
    status = {"conditions": [{"type": "Ready", "status": "True"}, {"type": "EtcdIsVoter", "status": "False"}]}
    summary = nodes.summary({"metadata": {"name": "k3s-server"}, "spec": {"providerID": "k3s://k3s-server"}, "status": status}, "")
    assert summary["etcd_voter"] is False and nodes.missing(summary, "ready") == ["a vote in etcd (condition EtcdIsVoter)"]
    cluster = cluster_facts(("k3s-server", "foreign"), version="v1.33.4", kubeadm="")
    cluster["nodes"][0]["etcd_voter"] = False
    assert "k3s-server is not a voter of etcd" in problems({"k3s-server": tree_facts("k3s/server")}, cluster, ["k3s-server"])


@pytest.mark.parametrize("prefix", ["", "sim://"])
@pytest.mark.parametrize("provider_id", ["k3s://node-1", "rke2://node-1"])
def test_nodes_of_the_embedded_controller_are_foreign_whatever_the_prefix(prefix: str, provider_id: str) -> None:
    summary = nodes.summary({"metadata": {"name": "node-1"}, "spec": {"providerID": provider_id}}, prefix)
    assert summary["class"] == "foreign" and provider_id in summary["reason"] and "drain" in summary["reason"]


def test_line_ends_of_windows_stay_in_every_file(control_plane: Any, cluster_facts: Any) -> None:
    facts = control_plane("cp-1", crlf=True)
    kubeadm = cluster_facts(("cp-1", "unmanaged"))["kubeadm_config"]["content"].replace("\n", "\r\n")
    plan = make_plan({"cp-1": facts}, cluster_facts(("cp-1", "unmanaged"), kubeadm=kubeadm), ["cp-1"])
    assert plan["go"], plan["problems"]
    steps = plan["hosts"]["cp-1"]
    files = [item for step in [*steps["control_plane"], steps["kubelet"]] for item in step["files"]] + [plan["kubeadm_config"]]
    assert len(files) == 3
    for item in files:
        text = base64.b64decode(item["content"]).decode()
        assert text.count("\n") == text.count("\r\n") > 0, item["path"]


def test_a_kubelet_configuration_that_is_not_yaml(tree_facts: Any, cluster_facts: Any) -> None:
    facts = tree_facts("systemd/worker", changed={"/var/lib/kubelet/config.yaml": "kind: ["})
    cluster = cluster_facts(("systemd-worker", "unmanaged"), version="v1.33.4", kubeadm="")
    assert "/var/lib/kubelet/config.yaml is not YAML: line 1" in problems({"systemd-worker": facts}, cluster, [])


def test_a_host_that_cannot_be_looked_at_is_told_with_the_plan_of_the_others(control_plane: Any, cluster_facts: Any) -> None:
    gone = {"unreachable": True, "msg": "Failed to connect to the host via ssh:\n  no route to host"}
    detected = {"cp-1": control_plane("cp-1"), "cp-2": gone, "w-1": {"msg": "no python3"}}
    cluster = cluster_facts(("cp-1", "unmanaged"), ("cp-2", "unmanaged"), ("w-1", "unmanaged"))
    plan = make_plan(detected, cluster, ["cp-1", "cp-2"])
    assert not plan["go"] and plan["problems"] == [
        "cp-2: could not be inspected: Failed to connect to the host via ssh: no route to host. Fix this",
        "w-1: could not be inspected: no python3. Fix this, or exclude the host with --limit 'all:!w-1'"]
    assert {edit["host"] for edit in plan["edits"]} >= {"cp-1"} and not plan["warnings"]


def test_hosts_that_a_limit_leaves_out_are_named_and_not_judged(control_plane: Any, cluster_facts: Any) -> None:
    cluster = cluster_facts(("cp-1", "unmanaged"), ("w-1", "unmanaged"), ("w-2", "unmanaged"))
    plan = make_plan({"cp-1": control_plane("cp-1")}, cluster, ["cp-1"], choices=Choices(excluded_hosts=["w-1", "w-2"]))
    assert plan["go"] and plan["warnings"] == ["--limit excludes 2 host(s), which are neither inspected nor changed: w-1, w-2"]
    assert plan["adopt"] == ["cp-1"]
