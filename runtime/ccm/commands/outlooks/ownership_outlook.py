# SPDX-License-Identifier: Apache-2.0
"""Which of several clouds owns each Node, and what happens to Nodes that no cloud owns. No I/O.

`ownership_rules` decides.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from ccm.cloud import CloudError
from ccm.controllers.nodes import node_rules
from ccm.controllers.nodes import ownership_rules as rules
from ccm.controllers.nodes.ownership_rules import (
    LABEL,
    CloudAnswer,
    Declarations,
    Owned,
    Ownership,
    Undecided,
    Unowned,
)
from ccm.engine.objects import Node

from ..asking.answers import ASK_DOCTOR, Action, Outlook
from .judging import Judging

RULE = "a Node that is not known to be one cloud's is left alone"
TO_DO = {
    "InstanceNotFound": "give the Node and its machine the same name, or correct the files of --cloud-config",
    "SeveralOwners": f"rename one of the machines, or set the label {LABEL} of the Node",
    "OwnersContradict": f"correct the label {LABEL}, or --cloud-nodes",
    "ForeignProviderID": "leave it to the controller of its cloud, or delete the Node and restart its kubelet",
}


def owners(
    nodes: Iterable[Node],
    clouds: Mapping[str, Judging | CloudError],
    owning: Callable[[str], Collection[str]],
    declarations: Declarations,
) -> dict[str, Ownership]:
    """Return name of a Node -> which cloud owns it.

    `clouds`: each cloud's answer, in the order of `--cloud-provider`. `owning`: returns the clouds that use the form of
    a providerID. A Node with neither the taint nor a providerID counts as the first cloud's: no cloud initialises it,
    but one of them must report it.
    """
    return {node.metadata.name: _owner(node, clouds, owning, declarations) for node in nodes}


def _owner(
    node: Node,
    clouds: Mapping[str, Judging | CloudError],
    owning: Callable[[str], Collection[str]],
    declarations: Declarations,
) -> Ownership:
    provider_id = node.spec.provider_id
    if not provider_id and not node_rules.is_uninitialized(node):
        return Owned(next(iter(clouds)))

    def answer_of(cloud: str) -> CloudAnswer:
        answer = clouds[cloud]
        return CloudAnswer(answer if isinstance(answer, CloudError) else answer.listed(node))

    return rules.whose(node, owning(provider_id), answer_of, declarations)


def ownership_outlook(node: Node, ownership: Unowned | Undecided) -> Outlook:
    """Return the outlook of a Node that no cloud owns, or whose owner is not known yet."""
    name = node.metadata.name
    if isinstance(ownership, Undecided):
        because, reason = ownership.message, "CloudNotAvailable"
        action, to_do = Action.UNKNOWN, ASK_DOCTOR
    else:
        because, reason = ownership.message, ownership.reason
        waits = node_rules.is_uninitialized(node) and reason != "OtherController"
        action = Action.BLOCKED if waits or reason == "OwnersContradict" else Action.NOTHING
        to_do = TO_DO.get(reason, "") if action is Action.BLOCKED else ""
    return Outlook(
        kind="Node", name=name, action=action, reason=reason, because=because, rule=RULE, to_do=to_do,
        flag="--cloud-provider --cloud-nodes",
    )  # fmt: skip
