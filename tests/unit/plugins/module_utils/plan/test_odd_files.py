# SPDX-License-Identifier: Apache-2.0
"""Unusual files, inventories and limits: the plan handles each, or names it with its file and line."""

from __future__ import annotations

import base64
import json
import pathlib
from typing import Any

import pytest
from ansible_collections.outoftree.ccm.plugins.module_utils.edit import kubeadm, manifest
from ansible_collections.outoftree.ccm.plugins.module_utils.edit.yamltext import EditRefused
from ansible_collections.outoftree.ccm.plugins.module_utils.host import detect
from ansible_collections.outoftree.ccm.plugins.module_utils.plan import gates
from ansible_collections.outoftree.ccm.plugins.module_utils.plan.plan import make_plan
from ansible_collections.outoftree.ccm.plugins.module_utils.plan.shapes import Choices

MANIFESTS = "/etc/kubernetes/manifests/"
DEFAULT, FLAGS_ENV = "/etc/default/kubelet", "/var/lib/kubelet/kubeadm-flags.env"
PLAIN_ENV = 'KUBELET_KUBEADM_ARGS="--node-ip=10.0.0.1"\n'


def put(facts: dict[str, Any], path: str, content: bytes) -> None:
    facts["files"][path].update(exists=True, content=base64.b64encode(content).decode())


def only_problem(plan: dict[str, Any]) -> str:
    (problem,) = plan["problems"]
    return str(problem)


# -- Latin-1 -----------------------------------------------------------------------------------------------------------


def test_a_latin_1_comment_in_a_kubelets_file_stays_byte_by_byte(host_facts: Any, cluster_facts: Any) -> None:
    """systemd reads such a file, because it ignores comments."""
    facts = host_facts("w-1", {DEFAULT: "x", FLAGS_ENV: PLAIN_ENV}, ["--cloud-provider="])
    put(facts, DEFAULT, b"# f\xfcr uns\nKUBELET_EXTRA_ARGS=--cloud-provider=\n")
    plan = make_plan({"w-1": facts}, cluster_facts(("w-1", "initialized")), [])
    assert plan["go"], plan["problems"]
    files = {item["path"]: base64.b64decode(item["content"]) for item in plan["hosts"]["w-1"]["kubelet"]["files"]}
    assert files[DEFAULT] == b"# f\xfcr uns\nKUBELET_EXTRA_ARGS=\n"


def test_latin_1_in_a_value_is_named_with_file_and_line(host_facts: Any, cluster_facts: Any) -> None:
    facts = host_facts("w-1", {DEFAULT: "x", FLAGS_ENV: PLAIN_ENV})
    put(facts, DEFAULT, b"# plain\nKUBELET_EXTRA_ARGS=--node-labels=b\xfcro=1\n")
    problem = only_problem(make_plan({"w-1": facts}, cluster_facts(("w-1", "initialized")), []))
    assert problem.startswith("w-1: ") and f"{DEFAULT} line 2" in problem and "0xfc" in problem and "UTF-8" in problem


def test_latin_1_in_yaml_is_named_with_file_and_line(tree_facts: Any, host_facts: Any, cluster_facts: Any, fixture_text: Any) -> None:
    k3s = tree_facts("k3s/agent")
    put(k3s, "/etc/rancher/k3s/config.yaml", b"# one\n# f\xfcr uns\n")
    problem = only_problem(make_plan({"k3s-agent": k3s}, cluster_facts(("k3s-agent", "initialized"), kubeadm=""), []))
    assert "/etc/rancher/k3s/config.yaml" in problem and "line 2: the byte 0xfc is not UTF-8" in problem
    patch = "/etc/kubernetes/patches/kube-apiserver.yaml"
    api = MANIFESTS + "kube-apiserver.yaml"
    cp = host_facts("cp-1", {api: fixture_text("kubeadm-1.36/kube-apiserver.yaml"), patch: "x", FLAGS_ENV: PLAIN_ENV},
                    components={"kube-apiserver": ["--enable-admission-plugins=NodeRestriction"]})
    put(cp, patch, b"# f\xfcr uns\n")
    problem = only_problem(make_plan({"cp-1": cp}, cluster_facts(("cp-1", "initialized")), ["cp-1"]))
    assert patch in problem and "line 1: the byte 0xfc is not UTF-8" in problem
    put(cp, patch, b"{}\n")
    put(cp, api, b"# f\xfcr uns\n")
    assert any(f"{api} is not YAML: line 1: the byte 0xfc" in text for text in
               make_plan({"cp-1": cp}, cluster_facts(("cp-1", "initialized")), ["cp-1"])["problems"])


# -- merge keys --------------------------------------------------------------------------------------------------------


