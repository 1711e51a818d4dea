# SPDX-License-Identifier: Apache-2.0
"""Which Nodes the lifecycle controller would fence, why it would not fence others, and where it would remove the fence.
No I/O.

It decides with `node_fencing_rules`, as if every confirmation had said what this listing says.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping
from typing import Any

from ccm.base.durations import spell
from ccm.controllers.nodes import node_fencing_rules as rules
from ccm.controllers.nodes import node_rules
from ccm.controllers.nodes.node import age_seconds
from ccm.controllers.nodes.node_lifecycle import LifecycleOptions
from ccm.controllers.nodes.node_lifecycle_rules import Missing, Window, concerns_us
from ccm.controllers.nodes.node_witness import Witnesses
from ccm.engine.objects import Node

from ..asking.answers import Action, Outlook
from .judging import Judging

RULE = "a Node that is not Ready and whose machine is shut down or gone is fenced (--fence-dead-nodes) until it runs"
FLAG = "--fence-dead-nodes --node-deletion-cap"
ADDED, REMOVED = f"taint {rules.KEY} is added", f"taint {rules.KEY} is removed"


def fencing_outlooks(
    judging: Judging, options: LifecycleOptions, windows: Iterable[Window], now: datetime.datetime
) -> Mapping[str, Outlook]:
    """Return the outlook of each Node that would be fenced, would be fenced but is held, or loses its fence, by name.

    `windows`: what leaders deleted and fenced, on a monotonic clock whose present time is 0.
    """
    ours = [node for node in judging.nodes if node.spec.provider_id and concerns_us(node, judging.owns)]
    outlooks = {node.metadata.name: _lifted(node) for node in ours if rules.is_to_lift(node, judging.listed(node))}
    if not options.fence:
        return outlooks
    evidence = Witnesses(lambda node: concerns_us(node, judging.owns)).hear(judging.nodes, judging.snapshot)
    scene = rules.Scene(ours, judging.snapshot, evidence)
    dead = [node for node in ours if _is_candidate(node, judging)]
    others = len(dead) - 1 + sum(len(window.within(0.0)) for window in windows)
    return outlooks | {node.metadata.name: _judged(node, scene, others, options, now) for node in dead}


def _is_candidate(node: Node, judging: Judging) -> bool:
    if node_rules.is_ready(node) or rules.is_fenced(node):
        return False
    listed = judging.listed(node)
    return rules.is_dead(listed) and rules.is_dead(judging.singles.get(node.metadata.name, listed))


def _lifted(node: Node) -> Outlook:
    return _outlook(node, Action.UPDATE, changes=[REMOVED], because="its machine runs again")


def _judged(node: Node, scene: rules.Scene, others: int, options: LifecycleOptions, now: datetime.datetime) -> Outlook:
    safety = options.safety
    objection = rules.objection(
        node,
        Missing(node.metadata.uid, node.spec.provider_id, safety.confirmations),
        scene,
        age=age_seconds(node, now),
        last_seen=None,
        others=others,
        now=0.0,
        safety=safety,
    )
    if objection is None:
        reads = f"after {safety.confirmations} reads, {spell(safety.interval)} apart"
        because = f"its machine {node.spec.provider_id} is shut down or gone"
        return _outlook(node, Action.UPDATE, changes=[ADDED], because=because, when=reads)
    action = Action.WAIT if objection.waits else Action.BLOCKED
    because = f"the Node is not fenced: {objection.message}"
    return _outlook(node, action, reason=objection.reason, because=because)


def _outlook(node: Node, action: Action, **more: Any) -> Outlook:
    return Outlook(kind="Node", name=node.metadata.name, action=action, rule=RULE, flag=FLAG, **more)
