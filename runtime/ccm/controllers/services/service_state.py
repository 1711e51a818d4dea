# SPDX-License-Identifier: Apache-2.0
"""What the Service controller knows about one Service (upstream: `cachedService`)."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass, field

from ccm.cloud import Backends, Ingress, LoadBalancers, LoadBalancerSpec
from ccm.engine.objects import Service

from .told_warnings import ToldWarnings


@dataclass
class ServiceState:
    """What this process knows about one Service.

    `written_fingerprint`: of what was last written to the cloud, None if unknown; `spec` and `backends`: what it was
    computed from. `updating`: a write of the backends alone is in progress; `unsure`: that write failed, so they
    must be written again. `polls`: reads from the cloud since the last write; `settled`: the load balancer is ready and
    the Service has its addresses. `late_until`: until when the cloud may show what was before the last write;
    `provisional`: it was settled by an answer from before that. `tried_at`: when the last attempt to write all of it
    ended. `met`: the cloud reported that it is being deleted, or is gone. `again_at`: when a cloud that did not know it
    is asked again. `reported`: an Event has reported the current failure. `vanished_at`: since when the Service is gone
    without being released. `ingress`: the addresses last written to its status. `cloud`: the cloud that all this
    applies to. `was_going`: the Service was being deleted when it was last seen. `compare`: the load balancer is due
    for a comparison; `asked`: a user asked for it; `compared_at`: the last one.

    `exists`: the cloud has shown or accepted a load balancer. `accepted`: the desired state that the cloud accepted
    last, None if this process wrote none. `followed`: the backends that the load balancer has, None if unknown.
    `refused`: the last attempt to write all of it failed; `behind`: the last one to write its backends alone, too.
    `missed_at`: since when the cloud answers to such a write that it knows no load balancer. `warnings`: those that
    Events reported. All times are seconds of the context's monotonic clock.
    """

    service: Service
    written_fingerprint: Hashable = None
    spec: LoadBalancerSpec | None = None
    backends: Backends = field(default_factory=Backends)
    unsure: bool = False
    updating: bool = False
    polls: int = 0
    settled: bool = False
    written_at: float = 0.0
    ensuring_since: float | None = None
    deleting: bool = False
    tried_at: float = -math.inf
    met: bool = False
    late_until: float = -math.inf
    provisional: bool = False
    again_at: float = -math.inf
    lost_races: int = 0
    reported: bool = False
    vanished_at: float = math.inf
    ingress: tuple[Ingress, ...] = ()
    cloud: LoadBalancers | None = None
    was_going: bool = False
    compare: bool = False
    asked: bool = False
    compared_at: float = -math.inf
    exists: bool = False
    accepted: LoadBalancerSpec | None = None
    followed: Backends | None = None
    refused: bool = False
    behind: bool = False
    missed_at: float = math.inf
    warnings: ToldWarnings = field(default_factory=ToldWarnings)

    def look_again(self) -> None:
        """Make reading the load balancer the next step, whatever was known of it."""
        self.settled, self.provisional, self.polls = False, False, 1

    def wrote(
        self, fingerprint: Hashable, spec: LoadBalancerSpec, backends: Backends, now: float, lag: float = 0.0
    ) -> None:
        """`lag`: for how many seconds the cloud may show what was before this write."""
        self.written_fingerprint, self.spec, self.backends, self.written_at = fingerprint, spec, backends, now
        self.unsure, self.updating, self.settled, self.polls = False, False, False, 0
        self.provisional, self.missed_at = False, math.inf
        self.exists, self.accepted, self.followed, self.refused, self.behind = True, spec, backends, False, False
        if lag:
            self.late_until = now + lag

    def is_unwritten(self, spec: LoadBalancerSpec) -> bool:
        """Return whether the cloud has another desired state than `spec`, as far as is known, whatever its backends."""
        return self.written_fingerprint is None or self.spec != spec

    def is_elsewhere(self, fingerprint: Hashable, spec: LoadBalancerSpec, backends: Backends) -> None:
        """Another controller serves the Service: there is nothing to write until something changes."""
        self.written_fingerprint, self.spec, self.backends, self.followed, self.settled = (
            fingerprint,
            spec,
            backends,
            backends,
            True,
        )
        self.unsure, self.updating, self.refused, self.provisional = False, False, False, False
