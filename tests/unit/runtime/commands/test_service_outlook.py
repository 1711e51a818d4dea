# SPDX-License-Identifier: Apache-2.0
"""What the service and volume controllers would do, according to the commands."""

import datetime

import pytest

from ccm.cloud import (
    Conflict,
    ImplementedElsewhere,
    Ingress,
    Invalid,
    Kept,
    KeptLoadBalancer,
    LoadBalancer,
    NotFound,
    NotImplementedByCloud,
    Transient,
)
from ccm.commands.asking.answers import Action
from ccm.commands.explain import explain_service
from ccm.commands.outlooks.service_outlook import (
    NO_COMPARISON,
    Evidence,
    kept_outlooks,
    orphan_outlooks,
    service_outlook,
)
from ccm.commands.outlooks.volume_outlook import volume_outlook
from ccm.controllers.services.class_rules import UNDECLARED, ServedClasses
from ccm.controllers.services.keep_rules import KEEP, PROTECT, outlives_it
from ccm.controllers.services.service import ServiceOptions
from ccm.controllers.services.service_rules import Step

from .looks import service, volume

READY = LoadBalancer("uid-web", "lb", (Ingress(ip="203.0.113.1", ip_mode="VIP"),), "f")
BUSY = LoadBalancer("uid-web", "lb", (), "f", ready=False)
GONE = NotFound("the cloud has none")
SERVED = service(addresses=["203.0.113.1"])
#: MISSING: the cloud has no load balancer for the Service. LISTED: the cloud's listing contains one.
MISSING, LISTED = Evidence(Step.ENSURE, read=GONE, backends=1), Evidence(listed=READY)


@pytest.mark.parametrize(
    ("judged", "evidence", "action", "words"),
    [
        (SERVED, Evidence(Step.ADOPT, listed=READY, backends=2), Action.NOTHING, "as its Service wants it"),
        (service(), Evidence(Step.ADOPT, listed=READY, backends=2), Action.UPDATE, "as its Service wants it"),
        (SERVED, Evidence(Step.ADOPT, listed=BUSY, read=BUSY, backends=2), Action.WAIT, "still working"),
        (SERVED, Evidence(Step.ADOPT, listed=BUSY, read=Conflict("it failed")), Action.UPDATE, "it failed"),
        (SERVED, Evidence(Step.ADOPT, listed=BUSY, read=Transient("504")), Action.UNKNOWN, "504"),
        (service(), Evidence(Step.ENSURE, read=GONE, backends=2), Action.CREATE, "the cloud has none"),
        (service(), Evidence(Step.ENSURE, read=Conflict("it failed")), Action.UPDATE, "it failed"),
        (service(), Evidence(Step.ENSURE, read=Transient("504")), Action.UNKNOWN, "504"),
        (service(), Evidence(problem="spec.loadBalancerIP: 'x'"), Action.BLOCKED, "spec.loadBalancerIP"),
        (service(), Evidence(Step.ENSURE, read=Invalid("annotation x: 'y'")), Action.BLOCKED, "annotation x: 'y'"),
        (SERVED, Evidence(Step.ENSURE, read=READY, deviations=Invalid("two ports")), Action.BLOCKED, "two ports"),
        (service(), Evidence(Step.ENSURE, read=ImplementedElsewhere("see there")), Action.NOTHING, "see there"),
        (service(), Transient("503"), Action.UNKNOWN, "503"),
        (service(loadBalancerClass="other"), Evidence(), Action.NOTHING, "its class is other"),
        (service(type="ClusterIP", ours=False), Transient("503"), Action.NOTHING, "its type is ClusterIP"),
        (service(type="ClusterIP"), Evidence(listed=READY), Action.DELETE, "no load balancer any more"),
        (service(deletionTimestamp="2026-11-01T00:00:00Z"), Evidence(), Action.DELETE, "being deleted"),
        (service(type="ClusterIP"), Transient("503"), Action.UNKNOWN, "503"),
    ],
)
def test_outlooks(judged, evidence, action, words):
    said = service_outlook(judged, evidence, UNDECLARED)
    assert said.action is action and words in said.because
    assert bool(said.changes) is (action in (Action.CREATE, Action.UPDATE, Action.DELETE))


@pytest.mark.parametrize(
    ("deviations", "changes", "notes"),
    [
        (None, ["load balancer lb is written"], [NO_COMPARISON]),
        (
            ["pool a has 1 member", "tag x is missing"],
            ["load balancer lb: pool a has 1 member", "load balancer lb: tag x is missing"],
            [],
        ),
        ([], ["only the fingerprint of load balancer lb is written"], []),
        (Transient("504"), ["load balancer lb is written"], ["what differs is unknown: 504"]),
    ],
)  # fmt: skip
def test_what_a_takeover_writes(deviations, changes, notes):
    """Another controller created the load balancer, so our fingerprint is missing from it or differs."""
    said = service_outlook(SERVED, Evidence(Step.ENSURE, read=READY, deviations=deviations, backends=1), UNDECLARED)
    assert (said.action, said.changes, said.notes) == (Action.UPDATE, changes, notes)


