# SPDX-License-Identifier: Apache-2.0
"""What `ccm explain node` concludes from a Node, a Lease and Events."""

import datetime

import msgspec
import pytest

from ccm import cli
from ccm.commands.asking.explanation import Event
from ccm.commands.asking.question_flags import default_kubeconfig
from ccm.commands.explain.explain_node import explain
from ccm.engine.objects import Lease, Node

NOW = datetime.datetime(2026, 11, 1, 12, 0, 0, tzinfo=datetime.UTC)
WAITS = {"key": "node.cloudprovider.kubernetes.io/uninitialized", "effect": "NoSchedule"}
SHUT_DOWN = {"key": "node.cloudprovider.kubernetes.io/shutdown", "effect": "NoSchedule"}


def before(seconds):
    return (NOW - datetime.timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def node(*taints, ready="True", provider_id="sim://north/1", **meta):
    return msgspec.convert(
        {
            "metadata": {"name": "w1", "uid": "u1", "creationTimestamp": before(720), **meta},
            "spec": {"providerID": provider_id, "taints": list(taints)},
            "status": {"conditions": [{"type": "Ready", "status": ready, "reason": "KubeletReady"}] if ready else []},
        },
        Node,
    )


def lease(renewed=1, holder="ccm-a_1", **annotations):
    told = {f"ccm.outoftree.dev/{name.replace('_', '-')}": value for name, value in annotations.items()}
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": before(renewed)}
    return msgspec.convert({"metadata": {"name": "x", "annotations": told}, "spec": spec}, Lease)


def event(reason, message, seconds=12, *, count=1, component="cloud-node-controller", uid="u1"):
    wire = {
        "reason": reason,
        "message": message,
        "count": count,
        "lastTimestamp": before(seconds),
        "source": {"component": component},
        "involvedObject": {"uid": uid},
    }
    return msgspec.convert(wire, Event)


def text(judged, led_by=None, *events):
    return "\n".join(explain(judged, led_by, events, "kube-system/ccm", NOW))


def test_a_tainted_node_with_its_reason():
    found = text(
        node(WAITS, ready="False", provider_id=""),
        lease(cloud_provider="sim", controllers="cloud-node-controller", last_cloud_success=before(3)),
        event("CloudNotAvailable", "old", 500),
        event("InstanceNotFound", "the cloud lists no instance named 'w1'", 12, count=14),
        event("NodeNotReady", "kubelet", 1, component="node-controller"),
        event("InitializationFailed", "of its predecessor", 2, uid="u0"),
    )
    assert "Ready=False (KubeletReady), created 12 min ago" in found
    assert "providerID: none yet" in found
    waits = found.partition("waits for its initialisation")[2].splitlines()[1]
    assert waits == "  InstanceNotFound (12 s ago, 14 times): the cloud lists no instance named 'w1'"
    assert "ccm-a_1, which renewed the Lease kube-system/ccm 1 s ago" in found
    assert "provider sim; the cloud last answered it 3 s ago" in found
    assert "it does not run cloud-node-lifecycle-controller (--controllers)" in found
    assert "kubelet" not in found.split("Events about it")[1] and "predecessor" not in found


def test_a_tainted_node_about_which_nothing_was_told():
    assert "No Event gives the reason" in text(node(WAITS, ready=None))


@pytest.mark.parametrize(
    ("led_by", "conclusion"),
    [
        (None, "No controller has ever led: the Lease kube-system/ccm is missing"),
        (lease(holder=""), "No controller leads: the Lease kube-system/ccm was released, 1 s ago"),
        (lease(renewed=7300), "ccm-a_1 renewed the Lease kube-system/ccm 2 h ago, which is valid for 15 s"),
        (lease(cloud_provider="sim"), "the cloud last answered it never, or it does not report it"),
        (lease(), "it does not describe itself in the Lease, so it is another cloud-controller-manager"),
    ],
)
def test_who_should_look_after_it(led_by, conclusion):
    assert conclusion in text(node(WAITS), led_by)


def test_a_node_that_is_held():
    message = "the instances of 9 Nodes are gone"
    found = text(node(ready="Unknown"), lease(), event("DeletionHeld", message, component=LIFECYCLE))
    assert f"  DeletionHeld (12 s ago): {message}" in found


LIFECYCLE = "cloud-node-lifecycle-controller"


def test_a_node_that_waits_for_its_turn():
    """Waiting is not an alarm, but it explains why the Node still exists. The newest Event counts."""
    message = "its instance sim://north/1 is gone; the Node goes in its turn: 3 other Nodes were deleted or go first"
    events = [
        event("DeletionWaits", message, component=LIFECYCLE),
        event("DeletionHeld", "the listing is not believed", 700, component=LIFECYCLE),
    ]
    found = text(node(ready="Unknown"), lease(), *events).partition("It is deleted if")[2].splitlines()[1]
    assert found == f"  DeletionWaits (12 s ago): {message}"


def test_a_node_that_is_not_held():
    assert "Nothing holds it: the instance exists" in text(node(ready="Unknown"), lease())


def test_a_ready_node_whose_instance_vanished():
    found = text(node(), lease(), event("InstanceNotListed", "the cloud lists no instance sim://north/1"))
    assert "a Ready Node is never deleted" in found
    assert "  InstanceNotListed (12 s ago): the cloud lists no instance sim://north/1" in found


def test_a_node_of_a_stopped_instance_and_one_on_its_way_out():
    assert "Its instance is shut down" in text(node(SHUT_DOWN, ready="Unknown"))
    found = text(node(ready="False", deletionTimestamp=before(5), finalizers=["example.com/x"]))
    assert "waits for its finalizers: example.com/x" in found


def test_a_ready_node_has_nothing_to_explain():
    found = text(node(), lease())
    assert "Events about it" not in found and "waits" not in found


def test_where_the_kubeconfig_is_looked_for(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    assert default_kubeconfig() == ""
    config = tmp_path / ".kube" / "config"
    config.parent.mkdir()
    config.touch()
    assert default_kubeconfig() == str(config)
    other = tmp_path / "other"
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/nowhere:{other}")
    assert default_kubeconfig() == f"{tmp_path}/nowhere"  # named by the user, so a missing file is reported
    other.touch()
    assert default_kubeconfig() == str(other)


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["explain", "node", "w1", "--kubeconfig", "/nowhere/config"], 2, "/nowhere/config"),
        (["plan", "--cloud-provider=sim", "--kubeconfig=/nowhere/config"], 2, "/nowhere/config"),
    ],
)
def test_mistakes_get_one_line(arguments, status, message, capsys):
    assert cli.main(arguments) == status
    error = capsys.readouterr().err
    assert message in error and "Traceback" not in error and error.count("\n") == 1


