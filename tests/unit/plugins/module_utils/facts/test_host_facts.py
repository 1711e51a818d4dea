# SPDX-License-Identifier: Apache-2.0
"""What a host returns is checked before it is used, and affects only that host's own plan."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from ansible_collections.outoftree.ccm.plugins.module_utils.facts import host_facts as _host_facts
from ansible_collections.outoftree.ccm.plugins.module_utils.plan.leader_migration import make_leader_migration_plan
from ansible_collections.outoftree.ccm.plugins.module_utils.plan.plan import make_plan
from ansible_collections.outoftree.ccm.plugins.module_utils.plan.shapes import Choices
from ansible_collections.outoftree.ccm.plugins.module_utils.plan.verify import verify

pytestmark = pytest.mark.threat("worker-cannot-change-others")
FLAGS_ENV = "/var/lib/kubelet/kubeadm-flags.env"
HEALTH = {"reasons": [], "unjudged": [], "daemonset": {"ready": 1, "desired": 1}, "lease": {"holder": "x"}}


@pytest.fixture
def hosts(host_facts: Any) -> dict[str, Any]:
    """Return two workers that are to be migrated."""
    return {name: host_facts(name, {FLAGS_ENV: 'KUBELET_KUBEADM_ARGS="--node-ip=10.0.0.1"\n'}) for name in ("w-1", "w-2")}


def nested(depth: int) -> Any:
    return [nested(depth - 1)] if depth else []


LIES: dict[str, Any] = {
    "no text for a name": lambda f: f.update(node_name=["w-2"]),
    "no Node's name": lambda f: f.update(node_name="../pods"),
    "a name with a template": lambda f: f.update(node_name="{{ lookup('env', 'HOME') }}"),
    "a name with a newline": lambda f: f.update(node_name="w-1\n"),
    "no list of files": lambda f: f.update(manifests="/etc"),
    "a manifest that is not there": lambda f: f["manifests"].append("/etc/kubernetes/manifests/x.yaml"),
    "a unit file that is not there": lambda f: f["kubelet"]["unit_files"].append("/x"),
    "content that is no text": lambda f: f["files"][FLAGS_ENV].update(content=7),
    "content that is no base64": lambda f: f["files"][FLAGS_ENV].update(content="a"),
    "a path with an escape sequence": lambda f: f["files"].update({"/x\x1b[2J": f["files"][FLAGS_ENV]}),
    "half a kubelet": lambda f: f["kubelet"].pop("flags"),
    "half a service": lambda f: f.update(service={"server": True}),
    "a service of no kind": lambda f: f.update(service={
        "name": "x", "unit": "x", "server": True, "arguments": [], "config_files": [], "data_directory": "", "stale": False}),
    "a number for a truth": lambda f: f["components"].update(x={"pid": True, "flags": [], "version": ""}),
    "too much": lambda f: f["problems"].extend(["x" * 1000] * 20000),
    "too deep": lambda f: f.update(extra=nested(50)),
    "nothing": lambda f: f.update(problems=None),
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES.keys())
def test_a_host_that_returns_something_else_is_refused_by_name_and_alone(lie: Any, hosts: Any, cluster_facts: Any) -> None:
    cluster = cluster_facts(("w-1", "unmanaged"), ("w-2", "unmanaged"))
    honest = make_plan(copy.deepcopy(hosts), cluster, [])
    lie(hosts["w-1"])
    plan = make_plan(hosts, cluster, [])
    assert [problem for problem in plan["problems"] if problem.startswith("w-1: could not be inspected: it returned an invalid result")], plan["problems"]
    assert "w-1" not in plan["hosts"] and plan["adopt"] == ["w-2"]
    assert plan["hosts"]["w-2"] == honest["hosts"]["w-2"]
    assert [edit for edit in plan["edits"] if "w-2" in edit["host"]] == [edit for edit in honest["edits"] if "w-2" in edit["host"]]
    assert "w-1" in verify(hosts, cluster, HEALTH, [])["failures"][0]
    old = dict(cluster, version="v1.30.4")
    assert any(problem.startswith("w-1: ") for problem in make_leader_migration_plan(hosts, old, [], "lease")["problems"])


def test_honest_hosts_of_every_layout_are_believed(tree_facts: Any, hosts: Any) -> None:
    trees = ("systemd/control-plane", "systemd/worker", "kubespray/worker", "k3s/server", "k3s/agent", "rke2/server", "rke2/agent")
    assert [_host_facts.refusal(tree_facts(tree)) for tree in trees] == [""] * len(trees)
    without_root = dict(node_name="", layout="unknown", kubelet={}, service={}, units={}, components={}, manifests=[], patches=[], files={},
                        journal={}, admin_conf="", api_server="", notices=[], problems=["root is needed"])
    assert _host_facts.refusal(hosts["w-1"]) == "" and _host_facts.refusal(without_root) == ""


@pytest.mark.parametrize(("name", "good"), [
    ("w-1", True), ("ip-10-0-0-1.eu-west-1.compute.internal", True), ("1", True), ("a" * 63 + ".b", True), ("a" * 64, False), ("", False),
    ("W-1", False), ("-w", False), ("w-", False), ("w..x", False), ("w/x", False), ("w?x", False), ("w\n", False),
    ("a." * 126 + "a", True), ("a." * 126 + "aa", False)])
def test_names_of_nodes(name: str, good: bool) -> None:
    assert _host_facts.is_node_name(name) is good


@pytest.mark.parametrize(("facts", "reason"), [
    pytest.param(["x" * 993], "it returned more than 0 MiB", id="too-many-characters-with-their-list"),
    pytest.param("x" * 1001, "it returned more than 0 MiB", id="too-many-characters"),
    pytest.param([0] * 125, "it returned more than 0 MiB", id="too-many-things"),
    pytest.param("x" * 1000, "the result is not a dictionary with printable keys", id="as-much-as-may-be"),
    pytest.param([0] * 124, "the result is not a dictionary with printable keys", id="as-many-things-as-may-be"),
    pytest.param(nested(20), "the result is not a dictionary with printable keys", id="as-deep-as-may-be"),
    pytest.param(nested(21), "it returned more than 0 MiB", id="too-deep"),
])
def test_where_the_limits_are(facts: Any, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A value that is not text counts as 8 characters."""
    monkeypatch.setattr(_host_facts, "LIMIT", 1000)
    assert _host_facts.refusal(facts) == reason


