# SPDX-License-Identifier: Apache-2.0
"""Which routes the cloud should have: pure decisions, no I/O.

Rules and IDs: reference "Upstream cloud-controller-manager", section 5.3 (R1-R42). CIDRs are compared as networks, not
as text (W21), and a doubled route is removed.
"""

from __future__ import annotations

import functools
import ipaddress
from collections.abc import Callable, Hashable, Iterable, Sequence
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
    network = _parse(destination)
    return network is not None and any(network[0] in cidr or network[-1] in cidr for cidr in cluster)


@dataclass
class RoutePlan:
    """What to do, and what to tell about whom."""

    create: list[tuple[Node, Route]] = field(default_factory=list)
    delete: list[Route] = field(default_factory=list)
    #: Nodes with pod CIDRs of ours, by name.
    nodes: dict[str, Node] = field(default_factory=dict)
    #: Nodes that get no route for one of their pod CIDRs, and why.
    problems: list[tuple[Node, str]] = field(default_factory=list)
    #: Nodes that keep a route which another Node wants, too.
    contested: list[tuple[Node, str]] = field(default_factory=list)
    #: Nodes without pod CIDRs to which a route of ours leads, which is to go.
    cut_off: list[Node] = field(default_factory=list)


@dataclass
class _Claim:
    node: Node
    text: str


class _Claims:
    """Which Node has which pod CIDR. CIDRs nest or are disjoint, so an overlap is found by looking up prefixes."""

    def __init__(self, networks: Iterable[Network]) -> None:
        self._lengths = {(network.version, network.prefixlen) for network in networks}
        self._covering: dict[Network, _Claim] = {}
        self.granted: dict[Network, _Claim] = {}

    def other(self, network: Network, node: Node) -> _Claim | None:
        """A claim of another Node that overlaps."""
        found = [self._covering.get(network), *(self.granted.get(wider) for wider in self._wider(network))]
        return next((claim for claim in found if claim and claim.node.metadata.name != node.metadata.name), None)

    def grant(self, network: Network, claim: _Claim) -> None:
        self.granted.setdefault(network, claim)
        for wider in self._wider(network):
            self._covering.setdefault(wider, claim)

    def _wider(self, network: Network) -> list[Network]:
        """The network itself and those around it, as far as anybody has such a prefix length."""
        return [
            network.supernet(new_prefix=length)
            for version, length in self._lengths
            if version == network.version and length <= network.prefixlen
        ]


def plan(
    nodes: Iterable[Node],
    routes: Sequence[Route],
    cluster: Sequence[Network],
    owns: Callable[[str], bool],
    owner: str = "",
) -> RoutePlan:
    """Compare Nodes with the cloud's routes; `owner` is this cluster's name.

    Nodes without pod CIDRs, without a providerID, or of another cloud get no routes. Routes outside of the cluster's
    CIDRs and those of another owner are never touched. Of Nodes whose pod CIDRs overlap, the one that has its route
    keeps it, else the older one gets it.
    """
    result = RoutePlan()
    parsed = [(route, _parse(route.destination)) for route in routes]
    listed = sorted(
        ((route, network) for route, network in parsed if network is not None),
        key=lambda each: _foreign(each[0], owner),
    )
    ours = [node for node in sorted(nodes, key=lambda node: node.metadata.name) if owns(node.spec.provider_id)]
    granted = _grant(ours, listed, result)
    present: set[Network] = set()
    taken: dict[Network, Route] = {}
    doomed: set[str] = set()
    for route, network in listed:
        claim = granted.get(network)
        if claim is not None and _leads_to(route, claim.node) and network not in present:
            present.add(network)  # also outside of the cluster's CIDRs, or it would be created again and again
        elif _foreign(route, owner):
            taken.setdefault(network, route)
        elif is_responsible(route.destination, cluster):
            result.delete.append(route)
            doomed.add(route.provider_id)
    for network, claim in granted.items():
        if network in present:
            continue
        if network in taken:
            text = f"pod CIDR {claim.text} is routed elsewhere by cluster {taken[network].owner!r} of the same network"
            result.problems.append((claim.node, text))
            continue
        route = Route(claim.text, claim.node.spec.provider_id, owner=owner, target_addresses=_addresses(claim.node))
        result.create.append((claim.node, route))
    result.cut_off = [node for node in ours if not node.spec.pod_cidrs and node.spec.provider_id in doomed]
    return result


def _grant(ours: Sequence[Node], listed: Sequence[tuple[Route, Network]], result: RoutePlan) -> dict[Network, _Claim]:
    """Which Node gets the route of which CIDR; notes in `result` who has pod CIDRs, and what is wrong with them."""
    has = {(network, route.provider_id) for route, network in listed if not route.blackhole}
    wishes: list[tuple[Network, _Claim]] = []
    for node in ours:
        for text in node.spec.pod_cidrs:
            result.nodes[node.metadata.name] = node
            network = _parse(text)
            if network is None:
                result.problems.append((node, f"pod CIDR {text!r} is not a CIDR such as 10.244.1.0/24"))
            else:
                wishes.append((network, _Claim(node, text)))

    def precedence(wish: tuple[Network, _Claim]) -> tuple[bool, str, str]:
        network, claim = wish
        meta = claim.node.metadata
        return (network, claim.node.spec.provider_id) not in has, meta.creation_timestamp or "", meta.name

    claims = _Claims(network for network, _ in wishes)
    for network, claim in sorted(wishes, key=precedence):
        other = claims.other(network, claim.node)
        if other is None:
            claims.grant(network, claim)
            continue
        same = _parse(other.text) == network
        how = "is also that" if same else f"overlaps {other.text}"
        mine, its = claim.node.metadata.name, other.node.metadata.name
        result.problems.append((claim.node, f"pod CIDR {claim.text} {how} of node {its}, which keeps the route"))
        result.contested.append(
            (other.node, f"pod CIDR {other.text} overlaps {claim.text} of node {mine}, which gets no route for it")
        )
    return {network: claims.granted[network] for network, _ in wishes if network in claims.granted}


@functools.lru_cache(maxsize=65536)
def _parse(text: str) -> Network | None:
    try:
        return ipaddress.ip_network(text)
    except ValueError:
        return None


def _foreign(route: Route, owner: str) -> bool:
    return route.owner not in ("", owner)


def _leads_to(route: Route, node: Node) -> bool:
    """Whether it is the Node's; where the cloud keeps addresses with a route, they must be the Node's present ones."""
    if route.blackhole or route.provider_id != node.spec.provider_id:
        return False
    if route.target_addresses is None:
        return True
    return bool(route.target_addresses) and set(route.target_addresses) <= set(_addresses(node) or ())


def _addresses(node: Node) -> tuple[str, ...] | None:
    return tuple(each.address for each in node.status.addresses if each.type.endswith("IP")) or None


def routing(node: Node | None, owns: Callable[[str], bool]) -> Hashable:
    """All of a Node that its routes depend on: what else changes is no reason to look (R30-R33)."""
    if node is None or not owns(node.spec.provider_id):
        return None
    return node.metadata.uid, node.spec.provider_id, tuple(node.spec.pod_cidrs), _addresses(node)


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
