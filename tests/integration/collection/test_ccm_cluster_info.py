# SPDX-License-Identifier: Apache-2.0
"""What ccm_cluster_info reads: Services without an address, Nodes for the controller, Leases, kube-proxy's settings."""

from __future__ import annotations

import datetime
from collections.abc import AsyncIterator
from typing import Any

import pytest

from ccm.engine.client import KubeClient

from ..runtime.support import SERVICES
from .ansible import call, task
from .conftest import Interloper

APPS = "/apis/apps/v1/namespaces/kube-system/daemonsets"
PODS = "/api/v1/namespaces/kube-system/pods"
NAME = "cluster-info"
LABELS = {"app.kubernetes.io/name": NAME, "app.kubernetes.io/managed-by": "outoftree.ccm"}


def service(name: str, **spec: Any) -> dict[str, Any]:
    spec |= {"type": "LoadBalancer", "ports": [{"port": 80}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}


@pytest.fixture
async def services(kube: KubeClient) -> AsyncIterator[None]:
    """Create a Service of our controller, and one with a load balancer class."""
    await kube.create(SERVICES, service("web"))
    await kube.create(SERVICES, service("other", loadBalancerClass="example.com/lb"))
    yield
    for name in ("web", "other"):
        await kube.delete(f"{SERVICES}/{name}")


async def test_services_without_an_address_are_waited_for(
    interloper: Interloper, kube: KubeClient, services: None
) -> None:
    """The Service gets its address during the wait, and the module stops reading as soon as it sees the address."""
    looks = 0

    async def look() -> None:
        nonlocal looks
        looks += 1
        if looks == 3:
            status = {"status": {"loadBalancer": {"ingress": [{"ip": "10.0.0.7"}]}}}
            await kube.patch(f"{SERVICES}/web/status", status)

    interloper.reads["/api/v1/services"] = look
    at_once, waited = await call(
        interloper.kubeconfig,
        task("ccm_cluster_info"),
        task("ccm_cluster_info", services_timeout=60),
    )
    assert not at_once.get("failed"), at_once["msg"]
    assert {each["name"]: each["ingress"] for each in at_once["services"]} == {"web": [], "other": []}
    assert {each["name"]: each["ingress"] for each in waited["services"]} == {"web": ["10.0.0.7"], "other": []}
    assert looks == 3


async def test_one_that_never_gets_an_address_is_reported(kubeconfig: str, services: None) -> None:
    (found,) = await call(kubeconfig, task("ccm_cluster_info", services_timeout=1))
    assert not found.get("failed") and {"name": "web", "ingress": []}.items() <= found["services"][-1].items()


@pytest.mark.parametrize(
    ("flags", "ours"), [([], ["web"]), (["--load-balancer-class=example.com/lb"], ["other", "web"])]
)
async def test_services_of_a_class_that_the_controllers_flags_name_are_its_own(
    kube: KubeClient, kubeconfig: str, services: None, flags: list[str], ours: list[str]
) -> None:
    spec = {"containers": [{"name": NAME, "image": "localhost/outoftree-ccm:1", "args": flags}]}
    daemonset = {"selector": {"matchLabels": LABELS}, "template": {"metadata": {"labels": LABELS}, "spec": spec}}
    meta = {"name": NAME, "labels": LABELS}
    await kube.create(APPS, {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": meta, "spec": daemonset})
    try:
        (found,) = await call(kubeconfig, task("ccm_cluster_info", name=NAME))
    finally:
        await kube.delete(f"{APPS}/{NAME}")
    assert sorted(each["name"] for each in found["services"] if each["ours"]) == ours


@pytest.fixture
async def foreign(kube: KubeClient) -> AsyncIterator[None]:
    """Create a vendor's DaemonSet as the role rolls it out, with a running Pod. Its container has no command, like that
    of AWS."""
    meta = {"labels": LABELS, "annotations": {"ccm.outoftree.dev/cloud-config": "17"}}
    spec = {"containers": [{"name": NAME, "image": "registry.example.com/aws:1", "args": ["--cloud-provider=aws"]}]}
    selector = {"matchLabels": {"app.kubernetes.io/name": NAME}}
    daemonset = {"selector": selector, "template": {"metadata": meta, "spec": spec}}
    await kube.create(
        APPS,
        {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": NAME, "labels": LABELS}, "spec": daemonset},
    )
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": meta | {"name": "cluster-info-x1"}, "spec": spec}
    await kube.create(PODS, pod)
    await kube.patch(f"{PODS}/cluster-info-x1/status", {"status": {"phase": "Running"}})
    yield
    await kube.delete(f"{PODS}/cluster-info-x1")
    await kube.delete(f"{APPS}/{NAME}")


async def test_another_vendors_controller_is_not_asked_about_nodes(kubeconfig: str, foreign: None) -> None:
    """The module does not run `ccm nodes` in its Pods."""
    (found,) = await call(kubeconfig, task("ccm_cluster_info", name=NAME))
    assert found["compared"] == {"done": False, "reason": "the controller is not this collection's own runtime"}


async def test_nodes_that_may_run_the_controller_are_counted(kube: KubeClient, kubeconfig: str) -> None:
    label = {"example.com/runs": "ccm"}
    await kube.create(
        "/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NAME, "labels": label}}
    )
    try:
        found, none = await call(
            kubeconfig,
            task("ccm_cluster_info", node_selector=label),
            task("ccm_cluster_info", node_selector=label | {"example.com/more": ""}),
        )
    finally:
        await kube.delete(f"/api/v1/nodes/{NAME}")
    assert found["node_selector"] == {"labels": label, "nodes": 1}
    assert none["node_selector"]["nodes"] == 0


LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
MAPS = "/api/v1/namespaces/kube-system/configmaps"


async def test_strange_leases_and_the_settings_of_kube_proxy_are_read(kubeconfig: str, kube: KubeClient) -> None:
    """A Lease is reported if it is named like a cloud-controller-manager's and its holder still renews it."""
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    old = "2026-01-01T00:00:00.000000Z"
    for name, renewed in (("acme-cloud-controller-manager", now), ("gone-ccm", old), ("other", now)):
        spec = {"holderIdentity": "cp-1_a", "renewTime": renewed, "leaseDurationSeconds": 600}
        body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}, "spec": spec}
        await kube.create(LEASES, body)
    text = "kind: KubeProxyConfiguration\n"
    config = {"metadata": {"name": "kube-proxy"}, "data": {"config.conf": text}}
    await kube.create(MAPS, {"apiVersion": "v1", "kind": "ConfigMap", **config})
    try:
        found, ignoring = await call(
            kubeconfig,
            task("ccm_cluster_info"),
            task("ccm_cluster_info", ignored=["kube-system/acme-cloud-controller-manager"]),
        )
    finally:
        for name in ("acme-cloud-controller-manager", "gone-ccm", "other"):
            await kube.delete(f"{LEASES}/{name}")
        await kube.delete(f"{MAPS}/kube-proxy")
    assert not found.get("failed"), found["msg"]
    expected = {"namespace": "kube-system", "name": "acme-cloud-controller-manager", "holder": "cp-1_a"}
    assert found["leases"] == [expected] and ignoring["leases"] == []
    assert found["kube_proxy"] == {"config.conf": text}
