# SPDX-License-Identifier: Apache-2.0
"""The nodes of a load balancer as one object, which caches values computed over all of them."""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, Self, TypeVar

from .load_balancer_contract import Backend

T = TypeVar("T")

#: How many large results `Backends.recent` keeps. Users choose selectors, so there may be as many keys as Services.
RECENT = 16


class Backends(tuple[Backend, ...]):
    """The nodes of a load balancer. Immutable, and shared by all Services that have the same nodes: a value over
    thousands of nodes is computed once, not again for each of hundreds of Services. The framework passes this type,
    sorted by name, wherever the contract has `backends`.
    """

    _made: dict[Hashable, Any]
    _recent: OrderedDict[Hashable, Any]

    def __new__(cls, backends: Iterable[Backend] = ()) -> Self:
        self = super().__new__(cls, backends)
        self.__dict__.update(_made={}, _recent=OrderedDict())
        return self

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"Backends are immutable: {name} cannot be set; use `once` to cache a computed value")

    @classmethod
    def of(cls, backends: Sequence[Backend]) -> Backends:
        """Return these backends as a `Backends`: the argument itself if it is one."""
        return backends if isinstance(backends, Backends) else cls(backends)

    @property
    def digest(self) -> str:
        """A stable digest (64 characters) of the nodes' names, providerIDs and addresses, and of which nodes drain. The
        order of the nodes does not matter. Labels do not count, because comparisons of backends ignore them."""
        return self.once("digest", _digest)

    def once(self, key: Hashable, make: Callable[[Backends], T]) -> T:
        """Return the result of `make(self)`, which runs once for each `key`. Use `once` for strings and numbers
        computed over all backends, because the result stays in memory as long as the backends are in use."""
        if key not in self._made:
            self._made[key] = make(self)
        result: T = self._made[key]
        return result

    def recent(self, key: Hashable, make: Callable[[Backends], T]) -> T:
        """Like `once`, for results as large as the backends, such as all targets: only the 16 most recently used ones
        stay in memory. All Services get the same object, so `make` must return an immutable one, such as a tuple."""
        if key not in self._recent:
            self._recent[key] = make(self)
            if len(self._recent) > RECENT:
                self._recent.popitem(last=False)
        self._recent.move_to_end(key)
        result: T = self._recent[key]
        return result


def _digest(backends: Backends) -> str:
    rows = [
        [
            backend.node_name,
            backend.provider_id,
            [[address.type.value, address.address] for address in backend.addresses],
        ]
        + (["draining"] if backend.draining else [])
        for backend in backends
    ]
    return hashlib.sha256(json.dumps(sorted(rows)).encode()).hexdigest()
