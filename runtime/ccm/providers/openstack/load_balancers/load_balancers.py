# SPDX-License-Identifier: Apache-2.0
"""Octavia load balancers for Services.

No call waits. Octavia accepts one change of a load balancer at a time; until the change is done, the load balancer is
PENDING. A call that has something to change therefore reads, makes one change, and requests another call
(`RetryAfter`).
`load_balancer_rules` and `load_balancer_steps` compare present and desired state. This file has the contract's calls;
`creation`, `convergence`, `members`, `tags`, `repair` and `removal` write.

One listing of all load balancers serves all Services that read at the same time. A new load balancer is created
with all its parts in one request; members change with one request for each pool. Our tag (`Mark`) records what was
written, so an up-to-date load balancer needs no read of its parts.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ccm import cloud
from ccm.cloud import (
    Backend,
    Conflict,
    Invalid,
    Kept,
    LoadBalancerSpec,
    NotFound,
    NotImplementedByCloud,
    RetryAfter,
)
from ccm.cloud.toolkit.ownership_marks import cluster_tag
from ccm.cloud.toolkit.recent import Recent

from ..annotations import Annotations
from . import convergence, feature_rules, load_balancer_owners, permissions, sharing_rules
from . import load_balancer_rules as rules
from .addresses import Addresses
from .convergence import Convergence
from .creation import Creation
from .desired_states import DesiredStates
from .feature_rules import Features
from .floating_ips import FloatingIps, is_used_again, kept_addresses
from .job import Job
from .listing import LOAD_BALANCER, Balancers
from .load_balancer_owners import Mark
from .load_balancer_rules import DesiredLoadBalancer, Row
from .lookup import Ownership
from .members import PoolMembers
from .memory import REMEMBERED, Memory
from .parts import SOON, Parts
from .removal import DELETABLE, Removal, failed
from .repair import Repair
from .security_groups import SecurityGroups
from .sharing_rules import GOING
from .tags import Tags

if TYPE_CHECKING:
    from ..api import Api

#: The API version that introduced tags, which record ownership (OpenStack Stein, 2019).
OLDEST = (2, 5)


class OctaviaLoadBalancers:
    #: What a Service can leave behind: its load balancer, or its floating IP. Another Service requests that floating IP
    #: with loadBalancerIP.
    keeps = frozenset(Kept)

    def __init__(self, api: Api, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._api = api
        self._section = api.settings.load_balancer
        self._desired = DesiredStates(self._section, api.settings.load_balancer_classes)
        self._clock = clock
        self._balancers = Balancers(api)
        self._floating = FloatingIps(api)
        self._groups = SecurityGroups(api)
        self._parts = Parts(api)
        self._members = PoolMembers(api, self._desired, self._parts, self._groups, self._soon)
        self._tags = Tags(api, self._balancers, self._soon)
        self._removal = Removal(api, self._balancers, self._parts, self._floating)
        self._owned = Ownership(api, self._balancers, self._floating, self._removal, self._soon)
        self._addresses = Addresses(api, self._balancers, self._floating)
        self._creation = Creation(
            api,
            self._desired,
            self._balancers,
            self._floating,
            self._addresses,
            self._members,
            self._soon,
            clock,
        )
        self._repair = Repair(api, self._parts, self._removal, self._soon)
        self._convergence = Convergence(api, self._parts, self._tags.sign, self._soon, clock)
        self._memory: Recent[tuple[str, str], Memory] = Recent(REMEMBERED)
        self._version: tuple[int, int] | None = None

    # --- the contract -------------------------------------------------------------------------------------------

    async def list(self, cluster: str) -> Sequence[cloud.LoadBalancer]:
        """Costs one listing of load balancers and, if one of the cluster's has a floating IP, one of floating IPs."""
        rows = [
            (row, mark)
            for row in (await self._balancers.look()).values()
            for mark in load_balancer_owners.marks(row)
            if mark.cluster == cluster_tag(cluster) and row["provisioning_status"] not in GOING
        ]
        floating: dict[str, str] = {}
        if any("f" in mark.flags for _, mark in rows):
            every = await self._floating.all()
            floating = {row["port_id"]: row["floating_ip_address"] for row in every if row["port_id"]}
        return [self._memory.obtain((cluster, mark.uid), Memory).listed(row, mark, floating) for row, mark in rows]

    async def kept(self, cluster: str) -> Sequence[cloud.KeptLoadBalancer]:
        rows, floating = (await self._balancers.look()).values(), await self._floating.all()
        addresses = {str(row["port_id"]): str(row["floating_ip_address"]) for row in floating if row["port_id"]}
        return [*load_balancer_owners.kept(rows, cluster, addresses), *kept_addresses(floating, cluster)]

    def fingerprint(self, spec: LoadBalancerSpec, backends: Sequence[Backend]) -> str:
        """Return two digests, of the desired state and of the backends. `update_backends` renews only the second."""
        return f"{self._desired.fingerprint(spec)}-{self._members.digest(spec, backends)}"

    def drains(self, spec: LoadBalancerSpec) -> bool:
        """Return whether members can drain. Only amphorae are known to open no new connections to members with
        weight 0. With serial calls, a changed member is deleted and created again, so it keeps no connections."""
        return not self._section.provider_requires_serial_api_calls and feature_rules.drains(self._desired.of(spec))

    async def get(self, spec: LoadBalancerSpec) -> cloud.LoadBalancer:
        """Return the Service's load balancer. While it is being created, it is read less and less often; between two
        reads, the answer has `ready=False`."""
        memory = self._remembered(spec)
        if self._clock() < memory.look_at:
            return cloud.LoadBalancer(spec.uid, memory.desired.name if memory.desired else "", ready=False)
        row, owner = await self._owned.find(spec, memory.balancer_id)
        if row is None or row["provisioning_status"] in GOING:
            raise NotFound(f"cluster {spec.cluster!r} has no load balancer for Service {spec.namespace}/{spec.name}")
        if row["provisioning_status"] == "ERROR":
            raise Conflict(failed(row))
        if row["provisioning_status"] != "ACTIVE":
            memory.look_later(self._clock())
            return cloud.LoadBalancer(spec.uid, row["name"], ready=False)
        desired, features = await self._desired_and_features(spec, row)
        if not memory.address:
            on_port = (
                await self._floating.on(row["vip_port_id"]) if desired.floating and row.get("vip_port_id") else None
            )
            memory.address = on_port["floating_ip_address"] if on_port else row["vip_address"]
        return memory.answer(Job(spec, desired, (), features, row, owner))

    async def ensure(self, spec: LoadBalancerSpec, backends: Sequence[Backend]) -> cloud.LoadBalancer:
        memory = self._remembered(spec)
        rows = await self._balancers.look()
        row, owner = await self._owned.choose(rows, spec)
        desired, features = await self._desired_and_features(spec, row)
        if problems := feature_rules.refused(desired, features):
            raise Invalid("; ".join(problems))
        mark = Mark.of(spec, self.fingerprint(spec, backends))
        if row is None:
            await self._owned.check_no_other(rows, spec)
            if spec.take_back:
                await self._creation.take_back(spec, desired)
            permissions.check_new(spec.annotations, self._section)
            mark = dataclasses.replace(mark, flags=await self._addresses.flags(desired))
            return await self._creation.create(spec, desired, backends, mark, features, memory)
        load_balancer_owners.check_same(row, spec)
        if desired.keep_balancer and not owner:
            raise Invalid(
                f"load balancer {row['id']} was created for another Service, so only that one can keep it: remove the "
                "annotation that keeps it"
            )
        job = Job(spec, desired, backends, features, row, owner)
        if job.present is None and not owner:
            permissions.check_new(spec.annotations, self._section)
        written = job.present is not None and job.present.fingerprint == mark.fingerprint and not memory.doubted
        if not written:
            mark = dataclasses.replace(mark, flags=await self._addresses.flags(desired))
        memory.balancer_id = job.id
        if job.status == "ERROR":
            await self._repair.repair(job, memory.tried)
            self._memory.put((spec.cluster, spec.uid), Memory(replaced=True, tried=memory.tried))
            raise RetryAfter(f"{failed(row)}; it is being deleted and will be created again", self._soon())
        if job.status != "ACTIVE" and not (written and job.status not in GOING):
            raise RetryAfter(f"load balancer {job.id} is {job.status}", self._soon())
        if not written:
            if not owner:
                sharing_rules.check_may_join(row, desired.name, desired.internal, self._section.max_shared_lb)
            await self._convergence.run(job, memory)
        if written and job.status != "ACTIVE" and memory.address:
            return memory.answer(job)
        memory.address, floating = await self._addresses.reach(desired, row, owner)
        await self._members.admit(job)
        if not (written or desired.security_groups) and (job.present is None or "g" in job.present.flags):
            await self._groups.delete(spec)  # manage-security-groups was switched off
        memory.warnings = await self._addresses.warnings(job, memory.address, floating)
        if not written:
            used_again = owner and desired.floating is not None and is_used_again(floating, desired.floating)
            job = await self._tags.sign(job, mark, keep_floating=used_again)
        memory.written.clear()
        memory.tried.clear()
        memory.parts = None
        memory.owner, memory.doubted = owner, False
        return memory.answer(job)

    async def update_backends(self, spec: LoadBalancerSpec, backends: Sequence[Backend]) -> cloud.LoadBalancer:
        """Write the members of one pool in each call, then the tag. If Octavia needs serial calls, call `ensure`.
        Raises Conflict if the load balancer is in state ERROR or lost its tag."""
        if self._section.provider_requires_serial_api_calls:
            if (await self._owned.find(spec))[0] is None:
                raise NotFound(f"the load balancer of Service {spec.namespace}/{spec.name} is gone")
            return await self.ensure(spec, backends)
        memory, digest = self._remembered(spec), self._members.digest(spec, backends)
        row, owner = memory.row, memory.owner
        if (
            row is None
            or memory.written
            or not load_balancer_owners.is_outdated(load_balancer_owners.own_mark(row, spec.cluster, spec.uid), digest)
        ):
            row, owner = await self._owned.find(spec)
        memory.row = None
        if row is None or row["provisioning_status"] in GOING:
            raise NotFound(f"the load balancer of Service {spec.namespace}/{spec.name} is gone")
        desired, features = await self._desired_and_features(spec, row, nodes_only=True)
        job = Job(spec, desired, backends, features, row, owner)
        if job.status == "ERROR":
            raise Conflict(failed(row))
        if job.status != "ACTIVE":
            raise RetryAfter(f"load balancer {job.id} is {job.status}", self._soon())
        present = job.present
        if present is None:
            raise Conflict(f"load balancer {job.id} no longer has this Service's tag")
        if memory.written or load_balancer_owners.is_outdated(present, digest):
            await self._members.write(job, memory, digest)
            await self._members.admit(job, rules_too=False)
            settings_digest = present.fingerprint.partition("-")[0]
            job = await self._tags.sign(job, Mark.of(spec, f"{settings_digest}-{digest}", present.flags))
            memory.written.clear()
        if not memory.address:
            memory.address, _ = await self._addresses.reach(desired, row, owner)
        memory.owner = owner
        return memory.answer(job)

    async def deviations(self, spec: LoadBalancerSpec, backends: Sequence[Backend]) -> Sequence[str]:
        """Costs one read of the load balancer, two calls for its parts, one for each pool and monitor, one for a
        floating IP, and some for a security group."""
        memory = self._remembered(spec)
        row, owner = await self._owned.find(spec, memory.balancer_id)
        if row is None or row["provisioning_status"] in GOING:
            texts: Sequence[str] = ("it is gone",)
        elif row["provisioning_status"] == "ERROR":
            texts = (failed(row),)
        elif row["provisioning_status"] != "ACTIVE":
            return ()
        else:
            desired, features = await self._desired_and_features(spec, row)
            texts = await self._different(Job(spec, desired, backends, features, row, owner))
        memory.doubted = bool(texts)
        return texts

    async def _different(self, job: Job) -> Sequence[str]:
        """Return how an ACTIVE load balancer differs from its desired state."""
        observed = await self._parts.observe(job.row)
        todo = convergence.todo(job, observed, serial=self._section.provider_requires_serial_api_calls)
        texts = [f"{step.repairs} in state ERROR" if step.repairs else str(step) for step in todo]
        if job.present is None:
            texts.append("it has no tag of this provider yet")
        elif job.present.fingerprint != self.fingerprint(job.spec, job.backends):
            texts.append("its tag is not the one that was written")
        floats = job.owner and job.present is not None and "f" in job.present.flags
        if floats and await self._floating.on(str(job.row["vip_port_id"])) is None:
            texts.append("its floating IP is gone")
        return [*texts, *await self._members.group_deviations(job)]

    async def delete(self, spec: LoadBalancerSpec) -> None:
        annotations, memory = Annotations(spec.annotations), self._remembered(spec)
        rows = await self._balancers.look()
        row, owner = await self._owned.choose_to_delete(rows, spec)
        mark = load_balancer_owners.own_mark(row, spec.cluster, spec.uid) if row is not None else None
        keeps_address = spec.keep is Kept.ADDRESS or annotations.get("keep-floatingip", False)
        memory.keep = memory.keep or keeps_address or (mark is not None and "k" in mark.flags)
        if row is None:
            await self._owned.check_no_other(rows, spec)
            await self._gone(spec, memory)
            raise NotFound(f"Service {spec.namespace}/{spec.name} has no load balancer in the cloud")
        if row["provisioning_status"] not in DELETABLE:
            raise RetryAfter(f"load balancer {row['id']} is {row['provisioning_status']}", self._soon())
        try:
            stays = owner and (spec.keep is Kept.LOAD_BALANCER or (mark is not None and "l" in mark.flags))
            tag = load_balancer_owners.kept_tag(spec, mark) if stays else ""
            going = await self._removal.give_up(spec, row["id"], owner=owner, keep=memory.keep, kept_tag=tag)
        except NotFound:
            going = True  # the next read shows what is left of it
        if not going:
            await self._gone(spec, memory)
            return
        raise RetryAfter(f"load balancer {row['id']} is being deleted", self._soon())

    async def _gone(self, spec: LoadBalancerSpec, memory: Memory) -> None:
        """Clean up after the Service has lost its load balancer."""
        if not memory.keep:
            await self._floating.delete_left(spec.uid)
        await self._groups.delete(spec)
        self._memory.forget((spec.cluster, spec.uid))
        self._desired.forget(spec)

    # --- finding ------------------------------------------------------------------------------------------------

    def _remembered(self, spec: LoadBalancerSpec) -> Memory:
        return self._memory.obtain((spec.cluster, spec.uid), Memory)

    def _soon(self) -> float:
        """Return the seconds until the next multiple of SOON that is at least half of SOON away.

        All Services that wait for Octavia are retried at the same moments, so that they share a listing.
        """
        now = self._clock()
        return math.ceil(now / SOON + 0.5) * SOON - now

    async def _desired_and_features(
        self, spec: LoadBalancerSpec, row: Row | None, *, nodes_only: bool = False
    ) -> tuple[DesiredLoadBalancer, Features]:
        """Return the desired state, and what Octavia supports.

        An existing load balancer keeps its provider, whatever cloud.conf says. Raises Invalid, NotImplementedByCloud.
        """
        if self._version is None:
            version = await self._api.version(LOAD_BALANCER)
            if version < OLDEST:
                raise NotImplementedByCloud(
                    f"Octavia's API version {version[0]}.{version[1]} is too old: load balancers are identified by "
                    f"tags, which need version {OLDEST[0]}.{OLDEST[1]}"
                )
            self._version = version
        made_by, second = str((row or {}).get("provider") or ""), rules.second_family(row) if row else ""
        desired = self._desired.of(spec, made_by, second, nodes_only=nodes_only)
        return desired, Features.of(self._version, desired.runs_on)