@pytest.mark.threat("tenant-cannot-stop-the-controller")
def test_what_kubelets_write_directs_no_terminal():
    hostile = "\x1b[2Jall is well\u202e\nproviderID: forged" + "a" * 10**6
    found = msgspec.structs.replace(
        node(WAITS, ready="False"),
        spec=msgspec.convert({"providerID": hostile, "taints": [WAITS]}, type(node().spec)),
    )
    lines = explain(found, None, [event("InstanceNotFound", hostile)], "kube-system/ccm", NOW)
    assert all(line.isprintable() and len(line) < 2100 for line in lines)
    assert not any(line.startswith("providerID: forged") for line in lines)


@pytest.mark.parametrize("when", ["2026-01-01", "x", "2026-01-01T00:00:00", "9999-12-31T23:59:59-23:59"])
def test_a_time_that_cannot_be_read_is_unknown(when):
    found = msgspec.convert({"metadata": {"name": "w1", "uid": "u1", "creationTimestamp": when}}, Node)
    assert "created at an unknown time" in text(found) or when.startswith("9999")


OUT_OF_SERVICE = {"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute", "timeAdded": before(60)}


@pytest.mark.parametrize(
    ("annotations", "words"),
    [
        ({"ccm.outoftree.dev/out-of-service-since": before(60)}, "until the machine runs again"),
        ({}, "Somebody else added it"),
    ],
)
def test_a_node_that_is_fenced_says_by_whom(annotations, words):
    found = text(node(OUT_OF_SERVICE, ready="Unknown", annotations=annotations), lease())
    assert "the taint node.kubernetes.io/out-of-service" in found and words in found


def test_a_node_that_is_not_fenced_says_why():
    message = "the Node is not fenced: only 1 of 9 Nodes are Ready"
    told = event("FencingHeld", message, component=LIFECYCLE)
    assert f"  FencingHeld (12 s ago): {message}" in text(node(SHUT_DOWN, ready="Unknown"), lease(), told)
    assert "FencingHeld" not in text(node(), lease(), told).partition("Events about it")[0]
