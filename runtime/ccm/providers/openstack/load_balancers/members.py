# SPDX-License-Identifier: Apache-2.0
"""The members of a Service's pools, and the security group that lets the load balancer reach them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ccm.cloud import Backend, Backends, Invalid, LoadBalancerSpec, RetryAfter

from . import listener_rules
from . import load_balancer_rules as rules
from . import load_balancer_steps as diff
from .desired_states import DesiredStates
from .job import Job
from .listener_rules import members_of
from .memory import Memory
from .parts import Parts
from .security_groups import SecurityGroups, desired_rules

if TYPE_CHECKING:
    from ..api import Api


class PoolMembers:
    """Writes the members of Services. `soon`: returns the seconds until a Service that waits for Octavia is retried."""

    def __init__(
        self, api: Api, desired: DesiredStates, parts: Parts, groups: SecurityGroups, soon: Callable[[], float]
    ) -> None:
        self._api, self._desired, self._parts, self._groups, self._soon = api, desired, parts, groups, soon

    def digest(self, spec: LoadBalancerSpec, backends: Sequence[Backend]) -> str:
        """Return a digest of the members; zeros for a Service that cannot be served."""
        try:
            desired = self._desired.of(spec)
        except Invalid:
            return "0" * 12
        key = ("openstack members", *listener_rules.selection(desired))
        return Backends.of(backends).once(
            key,
            lambda every: rules.members_fingerprint(
                members_of(desired, every), listener_rules.draining_of(desired, every)
            ),
        )

    async def write(self, job: Job, memory: Memory, digest: str) -> None:
        """Return if every pool has its members. Otherwise write the members of one pool and raise RetryAfter."""
        desired, subnet = job.desired, job.member_subnet
        listeners = listener_rules.listeners(desired, (), subnet, job.features)
        pools = memory.pools = await self._parts.pools(job.row, job.desired.name, job.owner, listeners, memory.pools)
        for number, (listener, port) in enumerate(zip(listeners, desired.ports, strict=True), 1):
            pool = pools[(listener.protocol, listener.port)]
            if memory.written.get(pool) != digest:
                members = listener_rules.member_bodies(desired, job.backends, port, subnet, job.features)
                await self._parts.do(diff.members_put(pool, members))
                memory.written[pool] = digest
                which = f"pool {number} of {len(listeners)}"
                raise RetryAfter(f"the members of load balancer {job.id} are being changed, {which}", self._soon())

    async def admit(self, job: Job, *, rules_too: bool = True) -> None:
        """Put the Service's security group on the members' ports, if cloud.conf asks for such groups. `rules_too`:
        write the group's rules even if the group exists."""
        spec, desired = job.spec, job.desired
        if not desired.security_groups:
            return
        subnet = job.member_subnet or str(job.row["vip_subnet_id"])
        group = "" if rules_too else await self._groups.known(spec)
        if not group:
            group = await self._groups.ensure(spec, await self._group_rules(job, subnet))
        await self._groups.spread(group, listener_rules.served_at(desired, job.backends, self._api.region), subnet)

    async def group_deviations(self, job: Job) -> Sequence[str]:
        """Return how the Service's security group differs from its desired state; () if it needs none."""
        if not job.desired.security_groups:
            return ()
        subnet = job.member_subnet or str(job.row["vip_subnet_id"])
        members = listener_rules.served_at(job.desired, job.backends, self._api.region)
        return await self._groups.deviations(job.spec, await self._group_rules(job, subnet), members, subnet)

    async def _group_rules(self, job: Job, subnet: str) -> Sequence[Mapping[str, Any]]:
        cidr = await self._groups.cidr(subnet)
        sources = [cidr] if job.features.acl or job.desired.runs_on != "ovn" else list(job.desired.allowed)
        return desired_rules(job.desired.ports, job.spec.health_check_node_port, cidr, sources)
