# SPDX-License-Identifier: Apache-2.0
"""Find the Node of each route that the cloud lists with addresses and without a providerID. No I/O.

In some clouds, a route leads to an address. The framework already knows every Node's instance and its addresses, so
such a provider need not list all instances whenever it lists routes.

A route whose Node cannot be determined is pending: it is neither deleted nor replaced. A route leads nowhere only if
the instances of all Nodes are known and none of them has all of its addresses.
"""

from __future__ import annotations

import dataclasses
import functools
import ipaddress
from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from ccm.cloud import Route
from ccm.engine.objects import Node

from ..nodes.vouching_rules import Reason, Refused, Verdict, Vouched
from ..shared.pod_network_rules import Network
from ..shared.stretches import Steps


class Targets(msgspec.Struct):
    """The result of `find_targets`.

    `routes`: the routes, with the providerID of their Node where it was found. `pending`: routes whose Node cannot be
    determined yet, by destination.
    """

    routes: list[tuple[Route, Network]] = msgspec.field(default_factory=list)
    pending: dict[Network, Route] = msgspec.field(default_factory=dict)


def find_targets(
    listed: Sequence[tuple[Route, Network]],
    nodes: Iterable[tuple[Node, Verdict]],
    claimants: Mapping[Network, Collection[Node]],
    barred: Collection[str],
) -> Steps[Targets]:
    """Match routes to Nodes.

    `claimants`: the Nodes with this exact pod CIDR. `barred`: names of Nodes that get no new route at present. A
    barred Node that claims the CIDR of a route to an unknown address keeps that route, as it would keep a route with
    its providerID.
    """
    targets = Targets()
    if not any(_names_addresses_alone(route) for route, _ in listed):
        targets.routes = list(listed)
        return targets
    holders: dict[str, set[str]] = {}
    all_known = True
    for node, verdict in nodes:
        yield
        own = verdict.own if isinstance(verdict, Vouched) else ()
        all_known &= bool(own) or (isinstance(verdict, Refused) and verdict.reason is not Reason.CLOUD_UNKNOWN)
        for address in own:
            holders.setdefault(spelt(address), set()).add(node.spec.provider_id)
    for route, where in listed:
        yield
        if not _names_addresses_alone(route):
            targets.routes.append((route, where))
            continue
        by_address = [holders.get(spelt(address), set()) for address in route.target_addresses or ()]
        possible = set.intersection(*by_address)
        claiming = claimants.get(where, ())
        if len(possible) > 1:
            possible &= {node.spec.provider_id for node in claiming}
            if len(possible) != 1:
                targets.pending[where] = route
                continue
        if not possible and not any(by_address):
            possible = {node.spec.provider_id for node in claiming if node.metadata.name in barred}
        if len(possible) == 1:
            targets.routes.append((dataclasses.replace(route, provider_id=possible.pop()), where))
        elif possible or not all_known:
            targets.pending[where] = route
        else:
            targets.routes.append((route, where))
    return targets


def _names_addresses_alone(route: Route) -> bool:
    return not route.provider_id and not route.blackhole and bool(route.target_addresses)


@functools.lru_cache(maxsize=65536)
def spelt(address: str) -> str:
    """Return an IP address in its canonical spelling; any other text unchanged."""
    try:
        return str(ipaddress.ip_address(address))
    except ValueError:
        return address
