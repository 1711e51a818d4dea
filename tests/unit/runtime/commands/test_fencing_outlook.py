# SPDX-License-Identifier: Apache-2.0
"""What the commands say about fencing, from Nodes and one listing of the cloud."""

import pytest

from ccm.cloud import InstanceState, Transient
from ccm.commands.asking.answers import Action
from ccm.commands.outlooks.fencing_outlook import FLAG, fencing_outlooks
from ccm.commands.outlooks.node_outlook import merged, shutdown_outlook
from ccm.controllers.nodes.node_fencing_rules import EFFECT, KEY, SINCE
from ccm.controllers.nodes.node_lifecycle import LifecycleOptions
from ccm.controllers.nodes.node_lifecycle_rules import Window

from .looks import NOW, instance, judging, node

OFF = InstanceState.SHUTDOWN
STAMP = "2026-11-01T11:00:00Z"
TAINT = {"key": KEY, "effect": EFFECT, "timeAdded": STAMP}
READY = [node(f"w{number}", f"sim://w{number}") for number in range(1, 5)]
MACHINES = [instance(f"w{number}") for number in range(1, 5)]


def fences(*nodes, machines=(), fence=True, windows=(), singles=(), **snapshot):
    view = judging([*nodes, *READY], [*machines, *MACHINES], singles, **snapshot)
    return fencing_outlooks(view, LifecycleOptions(fence=fence), windows, NOW)


def dead(name="x", *taints, ready="Unknown", **more):
    return node(name, f"sim://{name}", *taints, ready=ready, **more)


@pytest.mark.parametrize("machines", [[instance("x", state=OFF)], []], ids=["shut-down", "gone"])
def test_a_node_whose_machine_is_dead_is_fenced_with_the_flag_alone(machines):
    said = fences(dead(), machines=machines)["x"]
    assert (said.action, said.changes) == (Action.UPDATE, [f"taint {KEY} is added"])
    assert (said.flag, said.when) == (FLAG, "after 2 reads, 5s apart")
    assert fences(dead(), machines=machines, fence=False) == {}


@pytest.mark.parametrize(
    ("judged", "machines", "singles"),
    [
        (dead(ready="True"), [instance("x", state=OFF)], {}),
        (dead(), [instance("x")], {}),
        (dead(), [], {"x": instance("x")}),
        (dead(), [], {"x": Transient("500")}),
        (dead("x", TAINT), [instance("x", state=OFF)], {}),
        (node("x", "k3s://x", ready="Unknown"), [], {}),
        (node("x", "", ready="Unknown"), [instance("x", state=OFF)], {}),
    ],
    ids=["ready", "runs", "a-look-finds-it", "no-answer", "fenced-by-hand", "foreign", "no-provider-id"],
)
def test_others_are_not(judged, machines, singles):
    assert fences(judged, machines=machines, singles=singles) == {}


def test_what_holds_it_is_named():
    said = fences(dead(), machines=[instance("x", state=OFF), instance("x", provider_id="sim://other")])["x"]
    assert (said.action, said.reason) == (Action.BLOCKED, "OtherMachine") and "sim://other" in said.because
    young = fences(dead(age=60), machines=[instance("x", state=OFF)])["x"]
    assert (young.action, young.reason) == (Action.WAIT, "TooYoung")


def test_several_at_once_and_what_former_leaders_did_count():
    names = ("x", "y", "z")
    said = fences(*map(dead, names), machines=[instance(name, state=OFF) for name in names])
    assert {each.reason for each in said.values()} == {"MassEvent"}
    window = Window(180.0)
    window.recall('{"2026-11-01T11:59:00Z":2}', 0.0, NOW)
    assert fences(dead(), machines=[instance("x", state=OFF)], windows=[window])["x"].reason == "MassEvent"


@pytest.mark.parametrize("fence", [True, False])
@pytest.mark.parametrize("ready", ["True", "Unknown"])
def test_our_taint_goes_when_the_machine_runs(ready, fence):
    ours = dead("x", TAINT, ready=ready, annotations={SINCE: STAMP})
    said = fences(ours, machines=[instance("x")], fence=fence)["x"]
    assert (said.action, said.changes) == (Action.UPDATE, [f"taint {KEY} is removed"])
    assert fences(ours, machines=[instance("x", state=OFF)], fence=fence) == ({} if ready == "Unknown" else {"x": said})


def test_a_node_that_gets_the_other_taint_says_what_holds_this_one():
    off = instance("x", state=OFF)
    found = dead(age=60)
    said = merged(shutdown_outlook(found, off, LifecycleOptions()), fences(found, machines=[off])["x"])
    assert said.action is Action.UPDATE and len(said.changes) == 1 and "60 s old" in said.notes[0]
