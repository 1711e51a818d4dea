# SPDX-License-Identifier: Apache-2.0
"""Other cloud-controller-managers that no Deployment or DaemonSet shows, tools that restore a paused one, and kube-proxy's gates."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from ansible_collections.outoftree.ccm.plugins.module_utils.facts import others
from ansible_collections.outoftree.ccm.plugins.module_utils.plan import takeover
from ansible_collections.outoftree.ccm.plugins.module_utils.plan.plan import make_plan

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
    assert plan["problems"] == [] and "judging by its name" in plan["warnings"][0]


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


def lease(name: str, namespace: str = "kube-system") -> dict[str, Any]:
    return {"metadata": {"namespace": namespace, "name": name}}


@pytest.mark.parametrize(("name", "namespace", "strange"), [
    ("yandex-cloud-controller-manager", "kube-system", True), ("ccm", "cloud", True), ("proxmox-ccm-leader", "kube-system", True),
    ("cloud-controller-manager", "kube-system", False),  # the new controller's, which the plan checks
    ("cloud-controller-manager", "openstack", True), ("known-ccm", "kube-system", False), ("ignored-ccm", "kube-system", False),
    ("outoftree-ccm-run", "kube-system", False), ("k3s-cloud-controller-manager", "kube-system", False),
    ("rke2-cloud-controller-manager", "kube-system", False), ("cloud-provider-extraction-migration", "kube-system", False),
    ("kube-controller-manager", "kube-system", False), ("vpc-resource-controller", "kube-system", False), ("accman", "kube-system", False),
])
def test_every_lease_that_is_named_like_one_is_looked_at(name: str, namespace: str, strange: bool) -> None:
    known = [("kube-system", "cloud-controller-manager"), ("kube-system", "known-ccm")]
    assert bool(others.strange_leases([lease(name, namespace)], known, ["kube-system/ignored-ccm"])) is strange


def test_who_holds_a_lease_that_nothing_explains_is_a_problem(host_facts: Any, cluster_facts: Any) -> None:
    held = [{"namespace": "kube-system", "name": "yandex-cloud-controller-manager", "holder": "cp-1_6f1a"}]
    plan = make_plan({}, {**cluster_facts(), "leases": held}, ["cp-1"])
    (problem,) = [problem for problem in plan["problems"] if "yandex" in problem]
    assert problem.startswith("another cloud-controller-manager runs: cp-1_6f1a holds the Lease kube-system/yandex-cloud-controller-manager")
    assert "add kube-system/yandex-cloud-controller-manager to ccm_install_ignore" in problem


PROXY = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nfeatureGates:\n  Other: true\n  {0}\nmode: iptables\n"


@pytest.mark.parametrize(("texts", "words"), [
    ({"config.conf": PROXY.format("DisableCloudProviders: false")}, "config.conf line 5, gives kube-proxy the feature gate DisableCloudProviders=false"),
    ({"kubeconfig.conf": "kind: Config\n", "config.conf": PROXY.format("InTreePluginvSphereUnregister: true")}, "InTreePluginvSphereUnregister=true"),
    ({"config.conf": PROXY.format("SidecarContainers: true")}, ""), ({"config.conf": "a: [", "other": "text"}, ""), ({}, ""),
    ({"config.conf": "kind: KubeProxyConfiguration\nfeatureGates: [DisableCloudProviders]\n"}, ""),
    ({"config.conf": "kind: Other\nfeatureGates: {DisableCloudProviders: false}\n"}, ""),
])
def test_gates_of_kube_proxy_are_named(cluster_facts: Any, texts: dict[str, str], words: str) -> None:
    """kube-proxy does not start with an unknown gate (kubernetes/kubernetes#76329), and kubeadm writes gates into kube-proxy's ConfigMap."""
    made = make_plan({}, {**cluster_facts(version="v1.31.0"), "kube_proxy": texts}, ["cp-1"])
    found = [warning for warning in made["warnings"] if "kube-proxy" in warning]
    assert len(found) == bool(words) and all(words in warning and "kube-scheduler" not in warning for warning in found), made["warnings"]
