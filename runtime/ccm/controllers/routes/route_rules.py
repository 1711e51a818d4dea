# SPDX-License-Identifier: Apache-2.0
"""Decide which routes the cloud should have. No I/O.

docs/reference/parity.md, R1-R42, lists upstream's behaviour and where these rules differ. CIDRs are compared as
networks and not as text, and duplicate routes are removed.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Hashable, Iterable, Sequence
from typing import Any

import msgspec

from ccm.cloud import Route
from ccm.engine.objects import Node

from ..nodes.vouching_rules import Judge, Reason, Refused, Verdict, Vouched
from ..shared.pod_network_rules import Network, PodNetwork, lies_in, parse
from ..shared.stretches import Steps, at_once, in_order
from .route_target_rules import find_targets, spelt

#: The next comparison waits `SPACING` times as long as the last one took, so that comparisons take about a tenth of the
#: time. It waits at least `SPACING_MIN` and at most `SPACING_MAX` seconds; upstream compares every ten seconds.
SPACING, SPACING_MIN, SPACING_MAX = 10.0, 1.0, 10.0


def is_responsible(destination: str, cluster: Sequence[Network]) -> bool:
    """Return whether the cluster may change a route: its first or last address lies in a cluster CIDR (R1-R12)."""
    network = parse(destination)
    return network is not None and any(network[0] in cidr or network[-1] in cidr for cidr in cluster)


class Fate(enum.Enum):
    """What happens to a route that no Node claims."""

    STAY = "stay"
    #: Its Node exists and does not claim it, or another Node claims its CIDR: delete it.
    GO = "go"
    #: Its Node is gone, perhaps its instance, too: delete it as soon as the limit on deletions allows.
    TURN = "turn"
    #: It has no known Node, and its instance is not listed: a read of the instance decides when that limit allows.
    UNLISTED = "unlisted"
    #: Its instance exists, but it has no known Node.
    UNKNOWN = "unknown"


class Removal(msgspec.Struct, frozen=True):
    """A route that no Node claims.

    `holder`: the Node to which it leads. `claimant`: the Node that needs its CIDR to lead elsewhere. None if there is
    no such Node.
    """

    route: Route
    holder: Node | None = None
    claimant: Node | None = None


class RoutePlan(msgspec.Struct):
    """The routes to change, and the messages for Nodes."""

    create: list[tuple[Node, Route]] = msgspec.field(default_factory=list)
    #: Duplicates, and routes that lead nowhere or to former addresses of their Node.
    delete: list[Route] = msgspec.field(default_factory=list)
    #: Routes that no Node claims. They are wrong if the cache of Nodes is right.
    unclaimed: list[Removal] = msgspec.field(default_factory=list)
    #: The providerIDs to which this cluster's routes lead.
    targets: set[str] = msgspec.field(default_factory=set)
    #: This cloud's Nodes with pod CIDRs, by name, without those that wait for a first answer of the cloud and have no
    #: route.
    nodes: dict[str, Node] = msgspec.field(default_factory=dict)
    #: Nodes that get no route for one of their pod CIDRs, and the reason.
    problems: list[tuple[Node, str]] = msgspec.field(default_factory=list)
    #: Nodes that keep a route that would not be created now, and the reason.
    kept: list[tuple[Node, str]] = msgspec.field(default_factory=list)
    #: Nodes that keep a route that another Node claims as well.
    contested: list[tuple[Node, str]] = msgspec.field(default_factory=list)
    #: Nodes without pod CIDRs that still have a route of ours, which will be deleted.
    cut_off: list[Node] = msgspec.field(default_factory=list)

    def keep(self, routes: Iterable[Route]) -> None:
        """Keep these unclaimed routes for now: Nodes that claim their CIDRs wait."""
        kept = {parse(route.destination): route for route in routes}
        waiting = [(node, route) for node, route in self.create if parse(route.destination) in kept]
        self.create = [each for each in self.create if each not in waiting]
        self.problems += [
            (node, f"pod CIDR {route.destination} is still routed to {kept[parse(route.destination)].provider_id}")
            for node, route in waiting
        ]


class _Claim(msgspec.Struct):
    """One pod CIDR of one Node. `barrier`: why no route may be created, "" if one may. `waits`: whether the barrier is
    only that the cloud has not answered about the Node yet."""

    node: Node
    text: str
    verdict: Verdict
    barrier: str = ""
    waits: bool = False


class _Claims:
    """Which Node has which pod CIDR. CIDRs nest or are disjoint, so overlaps are found by looking up prefixes."""

    def __init__(self, lengths: Collection[tuple[int, int]]) -> None:
        """`lengths`: IP version and prefix length of all claims."""
        self._lengths = lengths
        #: Granted claims inside a network, of at most two Nodes: one of them always differs from the Node in question.
        self._inside: dict[Network, tuple[_Claim, ...]] = {}
        self.granted: dict[Network, _Claim] = {}

    def other(self, network: Network, node: Node) -> _Claim | None:
        """Return a claim of another Node that overlaps, None if there is none."""
        claims = [*self._inside.get(network, ()), *(self.granted.get(wider) for wider in self._wider(network))]
        return next((claim for claim in claims if claim and claim.node.metadata.name != node.metadata.name), None)

    def grant(self, network: Network, claim: _Claim) -> None:
        self.granted.setdefault(network, claim)
        for wider in self._wider(network):
            inside = self._inside.get(wider, ())
            if len(inside) < 2 and all(each.node is not claim.node for each in inside):
                self._inside[wider] = (*inside, claim)

    def _wider(self, network: Network) -> list[Network]:
        """Return the network and those that contain it, limited to prefix lengths that some claim has."""
        return [
            network if length == network.prefixlen else network.supernet(new_prefix=length)
            for version, length in self._lengths
            if version == network.version and length <= network.prefixlen
        ]


def plan(
    nodes: Iterable[Node], routes: Sequence[Route], network: PodNetwork, judge: Judge, owner: str = ""
) -> RoutePlan:
    """Run `planning` without a pause."""
    return at_once(planning(nodes, routes, network, judge, owner))


def planning(
    nodes: Iterable[Node], routes: Sequence[Route], network: PodNetwork, judge: Judge, owner: str = ""
) -> Steps[RoutePlan]:
    """Compare Nodes with the cloud's routes; `owner` is this cluster's name.

    Nodes without pod CIDRs, without a providerID, or of another cloud get no routes. Routes outside of the cluster's
    CIDRs and those of another owner are never changed. If the pod CIDRs of several Nodes overlap, the Node that has
    a route keeps it; if none has one, the oldest Node gets it.

    A route is created only if the cloud vouches for the Node and the pod CIDR is allowed for a Node. An existing route
    is not deleted for that reason: the Node keeps it. A route that has only addresses is first matched to a Node.
    """
    result = RoutePlan()
    listed = yield from _listed(routes, owner)
    by_name = yield from in_order(nodes, key=lambda node: node.metadata.name)
    ours: list[tuple[Node, Verdict]] = []
    for node in by_name:
        if (verdict := judge(node)) is not None:
            ours.append((node, verdict))
        yield
    requests = yield from _claims_of(ours, network, result)
    claimants: dict[Network, list[Node]] = {}
    for where, request in requests:
        claimants.setdefault(where, []).append(request.node)
        yield
    barred = {request.node.metadata.name for _, request in requests if request.barrier}
    targets = yield from find_targets(listed, ours, claimants, barred)
    listed = targets.routes
    granted = yield from _grant(requests, listed, result)
    present: set[Network] = set()
    taken: dict[Network, Route] = {}
    doomed: set[str] = set()
    holders = {node.spec.provider_id: node for node, _ in ours}
    for route, where in listed:
        yield
        claim = granted.get(where)
        if claim is not None and _leads_to(route, claim) and where not in present:
            present.add(where)  # also outside of the cluster's CIDRs; otherwise it would be created in every pass
            result.targets.add(route.provider_id)
        elif _foreign(route, owner):
            taken.setdefault(where, route)
        elif is_responsible(route.destination, network.cluster):
            result.targets.add(route.provider_id)
            doomed.add(route.provider_id)
            claimant = claim.node if claim is not None else None
            if _is_sure(route, claimant):
                result.delete.append(route)
            else:
                result.unclaimed.append(Removal(route, holders.get(route.provider_id), claimant))
    for where, claim in granted.items():
        yield
        if where in present or claim.barrier:
            continue
        if where in targets.pending:
            led = ", ".join(targets.pending[where].target_addresses or ())
            text = f"pod CIDR {claim.text} is routed to {led}, and the cloud has not reported whose address that is yet"
            result.problems.append((claim.node, text))
            continue
        if where in taken:
            text = f"pod CIDR {claim.text} is routed elsewhere by cluster {taken[where].owner!r} in the same network"
            result.problems.append((claim.node, text))
            continue
        route = Route(claim.text, claim.node.spec.provider_id, owner=owner, target_addresses=_ips(claim.verdict))
        result.create.append((claim.node, route))
    result.cut_off = [node for node, _ in ours if not node.spec.pod_cidrs and node.spec.provider_id in doomed]
    return result


def _listed(routes: Iterable[Route], owner: str) -> Steps[list[tuple[Route, Network]]]:
    """Return the routes that can be parsed, with their destinations; those of other owners come last."""
    own: list[tuple[Route, Network]] = []
    others: list[tuple[Route, Network]] = []
    for route in routes:
        if (where := parse(route.destination)) is not None:
            (others if _foreign(route, owner) else own).append((route, where))
        yield
    return own + others


def _claims_of(
    ours: Sequence[tuple[Node, Verdict]], network: PodNetwork, result: RoutePlan
) -> Steps[list[tuple[Network, _Claim]]]:
    """Return what each Node claims and what prevents it. Adds the Nodes with pod CIDRs to `result`."""
    requests: list[tuple[Network, _Claim]] = []
    for node, verdict in ours:
        yield
        for text in node.spec.pod_cidrs:
            result.nodes[node.metadata.name] = node
            where = parse(text)
            if where is None:
                result.problems.append((node, f"pod CIDR {text!r} is not a CIDR such as 10.244.1.0/24"))
                continue
            claim = _Claim(node, text, verdict)
            if isinstance(verdict, Refused):
                claim.barrier, claim.waits = verdict.message, verdict.reason is Reason.CLOUD_UNKNOWN
            elif problem := network.problem(where):
                claim.barrier = f"pod CIDR {text} {problem}"
            requests.append((where, claim))
    covered = yield from _covered(requests, ours, network)
    for where, claim in requests:
        yield
        if not claim.barrier and where in covered:
            address, name = covered[where]
            claim.barrier = f"pod CIDR {claim.text} covers {address}, an address of node {name}"
    return requests


def _covered(
    requests: Iterable[tuple[Network, _Claim]], ours: Iterable[tuple[Node, Verdict]], network: PodNetwork
) -> Steps[dict[Network, tuple[str, str]]]:
    """Return those of the CIDRs of `requests` that contain an address of a Node, as the cloud reports it: CIDR -> the
    address and the name of the Node."""
    cidrs: set[Network] = set()
    for where, _ in requests:
        cidrs.add(where)
        yield
    lengths = yield from _lengths(requests)
    covering: dict[Network, tuple[str, str]] = {}
    for node, verdict in ours:
        yield
        for address in verdict.own if isinstance(verdict, Vouched) else ():
            single = parse(address)
            if single is None or not any(lies_in(single, cidr) for cidr in network.cluster):
                continue
            for version, length in lengths:
                if version == single.version and (around := single.supernet(new_prefix=length)) in cidrs:
                    covering.setdefault(around, (address, node.metadata.name))
    return covering


def _lengths(requests: Iterable[tuple[Network, _Claim]]) -> Steps[set[tuple[int, int]]]:
    """Return IP version and prefix length of all CIDRs. There are only a few, so looking up each is cheap."""
    lengths: set[tuple[int, int]] = set()
    for where, _ in requests:
        lengths.add((where.version, where.prefixlen))
        yield
    return lengths


def _grant(
    requests: Sequence[tuple[Network, _Claim]], listed: Sequence[tuple[Route, Network]], result: RoutePlan
) -> Steps[dict[Network, _Claim]]:
    """Return which Node gets or keeps the route of each CIDR. Adds problems to `result`."""
    has: set[tuple[Network, str]] = set()
    for route, network in listed:
        yield
        if not route.blackhole:
            has.add((network, route.provider_id))

    def is_there(network: Network, claim: _Claim) -> bool:
        return (network, claim.node.spec.provider_id) in has

    def precedence(entry: tuple[Network, _Claim]) -> tuple[bool, bool, str, str]:
        network, claim = entry
        meta = claim.node.metadata
        return not is_there(network, claim), bool(claim.barrier), meta.creation_timestamp or "", meta.name

    claims = _Claims((yield from _lengths(requests)))
    kept: dict[Network, _Claim] = {}
    by_precedence = yield from in_order(requests, key=precedence)
    for network, claim in by_precedence:
        yield
        name = claim.node.metadata.name
        if claim.barrier:
            # Such a claim blocks only claims with the same destination as its existing route.
            holder = kept.setdefault(network, claim) if is_there(network, claim) else None
            if holder is not None and holder.node is claim.node and network not in claims.granted:
                result.kept.append(
                    (claim.node, f"the route to {claim.text} is kept, but would not be created now: {claim.barrier}")
                )
            elif claim.waits:
                result.nodes.pop(name, None)
            else:
                result.problems.append((claim.node, f"no route to {claim.text}: {claim.barrier}"))
            continue
        other = claims.other(network, claim.node) or kept.get(network)
        if other is None:
            claims.grant(network, claim)
            continue
        same = parse(other.text) == network
        how = "is also the pod CIDR" if same else f"overlaps {other.text}"
        other_name = other.node.metadata.name
        result.problems.append((claim.node, f"pod CIDR {claim.text} {how} of node {other_name}, which keeps the route"))
        result.contested.append(
            (other.node, f"pod CIDR {other.text} overlaps {claim.text} of node {name}, which gets no route for it")
        )
    claims_by_network: dict[Network, _Claim] = {}
    for network, _ in requests:  # in the given order, so that the same Nodes give the same plan
        yield
        if (holder := claims.granted.get(network) or kept.get(network)) is not None:
            claims_by_network[network] = holder
    return claims_by_network


def _is_sure(route: Route, claimant: Node | None) -> bool:
    """Return whether a route is wrong for certain, even without a read from the API server: it leads nowhere, or the
    Node to which it leads has or gets another route to the same CIDR."""
    if route.blackhole or not route.provider_id:
        return True
    return claimant is not None and claimant.spec.provider_id == route.provider_id


def wants(node: Node | None, route: Route, *, elsewhere: bool = False) -> bool:
    """Return whether a Node that was just read claims a route to this CIDR: this one, or one that leads `elsewhere`.

    A Node that lost its providerID may still claim this route.
    """
    if node is None or (node.spec.provider_id in ("", route.provider_id)) is elsewhere:
        return False
    return parse(route.destination) in {parse(text) for text in node.spec.pod_cidrs}


def lead_to_machines(nodes: Iterable[Node]) -> set[tuple[str, Network]]:
    """Return the last part of the providerID and the pod CIDR of each Node, as `leads_to_machine` needs them."""
    return {
        (node.spec.provider_id.rpartition("/")[2], where)
        for node in nodes
        for text in node.spec.pod_cidrs
        if node.spec.provider_id and (where := parse(text)) is not None
    }


def leads_to_machine(route: Route, machines: Collection[tuple[str, Network]]) -> bool:
    """Return whether a Node has this CIDR, and is the machine to which the route leads, whatever cloud owns the Node.

    If two clouds reach one project, a cloud also lists routes to Nodes of the other cloud, with a providerID whose
    first part differs.
    """
    where = parse(route.destination)
    return where is not None and (route.provider_id.rpartition("/")[2], where) in machines


def _foreign(route: Route, owner: str) -> bool:
    return route.owner not in ("", owner)


def _leads_to(route: Route, claim: _Claim) -> bool:
    """Return whether the route leads to the Node. If the cloud stores addresses with it, they must be current.

    A route that could not be created again is not deleted because of its addresses.
    """
    if route.blackhole or route.provider_id != claim.node.spec.provider_id:
        return False
    if route.target_addresses is None or claim.barrier:
        return True
    present = set(map(spelt, _ips(claim.verdict) or ()))
    return bool(route.target_addresses) and present.issuperset(map(spelt, route.target_addresses))


def _ips(verdict: Verdict) -> tuple[str, ...] | None:
    """Return the addresses to which a route may lead, None if there are none."""
    addresses = verdict.addresses if isinstance(verdict, Vouched) else ()
    return tuple(each.address for each in addresses if each.type.endswith("IP")) or None


def spacing(took: float) -> float:
    """Return the seconds from the end of a comparison that took `took` seconds to the next one that a Node may
    trigger."""
    return min(SPACING_MAX, max(SPACING_MIN, SPACING * took))


def routing(node: Node | None, judge: Judge) -> Hashable:
    """Return everything about a Node that affects its routes. Other changes trigger no comparison (R30-R33)."""
    verdict = None if node is None else judge(node)
    if node is None or verdict is None:
        return None
    trusted = verdict.reason if isinstance(verdict, Refused) else _ips(verdict)
    return node.metadata.uid, node.spec.provider_id, tuple(node.spec.pod_cidrs), trusted


def condition_patch(node: Node, routed: bool, now: str) -> dict[str, Any] | None:
    """Return the patch of `NetworkUnavailable` for exactly this Node; None if status and reason are already right
    (R34-R41)."""
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
    return {"metadata": {"uid": node.metadata.uid}, "status": {"conditions": [condition]}}
