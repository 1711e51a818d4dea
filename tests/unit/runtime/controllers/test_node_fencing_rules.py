# SPDX-License-Identifier: Apache-2.0
"""Every single rule of fencing at its boundary, and who owns a taint."""

import msgspec
import pytest

from ccm.cloud import Conflict, Instance, InstanceState, NotFound, Transient
from ccm.controllers.nodes import node_fencing_rules as rules
from ccm.controllers.nodes.node_lifecycle_rules import Missing, Safety
from ccm.controllers.nodes.node_witness_rules import Absence, Evidence
from ccm.engine.objects import Node
from ccm.gateway.instance_snapshot import Snapshot

SAFETY = Safety()
STAMP = "2026-11-01T12:00:00Z"
OURS = {"key": rules.KEY, "value": rules.VALUE, "effect": rules.EFFECT, "timeAdded": STAMP}


def node(name="n0", *taints, ready="Unknown", annotations=(), provider_id="", created="2026-01-01T00:00:00Z"):
    meta = {"name": name, "uid": f"uid-{name}", "resourceVersion": "7", "creationTimestamp": created}
    return msgspec.convert(
        {
            "metadata": {**meta, "annotations": dict(annotations)},
            "spec": {"providerID": provider_id or f"fake://{name}", "taints": list(taints)},
            "status": {"conditions": [{"type": "Ready", "status": ready}]},
        },
        Node,
    )


def machine(name="n0", state=InstanceState.SHUTDOWN, provider_id="", **more):
    return Instance(provider_id or f"fake://{name}", name, state=state, **more)


def running(*names):
    return [machine(name, InstanceState.RUNNING) for name in names]


OTHERS = [node(f"n{number}", ready="True") for number in range(1, 5)]
MACHINES = running("n1", "n2", "n3", "n4")


def judge(
    fenced=None, *machines, nodes=OTHERS, evidence=None, confirmed=2, age=300.0, others=0, safety=SAFETY, **snapshot
):
    """Return the objection to fencing n0, one of five Nodes. By default its machine is shut down, the others Ready."""
    fenced = fenced or node()
    listing = Snapshot.of([*MACHINES, *(machines or [machine()])], 0.0, 1, **snapshot)
    evidence = evidence or Evidence(listed=4, known=5)
    scene = rules.Scene([fenced, *nodes], listing, evidence)
    dead = Missing("uid-n0", fenced.spec.provider_id, confirmed)
    facts = {"age": age, "last_seen": None, "others": others, "now": 1000.0, "safety": safety}
    return rules.objection(fenced, dead, scene, **facts)


def reason(*arguments, **facts):
    objection = judge(*arguments, **facts)
    return objection.reason if objection else ""


GONE = machine("elsewhere")  # n0 is not listed


def test_all_rules_fulfilled():
    assert judge() is None
    assert judge(None, GONE) is None


@pytest.mark.parametrize(
    ("answer", "dead"),
    [
        (machine(), True),
        (NotFound("gone"), True),
        (machine(state=InstanceState.RUNNING), False),
        (Transient("500"), False),
        (Conflict("two"), False),
    ],
)
def test_what_says_that_a_machine_is_dead(answer, dead):
    assert rules.is_dead(answer) is dead


@pytest.mark.parametrize(("confirmed", "expected"), [(0, "Unconfirmed"), (1, "Unconfirmed"), (2, ""), (3, "")])
def test_confirmations(confirmed, expected):
    assert reason(confirmed=confirmed) == expected


@pytest.mark.parametrize(("age", "expected"), [(0.0, "TooYoung"), (299.9, "TooYoung"), (300.0, "")])
def test_age(age, expected):
    assert reason(age=age) == expected


@pytest.mark.parametrize("state", InstanceState)
@pytest.mark.parametrize("own", [machine(), GONE], ids=["shut-down", "gone"])
def test_another_machine_of_the_same_name_may_be_the_nodes(own, state):
    other = machine("n0", state, "fake://other")
    objection = judge(None, own, other)
    assert objection.reason == "OtherMachine" and "fake://other" in objection.message and not objection.waits
    assert reason(None, own, machine("m", state, "fake://other", aliases=("n0",))) == "OtherMachine"


def test_another_node_may_be_the_machine():
    copied = node("x", provider_id="fake://n0")
    assert reason(copied, nodes=[node(ready="True"), *OTHERS]) == "SameProviderID"
    assert reason(node(), nodes=[copied, *OTHERS]) == "", "who copies a providerID keeps no other from being fenced"


def test_provider_ids_that_the_cloud_cannot_spell_are_not_the_same():
    listing = Snapshot.of(MACHINES, 0.0, 1, canonical=lambda provider_id: None)
    first, other = node("a", provider_id="x://1"), node("b", provider_id="x://2")
    scene = rules.Scene([first, other], listing, Evidence())
    assert scene.claimants(first) == [first]


