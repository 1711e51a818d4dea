# SPDX-License-Identifier: Apache-2.0
"""What a case needs to happen in the cloud and cannot do through the contract."""

from __future__ import annotations

import enum
from contextlib import AbstractAsyncContextManager

from ccm.cloud import LoadBalancerSpec, VolumeRef


class NotRun(Exception):
    """A case could not be run; the text says why. Never counted as passed."""


class Trouble(enum.Enum):
    """Ways in which a cloud fails. While one lasts, every call of the provider meets it, unless it says otherwise."""

    SERVER_ERROR = "every call is answered with the cloud's own error 5xx"
    PROXY_PAGE = "every call is answered with 404 and a web page, as by a proxy whose cloud is gone"
    CUT_ANSWER = "every answer ends in the middle"
    SHORT_LISTING = "listings of instances lack their second half, and there are at least two instances"
    HANG = "no call is ever answered"
    UNAUTHORIZED = "every call is refused, since the credentials are no longer good"
    RATE_LIMITED = "every call is refused as one too many, to be tried again after 7 seconds (World.RETRY_AFTER)"
    LOST_ANSWER = "the next call that creates a load balancer is carried out, and its answer is lost"
    HALF_MADE = "making a load balancer ends in the middle with the cloud's own error 5xx, and leaves what was made"
    SLOW_LOAD_BALANCERS = "a load balancer is not ready for a minute after it is created"


class World:
    """The hooks. A provider's own test passes a subclass with those that it can offer; the others stay as they are.

    A case that needs a hook that is not there is reported as not run, with the reason.
    """

    #: Seconds after which the cloud asks to be called again in RATE_LIMITED.
    RETRY_AFTER = 7.0
    #: The capabilities whose calls meet a trouble; a provider that has no cloud to ask keeps the others itself.
    asking = frozenset({"instances", "load_balancers", "routes", "volumes"})

    def trouble(self, kind: Trouble) -> AbstractAsyncContextManager[None]:
        """While inside, this goes wrong."""
        raise NotRun(f"needs a cloud that fails on request: {kind.value}")

    async def create_instance(self, name: str) -> None:
        """One instance more, running, in the project that the provider looks at; names may repeat."""
        raise NotRun("needs an instance to be created")

    async def delete_instance(self, provider_id: str) -> None:
        """Delete an instance that `create_instance` made; success when it is gone already."""
        raise NotRun("needs an instance to be deleted")

    async def stop_instance(self, provider_id: str) -> None:
        """Shut down an instance that `create_instance` made."""
        raise NotRun("needs an instance to be stopped")

    async def untag_instance(self, provider_id: str) -> None:
        """Take all tags, labels and the like from an instance that `create_instance` made."""
        raise NotRun("needs an instance to lose its tags")

    async def break_load_balancer(self, name: str) -> None:
        """Let the load balancer of this name fail in the cloud (its error state)."""
        raise NotRun("needs a load balancer to fail")

    async def load_balancer_parts(self) -> frozenset[str]:
        """IDs of all that load balancers of the project consist of, addresses and the like included, to see what is
        left of one. What the cloud is deleting does not count."""
        raise NotRun("needs to see what load balancers consist of")

    async def load_balancer_members(self, name: str) -> frozenset[str]:
        """The addresses that the load balancer of this name sends to."""
        raise NotRun("needs to see where a load balancer sends to")

    async def load_balancer_ports(self, name: str) -> frozenset[int]:
        """The ports at which the load balancer of this name listens."""
        raise NotRun("needs to see where a load balancer listens")

    async def share(self, spec: LoadBalancerSpec, name: str) -> LoadBalancerSpec:
        """The Service with whatever it must say to share the load balancer of this name, where Services can. Otherwise
        it stays as it is, and gets one of its own."""
        return spec

    async def create_volume(self) -> VolumeRef:
        """A volume, as a PersistentVolume would name it."""
        raise NotRun("needs a volume to be created")

    async def delete_volume(self, ref: VolumeRef) -> None:
        """Delete a volume that `create_volume` made; success when it is gone already."""
        raise NotRun("needs a volume to be deleted")