def test_the_limit_is_told_in_mib() -> None:
    assert _host_facts.refusal("x" * (_host_facts.LIMIT + 1)) == "it returned more than 16 MiB"


LONG = "n" * 500


@pytest.mark.parametrize(("change", "reason"), [
    (lambda f: f.update(node_name="/" + LONG), "'/" + "n" * 99 + "' is not a valid Node name"),
    (lambda f: f["manifests"].append("/" + LONG), "the file '/" + "n" * 199 + "' is missing"),
    (lambda f: f["files"].update({"/" + LONG: dict(f["files"][FLAGS_ENV], content="a")}), "the content of '/" + "n" * 199 + "' is not base64"),
    (lambda f: f["journal"].update({"/" + LONG: {"component": "kubelet", "state": ""}}), "the file '/" + "n" * 199 + "' of the journal is missing"),
    (lambda f: f["journal"].update({FLAGS_ENV: {"component": "kubelet", "state": ""}, "configmap:x": {"component": "kubeadm-config", "state": ""}}), ""),
])
def test_a_reason_names_the_first_thing_and_not_too_much_of_it(change: Any, reason: str, hosts: Any) -> None:
    change(hosts["w-1"])
    assert _host_facts.refusal(hosts["w-1"]) == reason


def test_each_host_is_judged_alone(hosts: Any) -> None:
    found = _host_facts.sorted_out({"down": {"msg": "no route"}, "odd": "text", "list": ["node_name"], "w-1": hosts["w-1"]})
    assert (found["down"], found["odd"], found["list"]) == ({"msg": "no route"}, {"msg": "it returned nothing"}, {"msg": "it returned nothing"})
    assert found["w-1"]["node_name"] == "w-1"


