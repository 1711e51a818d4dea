# SPDX-License-Identifier: Apache-2.0
"""Another cloud-controller-manager is found, paused and resumed, as objects of a real API server. No Pods run here."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from ccm.engine.client import KubeClient, NotFoundError

from .ansible import call, task
from .conftest import Interloper

APPS = "/apis/apps/v1/namespaces/kube-system"
PODS = "/api/v1/namespaces/kube-system/pods"
NOTE = "ccm.outoftree.dev/paused"


def body(kind: str, name: str, **spec: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "acme:1", "command": ["/bin/acme-cloud-controller-manager"]}
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container]}}
    spec |= {"selector": {"matchLabels": {"app": name}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}


@pytest.fixture
async def deployment(kube: KubeClient) -> AsyncIterator[str]:
    path = f"{APPS}/deployments/acme"
    await kube.create(f"{APPS}/deployments", body("Deployment", "acme", replicas=2))
    yield path
    await kube.delete(path)


@pytest.fixture
async def daemonset(kube: KubeClient) -> AsyncIterator[str]:
    path = f"{APPS}/daemonsets/acme"
    await kube.create(f"{APPS}/daemonsets", body("DaemonSet", "acme"))
    yield path
    await kube.delete(path)


async def test_paused_noted_found_and_resumed(kubeconfig: str, kube: KubeClient, deployment: str) -> None:
    """No Pods are created here, so a resumed controller never becomes Ready; the test checks what was written."""
    pause = {"kind": "Deployment", "name": "acme"}
    foretold, paused, again, found = await call(
        kubeconfig,
        task("ccm_takeover", check=True, diff=True, **pause),
        task("ccm_takeover", diff=True, **pause),
        task("ccm_takeover", **pause),
        task("ccm_cluster_info"),
    )
    assert foretold["changed"] and paused["changed"] and foretold["diff"] == paused["diff"]
    assert not again["changed"] and paused["pods"] == []
    (other,) = [each for each in found["others"] if each["name"] == "acme"]
    assert (other["paused"], other["active"], other["image"]) == (True, False, "acme:1")
    now = await kube.get(deployment, dict)
    assert now["spec"]["replicas"] == 0 and now["metadata"]["annotations"][NOTE] == '{"replicas": 2}'

    resumed, untouched = await call(
        kubeconfig,
        task("ccm_takeover", **pause, state="resumed", wait_timeout=1),
        task("ccm_takeover", **pause, state="resumed", wait_timeout=1),
    )
    assert "not all of its Pods are Ready" in resumed["msg"]
    assert not untouched.get("failed") and not untouched["changed"]
    now = await kube.get(deployment, dict)
    assert now["spec"]["replicas"] == 2 and NOTE not in now["metadata"].get("annotations", {})


async def test_a_daemonset_asks_for_a_label_of_no_node(kubeconfig: str, kube: KubeClient, daemonset: str) -> None:
    pause = {"kind": "DaemonSet", "name": "acme"}
    (paused,) = await call(kubeconfig, task("ccm_takeover", **pause))
    assert paused["changed"]
    now = await kube.get(daemonset, dict)
    assert now["spec"]["template"]["spec"]["nodeSelector"] == {NOTE: "true"}
    await call(kubeconfig, task("ccm_takeover", **pause, state="resumed", wait_timeout=1))
    now = await kube.get(daemonset, dict)
    assert "nodeSelector" not in now["spec"]["template"]["spec"] and NOTE not in now["metadata"].get("annotations", {})


async def test_one_of_its_pods_is_waited_for_and_named(kubeconfig: str, kube: KubeClient, daemonset: str) -> None:
    uid = (await kube.get(daemonset, dict))["metadata"]["uid"]
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "acme", "uid": uid, "controller": True}
    meta = {"name": "acme-x1", "labels": {"app": "acme"}, "ownerReferences": [owner]}
    spec = {"containers": [{"name": "main", "image": "acme:1"}]}
    await kube.create(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
    try:
        (paused,) = await call(kubeconfig, task("ccm_takeover", kind="DaemonSet", name="acme", wait_timeout=1))
        assert paused["failed"] and "these of its Pods still run: acme-x1" in paused["msg"]
    finally:
        with contextlib.suppress(NotFoundError):
            await kube.delete(f"{PODS}/acme-x1")


async def test_who_changes_it_at_the_same_time_is_not_overruled(
    interloper: Interloper, kube: KubeClient, deployment: str
) -> None:
    async def scaled() -> None:
        await kube.patch(deployment, {"spec": {"replicas": 5}})

    interloper.strikes[deployment] = scaled
    (paused,) = await call(interloper.kubeconfig, task("ccm_takeover", kind="Deployment", name="acme"))
    assert paused["changed"] and interloper.statuses[deployment] == [409, 200]
    now = await kube.get(deployment, dict)
    assert now["spec"]["replicas"] == 0 and now["metadata"]["annotations"][NOTE] == '{"replicas": 5}'


async def test_what_is_somebody_elses_is_told(kubeconfig: str, kube: KubeClient) -> None:
    path = "/api/v1/namespaces/kube-system/serviceaccounts"
    meta = {"name": "cloud-controller-manager"}
    await kube.create(path, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta})
    try:
        found, other = await call(kubeconfig, task("ccm_cluster_info"), task("ccm_cluster_info", name="outoftree-ccm"))
    finally:
        await kube.delete(f"{path}/cloud-controller-manager")
    assert found["taken"] == ["ServiceAccount kube-system/cloud-controller-manager"] and other["taken"] == []


async def test_one_that_is_not_there(kubeconfig: str) -> None:
    (missing,) = await call(kubeconfig, task("ccm_takeover", kind="Deployment", name="none"))
    assert missing["failed"] and "Deployment kube-system/none cannot be paused" in missing["msg"]
