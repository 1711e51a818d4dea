# SPDX-License-Identifier: Apache-2.0
"""Private images: which registries' credentials end with a feature gate, which Pods that concerns, and the warnings about it."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.outoftree.ccm.plugins.module_utils.facts import image_pulls as facts_of
from ansible_collections.outoftree.ccm.plugins.module_utils.plan import image_pulls

ENV, CONFIG = "/var/lib/kubelet/kubeadm-flags.env", "/var/lib/kubelet/config.yaml"
GATE = "DisableKubeletCloudCredentialProviders"
GCR, ACR = "eu.gcr.io/shop/web:1", "shop.azurecr.io/db@sha256:00"


def judged(host_facts: Any, cluster_facts: Any, *flags: str, version: str = "v1.30.4", config: str = "", images: Any = (GCR, ACR)) -> dict[str, list[str]]:
    files = {ENV: 'KUBELET_KUBEADM_ARGS="{0}"\n'.format(" ".join(flags)), **({CONFIG: config} if config else {})}
    facts = host_facts("w-1", files, [flag for flag in flags if flag.startswith("--feature-gates")])
    facts["kubelet"]["version"] = version
    facts["kubelet"]["config_files"] = [CONFIG] if config else []
    cluster = {**cluster_facts(("w-1", "unmanaged"), version=version), "images": None if images is None else list(images)}
    plan: dict[str, list[str]] = {"problems": [], "warnings": []}
    image_pulls.check(plan, {"w-1": facts}, cluster)
    return plan


OFF = "--feature-gates=DisableCloudProviders=false,{0}=false".format(GATE)


def test_credentials_that_the_run_ends_are_a_problem(host_facts: Any, cluster_facts: Any) -> None:
    plan = judged(host_facts, cluster_facts, "--cloud-provider=gce", OFF)
    assert plan["warnings"] == [] and plan["problems"] == [
        "w-1: its kubelet pulls private images of GCR and Artifact Registry with credentials of its own, because "
        "DisableKubeletCloudCredentialProviders is false. The run removes that gate. Pods without imagePullSecrets have 1 such image(s): "
        "eu.gcr.io/shop/web:1. Before, install auth-provider-gcp on the hosts, and set --image-credential-provider-bin-dir and "
        "--image-credential-provider-config. If no image needs credentials, remove the gate first"]


@pytest.mark.parametrize(("images", "kind", "text"), [
    (None, "problems", "may not list Pods"), ([], "warnings", "have no such image now"), ([ACR], "warnings", "have no such image now"),
])
def test_without_such_images_it_is_a_warning(host_facts: Any, cluster_facts: Any, images: Any, kind: str, text: str) -> None:
    plan = judged(host_facts, cluster_facts, OFF, images=images)
    assert len(plan["problems"] + plan["warnings"]) == 1 and text in plan[kind][0]


@pytest.mark.parametrize(("flags", "version", "config"), [
    ((OFF,), "v1.29.9", ""), ((), "v1.30.4", "featureGates:\n  {0}: false\n".format(GATE)),
    (("--feature-gates=X=true",), "v1.29.9", "featureGates: {" + GATE + ": false}\n"),
])
def test_credentials_that_the_next_upgrade_ends_are_a_warning(host_facts: Any, cluster_facts: Any, flags: Any, version: str, config: str) -> None:
    plan = judged(host_facts, cluster_facts, *flags, version=version, config=config)
    assert plan["problems"] == [] and len(plan["warnings"]) == 1
    assert "They end with the upgrade to " + ("1.30" if version == "v1.29.9" else "1.31") in plan["warnings"][0]
    assert ("acr-credential-provider" in plan["warnings"][0]) is (version == "v1.29.9")


@pytest.mark.parametrize(("flags", "version"), [
    ((OFF, "--image-credential-provider-config=/etc/kubernetes/credentials.yaml"), "v1.30.4"), ((OFF,), "v1.31.0"),
    (("--cloud-provider=gce", "--feature-gates=DisableCloudProviders=false"), "v1.30.4"), ((OFF.replace("false", "true"),), "v1.30.4"),
])
def test_a_kubelet_without_credentials_of_its_own_loses_none(host_facts: Any, cluster_facts: Any, flags: Any, version: str) -> None:
    assert judged(host_facts, cluster_facts, *flags, version=version) == {"problems": [], "warnings": []}


def pod(*images: str, phase: str = "Running", **spec: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"image": image} for image in images], **spec}, "status": {"phase": phase}}


def test_which_images_need_the_kubelets_credentials() -> None:
    pods = [
        pod("gcr.io/a/b:1", "registry.k8s.io/pause:3.9", "docker.io/x"), pod("europe-docker.pkg.dev/a/b/c", "gcr.io/a/b:1", "x"),
        pod("shop.azurecr.cn:443/a", initContainers=[{"image": "shop.azurecr.io/init"}]), pod("notgcr.io/a", "gcr.io.example.com/a", "azurecr.io/a"),
        pod("gcr.io/secret", imagePullSecrets=[{"name": "x"}]), pod("gcr.io/ended", phase="Succeeded"), {"spec": {"containers": [{"name": "none"}]}},
    ]
    assert facts_of.pulled(pods) == ["europe-docker.pkg.dev/a/b/c", "gcr.io/a/b:1", "shop.azurecr.cn:443/a", "shop.azurecr.io/init"]
