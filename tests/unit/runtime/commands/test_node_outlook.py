# SPDX-License-Identifier: Apache-2.0
"""What the node controllers would do according to the commands, from Nodes and one listing of the cloud."""

import pytest

from ccm.cloud import Instance, InstanceState, NotFound, Transient
from ccm.commands.asking.answers import Action
from ccm.commands.outlooks.lifecycle_outlook import lifecycle_outlooks
from ccm.commands.outlooks.node_outlook import (
    initialised,
    kept_labels,
    merged,
    node_outlook,
    one_each,
    shutdown_outlook,
)
from ccm.controllers.nodes import node_rules
from ccm.controllers.nodes.node import NodeOptions
from ccm.controllers.nodes.node_label_rules import RECORD, Refresh
from ccm.controllers.nodes.node_lifecycle import LifecycleOptions
from ccm.controllers.nodes.node_lifecycle_rules import Safety, Window

from .looks import NOW, SHUT_DOWN, TAINT, instance, judging, node

OPTIONS = NodeOptions(legacy_labels=False)
ZONE = "topology.kubernetes.io/zone"


def look(judged, *instances, options=OPTIONS, others=(), **snapshot):
    return node_outlook(judged, judging([judged, *others], instances, **snapshot), options, "sim")


@pytest.mark.parametrize(
    ("judged", "instances", "action", "reason", "words"),
    [
        (node("w1", "", TAINT), [instance("w1")], Action.UPDATE, "", "it is instance sim://w1"),
        (node("w1", "", TAINT), [instance("w-1")], Action.BLOCKED, "InstanceNotFound", "no instance named 'w1'"),
        (node("w1", "", TAINT), [], Action.UNKNOWN, "CloudNotAvailable", "no instances at all"),
        (
            node("w1", "", TAINT),
            [instance("w1", provider_id="sim://a"), instance("w1", provider_id="sim://b")],
            Action.BLOCKED,
            "CloudNotAvailable",
            "2 instances are named 'w1'",
        ),
        (node("w1", "k3s://w1", TAINT), [instance("w1")], Action.BLOCKED, "ForeignProviderID", "provider 'sim'"),
        (
            node("w1", "sim://x", TAINT),
            [instance("w1"), instance("x")],
            Action.BLOCKED,
            "OtherMachine",
            "instance sim://w1 has the Node's name",
        ),
        (
            node("w1", "", TAINT),
            [instance("w1", incomplete="its guest tools are silent")],
            Action.BLOCKED,
            "InstanceIncomplete",
            "its guest tools are silent",
        ),
        (
            node("w1", "", TAINT, annotations={node_rules.PROVIDED_NODE_IP: "192.0.2.1"}),
            [instance("w1")],
            Action.BLOCKED,
            "InitializationFailed",
            "--node-ip 192.0.2.1",
        ),
        (node("w1", "sim://w1", address="10.0.0.1"), [instance("w1")], Action.NOTHING, "", "sim://w1 has"),
        (node("w1", "sim://w1", address="10.0.0.9"), [instance("w1")], Action.UPDATE, "", "differs"),
        (
            node("w1", "sim://gone"),
            [instance("w1")],
            Action.BLOCKED,
            "InstanceNotListed",
            "sim://w1 has the Node's name",
        ),
        (node("w1", "k3s://w1"), [instance("w1")], Action.NOTHING, "ForeignProviderID", "not one of this provider's"),
        (node("w1"), [instance("w1")], Action.BLOCKED, "NoProviderID", "neither a providerID nor the taint"),
        (node("w1", deletionTimestamp="2026-11-01T00:00:00Z"), [], Action.NOTHING, "", "being deleted"),
    ],
)
def test_outlooks(judged, instances, action, reason, words):
    said = look(judged, *instances)
    assert (said.action, said.reason) == (action, reason)
    assert words in said.because
    assert bool(said.changes) is (action is Action.UPDATE)


def test_what_is_written_is_what_the_rules_plan():
    said = look(node("w1", "", TAINT, labels={ZONE: "b"}), instance("w1", zone="a", region="r", type="t"))
    assert said.changes == [
        "status.addresses: none -> InternalIP 10.0.0.1",
        "spec.providerID: none -> sim://w1",
        f"taint {TAINT['key']} is removed",
        "label node.kubernetes.io/instance-type: none -> t",
        "label topology.kubernetes.io/region: none -> r",
        f"label {ZONE}: b -> a",
    ]


