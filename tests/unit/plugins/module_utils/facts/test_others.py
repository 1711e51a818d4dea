# SPDX-License-Identifier: Apache-2.0
"""Other cloud-controller-managers, one decision at a time: names, flags, Pods, and when all are Ready."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.outoftree.ccm.plugins.module_utils.facts import others


def container(name: str = "main", image: str = "registry:5000/a/b:1", **more: Any) -> dict[str, Any]:
    return {"name": name, "image": image, **more}


def workload(*containers: dict[str, Any], name: str = "acme-ccm", status: dict[str, Any] | None = None, generation: int = 2,
             annotations: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "kube-system", "resourceVersion": "7", "generation": generation, "annotations": annotations},
            "spec": {"template": {"spec": {"containers": list(containers) or [container()]}}, **spec}, "status": status or {}}


def told(kind: str, made: dict[str, Any]) -> dict[str, Any]:
    found = others.summary(kind, made)
    assert found is not None
    return found


@pytest.mark.parametrize(("containers", "image"), [
    ([container("sidecar", "s:1"), container("acme-cloud-controller-manager", "ccm:1")], "ccm:1"),
    ([container("sidecar", "s:1"), container("main", "r/cloud-provider-acme:2@sha256:0")], "r/cloud-provider-acme:2@sha256:0"),
    ([container("sidecar", "s:1"), container("main", "m:1", command=["/bin/cloud-provider-acme"])], "m:1"),
    ([container("main", "r/cloud-provider-acme:2", command=["/bin/other"]), container("second", "s:1")], "r/cloud-provider-acme:2"),
    ([container("sidecar", "s:1"), container("main", "m:1")], "s:1"),
])
def test_the_container_that_is_the_controller(containers: list[dict[str, Any]], image: str) -> None:
    assert told("Deployment", workload(*containers))["image"] == image


@pytest.mark.parametrize(("kind", "made", "pods"), [
    ("Deployment", workload(), 1), ("Deployment", workload(replicas=3), 3), ("Deployment", workload(replicas=0), 0),
    ("DaemonSet", workload(status={"desiredNumberScheduled": 2}), 2), ("DaemonSet", workload(), 0),
])
def test_how_many_pods_it_wants(kind: str, made: dict[str, Any], pods: int) -> None:
    found = told(kind, made)
    assert found["pods"] == pods and found["active"] is (pods > 0)


@pytest.mark.parametrize(("args", "key", "expected"), [
    (["--cluster-name", "prod", "--v=2"], "cluster_name", "prod"), (["--cluster-name=a", "--cluster-name=b"], "cluster_name", "b"),
    (["--cluster-name"], "cluster_name", "true"), (["--cluster-name", "--v=2"], "cluster_name", "true"), ([], "cluster_name", "kubernetes"),
    (["--cluster-name-suffix=x"], "cluster_name", "kubernetes"), (["--cluster-name=a=b"], "cluster_name", "a=b"),
    (["--leader-elect", "false"], "lease", {}), (["--leader-elect"], "lease", {"namespace": others.NAMESPACE, "name": others.NAME}),
    (["--leader-elect-resource-namespace=ns"], "lease", {"namespace": "ns", "name": others.NAME}),
    (["--cloud-provider", "acme"], "cloud_provider", "acme"), (["--x $(UNKNOWN) --cluster-name=$(KNOWN)"], "cluster_name", "known"),
    (["--cluster-name=$(UNKNOWN)"], "cluster_name", "$(UNKNOWN)"),
])
def test_a_flag(args: list[str], key: str, expected: Any) -> None:
    env = [{"name": "KNOWN", "value": "known"}, {"name": "UNKNOWN", "valueFrom": {}}]
    assert told("Deployment", workload(container(args=args, env=env)))[key] == expected


@pytest.mark.parametrize(("args", "network", "port"), [
    ([], True, 10258), ([], False, 0), (["--secure-port=10300"], True, 10300), (["--secure-port=0"], True, 0), (["--secure-port=odd"], True, 0),
])
def test_the_port_that_it_takes_on_its_nodes(args: list[str], network: bool, port: int) -> None:
    made = workload(container(args=args))
    made["spec"]["template"]["spec"]["hostNetwork"] = network
    assert told("Deployment", made)["port"] == port


def test_who_made_it() -> None:
    made = workload()
    assert told("Deployment", made)["managed"] == ""
    made["metadata"]["labels"] = {others.MANAGED: "Helm"}
    assert told("Deployment", made)["managed"] == "Helm"


def test_a_deployment_that_names_no_replicas_has_one_again() -> None:
    made = workload()
    patch = others.pause("Deployment", made)
    assert patch is not None and patch["spec"] == {"replicas": 0} and patch["metadata"]["resourceVersion"] == "7"
    paused = workload(replicas=0, annotations=patch["metadata"]["annotations"])
    back = others.resume("Deployment", paused)
    assert back is not None and back["spec"] == {"replicas": 1} and back["metadata"]["annotations"] == {others.PAUSED: None}
    scaled = others.resume("Deployment", workload(annotations={others.PAUSED: '{"replicas": 5}'}))
    assert scaled is not None and scaled["spec"] == {"replicas": 1}, "one that names no replicas runs one"


def pod(name: str, *owners: tuple[str, str]) -> dict[str, Any]:
    return {"metadata": {"name": name, "ownerReferences": [{"kind": kind, "name": owner} for kind, owner in owners]}}


@pytest.mark.parametrize(("kind", "pods", "own"), [
    ("Deployment", [pod("a", ("Odd", "x"), ("ReplicaSet", "acme-ccm-5d9f"))], ["a"]),
    ("Deployment", [pod("a", ("ReplicaSet", "acme-ccm"))], []),
    ("Deployment", [pod("a", ("DaemonSet", "acme-ccm-5d9f"))], []),
    ("DaemonSet", [pod("a", ("DaemonSet", "acme-ccm")), pod("b", ("DaemonSet", "acme-ccm"))], ["a", "b"]),
    ("DaemonSet", [pod("a", ("DaemonSet", "acme-ccm-5d9f")), pod("b", ("ReplicaSet", "acme-ccm"))], []),
])
def test_whose_a_pod_is(kind: str, pods: list[dict[str, Any]], own: list[str]) -> None:
    assert others.owned(kind, "acme-ccm", pods) == own


@pytest.mark.parametrize(("kind", "made", "expected"), [
    ("Deployment", workload(status={"observedGeneration": 2, "readyReplicas": 1}), True),
    ("Deployment", workload(status={"observedGeneration": 3, "readyReplicas": 1}), True),
    ("Deployment", workload(status={"observedGeneration": 1, "readyReplicas": 1}), False),
    ("Deployment", workload(status={"readyReplicas": 1}), False),
    ("Deployment", workload(status={"readyReplicas": 1}, generation=1), False),
    ("Deployment", workload(status={"observedGeneration": 2, "readyReplicas": 1}, replicas=2), False),
    ("Deployment", workload(status={"observedGeneration": 2}, replicas=0), True),
    ("Deployment", workload(status={"observedGeneration": 2}), False),
    ("DaemonSet", workload(status={"observedGeneration": 2, "numberReady": 2, "desiredNumberScheduled": 2}), True),
    ("DaemonSet", workload(status={"observedGeneration": 2, "numberReady": 1, "desiredNumberScheduled": 2}), False),
    ("DaemonSet", workload(status={"observedGeneration": 2, "numberReady": 1, "desiredNumberScheduled": 1}), True),
    ("DaemonSet", workload(status={"observedGeneration": 2}), False),
    ("DaemonSet", workload(status={"observedGeneration": 2, "numberReady": 1}), False),
    ("DaemonSet", workload(status={"observedGeneration": 2, "desiredNumberScheduled": 1}), False),
    ("Deployment", workload(status={"readyReplicas": 1}, generation=0), True),
])
def test_when_all_its_pods_are_ready(kind: str, made: dict[str, Any], expected: bool) -> None:
    assert others.ready(kind, made) is expected


def test_a_workload_without_a_generation_or_a_status() -> None:
    made = workload()
    del made["metadata"]["generation"], made["status"]
    assert not others.ready("Deployment", made)
    assert others.ready("Deployment", {**made, "status": {"readyReplicas": 1}})