@pytest.mark.parametrize(
    "listed",
    [
        {"machines": [machine(state=InstanceState.RUNNING)]},
        {"machines": [GONE], "unreachable": "zone b"},
        {"machines": [GONE], "unusable": "an instance without a name"},
        {"machines": [machine(provider_id="FAKE://n0", name="x")]},
    ],
    ids=["runs", "partial", "unusable", "another-spelling"],
)
def test_the_listing_must_say_the_same(listed):
    assert reason(None, *listed.pop("machines"), **listed) == "CloudUnknown"


@pytest.mark.parametrize(("off", "expected"), [(0, ""), (1, ""), (2, "StateDoubted"), (4, "StateDoubted")])
def test_ready_nodes_that_are_listed_as_shut_down_contradict_the_clouds_states(off, expected):
    wrong = [machine(f"n{number}") for number in range(1, 1 + off)]
    assert reason(None, machine(), *wrong) == expected
    assert reason(None, GONE, *wrong) == expected


def test_a_listing_that_ready_nodes_contradict_says_nothing_about_a_machine_that_it_does_not_have():
    absent = {f"fake://n{number}": Absence(f"n{number}", 990.0) for number in (1, 2)}
    wrong = Evidence(listed=3, absent=absent, known=6)
    assert reason(None, GONE, evidence=wrong) == "ListingDoubted"
    assert reason(evidence=wrong) == "", "a machine that is listed is of this project"


@pytest.mark.parametrize(
    ("known", "others", "expected"),
    [
        (5, 1, ""),
        (5, 2, "MassEvent"),
        (29, 2, "MassEvent"),
        (30, 2, ""),
        (100, 9, ""),
        (100, 10, "MassEvent"),
    ],
)
def test_many_dead_machines_at_once_are_a_mass_event(known, others, expected):
    assert reason(evidence=Evidence(listed=known - 1, known=known), others=others) == expected


@pytest.mark.parametrize(
    ("ready", "known", "expected"),
    [(1, 2, ""), (2, 3, ""), (1, 3, "MassEvent"), (5, 10, ""), (4, 10, "MassEvent"), (0, 1, "MassEvent")],
)
def test_at_least_half_of_the_nodes_are_ready(ready, known, expected):
    assert reason(evidence=Evidence(listed=ready, known=known)) == expected


def test_without_a_ready_node_none_is_fenced():
    """Without Ready Nodes all Nodes are witnesses, and `listed` counts all of them."""
    assert reason(evidence=Evidence(ready=False, listed=5, known=5)) == "MassEvent"


def test_a_cap_of_zero_fences_none():
    assert reason(safety=Safety(cap_share=0.0, cap_min=0)) == "MassEvent"


def test_the_cap_is_reported_with_its_flags():
    message = judge(others=3).message
    for part in ("3 other Nodes", "at most 2 of 5", "within 180 s", "--node-deletion-cap", "--node-deletion-window"):
        assert part in message


@pytest.mark.parametrize(
    ("taints", "annotations", "fenced", "ours"),
    [
        ([], {}, False, False),
        ([OURS], {rules.SINCE: STAMP}, True, True),
        ([OURS], {}, True, False),
        ([OURS], {rules.SINCE: "2026-10-01T00:00:00Z"}, True, False),
        ([{"key": rules.KEY, "effect": rules.EFFECT}], {rules.SINCE: STAMP}, True, False),
        ([OURS | {"effect": "NoSchedule"}], {rules.SINCE: STAMP}, True, False),
        ([], {rules.SINCE: STAMP}, False, False),
    ],
    ids=["none", "ours", "no-annotation", "of-another-time", "by-hand-after-ours", "another-effect", "removed-by-hand"],
)
def test_whose_taint_it_is(taints, annotations, fenced, ours):
    tainted = node("n0", *taints, annotations=annotations)
    assert (rules.is_fenced(tainted), rules.is_ours(tainted)) == (fenced, ours)


@pytest.mark.parametrize(
    ("ready", "answer", "lifted"),
    [
        ("True", None, True),
        ("Unknown", None, False),
        ("Unknown", machine(state=InstanceState.RUNNING), True),
        ("Unknown", machine(), False),
        ("Unknown", NotFound("gone"), False),
        ("Unknown", Transient("500"), False),
    ],
)
def test_when_a_node_is_not_fenced_any_more(ready, answer, lifted):
    fenced = node("n0", OURS, ready=ready, annotations={rules.SINCE: STAMP})
    assert rules.is_to_lift(fenced, answer) is lifted
    by_hand = node("n0", OURS, ready=ready)
    assert not rules.is_to_lift(by_hand, answer)


def test_what_is_written_keeps_other_taints_and_names_the_version():
    other = {"key": "a", "value": "b", "effect": "NoSchedule"}
    patch = rules.fence_patch(node("n0", other), STAMP)
    assert patch == {
        "metadata": {"resourceVersion": "7", "annotations": {rules.SINCE: STAMP}},
        "spec": {"taints": [other, OURS]},
    }
    fenced = node("n0", other, OURS, annotations={rules.SINCE: STAMP})
    assert rules.lift_patch(fenced) == {
        "metadata": {"resourceVersion": "7", "annotations": {rules.SINCE: None}},
        "spec": {"taints": [other]},
    }
