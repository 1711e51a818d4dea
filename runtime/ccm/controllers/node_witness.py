# SPDX-License-Identifier: Apache-2.0
"""What the Nodes say about the cloud's listings, remembered for as long as this process leads.

It reads Nodes and listings that others asked for and makes no call itself; `node_witness_rules` decides.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from ccm.cloud import CloudError, NotFound
from ccm.cloud.directory import Snapshot
from ccm.engine.objects import Node

from . import node_rules
from .node_witness_rules import Claim, Evidence, Sightings, evidence


class Witnesses:
    """Nodes that are given to it are of this provider, and have a providerID."""

    def __init__(self) -> None:
        self._sightings = Sightings()
        #: When the latest listing began that `_sightings` has.
        self._learnt = -math.inf

    def knows(self, listing: Snapshot) -> bool:
        return listing.began <= self._learnt

    def hear(self, nodes: Iterable[Node], listing: Snapshot) -> Evidence:
        """What the Nodes say about a listing, with what was seen before and in it."""
        claims = [claim for node in nodes if (claim := _claim(node, listing)) is not None]
        if not self.knows(listing):
            self._learnt = listing.began
            self._sightings.learn(claims, listing.began)
        return evidence(claims, self._sightings)

    def saw(self, node: Node, instance_name: str, when: float) -> None:
        """The cloud answered for the Node's very instance, in a read that began at `when` (monotonic seconds)."""
        self._sightings.saw(_claim_as(node, instance_name), when)

    def last_seen(self, uid: str, provider_id: str) -> float | None:
        """When the instance of a Node was seen (monotonic seconds), None for never."""
        sighting = self._sightings.of(uid, provider_id)
        return sighting.last if sighting else None

    def keep_only(self, nodes: Iterable[Node]) -> None:
        """Forget those that no longer exist."""
        self._sightings.keep_only({node.metadata.uid for node in nodes})


def _claim(node: Node, listing: Snapshot) -> Claim | None:
    """None when the listing says nothing about it, for example because the providerID has another spelling."""
    try:
        return _claim_as(node, listing.find(node_rules.instance_ref(node)).name)
    except NotFound:
        return _claim_as(node, None, replaced=node.metadata.name in listing.by_name)
    except CloudError:
        return None


def _claim_as(node: Node, listed_as: str | None, *, replaced: bool = False) -> Claim:
    meta = node.metadata
    return Claim(meta.uid, meta.name, node.spec.provider_id, node_rules.is_ready(node), listed_as, replaced)
