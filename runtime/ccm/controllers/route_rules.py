# SPDX-License-Identifier: Apache-2.0
"""Which routes the cloud should have: pure decisions, no I/O.

Rules and IDs: reference "Upstream cloud-controller-manager", section 5.3 (R1-R42). CIDRs are compared as networks, not
as text (W21), and a doubled route is removed.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ccm.cloud import Route
from ccm.engine.objects import Node

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def parse_cluster_cidrs(text: str) -> list[Network]:
    """`--cluster-cidr`: one CIDR, or one of each family with a comma between. Raises ValueError."""
    if not text.strip():
        raise ValueError(
            "--cluster-cidr is empty, but routes are to be configured: give the pods' CIDR (the one that "
            "kube-controller-manager has), or --configure-cloud-routes=false"
        )
    networks: list[Network] = []
    for part in text.split(","):
        try:
            networks.append(ipaddress.ip_network(part.strip(), strict=False))  # as Go: host bits do not matter
        except ValueError as error:
            raise ValueError(f"--cluster-cidr: {error}") from None
    if len(networks) > 2 or (len(networks) == 2 and networks[0].version == networks[1].version):
        raise ValueError(f"--cluster-cidr={text}: at most one IPv4 and one IPv6 CIDR")
    return networks


def is_responsible(destination: str, cluster: Sequence[Network]) -> bool:
    """Whether a route is the cluster's to change: its first or last address lies in a cluster CIDR (R1-R12)."""
    try:
        network = ipaddress.ip_network(destination)
    except ValueError:
        return False
    return any(network[0] in cidr or network[-1] in cidr for cidr in cluster)


@dataclass
class RoutePlan:
    """What to do, and for each Node with routes, how many of its own must succeed."""

    create: list[tuple[Node, Route]] = field(default_factory=list)
    delete: list[Route] = field(default_factory=list)
    #: Nodes with pod CIDRs of ours, by name.
    nodes: dict[str, Node] = field(default_factory=dict)
    #: "node N: what is wrong with its pod CIDRs".
    problems: list[tuple[Node, str]] = field(default_factory=list)


def plan(
    nodes: Iterable[Node], routes: Sequence[Route], cluster: Sequence[Network], owns: Callable[[str], bool]
) -> RoutePlan:
    """Compare Nodes with the cloud's routes.

    Nodes without pod CIDRs, without a providerID, or of another cloud get no routes. Routes outside of the cluster's
    CIDRs are never touched.
    """
    result = RoutePlan()
    wanted: dict[Network, tuple[Node, str]] = {}
    for node in sorted(nodes, key=lambda node: node.metadata.name):
        if not owns(node.spec.provider_id):
            continue
        for text in node.spec.pod_cidrs:
            result.nodes[node.metadata.name] = node
            try:
                network = ipaddress.ip_network(text)
            except ValueError as error:
                result.problems.append((node, f"pod CIDR {text!r} is not a CIDR: {error}"))
                continue
            other = wanted.get(network)
            if other is not None and other[0].metadata.name != node.metadata.name:
                message = f"pod CIDR {text} is also that of node {other[0].metadata.name}, which keeps the route"
                result.problems.append((node, message))
                continue
            wanted[network] = (node, text)
    present: set[Network] = set()
    for route in routes:
        try:
            network = ipaddress.ip_network(route.destination)
        except ValueError:
            continue
        owner = wanted.get(network)
        right = owner is not None and owner[0].spec.provider_id == route.provider_id and not route.blackhole
        if right and network not in present:
            present.add(network)  # also outside of the cluster's CIDRs, or it would be created again and again
        elif is_responsible(route.destination, cluster):
            result.delete.append(route)
    for network, (node, text) in wanted.items():
        if network not in present:
            result.create.append((node, Route(destination=text, provider_id=node.spec.provider_id)))
    return result


def condition_patch(node: Node, routed: bool, now: str) -> dict[str, Any] | None:
    """The patch of `NetworkUnavailable`; None when status and reason are right already (R34-R41)."""
    status, reason, message = (
        ("False", "RouteCreated", "RouteController created a route")
        if routed
        else ("True", "NoRouteCreated", "RouteController failed to create a route")
    )
    current = next((c for c in node.status.conditions if c.type == "NetworkUnavailable"), None)
    if current is not None and current.status == status and current.reason == reason:
        return None
    since = current.last_transition_time if current is not None and current.status == status else None
    condition = {
        "type": "NetworkUnavailable",
        "status": status,
        "reason": reason,
        "message": message,
        "lastHeartbeatTime": now,
        "lastTransitionTime": since or now,
    }
    return {"status": {"conditions": [condition]}}
