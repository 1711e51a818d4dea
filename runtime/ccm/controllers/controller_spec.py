# SPDX-License-Identifier: Apache-2.0
"""What the process has to know about a controller: one description for ours and for those of other packages.

From it follow `--controllers` and its help, the check of rights at start, the caches, the default leader migration,
what the Lease says, and, for ours, the rights that the collection grants and the pages of the reference.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from ccm.cloud import Cloud

from .context import Controller
from .controller_context import ControllerContext
from .watched_kinds import Watched

S = TypeVar("S")


@dataclass(frozen=True, order=True)
class Right:
    """`resource` may have a subresource ("nodes/status"); `namespace` is empty for the whole cluster."""

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
    """For `ControllerSpec.needs`: any cloud will do."""
    return None


def never(flags: Any) -> str | None:
    """For `ControllerSpec.off`: only `--controllers` switches it off."""
    return None


@dataclass(frozen=True)
class ControllerSpec(Generic[S]):
    """One controller.

    `name`: the canonical name, which ends with "-controller". `make`: constructs it from the context and its options
    when the process becomes the leader; it runs until it is cancelled.
    """

    name: str
    make: Callable[[ControllerContext, S], Controller]
    #: What it does, in one sentence, for people who read a list of controllers.
    summary: str = ""
    #: Its label in the metrics. `--controllers` understands it, too, for ours: to know the alias of another package's
    #: controller, the package would have to be imported.
    alias: str = ""
    #: Names that only configurations of leader migration use. Upstream's own defaults name controllers that exist under
    #: these names nowhere (W28).
    former: tuple[str, ...] = ()
    #: Whether `*` stands for it; for ours. `--controllers` names each controller of another package: installing a
    #: package starts nothing.
    on_by_default: bool = False
    #: What this cloud lacks for it to work; None: nothing.
    needs: Callable[[Cloud], str | None] = needs_nothing
    #: Beside reading what it watches, Nodes and Services, and writing Events.
    rights: tuple[Right, ...] = ()
    #: Kinds that it reads from a cache, beside Nodes and Services: `ControllerContext.cache`.
    watches: tuple[Watched[Any], ...] = ()
    #: Whether it writes to the cloud what Nodes say of themselves, so that somebody must vouch for them.
    vouching: bool = False
    #: Whether the default leader migration moves it from kube-controller-manager; for ours.
    migrated: bool = False
    #: Its options out of the process's flags, for ours. Raises ValueError where they do not fit together.
    flags: Callable[[Any], S] | None = None
    #: Which flag switches it off; None: none does.
    off: Callable[[Any], str | None] = never
    #: Its options as a section of `--config`, for other packages: a `msgspec.Struct` whose fields have defaults.
    section: type[S] | None = None

    @property
    def label(self) -> str:
        """Its name in metrics."""
        return self.alias or self.name.removesuffix("-controller")
