# SPDX-License-Identifier: Apache-2.0
"""What the route controller would do with the cloud's routes now. No I/O; `route_rules` decides."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from ccm.base.durations import spell
from ccm.cloud import Route
from ccm.controllers.routes import route_rules as rules
from ccm.controllers.routes.route import RouteOptions
from ccm.controllers.routes.route_rules import Removal, RoutePlan
from ccm.engine.objects import Node

from ..asking.answers import Action, Outlook

CREATED = "every pod CIDR of a Node that the cloud vouches for has a route to its instance"
REMOVED = "a route inside of the cluster CIDR that no Node claims is deleted when its Node is confirmed gone"


def route_outlooks(
    plan: RoutePlan, unclaimed: Sequence[Removal], going: Collection[Route], options: RouteOptions, now: str
) -> list[Outlook]:
    """Return the outlooks of routes, and of the Nodes' conditions. `plan`: the plan as `RouteRemoval.choose` left it.
    `unclaimed`: the routes that no Node claims, as planned before that. `going`: the routes to delete. `now`: RFC
    3339."""
    flag = f"--cluster-cidr={','.join(map(str, options.network.cluster))}"
    outlooks = [
        _outlook(
            route.destination,
            Action.CREATE,
            [f"a route to {route.provider_id} is created, for node {node.metadata.name}"],
            "the cloud has none",
            CREATED,
            flag,
            when="at once",
        )
        for node, route in plan.create
    ]
    claimants = {(each.route.destination, each.route.provider_id): each for each in unclaimed}
    for route in going:
        removal = claimants.get((route.destination, route.provider_id))
        because = "it leads to nowhere, or to a former address of its Node" if removal is None else _why(removal)
        change = f"the route to {route.provider_id or 'nowhere'} is deleted"
        outlooks.append(_outlook(route.destination, Action.DELETE, [change], because, REMOVED, flag, when="at once"))
    for removal in unclaimed:
        if removal.route not in going:
            outlooks.append(
                _outlook(
                    removal.route.destination,
                    Action.BLOCKED,
                    [],
                    f"no Node claims the route to {removal.route.provider_id}, and it is kept: its Node may still "
                    "exist, or other routes go first",
                    REMOVED,
                    f"--node-deletion-cap --node-deletion-window={spell(options.safety.window)}",
                    reason="Unclaimed",
                    to_do="delete the route by hand if its machine is no Node of this cluster",
                )
            )
    for problems, reason in ((plan.problems, "FailedToCreateRoute"), (plan.kept, "RouteKept")):
        for node, problem in problems:
            name = ", ".join(node.spec.pod_cidrs)
            to_do = "see the reason"
            outlooks.append(_outlook(name, Action.BLOCKED, [], problem, CREATED, flag, reason=reason, to_do=to_do))
    return outlooks + _conditions(plan, now)


def _why(removal: Removal) -> str:
    if removal.claimant is not None:
        return f"node {removal.claimant.metadata.name} needs its CIDR to lead elsewhere"
    if removal.holder is not None:
        return f"node {removal.holder.metadata.name} does not claim it"
    return "no Node claims it"


def _conditions(plan: RoutePlan, now: str) -> list[Outlook]:
    """Return the outlooks of Nodes whose condition NetworkUnavailable changes. A new route counts as created."""
    unrouted = {node.metadata.name for node in (*(each for each, _ in plan.problems), *plan.cut_off)}
    outlooks = []
    for node in _distinct((*plan.nodes.values(), *plan.cut_off)):
        patch = rules.condition_patch(node, node.metadata.name not in unrouted, now)
        if patch is not None:
            (condition,) = patch["status"]["conditions"]
            change = f"condition NetworkUnavailable is set to {condition['status']} ({condition['reason']})"
            because = "it has its routes" if condition["status"] == "False" else "it has no route"
            outlooks.append(
                Outlook(
                    kind="Node",
                    name=node.metadata.name,
                    action=Action.UPDATE,
                    changes=[change],
                    because=because,
                    rule="the condition NetworkUnavailable says whether a Node has its routes",
                    flag="--configure-cloud-routes=true",
                    when="at once, after the routes",
                )
            )
    return outlooks


def _distinct(nodes: Iterable[Node]) -> list[Node]:
    return list({node.metadata.name: node for node in nodes}.values())


def _outlook(
    destination: str,
    action: Action,
    changes: list[str],
    because: str,
    rule: str,
    flag: str,
    *,
    when: str = "",
    reason: str = "",
    to_do: str = "",
) -> Outlook:
    return Outlook(
        kind="Route",
        name=destination,
        action=action,
        changes=changes,
        reason=reason,
        because=because,
        rule=rule,
        flag=flag,
        when=when,
        to_do=to_do,
    )
