# SPDX-License-Identifier: Apache-2.0
"""A component that fails the gate's probe before the change is a problem of preflight, because its change would be reverted."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.outoftree.ccm.plugins.module_utils.plan.plan import make_plan

MANIFESTS = "/etc/kubernetes/manifests/"
FLAGS_ENV = "/var/lib/kubelet/kubeadm-flags.env"
KCM = ["--cloud-config=/etc/kubernetes/cloud.conf", "--cloud-provider="]


@pytest.fixture
def control_plane(fixture_text: Any, host_facts: Any) -> dict[str, Any]:
    manifests = {f"{MANIFESTS}{name}.yaml": fixture_text(f"kubeadm-1.36/{name}.yaml") for name in ("kube-apiserver", "kube-controller-manager")}
    found: dict[str, Any] = host_facts("cp-1", {**manifests, FLAGS_ENV: 'KUBELET_KUBEADM_ARGS="--node-ip=10.0.0.1"\n'}, components={
        "kube-apiserver": ["--enable-admission-plugins=NodeRestriction"], "kube-controller-manager": KCM})
    return found


def plan_of(facts: dict[str, Any], cluster_facts: Any, group: tuple[str, ...] = ("cp-1",), **node: Any) -> dict[str, Any]:
    cluster = cluster_facts((facts["node_name"], "initialized"))
    cluster["nodes"][0].update(node)
    return make_plan({facts["node_name"]: facts}, cluster, list(group))


@pytest.mark.parametrize("component", ["kube-controller-manager", "kubelet"])
def test_what_is_ill_before_its_change_is_not_changed(control_plane: Any, cluster_facts: Any, component: str) -> None:
    place = control_plane["kubelet"] if component == "kubelet" else control_plane["components"][component]
    place["health"] = "/healthz on port 10257: refused"
    plan = plan_of(control_plane, cluster_facts)
    (problem,) = plan["problems"]
    for word in ("cp-1: ", component, "/healthz on port 10257: refused", "undo the change", "run again"):
        assert word in problem, (word, problem)


def test_what_is_ill_and_stays_as_it_is_is_a_warning(control_plane: Any, cluster_facts: Any) -> None:
    control_plane["components"]["kube-apiserver"]["health"] = "/readyz says 500"
    plan = plan_of(control_plane, cluster_facts)
    assert plan["go"] and any("cp-1: kube-apiserver is not healthy: /readyz says 500" in text for text in plan["warnings"])


def test_what_a_run_of_ours_left_starting_is_waited_for(control_plane: Any, cluster_facts: Any, fixture_text: Any) -> None:
    path = MANIFESTS + "kube-controller-manager.yaml"
    first = plan_of(control_plane, cluster_facts)["hosts"]["cp-1"]["control_plane"][0]
    control_plane["files"][path].update(content=first["files"][0]["content"], changed=0.5)
    control_plane["journal"] = {path: {"component": "kube-controller-manager", "state": "written"}}
    control_plane["components"]["kube-controller-manager"]["health"] = "refused"
    plan = plan_of(control_plane, cluster_facts)
    assert plan["go"] and plan["hosts"]["cp-1"]["control_plane"][0]["files"] == []


def test_a_node_that_is_not_ready_would_fail_the_gate_of_its_kubelet(control_plane: Any, cluster_facts: Any) -> None:
    plan = plan_of(control_plane, cluster_facts, ready=False, ready_reason="container runtime is down")
    (problem,) = plan["problems"]
    assert "cp-1" in problem and "not Ready (container runtime is down)" in problem
    settled = control_plane
    settled["files"][FLAGS_ENV]["content"] = "S1VCRUxFVF9LVUJFQURNX0FSR1M9Ii0tY2xvdWQtcHJvdmlkZXI9ZXh0ZXJuYWwiCg=="
    settled["kubelet"]["flags"] = ["--cloud-provider=external"]
    assert plan_of(settled, cluster_facts, ready=False)["go"], "its kubelet is not restarted"


def test_k3s_is_asked_as_a_whole_and_on_its_own_port(tree_facts: Any, cluster_facts: Any) -> None:
    facts = tree_facts("k3s/server")
    facts["service"].update(port=7443, health="/readyz on port 7443: refused")
    cluster = cluster_facts(("k3s-server", "initialized"), version="v1.33.4", kubeadm="")
    (problem,) = make_plan({"k3s-server": facts}, cluster, ["k3s-server"])["problems"]
    assert "k3s-server: k3s is not healthy" in problem and "port 7443" in problem
    facts["service"]["health"] = ""
    step = make_plan({"k3s-server": facts}, cluster, ["k3s-server"])["hosts"]["k3s-server"]["kubelet"]
    assert step["service"] == {"unit": "k3s.service", "data_directory": "/var/lib/rancher/k3s", "port": 7443}
