# SPDX-License-Identifier: Apache-2.0
"""Report a provider's warnings about single instances (`Instance.warnings`) once, on the Node that each concerns.

A refresh sees the same warning every few minutes. The first time, it becomes an Event and a log line. It is reported
again only if it went away in between, for another Node of the same name, or by another process.
"""

from __future__ import annotations

import logging

from ccm.base.text import printable, shorten
from ccm.cloud import Instance
from ccm.engine.objects import Node

from ..shared.event_budget import EventBudget

log = logging.getLogger(__name__)

#: Maximum number of warnings of one instance, and of characters in each, because a cloud may quote anything.
MOST, LONGEST = 5, 500


class InstanceWarnings:
    def __init__(self, events: EventBudget) -> None:
        self._events = events
        #: Node name -> its UID, and the warnings that were reported and still apply.
        self._reported: dict[str, tuple[str, frozenset[str]]] = {}

    def report(self, node: Node, instance: Instance) -> None:
        """Report those of the first `MOST` warnings that are new. Those that exceed the `EventBudget` are reported the
        next time."""
        name, uid = node.metadata.name, node.metadata.uid
        if not instance.warnings:
            self._reported.pop(name, None)
            return
        known_uid, known = self._reported.get(name, ("", frozenset()))
        known = known if known_uid == uid else frozenset()
        texts = [shorten(printable(warning), LONGEST) for warning in dict.fromkeys(instance.warnings[:MOST])]
        reported = {text for text in texts if text in known or self._report(node, instance, text)}
        self._reported[name] = uid, frozenset(reported)

    def forget(self, name: str) -> None:
        """Forget a Node that was deleted."""
        self._reported.pop(name, None)

    def _report(self, node: Node, instance: Instance, text: str) -> bool:
        message = f"the cloud reports a warning for instance {instance.provider_id}: {text}"
        if not self._events.event(node, "Warning", "InstanceWarning", message, topic=text):
            return False
        log.warning("node %s: %s", node.metadata.name, message)
        return True
