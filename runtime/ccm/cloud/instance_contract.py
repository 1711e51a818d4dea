# SPDX-License-Identifier: Apache-2.0
"""The contract's instances: what a cloud says about the machines of Nodes."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable


class AddressType(enum.StrEnum):
    """Kinds of node address, spelt as in `Node.status.addresses[].type`."""

    INTERNAL_IP = "InternalIP"
    EXTERNAL_IP = "ExternalIP"
    HOSTNAME = "Hostname"
    INTERNAL_DNS = "InternalDNS"
    EXTERNAL_DNS = "ExternalDNS"


@dataclass(frozen=True, slots=True)
class Address:
    type: AddressType
    address: str


class InstanceState(enum.Enum):
    RUNNING = "running"
    #: Stopped, but still there: its Node is tainted, never deleted.
    SHUTDOWN = "shutdown"


@dataclass(frozen=True, slots=True)
class InstanceRef:
    """How a Node points at its instance: by `provider_id` when it has one, otherwise by name."""

    node_name: str
    provider_id: str | None = None


@dataclass(frozen=True, slots=True)
class Instance:
    """One machine of the cloud, as the node controllers need to know it.

    `provider_id`: `<provider>://...`, written once to `Node.spec.providerID`; the same for the life of the machine.
    `name`: what a Node without a providerID is matched by (exactly, case-sensitively).
    `aliases`: other names under which a Node of this machine may register, such as a private DNS name. They match as
    `name` does, and a name that two instances have, in either way, is a Conflict.
    `addresses`: in the order in which they shall appear on the Node. Name all that the machine has: load balancers and
    routes use no others.
    `labels`: additional Node labels; keys in `kubernetes.io`/`k8s.io` domains are ignored.
    `warnings`: sentences about what is wrong with the instance and a person should fix, such as guest tools that do not
    answer. Each becomes one Event on the Node and one log line; the text is the same as long as the cause is.
    """

    provider_id: str
    name: str
    type: str = ""
    zone: str = ""
    region: str = ""
    addresses: tuple[Address, ...] = ()
    state: InstanceState = InstanceState.RUNNING
    labels: Mapping[str, str] = field(default_factory=dict)
    aliases: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """All names under which a Node may find it, `name` first."""
        return tuple(dict.fromkeys((self.name, *self.aliases)))

    def is_named(self, name: str) -> bool:
        """Whether `name` is its name or one of its aliases."""
        return name == self.name or name in self.aliases


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a listing. `next` asks for the page after it, None ends the listing.

    `total`: how many instances the whole listing has, where the cloud tells; the framework then refuses a listing that
    came out shorter.
    `unreachable`: which part of the cloud could not be asked, and why, in words; "" when all could. One page that says
    so is enough for the whole listing: what is in it is known, and what is not in it is unknown, so that no Node is
    deleted because of it. `total` is not compared then.
    """

    instances: Sequence[Instance]
    next: str | None = None
    total: int | None = None
    unreachable: str = ""


@runtime_checkable
class Instances(Protocol):
    """Reading instances."""

    async def list_page(self, token: str | None) -> Page:
        """A page of all instances of the project, in one cloud call; `token` is None for the first, else `Page.next`.

        Must raise rather than end early: an incomplete listing that looks complete would look like deletions. Where a
        part of the cloud cannot be asked, the rest is still of use: `Page.unreachable` says so.

        It may be narrowed only by what never changes for an instance, such as its network or datacenter. Tags, labels
        and names change, and an instance that lost its tag would look like a deleted one.
        """
        ...

    async def get(self, ref: InstanceRef) -> Instance:
        """One instance, in one call where the cloud allows it.

        Raises NotFound only if the cloud says that it does not exist; several of that name are a Conflict. While a part
        of the cloud cannot be asked, an instance that is in none of the others is Transient.

        A providerID finds the instance whatever its tags and its name are now. A name is looked for among names and
        aliases.
        """
        ...

    def owns(self, provider_id: str) -> bool:
        """Whether `list_page` and `get` give providerIDs of this form; else the Node is left alone. No I/O."""
        ...


@runtime_checkable
class CanonicalIds(Protocol):
    """What `Instances` may have in addition: then `owns` is true for older spellings of its providerIDs, too."""

    def canonical(self, provider_id: str) -> str | None:
        """A providerID that it owns, as `list_page` and `get` spell it; None when that cannot be told. No I/O.

        Nodes keep the spelling that they have. `get` is asked in the canonical one.
        """
        ...
