# SPDX-License-Identifier: Apache-2.0
"""What this process remembers of a Service's load balancer between two calls."""

from __future__ import annotations

from dataclasses import dataclass, field

from .balancer_parts import Pools
from .load_balancer_rules import Row, Wish
from .remedies import Remedies

#: A new load balancer is looked at when it is twice as old as at the last look, at most so much later, in seconds.
PATIENCE = 12.0


@dataclass
class Memory:
    """What this process knows about a Service's load balancer beyond what the cloud tells.

    `row`, `owner`: as it was seen last, so that a change of members can be written without a look. `born`: when it was
    made, while it is new; `look_at`: when to look at it next (monotonic). `address`: at which clients reach it.
    `written`: pool -> the members that it was given, while not all of its pools have theirs. `pools`: port -> pool.
    `replaced`: there was one that failed, whose floating IP may be free now. `doubted`: its parts are not as its tag
    says. `tried`: what was done about failures. `warnings`: what there is to tell of it.
    """

    balancer_id: str = ""
    row: Row | None = None
    owner: bool = True
    born: float = 0.0
    look_at: float = 0.0
    address: str = ""
    want: Wish | None = None
    keep: bool = False
    replaced: bool = False
    doubted: bool = False
    tried: Remedies = field(default_factory=Remedies)
    warnings: tuple[str, ...] = ()
    pools: Pools = field(default_factory=dict)
    written: dict[str, str] = field(default_factory=dict)

    def look_later(self, now: float) -> None:
        """Plan the next look at one that is new."""
        if self.born:
            self.look_at = now + min(PATIENCE, max(1.0, now - self.born + 1.0))
