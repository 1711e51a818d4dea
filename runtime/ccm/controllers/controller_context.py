# SPDX-License-Identifier: Apache-2.0
"""What the process passes to a controller when it constructs it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ccm.engine.informer import Informer

from .nodes.owners import Share
from .nodes.vouching import Vouching
from .services.service_holders import ServiceHolders
from .shared.context import Context
from .shared.watched_kinds import T, Watched


@dataclass(frozen=True)
class ControllerContext(Context):
    """What a controller receives when it is constructed. `vouching`: what the cloud says about the machines of Nodes;
    None if the provider has no instances.

    `caches`: one cache for each kind that controllers watch. `share`: the Nodes of this cloud; None if the process has
    one cloud, or if this one has no instances. `holders`: which clouds may have a Service's load balancer; None if the
    process has one cloud.
    """

    vouching: Vouching | None = None
    caches: Mapping[Watched[Any], Informer[Any]] = field(default_factory=dict)
    share: Share | None = None
    holders: ServiceHolders | None = None

    def cache(self, kind: Watched[T]) -> Informer[T]:
        """Return the cache of a kind that the controller's `ControllerSpec` watches."""
        return self.caches[kind]

    def vouched(self) -> Vouching:
        """Return `vouching`, for controllers that need a provider with instances. Raises ValueError without one."""
        if self.vouching is None:
            raise ValueError("cannot vouch for Nodes: the provider has no instances")
        return self.vouching
