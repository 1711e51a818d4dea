# SPDX-License-Identifier: Apache-2.0
"""A queue of several lanes that take turns, so that a lane with many items does not delay the others."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


def namespace_of(key: object) -> str:
    """Return the namespace in a key of the form `namespace/name`; "" for any other key."""
    return key.partition("/")[0] if isinstance(key, str) and "/" in key else ""


class Rounds(Generic[T]):
    """Items that wait in lanes. Each lane is first in, first out; the lanes take turns. An item waits at most
    once in a lane.
    """

    def __init__(self) -> None:
        self._lanes: OrderedDict[str, OrderedDict[T, None]] = OrderedDict()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, lane: str, item: T) -> None:
        items = self._lanes.get(lane)
        if items is None:
            items = self._lanes[lane] = OrderedDict()
        if item not in items:
            items[item] = None
            self._count += 1

    def discard(self, lane: str, item: T) -> None:
        """Remove an item that need not wait any more; do nothing if it does not wait in this lane."""
        items = self._lanes.get(lane, OrderedDict())
        if item in items:
            del items[item]
            self._count -= 1
            if not items:
                del self._lanes[lane]

    def take(self, may_go: Callable[[str], bool] = lambda lane: True) -> tuple[str, T] | None:
        """Remove the next item of the first lane for which `may_go` returns True, and return lane and item. That lane
        becomes the last one. Return None if no lane may go."""
        for lane, items in self._lanes.items():
            if may_go(lane):
                item, _ = items.popitem(last=False)
                self._count -= 1
                if items:
                    self._lanes.move_to_end(lane)
                else:
                    del self._lanes[lane]
                return lane, item
        return None
