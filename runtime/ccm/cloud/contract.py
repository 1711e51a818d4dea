# SPDX-License-Identifier: Apache-2.0
"""The contract between the framework and a cloud: the counterpart of `cloudprovider.Interface` in Go.

A provider is a class with a `name`, registered under the entry-point group `ccm.providers`. It offers *capabilities*:
attributes that are None if the cloud does not have the feature. The framework passes it no Kubernetes objects, only the
plain data below. A provider does not retry or throttle its calls, and need not batch or cache them: the framework does
that for all providers. Times are in seconds. Addresses and CIDRs are text, spelled as the cloud spells them.

The framework guarantees that every call runs in a task that has a deadline and can be cancelled, that at most
`Limits.concurrency` calls are in flight, and that no two calls for one Service's load balancer overlap.
The framework expects that each method raises only errors of `ccm.cloud.errors`, and raises `NotFound` only if a
complete answer of the cloud says that the object does not exist.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, Protocol, runtime_checkable

from .instance_contract import Instances
from .load_balancer_contract import LoadBalancers
from .quota_contract import Quotas
from .tag_contract import InstanceTags


@dataclass(frozen=True, slots=True)
class Route:
    """A route that sends `destination`, a pod CIDR, to an instance.

    `id`: the cloud's handle, empty before creation.
    `provider_id`: empty for a blackhole, or if the target is not an instance.
    `owner`: the cluster that created the route, "" if the cloud does not record it. The framework never changes a route
    of another cluster.
    `target_addresses`: for `create`, the addresses that both the Node and its instance have. In a listing, the
    addresses of the target if the cloud records them, otherwise None. If a listed route has addresses and no
    `provider_id`, the framework matches it to the Node whose instance has all these addresses. A cloud whose routes
    name addresses therefore does not need to list instances.
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

    #: The maximum number of creates and deletes that the cloud accepts at a time.
    concurrency: int

    async def list(self, cluster: str) -> Sequence[Route]:
        """Return all routes of the network, including foreign ones: the framework decides which it may change."""
        ...

    async def create(self, cluster: str, route: Route) -> None: ...

    async def delete(self, cluster: str, route: Route) -> None:
        """Delete the route. Also succeeds if the route no longer exists."""
        ...


@dataclass(frozen=True, slots=True)
class VolumeRef:
    """A volume as a PersistentVolume identifies it: `driver` (CSI driver or in-tree plugin) and the cloud's handle."""

    driver: str
    handle: str


@runtime_checkable
class Volumes(Protocol):
    async def labels(self, ref: VolumeRef) -> Mapping[str, str]:
        """Return the topology labels for the PersistentVolume of this volume.

        Raises NotFound if the cloud reports that the volume does not exist. For a volume of another driver:
        NotImplementedByCloud, NotFound or Invalid.
        """
        ...


@dataclass(frozen=True, slots=True)
class Webhook:
    """An admission webhook. `handle` takes an AdmissionRequest and returns an AdmissionResponse, both as plain data.
    The framework sets the `uid` of the response.

    Without `--webhook-client-ca-file`, anyone who can reach the port can send requests. Therefore a response must not
    contain secrets, and `handle` must not change anything. The framework cancels `handle` after 30 s, and when the
    API server stops waiting.
    """

    path: str
    handle: Callable[[Mapping[str, Any]], Awaitable[Mapping[str, Any]]]


@dataclass(frozen=True, slots=True)
class Rate:
    """The rate of calls that the cloud accepts for one group of operations; it configures a token bucket."""

    calls_per_second: float
    burst: int


@dataclass(frozen=True, slots=True)
class Limits:
    """The load that the cloud accepts. `calls_per_second` and `burst` configure the token bucket; `deadline` applies to
    each call. `set_by`: the configuration key that sets `deadline`, for messages.

    `listing_lag`: how long after a write reads may still show the state before it (eventual consistency): a new object
    is missing, or a deleted one is listed. 0 if reads always show the last write.
    `groups`: lower rates for groups of operations, by the name of the capability ("instances", "load_balancers",
    "routes", "volumes", "instance_tags", "quotas"). A call waits for its turn in its group first, and then for its turn
    among all calls.
    """

    calls_per_second: float = 20.0
    burst: int = 40
    concurrency: int = 20
    deadline: float = 30.0
    listing_lag: float = 0.0
    groups: Mapping[str, Rate] = field(default_factory=dict)
    set_by: str = ""


def _environment() -> Mapping[str, str]:
    return MappingProxyType(dict(os.environ))


@dataclass(frozen=True, slots=True)
class ProviderConfig:
    """The content of the `--cloud-config` file ("" without one) and its origin, for messages. The text and the
    environment contain secrets, so `repr` shows neither.

    `environment`: the environment variables of the process, for settings that the cloud's own tools read from there,
    such as a token. Read them here, not from `os.environ`: tests and the conformance kit set other values.
    """

    text: str = field(default="", repr=False)
    source: str = "(no --cloud-config)"
    environment: Mapping[str, str] = field(default_factory=_environment, repr=False, compare=False)


class Cloud:
    """Base class of providers. The constructor does no I/O and raises ConfigError with *all* problems of its config.

    A subclass sets `name` and the capabilities it has, and overrides `start` and `close` if it holds connections.
    """

    name: ClassVar[str]
    limits: Limits = Limits()

    instances: Instances | None = None
    load_balancers: LoadBalancers | None = None
    routes: Routes | None = None
    volumes: Volumes | None = None
    instance_tags: InstanceTags | None = None
    quotas: Quotas | None = None
    #: Admission webhooks, by the names that select them in --webhooks.
    webhooks: Mapping[str, Webhook] = MappingProxyType({})

    def __init__(self, config: ProviderConfig) -> None:
        self.config = config

    @property
    def needs_node_ports(self) -> bool:
        """Whether load balancers send traffic to the node ports of a Service. If they do, the framework refuses a
        Service with a port that has no node port, because nothing would answer behind the load balancer."""
        return True

    @property
    def watched_files(self) -> Sequence[str]:
        """Paths of further files that belong to the configuration, such as a mounted token or certificate.
        The framework creates a new `Cloud` when the content of one of them changes. No I/O."""
        return ()

    @property
    def has_cluster_id(self) -> bool:
        """Whether the provider can tell apart the resources of several clusters in one project. If it cannot, the
        controller manager starts only with `--allow-untagged-cloud`."""
        return True

    async def start(self) -> None:
        """Open connections and verify the credentials with one cheap call.

        Raises Unauthorized, Transient, ConfigError.
        """

    async def close(self) -> None:
        """Release everything. The framework calls this once, also after a failed start."""
