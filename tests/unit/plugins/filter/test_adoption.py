# SPDX-License-Identifier: Apache-2.0
"""The cloud's answer right after the rollout: which Node will be adopted as which instance, and which hosts the run should skip."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.outoftree.ccm.plugins.filter.adoption_outlook import adoption_outlook
from ansible_collections.outoftree.ccm.plugins.filter.migration_plan import migration_plan
from ansible_collections.outoftree.ccm.plugins.module_utils.facts import nodes as _nodes
from ansible_collections.outoftree.ccm.plugins.module_utils.plan import adoption
from ansible_collections.outoftree.ccm.plugins.module_utils.plan.plan import make_plan

CP = ["cp-1"]
FLAGS_ENV = "/var/lib/kubelet/kubeadm-flags.env"
STEP = {"control_plane": [], "kubelet": {"component": "kubelet"}}


def plan(*hosts: str, **parts: Any) -> dict[str, Any]:
    """Return a plan that changes the kubelets of these hosts and adopts their Nodes."""
    return {"nodes": {host: host for host in hosts}, "adopt": list(hosts), "hosts": {host: copy.deepcopy(STEP) for host in hosts},
            "edits": [{"host": host, "component": "kubelet"} for host in hosts], **parts}


def cluster(version: str = "v1.36.3", **verdicts: Any) -> dict[str, Any]:
    """Return a cluster of Nodes without a providerID. For each Node: its verdict in C(ccm nodes), or (address now, address after) if the verdict is ok."""
    matches, summaries = [], []
    for name, verdict in verdicts.items():
        name = name.replace("_", "-")
        moves = verdict if isinstance(verdict, tuple) else ("10.0.0.1", "10.0.0.1")
        ok = verdict == "ok" or isinstance(verdict, tuple)
        matches.append({"name": name, "verdict": "ok" if ok else verdict, "instance": "sim://" + name if ok else "", "primary": [moves[0]],
                        "primary_after": [moves[1]], "reason": "" if ok else "no instance named '{0}': rename it".format(name)})
        summaries.append(_nodes.summary({"metadata": {"name": name}}, "sim://"))
    return {"version": version, "compared": {"done": True, "reason": ""}, "nodes": _nodes.judged(summaries, matches)}


def outlook(made: dict[str, Any], answers: dict[str, Any], **options: Any) -> dict[str, Any]:
    result: dict[str, Any] = adoption_outlook(made, answers, CP, **options)
    return result


def test_every_node_is_named_with_its_instance() -> None:
    found = outlook(plan("cp-1", "w-1"), cluster(cp_1="ok", w_1="ok"), workers=1)
    assert found["lines"] == ["Node cp-1 will be adopted as sim://cp-1", "Node w-1 will be adopted as sim://w-1"]
    assert not found["stop"] and found["problems"] == [] and found["plan"]["adopt"] == found["adopted"] == ["cp-1", "w-1"]


def test_many_nodes_are_not_many_lines() -> None:
    names = ["w-{0}".format(number) for number in range(1, 31)]
    found = outlook(plan(*names), cluster(**{name.replace("-", "_"): "ok" for name in names}), workers=30)
    assert len(found["lines"]) == 13 and "18 more" in found["lines"][-1]


def test_a_worker_that_the_cloud_does_not_know_ends_the_run_before_its_restart() -> None:
    found = outlook(plan("cp-1", "w-1", "w-2"), cluster(cp_1="ok", w_1="ok", w_2="mismatched"), workers=2)
    assert found["stop"] and found["problems"] == ["w-2: its Node w-2 will not be adopted: no instance named 'w-2': rename it"]
    assert [line for line in found["lines"] if "w-2" in line] == []


@pytest.mark.parametrize(("limit", "stop"), [(0, True), (1, False), ("50%", False), ("49%", True)])
def test_the_existing_limit_decides_whether_it_is_left_out(limit: Any, stop: bool) -> None:
    found = outlook(plan("cp-1", "w-1", "w-2"), cluster(cp_1="ok", w_1="ok", w_2="mismatched"), workers=2, max_failed=limit)
    assert found["stop"] is stop
    left = found["plan"]
    assert left["hosts"]["w-2"] == {"control_plane": [], "kubelet": None} and left["hosts"]["w-1"] == STEP
    assert left["adopt"] == ["cp-1", "w-1"] and [edit["host"] for edit in left["edits"]] == ["cp-1", "w-1"]
    assert "no instance named 'w-2'" in left["left_out"]["w-2"]


def test_workers_that_were_left_out_before_count_as_well() -> None:
    made = plan("cp-1", "w-1", left_out={"w-9": "its facts cannot be planned"})
    told = cluster(cp_1="ok", w_1="mismatched")
    assert outlook(made, told, workers=3, max_failed=1)["stop"] and not outlook(made, told, workers=3, max_failed=2)["stop"]
    assert set(outlook(made, told, workers=3, max_failed=2)["plan"]["left_out"]) == {"w-1", "w-9"}


def test_a_control_plane_is_never_left_out() -> None:
    assert outlook(plan("cp-1", "w-1"), cluster(cp_1="mismatched", w_1="ok"), workers=1, max_failed="100%")["stop"]


def test_fifty_equal_problems_are_one_line() -> None:
    names = ["w-{0}".format(number) for number in range(1, 51)]
    found = outlook(plan(*names), cluster(**{name.replace("-", "_"): "mismatched" for name in names}), workers=50)
    assert len(found["problems"]) == 1 and "50" in found["problems"][0]


def test_a_host_that_the_run_does_not_change_is_no_problem() -> None:
    made = plan("cp-1", "w-1")
    made["hosts"]["w-1"]["kubelet"], made["adopt"] = None, ["cp-1"]
    assert outlook(made, cluster(cp_1="ok", w_1="mismatched"), workers=1)["problems"] == []


def test_a_node_of_another_provider_was_reported_by_the_plan() -> None:
    made = plan("cp-1", "w-1", adopt=["cp-1"])
    assert outlook(made, cluster(cp_1="ok", w_1="foreign"), workers=1)["problems"] == []
    assert outlook(plan("cp-1", "w-1"), cluster(cp_1="ok", w_1="foreign"), workers=1)["stop"]


def test_what_the_cloud_cannot_say_yet_stops_nothing() -> None:
    found = outlook(plan("cp-1", "w-1"), cluster(cp_1="ok", w_1="unknown"), workers=1)
    assert not found["stop"] and found["adopted"] == ["cp-1", "w-1"]
    assert found["lines"][-1] == "The cloud cannot say yet which instances these Nodes are: w-1"


def test_a_controller_that_cannot_be_asked_stops_nothing() -> None:
    told = dict(cluster(w_1="mismatched"), compared={"done": False, "reason": "the controller is not this collection's own runtime"})
    found = outlook(plan("cp-1", "w-1"), told, workers=1)
    assert not found["stop"] and found["adopted"] == ["cp-1", "w-1"] and "not this collection's own runtime" in found["lines"][0]


@pytest.mark.parametrize(("version", "ends"), [("v1.36.3", False), ("v1.37.2", True), ("v1.38.0", True)])
def test_nodes_whose_primary_address_changes_are_counted_and_named(version: str, ends: bool) -> None:
    """From 1.37 on, kube-proxy exits when the primary address changes (kubernetes/kubernetes#138183)."""
    moved = ("10.0.0.1", "192.168.0.1")
    found = outlook(plan("cp-1", "w-2", "w-1"), cluster(version, cp_1="ok", w_2=moved, w_1=moved), workers=2)
    (line,) = [line for line in found["lines"] if "primary address" in line]
    assert "of 2 Node(s) will change" in line and "w-1, w-2 (w-1: 10.0.0.1 becomes 192.168.0.1)" in line
    assert ("kube-proxy ends itself" in line) is ends and "--node-ip" in line


def test_a_kubelet_with_node_ip_keeps_its_address() -> None:
    """The kubelet writes the address of --node-ip to its Node only with an external cloud. Until then, it looks as if the cloud's first
    address would win."""
    moved = ("10.0.0.1", "192.168.0.1")
    found = outlook(plan("w-1", "w-2", node_ips=["w-1"]), cluster(w_1=moved, w_2=moved), workers=2)
    assert "of 1 Node(s) will change when the controller initialises them: w-2 (" in found["lines"][-1]


def test_preflight_warns_of_them_where_the_controller_runs_already(host_facts: Any, cluster_facts: Any) -> None:
    told = cluster_facts(("cp-1", "unmanaged"), ("w-1", "unmanaged"))
    for node in told["nodes"]:
        node.update(primary=["10.0.0.1"], primary_after=["192.168.0.1"])
    arguments = {"cp-1": "--v=2", "w-1": "--node-ip=10.0.0.1"}
    made = make_plan({name: host_facts(name, {FLAGS_ENV: 'KUBELET_KUBEADM_ARGS="{0}"\n'.format(text)}) for name, text in arguments.items()},
                     told, ["cp-1"])
    (line,) = [line for line in made["warnings"] if "primary address" in line]
    assert "of 1 Node(s) will change when the controller initialises them: cp-1 (cp-1: 10.0.0.1 becomes 192.168.0.1)" in line


@pytest.mark.parametrize(("text", "named"), [
    ('KUBELET_KUBEADM_ARGS="--node-ip=10.0.0.1"\n', True), ('KUBELET_KUBEADM_ARGS="--v=2"\n', False)])
def test_a_file_says_whether_a_kubelet_has_an_address_of_its_own(host_facts: Any, text: str, named: bool) -> None:
    facts = host_facts("w-1", {FLAGS_ENV: text})
    assert adoption.with_node_ip({"w-1": facts}) == (["w-1"] if named else [])


def test_what_is_no_plan_is_refused_in_words() -> None:
    with pytest.raises(AnsibleFilterError, match="needs a plan"):
        adoption_outlook({}, cluster(w_1="ok"), CP)
    with pytest.raises(AnsibleFilterError, match="ccm_install_max_failed_workers"):
        outlook(plan("cp-1", "w-1"), cluster(cp_1="ok", w_1="mismatched"), workers=1, max_failed="some")


# -- what is known before the rollout ----------------------------------------------------------------------------------


def preflight(host_facts: Any, answers: dict[str, Any], *workers: str, limit: Any = 0, flag: str = "") -> dict[str, Any]:
    """Return the plan of workers, for a cluster whose Nodes are as the module would report them."""
    text = 'KUBELET_KUBEADM_ARGS="--v=2{0}"\n'.format(flag)
    hosts = {name: host_facts(name, {FLAGS_ENV: text}, [flag.strip()] if flag else []) for name in workers}
    made: dict[str, Any] = migration_plan(hosts, answers, [], max_failed=limit)
    return made


def twins(cluster_facts: Any, done: bool = False, **verdicts: str) -> dict[str, Any]:
    """Return a cluster in which w-1 and w-2 have the same providerID."""
    told: dict[str, Any] = cluster_facts(kubeadm="")
    ids = {"w-1": "sim://north/1", "w-2": "sim://north/1", "w-3": "sim://north/3"}
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    nodes = [_nodes.summary({"metadata": {"name": name}, "spec": {"providerID": text}, "status": ready}, "sim://") for name, text in ids.items()]
    matches = [{"name": name.replace("_", "-"), "verdict": verdict, "reason": "its instance has gone"} for name, verdict in verdicts.items()]
    told["nodes"] += _nodes.judged(nodes, matches)
    told["compared"] = {"done": done, "reason": "" if done else "the controller does not run"}
    return told


def test_two_hosts_with_one_provider_id_are_a_problem_before_the_rollout(host_facts: Any, cluster_facts: Any) -> None:
    """The run once rolled the controller out first, and stopped only then."""
    made = preflight(host_facts, twins(cluster_facts), "w-1", "w-2", "w-3")
    assert not made["go"] and len(made["problems"]) == 2
    assert [problem.partition(" will not be adopted: ")[0] for problem in made["problems"]] == ["w-1: its Node w-1", "w-2: its Node w-2"]
    assert "has the same providerID sim://north/1" in made["problems"][0]
    assert not [text for text in made["warnings"] if "is not adopted" in text]


def test_a_node_without_a_host_leaves_open_which_one_is_wrong(host_facts: Any, cluster_facts: Any) -> None:
    made = preflight(host_facts, twins(cluster_facts), "w-1", "w-3")
    assert made["go"] and len([text for text in made["warnings"] if "is not adopted" in text]) == 2


def test_what_a_running_controller_knows_is_a_problem_before_the_rollout(host_facts: Any, cluster_facts: Any) -> None:
    made = preflight(host_facts, twins(cluster_facts, True, w_1="ok", w_2="ok", w_3="mismatched"), "w-1", "w-2", "w-3")
    assert made["problems"] == ["w-3: its Node w-3 will not be adopted: its instance has gone"]


def test_a_kubelet_that_is_not_restarted_is_no_problem(host_facts: Any, cluster_facts: Any) -> None:
    made = preflight(host_facts, twins(cluster_facts), "w-1", "w-2", flag=" --cloud-provider=external")
    assert made["go"] and len([text for text in made["warnings"] if "is not adopted" in text]) == 2


@pytest.mark.parametrize(("limit", "go"), [(1, False), (2, True), ("50%", False), ("100%", True)])
def test_workers_that_are_known_before_are_left_out_within_the_limit(host_facts: Any, cluster_facts: Any, limit: Any, go: bool) -> None:
    made = preflight(host_facts, twins(cluster_facts), "w-1", "w-2", "w-3", limit=limit)
    assert made["go"] is go and (made["problems"] == []) is go
    assert sorted(made.get("left_out", {})) == (["w-1", "w-2"] if go else [])
    assert {edit["host"] for edit in made["edits"]} == ({"w-3"} if go else {"w-1", "w-2", "w-3"})
    if go:
        assert made["hosts"]["w-1"] == {"control_plane": [], "kubelet": None}
        assert len([text for text in made["warnings"] if "ccm_install_max_failed_workers" in text]) == 2
