# SPDX-License-Identifier: Apache-2.0
"""Compares the running flags with the files: a difference that no file explains is a problem before the first edit."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.outoftree.ccm.plugins.module_utils.plan import drift
from ansible_collections.outoftree.ccm.plugins.module_utils.plan.leader_migration import make_leader_migration_plan
from ansible_collections.outoftree.ccm.plugins.module_utils.plan.plan import make_plan

MANIFESTS = "/etc/kubernetes/manifests/"
KCM = MANIFESTS + "kube-controller-manager.yaml"
FLAGS_ENV = "/var/lib/kubelet/kubeadm-flags.env"
PLAIN_ENV = 'KUBELET_KUBEADM_ARGS="--node-ip=10.0.0.1"\n'
ADMISSION = ["--enable-admission-plugins=NodeRestriction"]
LEFTOVERS = ["--cloud-config=/etc/kubernetes/cloud.conf", "--cloud-provider="]


@pytest.fixture
def control_plane(fixture_text: Any, host_facts: Any) -> Any:
    """Return a function that builds a kubeadm control plane. Its processes run with the flags of its files, except for a test's changes."""

    def build(version: str = "v1.36.3", files: dict[str, str] | None = None, components: dict[str, Any] | None = None) -> dict[str, Any]:
        texts = {f"{MANIFESTS}{name}.yaml": fixture_text(f"kubeadm-1.36/{name}.yaml").replace("v1.36.3", version)
                 for name in ("kube-apiserver", "kube-controller-manager")}
        running = {"kube-apiserver": ADMISSION, "kube-controller-manager": LEFTOVERS} | (components or {})
        facts: dict[str, Any] = host_facts("cp-1", texts | {FLAGS_ENV: PLAIN_ENV} | (files or {}),
                                           components={name: flags for name, flags in running.items() if flags is not None})
        facts["kubelet"]["version"] = version
        return facts

    return build


def planned(facts: dict[str, Any], cluster_facts: Any, version: str = "v1.36.3", group: tuple[str, ...] = ("cp-1",)) -> dict[str, Any]:
    return make_plan({facts["node_name"]: facts}, cluster_facts((facts["node_name"], "initialized"), version=version), list(group))


def only_problem(plan: dict[str, Any]) -> str:
    assert not plan["go"]
    (problem,) = plan["problems"]
    return str(problem)


def test_processes_that_run_as_their_files_say_are_no_problem(control_plane: Any, cluster_facts: Any) -> None:
    plan = planned(control_plane(), cluster_facts)
    assert plan["go"], plan["problems"]


def test_a_static_pod_with_flags_that_its_manifest_does_not_have(control_plane: Any, cluster_facts: Any) -> None:
    facts = control_plane(components={"kube-controller-manager": [*LEFTOVERS[:1], "--cloud-provider=aws"]})
    problem = only_problem(planned(facts, cluster_facts))
    for word in ("cp-1: process 1 (kube-controller-manager)", "--cloud-provider=aws", KCM, "--cloud-provider=''", "by hand"):
        assert word in problem, (word, problem)


def test_what_this_collection_wrote_and_nobody_restarted_is_explained(control_plane: Any, cluster_facts: Any) -> None:
    facts = control_plane(components={"kube-controller-manager": ["--cloud-provider=aws"]})
    facts["journal"] = {KCM: {"component": "kube-controller-manager", "state": "written"}}
    facts["files"][KCM]["changed"] = facts["components"]["kube-controller-manager"]["started"] = 100.0
    assert not planned(facts, cluster_facts)["go"], "the process was started after that: the journal explains nothing for ever"
    facts["files"][KCM]["changed"] = 100.5
    assert planned(facts, cluster_facts)["go"]
    facts["journal"][KCM]["state"] = "altered"
    assert not planned(facts, cluster_facts)["go"]


@pytest.mark.parametrize("version", ["v1.30.4", "v1.33.4"])
def test_a_component_that_nothing_recognised_starts(control_plane: Any, cluster_facts: Any, fixture_text: Any, version: str) -> None:
    """Such a host once got a plan with 0 edits and passed the verification, while every process ran an in-tree provider."""
    facts = control_plane(version, components={"kube-controller-manager": ["--cloud-provider=aws"]})
    facts["manifests"].remove(KCM)
    problem = only_problem(planned(facts, cluster_facts, version))
    for word in ("process 1 (kube-controller-manager)", "--cloud-provider=aws", MANIFESTS.rstrip("/"), "kube-controller-manager.service"):
        assert word in problem, (word, problem)
    facts["components"]["kube-controller-manager"]["flags"] = ["--cloud-provider=external"]
    assert planned(facts, cluster_facts, version)["go"], "it needs no change"


