# SPDX-License-Identifier: Apache-2.0
"""What a provider warns of about single instances (`Instance.warnings`), reported once on the Node that each is about.

A refresh sees the same warning every few minutes. It is an Event and a log line the first time, and again only after it
was gone, for another Node of the same name, or in another process.
"""

from __future__ import annotations

import logging

from ccm.base.text import printable, shorten
from ccm.cloud import Instance
from ccm.engine.objects import Node

from .event_budget import EventBudget

log = logging.getLogger(__name__)

#: How many warnings of one instance are reported, and the longest text, in characters: a cloud may quote anything.
MOST, LONGEST = 5, 500


class InstanceWarnings:
    def __init__(self, events: EventBudget) -> None:
        self._events = events
        #: Name of a Node -> its UID, and what was reported about it and is still so.
        self._told: dict[str, tuple[str, frozenset[str]]] = {}

    def tell(self, node: Node, instance: Instance) -> None:
        """Report what is new. What there is no room for now (`EventBudget`) is reported the next time."""
        name, uid = node.metadata.name, node.metadata.uid
        if not instance.warnings:
            self._told.pop(name, None)
            return
        known_uid, known = self._told.get(name, ("", frozenset()))
        known = known if known_uid == uid else frozenset()
        found = [shorten(printable(each), LONGEST) for each in dict.fromkeys(instance.warnings[:MOST])]
        told = {text for text in found if text in known or self._report(node, instance, text)}
        self._told[name] = uid, frozenset(told)

    def forget(self, name: str) -> None:
        """The Node went."""
        self._told.pop(name, None)

    def _report(self, node: Node, instance: Instance, text: str) -> bool:
        message = f"the cloud warns of instance {instance.provider_id}: {text}"
        if not self._events.event(node, "Warning", "InstanceWarning", message, topic=text):
            return False
        log.warning("node %s: %s", node.metadata.name, message)
        return True
