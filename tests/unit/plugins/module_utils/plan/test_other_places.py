# SPDX-License-Identifier: Apache-2.0
"""Other cloud-controller-managers that no Deployment or DaemonSet shows, and tools that put a paused one back."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from ansible_collections.outoftree.ccm.plugins.module_utils.facts import others
from ansible_collections.outoftree.ccm.plugins.module_utils.plan import takeover

PATH = "/etc/kubernetes/manifests/ccm.yaml"


def pod(name: str, container: str = "main", image: str = "r/x:1", command: str = "/bin/x", arguments: str = "--leader-elect=false") -> str:
    return (f"apiVersion: v1\nkind: Pod\nmetadata:\n  name: {name}\n  namespace: kube-system\nspec:\n  hostNetwork: true\n  containers:\n"
            f"  - name: {container}\n    image: {image}\n    command: [{command}]\n    args: [{arguments}]\n")


def judged(host_facts: Any, cluster_facts: Any, text: str, ignored: tuple[str, ...] = (), **more: Any) -> dict[str, list[str]]:
    facts = {**host_facts("cp-1", {PATH: text}), **more}
    facts["manifests"] = [PATH]
    plan: dict[str, list[str]] = {"problems": [], "warnings": []}
    takeover.check_hosts(plan, {"cp-1": facts}, {**cluster_facts(), "ignored": list(ignored)})
    return plan


@pytest.mark.parametrize("text", [
    pod("openstack-cloud-controller-manager"), pod("x", command="/bin/openstack-cloud-controller-manager"), pod("hcloud-ccm"),
    pod("x", container="cloud-controller-manager"), pod("x", arguments="--leader-elect-resource-name=other", command="/bin/acme-cloud-controller-manager"),
])
def test_a_static_pod_is_found_whatever_its_lease_is(host_facts: Any, cluster_facts: Any, text: str) -> None:
    plan = judged(host_facts, cluster_facts, text)
    (problem,) = plan["problems"]
    name = others.static_pod(yaml.safe_load(text))["name"]  # type: ignore[index]
    assert problem.startswith(f"cp-1: {PATH} starts another cloud-controller-manager as a static Pod ({name}, r/x:1). Two controllers would fight")
    assert judged(host_facts, cluster_facts, text, (name,)) == {"problems": [], "warnings": []}


def test_a_name_that_others_have_too_is_a_warning(host_facts: Any, cluster_facts: Any) -> None:
    plan = judged(host_facts, cluster_facts, pod("kube-vip-cloud-provider"))
    assert plan["problems"] == [] and "if its name is right" in plan["warnings"][0]


@pytest.mark.parametrize("text", [
    pod("kube-controller-manager", command="kube-controller-manager", arguments="--cloud-provider=external"), "", "[]", "a: b", "spec: {containers: x}",
    "spec: {containers: [1]}", "metadata: 1\nspec: {containers: [{name: 1, command: x}]}", "a: [",
])
def test_another_manifest_is_none(host_facts: Any, cluster_facts: Any, text: str) -> None:
    assert judged(host_facts, cluster_facts, text) == {"problems": [], "warnings": []}


def test_a_unit_is_found(host_facts: Any, cluster_facts: Any) -> None:
    (problem,) = judged(host_facts, cluster_facts, "", other_units=["cloud-controller-manager.service"])["problems"]
    assert problem.startswith("cp-1: the unit cloud-controller-manager.service runs another cloud-controller-manager.")


@pytest.mark.parametrize(("labels", "annotations", "owners", "keeper"), [
    ({"addonmanager.kubernetes.io/mode": "Reconcile"}, {}, [], "the addon manager (addonmanager.kubernetes.io/mode=Reconcile)"),
    ({}, {"argocd.argoproj.io/tracking-id": "ccm:apps/DaemonSet:x/y"}, [], "Argo CD (argocd.argoproj.io/tracking-id=ccm:apps/DaemonSet:x/y)"),
    ({"kustomize.toolkit.fluxcd.io/name": "infra"}, {}, [], "Flux (kustomize.toolkit.fluxcd.io/name=infra)"),
    ({"app.kubernetes.io/managed-by": "Helm"}, {"meta.helm.sh/release-name": "ccm"}, [], "Helm (meta.helm.sh/release-name=ccm)"),
    ({"helm.toolkit.fluxcd.io/name": "ccm"}, {"meta.helm.sh/release-name": "ccm"}, [], "Flux (helm.toolkit.fluxcd.io/name=ccm)"),
    ({}, {"objectset.rio.cattle.io/owner-name": "rancher-vsphere-cpi"}, [], "k3s or RKE2 (objectset.rio.cattle.io/owner-name=rancher-vsphere-cpi)"),
    ({}, {}, [{"kind": "CloudConfig", "name": "main", "controller": True}], "an operator (it belongs to CloudConfig main)"),
    ({"app": "ccm"}, {}, [{"kind": "X", "name": "y"}], ""), (None, None, None, ""),
])
def test_who_puts_a_workload_back(labels: Any, annotations: Any, owners: Any, keeper: str) -> None:
    meta = {"name": "acme-ccm", "namespace": "kube-system", "labels": labels, "annotations": annotations, "ownerReferences": owners}
    found = others.summary("DaemonSet", {"metadata": meta, "spec": {"template": {"spec": {"containers": [{"name": "x"}]}}},
                                         "status": {"desiredNumberScheduled": 1}})
    assert found is not None and found["keeper"] == keeper


def test_the_plan_warns_of_a_tool_that_resumes_what_it_pauses(cluster_facts: Any) -> None:
    other = {"kind": "DaemonSet", "namespace": "kube-system", "name": "acme-ccm", "image": "x:1", "managed": "Helm", "pods": 3, "paused": False,
             "active": True, "cloud_provider": "acme", "cluster_name": "kubernetes", "lease": {}, "holder": "", "port": 0, "keeper": "Flux (x=y)"}
    plan: dict[str, Any] = {"problems": [], "warnings": [], "edits": [], "takeover": []}
    takeover.check(plan, cluster_facts(others=[other]), True, "kubernetes", 10258)
    assert plan["warnings"] == ["DaemonSet kube-system/acme-ccm: Flux (x=y) may start it again while the new controller runs. Suspend that tool before "
                                "the run"]
