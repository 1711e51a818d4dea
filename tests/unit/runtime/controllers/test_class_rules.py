# SPDX-License-Identifier: Apache-2.0
"""Which Services are ours according to their class, and which ones were ours before."""

import msgspec
import pytest

from ccm.controllers.services import class_rules as rules
from ccm.controllers.services import service_rules
from ccm.controllers.services.class_rules import UNDECLARED, ServedClasses
from ccm.engine.objects import Service

NAMED = ServedClasses(frozenset({"ours", "example.com/ours"}))
ALONE = ServedClasses(frozenset({"ours"}), without_class=False)
GOING = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
HELD = {"finalizers": [service_rules.FINALIZER]}


def service(name="", kind="LoadBalancer", **metadata):
    document = {"metadata": {"uid": "u", **metadata}, "spec": {"type": kind, "loadBalancerClass": name or None}}
    return msgspec.convert(document, Service)


@pytest.mark.parametrize(
    ("classes", "name", "kind", "included", "excluded"),
    [
        (UNDECLARED, "", "LoadBalancer", True, False),
        (UNDECLARED, "ours", "LoadBalancer", False, True),
        (UNDECLARED, "", "ClusterIP", False, False),
        (NAMED, "", "LoadBalancer", True, False),
        (NAMED, "ours", "LoadBalancer", True, False),
        (NAMED, "example.com/ours", "LoadBalancer", True, False),
        (NAMED, "Ours", "LoadBalancer", False, True),
        (NAMED, "other", "LoadBalancer", False, True),
        (NAMED, "", "NodePort", False, False),
        (ALONE, "", "LoadBalancer", False, True),
        (ALONE, "ours", "LoadBalancer", True, False),
        (ALONE, "", "ExternalName", False, False),
    ],
)
def test_whose_a_service_is(classes, name, kind, included, excluded):
    asked = service(name, kind)
    assert (classes.include(asked), classes.exclude(asked)) == (included, excluded)
    assert service_rules.concerns_us(asked, classes) is included


@pytest.mark.parametrize(
    ("classes", "name", "kind", "released"),
    [
        (UNDECLARED, "", "LoadBalancer", True),
        (UNDECLARED, "other", "LoadBalancer", True),
        (NAMED, "ours", "LoadBalancer", True),
        (NAMED, "other", "LoadBalancer", False),
        (ALONE, "", "LoadBalancer", False),
        (ALONE, "", "ClusterIP", True),
    ],
)
def test_a_deleted_service_of_another_controller_is_left_to_it_once_classes_are_declared(classes, name, kind, released):
    """Without declared classes, as upstream, every controller that sees the finalizer cleans up."""
    assert service_rules.is_to_be_released(service(name, kind, **GOING, **HELD), classes) is released


@pytest.mark.parametrize(
    ("classes", "name", "metadata", "handed_over"),
    [
        (ALONE, "", {}, True),
        (NAMED, "was", {}, True),
        (UNDECLARED, "was", {}, True),
        (UNDECLARED, "other", {}, False),
        (NAMED, "other", {}, False),
        (NAMED, "ours", {}, False),
        (NAMED, "", {}, False),
        (NAMED, "was", GOING, False),
        (ALONE, "", GOING, False),
        (ServedClasses(are_shared=True), "other", {}, True),
        (ServedClasses(are_shared=True), "other", GOING, False),
        (ServedClasses(are_shared=True), "", {}, False),
    ],
)
def test_what_was_handed_over(classes, name, metadata, handed_over):
    assert rules.is_handed_over(service(name, **metadata), classes, {"was", "ours"}) is handed_over
    assert not rules.is_handed_over(service(kind="ClusterIP"), classes, {"was"})


def test_the_note_has_all_classes_that_a_leader_served():
    assert rules.recalled(None) == rules.recalled("") == frozenset()
    first = rules.noted(frozenset(), NAMED)
    assert first == "example.com/ours,ours" and rules.recalled(first) == NAMED.names
    assert rules.noted(rules.recalled(first), ALONE) is None, "a class that is not served any more stays noted"
    assert rules.noted({"was"}, ALONE) == "ours,was"
    assert rules.noted({"was"}, UNDECLARED) is None


@pytest.mark.parametrize(
    ("classes", "text"),
    [
        (UNDECLARED, "without a class"),
        (NAMED, "without a class, or of class example.com/ours or ours"),
        (ALONE, "of class ours"),
    ],
)
def test_what_is_served_in_words(classes, text):
    assert str(classes) == text


def test_why_a_load_balancer_is_kept():
    assert "--load-balancer-class=was" in rules.why_kept(service("was"), "lb", NAMED)
    assert "unset --default-load-balancer-provider" in rules.why_kept(service(), "lb", ALONE)
