# SPDX-License-Identifier: Apache-2.0
"""The Nodes for controllers that write to the cloud: those in the cache, but without known past states.

`known_node_rules` decides. The node controllers use the cache itself, because a Node that lost its providerID in a
restored etcd must be initialised again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from ccm.engine.informer import Handler, Informer
from ccm.engine.objects import Node

from .known_node_rules import believed

log = logging.getLogger(__name__)


class KnownNodes:
    """A view of the cache, with the cache's `get`, `items` and `add_handler`.

    It follows each change of the cache at once. `has_instance` returns whether the cloud knows a Node's instance,
    without I/O.
    """

    def __init__(self, nodes: Informer[Node], has_instance: Callable[[Node], bool]) -> None:
        self._cache, self._has_instance = nodes, has_instance
        self._known: dict[str, Node] = {}
        #: Names of Nodes whose state in the cache is a past one.
        self._past: set[str] = set()
        self._handlers: list[Handler[Node]] = []
        nodes.add_handler(self._on_node)

    def get(self, name: str) -> Node | None:
        return self._known.get(name)

    def items(self) -> Iterable[Node]:
        """Return all Nodes as they are now; safe to iterate while they change."""
        return list(self._known.values())

    def add_handler(self, handler: Handler[Node]) -> None:
        """Do what `Informer.add_handler` does."""
        self._handlers.append(handler)
        for node in list(self._known.values()):
            self._call(handler, None, node)

    def review(self) -> None:
        """Decide again about past states, after news from the cloud."""
        for name in list(self._past):
            self._on_node(self._known.get(name), self._cache.get(name))

    def _on_node(self, old: Node | None, new: Node | None) -> None:
        node = new or old
        assert node is not None
        name = node.metadata.name
        known = self._known.get(name)
        # If another Node of this name replaced this one, the informer reports a deletion while the cache has the new
        # Node.
        shown = new or self._cache.get(name)
        after = believed(known, shown, self._has_instance) if shown is not None else None
        if new is None and known is not None and after is known:
            return
        self._remember(name, is_past=after is not shown)
        if known is not None and (new is None or after is None or after.metadata.uid != known.metadata.uid):
            del self._known[name]
            self._notify(known, None)
            known = None
        if new is not None and after is not None and after is not known:
            self._known[name] = after
            self._notify(known, after)

    def _remember(self, name: str, *, is_past: bool) -> None:
        if is_past and name not in self._past:
            log.warning("node %s: the API server shows a past state; load balancers and routes do not use it", name)
        (self._past.add if is_past else self._past.discard)(name)

    def _notify(self, old: Node | None, new: Node | None) -> None:
        for handler in self._handlers:
            self._call(handler, old, new)

    @staticmethod
    def _call(handler: Handler[Node], old: Node | None, new: Node | None) -> None:
        try:
            handler(old, new)
        except Exception:  # a bug must not affect the other controllers
            node = new if new is not None else old
            log.exception("a handler failed for node %s", node.metadata.name if node is not None else "")
