# SPDX-License-Identifier: Apache-2.0
"""What `ccm plan` says about routes."""

import ipaddress
from types import SimpleNamespace

from ccm.cloud import Route
from ccm.commands.asking.answers import Action
from ccm.commands.outlooks.route_outlook import route_outlooks
from ccm.controllers.routes.route_rules import Removal, RoutePlan

from .looks import node

OPTIONS = SimpleNamespace(
    network=SimpleNamespace(cluster=[ipaddress.ip_network("10.244.0.0/16")]), safety=SimpleNamespace(window=600.0)
)
TIME = "2026-11-01T12:00:00Z"


def route(cidr="10.244.1.0/24", provider_id="sim://w1"):
    return Route(destination=cidr, provider_id=provider_id)


def said(table, unclaimed=(), going=()):
    return route_outlooks(table, list(unclaimed), list(going), OPTIONS, TIME)


def test_a_missing_route_is_created_at_once_and_the_node_says_so():
    w1 = node("w1", "sim://w1")
    create, condition = said(RoutePlan(create=[(w1, route())], nodes={"w1": w1}))
    assert (create.kind, create.name, create.action) == ("Route", "10.244.1.0/24", Action.CREATE)
    assert create.changes == ["a route to sim://w1 is created, for node w1"]
    assert create.flag == "--cluster-cidr=10.244.0.0/16"
    assert condition.changes == ["condition NetworkUnavailable is set to False (RouteCreated)"]
    assert condition.because == "it has its routes"


def test_a_route_that_goes_says_whose_it_was():
    w1, w2 = node("w1", "sim://w1"), node("w2", "sim://w2")
    removals = [
        Removal(route("10.244.1.0/24"), claimant=w2, holder=w1),
        Removal(route("10.244.2.0/24"), claimant=None, holder=w1),
        Removal(route("10.244.3.0/24"), claimant=None, holder=None),
    ]
    nowhere = route("10.244.4.0/24", "")
    found = said(RoutePlan(), removals, [*(each.route for each in removals), nowhere])
    assert [each.action for each in found] == [Action.DELETE] * 4
    assert [each.because for each in found] == [
        "node w2 needs its CIDR to lead elsewhere",
        "node w1 does not claim it",
        "no Node claims it",
        "it leads to nowhere, or to a former address of its Node",
    ]
    assert found[3].changes == ["the route to nowhere is deleted"]


def test_a_route_that_is_kept_names_the_limits():
    (kept,) = said(RoutePlan(), [Removal(route(), claimant=None, holder=None)])
    assert (kept.action, kept.reason) == (Action.BLOCKED, "Unclaimed")
    assert kept.flag == "--node-deletion-cap --node-deletion-window=10m0s"


def test_a_node_whose_route_cannot_be_made_is_unavailable():
    w1 = node("w1", "sim://w1")
    blocked, condition = said(RoutePlan(problems=[(w1, "its CIDR overlaps")], nodes={"w1": w1}, cut_off=[w1]))
    assert (blocked.action, blocked.reason, blocked.because) == (
        Action.BLOCKED, "FailedToCreateRoute", "its CIDR overlaps",
    )  # fmt: skip
    assert condition.because == "it has no route" and "True" in condition.changes[0]
