# SPDX-License-Identifier: Apache-2.0
"""Other cloud-controller-managers: how they are recognised, what the migration does with them, and the rollback."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from ansible_collections.outoftree.ccm.plugins.module_utils.facts import others
from ansible_collections.outoftree.ccm.plugins.module_utils.plan.plan import make_plan
from ansible_collections.outoftree.ccm.plugins.module_utils.plan.shapes import Choices, NewController

LEASE = {"namespace": "kube-system", "name": "cloud-controller-manager"}


def workload(name: str = "x", container: str = "main", image: str = "registry:5000/a/b:1@sha256:0", command: tuple[str, ...] = (),
             args: tuple[str, ...] = (), env: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    one = {"name": container, "image": image, "command": list(command), "args": list(args),
           "env": [{"name": key, "value": value} for key, value in (env or {}).items()]}
    return {"metadata": {"name": name, "namespace": "kube-system", "resourceVersion": "7", "generation": 2},
            "spec": {"template": {"spec": {"containers": [one]}}, **spec}, "status": {"desiredNumberScheduled": 3}}


@pytest.mark.parametrize(
    "made",
    [
        workload(command=("/bin/openstack-cloud-controller-manager",)),
        workload("hcloud-cloud-controller-manager"),
        workload(image="registry.k8s.io/cloud-pv-vsphere/cloud-provider-vsphere:v1.33.0"),
        workload("ccm-linode", image="linode/manager"),
        workload("azure-cloud-node-manager"),
        workload(container="cloud-controller-manager", image="apache/cloudstack-kubernetes-provider:v1.1.0"),
    ],
)
def test_vendors_controllers_are_known_by_their_names(made: dict[str, Any]) -> None:
    found = others.summary("Deployment", made)
    assert found and found["active"] and found["lease"] == LEASE and found["cluster_name"] == "kubernetes"


@pytest.mark.parametrize(
    "made",
    [
        workload("cluster-autoscaler", command=("./cluster-autoscaler",), args=("--cloud-provider=aws", "--cloud-config=x")),
        workload("csi-oci-controller", image="oracle/cloud-provider-oci:v1", command=("/usr/local/bin/oci-csi-controller-driver",)),
        workload("coredns", image="coredns:1"),
        workload("accmulator", image="my-success:1"),
    ],
)
def test_what_only_lives_beside_them_is_none(made: dict[str, Any]) -> None:
    assert others.summary("Deployment", made) is None


def test_flags_are_read_in_every_form() -> None:
    args = ("--cloud-provider", "acme", "--cluster-name=$(CLUSTER)", "--leader-elect-resource-name=acme", "--cluster-name=$(CLUSTER)")
    found = others.summary("DaemonSet", workload("acme-ccm", command=("/bin/ccm",), args=args, env={"CLUSTER": "prod"}))
    assert found is not None
    assert (found["cloud_provider"], found["cluster_name"], found["lease"]["name"], found["pods"]) == ("acme", "prod", "acme", 3)
    template: dict[str, Any] = workload("acme-ccm", args=("--secure-port=10300",))
    template["spec"]["template"]["spec"]["hostNetwork"] = True
    assert found["port"] == 0 and (others.summary("Deployment", template) or {})["port"] == 10300
    shell = others.summary("Deployment", workload("acme-ccm", command=("/bin/sh", "-c", "exec ccm --leader-elect=false --v 2")))
    assert shell and shell["lease"] == {}


def test_one_that_is_scaled_to_nothing_is_not_active() -> None:
    found = others.summary("Deployment", workload("acme-ccm", replicas=0))
    assert found and not found["active"] and not found["paused"]


def merged(target: Any, patch: Any) -> Any:
    """Return the result of a merge patch, as the API server applies it (RFC 7396)."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


@pytest.mark.parametrize(("kind", "made"), [
    ("Deployment", workload("acme-ccm", replicas=2)),
    ("DaemonSet", workload("acme-ccm")),
])
def test_a_paused_one_is_known_and_becomes_what_it_was(kind: str, made: dict[str, Any]) -> None:
    before = copy.deepcopy(made)
    assert others.resume(kind, made) is None
    paused = merged(made, others.pause(kind, made))
    found = others.summary(kind, paused)
    assert found and found["paused"] and not found["active"]
    assert others.pause(kind, paused) is None
    after = merged(paused, others.resume(kind, paused))
    assert after["spec"].get("replicas") == before["spec"].get("replicas")
    assert not after["spec"]["template"]["spec"].get("nodeSelector")
    assert not after["metadata"]["annotations"]
    assert made == before


def test_who_scaled_a_paused_one_meanwhile_is_not_overruled() -> None:
    paused = merged(workload("acme-ccm", replicas=2), others.pause("Deployment", workload("acme-ccm", replicas=2)))
    paused["spec"]["replicas"] = 1
    patch = others.resume("Deployment", paused)
    assert patch and patch["spec"] == {"replicas": 1}


def test_its_pods_are_its_own() -> None:
    def pod(name: str, kind: str, owner: str) -> dict[str, Any]:
        return {"metadata": {"name": name, "ownerReferences": [{"kind": kind, "name": owner}]}}

    pods = [pod("a", "ReplicaSet", "ccm-5d9f"), pod("b", "ReplicaSet", "ccm-more-5d9f"), pod("c", "DaemonSet", "ccm"), {"metadata": {"name": "d"}}]
    assert others.owned("Deployment", "ccm", pods) == ["a"]
    assert others.owned("DaemonSet", "ccm", pods) == ["c"]


