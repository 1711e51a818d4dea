# SPDX-License-Identifier: Apache-2.0
"""The verdict on a DaemonSet, its Pods and a Lease, as the API returns them, and what it cannot judge."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from ansible_collections.outoftree.ccm.plugins.module_utils.facts import health

NOW = datetime(2026, 11, 21, 9, 0, 30, tzinfo=timezone.utc)


def before(seconds: float) -> str:
    return (NOW - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def test_the_newest_event_says_why_a_node_is_kept() -> None:
    def event(uid: str, message: str, **when: str) -> dict[str, Any]:
        return {"involvedObject": {"uid": uid}, "message": message, **when}

    events = [event("1", "new", lastTimestamp="2026-01-01T00:00:02Z"), event("1", "old", lastTimestamp="2026-01-01T00:00:01Z"),
              event("2", "first\n and  more", eventTime="2026-01-01T00:00:00.000001Z"), event("3", "", lastTimestamp="")]
    assert health.held_deletions(events) == {"1": "new", "2": "first and more", "3": ""}
    assert health.held_deletions([]) == {}


@pytest.mark.parametrize(("text", "seconds"), [
    ("2026-11-21T09:00:20Z", 10.0), ("2026-11-21T09:00:20.250000Z", 9.8), ("2026-11-21T09:01:00Z", 0.0), ("2026-11-21T09:00:29.500000Z", 0.5),
    ("yesterday", None), ("", None), (None, None),
])
def test_the_age_of_a_time(text: str | None, seconds: float | None) -> None:
    assert health.age(text, NOW) == seconds


@pytest.mark.parametrize(("spec", "held"), [
    ({"holderIdentity": "x", "renewTime": before(15), "leaseDurationSeconds": 15}, True),
    ({"holderIdentity": "x", "renewTime": before(16), "leaseDurationSeconds": 15}, False),
    ({"holderIdentity": "x", "renewTime": before(16), "leaseDurationSeconds": 60}, True),
    ({"holderIdentity": "x", "renewTime": before(15)}, True),
    ({"holderIdentity": "x", "renewTime": before(16)}, False),
    ({"holderIdentity": "", "renewTime": before(1)}, False),
    ({"holderIdentity": "x"}, False),
    (None, False),
])
def test_a_lease_is_held_until_its_duration_is_over(spec: dict[str, Any] | None, held: bool) -> None:
    found = health.lease_state({"metadata": {}, "spec": spec}, NOW)
    assert found["held"] is held and found["exists"]
    assert found["holder"] == (spec or {}).get("holderIdentity", "") and found["renewed"] == (spec or {}).get("renewTime", "")


def test_only_our_notes_are_read_from_a_lease() -> None:
    noted = {"ccm.outoftree.dev/controllers": "a", "other.example/controllers": "b"}
    assert health.lease_state({"metadata": {"annotations": noted}, "spec": {}}, NOW)["annotations"] == {"controllers": "a"}
    nobody = {"exists": False, "holder": "", "renewed": "", "age": None, "held": False, "annotations": {}}
    assert health.lease_state(None, NOW) == nobody


@pytest.mark.parametrize(("generation", "observed", "expected"), [
    (2, 2, True), (3, 2, False), (None, 2, True), (2, None, False), (1, None, False), (None, None, True),
])
def test_a_rollout_is_observed_when_its_generation_is(generation: int | None, observed: int | None, expected: bool) -> None:
    status = {} if observed is None else {"observedGeneration": observed}
    metadata = {} if generation is None else {"generation": generation}
    template = {"spec": {"containers": [{"image": "ccm:1"}, {"image": "sidecar:2"}]}}
    found = health.daemonset_state({"metadata": metadata, "spec": {"template": template}, "status": status})
    assert found["observed"] is expected
    assert (found["exists"], found["desired"], found["ready"], found["updated"], found["image"]) == (True, 0, 0, 0, "ccm:1")


def test_the_counts_of_a_daemonset() -> None:
    status = {"desiredNumberScheduled": 3, "numberReady": 2, "updatedNumberScheduled": 1}
    found = health.daemonset_state({"metadata": {}, "spec": {"template": {"spec": {"containers": [{}]}}}, "status": status})
    assert (found["desired"], found["ready"], found["updated"], found["image"]) == (3, 2, 1, "")
    assert health.daemonset_state(None) == {"exists": False, "desired": 0, "ready": 0, "updated": 0, "observed": False, "image": ""}


def pod(*containers: dict[str, Any], **status: Any) -> dict[str, Any]:
    return {"metadata": {"name": "p"}, "spec": {"nodeName": "n"}, "status": {"containerStatuses": list(containers), **status}}


WAITING = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 5m"}}
ENDED = {"terminated": {"exitCode": 3, "message": " no cloud.conf \n"}}


@pytest.mark.parametrize(("what", "reason"), [
    (pod({"state": {"running": {}}}), ""),
    (pod({"state": {"running": {}}, "lastState": ENDED}), ""),
    (pod({"state": WAITING}), "CrashLoopBackOff: back-off 5m"),
    (pod({"state": {"waiting": {"reason": "ContainerCreating"}}}), "ContainerCreating"),
    (pod({"state": WAITING, "lastState": ENDED}), "CrashLoopBackOff: back-off 5m; its last message: no cloud.conf"),
    (pod({"state": {"terminated": {"exitCode": 3}}}), "exited with code 3"),
    (pod({"state": ENDED}), "exited with code 3; its last message: no cloud.conf"),
    (pod({"state": ENDED, "lastState": {"terminated": {"message": "older"}}}), "exited with code 3; its last message: older"),
    (pod(phase="Pending"), "Pending"),
    (pod(phase="Running"), ""),
    (pod(phase="Pending", conditions=[{"type": "PodScheduled", "message": "no node fits"}]), "no node fits"),
    (pod({"state": WAITING}, phase="Pending", conditions=[{"type": "PodScheduled", "message": "old"}]), "CrashLoopBackOff: back-off 5m"),
    ({"metadata": {"name": "p"}}, ""),
])
def test_why_a_pod_does_not_run(what: dict[str, Any], reason: str) -> None:
    assert health.pod_state(what)["reason"] == reason


def test_the_state_of_a_pod() -> None:
    what = pod({"restartCount": 2, "state": {"running": {}}}, {"restartCount": 3}, conditions=[{"type": "Ready", "status": "True"}])
    what["metadata"]["deletionTimestamp"] = "2026-11-21T09:00:00Z"
    assert health.pod_state(what) == {"name": "p", "node": "n", "ready": True, "leaving": True, "restarts": 5, "reason": ""}
    bare = {"name": "p", "node": "", "ready": False, "leaving": False, "restarts": 0, "reason": ""}
    assert health.pod_state({"metadata": {"name": "p"}}) == bare
    assert health.pod_state(pod({"state": {"running": {}}}))["restarts"] == 0
    assert not health.pod_state(pod(conditions=[{"type": "Ready", "status": "False"}]))["ready"]


DAEMONSET = {"exists": True, "desired": 2, "ready": 2, "updated": 2, "observed": True, "image": "i"}
PODS = [{"name": f"ccm-{number}", "node": f"cp-{number}", "ready": True, "leaving": False, "restarts": 0, "reason": ""} for number in (1, 2)]


def lease(holder: str, **notes: str) -> dict[str, Any]:
    annotations = {health.ANNOTATION_PREFIX + key.replace("_", "-"): value for key, value in notes.items()}
    spec = {"holderIdentity": holder, "renewTime": before(1)}
    return health.lease_state({"metadata": {"annotations": annotations}, "spec": spec}, NOW)


@pytest.mark.parametrize(("holder", "ours"), [
    ("cp-2_0123", True), ("ccm-1_0123", True), ("cp-1.example.com_0123", True), ("ccm-2", True), ("cp_0123", True), ("other_0123", False),
    ("a_cp-1_0123", False), ("cp_x_0123", False), ("cp-1_a_0123", True),
])
def test_whose_an_identity_is(holder: str, ours: bool) -> None:
    assert health.judge(DAEMONSET, PODS, lease(holder), NOW)["healthy"] is ours


def test_a_pod_that_leaves_holds_nothing_and_need_not_be_ready() -> None:
    leaving = [{**PODS[0], "leaving": True, "ready": False}, PODS[1]]
    assert not health.judge(DAEMONSET, leaving, lease("cp-1_0123"), NOW)["healthy"]
    assert health.judge(DAEMONSET, leaving, lease("cp-2_0123"), NOW)["healthy"]


def test_the_notes_of_another_leader_say_nothing_about_a_standby() -> None:
    held = lease("other_0123", controllers="a", cloud_provider="sim")
    found = health.judge(DAEMONSET, PODS, held, NOW, ["b"], leads=False)
    assert found["healthy"] and len(found["unjudged"]) == len(health.NOTES)


def test_without_pods_or_a_daemonset_the_holder_is_not_judged() -> None:
    assert health.judge(DAEMONSET, [], lease("other_0123"), NOW)["reasons"] == []
    absent = health.judge(health.daemonset_state(None), PODS, lease("other_0123"), NOW)
    assert len(absent["reasons"]) == 1 and "DaemonSet" in absent["reasons"][0]


def test_a_pod_without_a_reason_fails_its_probe() -> None:
    pods = [{**PODS[0], "ready": False}, PODS[1]]
    (reason,) = health.judge(DAEMONSET, pods, lease("cp-2_0123"), NOW)["reasons"]
    assert "ccm-1" in reason and "probe" in reason


@pytest.mark.parametrize(("seconds", "limit", "healthy"), [(600, 600, True), (601, 600, False), (601, 0, True)])
def test_the_last_call_to_the_cloud_may_be_so_old(seconds: float, limit: float, healthy: bool) -> None:
    held = lease("cp-1_0123", cloud_provider="sim", last_cloud_success=before(seconds))
    assert health.judge(DAEMONSET, PODS, held, NOW, max_cloud_age=limit)["healthy"] is healthy


def test_each_missing_count_is_a_reason() -> None:
    short = {**DAEMONSET, "ready": 1, "updated": 1, "observed": False}
    assert len(health.judge(short, PODS, lease("cp-1_0123"), NOW)["reasons"]) == 3
    assert len(health.judge({**DAEMONSET, "desired": 0}, [], lease("cp-1_0123"), NOW)["reasons"]) == 1
    assert health.judge({**DAEMONSET, "desired": 1}, PODS, lease("cp-1_0123"), NOW)["healthy"]


def controller(*args: str, env: Any = None, sidecar: bool = False) -> dict[str, Any]:
    own = {"name": "cloud-controller-manager", "image": "localhost/outoftree-ccm:1", "args": list(args), "env": env or []}
    others = [{"name": "proxy", "image": "proxy:1", "args": ["--load-balancer-class=proxy/its-own"]}] if sidecar else []
    return {"metadata": {"name": "cloud-controller-manager"}, "spec": {"template": {"spec": {"containers": [*others, own]}}}}


@pytest.mark.parametrize(("daemonset", "served", "left"), [
    (None, ["", ], ["example.com/fast"]),
    (controller("--cloud-provider=sim"), [""], ["example.com/fast"]),
    (controller("--load-balancer-class=example.com/fast,internal=sim"), ["", "example.com/fast", "internal"], ["slow", "sim"]),
    (controller("--load-balancer-class", "example.com/fast", "--load-balancer-class=internal"), ["", "example.com/fast", "internal"], ["slow"]),
    (controller("--load-balancer-class=fast", "--default-load-balancer-provider=none"), ["fast"], ["", "slow"]),
    (controller("--load-balancer-class=fast", "--default-load-balancer-provider=sim"), ["", "fast"], ["slow"]),
    (controller("--load-balancer-class=$(FAST)", env=[{"name": "FAST", "value": "example.com/fast"}]), ["example.com/fast"], ["$(FAST)"]),
    (controller("--load-balancer-class=fast", sidecar=True), ["", "fast"], ["proxy/its-own"]),
])
def test_the_flags_say_which_services_are_the_controllers(daemonset: Any, served: list[str], left: list[str]) -> None:
    found = health.served_classes(daemonset)
    assert [health.serves(found, name) for name in served + left] == [True] * len(served) + [False] * len(left)


@pytest.mark.parametrize(("flags", "configuration", "served", "left"), [
    ([], {"load-balancer-class": ["example.com/fast", "internal=sim"]}, ["", "example.com/fast", "internal"], ["sim"]),
    ([], {"load-balancer-class": ["fast"], "default-load-balancer-provider": "none"}, ["fast"], [""]),
    (["--load-balancer-class=slow"], {"load-balancer-class": ["fast"], "default-load-balancer-provider": "none"}, ["slow"], ["", "fast"]),
    (["--default-load-balancer-provider=sim"], {"load-balancer-class": ["fast"], "default-load-balancer-provider": "none"}, ["", "fast"], []),
    ([], {"load-balancer-class": None, "orphan-audit-period": "10m"}, [""], ["fast"]),
    ([], None, [""], ["fast"]),
])
def test_the_file_of_options_says_it_where_no_flag_does(flags: list[str], configuration: Any, served: list[str], left: list[str]) -> None:
    found = health.served_classes(controller("--config=/etc/ccm/options.yaml", *flags), configuration)
    assert [health.serves(found, name) for name in served + left] == [True] * len(served) + [False] * len(left)


OF_MAP = {"name": "options", "configMap": {"name": "ccm-options"}}


@pytest.mark.parametrize(("path", "volume", "mount", "place"), [
    ("/etc/ccm/options.yaml", OF_MAP, {"mountPath": "/etc/ccm"}, ("configmaps", "ccm-options", "options.yaml")),
    ("/etc/ccm/options.yaml", OF_MAP, {"mountPath": "/etc/ccm/"}, ("configmaps", "ccm-options", "options.yaml")),
    ("/etc/ccm/options.yaml", OF_MAP, {"mountPath": "/etc/ccm/options.yaml", "subPath": "all.yaml"}, ("configmaps", "ccm-options", "all.yaml")),
    ("/etc/ccm/options.yaml", {"name": "options", "configMap": {"name": "m", "items": [{"key": "k", "path": "options.yaml"}]}},
     {"mountPath": "/etc/ccm"}, ("configmaps", "m", "k")),
    ("/etc/ccm/options.yaml", {"name": "options", "secret": {"secretName": "s"}}, {"mountPath": "/etc/ccm"}, ("secrets", "s", "options.yaml")),
    ("/etc/ccm/options.yaml", {"name": "options", "hostPath": {"path": "/srv"}}, {"mountPath": "/etc/ccm"}, None),
    ("/etc/ccm-other/options.yaml", OF_MAP, {"mountPath": "/etc/ccm"}, ("secrets", "c", "ccm-other/options.yaml")),
    ("/opt/ccm/options.yaml", OF_MAP, {"mountPath": "/etc/ccm"}, None),
    ("", OF_MAP, {"mountPath": "/etc/ccm"}, None),
])
def test_which_object_has_the_file_of_a_flag(path: str, volume: Any, mount: Any, place: Any) -> None:
    daemonset = controller(*([f"--config={path}"] if path else []))
    pod_spec = daemonset["spec"]["template"]["spec"]
    pod_spec["volumes"] = [{"name": "cloud-config", "secret": {"secretName": "c"}}, volume]
    # A parent folder is a mount, too: the nearest mount counts.
    pod_spec["containers"][0]["volumeMounts"] = [{"name": "cloud-config", "mountPath": "/etc"}, {"name": "options", **mount}]
    assert health.mounted_file(daemonset, "config") == place
    assert health.mounted_file(None, "config") is None


def test_only_services_of_the_controller_wait_for_it() -> None:
    rows: Any = [{"name": "a", "ours": True, "ingress": []}, {"name": "b", "ours": True, "ingress": ["x"]}, {"name": "c", "ours": False, "ingress": []}]
    assert [row["name"] for row in health.without_address(rows)] == ["a"]


@pytest.mark.parametrize(("noted", "reason"), [
    ({"cloud-provider": "sim"}, "no call to the cloud has succeeded yet"),
    ({"cloud-provider": "sim", "last-cloud-success": "2026-11-21T09:00:20Z"}, ""),
    ({"cloud-provider": "sim,static", "last-cloud-success": "", "last-cloud-success.sim": "2026-11-21T09:00:20Z", "last-cloud-success.static": ""},
     "no call to the cloud static has succeeded yet"),
    ({"cloud-provider": "sim,static", "last-cloud-success": "2026-11-21T09:00:20Z"}, ""),
])
def test_each_of_several_clouds_must_have_answered(noted: dict[str, str], reason: str) -> None:
    daemonset = {"exists": True, "observed": True, "desired": 1, "ready": 1, "updated": 1, "image": ""}
    lease = {"exists": True, "holder": "a_1", "renewed": "", "age": 1.0, "held": True, "annotations": noted}
    found = health.judge(daemonset, [], lease, NOW)
    assert found["reasons"] == ([reason] if reason else [])