# -- which Node a host is ------------------------------------------------------------------------------------------------


def victim(cluster_facts: Any) -> dict[str, Any]:
    """Return a cluster with a Node that is not in the inventory."""
    cluster: dict[str, Any] = cluster_facts(("w-1", "initialized"), ("w-2", "initialized"), ("victim", "unmanaged"))
    cluster["nodes"][2]["addresses"] = [{"type": "InternalIP", "address": "10.0.0.9"}, {"type": "Hostname", "address": "victim.example"}]
    return cluster


def test_a_worker_cannot_have_another_hosts_node_tainted(hosts: Any, cluster_facts: Any) -> None:
    hosts["w-1"]["node_name"] = "victim"
    plan = make_plan(hosts, victim(cluster_facts), [])
    (problem,) = [text for text in plan["problems"] if "victim" in text]
    assert problem.startswith("w-1: the host claims to be the Node victim") and "ccm_install_node_name" in problem and not plan["go"]


def test_a_worker_cannot_have_another_hosts_node_drained_and_deleted(tree_facts: Any, cluster_facts: Any) -> None:
    facts = tree_facts("k3s/agent", name="victim")
    cluster = victim(cluster_facts)
    cluster["nodes"][2]["provider_id"] = "k3s://victim"
    plan = make_plan({"w-1": facts}, cluster, [], choices=Choices(reregister=True))
    assert plan["reregister"] == ["w-1"] and not plan["go"] and "w-1: the host claims to be the Node victim" in "\n".join(plan["problems"])
    assert make_plan({"victim": facts}, cluster, [], choices=Choices(reregister=True))["go"]


@pytest.mark.parametrize(("known", "good"), [
    (["w-1", "10.0.0.9", ""], True), (["w-1", "", "victim"], True), (["w-1", "VICTIM.example", ""], True), (["victim.example.org", "", ""], True),
    (["w-1", "10.0.0.8", ""], False), (["w-1", "", ""], False), (["victim-2", "10.0.0.90", ""], False)])
def test_the_inventorys_word_is_enough(known: list[str], good: bool, hosts: Any, cluster_facts: Any) -> None:
    hosts["w-1"]["node_name"] = "victim"
    plan = make_plan(hosts, victim(cluster_facts), [], names={"w-1": known})
    assert plan["go"] is good and plan["adopt"] == ["victim"]


def test_two_hosts_of_one_node_are_named(hosts: Any, cluster_facts: Any) -> None:
    hosts["w-1"]["node_name"] = "w-2"
    plan = make_plan(hosts, cluster_facts(("w-1", "unmanaged"), ("w-2", "unmanaged")), [])
    assert any("w-1 and w-2 are the same Node w-2" in problem for problem in plan["problems"])


def test_what_hosts_say_is_shown_without_what_steers_a_terminal(hosts: Any, cluster_facts: Any) -> None:
    hosts["w-1"].update(problems=["\x1b]0;owned\x07 all is well"], notices=["process 1 calls itself kubelet\x1b[2J"])
    text = "\n".join(make_plan(hosts, cluster_facts(("w-1", "initialized"), ("w-2", "initialized")), [])["table"])
    assert "\x1b" not in text and "\x07" not in text and "all is well" in text
    assert "NOTE: w-1: process 1 calls itself kubelet" in text


def test_the_nodes_word_on_its_kubelets_version_counts(hosts: Any, cluster_facts: Any) -> None:
    cluster = cluster_facts(("w-1", "initialized"), ("w-2", "initialized"))
    hosts["w-1"]["kubelet"]["version"] = "v1.99.9"
    assert any("v1.99.9" in problem for problem in make_plan(hosts, cluster, [])["problems"])
    cluster["nodes"][0]["kubelet_version"] = "v1.36.3"
    assert not any("v1.99.9" in problem for problem in make_plan(hosts, cluster, [])["problems"])