def other(**changes: Any) -> dict[str, Any]:
    found = others.summary("Deployment", workload("acme-ccm", image="acme:1", args=("--cluster-name=prod",)))
    assert found
    return {**found, "holder": "cp-1_x", **changes}


def planned(cluster_facts: Any, takeover: bool = True, cluster_name: str = "prod", **cluster: Any) -> dict[str, Any]:
    return make_plan({}, cluster_facts(kubeadm="", **cluster), [], choices=Choices(takeover=takeover), controller=NewController(cluster_name))


def test_another_one_is_refused_with_all_that_tells_which_and_both_ways_out(cluster_facts: Any) -> None:
    plan = planned(cluster_facts, takeover=False, others=[other()])
    (problem,) = plan["problems"]
    for text in ("Deployment kube-system/acme-ccm", "acme:1", "Lease kube-system/cloud-controller-manager, held by cp-1_x",
                 "ccm_install_takeover: adopt", "ccm_install_ignore"):
        assert text in problem
    assert plan["takeover"] == [] and not plan["go"]


def test_with_one_lease_it_hands_over_and_with_two_it_is_stopped_first(cluster_facts: Any) -> None:
    plan = planned(cluster_facts, others=[other(), other(name="b", lease={**LEASE, "name": "acme"}), other(name="c", lease={})], held="cp-1_x")
    assert plan["go"], plan["problems"]
    assert [(item["name"], item["handover"]) for item in plan["takeover"]] == [("acme-ccm", True), ("b", False), ("c", False)]
    assert [(edit["file"], edit["flag"], edit["now"], edit["then"]) for edit in plan["edits"]][0] == (
        "Deployment kube-system/acme-ccm", "replicas", "1", "0")
    taken = planned(cluster_facts, others=[other(port=10258)])
    assert not taken["takeover"][0]["handover"] and "with another ccm_runtime_secure_port" in taken["edits"][0]["why"]
    assert "Both use the Lease" in plan["edits"][0]["why"] and "the Lease kube-system/acme: it stops before" in plan["edits"][1]["why"]


def test_load_balancers_of_another_cluster_name_would_be_lost(cluster_facts: Any) -> None:
    (problem,) = planned(cluster_facts, cluster_name="kubernetes", others=[other()])["problems"]
    assert "Set ccm_runtime_cluster_name: prod" in problem


@pytest.mark.parametrize("kept", [other(paused=True, active=False), other(active=False)])
def test_one_that_does_not_run_is_in_nobodys_way(cluster_facts: Any, kept: dict[str, Any]) -> None:
    plan = planned(cluster_facts, takeover=False, others=[kept], held="cp-1_x")
    assert plan["go"] and plan["edits"] == [] and plan["takeover"] == []


RUNTIME = {"exists": True, "managed": True, "created": "2026-11-21T09:15:03Z"}


@pytest.mark.parametrize(("runtime", "renewed", "never_led"), [
    ({}, "2026-11-21T09:15:01.500000Z", True),
    (RUNTIME, "", True),
    (RUNTIME, "2026-11-21T09:15:02.900000Z", True),
    (RUNTIME, "2026-11-21T09:15:03.000000Z", False),
    (RUNTIME, "2026-11-22T00:00:00.000000Z", False),
])
def test_paused_ones_only_come_back_if_the_new_one_never_led(cluster_facts: Any, runtime: dict[str, Any], renewed: str, never_led: bool) -> None:
    kept = other(paused=True, active=False)
    name = {"kind": "Deployment", "namespace": "kube-system", "name": "acme-ccm"}
    way_back = planned(cluster_facts, others=[kept], runtime=runtime, renewed=renewed)["way_back"]
    assert way_back == {"remove": never_led, "resume": [name] if never_led else [], "paused": [] if never_led else [name]}


def test_without_another_one_there_is_no_way_back(cluster_facts: Any) -> None:
    assert planned(cluster_facts)["way_back"] == {"remove": False, "resume": [], "paused": []}


def test_a_holder_of_the_lease_that_nothing_explains_is_refused(cluster_facts: Any) -> None:
    (problem,) = planned(cluster_facts, held="vendor_1")["problems"]
    assert "vendor_1 holds the Lease kube-system/cloud-controller-manager, but it belongs to no known Deployment or DaemonSet" in problem


def test_what_belongs_to_somebody_else_is_not_overwritten(cluster_facts: Any) -> None:
    (problem,) = planned(cluster_facts, taken=["ServiceAccount kube-system/cloud-controller-manager"])["problems"]
    assert "ServiceAccount kube-system/cloud-controller-manager" in problem and "ccm_runtime_name" in problem


def test_every_other_one_is_judged_and_not_only_the_first(cluster_facts: Any) -> None:
    problems = planned(cluster_facts, takeover=False, others=[other(active=False), other(name="b"), other(name="c")])["problems"]
    assert [name for name in "bc" if any(f"kube-system/{name} " in text for text in problems)] == ["b", "c"]
