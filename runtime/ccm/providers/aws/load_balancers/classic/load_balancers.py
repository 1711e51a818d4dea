# SPDX-License-Identifier: Apache-2.0
"""Classic Load Balancers: found by name, compared with the desired state, and written part by part.

The fingerprint is written last, so that the load balancer is compared again after an interrupted write. The last write
is remembered, so after a change of Nodes only instances are compared.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ccm import cloud
from ccm.cloud import Backend, Conflict, Ingress, LoadBalancerSpec, NotFound

from ...api import Api, pairs
from ...errors import UnfitInstance
from ...instance_rules import Row
from ...settings_sections import CLASSIC
from ..network import load_balancer_owners as owners
from ..network.node_groups import NodeGroups
from ..network.reads import NO_BALANCER
from ..shared import target_rules as targets
from ..shared import target_warnings
from ..shared.base import TypeLoadBalancers, fingerprint_of, unchangeable
from ..shared.deletions import Deletion
from ..shared.security_groups import OneListing
from ..shared.subnets import VpcSubnets
from . import group_rules, load_balancer_steps
from . import load_balancer_rules as rules
from .groups import ClassicGroups
from .load_balancer_rules import DesiredState
from .load_balancer_steps import Place, Present
from .reads import ClassicReads

#: The tag that records from which security group the traffic comes. A load balancer that always used its own group does
#: not have the tag.
LEAD = f"{owners.PREFIX}group"


@dataclass(frozen=True)
class Known:
    """What is remembered about a load balancer. `opened`: the sets of security groups of Nodes for which rules were
    checked. `targets`: the targets of the last write, None if they are not known, as after a failure; Services with the
    same targets share one tuple."""

    dns: str
    fingerprint: str
    opened: frozenset[frozenset[str]] = frozenset()
    targets: tuple[str, ...] | None = None


class ClassicLoadBalancers(TypeLoadBalancers[DesiredState, Known]):
    TITLE = "Classic Load Balancer"

    def __init__(self, api: Api, groups: ClassicGroups, nodes: NodeGroups, subnets: VpcSubnets) -> None:
        self._reads = ClassicReads(api)
        super().__init__(api, self._reads, rules.desired_state)
        self._groups, self._nodes, self._subnets = groups, nodes, subnets
        #: Held while rules in the Nodes' groups change for a security group that several load balancers may share.
        self._borrowing = asyncio.Lock()

    async def list(self, cluster: str) -> Sequence[cloud.LoadBalancer]:
        every = {str(row["LoadBalancerName"]): row for row in await self._reads.all()}
        rows = {name: row for name, row in every.items() if owners.NAME.fullmatch(name)}
        answers = []
        for name, tags in (await self._reads.tags(list(rows))).items():
            mark = owners.mark_of(tags)
            if mark is not None and mark.is_of(cluster, mark.uid):
                answer = _answer(mark.uid, name, str(rows[name]["DNSName"]), mark.fingerprint)
                answers.append(dataclasses.replace(answer, protected=owners.is_protected(tags)))
        return answers

    def drains(self, spec: LoadBalancerSpec) -> bool:
        """Return whether the Service asks for connection draining. Without it, deregistering an instance ends its
        connections."""
        return bool(self._desired(spec, nodes_only=True).attributes["ConnectionDraining"]["Enabled"])

    async def get(self, spec: LoadBalancerSpec) -> cloud.LoadBalancer:
        row = await self._reads.named(spec.default_name)
        if row is None:
            self._known.pop((spec.cluster, spec.uid), None)
            self._desired(spec)  # raises Invalid with the reason, for `ccm plan`
            raise self._absent(spec)
        known = self._known.get((spec.cluster, spec.uid))
        tags = await self._own_tags(spec) if known is None else {owners.FINGERPRINT: known.fingerprint}
        return _answer(spec.uid, spec.default_name, str(row["DNSName"]), tags.get(owners.FINGERPRINT, ""))

    async def ensure(self, spec: LoadBalancerSpec, backends: Sequence[Backend]) -> cloud.LoadBalancer:
        desired, cluster = self._desired(spec), self._cluster(spec)
        self._known.pop((spec.cluster, spec.uid), None)
        row = await self._reads.named(desired.name)
        tags = await self._own_tags(spec) if row is not None else {}
        subnets, zones, groups = await self._surroundings(desired, cluster)
        place = Place(subnets, await self._groups.prepared(groups, spec, desired, cluster), zones)
        marks = {**desired.tags, **owners.mark_tags(spec)}
        if desired.groups or LEAD in tags:
            marks[LEAD] = place.groups[0]
        if row is None:
            answer = await self._classic(
                "create_load_balancer", **load_balancer_steps.creation(desired, place), Tags=pairs(marks)
            )
            present = Present(load_balancer_steps.created(desired, place, str(answer["DNSName"])), {}, marks)
        else:
            present = Present(row, await self._reads.attributes(desired.name), tags)
        ids = targets.ids(desired, backends)
        opened = await self._open(spec, desired, place.groups[0], ids, groups)
        for step in load_balancer_steps.steps(present, desired, place, ids):
            await self._classic(step.operation, LoadBalancerName=desired.name, **step.arguments)
        await self._leave(spec, desired, present, place, groups)
        fingerprint = fingerprint_of(desired, backends)
        marks = {**marks, **owners.mark_tags(spec, fingerprint)}
        if changed := owners.outdated(present.tags, marks):
            await self._classic("add_tags", LoadBalancerNames=[desired.name], Tags=pairs(changed))
        dns = str(present.balancer["DNSName"])
        self._known[spec.cluster, spec.uid] = Known(dns, fingerprint, opened, ids)
        texts = (*desired.warnings, *unchangeable(present.balancer, desired), *target_warnings.of(desired, backends))
        return _answer(spec.uid, desired.name, dns, fingerprint, texts)

    async def update_backends(self, spec: LoadBalancerSpec, backends: Sequence[Backend]) -> cloud.LoadBalancer:
        desired, row, tags = self._desired(spec, nodes_only=True), None, None
        known = self._known.get((spec.cluster, spec.uid))
        if known is None:
            row = await self._named(spec)
            tags = await self._own_tags(spec)
            known = Known(str(row["DNSName"]), tags.get(owners.FINGERPRINT, ""))
        ids = targets.ids(desired, backends)
        self._known[spec.cluster, spec.uid] = dataclasses.replace(known, targets=None)
        try:
            if known.targets is None:
                row = row or await self._named(spec)
                there, instances = load_balancer_steps.registered(row), ids
            else:  # compare with the last write: cheaper than reading thousands of targets
                gone, instances = targets.changed(known.targets, ids, backends)
                there = frozenset(gone)
            opened = known.opened
            if self._nodes.is_on and not await self._nodes.memberships(ids) <= opened:
                row = row or await self._named(spec)
                tags = tags if tags is not None else await self._own_tags(spec)
                groups = await self._groups.all()
                opened = await self._open(spec, desired, self._lead(spec, row, tags, groups), ids, groups)
            try:
                await self._register(desired.name, there, instances)
            except UnfitInstance:  # AWS removes a terminated instance by itself
                if known.targets is None:
                    raise
                await self._register(desired.name, load_balancer_steps.registered(await self._named(spec)), ids)
            fingerprint = f"{owners.settings_of(known.fingerprint)}-{targets.digest_of(desired, backends)}"
            await self._classic(
                "add_tags", LoadBalancerNames=[desired.name], Tags=pairs({owners.FINGERPRINT: fingerprint})
            )
        except NotFound:
            self._known.pop((spec.cluster, spec.uid), None)
            raise
        self._known[spec.cluster, spec.uid] = Known(known.dns, fingerprint, opened, ids)
        return _answer(spec.uid, desired.name, known.dns, fingerprint, target_warnings.of(desired, backends))

    async def _register(self, name: str, there: frozenset[str], instances: Sequence[str]) -> None:
        for step in load_balancer_steps.target_steps(there, instances):
            await self._classic(step.operation, LoadBalancerName=name, **step.arguments)

    async def deviations(self, spec: LoadBalancerSpec, backends: Sequence[Backend]) -> Sequence[str]:
        desired, cluster = self._desired(spec), self._cluster(spec)
        row = await self._named(spec)
        tags = await self._own_tags(spec)
        ids = targets.ids(desired, backends)
        subnets, zones, groups = await self._surroundings(desired, cluster)
        group_rules.check_asked(groups, (*desired.groups, *desired.extra))
        own = None if desired.groups else group_rules.own_group(groups, desired.own_group, cluster)
        lead = desired.groups[0] if desired.groups else str(own["GroupId"]) if own is not None else "none"
        group_ids = tuple(dict.fromkeys((*(desired.groups or (lead,)), *desired.extra)))
        present = Present(row, await self._reads.attributes(desired.name), tags)
        place = Place(subnets, group_ids, zones)
        differences = [step.what for step in load_balancer_steps.steps(present, desired, place, ids)]
        changes = [group_rules.own_change(own, desired)] if own is not None else []
        for change in (*changes, *await self._groups.node_changes(groups, lead, ids, cluster)):
            if change.add or change.remove:
                missing, superfluous = len(change.add), len(change.remove)
                differences.append(
                    f"security group {change.group}: {missing} rules are missing, {superfluous} superfluous"
                )
        return [f"load balancer {desired.name}: {what}" for what in differences]

    async def delete(self, spec: LoadBalancerSpec, deletion: Deletion, listing: OneListing) -> None:
        """Delete the load balancer, its own security group, and its rules in the groups of Nodes. A failed write may
        have left only the load balancer, or only its group. Raises NotFound if neither exists, or the load balancer is
        not the Service's, and Conflict if the Service asks to keep it."""
        self._known.pop((spec.cluster, spec.uid), None)
        cluster, name = self._cluster(spec), spec.default_name
        row = None if CLASSIC in deletion.deleted else await self._reads.named(name)
        tags: Mapping[str, str] = {}
        if row is not None:
            tags = (await self._reads.tags([name])).get(name, {})
            if not owners.is_own(tags, spec, cluster):
                raise self._absent(spec)
            if spec.keep is not None:
                raise Conflict(rules.NOT_KEPT)
        groups = await listing.get()
        own = _own_if_any(groups, name, cluster)
        if row is not None:
            lead = self._lead(spec, row, tags, groups)
            if lead and (own is None or lead != own["GroupId"]):
                await self._close(spec, lead)
            with contextlib.suppress(NotFound):
                await self._classic("delete_load_balancer", LoadBalancerName=name)
            deletion.deleted.add(CLASSIC)
        if own is not None:
            await self._groups.remove(groups, own)
        if row is None and own is None:
            raise self._absent(spec)

    # Calls

    async def _open(
        self, spec: LoadBalancerSpec, desired: DesiredState, lead: str, ids: Sequence[str], groups: Sequence[Row]
    ) -> frozenset[frozenset[str]]:
        """Let the traffic reach the targets. Return the sets of security groups that the targets have; an empty set if
        cloud.conf disables changes of these groups."""
        if not self._nodes.is_on:
            return frozenset()
        if desired.groups:
            async with self._borrowing:
                await self._groups.open(await self._groups.all(), lead, ids, self._cluster(spec))
        else:
            await self._groups.open(groups, lead, ids, self._cluster(spec))
        return await self._nodes.memberships(ids)

    async def _close(self, spec: LoadBalancerSpec, lead: str) -> None:
        """Remove the rules by which Nodes admit traffic from a security group that the Service does not own, unless
        another load balancer uses that group."""
        async with self._borrowing:
            others = [
                row
                for row in await self._reads.all()
                if lead in (row.get("SecurityGroups") or ()) and row["LoadBalancerName"] != spec.default_name
            ]
            if not others:
                await self._groups.close(await self._groups.all(), lead, self._cluster(spec))

    async def _leave(
        self, spec: LoadBalancerSpec, desired: DesiredState, present: Present, place: Place, groups: Sequence[Row]
    ) -> None:
        """Clean up after security groups that the load balancer had before: delete its own group, or remove the Nodes'
        rules for a group that it does not own."""
        own = _own_if_any(groups, desired.name, self._cluster(spec))
        lead = self._lead(spec, present.balancer, present.tags, groups)
        if lead and lead not in place.groups and (own is None or lead != own["GroupId"]):
            await self._close(spec, lead)
        if own is not None and desired.groups and own["GroupId"] not in place.groups:
            await self._groups.remove(groups, own)

    async def _own_tags(self, spec: LoadBalancerSpec) -> Mapping[str, str]:
        """Return the load balancer's tags. Raises Conflict if it belongs to somebody else, NotFound if it is gone."""
        tags = (await self._reads.tags([spec.default_name])).get(spec.default_name)
        if tags is None:
            raise self._absent(spec)
        owners.check(tags, spec, self._cluster(spec))
        return tags

    async def _surroundings(
        self, desired: DesiredState, cluster: str
    ) -> tuple[Sequence[str], Mapping[str, str], Sequence[Row]]:
        """Return the subnets of the load balancer, the zone of each subnet of the VPC, and the VPC's security
        groups."""
        subnets, rows, groups = await asyncio.gather(
            self._subnets.chosen(desired.subnets, cluster, internal=desired.internal),
            self._subnets.rows(),
            self._groups.all(),
        )
        return subnets, {str(row["SubnetId"]): str(row["AvailabilityZone"]) for row in rows}, groups

    async def _classic(self, operation: str, **arguments: Any) -> Mapping[str, Any]:
        missing = () if operation == "create_load_balancer" else (*NO_BALANCER, "ListenerNotFound")
        return await self._api.classic(operation, missing=missing, **arguments)

    # No I/O

    def _lead(self, spec: LoadBalancerSpec, row: Row, tags: Mapping[str, str], groups: Sequence[Row]) -> str:
        own = _own_if_any(groups, spec.default_name, self._cluster(spec))
        present = [str(each) for each in row.get("SecurityGroups") or ()]
        return group_rules.lead_of(present, tags.get(LEAD, ""), str(own["GroupId"]) if own is not None else "")


def _own_if_any(groups: Sequence[Row], name: str, cluster: str) -> Row | None:
    """Return the load balancer's own group; None if there is none, or if the group of that name is somebody else's."""
    try:
        return group_rules.own_group(groups, f"{rules.OWN_GROUP}{name}", cluster)
    except Conflict:
        return None


def _answer(uid: str, name: str, dns: str, fingerprint: str, warnings: tuple[str, ...] = ()) -> cloud.LoadBalancer:
    return cloud.LoadBalancer(uid, name, (Ingress(hostname=dns),), fingerprint, warnings=warnings)
