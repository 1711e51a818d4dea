# SPDX-License-Identifier: Apache-2.0
"""What this process remembers about a Service's load balancer between two calls, and answers from this memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ccm import cloud
from ccm.cloud import Ingress, Kept

from . import listener_rules, load_balancer_owners
from . import load_balancer_rules as rules
from .job import Job
from .load_balancer_owners import Mark
from .load_balancer_rules import DesiredLoadBalancer, Row
from .load_balancer_steps import Observed
from .parts import Pools
from .remedies import Remedies

#: The longest pause between two reads of a new load balancer, in seconds. The pause grows with the load balancer's age.
PATIENCE = 12.0
#: The maximum number of remembered load balancers. There is a limit because this process does not notice when others
#: delete one.
REMEMBERED = 20_000


@dataclass
class Memory:
    """What this process knows about a Service's load balancer in addition to what the cloud reports.

    `row`, `owner`: as last seen, so that a change of members needs no read. `born`: when it was created, while it is
    new; `look_at`: when to read it next (monotonic seconds). `address`: the one that clients use. `keep`: its floating
    IP stays when the load balancer is deleted. `written`: pool -> digest of the members that were last written to it,
    until all pools are written. `pools`: what `Parts.pools` returned last. `parts`: its parts as this process read and
    changed them, while changes are left, until `parts_until`. `replaced`: it replaces one that failed, whose floating
    IP may be free now. `doubted`: its parts differ from what its tag says. `tried`: remedies tried after failures.
    `warnings`: what to report about it.
    """

    balancer_id: str = ""
    row: Row | None = None
    owner: bool = True
    born: float = 0.0
    look_at: float = 0.0
    address: str = ""
    desired: DesiredLoadBalancer | None = None
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

    def answer(self, job: Job) -> cloud.LoadBalancer:
        """Return the load balancer for the framework, and remember it."""
        self.balancer_id, self.desired = job.id, job.desired
        ready = job.status == "ACTIVE"
        if ready:
            self.row, self.born, self.look_at = job.row, 0.0, 0.0
        return cloud.LoadBalancer(
            job.spec.uid,
            str(job.row["name"]),
            rules.ingress(job.desired, self.address, rules.additional_vip(job.row, job.desired.also)) if ready else (),
            job.present.fingerprint if job.present is not None else "",
            ready,
            (
                *self.warnings,
                *listener_rules.nobody(job.desired, job.backends),
                *listener_rules.too_many(job.desired, job.backends),
            ),
        )

    def listed(self, row: Row, owner: Mark, floating: Mapping[str, str]) -> cloud.LoadBalancer:
        """Return the load balancer for the framework. If it is in ERROR, or its address or host name is not known, it
        has no fingerprint, so that `ensure` runs."""
        state = row["provisioning_status"]
        address = floating.get(row.get("vip_port_id") or "", "") if "f" in owner.flags else str(row["vip_address"])
        if self.desired is not None:
            second = rules.additional_vip(row, self.desired.also)
            ingress = rules.ingress(self.desired, address or self.address, second)
        else:
            other = "IPv4" if ":" in str(row["vip_address"]) else "IPv6"
            second = rules.additional_vip(row, other) if "d" in owner.flags else ""
            mode = "Proxy" if "p" in owner.flags else "VIP"
            ingress = tuple(Ingress(ip=each, ip_mode=mode) for each in (address, second) if each)
        right = bool(address) and state != "ERROR" and ("h" not in owner.flags or self.desired is not None)
        if right and state == "ACTIVE":
            self.row, self.owner, self.address = row, load_balancer_owners.is_owner(row, owner), address
        fingerprint = owner.fingerprint if right else ""
        keep = Kept.LOAD_BALANCER if "l" in owner.flags else Kept.ADDRESS if "k" in owner.flags else None
        protected = "n" in owner.flags
        name, ready = row["name"], state == "ACTIVE"
        return cloud.LoadBalancer(owner.uid, name, ingress, fingerprint, ready, self.warnings, keep, protected)
