# SPDX-License-Identifier: Apache-2.0
"""Remember what the Nodes say about the cloud's listings, for as long as this process leads.

This file uses Nodes and listings that others read and makes no calls; `node_witness_rules` decides.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from ccm.cloud import CloudError, NotFound
from ccm.engine.objects import Node
from ccm.gateway.instance_snapshot import Snapshot

from . import node_rules
from .node_witness_rules import Claim, Evidence, Sightings, evidence


class Witnesses:
    """Remembers what the Nodes say about the cloud's listings. `is_ours`: whether a Node belongs to this provider and
    is not being deleted."""

    def __init__(self, is_ours: Callable[[Node], bool]) -> None:
        self._is_ours = is_ours
        self._sightings = Sightings()
        #: When the latest listing in `_sightings` began, and the UIDs of the Nodes that were compared with it.
        self._learnt = -math.inf
        self._compared: set[str] = set()

    def overhear(self, nodes: Iterable[Node], listing: Snapshot | None) -> None:
        """Learn from a listing that another controller requested, unless it contains nothing new."""
        if listing is None or listing.began < self._learnt:
            return
        nodes = list(nodes)
        if listing.began > self._learnt or not _identified(nodes) <= self._compared:
            self.hear(nodes, listing)

    def hear(self, nodes: Iterable[Node], listing: Snapshot) -> Evidence:
        """Learn from a listing. Return what the Nodes say about it, based on this listing and on earlier ones."""
        nodes = list(nodes)
        ours = (node for node in nodes if node.spec.provider_id and self._is_ours(node))
        claims = [claim for node in ours if (claim := _claim(node, listing)) is not None]
        if listing.began >= self._learnt:
            self._learnt, self._compared = listing.began, _identified(nodes)
            self._sightings.learn(claims, listing.began)
        return evidence(claims, self._sightings)

    def saw(self, node: Node, instance_name: str, when: float) -> None:
        """Record that the cloud returned the Node's own instance in a read that began at `when` (monotonic seconds)."""
        self._sightings.saw(_claim_as(node, instance_name), when)

    def last_seen(self, uid: str, provider_id: str) -> float | None:
        """Return when the Node's instance was last seen (monotonic seconds), None for never."""
        sighting = self._sightings.of(uid, provider_id)
        return sighting.last if sighting else None

    def keep_only(self, nodes: Iterable[Node]) -> None:
        """Forget Nodes that no longer exist."""
        self._sightings.keep_only({node.metadata.uid for node in nodes})


def _identified(nodes: Iterable[Node]) -> set[str]:
    return {node.metadata.uid for node in nodes if node.spec.provider_id}


def _claim(node: Node, listing: Snapshot) -> Claim | None:
    """Return the claim of a Node; None if the listing says nothing, e.g. because the providerID has another
    spelling."""
    try:
        return _claim_as(node, node_rules.known_as(node, listing.find(node_rules.instance_ref(node))))
    except NotFound:
        return _claim_as(node, None, replaced=node.metadata.name in listing.by_name)
    except CloudError:
        return None


def _claim_as(node: Node, listed_as: str | None, *, replaced: bool = False) -> Claim:
    meta = node.metadata
    return Claim(meta.uid, meta.name, node.spec.provider_id, node_rules.is_ready(node), listed_as, replaced)
