# SPDX-License-Identifier: Apache-2.0
"""Network Load Balancers: found by name, compared with the desired state, and written part by part.

The fingerprint is written last, so that the load balancer is compared again after an interrupted write. The last write
is remembered, so after a change of Nodes only targets are compared.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ccm import cloud
from ccm.cloud import (
    Backend,
    Conflict,
    Ingress,
    Invalid,
    KeptLoadBalancer,
    LoadBalancerSpec,
    NotFound,
    RetryAfter,
)
from ccm.cloud.toolkit import kept_load_balancers

from ...api import Api, pairs
from ...instance_rules import Row
from ...instances import Ec2Instances
from ...settings_sections import NETWORK
from ..shared import target_rules as targets
from ..shared import target_warnings
from ..shared.base import TypeLoadBalancers, fingerprint_of, unchangeable
from ..shared.deletions import Deletion
from ..shared.security_groups import OneListing
from ..shared.subnets import VpcSubnets
from . import load_balancer_owners as owners
from . import load_balancer_rules as rules
from . import load_balancer_steps, node_group_rules
from .load_balancer_rules import DesiredState
from .load_balancer_steps import Present, Step
from .node_groups import NodeGroups
from .own_balancers import OwnBalancers
from .reads import NO_BALANCER, NO_GROUP, BalancerReads
from .target_groups import TargetGroups
from .targets import TargetWrites, warnings

#: How long to wait before a load balancer that failed is replaced, in seconds.
SOON = 2.0
#: Prefix of the names of target groups.
GROUPS = "k8s-"


@dataclass(frozen=True)
class Known:
    """What is remembered about a load balancer. `groups`: ARN of a target group -> its port. `opened`: the sets of
    security groups of Nodes for which rules were checked. `targets`: the targets of all groups after the last write,
    None if they are not known, as after a failure; Services with the same targets share one tuple."""

    arn: str
    dns: str
    ready: bool
    fingerprint: str
    groups: Mapping[str, int]
    opened: frozenset[frozenset[str]] = frozenset()
    targets: tuple[str, ...] | None = None


class NetworkLoadBalancers(TypeLoadBalancers[DesiredState, Known]):
    TITLE = "load balancer"

    def __init__(self, api: Api, instances: Ec2Instances, groups: NodeGroups, subnets: VpcSubnets) -> None:
        self._reads = BalancerReads(api)
        super().__init__(api, self._reads, rules.desired_state)
        self._groups, self._subnets = groups, subnets
        self._targets = TargetWrites(api, instances)
        self._target_groups = TargetGroups(api, self._reads)
        self._own_balancers = OwnBalancers(api, self._reads)

    async def list(self, cluster: str) -> Sequence[cloud.LoadBalancer]:
        balancers = []
        for row, tags, mark in await self._own_balancers.of_cluster(cluster):
            keep, protected = kept_load_balancers.keep_of(mark.flags), owners.is_protected(tags)
            answer = _answer(mark.uid, row, mark.fingerprint)
            balancers.append(dataclasses.replace(answer, keep=keep, protected=protected))
        return balancers

    async def kept(self, cluster: str) -> Sequence[KeptLoadBalancer]:
        return [
            KeptLoadBalancer(str(row["LoadBalancerName"]), namespace, str(row["DNSName"]))
            for row, tags in await self._own_balancers.all()
            if (namespace := owners.kept_for(tags, cluster))
        ]

    async def exists(self, spec: LoadBalancerSpec) -> bool:
        return await self._own_balancers.find(spec) is not None

    def drains(self, spec: LoadBalancerSpec) -> bool:
        """Return True, because a deregistered target keeps its connections, by default for 300 s."""
        return True

    async def get(self, spec: LoadBalancerSpec) -> cloud.LoadBalancer:
        row = await self._own_balancers.find(spec)
        known = self._known.get((spec.cluster, spec.uid))
        if row is None:
            self._known.pop((spec.cluster, spec.uid), None)
            self._desired(spec)  # raises Invalid with the reason, for `ccm plan`
            raise self._absent(spec)
        if known is None or known.arn != row["LoadBalancerArn"]:
            fingerprint = (await self._own_tags(row, spec)).get(owners.FINGERPRINT, "")
        else:
            fingerprint = known.fingerprint
            self._known[spec.cluster, spec.uid] = dataclasses.replace(known, ready=_is_ready(row))
        if _state(row) == "failed":
            raise Conflict(f"load balancer {row['LoadBalancerName']} failed in the cloud: {_reason(row)}")
        return _answer(spec.uid, row, fingerprint)

    async def ensure(self, spec: LoadBalancerSpec, backends: Sequence[Backend]) -> cloud.LoadBalancer:
        desired = self._desired(spec)
        fingerprint = fingerprint_of(desired, backends)
        self._known.pop((spec.cluster, spec.uid), None)
        row = await self._own_balancers.find(spec)
        if spec.take_back and (row is None or row["LoadBalancerName"] == spec.take_back):
            row = await self._own_balancers.take_back(spec)
        if row is None:
            row = await self._create(spec, desired)
            desired, no_ipv6 = await self._fitting(row, desired)
            present = Present(row)
        else:
            kept_load_balancers.check_same(spec, str(row["LoadBalancerName"]))
            desired, no_ipv6 = await self._fitting(row, desired)
            tags = await self._own_tags(row, spec, writes=True)
            if _state(row) == "failed":
                await self._delete_balancer(row)
                raise RetryAfter(f"load balancer {desired.name} had failed and was deleted; a new one is next", SOON)
            if row.get("Type") != "network":
                raise Conflict(f"load balancer {desired.name} is of type {row.get('Type')}: delete it")
            present = await self._reads.present(row, desired, tags, spec.uid)
        marks = owners.mark_tags(spec, dual_stack=desired.dual_stack)
        ids = targets.ids(desired, backends)
        groups, stopped = await self._do(
            load_balancer_steps.steps(present, desired, ids, {**desired.tags, **marks}), present, spec
        )
        used = {groups[listener.group] for listener in desired.listeners}
        await self._target_groups.delete_left(spec, used)
        opened = await self._open(spec, row, desired, ids)
        if present.tags and owners.mark_of(present.tags) is None:  # taken over: its parts get the mark, too
            for arn in sorted(used):  # AWS tags one resource in a call
                await self._elb("add_tags", ResourceArns=[arn], Tags=pairs(marks))
        marks = owners.mark_tags(spec, fingerprint, dual_stack=desired.dual_stack)
        await self._tag(row, {**desired.tags, **marks}, present.tags)
        ports = {groups[listener.group]: listener.node_port for listener in desired.listeners}
        self._known[spec.cluster, spec.uid] = Known(
            str(row["LoadBalancerArn"]),
            str(row["DNSName"]),
            _is_ready(row),
            fingerprint,
            ports,
            opened,
            targets.without(ids, stopped),
        )
        kept = (*unchangeable(row, desired), *await self._only_for_new(row, desired, spec))
        sentences = (*desired.warnings, *no_ipv6, *kept, *warnings(stopped), *target_warnings.of(desired, backends))
        return _answer(spec.uid, row, fingerprint, sentences)

    async def update_backends(self, spec: LoadBalancerSpec, backends: Sequence[Backend]) -> cloud.LoadBalancer:
        desired = self._desired(spec, nodes_only=True)
        known, row = self._known.get((spec.cluster, spec.uid)), None
        if known is None:
            row = await self._named(spec)
            known = await self._learn(spec, row)
        desired = dataclasses.replace(desired, name=owners.name_of(known.arn))
        ids = targets.ids(desired, backends)
        self._known[spec.cluster, spec.uid] = dataclasses.replace(known, targets=None)
        stopped: frozenset[str] = frozenset()
        try:
            for arn, port in known.groups.items():
                if known.targets is None:
                    there, servers = await self._reads.targets(arn), ids
                else:  # compare with the last write: cheaper than reading thousands of targets
                    gone, servers = targets.changed(known.targets, ids, backends)
                    there = frozenset((each, port) for each in gone)
                for step in load_balancer_steps.target_steps(arn, port, there, servers):
                    stopped |= await self._targets.do(step, arn)
            memberships = await self._groups.memberships(ids) if self._groups.is_on else frozenset()
            opened = known.opened
            if not memberships <= opened:
                opened = await self._open(spec, row or await self._named(spec), desired, ids)
            fingerprint = f"{owners.settings_of(known.fingerprint)}-{targets.digest_of(desired, backends)}"
            await self._elb(
                "add_tags",
                ResourceArns=[known.arn],
                Tags=pairs({owners.FINGERPRINT: fingerprint}),
            )
        except NotFound:
            self._known.pop((spec.cluster, spec.uid), None)
            raise
        self._known[spec.cluster, spec.uid] = Known(
            known.arn, known.dns, known.ready, fingerprint, known.groups, opened, targets.without(ids, stopped)
        )
        texts = (*warnings(stopped), *target_warnings.of(desired, backends))
        ingress = (Ingress(hostname=known.dns),)
        return cloud.LoadBalancer(spec.uid, desired.name, ingress, fingerprint, known.ready, texts)

    async def deviations(self, spec: LoadBalancerSpec, backends: Sequence[Backend]) -> Sequence[str]:
        desired = self._desired(spec)
        row = await self._named(spec)
        tags = await self._own_tags(row, spec)
        if not _is_ready(row):
            return ()
        desired, _ = await self._fitting(row, desired)
        ids = targets.ids(desired, backends)
        present = await self._reads.present(row, desired, tags, spec.uid)
        changes = [
            step.what
            for step in load_balancer_steps.steps(present, desired, ids, {})
            if step.operation != "register_targets" or await self._targets.can(step)
        ]
        cidrs = await self._cidrs(row, desired)
        for change in await self._groups.changes(desired.name, self._cluster(spec), ids, desired, cidrs):
            changes.append(
                f"security group {change.group}: {len(change.add)} rules are missing, {len(change.remove)} superfluous"
            )
        return [f"load balancer {desired.name}: {what}" for what in changes]

    async def delete(self, spec: LoadBalancerSpec, deletion: Deletion, listing: OneListing) -> None:
        """Delete the load balancer, its target groups (also those that failed writes left), and its rules in security
        groups. A load balancer that is to be kept and has not failed stays without these parts. Its tags are written
        last."""
        known = self._known.pop((spec.cluster, spec.uid), None)
        self._target_groups.forget(spec)  # the listing below contains these target groups
        arn, own_tags = ("", {}) if NETWORK in deletion.deleted else await self._own(spec, known)
        name = owners.name_of(arn) if arn else self._own_balancers.name(spec)
        stays = bool(arn) and kept_load_balancers.is_to_be_kept(spec, owners.flags_of(own_tags))
        if stays and (row := await self._reads.named(name)) is not None:
            stays = _state(row) != "failed"
        every = [each for each in await self._reads.all_groups() if str(each["TargetGroupName"]).startswith(GROUPS)]
        groups = [str(each["TargetGroupArn"]) for each in every if arn and arn in (each.get("LoadBalancerArns") or ())]
        # A group may name a load balancer that was deleted just now.
        loose = [
            str(each["TargetGroupArn"])
            for each in every
            if str(each["TargetGroupArn"]) not in groups
            and all(f"/{name}/" in one for one in each.get("LoadBalancerArns") or ())
        ]
        for group, tags in (await self._reads.tags(loose)).items():
            mark = owners.mark_of(tags)
            if mark is not None and mark.is_of(spec.cluster, spec.uid):
                groups.append(group)
        if stays:
            listeners = await self._reads.listeners(arn)
            for step in load_balancer_steps.to_leave(arn, listeners, own_tags):
                await self._elb(step.operation, **step.arguments)
        elif arn:
            with contextlib.suppress(NotFound):
                await self._delete_unprotected(arn)
        for group in groups:
            with contextlib.suppress(NotFound):  # the listing may still show a group that is gone
                await self._elb("delete_target_group", TargetGroupArn=group)
        if arn and not stays:  # last: after a failure above, the next attempt must look for the load balancer again
            deletion.deleted.add(NETWORK)
        had_rules = await self._groups.close(name, listing.read)
        if stays:
            await self._elb("add_tags", ResourceArns=[arn], Tags=pairs(owners.kept_tags(own_tags, spec)))
            deletion.deleted.add(NETWORK)
        self._own_balancers.forget(spec)
        if not arn and not groups and not had_rules:
            raise self._absent(spec)

    # Calls

    async def _named(self, spec: LoadBalancerSpec) -> Row:
        row = await self._own_balancers.find(spec)
        if row is None:
            raise self._absent(spec)
        return row

    async def _fitting(self, row: Row, desired: DesiredState) -> tuple[DesiredState, tuple[str, ...]]:
        """Return the desired state adapted to its load balancer: with the load balancer's name, and without IPv6 if the
        load balancer has none yet and one of its subnets has no IPv6 range. Also return the warning about such
        subnets."""
        desired, subnets = dataclasses.replace(desired, name=str(row["LoadBalancerName"])), []
        if desired.dual_stack and row.get("IpAddressType") != "dualstack":
            own = [str(each["SubnetId"]) for each in row.get("AvailabilityZones") or ()]
            subnets = rules.without_ipv6(own, await self._subnets.rows())
        return dataclasses.replace(desired, dual_stack=desired.dual_stack and not subnets), rules.no_ipv6_in(subnets)

    async def _create(self, spec: LoadBalancerSpec, desired: DesiredState) -> Row:
        subnets = await self._subnets.chosen(desired.subnets, self._cluster(spec), internal=desired.internal)
        dual_stack = desired.dual_stack and not rules.without_ipv6(subnets, await self._subnets.rows())
        for what, entries in (("eip-allocations", desired.allocations), ("private-ipv4-addresses", desired.addresses)):
            if entries and len(entries) != len(subnets):
                raise Invalid(
                    f"annotation ...{what}: it has {len(entries)} entries, and there are {len(subnets)} subnets"
                )
        mappings: list[dict[str, str]] = [{"SubnetId": subnet} for subnet in subnets]
        for mapping, allocation in zip(mappings, desired.allocations, strict=False):
            mapping["AllocationId"] = allocation
        for mapping, address in zip(mappings, desired.addresses, strict=False):
            mapping["PrivateIPv4Address"] = address
        more = {"Scheme": "internal"} if desired.internal else {}
        more |= {"IpAddressType": "dualstack"} if dual_stack else {}
        self._own_balancers.forget(spec)
        marks = owners.mark_tags(spec, dual_stack=dual_stack)
        answer = await self._elb(
            "create_load_balancer",
            Name=desired.name,
            Type="network",
            SubnetMappings=mappings,
            Tags=pairs({**desired.tags, **marks}),
            **more,
        )
        return dict(answer["LoadBalancers"][0])

    async def _do(
        self, steps: Sequence[Step], present: Present, spec: LoadBalancerSpec
    ) -> tuple[dict[str, str], frozenset[str]]:
        """Do all steps except the deletion of target groups, which `TargetGroups` does. Return the target groups, name
        -> ARN, and the instances that cannot be targets because they do not run."""
        groups = {name: str(row["TargetGroupArn"]) for name, row in present.groups.items()}
        stopped: frozenset[str] = frozenset()
        left = {groups[step.group] for step in steps if step.operation == "delete_target_group"}
        self._target_groups.leave(spec, left)
        for step in steps:
            arguments = dict(step.arguments)
            if step.operation == "delete_target_group":
                continue
            if step.operation == "create_target_group":
                groups[arguments["Name"]] = await self._target_groups.create(arguments, spec, present.balancer)
                continue
            if step.operation in load_balancer_steps.TARGETS:
                stopped |= await self._targets.do(step, groups[step.group])
                continue
            if step.in_action:
                arguments["DefaultActions"] = [{"Type": "forward", "TargetGroupArn": groups[step.group]}]
            elif step.group:
                arguments["TargetGroupArn"] = groups[step.group]
            await self._elb(step.operation, **arguments)
        return groups, stopped

    async def _open(
        self, spec: LoadBalancerSpec, row: Row, desired: DesiredState, ids: Sequence[str]
    ) -> frozenset[frozenset[str]]:
        """Let the traffic reach the targets. Return their sets of security groups, or an empty set if changes are
        disabled."""
        if not self._groups.is_on:
            return frozenset()
        cidrs = await self._cidrs(row, desired)
        await self._groups.change(desired.name, self._cluster(spec), ids, desired, cidrs)
        return await self._groups.memberships(ids)

    async def _only_for_new(self, row: Row, desired: DesiredState, spec: LoadBalancerSpec) -> tuple[str, ...]:
        """Return the warning about annotations that count only for a new load balancer and differ from the existing
        one; () if all agree."""
        subnets: Sequence[str] = desired.subnets
        if subnets:
            with contextlib.suppress(Invalid):  # then the annotation's texts are compared
                subnets = await self._subnets.chosen(subnets, self._cluster(spec), internal=desired.internal)
        return rules.kept(row, desired, subnets)

    async def _cidrs(self, row: Row, desired: DesiredState) -> Sequence[str]:
        """Return the CIDRs of the load balancer's subnets; () if no rule needs them."""
        if not self._groups.is_on or node_group_rules.is_covered(desired):
            return ()
        own = {str(zone["SubnetId"]) for zone in row.get("AvailabilityZones") or ()}
        return [str(each["CidrBlock"]) for each in await self._subnets.rows() if each["SubnetId"] in own]

    async def _tag(self, row: Row, desired: Mapping[str, str], there: Mapping[str, str]) -> None:
        if changed := owners.outdated(there, desired):
            tags = pairs(changed)
            await self._elb("add_tags", ResourceArns=[row["LoadBalancerArn"]], Tags=tags)

    async def _learn(self, spec: LoadBalancerSpec, row: Row) -> Known:
        tags = await self._own_tags(row, spec)
        groups = await self._reads.groups_of(str(row["LoadBalancerArn"]))
        return Known(
            str(row["LoadBalancerArn"]),
            str(row["DNSName"]),
            _is_ready(row),
            tags.get(owners.FINGERPRINT, ""),
            {str(group["TargetGroupArn"]): int(group["Port"]) for group in groups},
        )

    async def _delete_unprotected(self, arn: str) -> None:
        """Delete a load balancer, even if it is protected because its Service asked for that. Raises Conflict if a
        person protected it."""
        try:
            await self._elb("delete_load_balancer", LoadBalancerArn=arn)
        except Conflict:
            if not owners.is_protected((await self._reads.tags([arn])).get(arn, {})):
                raise
            off = pairs({rules.PROTECTION: "false"})
            await self._elb("modify_load_balancer_attributes", LoadBalancerArn=arn, Attributes=off)
            await self._elb("delete_load_balancer", LoadBalancerArn=arn)

    async def _delete_balancer(self, row: Row) -> None:
        groups = await self._reads.groups_of(str(row["LoadBalancerArn"]))
        await self._delete_unprotected(str(row["LoadBalancerArn"]))
        for group in groups:
            await self._elb("delete_target_group", TargetGroupArn=group["TargetGroupArn"])

    async def _own_tags(self, row: Row, spec: LoadBalancerSpec, *, writes: bool = False) -> Mapping[str, str]:
        """Return the load balancer's tags. Raises NotFound if it is gone, and Conflict if it belongs to somebody else.
        If it is kept for a namespace: Conflict with `writes`, because its name is taken, otherwise NotFound."""
        arn = str(row["LoadBalancerArn"])
        tags = (await self._reads.tags([arn])).get(arn)
        if tags is None or (not writes and tags.get(owners.KEPT_FOR)):
            raise self._absent(spec)
        owners.check(tags, spec, self._cluster(spec))
        return tags

    async def _own(self, spec: LoadBalancerSpec, known: Known | None) -> tuple[str, Mapping[str, str]]:
        """Return ARN and tags of the Service's load balancer, ("", {}) if there is none. Raises NotFound if somebody
        else's load balancer has the name. If the remembered ARN still has the Service's tags, nothing else is read."""
        if known is not None and (tags := await self._tags_if_own(known.arn, spec)) is not None:
            return known.arn, tags
        row = await self._own_balancers.find(spec)
        if row is None:
            return "", {}
        if (tags := await self._tags_if_own(arn := str(row["LoadBalancerArn"]), spec)) is None:
            raise self._absent(spec)
        return arn, tags

    async def _tags_if_own(self, arn: str, spec: LoadBalancerSpec) -> Mapping[str, str] | None:
        tags = (await self._reads.tags([arn])).get(arn)
        return tags if tags is not None and owners.is_own(tags, spec, self._cluster(spec)) else None

    async def _elb(self, operation: str, **arguments: Any) -> Mapping[str, Any]:
        missing = () if operation.startswith("create") else (*NO_BALANCER, *NO_GROUP, "ListenerNotFound")
        return await self._api.elb(operation, missing=missing, **arguments)


def _state(row: Row) -> str:
    return str((row.get("State") or {}).get("Code") or "")


def _is_ready(row: Row) -> bool:
    return _state(row) != "provisioning"


def _reason(row: Row) -> str:
    return str((row.get("State") or {}).get("Reason") or "AWS gives no reason")


def _answer(uid: str, row: Row, fingerprint: str, warnings: tuple[str, ...] = ()) -> cloud.LoadBalancer:
    ingress = (Ingress(hostname=str(row["DNSName"])),)
    return cloud.LoadBalancer(uid, str(row["LoadBalancerName"]), ingress, fingerprint, _is_ready(row), warnings)
