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

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, Protocol, runtime_checkable

from .instance_contract import Instances
from .load_balancer_contract import LoadBalancers


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
