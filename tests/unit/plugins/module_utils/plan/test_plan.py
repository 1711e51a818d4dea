# SPDX-License-Identifier: Apache-2.0
"""The plan: every edit with its reason, every problem, and no edits in the second run."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from ansible_collections.outoftree.ccm.plugins.module_utils.plan.plan import make_plan
from ansible_collections.outoftree.ccm.plugins.module_utils.plan.verify import verify

MANIFESTS = "/etc/kubernetes/manifests/"
FLAGS_ENV = "/var/lib/kubelet/kubeadm-flags.env"
DEFAULT = "/etc/default/kubelet"
PLAIN_ENV = 'KUBELET_KUBEADM_ARGS="--node-ip=10.0.0.1"\n'


@pytest.fixture
def leftovers(fixture_text: Any, host_facts: Any) -> dict[str, Any]:
    """Return a control plane with flags that have no effect, and a worker with an empty flag in the wrong file."""
    manifests = {f"{MANIFESTS}{name}.yaml": fixture_text(f"kubeadm-1.36/{name}.yaml") for name in ("kube-apiserver", "kube-controller-manager")}
    return {
        "cp-1": host_facts("cp-1", {**manifests, FLAGS_ENV: PLAIN_ENV}, components={
            "kube-apiserver": ["--enable-admission-plugins=NodeRestriction"],
            "kube-controller-manager": ["--cloud-config=/etc/kubernetes/cloud.conf", "--cloud-provider="]}),
        "w-1": host_facts("w-1", {FLAGS_ENV: PLAIN_ENV, DEFAULT: "KUBELET_EXTRA_ARGS=--cloud-provider=\n"}, ["--cloud-provider="]),
    }


def migrated(facts: dict[str, Any], plan: dict[str, Any]) -> dict[str, Any]:
    """Return the facts after the plan was carried out."""
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
    assert plan["go"] and plan["node_only"] and plan["adopt"] == ["cp-1", "w-1"]
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
    assert plan["table"][0] == "cp-1: kube-controller-manager, " + manifest + " (risk a)"
    assert plan["table"][2] == "  - --cloud-provider=''  (why 2)"
    assert sum(line.startswith("why ") for line in plan["table"]) == len({edit["why"] for edit in plan["edits"]})


def test_a_second_plan_is_empty(leftovers: Any, cluster_facts: Any) -> None:
    before = cluster_facts(("cp-1", "unmanaged"), ("w-1", "unmanaged"))
    plan = make_plan(leftovers, before, ["cp-1"])
    text = base64.b64decode(plan["kubeadm_config"]["content"]).decode()
    after = cluster_facts(("cp-1", "initialized"), ("w-1", "initialized"), kubeadm=text, runtime={"exists": True, "managed": True, "wide": True})
    again = make_plan(migrated(leftovers, plan), after, ["cp-1"])
    assert (again["go"], again["edits"], again["adopt"], again["node_only"], again["kubeadm_config"]) == (True, [], [], False, None)
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
    assert wide["adopt"] == ["w-1"] and not wide["node_only"]
    assert make_plan(leftovers, cluster_facts(*nodes, runtime={"exists": True, "managed": True}), ["cp-1"])["node_only"]


def problems(facts: Any, cluster: Any, control_plane: list[str] | None = None) -> str:
    plan = make_plan(facts, cluster, control_plane or ["cp-1"])
    assert not plan["go"] and plan["table"][-1].startswith("NO-GO")
    return "\n".join(plan["problems"])


@pytest.mark.parametrize("version", ["v1.28.9", "v1.38.0", "nonsense"])
def test_versions_without_facts_are_refused(leftovers: Any, cluster_facts: Any, version: str) -> None:
    text = problems(leftovers, cluster_facts(version=version))
    assert version in text and "1.29 to 1.37" in text


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
    assert "Set ccm_install_node_name" in problems({**leftovers, "w-2": other}, nodes)
    same = host_facts("w-1", {FLAGS_ENV: PLAIN_ENV})
    assert "w-1 and w-2 are the same Node" in problems({**leftovers, "w-2": same}, nodes)
    split = host_facts("w-1", {FLAGS_ENV: 'KUBELET_KUBEADM_ARGS="--cloud-provider=aws"\n', DEFAULT: "KUBELET_EXTRA_ARGS=--cloud-provider=gce\n"})
    conflict = problems({**leftovers, "w-1": split}, nodes)
    assert FLAGS_ENV in conflict and DEFAULT in conflict


def test_foreign_nodes_are_reported_and_left_alone(leftovers: Any, cluster_facts: Any) -> None:
    plan = make_plan(leftovers, cluster_facts(("cp-1", "unmanaged"), ("w-1", "foreign"), ("stranger", "unmanaged")), ["cp-1"])
    assert plan["go"] and plan["adopt"] == ["cp-1"]
    assert any(text.startswith("Node w-1 is not adopted") for text in plan["warnings"])
    assert any("stranger is not in the inventory" in text for text in plan["warnings"])


def test_nodes_of_a_controller_beside_this_one_are_not_to_register_again(leftovers: Any, cluster_facts: Any) -> None:
    cluster = cluster_facts(("cp-1", "initialized"), ("w-1", "foreign"))
    cluster["nodes"][1]["provider_id"] = "aws:///z/i-1"
    cluster["ignored"] = ["kube-system/aws-ccm"]
    plan = make_plan(leftovers, cluster, ["cp-1"])
    assert not any("Node w-1" in text for text in plan["warnings"])
    cluster["nodes"][1]["provider_id"] = "k3s://w-1"
    assert any("Node w-1 is not adopted" in text for text in make_plan(leftovers, cluster, ["cp-1"])["warnings"])


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
    assert "runs with no cloud flag, but" in verify(facts, cluster, health, ["cp-1"])["failures"][0]
    facts["w-1"]["files"][DEFAULT]["changed"] = 0.5
    assert [c["name"] for c in verify(facts, cluster, health, ["cp-1"])["checks"] if not c["ok"]] == ["flags", "kubelets"]
    facts["w-1"]["kubelet"]["flags"] = ["--cloud-provider=external"]
    cluster["services"] = [{"namespace": "d", "name": "web", "class": "", "ingress": [], "finalizer": True, "ours": True}]
    assert fails("services")
    cluster["services"] = []
    health["reasons"] = ["nobody holds the Lease"]
    assert fails("runtime")
    health["reasons"] = []
    cluster["nodes"][1]["addresses"] = []
    assert fails("nodes")


# -- problems, file by file --------------------------------------------------------------------------------------------

KCM = MANIFESTS + "kube-controller-manager.yaml"
UNIT = "/etc/systemd/system/kube-apiserver.service"
KCM_ARGUMENTS = "/etc/kubernetes/controller-manager"
SYSTEMD = "systemd-control-plane"


def planned(facts: dict[str, Any], cluster_facts: Any, version: str = "v1.36.3", **more: Any) -> dict[str, Any]:
    """Return the plan of a cluster of one control plane."""
    name = facts["node_name"]
    return make_plan({name: facts}, cluster_facts((name, "initialized"), version=version, **{"kubeadm": "", **more}), [name])


def rows(plan: dict[str, Any], component: str) -> list[tuple[str, str | None, str | None]]:
    return [(edit["flag"], edit["now"], edit["then"]) for edit in plan["edits"] if edit["component"] == component]


def why(plan: dict[str, Any], component: str, flag: str) -> str:
    (found,) = [edit["why"] for edit in plan["edits"] if (edit["component"], edit["flag"]) == (component, flag)]
    return str(found)


@pytest.mark.parametrize(("image", "then"), [
    ("registry:5000/kcm:v1.30.4", "external"),
    ("registry/kcm:v1.30.4@sha256:0123", "external"),
    ("registry/kcm:v1.31.1", None),
    ("registry/kcm:ours", None),
])
def test_a_manifest_is_edited_for_the_release_of_its_image(image: str, then: str | None, leftovers: Any, cluster_facts: Any) -> None:
    text = base64.b64decode(leftovers["cp-1"]["files"][KCM]["content"]).decode()
    text = text.replace("registry.k8s.io/kube-controller-manager:v1.36.3", image).replace("--cloud-provider=\n", "--cloud-provider=aws\n")
    leftovers["cp-1"]["files"][KCM]["content"] = base64.b64encode(text.encode()).decode()
    leftovers["cp-1"]["components"]["kube-controller-manager"]["flags"][1] = "--cloud-provider=aws"
    plan = planned(leftovers["cp-1"], cluster_facts, "v1.31.1")
    assert ("--cloud-provider", "aws", then) in rows(plan, "kube-controller-manager"), plan["problems"]
    assert any("owners" in text for text in plan["warnings"]) is (then is not None)


def test_mounts_are_told_with_the_cloud_config_alone(leftovers: Any, cluster_facts: Any) -> None:
    plan = planned(leftovers["cp-1"], cluster_facts)
    assert "(with " in why(plan, "kube-controller-manager", "--cloud-config")
    assert "(with " not in why(plan, "kube-controller-manager", "--cloud-provider")
    (step,) = plan["hosts"]["cp-1"]["control_plane"]
    assert step["restart"] is False


def test_one_bad_manifest_hides_nothing_of_the_others(leftovers: Any, host_facts: Any, cluster_facts: Any) -> None:
    texts = {path: base64.b64decode(entry["content"]).decode() for path, entry in leftovers["cp-1"]["files"].items() if entry["exists"]}
    facts = host_facts("cp-1", {MANIFESTS + "a.yaml": "# kube-apiserver\nspec: [", **texts}, components={
        name: process["flags"] for name, process in leftovers["cp-1"]["components"].items()})
    plan = planned(facts, cluster_facts)
    (problem,) = plan["problems"]
    assert "a.yaml is not YAML" in problem and len(rows(plan, "kube-controller-manager")) == 2
    facts["files"][MANIFESTS + "a.yaml"]["content"] = ""
    odd = texts[KCM].replace("  - command:\n    - kube", "  - command: no list\n    args:\n    - kube")
    facts["files"][KCM]["content"] = base64.b64encode(odd.encode()).decode()
    assert f"cannot edit {KCM}" in "\n".join(planned(facts, cluster_facts)["problems"])


@pytest.mark.parametrize(("name", "text", "problem"), [
    ("README.md", "These manifests: do not edit: [them]\n", ""),
    ("README", "* as they are\n", ""),
    ("kube-vip.yaml", "kind: Pod\nspec: [\n", ""),
    ("kube-vip.yaml", "kind: Pod\nmetadata: {name: kube-vip, annotations: {updated: 2024-31-12}}\n---\n", ""),
    ("notes.txt", "kube-apiserver is down: [\n", "It names kube-apiserver. Fix it, or move it out of the folder"),
])
def test_a_file_beside_the_manifests_stops_nothing_unless_it_names_a_component(
        leftovers: Any, host_facts: Any, cluster_facts: Any, name: str, text: str, problem: str) -> None:
    texts = {path: base64.b64decode(entry["content"]).decode() for path, entry in leftovers["cp-1"]["files"].items() if entry["exists"]}
    facts = host_facts("cp-1", {MANIFESTS + name: text, **texts}, components={
        name: process["flags"] for name, process in leftovers["cp-1"]["components"].items()})
    plan = planned(facts, cluster_facts)
    assert len(rows(plan, "kube-controller-manager")) == 2
    assert [problem in text for text in plan["problems"]] == ([True] if problem else [])


@pytest.mark.parametrize(("state", "changed", "explained"), [
    pytest.param("written", 2.0, True, id="ours-and-not-restarted"),
    pytest.param("written", 0.5, False, id="ours-and-restarted-since"),
    pytest.param("original", 2.0, False, id="somebody-elses"),
])
def test_only_a_manifest_of_ours_explains_what_runs(state: str, changed: float, explained: bool, leftovers: Any, cluster_facts: Any) -> None:
    facts = leftovers["cp-1"]
    facts["components"]["kube-controller-manager"].update(flags=["--cloud-provider=aws"], started=1.0)
    facts["files"][KCM]["changed"] = changed
    facts["journal"] = {KCM: {"component": "kube-controller-manager", "state": state}}
    plan = planned(facts, cluster_facts)
    assert plan["go"] is explained and any("runs with --cloud-provider=aws" in text for text in plan["problems"]) is not explained


def test_what_is_written_and_does_not_run_yet_is_waited_for(leftovers: Any, cluster_facts: Any) -> None:
    facts = migrated(leftovers, make_plan(leftovers, cluster_facts(("cp-1", "initialized"), ("w-1", "initialized")), ["cp-1"]))["cp-1"]
    assert rows(planned(facts, cluster_facts), "kube-controller-manager") == []
    facts["components"]["kube-controller-manager"].update(flags=["--cloud-provider="], started=1.0)
    facts["files"][KCM]["changed"] = 2.0
    facts["journal"] = {KCM: {"component": "kube-controller-manager", "state": "written"}}
    plan = planned(facts, cluster_facts)
    (step,) = plan["hosts"]["cp-1"]["control_plane"]
    assert (step["files"], step["flags"]) == ([], []) and any("The run waits for it" in text for text in plan["warnings"])


def test_a_component_of_a_unit_and_a_manifest_is_refused(tree_facts: Any, cluster_facts: Any, fixture_text: Any) -> None:
    facts = tree_facts("systemd/control-plane", changed={KCM: fixture_text("kubeadm-1.36/kube-controller-manager.yaml")})
    assert f"is defined by {KCM} and the unit kube-controller-manager.service" in "\n".join(planned(facts, cluster_facts, "v1.33.4")["problems"])


@pytest.mark.parametrize(("content", "problem"), [
    (b"[Service]\nExecStart=/usr/bin/kube-apiserver --x=\xff\n", "kube-apiserver: "),
    (b"[Service]\nExecStart=/bin/sh -c 'exec kube-apiserver --cloud-provider=openstack'\n", "starts it with a shell"),
    (b"[Service]\n", "the flags of kube-apiserver cannot be changed: its unit has no ExecStart"),
])
def test_a_unit_that_cannot_be_edited_is_named(content: bytes, problem: str, tree_facts: Any, cluster_facts: Any) -> None:
    facts = tree_facts("systemd/control-plane")
    facts["files"][UNIT]["content"] = base64.b64encode(content).decode()
    if b"/bin/sh" not in content:
        facts["components"]["kube-apiserver"]["flags"] = []
    plan = planned(facts, cluster_facts, "v1.33.4")
    assert any(text.startswith(SYSTEMD + ": ") and problem in text for text in plan["problems"]), plan["problems"]


def test_a_unit_is_edited_for_the_release_that_runs(tree_facts: Any, cluster_facts: Any) -> None:
    facts = tree_facts("systemd/control-plane", version="v1.31.1")
    assert ("--cloud-provider", "openstack", None) in rows(planned(facts, cluster_facts, "v1.31.1"), "kube-controller-manager")
    facts["components"]["kube-controller-manager"]["version"] = "v1.30.4"
    plan = planned(facts, cluster_facts, "v1.31.1")
    assert ("--cloud-provider", "openstack", "external") in rows(plan, "kube-controller-manager")
    assert any("kube-controller-manager runs the cloud loops of the in-tree openstack" in text for text in plan["warnings"])


def test_a_unit_with_nothing_to_edit_must_run_and_is_restarted_when_it_runs_otherwise(tree_facts: Any, cluster_facts: Any) -> None:
    facts = tree_facts("systemd/control-plane", version="v1.30.4", changed={KCM_ARGUMENTS: 'KUBE_CONTROLLER_MANAGER_ARGS="--cloud-provider=external"\n'})
    assert rows(planned(facts, cluster_facts, "v1.30.4"), "kube-controller-manager") == []
    facts["files"][KCM_ARGUMENTS]["changed"] = 0.5
    for running, now in (["--cloud-provider=aws"], "--cloud-provider=aws"), ([], None):
        facts["components"]["kube-controller-manager"]["flags"] = running
        plan = planned(facts, cluster_facts, "v1.30.4")
        assert rows(plan, "kube-controller-manager") == [("--cloud-provider", now, "--cloud-provider=external")]
    del facts["components"]["kube-controller-manager"]
    assert "does not run, although kube-controller-manager.service exists" in "\n".join(planned(facts, cluster_facts, "v1.30.4")["problems"])


def test_patches_are_told_each_and_one_that_is_refused_hides_no_other(leftovers: Any, host_facts: Any, cluster_facts: Any) -> None:
    texts = {path: base64.b64decode(entry["content"]).decode() for path, entry in leftovers["cp-1"]["files"].items() if entry["exists"]}
    patch = base64.b64decode(leftovers["cp-1"]["files"][KCM]["content"]).decode()
    folder = "/etc/kubernetes/patches/"
    texts |= {folder + "kube-apiserver.yaml": "spec: [ # cloud-provider\n", folder + "kube-controller-manager.yaml": patch}
    running = {name: process["flags"] for name, process in leftovers["cp-1"]["components"].items()}
    facts = host_facts("cp-1", texts, components=running)
    plan = planned(facts, cluster_facts)
    (problem,) = plan["problems"]
    assert folder + "kube-apiserver.yaml cannot be edited" in problem
    assert ("--cloud-provider", "", None) in rows(plan, "kubeadm-patches")


def test_a_kubelets_cloud_config_is_told_with_what_it_does(host_facts: Any, cluster_facts: Any) -> None:
    flags = ["--cloud-provider=aws", "--cloud-config=/x"]
    facts = host_facts("w-1", {FLAGS_ENV: f'KUBELET_KUBEADM_ARGS="{" ".join(flags)}"\n'}, flags)
    cluster = cluster_facts(("w-1", "initialized"), kubeadm="")
    plan = make_plan({"w-1": facts}, cluster, [])
    assert why(plan, "kubelet", "--cloud-config").endswith("; kubelet 1.36 does not start with it")
    assert not why(plan, "kubelet", "--cloud-provider").endswith("; ")
    facts["kubelet"]["version"] = "v1.34.1"
    assert "kubelet 1.34" in " ".join(edit["why"] for edit in make_plan({"w-1": facts}, cluster, [])["edits"])
    facts["kubelet"].update(pid=0, flags=[])
    assert make_plan({"w-1": facts}, cluster, [])["go"], "a kubelet that does not run contradicts no file"


def test_a_kubelet_that_runs_otherwise_than_its_files_say_is_restarted(host_facts: Any, cluster_facts: Any) -> None:
    facts = host_facts("w-1", {FLAGS_ENV: 'KUBELET_KUBEADM_ARGS="--cloud-provider=external"\n'}, [])
    facts["files"][FLAGS_ENV]["changed"] = 0.5
    for running, now in ([], None), (["--cloud-provider=aws"], "--cloud-provider=aws"):
        facts["kubelet"]["flags"] = running
        plan = make_plan({"w-1": facts}, cluster_facts(("w-1", "initialized"), kubeadm=""), [])
        assert rows(plan, "kubelet") == [("--cloud-provider", now, "--cloud-provider=external")] and plan["hosts"]["w-1"]["kubelet"]["restart"]
    facts["kubelet"]["flags"] = ["--cloud-provider=external"]
    assert make_plan({"w-1": facts}, cluster_facts(("w-1", "initialized"), kubeadm=""), [])["hosts"]["w-1"]["kubelet"] is None


def test_what_the_ends_of_servicelb_and_of_k3s_own_files_mean(tree_facts: Any, cluster_facts: Any) -> None:
    facts = tree_facts("k3s/server")
    plan = planned(facts, cluster_facts, "v1.33.4")
    risks = {edit["then"] == "servicelb": edit["risk"] for edit in plan["edits"] if edit["component"] == "k3s"}
    assert "ServiceLB" in risks[True] and "restarts k3s" in risks[False]


@pytest.mark.parametrize("content", ["apiServer: [", "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\napiServer: text\n"])
def test_a_kubeadm_config_that_cannot_be_edited_is_named(content: str, leftovers: Any, cluster_facts: Any) -> None:
    plan = planned(leftovers["cp-1"], cluster_facts, kubeadm=content)
    assert any(text.startswith("the ConfigMap kube-system/kubeadm-config cannot be edited") for text in plan["problems"])


def test_kubeadm_puts_its_own_list_where_a_list_of_plugins_went(leftovers: Any, cluster_facts: Any) -> None:
    text = ("apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\napiServer:\n  extraArgs:\n"
            "  - {name: enable-admission-plugins, value: PersistentVolumeLabel}\n  - {name: cloud-provider, value: aws}\n")
    plan = planned(leftovers["cp-1"], cluster_facts, kubeadm=text)
    assert "kubeadm's own list" in why(plan, "kube-apiserver", "enable-admission-plugins")
    assert "kubeadm's own list" not in why(plan, "kube-apiserver", "cloud-provider")
    assert plan["warnings"] == []


def test_nodes_outside_of_the_inventory_are_not_adopted(leftovers: Any, cluster_facts: Any) -> None:
    nodes = (("cp-1", "uninitialized"), ("w-1", "unmanaged"), ("stranger", "uninitialized"), ("other", "unmanaged"))
    plan = make_plan(leftovers, cluster_facts(*nodes), ["cp-1"])
    assert plan["adopt"] == ["cp-1", "w-1"] and [edit["host"] for edit in plan["edits"] if edit["component"] == "node"] == ["w-1"]
    assert not make_plan(leftovers, cluster_facts(*nodes, version="v1.28.0"), ["cp-1"])["node_only"]
