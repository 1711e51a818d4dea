# SPDX-License-Identifier: Apache-2.0
"""The plan: every edit with its reason, everything that stands in the way, and nothing on the second run."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from ansible_collections.outoftree.ccm.plugins.module_utils._plan import make_plan
from ansible_collections.outoftree.ccm.plugins.module_utils._verify import verify

MANIFESTS = "/etc/kubernetes/manifests/"
FLAGS_ENV = "/var/lib/kubelet/kubeadm-flags.env"
DEFAULT = "/etc/default/kubelet"
PLAIN_ENV = 'KUBELET_KUBEADM_ARGS="--node-ip=10.0.0.1"\n'


@pytest.fixture
def leftovers(fixture_text: Any, host_facts: Any) -> dict[str, Any]:
    """A control plane with dead flags and a worker with an empty one in the wrong file."""
    manifests = {f"{MANIFESTS}{name}.yaml": fixture_text(f"kubeadm-1.36/{name}.yaml") for name in ("kube-apiserver", "kube-controller-manager")}
    return {
        "cp-1": host_facts("cp-1", {**manifests, FLAGS_ENV: PLAIN_ENV}, components={
            "kube-apiserver": ["--enable-admission-plugins=NodeRestriction"],
            "kube-controller-manager": ["--cloud-config=/etc/kubernetes/cloud.conf", "--cloud-provider="]}),
        "w-1": host_facts("w-1", {FLAGS_ENV: PLAIN_ENV, DEFAULT: "KUBELET_EXTRA_ARGS=--cloud-provider=\n"}, ["--cloud-provider="]),
    }


def migrated(facts: dict[str, Any], plan: dict[str, Any]) -> dict[str, Any]:
    """Facts as they are once the plan was carried out."""
    for host, steps in plan["hosts"].items():
        for step in [*steps["control_plane"], *([steps["kubelet"]] if steps["kubelet"] else [])]:
            for item in step["files"]:
                facts[host]["files"][item["path"]].update(content=item["content"], exists=True)
            if step["component"] == "kubelet":
                facts[host]["kubelet"]["flags"] = step["flags"]
            else:
                facts[host]["components"][step["component"]]["flags"] = step["flags"]
    return facts


def test_the_whole_plan_of_a_cluster_with_leftovers(leftovers: Any, cluster_facts: Any) -> None:
    plan = make_plan(leftovers, cluster_facts(("cp-1", "unmanaged"), ("w-1", "unmanaged")), ["cp-1"])
    assert plan["go"] and plan["narrow"] and plan["adopt"] == ["cp-1", "w-1"]
    rows = [(e["host"], e["component"], e["file"], e["flag"], e["now"], e["then"]) for e in plan["edits"]]
    manifest = MANIFESTS + "kube-controller-manager.yaml"
    assert rows == [
        ("cp-1", "kube-controller-manager", manifest, "--cloud-config", "/etc/kubernetes/cloud.conf", None),
        ("cp-1", "kube-controller-manager", manifest, "--cloud-provider", "", None),
        ("cp-1", "kubelet", FLAGS_ENV, "--cloud-provider", None, "external"),
        ("w-1", "kubelet", DEFAULT, "--cloud-provider", "", None),
        ("w-1", "kubelet", FLAGS_ENV, "--cloud-provider", None, "external"),
        ("(cluster)", "kube-controller-manager", "ConfigMap kube-system/kubeadm-config", "cloud-config", "/etc/kubernetes/cloud.conf", None),
        ("(cluster)", "kube-controller-manager", "ConfigMap kube-system/kubeadm-config", "cloud-provider", "", None),
        ("cp-1", "node", "Node/cp-1", "providerID", None, "set by the runtime"),
        ("w-1", "node", "Node/w-1", "providerID", None, "set by the runtime"),
    ]
    assert all(edit["why"] and edit["risk"] for edit in plan["edits"])
    assert [step["component"] for step in plan["hosts"]["cp-1"]["control_plane"]] == ["kube-controller-manager"]
    step = plan["hosts"]["cp-1"]["control_plane"][0]
    assert (step["flags"], step["flags_before"]) == ([], ["--cloud-config=/etc/kubernetes/cloud.conf", "--cloud-provider="])
    assert step["files"][0]["sha256"] == "sha-of-" + manifest
    assert plan["hosts"]["w-1"]["kubelet"]["flags"] == ["--cloud-provider=external"]
    assert plan["table"][-1] == "GO: 9 edit(s), 0 warning(s), 0 problem(s)"
    header = plan["table"][0].split()
    assert header == ["HOST", "COMPONENT", "FILE", "FLAG", "NOW", "THEN", "WHY", "RISK"]
    assert plan["table"][2].split()[3:] == ["--cloud-provider", "''", "(removed)", "2", "a"]
    assert sum(line.startswith("why ") for line in plan["table"]) == len({edit["why"] for edit in plan["edits"]})


def test_a_second_plan_is_empty(leftovers: Any, cluster_facts: Any) -> None:
    before = cluster_facts(("cp-1", "unmanaged"), ("w-1", "unmanaged"))
    plan = make_plan(leftovers, before, ["cp-1"])
    text = base64.b64decode(plan["kubeadm_config"]["content"]).decode()
    after = cluster_facts(("cp-1", "initialized"), ("w-1", "initialized"), kubeadm=text, runtime={"exists": True, "managed": True, "wide": True})
    again = make_plan(migrated(leftovers, plan), after, ["cp-1"])
    assert (again["go"], again["edits"], again["adopt"], again["narrow"], again["kubeadm_config"]) == (True, [], [], False, None)
    assert again["hosts"] == {"cp-1": {"control_plane": [], "kubelet": None}, "w-1": {"control_plane": [], "kubelet": None}}


def test_a_run_that_was_killed_after_writing_is_taken_up_again(leftovers: Any, cluster_facts: Any) -> None:
    cluster = cluster_facts(("cp-1", "unmanaged"), ("w-1", "unmanaged"))
    facts = migrated(leftovers, make_plan(leftovers, cluster, ["cp-1"]))
    facts["w-1"]["kubelet"]["flags"] = ["--cloud-provider="]
    facts["cp-1"]["components"]["kube-controller-manager"]["flags"] = ["--cloud-provider="]
    manifest = MANIFESTS + "kube-controller-manager.yaml"
    facts["cp-1"]["journal"] = {manifest: {"component": "kube-controller-manager", "state": "written"}}
    facts["w-1"]["files"][DEFAULT]["changed"] = facts["cp-1"]["files"][manifest]["changed"] = 0.5
    plan = make_plan(facts, cluster, ["cp-1"])
    assert plan["hosts"]["w-1"]["kubelet"]["restart"] and plan["hosts"]["w-1"]["kubelet"]["files"] == []
    waiting = plan["hosts"]["cp-1"]["control_plane"][0]
    assert (waiting["files"], waiting["flags"]) == ([], [])
    del facts["cp-1"]["components"]["kube-controller-manager"]
    assert make_plan(facts, cluster, ["cp-1"])["hosts"]["cp-1"]["control_plane"][0]["files"] == []
    facts["cp-1"]["journal"] = {}
    assert "does not run" in problems(facts, cluster)


def test_a_wide_runtime_is_never_narrowed_for_a_new_node(leftovers: Any, cluster_facts: Any) -> None:
    nodes = (("cp-1", "initialized"), ("w-1", "uninitialized"))
    wide = make_plan(leftovers, cluster_facts(*nodes, runtime={"exists": True, "managed": True, "wide": True}), ["cp-1"])
    assert wide["adopt"] == ["w-1"] and not wide["narrow"]
    assert make_plan(leftovers, cluster_facts(*nodes, runtime={"exists": True, "managed": True}), ["cp-1"])["narrow"]


def problems(facts: Any, cluster: Any, control_plane: list[str] | None = None) -> str:
    plan = make_plan(facts, cluster, control_plane or ["cp-1"])
    assert not plan["go"] and plan["table"][-1].startswith("NO-GO")
    return "\n".join(plan["problems"])


@pytest.mark.parametrize("version", ["v1.28.9", "v1.37.0", "nonsense"])
def test_versions_without_facts_are_refused(leftovers: Any, cluster_facts: Any, version: str) -> None:
    text = problems(leftovers, cluster_facts(version=version))
    assert version in text and "1.29 to 1.36" in text


def test_bad_hosts_are_named_with_a_way_out(leftovers: Any, host_facts: Any, cluster_facts: Any, fixture_text: Any) -> None:
    nodes = cluster_facts(("cp-1", "unmanaged"), ("w-1", "unmanaged"))
    manifest = MANIFESTS + "kube-controller-manager.yaml"
    broken = host_facts("cp-1", {manifest: "spec: [", FLAGS_ENV: PLAIN_ENV})
    assert f"{manifest} is not YAML: line 1" in problems({"cp-1": broken}, nodes)
    text = fixture_text("kubeadm-1.36/kube-apiserver.yaml")
    twice = host_facts("cp-1", {MANIFESTS + "a.yaml": text, MANIFESTS + "b.yaml.bak": text, FLAGS_ENV: PLAIN_ENV})
    assert f"{MANIFESTS}a.yaml and {MANIFESTS}b.yaml.bak" in problems({"cp-1": twice}, nodes)
    assert "has neither static Pod manifests" in problems({"cp-1": host_facts("cp-1", {FLAGS_ENV: PLAIN_ENV})}, nodes)
    other = host_facts("elsewhere", {FLAGS_ENV: PLAIN_ENV})
    assert "set ccm_install_node_name" in problems({**leftovers, "w-2": other}, nodes)
    same = host_facts("w-1", {FLAGS_ENV: PLAIN_ENV})
    assert "w-1 and w-2 are the same Node" in problems({**leftovers, "w-2": same}, nodes)
    split = host_facts("w-1", {FLAGS_ENV: 'KUBELET_KUBEADM_ARGS="--cloud-provider=aws"\n', DEFAULT: "KUBELET_EXTRA_ARGS=--cloud-provider=gce\n"})
    conflict = problems({**leftovers, "w-1": split}, nodes)
    assert FLAGS_ENV in conflict and DEFAULT in conflict


def test_foreign_nodes_are_reported_and_left_alone(leftovers: Any, cluster_facts: Any) -> None:
    plan = make_plan(leftovers, cluster_facts(("cp-1", "unmanaged"), ("w-1", "foreign"), ("stranger", "unmanaged")), ["cp-1"])
    assert plan["go"] and plan["adopt"] == ["cp-1"]
    assert any(text.startswith("Node w-1 is left alone") for text in plan["warnings"])
    assert any("stranger is not in the inventory" in text for text in plan["warnings"])


def test_verification_needs_effects_not_files(leftovers: Any, cluster_facts: Any) -> None:
    cluster = cluster_facts(("cp-1", "initialized"), ("w-1", "initialized"))
    plan = make_plan(leftovers, cluster, ["cp-1"])
    cluster["kubeadm_config"]["content"] = base64.b64decode(plan["kubeadm_config"]["content"]).decode()
    health = {"reasons": [], "unjudged": [], "daemonset": {"ready": 1, "desired": 1}, "lease": {"holder": "cp-1_x"}}
    facts = migrated(leftovers, plan)
    good = verify(facts, cluster, health, ["cp-1"])
    assert good["ok"], good["lines"]

    def fails(name: str) -> bool:
        verdict = verify(facts, cluster, health, ["cp-1"])
        return not verdict["ok"] and [c["name"] for c in verdict["checks"] if not c["ok"]] == [name]

    facts["w-1"]["kubelet"]["flags"] = []
    assert "runs with no cloud flag, and" in verify(facts, cluster, health, ["cp-1"])["failures"][0]
    facts["w-1"]["files"][DEFAULT]["changed"] = 0.5
    assert [c["name"] for c in verify(facts, cluster, health, ["cp-1"])["checks"] if not c["ok"]] == ["flags", "kubelets"]
    facts["w-1"]["kubelet"]["flags"] = ["--cloud-provider=external"]
    cluster["services"] = [{"namespace": "d", "name": "web", "class": "", "ingress": [], "finalizer": True}]
    assert fails("services")
    cluster["services"] = []
    health["reasons"] = ["nobody holds the Lease"]
    assert fails("runtime")
    health["reasons"] = []
    cluster["nodes"][1]["addresses"] = []
    assert fails("nodes")