def test_a_finalizer_that_is_missing_is_a_change():
    said = service_outlook(
        service(addresses=["203.0.113.1"], ours=False), Evidence(Step.ADOPT, listed=READY, backends=1), UNDECLARED
    )
    assert said.changes == ["finalizer service.kubernetes.io/load-balancer-cleanup is added"]


def test_a_load_balancer_without_nodes_is_noted():
    said = service_outlook(service(), Evidence(Step.ENSURE, read=GONE), UNDECLARED)
    assert "with 0 Nodes behind it" in said.changes[0] and "no Node serves it" in said.notes[0]


def test_a_listing_that_is_not_believed_stops_writes_and_nothing_else():
    why = "the cloud lists the instances of only 1 of 9 Ready Nodes"
    said = service_outlook(service(), Evidence(Step.ENSURE, read=GONE, backends=1), UNDECLARED, why)
    assert (said.action, said.because, said.flag) == (Action.BLOCKED, why, "--cloud-config")
    right = Evidence(Step.ADOPT, listed=READY, backends=1)
    assert service_outlook(SERVED, right, UNDECLARED, why).action is Action.NOTHING


OURS = ServedClasses(frozenset({"ours"}))
NAMED_ALONE = ServedClasses(frozenset({"ours"}), without_class=False)
GOING = {"deletionTimestamp": "2026-11-01T00:00:00Z"}


@pytest.mark.parametrize(
    ("judged", "classes", "evidence", "action", "words"),
    [
        (service(loadBalancerClass="ours"), OURS, MISSING, Action.CREATE, "has none"),
        (service(), OURS, MISSING, Action.CREATE, "has none"),
        (service(loadBalancerClass="other"), OURS, Evidence(), Action.NOTHING, "its class is other"),
        (service(ours=False), NAMED_ALONE, Evidence(), Action.NOTHING, "it has no class"),
        (service(), NAMED_ALONE, LISTED, Action.NOTHING, "unset --default-load-balancer-provider"),
        (service(**GOING), NAMED_ALONE, LISTED, Action.DELETE, "being deleted"),
        (service(loadBalancerClass="was"), OURS, LISTED, Action.NOTHING, "set --load-balancer-class=was"),
        (service(loadBalancerClass="new"), OURS, LISTED, Action.DELETE, "no load balancer any more"),
        (service(loadBalancerClass="was"), UNDECLARED, LISTED, Action.NOTHING, "without a class"),
        (service(loadBalancerClass="other", **GOING), OURS, Evidence(), Action.NOTHING, "its class is other"),
    ],
)  # fmt: skip
def test_outlooks_of_classes(judged, classes, evidence, action, words):
    said = service_outlook(judged, evidence, classes, former={"was"})
    assert said.action is action and words in said.because


@pytest.mark.parametrize(
    ("name", "classes", "line"),
    [
        ("ours", OURS, "Its class ours is served by this controller (--load-balancer-class)."),
        ("ours", UNDECLARED, "Its class ours is for another controller."),
        ("", NAMED_ALONE, "A Service without a class is for another controller."),
    ],
)
def test_an_explanation_says_whose_a_service_is(name, classes, line):
    now = datetime.datetime(2026, 11, 2, tzinfo=datetime.UTC)
    described = service(loadBalancerClass=name) if name else service()
    assert line in explain_service.state_of(described, [], now, classes)
    assert explain_service.waits(described, classes) is ("another" not in line)


@pytest.mark.parametrize(
    ("options", "count", "action", "words"),
    [
        (ServiceOptions(), 1, Action.BLOCKED, "set --delete-orphaned-load-balancers"),
        (ServiceOptions(delete_orphans=True), 1, Action.DELETE, ""),
        (ServiceOptions(delete_orphans=True), 3, Action.BLOCKED, "so many orphans that none is deleted"),
        (ServiceOptions(delete_orphans=True, audit_period=0), 1, Action.BLOCKED, ""),
    ],
)
def test_orphans(options, count, action, words):
    listed = {f"uid-{number}": LoadBalancer(f"uid-{number}", f"lb-{number}") for number in range(5)}
    there = set(list(listed)[count:])
    said = orphan_outlooks(listed, there, options, "kubernetes")
    assert [each.name for each in said] == [f"lb-{number}" for number in range(count)]
    assert all(each.action is action and words in each.to_do and each.reason == "Orphan" for each in said)


def test_a_protected_orphan_is_never_deleted():
    listed = {"uid-1": LoadBalancer("uid-1", "lb", protected=True)}
    (said,) = orphan_outlooks(listed, (), ServiceOptions(delete_orphans=True), "kubernetes")
    assert said.action is Action.BLOCKED and not said.changes and "protected it against deletion" in said.to_do


