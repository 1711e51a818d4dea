# SPDX-License-Identifier: Apache-2.0
"""Kinds of objects that controllers read from a cache. A standby keeps these caches warm, too."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from ccm.engine.client import KubeClient
from ccm.engine.informer import Informer
from ccm.engine.objects import KubeObject, Node, Service

from .cache_rules import kept_node, kept_service

T = TypeVar("T", bound=KubeObject)


def _whole(obj: Any) -> Any:
    return obj


@dataclass(frozen=True)
class Watched(Generic[T]):
    """One kind of object.

    `resource`: its plural, as in a path. `type`: the part of it that is decoded (`PartialObject` for the metadata
    alone). `keep`: reduces an object to what the cache keeps. `doubtful`: absence from a list does not prove that an
    object is gone (`ccm.engine.absence_rules`); for kinds whose absence makes a controller delete something.
    """

    resource: str
    type: type[T]
    group: str = ""
    version: str = "v1"
    keep: Callable[[T], T] = _whole
    doubtful: bool = False

    @property
    def path(self) -> str:
        """The path of all its objects, in all namespaces."""
        return f"/{f'apis/{self.group}' if self.group else 'api'}/{self.version}/{self.resource}"

    def informer(self, client: KubeClient, check: Callable[[], Awaitable[None]]) -> Informer[T]:
        """Return its cache, which is empty until it runs. `check`: see `Informer`."""
        return Informer(
            client, self.path, self.type, name=self.resource, keep=self.keep, doubtful=self.doubtful, check=check
        )


NODES: Watched[Node] = Watched("nodes", Node, keep=kept_node, doubtful=True)
SERVICES: Watched[Service] = Watched("services", Service, keep=kept_service, doubtful=True)
