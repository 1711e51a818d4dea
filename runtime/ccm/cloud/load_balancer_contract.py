# SPDX-License-Identifier: Apache-2.0
"""The load balancer part of the contract: what a Service requests, what the cloud has, and the calls that change it."""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from .instance_contract import Address, AddressType


@dataclass(frozen=True, slots=True)
class Port:
    """One port of a load balancer: clients connect to `port`, the cloud forwards to `node_port` on every backend."""

    name: str
    protocol: str
    port: int
    node_port: int
    app_protocol: str | None = None


@dataclass(frozen=True, slots=True)
class Backend:
    """A node that receives traffic from a load balancer.

    `addresses`: the addresses of the Node that its instance has according to `Instances`; () while there are none. Send
    traffic only to these: addresses that only the Node claims are left out.
    `labels`: the Node's labels; for labels that `Instances` sets, the values from there. They serve clouds where a
    Service selects nodes by label. As upstream, a change of labels alone causes no write. The change takes effect with
    the next change of nodes or of the Service, or with the next comparison of the load balancer.
    `draining`: the node leaves soon. Always False for providers without `DrainsBackends`.
    """

    node_name: str
    provider_id: str
    addresses: tuple[Address, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    draining: bool = False

    @property
    def internal_ip(self) -> str | None:
        """The first InternalIP, None if the node has none."""
        # A loop, because providers read it for thousands of nodes: a generator takes three times as long.
        for address in self.addresses:
            if address.type is AddressType.INTERNAL_IP:
                return address.address
        return None


class Kept(enum.StrEnum):
    """What stays in the cloud when a Service no longer needs its load balancer."""

    LOAD_BALANCER = "load-balancer"
    ADDRESS = "address"


@dataclass(frozen=True, slots=True)
class LoadBalancerSpec:
    """Everything that a Service of type LoadBalancer requests from a load balancer.

    `uid` identifies the Service permanently, `cluster` the cluster (`--cluster-name`); put both into ownership tags.
    `source_ranges`: CIDRs that may connect; empty allows all clients.
    `health_check_node_port`: with externalTrafficPolicy Local, GET /healthz on this port reports whether a backend has
    Pods.
    `ingress`: the current status of the Service; not part of the desired state. Only controllers write it, so an
    address in it shows which load balancer is the Service's. It is also the record for `AllocatesAddresses`.
    `keep`, `protected`, `take_back`: see `KeepsLoadBalancers`. Providers without it ignore all three, because the
    framework refuses such requests.
    """

    cluster: str
    uid: str
    namespace: str
    name: str
    ports: tuple[Port, ...]
    annotations: Mapping[str, str] = field(default_factory=dict)
    ip_families: tuple[str, ...] = ("IPv4",)
    source_ranges: tuple[str, ...] = ()
    load_balancer_ip: str = ""
    session_affinity: str = "None"
    session_affinity_timeout: int | None = None
    external_traffic_policy: str = "Cluster"
    health_check_node_port: int = 0
    ingress: tuple[Ingress, ...] = field(default=(), compare=False, repr=False)
    keep: Kept | None = None
    protected: bool = False
    take_back: str = ""

    @property
    def default_name(self) -> str:
        """ "a" + UID without dashes, at most 32 characters (Go: DefaultLoadBalancerName)."""
        return ("a" + self.uid.replace("-", ""))[:32]


@dataclass(frozen=True, slots=True)
class IngressPort:
    port: int
    protocol: str
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Ingress:
    """One entry of `Service.status.loadBalancer.ingress`."""

    ip: str = ""
    hostname: str = ""
    ip_mode: str | None = None
    ports: tuple[IngressPort, ...] = ()


@dataclass(frozen=True, slots=True)
class LoadBalancer:
    """A load balancer of this cluster as it exists in the cloud.

    `service_uid`: from its ownership tag.
    `fingerprint`: the value of `LoadBalancers.fingerprint` at the last write. The cloud stores it, so that an unchanged
    Service causes no write after a restart.
    `ready`: whether the cloud has finished. Until then the framework checks the Service again, and blocks no worker.
    `warnings`: properties that are probably not intended, one sentence each. The framework reports a warning of
    `ensure`, `update_backends` or `get` once, and again only after an answer of the same method did not have it.
    `keep`: see `KeepsLoadBalancers`, which also explains `protected`. Both are read from the mark in the cloud,
    and only `list` has to set them.
    """

    service_uid: str
    name: str
    ingress: tuple[Ingress, ...] = ()
    fingerprint: str = ""
    ready: bool = True
    warnings: tuple[str, ...] = ()
    keep: Kept | None = None
    protected: bool = False


@runtime_checkable
class LoadBalancers(Protocol):
    """Load balancers for Services. Every method is idempotent and does not wait for the cloud to finish.

    If `ensure` or `update_backends` returns, the cloud has accepted the desired state; `ready=False` means that the
    cloud is still applying it. RetryAfter means that not everything is written yet, because the cloud is busy with a
    change: the framework calls again. From `delete`, RetryAfter means that the deletion is in progress.
    """

    async def list(self, cluster: str) -> Sequence[LoadBalancer]:
        """Return all load balancers owned by `cluster`, in as few calls as possible. The framework calls it at
        start, for audits, and while many Services wait for their load balancers."""
        ...

    def fingerprint(self, spec: LoadBalancerSpec, backends: Sequence[Backend]) -> str:
        """Return a stable string that covers everything that `ensure` would write for this desired state. No I/O.

        The framework calls it for every Service whenever a node joins or leaves, so it must not go through all backends
        each time. `Backends.of(backends)` caches what is computed over all of them: use its `digest`, or `once` for
        your own text.
        """
        ...

    async def get(self, spec: LoadBalancerSpec) -> LoadBalancer:
        """Return the Service's load balancer. Raises NotFound if there is none, Conflict if it failed in the cloud.

        If there is none and `ensure` would raise Invalid or ImplementedElsewhere, `get` may raise the same error: `ccm
        plan` and `ccm explain` then say why nothing is created.
        """
        ...

    async def ensure(self, spec: LoadBalancerSpec, backends: Sequence[Backend]) -> LoadBalancer:
        """Create or update the load balancer, or replace one that failed in the cloud.

        Never ignore a setting of `spec` that the cloud does not support. Raise Invalid if traffic would go wrong, such
        as for a Service with `source_ranges` that would be open to everyone. Otherwise set `LoadBalancer.warnings`. The
        fingerprint covers these settings, too, so that `ensure` also runs for a Service that gets one later.
        Raises Conflict if the name or address belongs to another cluster or owner.
        """
        ...

    async def update_backends(self, spec: LoadBalancerSpec, backends: Sequence[Backend]) -> LoadBalancer:
        """Update only the backends. Raises NotFound if the load balancer does not exist.

        The framework also calls this while `ensure` refuses `spec`. So read and refuse only what concerns the backends.
        The new fingerprint must not cover other changes of `spec`: `ensure` writes them later. The framework calls this
        for every Service when a node joins or leaves, so compute the targets once, with `Backends.of(backends).recent`.
        """
        ...

    async def delete(self, spec: LoadBalancerSpec) -> None:
        """Delete the load balancer and partial leftovers. Succeeds when nothing of it is left.

        Raises RetryAfter while the deletion is in progress, and NotFound if the cloud had nothing to delete. After
        NotFound the framework calls once more some seconds later, because one wrong answer would leave an orphaned load
        balancer. If `delete` succeeds, the framework takes the load balancer for deleted. Only `cluster` and `uid` of
        `spec` are reliable, because the Service may no longer exist.
        """
        ...


@runtime_checkable
class ComparesLoadBalancers(Protocol):
    """An optional addition to `LoadBalancers` for providers that can detect changes made by others.

    The fingerprint shows what was written last, not what exists now. The framework compares one load balancer at a
    time, at a slow rate. If the user of a Service requests it, its load balancer is compared at once.
    """

    async def deviations(self, spec: LoadBalancerSpec, backends: Sequence[Backend]) -> Sequence[str]:
        """Return how the load balancer differs from what `ensure` would write, one sentence each; () if it does not, or
        if the cloud is still applying a change. Read-only. After a non-empty answer, the next `ensure` compares and
        repairs everything, whatever the fingerprint is."""
        ...


@runtime_checkable
class DrainsBackends(Protocol):
    """An optional addition to `LoadBalancers` for providers whose cloud can send a backend no new connections while the
    backend keeps those that it has.

    Backends with `draining` then stay among `backends` until their node is gone, and the fingerprint covers the field.
    If the cloud itself lets connections end when it removes a target, leave these backends out of the targets.
    """

    def drains(self, spec: LoadBalancerSpec) -> bool:
        """Return whether this Service's load balancer can drain. If not, it gets no draining backends. No I/O."""
        ...


@dataclass(frozen=True, slots=True)
class KeptLoadBalancer:
    """A load balancer that outlived its Service, or only its address.

    `name`: "" if only the address is left. `namespace`: Services of this namespace may take it back. `address`: "" if
    unknown.
    """

    name: str
    namespace: str
    address: str = ""


@runtime_checkable
class KeepsLoadBalancers(Protocol):
    """An optional addition to `LoadBalancers` for providers that can leave something in the cloud when a Service goes.

    `ensure` records `spec.keep` and `spec.protected` in the mark on the load balancer, and the fingerprint covers both.
    `delete` keeps what `spec.keep` or the mark names, and deletes the rest: when the Service no longer exists, only the
    mark says what to keep. A load balancer that stays has no backends, because other Services may get the node ports.
    Its mark has cluster and namespace in place of the Service: `list` and `get` no longer show it, so it is no orphan.
    A load balancer that failed in the cloud is deleted anyway.

    If the Service has no load balancer, `ensure` takes back the kept load balancer whose name is `spec.take_back`, with
    its address. Only a Service of the same cluster and namespace may do that. `ensure` raises Conflict if no load
    balancer of that name is kept for the Service; it never creates another one instead. The framework checks
    `protected` before a deletion begins, so `delete` need not check it.
    """

    @property
    def keeps(self) -> Collection[Kept]:
        """What this cloud can keep."""
        ...

    async def kept(self, cluster: str) -> Sequence[KeptLoadBalancer]:
        """Return the load balancers and addresses that outlived a Service of this cluster. Operators ask for this list,
        because these cost money."""
        ...


class Allocations(Protocol):
    """Records which Service of this cluster has which IP address.

    It is always up to date: it covers the status of all Services, and all later answers of `ensure`.
    """

    def holder(self, address: str) -> str | None:
        """Return the UID of the Service that has this address, None if no Service has it. No I/O.

        If the status of several Services contains the address, the oldest Service has it.
        """
        ...


@runtime_checkable
class AllocatesAddresses(Protocol):
    """An optional addition to `LoadBalancers` for providers that allocate addresses themselves, without a record in a
    cloud.

    The status of the Services is the record, so only the controller may write it. Such a provider allocates an address
    to a Service only if `Allocations.holder` returns None or this Service. `ensure` must not suspend between that check
    and its return.
    """

    def use_allocations(self, allocations: Allocations) -> None:
        """Receive the record of the addresses that Services have. The framework calls this once per object, before all
        other methods. Until then, `ensure` allocates no address. No I/O."""
        ...