def test_a_component_on_a_host_of_the_wrong_group(control_plane: Any, cluster_facts: Any) -> None:
    facts = control_plane(components={"kube-controller-manager": ["--cloud-provider=aws"]})
    other = control_plane()
    other["node_name"] = "w-1"
    other["components"]["kube-controller-manager"]["flags"] = ["--cloud-provider=aws"]
    facts["components"]["kube-controller-manager"]["flags"] = LEFTOVERS
    plan = make_plan({"cp-1": facts, "w-1": other}, cluster_facts(("cp-1", "initialized"), ("w-1", "initialized")), ["cp-1"])
    (problem,) = plan["problems"]
    assert problem.startswith("w-1: process 1 (kube-controller-manager)") and "kube_control_plane" in problem


def test_a_process_of_roots_that_no_unit_or_manifest_of_that_name_starts(control_plane: Any, cluster_facts: Any) -> None:
    """The process may belong to a unit with another name, or to a static Pod whose container has another name."""
    facts = control_plane(components={"kube-controller-manager": None})
    facts["manifests"].remove(KCM)
    facts["unrecognised"] = [{"component": "kube-controller-manager", "pid": 77, "flags": ["--cloud-provider=aws"],
                              "place": "is in the control group /system.slice/kcm.service"}]
    problem = only_problem(planned(facts, cluster_facts))
    for word in ("process 77 (kube-controller-manager)", "/system.slice/kcm.service", "--cloud-provider=aws"):
        assert word in problem, (word, problem)
    facts["unrecognised"][0]["flags"] = []
    assert planned(facts, cluster_facts)["go"]


def test_a_manifest_whose_command_is_a_shell(control_plane: Any, cluster_facts: Any) -> None:
    text = ("apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - name: kube-controller-manager\n    image: x/kcm:v1.36.3\n"
            "    command: [/bin/sh, -c, 'exec kube-controller-manager --cloud-provider=aws 1>>/var/log/kcm.log 2>&1']\n")
    facts = control_plane(files={KCM: text}, components={"kube-controller-manager": ["--cloud-provider=aws"]})
    problem = only_problem(planned(facts, cluster_facts))
    for word in (KCM, "/bin/sh -c", "--cloud-provider=aws"):
        assert word in problem, (word, problem)
    facts["components"]["kube-controller-manager"]["flags"] = []
    assert planned(facts, cluster_facts)["go"], "what runs needs no change"


def test_underscores_in_names_are_the_same_flags(control_plane: Any, cluster_facts: Any, fixture_text: Any) -> None:
    """Kubernetes' components read '--cloud_provider' as '--cloud-provider' (component-base, WordSepNormalizeFunc)."""
    text = fixture_text("kubeadm-1.36/kube-controller-manager.yaml").replace("--cloud-provider=", "--cloud_provider=aws")
    facts = control_plane(files={KCM: text, FLAGS_ENV: 'KUBELET_KUBEADM_ARGS="--cloud_provider=aws"\n'},
                          components={"kube-controller-manager": [LEFTOVERS[0], "--cloud-provider=aws"]})
    facts["kubelet"]["flags"] = ["--cloud-provider=aws"]
    plan = planned(facts, cluster_facts)
    assert plan["go"], plan["problems"]
    changes = {(edit["component"], edit["flag"], edit["now"], edit["then"]) for edit in plan["edits"] if edit["host"] == "cp-1"}
    assert {("kube-controller-manager", "--cloud-provider", "aws", None), ("kubelet", "--cloud-provider", "aws", "external")} <= changes


# -- units -----------------------------------------------------------------------------------------------------------


def test_a_kubelet_with_flags_that_no_file_gives_it(control_plane: Any, cluster_facts: Any) -> None:
    facts = control_plane()
    facts["kubelet"]["flags"] = ["--cloud-provider=aws"]
    problem = only_problem(planned(facts, cluster_facts))
    for word in ("cp-1: process 7 (kubelet)", "--cloud-provider=aws", FLAGS_ENV, "10-kubeadm.conf", "restart"):
        assert word in problem, (word, problem)
    facts["kubelet"]["started"], facts["files"][FLAGS_ENV]["changed"] = 100.0, 100.5
    assert planned(facts, cluster_facts)["go"]


def test_a_unit_of_a_component_with_flags_that_no_file_gives_it(tree_facts: Any, cluster_facts: Any) -> None:
    facts = tree_facts("systemd/control-plane")
    facts["components"]["kube-controller-manager"]["flags"] = ["--cloud-provider=gce"]
    cluster = cluster_facts((facts["node_name"], "initialized"), version="v1.33.4", kubeadm="")
    plan = make_plan({facts["node_name"]: facts}, cluster, [facts["node_name"]])
    problem = only_problem(plan)
    assert "--cloud-provider=gce" in problem and "/etc/kubernetes/controller-manager" in problem
    facts["files"]["/etc/kubernetes/controller-manager"]["changed"] = 0.5
    assert make_plan({facts["node_name"]: facts}, cluster, [facts["node_name"]])["go"]


