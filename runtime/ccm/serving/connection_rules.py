# SPDX-License-Identifier: Apache-2.0
"""Decides which connections to a port are kept: how many, for how long, and which one is closed if there are too many.

Anyone on the nodes' network can connect, and a connection uses memory before any data arrives. Therefore, at a limit,
a new connection is admitted if an idle one can be closed for it, so that silent connections cannot block a probe. The
peer with the most connections loses one first, so a client that floods the port displaces its own connections.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Collection
from typing import Protocol, TypeVar

import msgspec


class Limits(msgspec.Struct, frozen=True):
    """Limits of the connections to one port. `total`, `per_peer`: numbers of connections. Times are in seconds."""

    total: int = 256
    per_peer: int = 64
    #: How long the TLS handshake may take.
    handshake: float = 10.0
    #: How long a client may take to send the headers of a request, and how long it may be silent between two requests
    #: (net/http in Kubernetes: 32 and 90).
    idle: float = 30.0
    #: How long the body of a request and the handler may take together. The API server waits at most 30 s for a
    #: webhook.
    request: float = 35.0
    #: How long a client may leave its answer unread.
    unread: float = 10.0


class Held(Protocol):
    """The properties of a connection that the rules use."""

    @property
    def peer(self) -> str: ...
    @property
    def busy(self) -> bool:
        """Whether a request on it is being answered."""
        ...

    @property
    def since(self) -> float:
        """When it was accepted or last became idle, on a monotonic clock."""
        ...


H = TypeVar("H", bound=Held)


def peer_of(address: str) -> str:
    """Return the peer of an address: an IPv4 address, or the /64 of an IPv6 one, because a host may use its whole
    /64."""
    try:
        address_ = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(address_, ipaddress.IPv6Address):
        if address_.ipv4_mapped is not None:
            return str(address_.ipv4_mapped)
        return str(ipaddress.ip_network((int(address_), 64), strict=False))
    return str(address_)


def make_room(held: Collection[H], peer: str, limits: Limits) -> tuple[bool, H | None]:
    """Return whether a new connection from `peer` is admitted, and which connection is closed for it, if any."""
    of_peer = [each for each in held if each.peer == peer]
    if len(of_peer) >= limits.per_peer:
        loser = _longest_waiting(of_peer)
        return loser is not None, loser
    if len(held) < limits.total:
        return True, None
    number = Counter(each.peer for each in held)
    idle = [each for each in held if not each.busy]
    if not idle:
        return False, None
    most = max(number[each.peer] for each in idle)
    loser = _longest_waiting([each for each in idle if number[each.peer] == most])
    return True, loser


def _longest_waiting(held: Collection[H]) -> H | None:
    return min((each for each in held if not each.busy), key=lambda each: each.since, default=None)
