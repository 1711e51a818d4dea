# SPDX-License-Identifier: Apache-2.0
"""Which Nodes the lifecycle controller would delete, and why it would keep others. No I/O.

It decides with `node_lifecycle_rules` and `node_witness_rules`, as if every confirmation had said what this listing
says. Like a new leader, it does not know what only a process that led for a while knows, such as earlier listings.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Any

from ccm.base.durations import spell
from ccm.cloud import CloudError, Instance, NotFound
from ccm.controllers.nodes import node_rules
from ccm.controllers.nodes.node import age_seconds
from ccm.controllers.nodes.node_lifecycle_rules import (
    Decision,
    Missing,
    Safety,
    Verdict,
    Window,
    certain_age,
    concerns_us,
    decide,
    turn,
)
from ccm.controllers.nodes.node_witness import Witnesses
from ccm.controllers.nodes.node_witness_rules import doubt
from ccm.engine.objects import Node

from ..asking.answers import Action, Outlook
from .judging import Judging

RULE = "a Node that is not Ready is deleted when every read for long enough reports that its instance is gone"
#: Reason of a decision -> the flags that change it.
FLAGS = {
    "": "--node-deletion-confirmations={confirmations} --node-monitor-period={interval}",
    "TooYoung": "--node-deletion-min-age={min_age}",
    "TurnedOff": "--node-deletion-cap=0",
    "RateLimited": "--node-deletion-cap --node-deletion-window={window}",
    "ListingDoubted": "--cloud-config",
}
#: Reason of a decision -> what a person should do.
TO_DO = {
    "NoProviderID": "delete the Node by hand if it is no longer needed",
    "TurnedOff": "delete the Node by hand",
    "ListingDoubted": "check --cloud-config; delete the Nodes by hand if their machines are really gone",
}


def lifecycle_outlooks(judging: Judging, safety: Safety, window: Window, now: datetime.datetime) -> dict[str, Outlook]:
    """Return the outlook of each initialised Node that is not Ready and whose instance is not in the listing, by name.

    `window`: the deletions that leaders recorded, on a monotonic clock whose present time is 0.
    """
    candidates = [
        node
        for node in judging.nodes
        if not node_rules.is_ready(node) and not node_rules.is_uninitialized(node) and concerns_us(node, judging.owns)
    ]
    outlooks: dict[str, Outlook] = {}
    gone: list[Node] = []
    for node in candidates:
        answer = judging.listed(node)
        if isinstance(answer, Instance):
            continue
        last = judging.singles.get(node.metadata.name, answer)
        if isinstance(answer, NotFound) and (isinstance(last, NotFound) or not node.spec.provider_id):
            gone.append(node)
        else:
            outlooks[node.metadata.name] = _unsure(node, answer, last)
    return outlooks | _settled(gone, judging, safety, window, now)


def _settled(
    gone: Sequence[Node], judging: Judging, safety: Safety, window: Window, now: datetime.datetime
) -> dict[str, Outlook]:
    """Return the outlook of each of the Nodes `gone`, by name. As in the controller, the first Nodes in the order of
    `turn` may be deleted now, up to the cap."""
    evidence = Witnesses(lambda node: concerns_us(node, judging.owns)).hear(judging.nodes, judging.snapshot)
    taken = window.within(0.0)
    nodes = evidence.known + len(taken)
    cap, at_once = safety.cap(nodes), safety.cap(evidence.listed + len(evidence.absent))
    objection = doubt(evidence, last_seen=None, cap=at_once, now=0.0)
    missing = {
        node.metadata.name: Missing(node.metadata.uid, node.spec.provider_id, safety.confirmations) for node in gone
    }

    def place(node: Node) -> tuple[int, bool, str, str]:
        meta = node.metadata
        return turn(missing[meta.name], seen=False, created=meta.creation_timestamp, name=meta.name)

    outlooks: dict[str, Outlook] = {}
    for node in sorted(gone, key=place):
        decision = decide(
            missing[node.metadata.name],
            age=certain_age(age_seconds(node, now), None),
            doubt=objection,
            used=len(taken - {node.metadata.uid}),
            nodes=nodes,
            cap=cap,
            safety=safety,
        )
        if decision.verdict is Verdict.DELETE:
            taken.add(node.metadata.uid)
        outlooks[node.metadata.name] = _decided(node, decision, safety)
    return outlooks


def _decided(node: Node, decision: Decision, safety: Safety) -> Outlook:
    values: Mapping[str, Any] = {
        "confirmations": safety.confirmations,
        "interval": spell(safety.interval),
        "min_age": spell(safety.min_age),
        "window": spell(safety.window),
    }
    reads = f"after {safety.confirmations} reads, {spell(safety.interval)} apart"
    gone = f"its instance {node.spec.provider_id} is gone"
    flag = FLAGS.get(decision.reason, "").format(**values)
    if decision.verdict is Verdict.DELETE:
        return _outlook(node, Action.DELETE, changes=["the Node is deleted"], because=gone, when=reads, flag=flag)
    action = Action.WAIT if decision.verdict is Verdict.WAIT else Action.BLOCKED
    because = decision.message if action is Action.BLOCKED else f"{gone}; {decision.message}"
    when = {"TooYoung": f"when it is {spell(safety.min_age)} old", "RateLimited": "when it is its turn"}
    return _outlook(
        node,
        action,
        reason=decision.reason,
        because=because,
        flag=flag,
        when=when.get(decision.reason, ""),
        to_do=TO_DO.get(decision.reason, ""),
    )


def _unsure(node: Node, answer: CloudError, last: Instance | CloudError) -> Outlook:
    because = f"the cloud could not say whether its instance exists, so it is kept: {answer}"
    if isinstance(last, Instance):
        because = f"the cloud does not list {node.spec.provider_id}, but returns it when asked for it, so it is kept"
    elif isinstance(answer, NotFound):
        because = f"the cloud could not say whether its instance exists, so it is kept: {last}"
    return _outlook(node, Action.UNKNOWN, reason="CloudUnknown", because=because)


def _outlook(node: Node, action: Action, **more: Any) -> Outlook:
    return Outlook(kind="Node", name=node.metadata.name, action=action, rule=RULE, **more)