def test_what_must_run_again_after_a_failure_is_what_the_files_say(tree_facts: Any, cluster_facts: Any) -> None:
    """After a failure, the old files are restored. A process that starts from them has no flag that only the old process had."""
    facts = tree_facts("systemd/control-plane")
    facts["components"]["kube-controller-manager"]["flags"] = facts["kubelet"]["flags"] = ["--cloud-provider=gce"]
    for entry in facts["files"].values():
        entry["changed"] = 0.5
    cluster = cluster_facts((facts["node_name"], "initialized"), version="v1.33.4", kubeadm="")
    steps = make_plan({facts["node_name"]: facts}, cluster, [facts["node_name"]])["hosts"][facts["node_name"]]
    assert steps["control_plane"][0]["flags_before"] == ["--cloud-provider=openstack", "--cloud-config=/etc/kubernetes/cloud.conf"]
    assert steps["kubelet"]["flags_before"] == []


def test_a_leader_migration_judges_kube_controller_manager_alike(control_plane: Any, cluster_facts: Any) -> None:
    facts = control_plane("v1.30.4", components={"kube-controller-manager": [LEFTOVERS[0], "--cloud-provider=aws"]})
    cluster = cluster_facts(("cp-1", "initialized"), version="v1.30.4")
    plan = make_leader_migration_plan({"cp-1": facts}, cluster, ["cp-1"], "lease")
    assert not plan["go"] and KCM in plan["problems"][0]


@pytest.mark.parametrize(("running", "written", "words"), [
    (["--a=1", "--b="], ["--a=1", "--c=3"], "runs with --b='', but /f gives it --c=3. "),
    (["--a=1"], ["--a=1", "--c=3"], "runs with no cloud flag, but /f gives it --c=3. "),
    (["--a=1", "--c=3"], ["--a=1"], "runs with --c=3, but /f gives it no cloud flag. "),
    (["--a=1", "--a=1"], ["--a=1"], "runs with --a=1, but /f gives it no cloud flag. "),
    (["--a=1", "--a=2"], ["--a=2", "--a=1"], "runs with --a=1 --a=2, but /f gives it --a=2 --a=1. "),
])
def test_a_difference_is_told_without_what_is_the_same(running: list[str], written: list[str], words: str) -> None:
    assert words in drift.unexplained("cp-1", "kubelet", {"pid": 7, "flags": running}, written, ["/f"])
    assert drift.unexplained("cp-1", "kubelet", {"pid": 7, "flags": running}, running, ["/f"]) == ""


# -- all other arguments ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("manifest", "running", "words"), [
    (["kube-apiserver", "--a=1", "--b=2"], ["kube-apiserver", "--a=1", "--b=2"], ""),
    (["/usr/local/bin/kube-apiserver", "--a=1"], ["/usr/local/bin/kube-apiserver", "--a=1"], ""),
    (["kube-apiserver", "--advertise-address=$(POD_IP)"], ["kube-apiserver", "--advertise-address=10.0.0.1"], ""),
    (["/go-runner", "--", "kube-apiserver", "--a=1"], ["kube-apiserver", "--b=2"], ""),
    (["kube-apiserver", "--a=1"], ["kube-apiserver", "--a=2"], "argument 1 of the process is '--a=2' instead of '--a=1' (in its manifest)"),
    (["kube-apiserver", "--a=1", "--b=2"], ["kube-apiserver", "--a=1"], "does not have the argument '--b=2' (in its manifest)"),
    (["kube-apiserver", "--a=1"], ["kube-apiserver", "--a=1", "--c"], "one more argument, '--c'"),
])
def test_every_argument_of_a_static_pod_is_compared(manifest: list[str], running: list[str], words: str) -> None:
    problem = drift.others("cp-1", "kube-apiserver", {"pid": 7, "flags": [], "version": "", "arguments": running}, manifest)
    assert words in problem and bool(problem) == bool(words)
    assert not problem or problem.startswith("cp-1: process 7 (kube-apiserver)")


def test_the_first_other_argument_that_differs_is_a_problem_before_the_first_edit(control_plane: Any, cluster_facts: Any) -> None:
    facts = control_plane()
    facts["kubelet"]["difference"] = "argument 3 of the process is '--v=4' instead of '--v=2' (/etc/default/kubelet line 2)"
    problem = only_problem(planned(facts, cluster_facts))
    assert "cp-1: process 7 (kubelet)" in problem and facts["kubelet"]["difference"] in problem and "No file changed" in problem
    facts["kubelet"]["started"], facts["files"][FLAGS_ENV]["changed"] = 10.0, 20.0
    assert planned(facts, cluster_facts)["go"], "the next start takes up the file"


def test_a_manifest_that_does_not_give_what_its_process_has_is_a_problem(control_plane: Any, cluster_facts: Any) -> None:
    facts = control_plane()
    facts["components"]["kube-apiserver"]["arguments"] = ["kube-apiserver", "--advertise-address=10.0.0.9"]
    assert "argument 1 of the process is '--advertise-address=10.0.0.9' instead of " in only_problem(planned(facts, cluster_facts))
