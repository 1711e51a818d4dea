# SPDX-License-Identifier: Apache-2.0
"""One snapshot of a Service's load balancer: its desired state, and Octavia's present state. It is immutable."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from ccm.cloud import Backend, LoadBalancerSpec

from . import load_balancer_owners
from .feature_rules import Features
from .load_balancer_owners import Mark
from .load_balancer_rules import DesiredLoadBalancer, Row


@dataclass(frozen=True)
class Job:
    """A load balancer during one call. `row`: the load balancer as read in this call. `owner`: whether it was created
    for this Service; otherwise this Service only shares it. `features`: what Octavia supports for it."""

    spec: LoadBalancerSpec
    desired: DesiredLoadBalancer
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
        """The Service's own mark on the load balancer, None without one."""
        return load_balancer_owners.own_mark(self.row, self.spec.cluster, self.spec.uid)

    @property
    def member_subnet(self) -> str:
        """The configured subnet of the members, else the VIP's; "" if a network or port is configured for the VIP."""
        desired, of_vip = self.desired, str(self.row.get("vip_subnet_id") or "")
        return desired.member_subnet_id or ("" if desired.network_id or desired.port_id else of_vip)