def test_protected_orphans_hold_back_no_others():
    """As in the audit: of five orphans, three are protected, and two are few enough."""
    listed = {f"uid-{n}": LoadBalancer(f"uid-{n}", f"lb-{n}", protected=n < 3) for n in range(5)}
    said = orphan_outlooks(listed, (), ServiceOptions(delete_orphans=True), "kubernetes")
    assert [each.action for each in said] == [Action.BLOCKED] * 3 + [Action.DELETE] * 2


@pytest.mark.parametrize(
    ("keep", "change"),
    [
        (None, "load balancer lb is deleted"),
        (Kept.LOAD_BALANCER, "load balancer lb stays without backends"),
        (Kept.ADDRESS, "load balancer lb is deleted, and its address stays"),
    ],
)
def test_what_stays_is_planned(keep, change):
    listed = {"uid-1": LoadBalancer("uid-1", "lb", keep=keep)}
    (orphan,) = orphan_outlooks(listed, (), ServiceOptions(delete_orphans=True), "kubernetes")
    leaving = service_outlook(service(type="ClusterIP"), Evidence(listed=listed["uid-1"], keep=keep), UNDECLARED)
    assert orphan.changes == [change] and leaving.changes[0] == change


def test_a_service_that_is_held_is_planned_as_blocked():
    protected = Evidence(listed=READY, held="annotation x protects it")
    held = service_outlook(service(type="ClusterIP"), protected, UNDECLARED)
    assert (held.action, held.reason) == (Action.BLOCKED, "LoadBalancerProtected")
    assert held.because == "annotation x protects it" and not held.changes


@pytest.mark.parametrize(
    ("judged", "seen", "doubt", "action"),
    [
        (service(deletionTimestamp="2026-11-01T00:00:00Z"), Evidence(), "0 of 3 Ready Nodes", Action.BLOCKED),
        (service(type="ClusterIP"), Evidence(), "0 of 3 Ready Nodes", Action.BLOCKED),
        (service(type="ClusterIP"), Evidence(listed=READY), "0 of 3 Ready Nodes", Action.DELETE),
        (service(type="ClusterIP"), Evidence(), "", Action.DELETE),
    ],
)
def test_a_service_is_not_released_by_a_cloud_that_may_be_another_project(judged, seen, doubt, action):
    said = service_outlook(judged, seen, UNDECLARED, doubt)
    assert said.action is action
    if action is Action.BLOCKED:
        assert doubt in said.because and "load-balancer-cleanup by hand" in said.to_do


def test_what_is_kept_is_named_with_the_way_back():
    kept = [KeptLoadBalancer("lb", "shop", "192.0.2.1"), KeptLoadBalancer("", "shop", "192.0.2.2")]
    balancer, address = kept_outlooks(kept)
    assert (balancer.name, address.name) == ("lb", "192.0.2.2")
    assert balancer.action is Action.NOTHING and "namespace shop" in balancer.because
    assert "take-back-load-balancer: lb" in balancer.notes[0] and "loadBalancerIP: 192.0.2.2" in address.notes[0]


@pytest.mark.parametrize(
    ("annotations", "line"),
    [
        ({PROTECT: "true"}, "is protected"),
        ({KEEP: "load-balancer"}, "its load balancer stays"),
        ({KEEP: "address"}, "its address stays"),
        ({PROTECT: "yes"}, ""),
        ({KEEP: "yes"}, ""),
        ({}, ""),
    ],
)
def test_an_explanation_says_what_outlives_the_service(annotations, line):
    assert line in outlives_it(annotations) and bool(line) is bool(outlives_it(annotations))
    described, now = service(annotations=annotations), datetime.datetime(2026, 11, 2, tzinfo=datetime.UTC)
    assert any(line in each for each in explain_service.state_of(described, [], now, UNDECLARED))


ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"


@pytest.mark.parametrize(
    ("judged", "answer", "action", "words"),
    [
        (volume(), {ZONE: "a", REGION: "r"}, Action.UPDATE, "no labels"),
        (volume(), {}, Action.NOTHING, "neither zone nor region"),
        (volume(), {ZONE: "a__", REGION: "r"}, Action.BLOCKED, "a zone is empty"),
        (volume(), NotFound("no disk v-1"), Action.BLOCKED, "no disk v-1"),
        (volume(), Invalid("not a handle"), Action.BLOCKED, "not a handle"),
        (volume(), NotImplementedByCloud("another driver"), Action.NOTHING, "another driver"),
        (volume(), Transient("504"), Action.UNKNOWN, "504"),
        (volume(labels={ZONE: "a", REGION: "r"}), None, Action.NOTHING, "has its zone and region"),
        (volume(annotations={"pv.kubernetes.io/provisioned-by": "csi"}), None, Action.NOTHING, "csi provisioned it"),
        (volume(""), None, Action.NOTHING, "no disk of a cloud"),
    ],
)
def test_volumes(judged, answer, action, words):
    said = volume_outlook(judged, answer)
    assert said.action is action and words in said.because
    assert bool(said.changes) is (action is Action.UPDATE)
