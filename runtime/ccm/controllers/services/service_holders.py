# SPDX-License-Identifier: Apache-2.0
"""Which of several clouds may have the load balancer of a Service that no longer has the type LoadBalancer. No I/O.

The API server removes a Service's class together with its type, so the class does not show which cloud served the
Service. Only the load balancers that each cloud served or listed show it. All clouds share one finalizer: if one cloud
removes it while another still has the load balancer, that load balancer is left behind.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ccm.engine.objects import Service
from ccm.engine.queue import Requeue

from . import service_rules as rules

#: Seconds until the next look at a Service whose load balancer another cloud may have.
AGAIN = 5.0


class ServiceHolders:
    """Which clouds may have the load balancer of a Service. `clouds`: the names of the clouds with load balancers. A
    cloud that has not joined yet may have any load balancer."""

    def __init__(self, clouds: Sequence[str]) -> None:
        self._clouds = tuple(clouds)
        self._has: dict[str, Callable[[str], bool]] = {}

    def join(self, cloud: str, has: Callable[[str], bool]) -> None:
        """Add a cloud whose load balancers have been listed. `has(uid)`: whether it has the load balancer of the
        Service with this UID."""
        self._has[cloud] = has

    def others(self, cloud: str, uid: str) -> list[str]:
        """Return the other clouds that may have the load balancer of this Service."""
        return [each for each in self._clouds if each != cloud and (each not in self._has or self._has[each](uid))]

    def releases_the_rest(self, cloud: str) -> bool:
        """Return whether this cloud's controllers release Services of which no cloud has a load balancer."""
        return self._clouds[:1] == (cloud,)


@dataclass(frozen=True)
class Held:
    """The entry of one cloud in `ServiceHolders`. `holders`: None if the process has one cloud. `has`: as for
    `ServiceHolders.join`."""

    holders: ServiceHolders | None
    cloud: str
    has: Callable[[str], bool]

    def join(self) -> None:
        if self.holders is not None:
            self.holders.join(self.cloud, self.has)

    def leaves_to_others(self, service: Service) -> bool:
        """Return whether another cloud must release a Service that no longer has the type LoadBalancer. Raises Requeue
        if this cloud must release the Service, but another cloud may still have its load balancer."""
        uid = service.metadata.uid
        if self.holders is None or service.spec.type == "LoadBalancer" or self.has(uid):
            return False
        if not self.holders.releases_the_rest(self.cloud):
            return True
        if rules.needs_cleanup(service) and self.holders.others(self.cloud, uid):
            raise Requeue(AGAIN)
        return False
