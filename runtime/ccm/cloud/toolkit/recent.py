# SPDX-License-Identifier: Apache-2.0
"""Limits how many objects a provider remembers, because no cloud reports that somebody else deleted one."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Recent(Generic[K, V]):
    """A map of at most `most` entries: a further entry replaces the least recently used one."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._entries: OrderedDict[K, V] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: K) -> V | None:
        if key in self._entries:
            self._entries.move_to_end(key)
        return self._entries.get(key)

    def put(self, key: K, value: V) -> None:
        self._entries[key] = value
        self._entries.move_to_end(key)
        if len(self._entries) > self._most:
            self._entries.popitem(last=False)

    def obtain(self, key: K, make: Callable[[], V]) -> V:
        """Return the entry. If there is none, store and return what `make` returns."""
        value = self.get(key)
        if value is None:
            value = make()
            self.put(key, value)
        return value

    def forget(self, key: K) -> None:
        self._entries.pop(key, None)
