# SPDX-License-Identifier: Apache-2.0
"""Decides which rules of the Nodes' security groups belong to a load balancer, and which to add and to remove. Pure.

The description of a rule names its load balancer, as in cloud-provider-aws. Rules of others are never removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ccm.cloud import Invalid
from ccm.cloud.toolkit.service_checks import EVERYONE

from ...api import is_of_cluster, tags_of
from ...instance_rules import Row
from .load_balancer_rules import DesiredState

CLIENT = "kubernetes.io/rule/nlb/client"
HEALTH = "kubernetes.io/rule/nlb/health"
#: The description of the rule that all load balancers share: ICMP messages about a smaller MTU.
MTU = "kubernetes.io/rule/nlb/mtu"


@dataclass(frozen=True)
class Rule:
    """One rule of a security group, for one source. `description` names the load balancer; EC2 ignores it when it
    compares rules."""

    protocol: str
    first: int
    last: int
    cidr: str
    description: str = field(default="", compare=False)


@dataclass(frozen=True)
class Change:
    group: str
    add: tuple[Rule, ...] = ()
    remove: tuple[Rule, ...] = ()


def group_of(instance: Row, groups: Mapping[str, Row], cluster: str) -> str:
    """Return the security group of an instance in which rules are written: its only group with the cluster's tag, else
    its only group; "" without groups. Raises Invalid if several groups qualify."""
    own = [str(each["GroupId"]) for each in instance.get("SecurityGroups") or ()]
    tagged = [each for each in own if each in groups and is_of_cluster(tags_of(groups[each]), cluster)]
    if len(tagged or own) > 1:
        raise Invalid(
            f"instance {instance['InstanceId']} has the security groups {', '.join(sorted(tagged or own))}: exactly "
            f"one of its groups must have the tag of cluster {cluster}"
        )
    return next(iter(tagged or own), "")


def desired_rules(name: str, desired: DesiredState, subnets: Iterable[str]) -> list[Rule]:
    """Return the rules that each security group of Nodes needs. `subnets`: CIDRs from which targets are checked."""
    rules = [Rule(desired.client_protocol, port, port, cidr, f"{CLIENT}={name}")
             for port in sorted(desired.traffic_ports) for cidr in desired.clients]  # fmt: skip
    if not is_covered(desired):
        rules += [Rule("tcp", port, port, cidr, f"{HEALTH}={name}")
                  for port in sorted(desired.check_ports) for cidr in sorted(subnets)]  # fmt: skip
    return rules


def is_covered(desired: DesiredState) -> bool:
    """Return whether the rule for clients admits the health checks, too."""
    is_open = desired.clients == (EVERYONE,) and desired.client_protocol == "tcp"
    return is_open and desired.check_ports == desired.traffic_ports


def changes(name: str, groups: Sequence[Row], opened: Iterable[str], desired: Sequence[Rule]) -> list[Change]:
    """Return the changes after which the groups `opened`, and no others, have the rules of load balancer `name`."""
    rule_changes, opened = [], set(opened)
    for group in groups:
        id = str(group["GroupId"])
        present = rules_of(group)
        expected = list(desired) if id in opened else []
        mine = [each for each in present if each.description in (f"{CLIENT}={name}", f"{HEALTH}={name}")]
        add = [each for each in dict.fromkeys(expected) if each not in present]
        remove = [each for each in mine if each not in expected]
        kept = [each for each in present if each not in remove] + add
        if add or remove:
            mtu = {Rule("icmp", 3, 4, each.cidr, MTU): None for each in kept if each.description.startswith(CLIENT)}
            add += [each for each in mtu if each not in kept]
            remove += [each for each in present if each.description == MTU and each not in mtu]
            rule_changes.append(Change(id, tuple(add), tuple(remove)))
    return rule_changes


def rules_of(group: Row) -> list[Rule]:
    """Return the group's rules for IPv4 ranges; load balancers have no rules of another kind."""
    return [
        Rule(str(permission["IpProtocol"]), int(permission["FromPort"]), int(permission["ToPort"]),
             str(network["CidrIp"]), str(network.get("Description") or ""))
        for permission in group.get("IpPermissions") or ()
        if permission.get("FromPort") is not None
        for network in permission.get("IpRanges") or ()
    ]  # fmt: skip


def permissions(rules: Iterable[Rule]) -> list[dict[str, Any]]:
    """Return the rules in the form of EC2's API, grouped by protocol and ports."""
    by_ports: dict[tuple[str, int, int], list[dict[str, str]]] = {}
    for rule in rules:
        ranges = by_ports.setdefault((rule.protocol, rule.first, rule.last), [])
        ranges.append({"CidrIp": rule.cidr, "Description": rule.description})
    return [
        {"IpProtocol": protocol, "FromPort": first, "ToPort": last, "IpRanges": ranges}
        for (protocol, first, last), ranges in by_ports.items()
    ]
