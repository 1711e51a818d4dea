# SPDX-License-Identifier: Apache-2.0
"""What the Service controller knows about one Service (upstream: `cachedService`)."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass, field

from ccm.cloud import Backends, Ingress, LoadBalancers, LoadBalancerSpec
from ccm.engine.objects import Service


@dataclass
class ServiceState:
    """What this process knows about one Service.

    `mark`: what the cloud was last told, None when that is not known (`ServiceBalancers.mark`); `spec` and `backends`
    are what it was made from. `updating`: a write of the backends alone is being tried; `unsure`: it failed, so they
    must be written again. `polls`: looks at the cloud since it was written; `settled`: it is ready and the Service says
    where. `tried_at`: when it was last tried to make it; `met`: the cloud knew it when it was to be deleted;
    `again_at`: when a cloud that did not is asked again. `reported`: an Event said what is wrong since the last
    success. `vanished_at`: since when the Service is gone without our having released it. `ingress`: what its status
    was last given. `cloud`: the one that all this is about. `was_going`: it was being deleted when it was last seen.
    `compare`: its load balancer is to be compared with it; `asked`: for a user; `compared_at`: when it was. All times
    are seconds of the context's monotonic clock.
    """

    service: Service
    mark: Hashable = None
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

    def wrote(self, mark: Hashable, spec: LoadBalancerSpec, backends: Backends, now: float) -> None:
        self.mark, self.spec, self.backends, self.written_at = mark, spec, backends, now
        self.unsure, self.updating, self.settled, self.polls = False, False, False, 0
