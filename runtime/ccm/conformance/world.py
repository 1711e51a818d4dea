# SPDX-License-Identifier: Apache-2.0
"""Hooks for events in the cloud that a case needs and cannot cause through the contract."""

from __future__ import annotations

import enum
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace

from ccm.cloud import LoadBalancerSpec, VolumeRef


class NotRun(Exception):
    """A case could not prove anything; the text says what the case needs. Never counted as passed."""


class Trouble(enum.Enum):
    """Failures of a cloud. While one lasts, it affects every call of the provider, unless its text says otherwise."""

    SERVER_ERROR = "every call is answered with a 5xx of the cloud"
    PROXY_PAGE = "every call is answered with 404 and a web page, as from a proxy that cannot reach the cloud"
    CUT_ANSWER = "every answer is truncated"
    SHORT_LISTING = "listings of instances omit their second half, and there are at least two instances"
    LATER_PAGE = "the first page of a listing is answered, and each later one with a 5xx of the cloud"
    HANG = "no call is ever answered"
    UNAUTHORIZED = "every call is rejected because the credentials are no longer valid"
    RATE_LIMITED = "every call is rejected because of too many calls, to be retried after 7 s (World.RETRY_AFTER)"
    LOST_ANSWER = "the next call that creates a load balancer is carried out, and its answer is lost"
    HALF_MADE = "the creation of a load balancer fails midway with a 5xx of the cloud, and its parts remain"
    REFUSED = "each creation of a load balancer is refused with a 4xx and a code that the provider does not know"
    SLOW_LOAD_BALANCERS = "a load balancer is not ready for a minute after its creation"


@dataclass(frozen=True, slots=True)
class Listener:
    """One port of a load balancer, read back from the cloud.

    `protocol`: "TCP", "UDP" or "SCTP". `targets`: address and port of every backend that gets new connections.
    `source_ranges`: the CIDRs that may connect; empty allows all clients. `session_affinity`: "None" or "ClientIP".
    `health_check_port`: the port of the backends that is checked, if it is not the port that gets the traffic.
    If the cloud does not have a setting, keep its default here.
    """

    port: int
    protocol: str
    targets: frozenset[tuple[str, int]]
    source_ranges: frozenset[str] = frozenset()
    session_affinity: str = "None"
    health_check_port: int = 0


class World:
    """Hooks with which cases act on the cloud. A provider's test passes a subclass that overrides those it supports.

    A case that needs a missing hook is reported as not proven, with the reason.
    """

    #: The delay in seconds that the cloud requests in RATE_LIMITED.
    RETRY_AFTER = 7.0
    #: The capabilities that call the cloud, so that a trouble affects them. Leave out those that the provider
    #: implements without the cloud.
    asking = frozenset({"instances", "load_balancers", "routes", "volumes"})
    #: The number of load balancers in one page of the cloud's listing. Choose a small one, because the kit creates one
    #: more than that. 0: unknown, or the cloud has no pages.
    load_balancers_in_a_page = 0

    def trouble(self, kind: Trouble) -> AbstractAsyncContextManager[None]:
        """Return a context during which this failure occurs."""
        raise NotRun(f"needs a cloud that fails on request: {kind.value}")

    async def create_instance(self, name: str) -> None:
        """Create a running instance in the project that the provider reads; names may repeat."""
        raise NotRun("needs an instance to be created")

    async def delete_instance(self, provider_id: str) -> None:
        """Delete an instance that `create_instance` created; succeeds if it is already gone."""
        raise NotRun("needs an instance to be deleted")

    async def stop_instance(self, provider_id: str) -> None:
        """Shut down an instance that `create_instance` created."""
        raise NotRun("needs an instance to be stopped")

    async def untag_instance(self, provider_id: str) -> None:
        """Remove all tags, labels and similar data from an instance that `create_instance` created."""
        raise NotRun("needs an instance to lose its tags")

    async def break_load_balancer(self, name: str) -> None:
        """Put the load balancer with this name into the cloud's error state."""
        raise NotRun("needs a load balancer to fail")

    async def load_balancer_parts(self) -> frozenset[str]:
        """Return the IDs of all parts of load balancers in the project, including addresses and the like, to find
        leftovers. Parts that the cloud is deleting do not count."""
        raise NotRun("needs to see the parts of load balancers")

    async def load_balancer_listeners(self, name: str) -> tuple[Listener, ...]:
        """Return every port of the load balancer with this name, as the cloud has it now."""
        raise NotRun("needs to see the listeners of a load balancer")

    async def load_balancer_members(self, name: str) -> frozenset[str]:
        """Return the addresses to which the load balancer with this name sends new connections."""
        return frozenset(address for each in await self.load_balancer_listeners(name) for address, _ in each.targets)

    async def load_balancer_ports(self, name: str) -> frozenset[int]:
        """Return the ports on which the load balancer with this name listens."""
        return frozenset(each.port for each in await self.load_balancer_listeners(name))

    async def share(self, spec: LoadBalancerSpec, name: str) -> LoadBalancerSpec:
        """Return the Service, changed so that it shares the load balancer with this name, if the provider supports
        that. Otherwise it is unchanged and gets a separate load balancer."""
        return spec

    def comes_too_late(self, spec: LoadBalancerSpec) -> LoadBalancerSpec:
        """Return the Service with a change to a setting that this cloud applies only to new load balancers. By default,
        the Service requests an address that no cloud has; override this for another setting."""
        return replace(spec, load_balancer_ip="192.0.2.77")

    async def create_volume(self) -> VolumeRef:
        """Create a volume, and return it as a PersistentVolume refers to it."""
        raise NotRun("needs a volume to be created")

    async def delete_volume(self, ref: VolumeRef) -> None:
        """Delete a volume that `create_volume` created; succeeds if it is already gone."""
        raise NotRun("needs a volume to be deleted")
