# SPDX-License-Identifier: Apache-2.0
"""Classes of Nodes, what is missing on each, and the verdict on the controller."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from ansible_collections.outoftree.ccm.plugins.module_utils.facts import health, nodes

NOW = datetime(2026, 11, 21, 9, 0, 30, tzinfo=UTC)
TAINT = {"key": nodes.TAINT_KEY, "value": "true", "effect": "NoSchedule"}
OTHER = {"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}


def node(provider_id: str = "", taints: list[dict[str, str]] | None = None, addresses: tuple[str, ...] = ("InternalIP",),
         ready: str = "True") -> dict[str, Any]:
    return {"metadata": {"name": "n", "labels": {"topology.kubernetes.io/zone": "a"}},
            "spec": {"providerID": provider_id, "taints": taints},
            "status": {"addresses": [{"type": kind, "address": "10.0.0.1"} for kind in addresses],
                       "conditions": [{"type": "Ready", "status": ready, "message": "why", "lastHeartbeatTime": "2026-11-21T09:00:00Z"}]}}


@pytest.mark.parametrize(
    ("what", "expected_id", "kind"),
    [
        (node(), None, "unmanaged"),
        (node("sim://north/1"), None, "initialized"),
        (node("sim://north/1", [TAINT]), None, "uninitialized"),
        (node("", [TAINT]), None, "uninitialized"),
        (node("k3s://n"), None, "foreign"),
        (node("k3s://n", [TAINT]), None, "foreign"),
        (node("sim://north/1"), "sim://north/2", "mismatched"),
        (node(""), "sim://north/2", "unmanaged"),
    ],
)
def test_classes(what: dict[str, Any], expected_id: str | None, kind: str) -> None:
    assert nodes.summary(what, "sim://", expected_id)["class"] == kind


def summaries(**provider_ids: str) -> list[dict[str, Any]]:
    return [dict(nodes.summary(node(provider_id), "sim://"), name=name) for name, provider_id in provider_ids.items()]


def test_one_provider_id_on_two_nodes_is_wrong_on_one_of_them() -> None:
    found = nodes.judged(summaries(a="sim://1", b="sim://1", c="sim://2", d="", e=""), [])
    assert [item["class"] for item in found] == ["mismatched", "mismatched", "initialized", "unmanaged", "unmanaged"]
    assert "b has the same providerID sim://1" in found[0]["reason"] and "delete the Node" in found[0]["reason"]


def test_what_the_runtime_says_of_nodes_is_told_before_anything_is_done_to_them() -> None:
    matches = [{"name": "a", "verdict": "ok", "reason": ""}, {"name": "b", "verdict": "mismatched", "reason": "why"},
               {"name": "c", "verdict": "unknown", "reason": "no answer"}, {"name": "d", "verdict": "mismatched", "reason": "--node-ip"},
               {"name": "e", "verdict": "foreign", "reason": "another region"}, {"name": "gone", "verdict": "ok", "reason": ""}]
    found = nodes.judged(summaries(a="sim://1", b="sim://1", c="sim://2", d="", e="sim://far", f="k3s://f"), matches)
    assert {item["name"]: item["class"] for item in found} == {
        "a": "initialized", "b": "mismatched", "c": "initialized", "d": "mismatched", "e": "foreign", "f": "foreign"}
    assert (found[1]["reason"], found[3]["reason"]) == ("why", "--node-ip") and "drain and delete" in found[4]["reason"]


def test_no_message_asks_for_the_deletion_of_a_server_of_k3s_or_rke2() -> None:
    """A server is recognised by the providerID of its embedded cloud provider, or by the condition EtcdIsVoter."""
    def server(provider_id: str, member: bool) -> dict[str, Any]:
        what = node(provider_id)
        what["metadata"]["labels"]["node-role.kubernetes.io/control-plane"] = "true"
        what["status"]["conditions"] += [{"type": "EtcdIsVoter", "status": "True"}] if member else []
        return what

    told = [nodes.summary(server("k3s://n", False), scheme)["reason"] for scheme in ("sim://", "")]
    told += [nodes.summary(server("aws:///a/i-1", True), "sim://")["reason"], nodes.summary(server("sim://1", True), "", "sim://2")["reason"]]
    ours = nodes.summary(server("sim://1", True), "sim://")
    told.append(nodes.judged([ours], [{"name": "n", "verdict": "foreign", "reason": "another region"}])[0]["reason"])
    told.append(nodes.judged([ours, dict(ours, name="m")], [])[0]["reason"])
    assert all("must not be deleted" in text and "drain and delete" not in text for text in told), told
    matches = [{"name": "n", "verdict": "mismatched", "reason": "replaced: delete the Node and restart its kubelet"}]
    assert "its kubelet; but this is a server of k3s or RKE2" in nodes.judged([ours], matches)[0]["reason"]
    # With kubeadm, deleting a control plane's Node removes no etcd member.
    assert "drain and delete the Node" in nodes.summary(server("aws:///a/i-1", False), "sim://")["reason"]


def test_any_scheme_is_ours_when_none_is_named() -> None:
    assert nodes.summary(node("vendor://1"), "")["class"] == "initialized"


@pytest.mark.parametrize(
    ("what", "predicate", "lacks"),
    [
        (node("sim://1"), "initialized", []),
        (node("", [TAINT], ("Hostname",)), "initialized", ["providerID", "an IP address", "removal of the taint"]),
        (node("sim://1", [OTHER]), "initialized", []),
        (node(), "tainted", ["the taint"]),
        (node("", [TAINT]), "tainted", []),
        (node(ready="Unknown"), "ready", ["Ready (why)"]),
        (node(), "ready", []),
    ],
)
def test_what_a_node_lacks(what: dict[str, Any], predicate: str, lacks: list[str]) -> None:
    found = nodes.missing(nodes.summary(what, "sim://"), predicate)
    assert len(found) == len(lacks) and all(f.startswith(part) for f, part in zip(found, lacks))


def test_a_ready_node_with_an_old_heartbeat_is_waited_for() -> None:
    summary = nodes.summary(node(), "")
    assert nodes.missing(summary, "ready", "2026-11-21T09:00:01Z") == ["a heartbeat after 2026-11-21T09:00:01Z"]
    assert nodes.missing({**summary, "lease_renewed": "2026-11-21T09:00:02Z"}, "ready", "2026-11-21T09:00:01Z") == []


def test_other_taints_are_kept() -> None:
    assert nodes.with_taint(node(taints=[OTHER])) == [OTHER, TAINT]
    assert nodes.with_taint(node(taints=[TAINT, OTHER])) == [OTHER, TAINT]
    assert nodes.without_taint(node(taints=[OTHER, TAINT])) == [OTHER]
    assert nodes.without_taint(node()) == []


def daemonset(**changes: Any) -> dict[str, Any]:
    return {"exists": True, "desired": 1, "ready": 1, "updated": 1, "observed": True, "image": "i", **changes}


def lease(holder: str = "cp-1_abc", renewed: str = "2026-11-21T09:00:28.123456Z", **notes: str) -> dict[str, Any]:
    annotations = {health.ANNOTATION_PREFIX + key.replace("_", "-"): value for key, value in notes.items()}
    return health.lease_state({"metadata": {"annotations": annotations}, "spec": {
        "holderIdentity": holder, "renewTime": renewed, "leaseDurationSeconds": 15}}, NOW)


POD = {"name": "ccm-x", "node": "cp-1", "ready": True, "leaving": False, "restarts": 0, "reason": ""}
GOOD = {"cloud_provider": "sim", "last_cloud_success": "2026-11-21T09:00:20Z", "controllers": "cloud-node-controller,service-lb-controller"}


@pytest.mark.parametrize(
    ("state", "pods", "held", "reason"),
    [
        (daemonset(), [POD], lease(**GOOD), None),
        (daemonset(), [POD], lease(), None),
        (daemonset(), [POD], lease("ccm-x"), None),
        (health.daemonset_state(None), [], lease(), "no DaemonSet"),
        (daemonset(desired=0, ready=0, updated=0), [], lease(), "no node matches"),
        (daemonset(ready=0), [{**POD, "ready": False, "reason": "ErrImageNeverPull"}], lease(), "ErrImageNeverPull"),
        (daemonset(updated=0), [POD], lease(), "0 of 1 Pods run the newest"),
        (daemonset(observed=False), [POD], lease(), "newest version yet"),
        (daemonset(), [POD], lease(""), "nobody holds the Lease"),
        (daemonset(), [POD], health.lease_state(None, NOW), "nobody holds the Lease"),
        (daemonset(), [POD], lease(renewed="2026-11-21T09:00:10Z"), "not renewed it for 20.0 s"),
        (daemonset(), [POD], lease("vendor_1"), "none of the Pods"),
        (daemonset(), [POD], lease(**{**GOOD, "controllers": "service-lb-controller"}), "does not run cloud-node-controller"),
        (daemonset(), [POD], lease(cloud_provider="sim"), "no call to the cloud has succeeded"),
        (daemonset(), [POD], lease(**{**GOOD, "last_cloud_success": "2026-11-21T08:00:30Z"}), "3600.0 s ago"),
    ],
)
def test_the_verdict(state: dict[str, Any], pods: list[dict[str, Any]], held: dict[str, Any], reason: str | None) -> None:
    verdict = health.judge(state, pods, held, NOW, ["cloud-node-controller"], max_cloud_age=600)
    assert verdict["healthy"] is (reason is None), verdict["reasons"]
    assert reason is None or any(reason in text for text in verdict["reasons"])


def test_what_another_controller_left_on_the_lease_is_not_its_successors() -> None:
    left = lease("ccm-x", cloud_provider="sim", last_cloud_success="2026-11-21T08:00:30Z", controllers="service-lb-controller")
    wanted: tuple[Any, ...] = (daemonset(), [POD], left, NOW, ["cloud-node-controller"], 600)
    assert not health.judge(*wanted)["healthy"]
    verdict = health.judge(*wanted, notes_own=False)
    assert verdict["healthy"] and verdict["last_cloud_success_age"] is None
    assert verdict["unjudged"] == ["which controllers the leader runs", "whether the cloud answers it"]
    assert health.judge(daemonset(), [POD], lease(**GOOD), NOW)["unjudged"] == []


def test_a_standby_is_judged_by_its_pods_alone() -> None:
    assert health.judge(daemonset(), [POD], lease("other_1"), NOW, leads=False)["healthy"]
    assert not health.judge(daemonset(ready=0), [POD], lease("other_1"), NOW, leads=False)["healthy"]


def test_a_controller_that_had_nothing_to_ask_the_cloud_may_be_healthy() -> None:
    asked_nothing = lease(cloud_provider="sim", controllers="cloud-node-controller")
    assert health.judge(daemonset(), [POD], asked_nothing, NOW, ["cloud-node-controller"], require_cloud=False)["healthy"]


@pytest.mark.parametrize(
    ("running", "not_offered", "absent"),
    [
        ("cloud-node-controller,service-lb-controller", "", None),
        ("cloud-node-controller", "service-lb-controller", None),
        ("cloud-node-controller", "", "does not run service-lb-controller"),
        ("service-lb-controller", "cloud-node-controller", "does not run cloud-node-controller"),
    ],
)
def test_what_the_provider_has_nothing_for_is_demanded_only_by_name(running: str, not_offered: str, absent: str | None) -> None:
    held = lease(**{**GOOD, "controllers": running, "not_offered": not_offered})
    verdict = health.judge(daemonset(), [POD], held, NOW, ["cloud-node-controller"], if_offered=["service-lb-controller"])
    assert verdict["reasons"] == ([] if absent is None else ["the leader " + absent])
