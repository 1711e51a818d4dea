# SPDX-License-Identifier: Apache-2.0
"""What one listing of instances says about every Node, according to the controllers' own rules. No I/O.

`controllers/nodes/vouching.py` follows Nodes and the cloud for as long as a process leads. This module takes one look
at both.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ccm.cloud import CloudError, Instance, NotFound
from ccm.controllers.nodes import first_listing, node_rules, vouching_rules
from ccm.controllers.nodes.vouching_rules import Refused, Verdict
from ccm.engine.objects import Node
from ccm.gateway.instance_snapshot import Snapshot

#: The maximum number of similar names in an answer.
NEAREST = 3


@dataclass(frozen=True)
class Judging:
    """What a listing says about Nodes. `owns`: whether a providerID is one of this provider's. `singles`: name of a
    Node -> the answer to a single read of its instance, for instances that the listing does not have. `others`: Nodes
    that are not this cloud's, but may claim its instances."""

    nodes: Sequence[Node]
    snapshot: Snapshot
    owns: Callable[[str], bool]
    singles: Mapping[str, Instance | CloudError] = field(default_factory=dict)
    others: Sequence[Node] = ()
    _claims: dict[str, list[Node]] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        for node in (*self.nodes, *self.others):
            if self.owns(node.spec.provider_id):
                self._claims.setdefault(self._same_as(node.spec.provider_id), []).append(node)

    def _same_as(self, provider_id: str) -> str:
        return self.snapshot.canonical(provider_id) or provider_id

    def listed(self, node: Node) -> Instance | CloudError:
        """Return the Node's instance from the listing, or the error that says why the listing does not have it."""
        try:
            return self.snapshot.find(node_rules.instance_ref(node))
        except CloudError as error:
            return error

    def namesakes(self, name: str) -> Sequence[Instance]:
        return self.snapshot.by_name.get(name, ())

    def claimants(self, node: Node) -> Sequence[Node]:
        """Return all Nodes with the Node's providerID, in whatever spelling."""
        return self._claims.get(self._same_as(node.spec.provider_id), ())

    def judge(self, node: Node) -> Verdict | None:
        """Return the verdict for load balancers and routes; None for a Node without a providerID of this cloud."""
        if not self.owns(node.spec.provider_id):
            return None
        listed = self.listed(node)
        answer = self.singles.get(node.metadata.name, listed) if isinstance(listed, NotFound) else listed
        instance, doubt = (None, answer) if isinstance(answer, CloudError) else (answer, None)
        namesakes = self.namesakes(node.metadata.name)
        return vouching_rules.judge(node, instance, self.claimants(node), namesakes, doubt)

    def contradiction(self, node: Node, instance: Instance) -> Refused | None:
        """Return why `instance` is not the Node's machine, None if it may be."""
        if not node.spec.provider_id:
            return vouching_rules.stopped_namesake(node, instance)
        verdict = vouching_rules.judge(node, instance, self.claimants(node), self.namesakes(node.metadata.name))
        return verdict if isinstance(verdict, Refused) else None

    def not_listed(self) -> list[Node]:
        """Return the Nodes of this cloud whose instance does not exist according to the listing. What an incomplete
        listing does not know is left out."""
        ours = [node for node in self.nodes if self.owns(node.spec.provider_id)]
        return [node for node, why in first_listing.missing_from(ours, self.snapshot) if isinstance(why, NotFound)]

    @property
    def implausible_because(self) -> str:
        """Why load balancers and routes must not change because of this listing, "" if they may."""
        ours = [node for node in self.nodes if self.owns(node.spec.provider_id)]
        return first_listing.implausible_because(
            ours, [node for node, _ in first_listing.missing_from(ours, self.snapshot)]
        )

    def nearest(self, name: str) -> list[str]:
        """Return names of instances that are similar to this name."""
        return nearest(name, self.snapshot.by_name)


def nearest(name: str, names: Iterable[str]) -> list[str]:
    """Return at most `NEAREST` names that are similar to `name`, the best one first."""
    folded: dict[str, str] = {}
    for candidate in names:
        folded.setdefault(candidate.casefold(), candidate)
    short = name.casefold().partition(".")[0]
    matches = [folded[each] for each in folded if each.partition(".")[0] == short]
    matches += [folded[match] for match in difflib.get_close_matches(name.casefold(), folded, NEAREST, 0.6)]
    return list(dict.fromkeys(matches))[:NEAREST]
