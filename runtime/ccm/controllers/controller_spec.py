# SPDX-License-Identifier: Apache-2.0
"""The description of a controller, built-in or from another package: what the process needs to know about it.

The process derives from it `--controllers` and its help, the permission check at start, the caches, the default leader
migration, and the controllers named in the Lease. From the descriptions of built-in controllers, the collection derives
the rights that it grants, and the documentation derives its reference pages.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from ccm.cloud import Cloud

from .controller_context import ControllerContext
from .shared.context import Controller
from .shared.watched_kinds import Watched

S = TypeVar("S")


@dataclass(frozen=True, order=True)
class Right:
    """One permission. `resource` may have a subresource ("nodes/status"); an empty `namespace` means cluster-wide."""

    resource: str
    verb: str
    group: str = ""
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        where = f" in namespace {self.namespace}" if self.namespace else ""
        what = f"{self.resource}.{self.group}" if self.group else self.resource
        return f"{self.verb} {what}{where}"


def needs_nothing(cloud: Cloud) -> str | None:
    """Return None, for `ControllerSpec.needs`: the controller works with any cloud."""
    return None


def never(flags: Any) -> str | None:
    """Return None, for `ControllerSpec.off`: only `--controllers` turns the controller off."""
    return None


@dataclass(frozen=True)
class ControllerSpec(Generic[S]):
    """One controller.

    `name`: the canonical name, which ends with "-controller". `make`: constructs the controller from the context and
    its options when the process becomes the leader. The controller runs until it is cancelled.
    """

    name: str
    make: Callable[[ControllerContext, S], Controller]
    #: What it does, in one sentence; shown in lists of controllers.
    summary: str = ""
    #: Its label in the metrics. `--controllers` accepts it for built-in controllers only, because the alias of another
    #: package's controller is unknown until that package is imported.
    alias: str = ""
    #: Names that only leader migration configurations use. Upstream's default configuration uses names that no
    #: controller has (W28).
    former: tuple[str, ...] = ()
    #: Whether `*` includes it; built-in controllers only. Users name each controller of another package in
    #: `--controllers`: installing a package starts nothing.
    on_by_default: bool = False
    #: Returns what the controller needs but this cloud does not provide; None if nothing is missing.
    needs: Callable[[Cloud], str | None] = needs_nothing
    #: The rights that it needs, in addition to reading Nodes, Services and what it watches, and writing Events.
    rights: tuple[Right, ...] = ()
    #: Kinds that it reads from a cache, in addition to Nodes and Services: `ControllerContext.cache`.
    watches: tuple[Watched[Any], ...] = ()
    #: Whether each of several clouds of a process may have a controller of this kind; built-in controllers only.
    runs_beside_others: bool = False
    #: Whether one such controller serves all clouds of a process, because with several clouds it calls none of them;
    #: built-in controllers only.
    runs_once: bool = False
    #: Whether it writes information from Nodes to the cloud, so that the cloud must vouch for the Nodes.
    vouching: bool = False
    #: Whether the default leader migration moves it from kube-controller-manager; built-in controllers only.
    migrated: bool = False
    #: Builds its options from the process's flags; built-in controllers only. Raises ValueError if flags conflict.
    flags: Callable[[Any], S] | None = None
    #: Returns the flag that turns it off; None if no flag does.
    off: Callable[[Any], str | None] = never
    #: Its options as a section of `--config`; other packages only. A `msgspec.Struct` whose fields have defaults.
    section: type[S] | None = None

    @property
    def label(self) -> str:
        """The name of the controller in metrics."""
        return self.alias or self.name.removesuffix("-controller")
