# SPDX-License-Identifier: Apache-2.0
"""The instance part of the contract: what a cloud reports about the machines of Nodes."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable


class AddressType(enum.StrEnum):
    """Kinds of node address, spelled as in `Node.status.addresses[].type`."""

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
    #: The machine is stopped but still exists: its Node gets a taint and is never deleted. The machine writes nothing
    #: until it boots again from its disks, so `--fence-dead-nodes` may release its volumes to other machines.
    SHUTDOWN = "shutdown"
    #: The machine does not run, but may still write to its volumes: it may resume with its memory, or it is still being
    #: stopped. Its Node gets the same taint, and the machine keeps its volumes.
    SUSPENDED = "suspended"


@dataclass(frozen=True, slots=True)
class InstanceRef:
    """How a Node refers to its instance: by `provider_id` if it has one, otherwise by name.

    `system_uuid`: the machine's SMBIOS UUID, as the kubelet of a Node without a providerID reports it; "" if the
    kubelet reports none. Use it to choose between instances that share the name, and to find one if none has the name.
    """

    node_name: str
    provider_id: str | None = None
    system_uuid: str = ""


@dataclass(frozen=True, slots=True)
class Instance:
    """One machine of the cloud, as the node controllers need it.

    `provider_id`: `<provider>://...`, written once to `Node.spec.providerID`; constant for the life of the machine.
    `name`: matched (exactly, case-sensitively) with the name of a Node that has no providerID.
    `aliases`: other names under which a Node of this machine may register, such as a private DNS name. They match like
    `name`. If two instances share a name, as name or alias, the lookup is a Conflict.
    `addresses`: in the order in which they appear on the Node. List all addresses of the machine: load balancers and
    routes use no others.
    `labels`: additional Node labels; keys in the `kubernetes.io` and `k8s.io` domains are ignored.
    `warnings`: problems of the instance that a person should fix, one sentence each, such as guest tools that do not
    answer. Each one becomes one Event on the Node and one log line; keep the text constant while the cause is the same.
    `system_uuids`: spellings of the machine's SMBIOS UUID, in lower case, if kubelets report it as
    `status.nodeInfo.systemUUID`.
    `incomplete`: why the cloud cannot describe the machine yet, "" if it can. The instance exists, but no Node is
    initialised from it. A Node that is already initialised stays as it is.
    `pod_cidrs`: the ranges that the cloud itself assigned to this machine for its Pods, such as alias ranges or
    delegated prefixes. A Node gets the first one of each family. Empty if the cloud assigns none.
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
    system_uuids: tuple[str, ...] = ()
    incomplete: str = ""
    pod_cidrs: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """All names under which a Node may match this instance, `name` first."""
        return tuple(dict.fromkeys((self.name, *self.aliases)))

    def is_named(self, name: str) -> bool:
        """Return whether `name` is the name or an alias of this instance."""
        return name == self.name or name in self.aliases


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a listing. `next` is the token of the next page, None on the last page.

    `total`: the number of instances in the whole listing, if the cloud reports it; the framework rejects a listing that
    has fewer.
    `unreachable`: which part of the cloud could not be queried, and why; "" if all parts could. One page that sets it
    marks the whole listing as partial: the instances in it are known, all others are unknown. The framework deletes no
    Node because of a partial listing, and ignores `total`.
    """

    instances: Sequence[Instance]
    next: str | None = None
    total: int | None = None
    unreachable: str = ""


@runtime_checkable
class Instances(Protocol):
    """Read access to instances."""

    async def list_page(self, token: str | None) -> Page:
        """Return one page of all instances of the project, in one cloud call. `token`: `Page.next`, None for the first.

        Raise an error instead of returning a shorter listing, because instances that are missing in a listing that
        looks complete count as deleted. If only a part of the cloud cannot be queried, return the rest and set
        `Page.unreachable`.

        Filter only by properties that never change for an instance, such as its network or data center. Tags, labels
        and names can change, and an instance that lost its tag would count as deleted.
        """
        ...

    async def get(self, ref: InstanceRef) -> Instance:
        """Return one instance, in one call if the cloud allows it.

        Raises NotFound only if the cloud reports that the instance does not exist, and Conflict if several instances
        have this name. While a part of the cloud cannot be queried, it raises Transient for an instance that is missing
        from all other parts.

        Find an instance by its providerID whatever its current tags and name are. Without a providerID, `node_name` may
        be the instance's name or one of its aliases.
        """
        ...

    def owns(self, provider_id: str) -> bool:
        """Return whether `list_page` and `get` return providerIDs of this form; if not, the framework ignores the Node.
        No I/O."""
        ...


@runtime_checkable
class CanonicalIds(Protocol):
    """An optional addition to `Instances`. With it, `owns` also returns True for older spellings of providerIDs."""

    def canonical(self, provider_id: str) -> str | None:
        """Return the spelling of a providerID that `list_page` and `get` use; None if the provider does not know it.
        No I/O.

        Nodes keep the spelling that they have. The framework calls `get` with the canonical spelling.
        """
        ...
