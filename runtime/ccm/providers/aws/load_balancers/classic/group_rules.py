# SPDX-License-Identifier: Apache-2.0
"""The security groups of Classic Load Balancers: rules of a load balancer's own group, and rules in the groups of Nodes
that admit traffic from a load balancer's group. Pure.

As in cloud-provider-aws, the name of a load balancer's own group contains the load balancer's name, and a rule in a
Nodes' group admits everything from one group. So no description has to name the owner of a group or a rule.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ccm.cloud import Conflict, Invalid

from ...api import is_of_cluster, tags_of
from ...instance_rules import Row
from .load_balancer_rules import DesiredState

#: List of sources in a rule of EC2 -> the key of the value in each source.
KINDS = {
    "IpRanges": "CidrIp",
    "Ipv6Ranges": "CidrIpv6",
    "PrefixListIds": "PrefixListId",
    "UserIdGroupPairs": "GroupId",
}
EVERYTHING = "-1"


@dataclass(frozen=True, order=True)
class Entry:
    """One source of one rule. `kind`: a key of KINDS. For all protocols together (EVERYTHING), both ports are 0."""

    protocol: str
    first: int
    last: int
    kind: str
    value: str


@dataclass(frozen=True)
class Change:
    """The rules to add to one group, and the rules to remove from it."""

    group: str
    add: tuple[Entry, ...] = ()
    remove: tuple[Entry, ...] = ()


def entries(group: Row) -> set[Entry]:
    """Return the rules of a group, one for each source, because EC2 combines the sources of rules with the same
    ports."""
    return {
        Entry(*_ports(rule), kind, str(each[key]))
        for rule in group.get("IpPermissions") or ()
        for kind, key in KINDS.items()
        for each in rule.get(kind) or ()
        if each.get(key)
    }


def permissions(entries: Iterable[Entry]) -> list[dict[str, Any]]:
    """Return rules in the form of EC2's API, grouped by protocol and ports."""
    by_ports: dict[tuple[str, int, int], dict[str, Any]] = {}
    for entry in entries:
        rule = by_ports.setdefault((entry.protocol, entry.first, entry.last), {"IpProtocol": entry.protocol})
        if entry.protocol != EVERYTHING:
            rule |= {"FromPort": entry.first, "ToPort": entry.last}
        rule.setdefault(entry.kind, []).append({KINDS[entry.kind]: entry.value})
    return list(by_ports.values())


def own_group(groups: Sequence[Row], name: str, cluster: str) -> Row | None:
    """Return a load balancer's own group, found by the group's name; None if there is none. Raises Conflict if a group
    without the cluster's tag has the name."""
    group = next((each for each in groups if each.get("GroupName") == name), None)
    if group is not None and not is_of_cluster(tags_of(group), cluster):
        raise Conflict(
            f"security group {name} exists without the tag of cluster {cluster}: delete it, or give it the tag"
        )
    return group


def own_change(group: Row, desired: DesiredState) -> Change:
    """Return the change after which the load balancer's own group has exactly the Service's rules: its ports, and ICMP
    messages about a smaller MTU."""
    ports = [("tcp", listener.port, listener.port) for listener in desired.listeners]
    desired_entries = {Entry(*rule, "IpRanges", cidr) for rule in (*ports, ("icmp", 3, 4)) for cidr in desired.clients}
    present = entries(group)
    return Change(
        str(group["GroupId"]), tuple(sorted(desired_entries - present)), tuple(sorted(present - desired_entries))
    )


def check_asked(groups: Sequence[Row], requested: Iterable[str]) -> None:
    """Raises Invalid if a group that the Service or cloud.conf names is not in the VPC."""
    if missing := sorted(set(requested) - {str(each["GroupId"]) for each in groups}):
        raise Invalid(f"the VPC has no security group {', '.join(missing)}")


def node_changes(
    groups: Sequence[Row], lead: str, opened: Iterable[str], cluster: str, *, untouched: str = ""
) -> list[Change]:
    """Return the changes after which the groups `opened`, and no other group of the cluster, admit traffic from the
    group `lead`. `untouched`: a group whose rules stay as they are."""
    entry, opened = admission(lead), set(opened)
    changes = []
    for row in groups:
        id, has = str(row["GroupId"]), entry in entries(row)
        if id == untouched:
            continue
        if id in opened and not has:
            changes.append(Change(id, add=(entry,)))
        elif has and id not in opened and is_of_cluster(tags_of(row), cluster):
            changes.append(Change(id, remove=(entry,)))
    return changes


def references(groups: Sequence[Row], id: str) -> list[Change]:
    """Return the changes that remove every rule that names a group, because EC2 does not delete a group that a rule
    names."""
    changes = []
    for row in groups:
        named = sorted(entry for entry in entries(row) if entry.kind == "UserIdGroupPairs" and entry.value == id)
        if named:
            changes.append(Change(str(row["GroupId"]), remove=tuple(named)))
    return changes


def admission(lead: str) -> Entry:
    return Entry(EVERYTHING, 0, 0, "UserIdGroupPairs", lead)


def lead_of(present: Sequence[str], noted: str, own: str) -> str:
    """Return the ID of the security group from which a load balancer's traffic comes: the recorded group, else its own
    one if that is among its groups (`present`), else its first one; "" without groups. `noted`: the group recorded by
    the last write, "" for none. `own`: the ID of its own group, "" without one. cloud-provider-aws records none and
    uses the first group."""
    if noted:
        return noted
    return own if own in present else next(iter(present), "")


def _ports(rule: Mapping[str, Any]) -> tuple[str, int, int]:
    protocol = str(rule["IpProtocol"])
    if protocol == EVERYTHING:
        return protocol, 0, 0
    return protocol, int(rule.get("FromPort", -1)), int(rule.get("ToPort", -1))
