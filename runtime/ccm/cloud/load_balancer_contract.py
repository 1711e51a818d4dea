# SPDX-License-Identifier: Apache-2.0
"""The contract's load balancers: what is wanted for a Service, what the cloud has, and what changes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from .instance_contract import Address, AddressType


@dataclass(frozen=True, slots=True)
class Port:
    """One port of a load balancer: clients reach `port`, the cloud sends to `node_port` on every backend."""

    name: str
    protocol: str
    port: int
    node_port: int
    app_protocol: str | None = None


@dataclass(frozen=True, slots=True)
class Backend:
    """A node that a load balancer sends to.

    `addresses`: those of the Node that its instance has, as `Instances` names them; () while there are none. Send to
    these alone: what a Node claims beyond them is left out.
    `labels`: the Node's, with the instance's values of all that `Instances` names, for clouds where a Service chooses
    nodes by them. As upstream, a change of labels alone does not make the framework write; it is taken into account
    with the next change of nodes or of the Service.
    """

    node_name: str
    provider_id: str
    addresses: tuple[Address, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)

    @property
    def internal_ip(self) -> str | None:
        """The first InternalIP, None while the node has none."""
        return next((a.address for a in self.addresses if a.type is AddressType.INTERNAL_IP), None)


@dataclass(frozen=True, slots=True)
class LoadBalancerSpec:
    """Everything that a `type: LoadBalancer` Service asks of a load balancer.

    `uid` identifies the Service for ever, `cluster` the cluster (`--cluster-name`); both belong in ownership tags.
    `source_ranges`: CIDRs that may connect; empty means everybody.
    `health_check_node_port`: with externalTrafficPolicy Local, GET /healthz on it tells which backends have Pods.
    `ingress`: what the Service's status says now; no part of the wish. For providers that choose addresses themselves
    (`AllocatesAddresses`).
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

    @property
    def default_name(self) -> str:
        """ "a" + UID without dashes, 32 characters at most (Go: DefaultLoadBalancerName)."""
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
    """A load balancer of this cluster as the cloud has it.

    `service_uid`: from its ownership tag. `fingerprint` is what `LoadBalancers.fingerprint` gave when it was last
    written: the cloud's copy of the wish, so that an unchanged Service costs no write after a restart.
    `ready`: the cloud has finished; until then the Service is asked about again, holding no worker.
    `warnings`: sentences about what it is like and was hardly meant to be; told in Events when it has been written.
    """

    service_uid: str
    name: str
    ingress: tuple[Ingress, ...] = ()
    fingerprint: str = ""
    ready: bool = True
    warnings: tuple[str, ...] = ()


@runtime_checkable
class LoadBalancers(Protocol):
    """Load balancers for Services. Every method is idempotent and waits for nothing.

    An answer of `ensure` or `update_backends` means that the wish is written; `ready=False`, that the cloud is still at
    work on it. RetryAfter means that nothing was written yet, since the cloud is busy with something earlier; from
    `delete`, that it is at work.
    """

    async def list(self, cluster: str) -> Sequence[LoadBalancer]:
        """All load balancers owned by `cluster`, in as few calls as the cloud allows; asked at start and for audits."""
        ...

    def fingerprint(self, spec: LoadBalancerSpec, backends: Sequence[Backend]) -> str:
        """A stable text over everything that `ensure` would write for this wish. No I/O.

        It is asked for several times for each Service whenever a node comes or goes. `Backends.of(backends)` keeps what
        was computed over all backends: its `digest`, or what `once` is given.
        """
        ...

    async def get(self, spec: LoadBalancerSpec) -> LoadBalancer:
        """Raises NotFound when there is none of ours for this Service, Conflict when it failed in the cloud."""
        ...

    async def ensure(self, spec: LoadBalancerSpec, backends: Sequence[Backend]) -> LoadBalancer:
        """Create, converge, or replace one that failed in the cloud.

        Raises Conflict when the name or address belongs to another cluster or owner.
        """
        ...

    async def update_backends(self, spec: LoadBalancerSpec, backends: Sequence[Backend]) -> LoadBalancer:
        """Only the backends changed; NotFound when the load balancer is gone."""
        ...

    async def delete(self, spec: LoadBalancerSpec) -> None:
        """Remove it and partial leftovers; success when nothing of ours is left, RetryAfter while the cloud works.

        NotFound when the cloud knew of nothing to remove: it is asked once more after some seconds, for one wrong
        answer would leave a load balancer behind that nobody looks for. Success is taken for a removal. Of
        `spec` only `cluster` and `uid` can be relied upon: the Service may be gone.
        """
        ...


@runtime_checkable
class ComparesLoadBalancers(Protocol):
    """What `LoadBalancers` has in addition when it can tell that somebody else changed a load balancer.

    The fingerprint says what was written last, and not what is there now. The framework asks about one load balancer at
    a time, at a slow pace, and about the one of a Service whose user asks for it.
    """

    async def deviations(self, spec: LoadBalancerSpec, backends: Sequence[Backend]) -> Sequence[str]:
        """What of the load balancer is not as `ensure` would write it, in words; () when all is, or when the cloud is
        at work on it. Reads only. After an answer that is not empty, the next `ensure` compares and repairs everything,
        whatever the fingerprint says."""
        ...


class Allocations(Protocol):
    """Which Service of this cluster has which IP address.

    It is up to date at every moment: it covers the status of all Services, and what `ensure` answered since.
    """

    def holder(self, address: str) -> str | None:
        """The UID of the Service that has this address, None if no Service has it. No I/O.

        If the status of several Services names the address, the oldest of them holds it.
        """
        ...


@runtime_checkable
class AllocatesAddresses(Protocol):
    """What `LoadBalancers` has in addition when the provider chooses addresses itself and no cloud records them.

    The Services' status is the record then: only the controller may write it. Such a provider gives an address to a
    Service only when `Allocations.holder` is None or this Service, and `ensure` does not suspend between that question
    and its answer.
    """

    def use_allocations(self, allocations: Allocations) -> None:
        """Called before all other methods, once for each object. Before it, `ensure` gives no address. No I/O."""
        ...
