# SPDX-License-Identifier: Apache-2.0
"""One look at a Service's load balancer: what it should be, and what Octavia has. It never changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from ccm.cloud import Backend, LoadBalancerSpec

from . import marks
from .load_balancer_rules import Features, Row, Wish
from .marks import Mark


@dataclass(frozen=True)
class Job:
    """`row`: the load balancer, as it was read in this very call. `owner`: it was made for this Service, and not for
    another one that shares it. `features`: what Octavia can do with it."""

    spec: LoadBalancerSpec
    want: Wish
    backends: Sequence[Backend]
    features: Features
    row: Row
    owner: bool

    @property
    def id(self) -> str:
        return str(self.row["id"])

    @property
    def status(self) -> str:
        return str(self.row["provisioning_status"])

    @cached_property
    def present(self) -> Mark | None:
        """The Service's own mark on it."""
        return marks.own_mark(self.row, self.spec.cluster, self.spec.uid)

    @property
    def member_subnet(self) -> str:
        """The one that is said, else that of the VIP. "" where a network or a port was said for the VIP."""
        want, of_vip = self.want, str(self.row.get("vip_subnet_id") or "")
        return want.member_subnet_id or ("" if want.network_id or want.port_id else of_vip)