def test_similar_names_are_named_unless_the_node_names_its_instance():
    assert look(node("worker-1", "", TAINT), instance("Worker-01")).notes == ["similar names in the cloud: Worker-01"]
    assert look(node("worker-1", "sim://x", TAINT), instance("worker-01")).notes == []


def test_two_nodes_of_one_instance():
    first, second = node("w1", "sim://w1", TAINT), node("w2", "sim://w1", TAINT, age=10)
    said = look(second, instance("w1"), others=[first])
    assert (said.action, said.reason) == (Action.BLOCKED, "SameProviderID")


def test_a_part_of_the_cloud_that_cannot_be_asked_decides_nothing():
    said = look(node("w1", "", TAINT), instance("w2"), unreachable="vCenter b")
    assert said.action is Action.UNKNOWN and "vCenter b" in said.because and "ccm doctor" in said.to_do


def test_labels_that_are_kept_are_named_with_the_flag_that_overwrites_them():
    found, machine = node("w1", "sim://w1", address="10.0.0.1", labels={ZONE: "b"}), instance("w1", zone="a")
    said = look(found, machine)
    assert said.action is Action.NOTHING
    (note,) = said.notes
    assert note.startswith(f"label {ZONE} is 'b', the instance's value is 'a'") and "--refresh-node-labels" in note
    overwriting = NodeOptions(legacy_labels=False, refresh_labels=Refresh.ALWAYS)
    assert look(found, machine, options=overwriting).changes == [f"label {ZONE}: b -> a"]
    assert kept_labels(found, machine, overwriting) == []


@pytest.mark.parametrize("refresh", Refresh)
def test_a_label_with_a_value_of_somebody_elses_is_named(refresh):
    machine = Instance("sim://w1", "w1", addresses=(), labels={"rack": "5", "row": "1"})
    options = NodeOptions(legacy_labels=False, refresh_labels=refresh)
    by_hand = node("w1", "sim://w1", labels={"rack": "4", "row": "1"}, annotations={RECORD: '{"rack":"3","row":"1"}'})
    (note,) = kept_labels(by_hand, machine, options)
    assert note.startswith("label rack is '4', the instance's value is '5'") and "no record" in note
    ours = node("w1", "sim://w1", labels={"rack": "4", "row": "1"}, annotations={RECORD: '{"rack":"4","row":"1"}'})
    assert [text for text in kept_labels(ours, machine, options) if "no record" in text] == []


def test_addresses_that_cannot_be_written_keep_what_else_is_written():
    found = node("w1", "sim://w1", annotations={node_rules.PROVIDED_NODE_IP: "192.0.2.1"})
    said = look(found, instance("w1", zone="a"))
    assert (said.action, said.reason, said.changes) == (
        Action.BLOCKED,
        "AddressesNotUpdated",
        [f"label {ZONE}: none -> a"],
    )


def test_load_balancers_and_routes_see_nodes_after_their_initialisation():
    found = node("w1", "", TAINT, SHUT_DOWN)
    view = judging([found], [instance("w1", zone="a")])
    after = initialised(found, view, OPTIONS)
    assert (after.spec.provider_id, [taint.key for taint in after.spec.taints]) == ("sim://w1", [SHUT_DOWN["key"]])
    assert after.metadata.labels == {ZONE: "a"} and after.status.addresses[0].address == "10.0.0.1"
    blocked = node("w9", "", TAINT)
    assert initialised(blocked, judging([blocked], [instance("w1")]), OPTIONS) is blocked


@pytest.mark.parametrize(
    ("judged", "state", "change"),
    [
        (node("w1", "sim://w1", ready="Unknown"), InstanceState.SHUTDOWN, "is added"),
        (node("w1", "sim://w1", SHUT_DOWN, ready="Unknown"), InstanceState.SHUTDOWN, None),
        (node("w1", "sim://w1", SHUT_DOWN), InstanceState.RUNNING, "is removed"),
        (node("w1", "sim://w1", ready="Unknown"), InstanceState.RUNNING, None),
    ],
)
def test_the_taint_of_a_machine_that_is_shut_down(judged, state, change):
    said = shutdown_outlook(judged, instance("w1", state=state), LifecycleOptions())
    assert (said is None) == (change is None)
    if said is not None:
        assert said.changes == [f"taint {SHUT_DOWN['key']} {change}"] and said.when == "within 5s"


