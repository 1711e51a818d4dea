# SPDX-License-Identifier: Apache-2.0
"""Compares the inventory with the cluster, one decision at a time. Hosts and Nodes have only what each decision reads."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from ansible_collections.outoftree.ccm.plugins.module_utils.plan import grouping, inventory

MANIFEST = "/etc/kubernetes/manifests/kube-apiserver.yaml"
IN_TREE = {"kube-controller-manager": {"flags": ["--cloud-provider=aws"]}}


def host(name: str, kubelet: str = "", service: str = "", server: bool = False, image: str = "", unit_files: tuple[str, ...] = (),
         components: dict[str, Any] | None = None, units: tuple[str, ...] = ()) -> dict[str, Any]:
    text = f"metadata: {{name: kube-apiserver}}\nspec: {{containers: [{{name: kube-apiserver, image: '{image}'}}]}}\n"
    files = {MANIFEST: {"exists": True, "content": base64.b64encode(text.encode()).decode(), "problem": ""}} if image else {}
    return {"node_name": name, "service": {"unit": service, "server": server} if service else {}, "units": dict.fromkeys(units),
            "kubelet": {"version": kubelet, "unit_files": list(unit_files), "static_pod_path": "/m"}, "manifests": list(files), "files": files,
            "components": components or {}}


def node(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "control_plane": False, "etcd_voter": None, "managed_by": "", "provider_id": "", "addresses": [], **more}


def check(hosts: dict[str, Any], nodes: list[dict[str, Any]], control_plane: tuple[str, ...] = (), version: str = "v1.36.3",
          **more: Any) -> tuple[list[str], list[str]]:
    plan: dict[str, Any] = {"problems": [], "warnings": []}
    inventory.check(plan, hosts, {"version": version, "nodes": nodes}, list(control_plane), **more)
    return plan["problems"], plan["warnings"]


def one(messages: list[str], *words: str) -> None:
    assert len(messages) == 1 and all(word in messages[0] for word in words), messages


@pytest.mark.parametrize(("selector", "words"), [
    pytest.param({"labels": {"role": "", "zone": "a"}, "nodes": 0}, ("no Node has the labels role= zone=a,", "NAME role= zone=a'"), id="no-node"),
    pytest.param({"labels": {"role": ""}, "nodes": 1}, (), id="one-node"),
    pytest.param({"labels": {}, "nodes": 0}, (), id="any-node"),
])
def test_a_controller_without_a_node_to_run_on_is_a_problem(selector: dict[str, Any], words: tuple[str, ...]) -> None:
    plan: dict[str, Any] = {"problems": [], "warnings": []}
    inventory.check(plan, {}, {"version": "v1.36.3", "nodes": [], "node_selector": selector}, [])
    assert len(plan["problems"]) == bool(words) and all(word in plan["problems"][0] for word in words), plan


@pytest.mark.parametrize(("version", "own", "managed"), [
    ("v1.33.5-eks-113cf36", node("a"), True), ("v1.33.5-gke.1", node("a"), True), ("v1.33.5", node("a", managed_by="AKS (label x)"), True),
    ("v1.33.5+k3s1", node("a"), False),
])
def test_a_managed_cluster_is_refused(version: str, own: dict[str, Any], managed: bool) -> None:
    problems, unused = check({"a": host("a")}, [own], version=version)
    assert bool(problems) is managed


def test_every_host_is_a_node_and_no_two_are_the_same() -> None:
    assert check({"a": host("a"), "b": host("b")}, [node("a"), node("b")]) == ([], [])
    one(check({"a": host("a"), "b": host("x")}, [node("a")])[0], "b: ", " x,", "ccm_install_node_name")
    one(check({"a": host("x")}, [])[0], "no Nodes")
    one(check({"a": host("n"), "b": host("n")}, [node("n")])[0], "a and b")
    assert check({"a": host(""), "b": host("")}, [])[0] == []


@pytest.mark.parametrize("ours", [{f"w-{n}": host(f"w-{n}") for n in range(120)}, {"a": host("a"), "b": host("b")}])
def test_a_cluster_with_none_of_the_hosts_is_one_problem(ours: dict[str, Any]) -> None:
    nodes = [node(f"n-{n}", control_plane=n < 3) for n in range(123)]
    problems, warnings = check(ours, nodes, ("w-0", "a"))
    one(problems, f"none of the {len(ours)} hosts' names is a Node of this cluster: wrong kubeconfig?", "123 Nodes, such as n-0...n-122",
        "ccm_install_node_name")
    assert warnings == [] and len(problems[0]) < 500


def test_no_problem_names_every_node_of_a_large_cluster() -> None:
    ours = {f"w-{n}": host(f"x-{n}") for n in range(119)}
    problems, unused = check({"w-here": host("n-here"), **ours}, [node(f"n{n}a{n}") for n in range(119)] + [node("n-here")])
    assert len(problems) == 119 and max(map(len, problems)) < 250 and "120 Nodes, such as" in problems[0]
    assert len(grouping.few(problems)) == 1


def test_a_node_without_a_host_is_warned_of_unless_its_host_is_known_and_left_out() -> None:
    problems, warnings = check({"a": host("a")}, [node("a"), node("b")])
    assert problems == [] and warnings == [warnings[0]] and " b " in warnings[0]
    assert check({"a": host("a")}, [node("a"), node("b")], unseen={"b": {"msg": "gone"}})[1] == []
    assert len(check({"a": host("a")}, [node("a"), node("b")], excluded_hosts=["b"])[1]) == 1, "the one about hosts that are left out"
    assert check({"a": host("a")}, [node("b")], away=["a"]) == ([], check({}, [node("b")])[1])


def test_a_host_that_could_not_be_looked_at_may_be_left_out_if_it_is_a_worker() -> None:
    gone = {"msg": "no route\n  to   host"}
    one(check({}, [], unseen={"w": gone})[0], "w: ", "no route to host", "--limit 'all:!w'")
    problems, unused = check({}, [], ("cp",), unseen={"cp": gone})
    one(problems, "cp: ")
    assert "--limit" not in problems[0]
    assert "None" not in check({}, [], unseen={"w": {}})[0][0]
    (long,) = check({}, [], unseen={"w": {"msg": "x" * 1000}})[0]
    assert long.count("x" * 300) == 1 and "x" * 301 not in long


@pytest.mark.parametrize(("version", "components", "refused"), [
    ("v1.30.4", IN_TREE, True),
    ("v1.31.0", IN_TREE, False),
    ("unknown", IN_TREE, False),
    ("v1.30.4", {"kube-controller-manager": {"flags": ["--cloud-provider="]}}, False),
    ("v1.30.4", {"kube-controller-manager": {"flags": ["--v=2"]}}, False),
    ("v1.30.4", {}, False),
])
def test_a_control_plane_that_may_run_the_same_loops_is_not_left_out(version: str, components: dict[str, Any], refused: bool) -> None:
    hosts = {"cp-1": host("cp-1", components=components)}
    nodes = [node("cp-1"), node("cp-2"), node("w")]
    problems, unused = check(hosts, nodes, ("cp-1", "cp-2"), version, excluded_hosts=["w", "cp-2"])
    assert bool(problems) is refused
    assert not refused or ("cp-2" in problems[0] and " w" not in problems[0].split(".")[0])
    assert check(hosts, nodes, ("cp-1",), version, excluded_hosts=["w"])[0] == []


def test_servers_are_in_the_group_and_agents_are_not() -> None:
    nodes = [node("a", control_plane=True)]
    assert check({"a": host("a", service="k3s.service", server=True)}, nodes, ("a",))[0] == []
    one(check({"a": host("a", service="k3s-agent.service")}, [node("a")], ("a",))[0], "k3s-agent.service", "kube_node")
    assert check({"a": host("a", service="k3s-agent.service")}, [node("a")])[0] == []
    behind = {"b": host("b", service="k3s-agent.service")}
    one(check(behind, [node("b")], ("left-out", "b"), excluded_hosts=["left-out"])[0], "b: ")
    assert any("k3s.service" in text and "kube_control_plane" in text for text in check({"a": host("a", service="k3s.service", server=True)}, nodes)[0])


@pytest.mark.parametrize(("facts", "refused"), [
    (host("a", unit_files=("/u",)), True),
    (host("a"), False),
    (host("a", unit_files=("/u",), units=("kube-apiserver",)), False),
    (host("a", unit_files=("/u",), image="kube-apiserver:v1.36.3"), False),
])
def test_a_control_plane_has_manifests_or_units(facts: dict[str, Any], refused: bool) -> None:
    problems, unused = check({"a": facts}, [node("a", control_plane=True)], ("a",))
    assert bool(problems) is refused and (not refused or "/m" in problems[0])
    assert check({"a": facts}, [node("a")])[0] == []


def test_each_control_plane_of_the_cluster_is_a_host_of_the_group() -> None:
    nodes = [node("a", control_plane=True), node("b", control_plane=True)]
    one(check({"a": host("a"), "b": host("b")}, nodes, ("a",))[0], "Node b")
    assert check({"a": host("a"), "b": host("b")}, nodes, ("a", "b"))[0] == []
    one(check({"a": host("a")}, nodes, ("a", "cp-2"), unseen={"cp-2": {"msg": "gone"}})[0], "cp-2: ")  # it may be Node b
    one(check({"a": host("a"), "b": host("b")}, nodes, ("a",), unseen={"w": {"msg": "x"}})[0][1:], "Node b")


@pytest.mark.parametrize(("voter", "refused"), [(None, False), (True, False), (False, True)])
def test_every_member_of_etcd_votes(voter: bool | None, refused: bool) -> None:
    assert bool(check({"a": host("a")}, [node("a", etcd_voter=voter)])[0]) is refused


@pytest.mark.parametrize(("kubelet", "version", "words"), [
    ("v1.36.0", "v1.36.3", ""), ("v1.33.0", "v1.36.3", ""), ("v1.32.9", "v1.36.3", "API server"), ("v1.36.0", "v1.35.4", "API server"),
    ("v1.28.0", "v1.30.0", "1.29"), ("v1.38.0", "v1.38.0", "1.29"), ("", "v1.36.3", ""), ("v1.36.0", "unknown", ""),
    ("v1.29.0", "v1.29.0", ""),
])
def test_the_version_of_a_kubelet(kubelet: str, version: str, words: str) -> None:
    problems, unused = check({"a": host("a", kubelet)}, [node("a")], version=version)
    assert len(problems) == bool(words) and words in "".join(problems)


def test_control_planes_have_one_version() -> None:
    hosts = {name: host(name, image=f"r/kube-apiserver:{tag}") for name, tag in (("a", "v1.36.3"), ("b", "v1.36.1"), ("c", "v1.35.0"))}
    nodes = [node(name, control_plane=True) for name in hosts]
    one(check(hosts, nodes, ("a", "b", "c"))[0], "1.35 on c", "1.36 on a and b")
    assert check({**hosts, "c": hosts["b"] | {"node_name": "c"}}, nodes, ("a", "b", "c"))[0] == []


@pytest.mark.parametrize(("running", "image", "expected"), [
    ("v1.35.0", "", {"kube-apiserver": (1, 35)}), ("v1.35.0", "r/kube-apiserver:v1.36.3", {"kube-apiserver": (1, 36)}),
    ("", "r/kube-apiserver:v1.36.3", {"kube-apiserver": (1, 36)}), ("", "r/kube-apiserver:latest", {}), ("", "", {}),
])
def test_the_version_of_a_component_is_that_of_its_image(running: str, image: str, expected: dict[str, Any]) -> None:
    assert inventory.component_versions(host("a", image=image, components={"kube-apiserver": {"version": running}})) == expected


def test_a_manifest_that_is_no_yaml_says_nothing_and_keeps_no_other_from_it() -> None:
    facts = host("a", image="r/kube-apiserver:v1.36.3")
    facts["files"]["/m/bad.yaml"] = {"exists": True, "content": base64.b64encode(b"a: [").decode(), "problem": ""}
    facts["manifests"].insert(0, "/m/bad.yaml")
    assert inventory.component_versions(facts) == {"kube-apiserver": (1, 36)}


def test_the_version_that_a_node_reports_counts() -> None:
    hosts = {"a": host("a", "v1.30.0"), "b": host("b", "v1.30.0"), "c": host("c", "v1.30.0")}
    cluster = {"nodes": [node("a", kubelet_version="v1.36.3"), node("b", kubelet_version="")]}
    found = inventory.with_versions(hosts, cluster)
    assert [found[name]["kubelet"]["version"] for name in "abc"] == ["v1.36.3", "v1.30.0", "v1.30.0"]
    assert hosts["a"]["kubelet"]["version"] == "v1.30.0"


@pytest.mark.parametrize(("adopt", "reregister", "control_plane", "names", "refused"), [
    (["n"], [], [], {}, True), ([], ["h"], [], {}, True), ([], [], [], {}, False), (["n"], [], ["h"], {}, False),
    (["n"], [], [], {"h": ["10.0.0.1"]}, False), (["n"], [], [], {"h": ["10.0.0.2"]}, True),
])
def test_a_worker_proves_whose_node_it_is(adopt: Any, reregister: Any, control_plane: Any, names: Any, refused: bool) -> None:
    plan: dict[str, Any] = {"nodes": {"proven": "proven", "h": "n", "second": "second"}, "adopt": ["proven", *adopt], "reregister": reregister, "problems": []}
    cluster = {"nodes": [node("n", addresses=[{"type": "InternalIP", "address": "10.0.0.1"}])]}
    inventory.check_claims(plan, cluster, control_plane, names)
    assert [text.partition(":")[0] for text in plan["problems"]] == ["h"] * refused
