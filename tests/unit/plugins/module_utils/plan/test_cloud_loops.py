# SPDX-License-Identifier: Apache-2.0
"""Differences between kube-controller-manager's in-tree loops and the new controller: allocators, names and routes."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.outoftree.ccm.plugins.module_utils.plan import cloud_loops
from ansible_collections.outoftree.ccm.plugins.module_utils.plan.shapes import NewController

PATH = "/etc/kubernetes/manifests/kube-controller-manager.yaml"
UNIT, SERVICE = "/etc/systemd/system/kube-controller-manager.service", {"namespace": "shop", "name": "web"}
ROUTES = ("--allocate-node-cidrs=true", "--cluster-cidr=10.4.0.0/14")


def manifest(*flags: str) -> str:
    lines = ["apiVersion: v1", "kind: Pod", "spec:", "  containers:", "  - name: kube-controller-manager", "    command:", "    - kube-controller-manager"]
    return "\n".join(lines + [f"    - {flag}" for flag in flags] + [""])


def judged(host_facts: Any, cluster_facts: Any, *flags: str, version: str = "v1.30.4", services: bool = False, name: str = "kubernetes",
           cidr: str | None = "", kubeadm: str = "", unit: bool = False) -> dict[str, list[str]]:
    files = {UNIT: "[Service]\nExecStart=/usr/bin/kube-controller-manager " + " ".join(flags) + "\n"} if unit else {PATH: manifest(*flags)}
    facts = host_facts("cp-1", files)
    facts["manifests"] = [] if unit else [PATH]
    if unit:
        facts["units"]["kube-controller-manager"] = {"unit": "kube-controller-manager.service", "unit_files": [UNIT], "environment_files": []}
    cluster = cluster_facts(("cp-1", "unmanaged"), version=version, kubeadm=kubeadm)
    cluster["services"] = [SERVICE] if services else []
    plan: dict[str, list[str]] = {"problems": [], "warnings": []}
    cloud_loops.check(plan, {"cp-1": facts}, cluster, ["cp-1", "cp-2"], NewController(name, cluster_cidr=cidr))
    return plan


@pytest.mark.parametrize("unit", [False, True])
@pytest.mark.parametrize("kind", ["CloudAllocator", "IPAMFromCloud", "IPAMFromCluster"])
def test_an_allocator_that_needs_an_in_tree_provider_is_a_problem(host_facts: Any, cluster_facts: Any, kind: str, unit: bool) -> None:
    flags = ("--cloud-provider=gce", "--allocate-node-cidrs", "--cidr-allocator-type=" + kind)
    (problem,) = judged(host_facts, cluster_facts, *flags, unit=unit)["problems"]
    assert problem.startswith(f"cp-1: kube-controller-manager assigns pod CIDRs with --cidr-allocator-type={kind}, which needs the in-tree provider")
    assert "Set --cidr-allocator-type=RangeAllocator, or set --allocate-node-cidrs=false and name node-ipam-controller" in problem
    assert judged(host_facts, cluster_facts, *flags, version="v1.32.0", unit=unit)["problems"] == [], "it would not run"


@pytest.mark.parametrize("flags", [
    ("--cidr-allocator-type=RangeAllocator", "--allocate-node-cidrs=true"), ("--cidr-allocator-type=CloudAllocator",),
    ("--cidr-allocator-type=CloudAllocator", "--allocate-node-cidrs=false"),
    ("--cidr-allocator-type=CloudAllocator", "--allocate-node-cidrs=true", "--controllers=*,-nodeipam"),
])
def test_an_allocator_that_does_not_run_is_none(host_facts: Any, cluster_facts: Any, flags: tuple[str, ...]) -> None:
    assert judged(host_facts, cluster_facts, "--cloud-provider=external", *flags) == {"problems": [], "warnings": []}


@pytest.mark.parametrize("version", ["v1beta3", "v1beta4"])
def test_the_next_upgrade_of_kubeadm_would_write_it(host_facts: Any, cluster_facts: Any, version: str) -> None:
    extra = "cidr-allocator-type: CloudAllocator\n" if version == "v1beta3" else "- {name: cidr-allocator-type, value: CloudAllocator}\n"
    text = f"apiVersion: kubeadm.k8s.io/{version}\nkind: ClusterConfiguration\ncontrollerManager:\n  extraArgs:\n    {extra}"
    (problem,) = judged(host_facts, cluster_facts, "--cloud-provider=external", kubeadm=text)["problems"]
    assert problem.startswith("the ConfigMap kube-system/kubeadm-config: kube-controller-manager assigns")


def test_load_balancers_keep_the_name_of_their_cluster(host_facts: Any, cluster_facts: Any) -> None:
    flags = ("--cloud-provider=azure", "--cluster-name=prod")
    (problem,) = judged(host_facts, cluster_facts, *flags, services=True)["problems"]
    assert problem == ("cp-1: kube-controller-manager runs with --cluster-name=prod, but ccm_runtime_cluster_name is kubernetes. The new controller would "
                       "not find its load balancers and routes, and would create new ones with other addresses. Set ccm_runtime_cluster_name: prod")
    assert judged(host_facts, cluster_facts, *flags, services=True, name="prod")["problems"] == []
    assert judged(host_facts, cluster_facts, *flags)["problems"] == [], "nothing has the name"
    assert judged(host_facts, cluster_facts, "--cloud-provider=external", flags[1], services=True)["problems"] == []
    assert len(judged(host_facts, cluster_facts, flags[0], services=True, name="prod")["problems"]) == 1, "the default is kubernetes"


def test_routes_go_on(host_facts: Any, cluster_facts: Any) -> None:
    (problem,) = judged(host_facts, cluster_facts, "--cloud-provider=gce", *ROUTES)["problems"]
    assert problem.startswith("cp-1: kube-controller-manager creates routes for --cluster-cidr=10.4.0.0/14, but the new controller creates none. New "
                              "Nodes would get no routes. Set ccm_runtime_cluster_cidr: 10.4.0.0/14.")
    (problem,) = judged(host_facts, cluster_facts, "--cloud-provider=gce", *ROUTES, cidr="10.8.0.0/14")["problems"]
    assert "but the new controller creates them for 10.8.0.0/14" in problem
    both = ("--cloud-provider=gce", ROUTES[0], "--cluster-cidr=10.4.0.0/14,fd00::/48")
    assert judged(host_facts, cluster_facts, *both, cidr="fd00::/48, 10.4.0.0/14")["problems"] == []
    assert judged(host_facts, cluster_facts, "--cloud-provider=gce", *ROUTES, cidr=None)["problems"] == [], "unknown"


@pytest.mark.parametrize("flags", [
    ("--cloud-provider=vsphere", *ROUTES), ("--cloud-provider=external", *ROUTES), ("--cloud-provider=gce", ROUTES[1]),
    ("--cloud-provider=gce", *ROUTES, "--configure-cloud-routes=false"), ("--cloud-provider=gce", *ROUTES, "--controllers=*,-route"),
])
def test_no_routes_are_compared_where_there_are_none(host_facts: Any, cluster_facts: Any, flags: tuple[str, ...]) -> None:
    assert judged(host_facts, cluster_facts, *flags)["problems"] == []


def test_loops_that_are_off_now_begin_with_the_new_controller(host_facts: Any, cluster_facts: Any) -> None:
    flags = ("--cloud-provider=vsphere", "--controllers=*,-service-lb-controller")
    (warning,) = judged(host_facts, cluster_facts, *flags)["warnings"]
    assert warning.startswith("cp-1: kube-controller-manager runs with --controllers=-service-lb-controller, so these cloud loops are off.")
    assert judged(host_facts, cluster_facts, *flags, version="v1.31.0")["warnings"] == []
