# SPDX-License-Identifier: Apache-2.0
"""What this process remembers about a Service's load balancer between two calls."""

from __future__ import annotations

from dataclasses import dataclass, field

from .load_balancer_rules import DesiredLoadBalancer, Row
from .load_balancer_steps import Observed
from .parts import Pools
from .remedies import Remedies

#: Maximum seconds between two reads of a new load balancer. Until then, each read waits as long as it has existed.
PATIENCE = 12.0
#: Of how many load balancers this process remembers something. Nobody says so when somebody else deletes one.
REMEMBERED = 20_000


@dataclass
class Memory:
    """What this process knows about a Service's load balancer beyond what the cloud reports.

    `row`, `owner`: as last seen, so that a change of members needs no read. `born`: when it was created, while it is
    new; `look_at`: when to read it next (monotonic seconds). `address`: at which clients reach it. `written`: pool ->
    its last members, until all pools have theirs. `pools`: port -> pool. `parts`: its parts as this process has read
    and changed them, while it changes them, until `parts_until`. `replaced`: it replaces one that failed, whose
    floating IP may be free now. `doubted`: its parts differ from what its tag says. `tried`: remedies tried after
    failures. `warnings`: what to report about it.
    """

    balancer_id: str = ""
    row: Row | None = None
    owner: bool = True
    born: float = 0.0
    look_at: float = 0.0
    address: str = ""
    want: DesiredLoadBalancer | None = None
    keep: bool = False
    replaced: bool = False
    doubted: bool = False
    tried: Remedies = field(default_factory=Remedies)
    warnings: tuple[str, ...] = ()
    pools: Pools = field(default_factory=dict)
    parts: Observed | None = None
    parts_until: float = 0.0
    written: dict[str, str] = field(default_factory=dict)

    def look_later(self, now: float) -> None:
        """Plan the next read of a new load balancer."""
        if self.born:
            self.look_at = now + min(PATIENCE, max(1.0, now - self.born + 1.0))
