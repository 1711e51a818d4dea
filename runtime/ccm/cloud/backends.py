# SPDX-License-Identifier: Apache-2.0
"""The nodes of a load balancer as one object, which keeps what was computed over all of them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, Self, TypeVar

from .load_balancer_contract import Backend

T = TypeVar("T")


class Backends(tuple[Backend, ...]):
    """The nodes of a load balancer, by name. They never change, and all Services that have the same ones share this
    object, so what is computed from thousands of nodes need not be computed for each of hundreds of Services.

    The framework passes such an object wherever the contract has `backends`.
    """

    _made: dict[Hashable, Any]

    def __new__(cls, backends: Iterable[Backend] = ()) -> Self:
        self = super().__new__(cls, backends)
        self.__dict__["_made"] = {}
        return self

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"Backends never change: {name} cannot be set; `once` keeps what is computed from them")

    @classmethod
    def of(cls, backends: Sequence[Backend]) -> Backends:
        """These backends as such an object; itself if it is one."""
        return backends if isinstance(backends, Backends) else cls(backends)

    @property
    def digest(self) -> str:
        """A stable text of 64 characters over names, providerIDs and addresses, whatever the order of the nodes.
        Labels are left out, as in comparisons of backends."""
        return self.once("digest", _digest)

    def once(self, key: Hashable, make: Callable[[Backends], T]) -> T:
        """The result of `make(self)`, which is called once for each `key`. For texts and numbers over all backends:
        the result is kept as long as the backends are in use."""
        if key not in self._made:
            self._made[key] = make(self)
        found: T = self._made[key]
        return found


def _digest(backends: Backends) -> str:
    rows = [
        [each.node_name, each.provider_id, [[address.type.value, address.address] for address in each.addresses]]
        for each in backends
    ]
    return hashlib.sha256(json.dumps(sorted(rows)).encode()).hexdigest()
