# SPDX-License-Identifier: Apache-2.0
"""Decide whether a Node gets the pod CIDRs that the cloud assigned to its instance (`Instance.pod_cidrs`). No I/O.

This is kube-controller-manager's cloud allocator (`--cidr-allocator-type=CloudAllocator`) for any provider. The
original trusts the cloud. This one also checks that the CIDRs lie inside `--cluster-cidr` and belong to no other Node.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ccm.base.text import shorten
from ccm.engine.objects import Node

from ..shared.pod_network_rules import Network, lies_in, parse
from .node_ipam_rules import NotAssigned, pod_networks

#: The maximum number of characters of the cloud's text that a message quotes.
QUOTED = 60


class CloudRanges:
    """The pod CIDRs that Nodes hold, by the UID of the Node. `cluster`: `--cluster-cidr`, inside of which all pod CIDRs
    lie."""

    def __init__(self, cluster: Sequence[Network]) -> None:
        self._cluster = cluster
        self._held: dict[str, tuple[Network, ...]] = {}
        #: First and last address of each network, by family and UID: quicker to compare than networks.
        self._spans: dict[int, dict[str, tuple[int, int]]] = {4: {}, 6: {}}

    def observe(self, node: Node) -> set[str]:
        """Remember the CIDRs of a Node that has some. Return the UIDs of other Nodes with overlapping ones."""
        uid, networks = node.metadata.uid, pod_networks(node)
        if not networks:
            return set()
        if self._held.get(uid) != networks:
            self._hold(uid, networks)
        return set(self._others(uid, networks))

    def release(self, uid: str) -> bool:
        """Forget a Node that is gone. Return whether it held something."""
        for spans in self._spans.values():
            spans.pop(uid, None)
        return bool(self._held.pop(uid, ()))

    def assign(self, uid: str, offered: Sequence[str]) -> tuple[str, ...]:
        """Return pod CIDRs for a Node that has none. They belong to the Node until it is released.

        `offered`: what the cloud assigned to its instance. Raises NotAssigned if it assigned none that can be used, or
        if another Node has an overlapping one.
        """
        networks = tuple(self._checked(offered))
        if others := set(self._others(uid, networks)):
            raise NotAssigned(
                f"the cloud assigned {', '.join(map(str, networks))} to its instance, and {len(others)} other Nodes "
                "have pod CIDRs that overlap: delete those that are wrong",
                "CIDRConflict",
            )
        self._hold(uid, networks)
        return tuple(map(str, networks))

    def _checked(self, offered: Sequence[str]) -> Iterator[Network]:
        """Yield the first network of each family inside `--cluster-cidr`, because an instance may have ranges for other
        purposes. Raises NotAssigned if there is none."""
        if not offered:
            raise NotAssigned("the cloud assigned no pod CIDR to its instance", "CIDRNotAvailable")
        families = set()
        for text in offered:
            network = parse(text)
            fits = network is not None and any(lies_in(network, cidr) for cidr in self._cluster)
            if network is not None and fits and network.version not in families:
                families.add(network.version)  # the API server allows one of each family
                yield network
        if not families:
            assigned, inside = shorten(", ".join(offered), QUOTED), ", ".join(map(str, self._cluster))
            raise NotAssigned(
                f"the cloud assigned {assigned} to its instance, and nothing inside --cluster-cidr ({inside})",
                "CIDRNotAvailable",
            )

    def _hold(self, uid: str, networks: Iterable[Network]) -> None:
        self.release(uid)
        self._held[uid] = tuple(networks)
        for network in self._held[uid]:
            self._spans[network.version][uid] = _span(network)

    def _others(self, uid: str, networks: Iterable[Network]) -> Iterator[str]:
        for network in networks:
            first, last = _span(network)
            for other, (begin, end) in self._spans[network.version].items():
                if begin <= last and first <= end and other != uid:
                    yield other


def _span(network: Network) -> tuple[int, int]:
    return int(network.network_address), int(network.broadcast_address)
