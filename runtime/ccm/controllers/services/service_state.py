# SPDX-License-Identifier: Apache-2.0
"""What the Service controller knows about one Service (upstream: `cachedService`).

All times are seconds of the context's monotonic clock; -inf and inf mean never.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass, field

from ccm.cloud import Backends, Ingress, LoadBalancers, LoadBalancerSpec
from ccm.engine.objects import Service

from .told_warnings import ToldWarnings


@dataclass(slots=True)
class Written:
    """What the last complete write left in the cloud.

    `fingerprint`: that of what was written, None if unknown; `spec` and `backends`: what it was computed from. `at`:
    when it was written; `late_until`: until when the cloud may show what was before. `tried_at`: when the last attempt
    to write everything ended, successful or not.
    """

    fingerprint: Hashable = None
    spec: LoadBalancerSpec | None = None
    backends: Backends = field(default_factory=Backends)
    at: float = 0.0
    late_until: float = -math.inf
    tried_at: float = -math.inf


@dataclass(slots=True)
class Following:
    """How the backends follow the Nodes, also while the change of a Service is refused.

    `exists`: the cloud has shown or accepted a load balancer. `accepted`: the desired state that the cloud accepted
    last, None if this process wrote none. `backends`: those that the load balancer has, None if unknown. `updating`:
    the current attempt writes the backends alone; `unconfirmed`: such a write failed, so they must be written again.
    `refused`: the last attempt to write everything failed; `behind`: the backends have yet to follow the Nodes, because
    `keep_up` did not write them, or the cloud has not finished that. `missed_at`: since when the cloud rejects
    writes of the backends because it knows no load balancer.
    """

    exists: bool = False
    accepted: LoadBalancerSpec | None = None
    backends: Backends | None = None
    updating: bool = False
    unconfirmed: bool = False
    refused: bool = False
    behind: bool = False
    missed_at: float = math.inf

    def accept(self, spec: LoadBalancerSpec, backends: Backends) -> None:
        """Record that the cloud accepted the whole desired state."""
        self.exists, self.accepted, self.backends = True, spec, backends
        self.updating = self.unconfirmed = self.refused = self.behind = False
        self.missed_at = math.inf

    def leave_to_others(self, backends: Backends) -> None:
        """Record that another controller writes the backends."""
        self.backends = backends
        self.updating = self.unconfirmed = self.refused = False


@dataclass(slots=True)
class Polling:
    """Whether the cloud has finished the last write.

    `reads`: the number of the next read since the last write. `settled`: the load balancer is ready and the Service has
    its addresses; `provisional`: this is known from an answer that may be older than the last write. `ensuring_since`:
    since when the Service waits for a load balancer that is ready, None if it does not wait.
    """

    reads: int = 0
    settled: bool = False
    provisional: bool = False
    ensuring_since: float | None = None

    def begin(self) -> None:
        """Record that a write has ended: from now on, the load balancer is read until the cloud has finished the
        change."""
        self.reads, self.settled, self.provisional = 0, False, False

    def look_again(self) -> None:
        """Make reading the load balancer the next step, even if it was ready."""
        self.reads, self.settled, self.provisional = 1, False, False

    def settle(self, *, provisional: bool) -> None:
        self.reads, self.settled, self.provisional = 0, True, provisional


@dataclass(slots=True)
class Deletion:
    """The deletion of the load balancer.

    `started`: it has begun. `known`: the cloud knew the load balancer when it was to be deleted. `confirmed`: the cloud
    reported that the load balancer is being deleted, or is gone. `again_at`: when a cloud that did not know the load
    balancer is asked again. `vanished_at`: since when the Service is gone without being released.
    `service_was_deleted`: the Service was being deleted when it was last seen. `held`: why the deletion does not start,
    as an Event has reported it. `kept`: the name of the load balancer that stays.
    """

    started: bool = False
    known: bool = False
    confirmed: bool = False
    again_at: float = -math.inf
    vanished_at: float = math.inf
    service_was_deleted: bool = False
    held: str = ""
    kept: str = ""


@dataclass(slots=True)
class Comparing:
    """The comparison of the load balancer with the Service. `due`: the load balancer is compared next; `requested`:
    a user asked for the comparison; `at`: when the load balancer was compared last."""

    due: bool = False
    requested: bool = False
    at: float = -math.inf


@dataclass(slots=True)
class ServiceState:
    """What this process knows about one Service.

    `cloud`: the cloud that all this applies to. `ingress`: the addresses last written to the status. `warnings`: those
    that Events reported. `reported`: an Event has reported the current failure; `lost_races`: writes in a row for which
    the API server no longer knew the Service. `is_wanted`: the Service has requested a load balancer of this cloud
    since this process first saw it.
    """

    service: Service
    written: Written = field(default_factory=Written)
    following: Following = field(default_factory=Following)
    polling: Polling = field(default_factory=Polling)
    comparing: Comparing = field(default_factory=Comparing)
    deletion: Deletion = field(default_factory=Deletion)
    cloud: LoadBalancers | None = None
    ingress: tuple[Ingress, ...] = ()
    warnings: ToldWarnings = field(default_factory=ToldWarnings)
    reported: bool = False
    lost_races: int = 0
    is_wanted: bool = False

    def use(self, cloud: LoadBalancers) -> None:
        """Use this cloud from now on. What was written to another cloud does not count for it."""
        if self.cloud is not cloud:
            self.cloud, self.written.fingerprint, self.following.backends = cloud, None, None

    def wrote(
        self, fingerprint: Hashable, spec: LoadBalancerSpec, backends: Backends, now: float, lag: float = 0.0
    ) -> None:
        """Record a complete write. `lag`: the seconds for which the cloud may show the state before this write."""
        written = self.written
        written.fingerprint, written.spec, written.backends, written.at = fingerprint, spec, backends, now
        if lag:
            written.late_until = now + lag
        self.following.accept(spec, backends)
        self.polling.begin()

    def is_unwritten(self, spec: LoadBalancerSpec) -> bool:
        """Return whether the last complete write had another spec, or has an unknown result. Backends do not matter."""
        return self.written.fingerprint is None or self.written.spec != spec

    @property
    def is_served(self) -> bool:
        """Whether the load balancer has settled after the last write, and nobody waits for its creation or change."""
        return self.polling.settled and self.polling.ensuring_since is None

    def is_elsewhere(self, fingerprint: Hashable, spec: LoadBalancerSpec, backends: Backends) -> None:
        """Record that another controller serves the Service: there is nothing to write until something changes."""
        self.written.fingerprint, self.written.spec, self.written.backends = fingerprint, spec, backends
        self.following.leave_to_others(backends)
        self.polling.settled, self.polling.provisional = True, False
