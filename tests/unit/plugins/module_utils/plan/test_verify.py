# SPDX-License-Identifier: Apache-2.0
"""Each check of verify alone, with what makes it fail, and the table of Nodes."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.outoftree.ccm.plugins.module_utils.plan import verify as plans
from ansible_collections.outoftree.ccm.plugins.module_utils.plan.verify import RISKS, nodes_table, verify

FLAGS_ENV = "/var/lib/kubelet/kubeadm-flags.env"
HEALTH = {"reasons": [], "daemonset": {"ready": 1, "desired": 2}, "lease": {"holder": "cp-1_x"}, "unjudged": []}
NAMES = ["hosts", "flags", "kubelets", "kubeadm-config", "nodes", "runtime", "services"]


def checks(detected: dict[str, Any], cluster: dict[str, Any], health: dict[str, Any] | None = None) -> dict[str, tuple[bool, str]]:
    found = verify(detected, cluster, health or HEALTH, [])
    assert found["ok"] is all(check["ok"] for check in found["checks"]) and found["ok"] is not bool(found["failures"])
    assert [line.split()[0] == "ok" for line in found["lines"]] == [check["ok"] for check in found["checks"]]
    assert found["risk"] == "; ".join(RISKS[check["name"]] for check in found["checks"] if not check["ok"])
    assert len({line.index(check["detail"]) for line, check in zip(found["lines"], found["checks"])}) == 1, "columns"
    return {check["name"]: (check["ok"], check["detail"]) for check in found["checks"]}


@pytest.fixture
def worker(host_facts: Any) -> Any:
    def build(name: str, *running: str, file: str = "--cloud-provider=external") -> dict[str, Any]:
        found: dict[str, Any] = host_facts(name, {FLAGS_ENV: f'KUBELET_KUBEADM_ARGS="{file}"\n'}, list(running))
        return found

    return build


def test_a_cluster_that_is_done_passes_every_check(worker: Any, cluster_facts: Any) -> None:
    found = checks({"w-1": worker("w-1", "--cloud-provider=external")}, cluster_facts(("w-1", "initialized"), kubeadm=""))
    assert list(found) == NAMES and all(ok for ok, unused in found.values())
    assert found["runtime"][1].startswith("1 of 2 ") and "cp-1_x" in found["runtime"][1] and found["nodes"][1].startswith("1 ")


@pytest.mark.parametrize(("running", "ok"), [
    (["--cloud-provider=external"], True), (["--cloud-provider=external", "--cloud-config=/c"], False), (["--cloud-provider=aws"], False),
    (["--v=2"], False),
])
def test_a_running_kubelet_has_the_flag_and_no_other_about_clouds(worker: Any, cluster_facts: Any, running: list[str], ok: bool) -> None:
    found = checks({"w-1": worker("w-1", *running)}, cluster_facts(("w-1", "initialized"), kubeadm=""))["kubelets"]
    assert found[0] is ok and (ok or found[1].startswith("w-1: "))
    assert ok or all(flag in found[1] for flag in running if flag.startswith("--cloud-"))


def test_a_flag_in_a_file_fails_and_names_the_file(worker: Any, cluster_facts: Any) -> None:
    found = checks({"w-1": worker("w-1", "--cloud-provider=aws", file="--cloud-provider=aws")}, cluster_facts(("w-1", "initialized"), kubeadm=""))
    assert not found["flags"][0] and FLAGS_ENV in found["flags"][1] and found["kubeadm-config"][0]


def test_many_workers_with_one_failure_are_one_line(worker: Any, cluster_facts: Any) -> None:
    names = [f"w-{n}" for n in range(120)]
    detected = {name: worker(name, "--cloud-provider=aws", file="--cloud-provider=aws") for name in names}
    found = verify(detected, cluster_facts(*((name, "unmanaged") for name in names)), HEALTH, [])
    assert len(found["message"]) <= 20 and len("".join(found["message"])) < 4000
    assert any("120 hosts: w-0...w-119: runs with" in line for line in found["message"])
    assert any("120 hosts: w-0...w-119: " + FLAGS_ENV in line for line in found["message"])
    assert any("120 Nodes: w-0...w-119: unmanaged, because" in line for line in found["message"])
    assert len("".join(found["lines"])) < 6000


def test_what_only_concerns_nodes_is_no_flag(worker: Any, cluster_facts: Any) -> None:
    found = checks({"w-1": worker("w-1", "--cloud-provider=external")}, cluster_facts(("w-1", "unmanaged"), kubeadm=""))
    assert found["flags"][0] and not found["nodes"][0]


def test_a_host_that_cannot_be_judged_fails(cluster_facts: Any) -> None:
    found = checks({"w-1": {"unreachable": True, "msg": "no route"}}, cluster_facts(("w-1", "initialized"), kubeadm=""))
    assert not found["hosts"][0] and "no route" in found["hosts"][1]


@pytest.mark.parametrize(("kubeadm", "ok", "word"), [
    ("", True, "no kubeadm"), ("apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\n", True, "agrees"),
    ("apiServer: {}\nkind: ClusterConfiguration\n", True, "agrees"),
])
def test_the_configuration_of_kubeadm(cluster_facts: Any, kubeadm: str, ok: bool, word: str) -> None:
    found = checks({}, cluster_facts(("w-1", "initialized"), kubeadm=kubeadm))["kubeadm-config"]
    assert found[0] is ok and word in found[1]


def test_every_node_has_an_ip_address(cluster_facts: Any) -> None:
    cluster = cluster_facts(("w-1", "initialized"), ("w-2", "initialized"), kubeadm="")
    cluster["nodes"][1]["addresses"] = [{"type": "Hostname", "address": "w-2"}]
    ok, detail = checks({}, cluster)["nodes"]
    assert not ok and "w-2" in detail and "w-1" not in detail
    cluster["nodes"][1]["addresses"].append({"type": "ExternalIP", "address": "192.0.2.1"})
    assert checks({}, cluster)["nodes"][0]


@pytest.mark.parametrize(("kind", "known", "words"), [
    ("unmanaged", False, "kube_node"), ("unmanaged", True, "site.yml"), ("uninitialized", False, "w-1: uninitialized"),
])
def test_a_node_that_is_not_done_has_its_way_out(worker: Any, cluster_facts: Any, kind: str, known: bool, words: str) -> None:
    detected = {"w-1": worker("w-1", "--cloud-provider=external")} if known else {}
    ok, detail = checks(detected, cluster_facts(("w-1", kind), kubeadm=""))["nodes"]
    assert not ok and words in detail
    assert ("kube_node" in detail) is (kind == "unmanaged" and not known) and ("site.yml" in detail) is (kind == "unmanaged")


@pytest.mark.parametrize("done", [True, False])
def test_whether_nodes_were_compared_with_the_cloud_is_said(cluster_facts: Any, done: bool) -> None:
    cluster = dict(cluster_facts(("w-1", "initialized"), kubeadm=""), compared={"done": done, "reason": "no answer"})
    assert ("no answer" in checks({}, cluster)["nodes"][1]) is not done


def test_a_kubelet_that_does_not_run_is_one_problem(worker: Any, cluster_facts: Any) -> None:
    stopped = worker("w-1")
    stopped["problems"] = ["the kubelet does not run. See 'systemctl status kubelet' on this host"]
    found = checks({"w-1": stopped}, cluster_facts(("w-1", "initialized"), kubeadm=""))
    assert [name for name, (ok, unused) in found.items() if not ok] == ["hosts"] and "does not run" in found["hosts"][1]


def test_a_process_that_must_only_restart_says_why(worker: Any, cluster_facts: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    edit = {"host": "w-1", "component": "kubelet", "file": "(the running process)", "flag": "--cloud-provider", "now": None,
            "then": "--cloud-provider=external", "why": "it was not restarted", "risk": ""}
    monkeypatch.setattr(plans, "make_plan", lambda *unused, **also: {"problems": [], "edits": [edit], "nodes": {}})
    detected = {"w-1": worker("w-1", "--cloud-provider=external")}
    assert checks(detected, cluster_facts(("w-1", "initialized"), kubeadm=""))["flags"] == (False, "w-1: kubelet: it was not restarted")


def test_a_node_that_is_kept_although_it_is_not_ready_is_named_once_for_all(cluster_facts: Any) -> None:
    """An Event about a Node that is Ready again, or that is no longer there, says nothing."""
    cluster = cluster_facts(*((f"w-{number}", "initialized") for number in range(1, 5)), kubeadm="")
    for number, node in enumerate(cluster["nodes"], 1):
        node.update(uid=f"uid-{number}", ready=number == 4)
    why = {f"uid-{number}": "the cloud does not answer" for number in (1, 2, 4, 9)}
    ok, detail = checks({}, cluster, {**HEALTH, "held": why})["deletions"]
    assert (ok, detail) == (False, "2 Nodes: w-1, w-2: the controller keeps it: the cloud does not answer")
    assert "deletions" not in checks({}, cluster, {**HEALTH, "held": {"uid-4": "over", "uid-9": "gone"}})


@pytest.mark.parametrize(("health", "ok", "word"), [
    ({"reasons": ["odd"]}, False, "odd"), ({"unjudged": ["whether it is odd"]}, True, "whether it is odd"),
])
def test_the_verdict_on_the_runtime(cluster_facts: Any, health: dict[str, Any], ok: bool, word: str) -> None:
    found = checks({}, cluster_facts(("w-1", "initialized"), kubeadm=""), {**HEALTH, **health})["runtime"]
    assert found[0] is ok and word in found[1]


@pytest.mark.parametrize(("controller", "name"), [("", "the controller"), ("acme-ccm", "acme-ccm")])
def test_what_was_not_checked_names_the_vendors_controller(cluster_facts: Any, controller: str, name: str) -> None:
    health = {**HEALTH, "unjudged": ["whether it is odd"]}
    found = verify({}, cluster_facts(("w-1", "initialized"), kubeadm=""), health, [], controller=controller)
    assert any(f"; not checked, because {name} does not report it: whether it is odd" in line for line in found["lines"])


def service(name: str, ingress: bool, ours: bool = True) -> dict[str, Any]:
    return {"namespace": "shop", "name": name, "ingress": ["192.0.2.1"] if ingress else [], "class": "any/class", "ours": ours}


@pytest.mark.parametrize(("services", "ok"), [
    ([], True), ([service("a", True)], True), ([service("a", False, ours=False)], True), ([service("a", True), service("b", False)], False),
])
def test_every_service_of_ours_has_an_address(cluster_facts: Any, services: list[dict[str, Any]], ok: bool) -> None:
    found = checks({}, dict(cluster_facts(("w-1", "initialized"), kubeadm=""), services=services))["services"]
    assert found[0] is ok and (ok or ("shop/b" in found[1] and "shop/a" not in found[1]))


def test_services_of_other_controllers_are_not_counted_as_served(cluster_facts: Any) -> None:
    cluster = dict(cluster_facts(("w-1", "initialized"), kubeadm=""), services=[service("a", True), service("b", False, ours=False)])
    text = "1 Service(s) of type LoadBalancer have addresses, 1 belong(s) to other controllers by their class"
    assert checks({}, cluster)["services"] == (True, text)


def test_the_table_of_nodes(cluster_facts: Any) -> None:
    full, bare = cluster_facts(("w-1", "initialized"), ("a-node-with-a-long-name", "unmanaged"))["nodes"]
    full["addresses"] = [{"type": "InternalIP", "address": "10.0.0.1"}, {"type": "Hostname", "address": "odd"}, {"type": "ExternalIP", "address": "192.0.2.1"}]
    bare.update(provider_id="", addresses=[], zone="", region="", instance_type="")
    lines = nodes_table([full, bare])
    assert max(map(len, lines)) <= 72 and len(lines) == 6
    head, first, second = [" ".join(lines[number:number + 2]) for number in (0, 2, 4)]
    assert first.split() == ["w-1", "initialized", full["provider_id"], "10.0.0.1,192.0.2.1", full["zone"], full["region"], full["instance_type"]]
    assert second.split() == ["a-node-with-a-long-name", "unmanaged", "-", "-", "-", "-", "-"]
    assert head.index("CLASS") == first.index("initialized") == second.index("unmanaged") == len("a-node-with-a-long-name") + 2
    assert lines[1].index("TYPE") == lines[3].index(full["instance_type"]) and lines[1].startswith("  ZONE ")


def test_the_leader_is_named_without_the_uuid_of_its_process(cluster_facts: Any) -> None:
    lease = {"lease": {"holder": "cp-1_0a39cf62-4a93-43b1-87d7-52f9ec2f1834"}}
    assert checks({}, cluster_facts(("w-1", "initialized"), kubeadm=""), health=dict(HEALTH, **lease))["runtime"] == (True, "1 of 2 Pods Ready, led by cp-1")


def test_a_table_of_nodes_that_fits_has_one_line_for_each(cluster_facts: Any) -> None:
    (node,) = cluster_facts(("w-1", "initialized"))["nodes"]
    node.update(zone="", region="", instance_type="")
    assert [line.split() for line in nodes_table([node])] == [
        ["NODE", "CLASS", "PROVIDER", "ID", "ADDRESSES"], ["w-1", "initialized", node["provider_id"], node["addresses"][0]["address"]]]
