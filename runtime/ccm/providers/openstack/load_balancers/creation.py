# SPDX-License-Identifier: Apache-2.0
"""Creates the load balancer of a Service, or takes back one that is kept for the Service's namespace."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ccm import cloud
from ccm.cloud import Backend, LoadBalancerSpec, RetryAfter

from . import listener_rules, load_balancer_owners
from .addresses import Addresses
from .desired_states import DesiredStates
from .feature_rules import Features
from .floating_ips import FloatingIps
from .job import Job
from .listing import LOAD_BALANCER, Balancers
from .load_balancer_owners import Mark
from .load_balancer_rules import DesiredLoadBalancer
from .members import PoolMembers
from .memory import Memory
from .vip_ports import nodes_subnet, second_subnet

if TYPE_CHECKING:
    from ..api import Api


class Creation:
    """Creates load balancers and takes kept ones back. `soon`: returns the seconds until a Service that waits for
    Octavia is retried."""

    def __init__(
        self,
        api: Api,
        desired: DesiredStates,
        balancers: Balancers,
        floating: FloatingIps,
        addresses: Addresses,
        members: PoolMembers,
        soon: Callable[[], float],
        clock: Callable[[], float],
    ) -> None:
        self._api, self._section = api, api.settings.load_balancer
        self._desired, self._balancers, self._floating = desired, balancers, floating
        self._addresses, self._members, self._soon, self._clock = addresses, members, soon, clock

    async def create(
        self,
        spec: LoadBalancerSpec,
        desired: DesiredLoadBalancer,
        backends: Sequence[Backend],
        owner: Mark,
        features: Features,
        memory: Memory,
    ) -> cloud.LoadBalancer:
        """Create the load balancer with its parts, then its floating IP. If Octavia needs serial calls, create only the
        load balancer and raise RetryAfter."""
        used_again = await self._addresses.check(desired)
        subnet = desired.subnet_id
        if not (subnet or desired.network_id or desired.port_id):
            subnet = await nodes_subnet(self._api, backends, desired.family)
        member_subnet, second = desired.member_subnet_id or subnet, ""
        if desired.also and features.additional_vips and not desired.port_id:
            second = await second_subnet(self._api, subnet, desired.network_id, desired.also)
            desired = self._desired.of(spec, "", desired.also if second else "")
            owner = dataclasses.replace(owner, flags=await self._addresses.flags(desired))
        serial = self._section.provider_requires_serial_api_calls
        new_listeners = () if serial else listener_rules.listeners(desired, backends, member_subnet, features)
        if serial:
            owner = Mark.of(spec, "", owner.flags)
        body = listener_rules.create_body(desired, new_listeners, owner, subnet, desired.vip_address, features, second)
        if used_again:
            body["tags"].append(load_balancer_owners.KEEP_FLOATING)
        answer = await self._api.call("POST", LOAD_BALANCER, "/lbaas/loadbalancers", body={"loadbalancer": body})
        row = answer["loadbalancer"]
        now = self._clock()
        memory.balancer_id, memory.born, memory.look_at, memory.desired = row["id"], now, now + 1.0, desired
        if serial:
            raise RetryAfter(f"load balancer {row['id']} is being created", self._soon())
        fresh = not (desired.port_id or memory.replaced)
        memory.address, floating = await self._addresses.reach(desired, row, owner=True, fresh=fresh)
        job = Job(spec, desired, backends, features, row, owner=True)
        await self._members.admit(job)
        memory.warnings = await self._addresses.warnings(job, memory.address, None if fresh else floating)
        return memory.answer(job)

    async def take_back(self, spec: LoadBalancerSpec, desired: DesiredLoadBalancer) -> None:
        """Give the Service a load balancer that is kept for its namespace, and raise RetryAfter. Raises Conflict if
        there is none, or if another Service took it first."""
        row = load_balancer_owners.to_take_back((await self._balancers.look()).values(), spec, desired.family)
        async with self._balancers.writing(row["id"]):
            row = load_balancer_owners.to_take_back([await self._balancers.read(row["id"])], spec, desired.family)
            if row["provisioning_status"] != "ACTIVE":
                raise RetryAfter(f"load balancer {row['id']} is {row['provisioning_status']}", self._soon())
            if row.get("vip_port_id") and load_balancer_owners.KEEP_FLOATING not in (row.get("tags") or ()):
                await self._floating.hand_over(row["vip_port_id"], desired.floating_description)
            mark = Mark.of(spec, "", await self._addresses.flags(desired))
            tags = load_balancer_owners.taken_back(row, mark, desired.name, spec)
            body = {"loadbalancer": {"name": desired.name, "description": desired.description, "tags": tags}}
            await self._api.call("PUT", LOAD_BALANCER, f"/lbaas/loadbalancers/{row['id']}", body=body)
        raise RetryAfter(f"load balancer {row['id']} was taken back", self._soon())