def test_a_merge_key_is_named_with_its_line() -> None:
    pod = ("apiVersion: v1\nkind: Pod\nx-shared: &shared\n  command: [kube-apiserver, --cloud-provider=aws]\nspec:\n  containers:\n"
           "  - name: kube-apiserver\n    image: x:v1.33.4\n    <<: *shared\n")
    with pytest.raises(EditRefused, match="line 7: 'command' comes from a merge key"):
        manifest.edit(pod, "kube-apiserver", (1, 33))
    config = ("apiVersion: kubeadm.k8s.io/v1beta3\nkind: ClusterConfiguration\nx: &x\n  extraArgs: {cloud-provider: aws}\n"
              "apiServer:\n  <<: *x\n")
    with pytest.raises(EditRefused, match="line 6: 'extraArgs' comes from a merge key"):
        kubeadm.edit(config, (1, 33))


def test_a_merge_key_of_k3s_is_a_problem_with_its_file(tree_facts: Any, cluster_facts: Any) -> None:
    path = "/etc/rancher/k3s/config.yaml"
    facts = tree_facts("k3s/agent", changed={path: "x: &x\n  kubelet-arg: [cloud-provider=aws]\n<<: *x\n"})
    problem = only_problem(make_plan({"k3s-agent": facts}, cluster_facts(("k3s-agent", "initialized"), kubeadm=""), []))
    assert path in problem and "line 1: 'kubelet-arg' comes from a merge key" in problem


# -- limits ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("version", "flags", "refused"), [
    ("v1.30.4", ["--cloud-provider=aws"], True), ("v1.30.4", ["--cloud-provider=external"], True), ("v1.30.4", [], False),
    ("v1.33.4", [], False)])
def test_a_limit_must_not_leave_control_planes_with_in_tree_loops_behind(
        host_facts: Any, cluster_facts: Any, fixture_text: Any, version: str, flags: list[str], refused: bool) -> None:
    path = MANIFESTS + "kube-controller-manager.yaml"
    text = fixture_text("kubeadm-1.36/kube-controller-manager.yaml").replace("v1.36.3", version)
    lines = [line for line in text.splitlines(keepends=True) if "--cloud-" not in line]
    at = next(index for index, line in enumerate(lines) if "--leader-elect" in line)
    lines[at:at] = [f"    - {flag}\n" for flag in flags]
    facts = host_facts("cp-1", {path: "".join(lines), FLAGS_ENV: PLAIN_ENV}, components={"kube-controller-manager": flags})
    facts["kubelet"]["version"] = version
    cluster = cluster_facts(("cp-1", "initialized"), ("cp-2", "initialized"), version=version, kubeadm="")
    plan = make_plan({"cp-1": facts}, cluster, ["cp-1", "cp-2"], choices=Choices(excluded_hosts=["cp-2"]))
    if refused:
        problem = only_problem(plan)
        assert "--limit excludes the control plane(s) cp-2" in problem and "two" in problem and "without" in problem
    else:
        assert plan["go"], plan["problems"]
    assert make_plan({"cp-1": facts}, cluster, ["cp-1"], choices=Choices(excluded_hosts=["w-9"]))["problems"] != [] or not refused


# -- kube-scheduler ----------------------------------------------------------------------------------------------------


def test_gates_of_kube_scheduler_are_judged_with_file_and_line(host_facts: Any, cluster_facts: Any, fixture_text: Any) -> None:
    path = MANIFESTS + "kube-scheduler.yaml"
    text = fixture_text("kubeadm-1.36/kube-scheduler.yaml").replace("v1.36.3", "v1.30.4").replace(
        "    - --leader-elect=true\n", "    - --leader-elect=true\n    - --feature-gates=InTreePluginAWSUnregister=true,A=true\n")
    facts = host_facts("cp-1", {path: text, FLAGS_ENV: PLAIN_ENV})
    facts["kubelet"]["version"] = "v1.30.4"
    config = ("apiVersion: kubeadm.k8s.io/v1beta3\nkind: ClusterConfiguration\nscheduler:\n  extraArgs:\n"
              "    feature-gates: InTreePluginAWSUnregister=true\n")
    plan = make_plan({"cp-1": facts}, cluster_facts(("cp-1", "initialized"), version="v1.30.4", kubeadm=config), ["cp-1"])
    told = [text for text in plan["warnings"] if "kube-scheduler" in text]
    line = text.splitlines().index("    - --feature-gates=InTreePluginAWSUnregister=true,A=true") + 1
    assert len(told) == 2 and f"cp-1: {path} line {line}" in told[0] and "InTreePluginAWSUnregister=true" in told[0]
    assert "1.31" in told[0] and "A=true" not in told[0]
    assert "ConfigMap kube-system/kubeadm-config line 5" in told[1]


