# SPDX-License-Identifier: Apache-2.0
"""The states of Nodes and Services on the status page, and which objects it names."""

from __future__ import annotations

import datetime

import msgspec
import pytest

from ccm.controllers.services.class_rules import UNDECLARED, ServedClasses
from ccm.engine.objects import Node, Service
from ccm.manager import object_state_rules as rules
from ccm.serving.status_report import Count, Unfinished

NOW = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
AGO = {seconds: f"{NOW - datetime.timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%SZ}" for seconds in (5, 9, 11, 60, 600)}
WAITS = {"key": "node.cloudprovider.kubernetes.io/uninitialized", "effect": "NoSchedule"}
SHUT = {"key": "node.cloudprovider.kubernetes.io/shutdown", "effect": "NoSchedule"}
FINALIZER = "service.kubernetes.io/load-balancer-cleanup"
READY = [{"type": "Ready", "status": "True"}]


def node(name="n", *, taints=(), conditions=(), **metadata):
    body = {"metadata": {"name": name, **metadata}, "spec": {"taints": list(taints)}}
    return msgspec.convert(body | {"status": {"conditions": list(conditions)}}, Node)


def service(name="s", *, ingress=(), finalizers=(), kind="LoadBalancer", load_balancer_class="", **metadata):
    body = {
        "metadata": {"name": name, "namespace": "ns", "finalizers": list(finalizers), **metadata},
        "spec": {"type": kind, "loadBalancerClass": load_balancer_class},
        "status": {"loadBalancer": {"ingress": list(ingress)}},
    }
    return msgspec.convert(body, Service)


@pytest.mark.parametrize(
    ("judged", "state"),
    [
        (node(conditions=READY), "ready"),
        (node(), "not ready"),
        (node(conditions=[{"type": "Ready", "status": "Unknown"}]), "not ready"),
        (node(taints=[WAITS], conditions=READY), "waits for initialisation"),
        (node(taints=[SHUT]), "instance shut down"),
        (node(taints=[WAITS], deletionTimestamp=AGO[5]), "being deleted"),
    ],
)
def test_the_state_of_a_node(judged, state):
    assert rules.node_state(judged) == state and state in rules.NODE_STATES


@pytest.mark.parametrize(
    ("judged", "state"),
    [
        (service(), "waits for an address"),
        (service(ingress=[{"ip": "203.0.113.1"}]), "has an address"),
        (service(kind="ClusterIP"), ""),
        (service(load_balancer_class="other"), ""),
        (service(deletionTimestamp=AGO[5]), ""),
        (
            service(deletionTimestamp=AGO[5], finalizers=["service.kubernetes.io/load-balancer-cleanup"]),
            "waits to be released",
        ),
        (
            service(kind="ClusterIP", finalizers=["service.kubernetes.io/load-balancer-cleanup"]),
            "waits to be released",
        ),
    ],
)
def test_the_state_of_a_service(judged, state):
    assert rules.service_state(judged, UNDECLARED) == state and state in ("", *rules.SERVICE_STATES)


@pytest.mark.parametrize(
    ("judged", "state"),
    [
        (service(load_balancer_class="ours"), "waits for an address"),
        (service(load_balancer_class="other"), ""),
        (service(), ""),
        (
            service(load_balancer_class="other", deletionTimestamp=AGO[5], finalizers=[FINALIZER]),
            "",
        ),
        (
            service(load_balancer_class="ours", deletionTimestamp=AGO[5], finalizers=[FINALIZER]),
            "waits to be released",
        ),
    ],
)
def test_the_state_of_a_service_of_a_class(judged, state):
    assert rules.service_state(judged, ServedClasses(frozenset({"ours"}), without_class=False)) == state


def test_every_state_is_counted_also_if_nothing_is_in_it():
    assert rules.count(["b", "", "b"], ("a", "b")) == [Count("a", 0), Count("b", 2)]


def test_what_fails_comes_first_and_what_waits_is_named_when_it_is_slow():
    nodes = [
        node("quick", taints=[WAITS], creationTimestamp=AGO[9]),
        node("slow", taints=[WAITS], creationTimestamp=AGO[11]),
        node("stuck", taints=[WAITS], creationTimestamp=AGO[600]),
        node("fine", conditions=READY, creationTimestamp=AGO[600]),
    ]
    services = [
        service("new", creationTimestamp=AGO[5]),
        service("old", creationTimestamp=AGO[60]),
        service(
            "going",
            creationTimestamp=AGO[600],
            deletionTimestamp=AGO[11],
            finalizers=["service.kubernetes.io/load-balancer-cleanup"],
        ),
    ]
    failures = [
        rules.Failure("Nodes", "stuck", "no instance", 3.0, 2),
        rules.Failure("service", "ns/old", "quota", 50.0, 9),
        rules.Failure("pools", "a", "odd", 1.0, 1),
    ]
    assert rules.unfinished(nodes, services, failures, NOW, UNDECLARED) == [
        Unfinished("Service", "ns/old", "failing", 50.0, 9, "quota"),
        Unfinished("Node", "stuck", "failing", 3.0, 2, "no instance"),
        Unfinished("pools", "a", "failing", 1.0, 1, "odd"),
        Unfinished("Node", "slow", "waits for initialisation", 11.0, 0, ""),
        Unfinished("Service", "ns/going", "waits to be released", 11.0, 0, ""),
    ]


def test_a_time_that_cannot_be_read_counts_as_now():
    given = [service("odd", creationTimestamp="yesterday"), service("none")]
    assert rules.unfinished([node("odd", taints=[WAITS], creationTimestamp="x")], given, [], NOW, UNDECLARED) == []


def test_an_object_that_fails_in_the_queues_of_several_clouds_is_one_row():
    failures = [
        rules.Failure("Nodes-sim", "n", "no cloud has it", 3.0, 2),
        rules.Failure("Nodes-static", "n", "no cloud has it", 5.0, 4),
        rules.Failure("Nodes-metro", "n", "503", 1.0, 1),
    ]
    assert [(each.name, each.reason, each.tries) for each in rules.unfinished([], [], failures, NOW, UNDECLARED)] == [
        ("n", "no cloud has it", 4),
        ("n", "503", 1),
    ]
