# Copyright: The outoftree.ccm authors
# SPDX-License-Identifier: Apache-2.0
"""An event filter for ansible-rulebook: decides which alerts of a message from Alertmanager get an answer, and which one."""

from __future__ import annotations

import logging
import re
from typing import Any, Dict, Iterator, List, Sequence

DOCUMENTATION = r"""
---
short_description: Name the answer to each alert of the cloud-controller-manager.
description:
  - Takes an event of eda.builtin.webhook whose payload is a message of Alertmanager, and returns an event for each firing alert that one of
    the lists names. Everything else is dropped, and logged unless it is an alert that does not fire.
  - The new event has nothing of the message but the names of the alert and the Node. The Node's name must be one that Kubernetes accepts. No other
    text of the message can become a variable, a template or a part of a command line.
options:
  worker:
    description: Alerts about one Node, whose label C(node) names it. The event's C(meta.hosts) limits the run to it and the control planes.
    type: list
    elements: str
  cluster:
    description: Alerts about the cluster.
    type: list
    elements: str
  report:
    description: Alerts that are reported, and never healed.
    type: list
    elements: str
  most_workers:
    description: Maximum number of Nodes in a message that are answered one by one. If a message names more, one report answers all of them.
    type: int
    default: 3
"""

EXAMPLES = r"""
- eda.builtin.webhook:
    port: 5000
  filters:
    - outoftree.ccm.alerts:
        worker: [CcmNodeUnmanaged]
        cluster: [CcmNotRunning]
"""

LOGGER = logging.getLogger("outoftree.ccm.alerts")

#: The name of a Node, by Kubernetes' rule for a DNS subdomain.
NODE = re.compile(r"(?=.{1,253}\Z)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
#: Names of groups and hosts that Ansible defines itself.
TAKEN = ("all", "ungrouped", "localhost")
#: Hosts that each run must include, because plans and checks run there.
WITH = ("localhost", "kube_control_plane")


def main(
    event: Dict[str, Any],
    worker: Sequence[str] = (),
    cluster: Sequence[str] = (),
    report: Sequence[str] = (),
    most_workers: int = 3,
) -> List[Dict[str, Any]]:
    """Return an event for each alert that gets an answer. More than `most_workers` Nodes get one report together."""
    answers = {name: kind for kind, names in (("worker", worker), ("cluster", cluster), ("report", report)) for name in names}
    found = list(_answered(_alerts(event), answers))
    nodes = sorted({answer["node"] for answer in found if answer["node"]})
    if len(nodes) <= most_workers:
        return found
    LOGGER.warning("%d Nodes at once (%s, ...): none of them is healed, and one report is made", len(nodes), nodes[0])
    name = next(answer["alert"] for answer in found if answer["node"])
    return [answer for answer in found if not answer["node"]] + [_answer(name, "report")]


def _alerts(event: Any) -> Iterator[Dict[str, Any]]:
    """Yield the firing alerts of a message."""
    payload = event.get("payload") if isinstance(event, dict) else None
    alerts = payload.get("alerts") if isinstance(payload, dict) else None
    if not isinstance(alerts, list):
        LOGGER.warning("a message without a list of alerts was dropped: let only Alertmanager's webhook_config send messages here")
        return
    for alert in alerts:
        if not isinstance(alert, dict) or not isinstance(alert.get("labels"), dict):
            LOGGER.warning("an alert without labels was dropped")
        elif alert.get("status") == "firing":
            yield alert


def _answered(alerts: Iterator[Dict[str, Any]], answers: Dict[str, str]) -> Iterator[Dict[str, Any]]:
    for alert in alerts:
        name, node = alert["labels"].get("alertname"), alert["labels"].get("node")
        if not isinstance(name, str) or name not in answers:
            LOGGER.warning("the alert %s was dropped: the rulebook has no answer to it", _quoted(name))
        elif answers[name] != "worker":
            yield _answer(name, answers[name])
        elif node is None:
            LOGGER.warning("the alert %s was dropped: it has no label node", name)
        elif not isinstance(node, str) or not NODE.fullmatch(node) or node in TAKEN:
            LOGGER.warning("the alert %s was dropped: its label node is %s, which is no name of a Node", name, _quoted(node))
        else:
            yield _answer(name, "worker", node)


def _answer(name: str, kind: str, node: str = "") -> Dict[str, Any]:
    answer: Dict[str, Any] = {"alert": name, "answer": kind, "node": node}
    return dict(answer, meta={"hosts": [*WITH, node]}) if node else answer


def _quoted(value: Any) -> str:
    """Return a text from a message for the log: on one line, and short."""
    return ascii(value)[:80]
