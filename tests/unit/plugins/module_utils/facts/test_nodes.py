# SPDX-License-Identifier: Apache-2.0
"""The facts of a Node, the remedy for a wrong providerID, and comparisons of Nodes with each other and with the cloud."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.outoftree.ccm.plugins.module_utils.facts import nodes


def test_a_node_without_anything_is_read_as_nothing() -> None:
    assert nodes.summary({}, "sim://") == {
        "name": "", "uid": "", "resource_version": "", "provider_id": "", "taints": [], "uninitialized": False, "addresses": [], "zone": "",
        "region": "", "instance_type": "", "control_plane": False, "etcd_voter": None, "managed_by": "", "ready": False, "ready_reason": "",
        "heartbeat": "", "kubelet_version": "", "instance": "", "primary": [], "primary_after": [],
        "class": "unmanaged", "reason": nodes.summary({}, "sim://")["reason"]}


FULL = {
    "metadata": {"name": "n", "uid": "u", "resourceVersion": "7", "labels": {
        "topology.kubernetes.io/zone": "z", "topology.kubernetes.io/region": "r", "node.kubernetes.io/instance-type": "t",
        "node-role.kubernetes.io/control-plane": "", "eks.amazonaws.com/nodegroup": "g"}},
    "spec": {"providerID": "sim://1", "taints": [{"key": "a", "value": "b", "effect": "NoExecute"}, {"key": nodes.TAINT_KEY, "effect": "NoSchedule"}]},
    "status": {
        "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}], "nodeInfo": {"kubeletVersion": "v1.36.3"},
        "conditions": [{"type": "EtcdIsVoter", "status": "False"}, {"type": "MemoryPressure", "status": "True"},
                       {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": "2026-11-21T09:00:00Z"}]},
}


def test_every_field_of_a_node_is_read() -> None:
    found = nodes.summary(FULL, "sim://")
    assert {key: found[key] for key in ("name", "uid", "resource_version", "provider_id", "zone", "region", "instance_type", "control_plane")} == {
        "name": "n", "uid": "u", "resource_version": "7", "provider_id": "sim://1", "zone": "z", "region": "r", "instance_type": "t",
        "control_plane": True}
    assert found["taints"] == ["a=b:NoExecute", nodes.TAINT_KEY + ":NoSchedule"] and found["uninitialized"]
    assert found["addresses"] == FULL["status"]["addresses"] and found["kubelet_version"] == "v1.36.3"
    assert (found["etcd_voter"], found["ready"], found["ready_reason"], found["heartbeat"]) == (False, True, "KubeletReady", "2026-11-21T09:00:00Z")
    assert found["managed_by"].startswith("EKS")


def summed(name: str = "n", provider_id: str = "sim://1", **more: Any) -> dict[str, Any]:
    found = dict(nodes.summary({"metadata": {"name": name}, "spec": {"providerID": provider_id}}, "sim://"), **more)
    found["class"], found["reason"] = nodes.classify(found, "sim://")
    return found


@pytest.mark.parametrize(("what", "keeps"), [
    (summed(), False),
    (summed(control_plane=True), False),
    (summed(provider_id="k3s://n"), False),
    (summed(provider_id="k3s://n", control_plane=True), True),
    (summed(provider_id="rke2://n", control_plane=True), True),
    (summed(etcd_voter=True), True),
    (summed(etcd_voter=False), True),
])
def test_the_node_of_a_server_of_k3s_is_never_deleted(what: dict[str, Any], keeps: bool) -> None:
    assert (nodes.KEEP_SERVER in nodes.way_out(what)) is keeps
    assert (nodes.way_out(what) == nodes.REGISTER_AGAIN) is not keeps


@pytest.mark.parametrize(("provider_id", "scheme", "expected_id", "kind"), [
    ("sim://1", "sim://", "sim://1", "initialized"), ("sim://1", "sim://", "sim://2", "mismatched"), ("", "sim://", "sim://2", "unmanaged"),
    ("k3s://n", "", None, "foreign"), ("k3s://n", "sim://", None, "foreign"), ("k3s://n", "k3s://", None, "initialized"),
    ("aws:///i-1", "", None, "initialized"),
])
def test_the_class_of_a_provider_id(provider_id: str, scheme: str, expected_id: str | None, kind: str) -> None:
    assert nodes.classify(summed(provider_id=provider_id), scheme, expected_id)[0] == kind


def judged(own: dict[str, Any], match: dict[str, str] | None = None, *others: dict[str, Any]) -> tuple[str, str]:
    found = nodes.judged([*others, own], [] if match is None else [{"name": own["name"], **match}])[-1]
    return found["class"], found["reason"]


@pytest.mark.parametrize(("own", "match", "others", "kind"), [
    (summed(), None, [], "initialized"),
    (summed(), {"verdict": "ok"}, [], "initialized"),
    (summed(), {"verdict": "unknown", "reason": "?"}, [], "initialized"),
    (summed(), {"verdict": "mismatched", "reason": "another machine"}, [], "mismatched"),
    (summed(), {"verdict": "foreign", "reason": "of another cloud"}, [], "foreign"),
    (summed(provider_id="aws:///i-1"), {"verdict": "mismatched", "reason": "another machine"}, [], "foreign"),
    (summed(), None, [summed("other")], "mismatched"),
    (summed(), {"verdict": "ok"}, [summed("other")], "initialized"),
    (summed(), None, [summed("other", "sim://2")], "initialized"),
    (summed(provider_id=""), None, [summed("other", "")], "unmanaged"),
])
def test_the_class_beside_others_and_the_cloud(own: Any, match: Any, others: list[Any], kind: str) -> None:
    assert judged(own, match, *others)[0] == kind


@pytest.mark.parametrize(("own", "reason", "keeps"), [
    (summed(), "delete the Node", False), (summed(etcd_voter=True), "delete the Node", True), (summed(etcd_voter=True), "rename it", False),
])
def test_the_reason_of_the_cloud_never_has_a_server_deleted(own: dict[str, Any], reason: str, keeps: bool) -> None:
    told = judged(own, {"verdict": "mismatched", "reason": reason})[1]
    assert reason in told and (nodes.KEEP_SERVER in told) is keeps


@pytest.mark.parametrize(("changes", "predicate", "count"), [
    ({"addresses": [{"type": "ExternalIP", "address": "192.0.2.1"}]}, "initialized", 0),
    ({"addresses": [{"type": "Hostname", "address": "n"}]}, "initialized", 1),
    ({"addresses": [], "provider_id": "", "uninitialized": True}, "initialized", 3),
    ({"uninitialized": True}, "tainted", 0),
    ({}, "tainted", 1),
    ({"ready": True, "etcd_voter": None}, "ready", 0),
    ({"ready": True, "etcd_voter": True}, "ready", 0),
    ({"ready": True, "etcd_voter": False}, "ready", 1),
    ({"ready": False}, "ready", 1),
])
def test_what_is_waited_for(changes: dict[str, Any], predicate: str, count: int) -> None:
    assert len(nodes.missing(dict(summed(), **changes), predicate)) == count


@pytest.mark.parametrize(("heartbeat", "renewed", "after", "waits"), [
    ("2026-11-21T09:00:00Z", "", "2026-11-21T09:00:00Z", False), ("2026-11-21T09:00:00Z", "", "2026-11-21T09:00:01Z", True),
    ("", "2026-11-21T09:00:02Z", "2026-11-21T09:00:01Z", False), ("2026-11-21T09:00:02Z", "2026-11-21T08:00:00Z", "2026-11-21T09:00:01Z", False),
    ("", "", "", False),
])
def test_a_heartbeat_is_the_newer_of_status_and_lease(heartbeat: str, renewed: str, after: str, waits: bool) -> None:
    node = dict(summed(ready=True), heartbeat=heartbeat, lease_renewed=renewed)
    assert bool(nodes.missing(node, "ready", after)) is waits


@pytest.mark.parametrize(("text", "expected"), [("2026-11-21T09:00:00.123456Z", "2026-11-21T09:00:00Z"), ("2026-11-21T09:00:00Z",) * 2, ("", "")])
def test_times_compare_as_text(text: str, expected: str) -> None:
    assert nodes.seconds_time(text) == expected


@pytest.mark.parametrize(("selector", "count"), [
    pytest.param({}, 4, id="no-label-is-asked-for"),
    pytest.param({"role": ""}, 2, id="an-empty-value"),
    pytest.param({"role": "true"}, 1, id="another-value"),
    pytest.param({"role": "", "zone": "a"}, 1, id="all-labels"),
])
def test_nodes_with_every_label_are_counted(selector: dict[str, str], count: int) -> None:
    labels: list[Any] = [{"role": "", "zone": "a"}, {"role": ""}, {"role": "true"}, None]
    assert nodes.selected([{"metadata": {"name": "n", "labels": own}} for own in labels], selector) == count