DEAD = "InTreePluginAWSUnregister=true"
SERVICE = "/etc/systemd/system/kube-scheduler.service"


def gates_told(check: Any, facts: dict[str, Any]) -> dict[str, list[str]]:
    plan: dict[str, list[str]] = {"problems": [], "warnings": []}
    check(plan, "cp-1", facts, (1, 30))
    return plan


def test_gates_of_the_kubelets_configuration_are_judged_file_by_file(host_facts: Any) -> None:
    texts = {"/1": "a: [", "/2": "- 1\n", "/3": "featureGates:\n", "/4": "kind: KubeletConfiguration\n",
             "/5": "featureGates:\n  DisableCloudProviders: false\n  GracefulNodeShutdown: true\n"}
    facts = host_facts("cp-1", texts)
    facts["kubelet"]["config_files"] = list(texts)
    plan: dict[str, list[str]] = {"problems": [], "warnings": []}
    gates.check_kubelet(plan, "cp-1", facts, (1, 32))
    assert [text.split(" line ")[0] for text in plan["problems"]] == ["cp-1: /1 is not YAML:"]
    assert plan["problems"][0].endswith("The kubelet cannot start with it. Fix it first")
    assert [text.split(": ")[1] for text in plan["warnings"]] == ["/5 has the feature gate DisableCloudProviders=false"]


def test_a_manifest_that_cannot_be_read_hides_no_gates_of_kube_scheduler(host_facts: Any) -> None:
    pod = "spec:\n  containers:\n  - name: kube-scheduler\n"
    texts = {MANIFESTS + "1.yaml": "a: [", MANIFESTS + "2.yaml": pod, MANIFESTS + "3.yaml": f"{pod}    command:\n    - --feature-gates={DEAD}\n"}
    plan = gates_told(gates.check_scheduler, host_facts("cp-1", texts))
    assert [text.partition(" gives ")[0] for text in plan["warnings"]] == [f"cp-1: {MANIFESTS}3.yaml line 5"] and plan["problems"] == []


@pytest.mark.parametrize(("unit", "environment", "place"), [
    (f"[Service]\nExecStart=/usr/bin/kube-scheduler --feature-gates={DEAD}\n", None, f"{SERVICE} line 2"),
    ("[Service]\nExecStart=/usr/bin/kube-scheduler $A\n", f"# ours\nA=--feature-gates={DEAD}\n", "/etc/scheduler line 2"),
])
def test_gates_of_kube_scheduler_are_found_in_its_unit(host_facts: Any, unit: str, environment: str | None, place: str) -> None:
    facts = host_facts("cp-1", {SERVICE: unit, "/etc/scheduler": environment})
    facts["units"]["kube-scheduler"] = {"unit": "kube-scheduler.service", "unit_files": [SERVICE], "environment_files": ["/etc/scheduler"]}
    (warning,) = gates_told(gates.check_scheduler, facts)["warnings"]
    assert warning.startswith(f"cp-1: {place} gives kube-scheduler the feature gate {DEAD}: ")


def test_a_unit_of_kube_scheduler_that_cannot_be_read_is_named(host_facts: Any) -> None:
    facts = host_facts("cp-1", {SERVICE: "x"})
    put(facts, SERVICE, b"[Service]\nExecStart=/k --a=\xfc\n")
    facts["units"]["kube-scheduler"] = {"unit": "kube-scheduler.service", "unit_files": [SERVICE], "environment_files": []}
    (warning,) = gates_told(gates.check_scheduler, facts)["warnings"]
    assert warning.startswith(f"cp-1: kube-scheduler: {SERVICE} line 2: the byte 0xfc")


# -- journals ----------------------------------------------------------------------------------------------------------


def entry(**original: Any) -> dict[str, Any]:
    return {"component": "kubeadm-config", "written": [{"sha256": "x"}], "original": {"flags": [], "exists": True, "copy": "originals/c", **original}}


@pytest.mark.parametrize("text", [
    "[]", "7", '{"version": 1}', '{"version": 1, "files": []}', '{"version": 1, "files": {"/x": {}}}',
    json.dumps({"version": 1, "files": {"/x": {**entry(sha256=""), "written": []}}}),
    json.dumps({"version": 1, "files": {"configmap:kube-system/kubeadm-config": entry(sha256="of a copy that is gone")}}),
])
def test_a_journal_that_cannot_be_used_is_a_problem_with_its_file(text: str, tmp_path: pathlib.Path) -> None:
    (tmp_path / "journal.json").write_text(text)
    result: dict[str, Any] = {"problems": [], "journal": {}}
    detect.detect_journal(result, str(tmp_path))
    (problem,) = result["problems"]
    assert str(tmp_path) in problem
