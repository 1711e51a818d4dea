# SPDX-License-Identifier: Apache-2.0
"""The contract between the framework and a cloud: what `cloudprovider.Interface` is in Go.

A provider is a class with a `name`, registered under the entry-point group `ccm.providers`. It offers *capabilities*
(attributes that are None when the cloud has no such thing). It is handed no Kubernetes objects, only the plain data
below, and does no batching, caching, retrying or rate limiting of its own: the gateway (`ccm.gateway`) does that for
all of them. Times are seconds, addresses and CIDRs are text in the cloud's own spelling.

What the framework promises: every call runs in a task that may be cancelled and has a deadline; at most
`Limits.concurrency` calls are in flight; no two calls for the same load balancer overlap.
What it expects: each method raises only `ccm.cloud.errors`, and `NotFound` only on the cloud's own complete answer.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, Protocol, runtime_checkable


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


@dataclass(frozen=True, slots=True)
class Route:
    """`destination` (a pod CIDR) is reached through the instance. `id`: the cloud's handle, empty before creation.
    `provider_id` is empty for a blackhole or a target that is no instance. `owner`: the cluster that made it, "" where
    the cloud does not tell; another cluster's is never touched. `target_addresses`: to create, the addresses of the
    Node that are its instance's; in a listing, those that the route leads to where the cloud keeps them with it,
    otherwise None. A listed route with addresses and without `provider_id` is matched by the framework to the Node
    whose instance has all these addresses, so that a cloud whose routes name addresses needs no listing of instances.
    """

    destination: str
    provider_id: str
    id: str = ""
    blackhole: bool = False
    owner: str = ""
    target_addresses: tuple[str, ...] | None = None


@runtime_checkable
class Routes(Protocol):
    """Routes from pod CIDRs to instances."""

    #: How many creates/deletes the cloud takes at a time.
    concurrency: int

    async def list(self, cluster: str) -> Sequence[Route]:
        """All routes of the network, foreign ones included; the framework decides which are its own to change."""
        ...

    async def create(self, cluster: str, route: Route) -> None: ...

    async def delete(self, cluster: str, route: Route) -> None:
        """Success when it is gone, by whomever."""
        ...


@dataclass(frozen=True, slots=True)
class VolumeRef:
    """A volume as a PersistentVolume names it: `driver` (CSI driver or in-tree plugin name) and the cloud's handle."""

    driver: str
    handle: str


@runtime_checkable
class Volumes(Protocol):
    async def labels(self, ref: VolumeRef) -> Mapping[str, str]:
        """Topology labels for a PersistentVolume. Raises NotFound."""
        ...


@dataclass(frozen=True, slots=True)
class Webhook:
    """An admission webhook. `handle` gets an AdmissionRequest and gives an AdmissionResponse, both as plain data; the
    framework fills in its uid.

    Whoever reaches the port may ask, unless `--webhook-client-ca-file` is given: an answer must hold no secret, and
    `handle` must change nothing. It is cancelled after 30 s, and when the API server stops waiting.
    """

    path: str
    handle: Callable[[Mapping[str, Any]], Awaitable[Mapping[str, Any]]]


@dataclass(frozen=True, slots=True)
class Rate:
    """How many calls of one group of operations the cloud bears, for a token bucket."""

    calls_per_second: float
    burst: int


@dataclass(frozen=True, slots=True)
class Limits:
    """What the cloud bears. `calls_per_second`/`burst` feed the token bucket; `deadline` is per call, in seconds.

    `listing_lag`: for so many seconds its listings may lack what was made (eventual consistency), 0 for never.
    `groups`: lower rates of single groups of operations, by the capability's name ("instances", "load_balancers",
    "routes", "volumes"). A call takes its turn in its group first, and then among all calls.
    """

    calls_per_second: float = 20.0
    burst: int = 40
    concurrency: int = 20
    deadline: float = 30.0
    listing_lag: float = 0.0
    groups: Mapping[str, Rate] = field(default_factory=dict)


def _environment() -> Mapping[str, str]:
    return MappingProxyType(dict(os.environ))


@dataclass(frozen=True, slots=True)
class ProviderConfig:
    """The text of `--cloud-config` ("" without one) and where it came from, for messages.

    `environment`: the variables of the process, for settings that a cloud's own tools read from there, such as a token.
    Read them here and not in `os.environ`: tests and the conformance kit give others.
    Text and environment hold secrets: they are in no representation.
    """

    text: str = field(default="", repr=False)
    source: str = "(no --cloud-config)"
    environment: Mapping[str, str] = field(default_factory=_environment, repr=False, compare=False)


class Cloud:
    """Base class of providers. The constructor does no I/O and raises ConfigError with *all* problems of its config.

    A subclass sets `name` and whichever capabilities it has, and overrides `start`/`close` when it holds connections.
    """

    name: ClassVar[str]
    limits: Limits = Limits()

    instances: Instances | None = None
    load_balancers: LoadBalancers | None = None
    routes: Routes | None = None
    volumes: Volumes | None = None
    #: By the name that --webhooks chooses them by.
    webhooks: Mapping[str, Webhook] = MappingProxyType({})

    def __init__(self, config: ProviderConfig) -> None:
        self.config = config

    @property
    def watched_files(self) -> Sequence[str]:
        """Paths of files beside `--cloud-config` whose content is a part of its configuration, such as a mounted token
        or certificate. When one changes, a new `Cloud` is made. No I/O."""
        return ()

    @property
    def has_cluster_id(self) -> bool:
        """Whether things of several clusters in one project are told apart; else `--allow-untagged-cloud` is needed."""
        return True

    async def start(self) -> None:
        """Open connections, prove the credentials with one cheap call. Raises Unauthorized, Transient, ConfigError."""

    async def close(self) -> None:
        """Release everything; called once, also after a failed start."""