# Deletion.

GONE = NotFound("the cloud says that it does not exist")
CLUSTER = [node(f"r{number}", f"sim://r{number}") for number in range(8)]
MACHINES = [instance(f"r{number}") for number in range(8)]


def deletions(*gone, singles=None, safety=None, window=None, nodes=CLUSTER, machines=MACHINES):
    answers = {each.metadata.name: GONE for each in gone} if singles is None else singles
    view = judging([*nodes, *gone], machines, answers)
    return lifecycle_outlooks(view, safety or Safety(), window or Window(180.0), NOW)


def lost(name="x", **more):
    return node(name, f"sim://{name}", ready="Unknown", **more)


def test_a_node_whose_machine_is_gone_is_deleted_after_the_confirmations():
    said = deletions(lost())["x"]
    assert (said.action, said.when) == (Action.DELETE, "after 2 reads, 5s apart")
    assert said.flag == "--node-deletion-confirmations=2 --node-monitor-period=5s"


@pytest.mark.parametrize(
    ("gone", "safety", "action", "reason", "flag"),
    [
        (lost(age=60), Safety(), Action.WAIT, "TooYoung", "--node-deletion-min-age=5m0s"),
        (lost(), Safety(cap_share=0, cap_min=0), Action.BLOCKED, "TurnedOff", "--node-deletion-cap=0"),
        (node("x", ready="Unknown"), Safety(), Action.BLOCKED, "NoProviderID", ""),
    ],
)
def test_what_holds_a_deletion_is_named_with_its_flag(gone, safety, action, reason, flag):
    said = deletions(gone, safety=safety)["x"]
    assert (said.action, said.reason, said.flag) == (action, reason, flag)


def test_the_oldest_go_first_and_the_cap_holds_the_others():
    gone = [lost(f"x{number}", age=1000 + number) for number in range(4)]
    said = deletions(*gone)
    assert {name: each.action for name, each in said.items()} == {
        "x3": Action.DELETE,
        "x2": Action.DELETE,
        "x1": Action.WAIT,
        "x0": Action.WAIT,
    }
    assert said["x0"].reason == "RateLimited" and "--node-deletion-window=3m0s" in said["x0"].flag


def test_deletions_of_former_leaders_count():
    window = Window(180.0)
    window.recall('{"2026-11-01T11:59:00Z":2}', 0.0, NOW)
    assert deletions(lost(), window=window)["x"].reason == "RateLimited"


def test_a_listing_that_ready_nodes_contradict_deletes_nothing():
    said = deletions(lost(), machines=MACHINES[:3])["x"]
    assert (said.action, said.reason, said.flag) == (Action.BLOCKED, "ListingDoubted", "--cloud-config")


@pytest.mark.parametrize(
    ("answer", "words"),
    [(instance("x"), "returns it when asked for it"), (Transient("504"), "could not say whether its instance exists")],
)
def test_the_last_read_must_agree(answer, words):
    said = deletions(lost(), singles={"x": answer})["x"]
    assert said.action is Action.UNKNOWN and words in said.because


def test_nodes_that_are_ready_initialising_or_foreign_are_not_asked_about():
    others = [node("a", "sim://a"), node("b", "", TAINT, ready="Unknown"), node("c", "k3s://c", ready="Unknown")]
    assert deletions(*others) == {}


def test_two_controllers_may_act_on_one_node():
    update = look(node("w1", "", TAINT), instance("w1"))
    other = shutdown_outlook(
        node("w1", "sim://w1", ready="Unknown"), instance("w1", state=InstanceState.SHUTDOWN), LifecycleOptions()
    )
    assert merged(update, other).changes == [*update.changes, *other.changes]
    assert merged(look(node("w1", "sim://w1", address="10.0.0.1"), instance("w1")), other).action is Action.UPDATE
    assert len(one_each([update, other])) == 1
