# SPDX-License-Identifier: Apache-2.0
"""Compares a load balancer with its desired state, and returns the calls of Elastic Load Balancing that are still
needed. Pure.

New targets are registered before the listener that needs them is written, and a target group is deleted after its
listener uses another one. So traffic is not interrupted, unless a port changes from or to UDP.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...api import pairs
from ...instance_rules import Row
from . import load_balancer_owners as owners
from . import load_balancer_rules as rules
from .load_balancer_rules import Check, DesiredState, Listener

#: The maximum number of targets in one call.
CHUNK = 100
#: Operations of `target_steps`.
TARGETS = ("register_targets", "deregister_targets")


@dataclass(frozen=True)
class Present:
    """A load balancer as it is now. `groups`: name of a target group -> its row. `targets`: name of a group -> pairs of
    instance and port. `group_attributes`: name of a group -> its attributes, which are read only if the Service sets
    some."""

    balancer: Row
    listeners: Sequence[Row] = ()
    groups: Mapping[str, Row] = field(default_factory=dict)
    targets: Mapping[str, frozenset[tuple[str, int]]] = field(default_factory=dict)
    attributes: Mapping[str, str] = field(default_factory=dict)
    group_attributes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Step:
    """One call. `group`: the name of the target group whose ARN the caller must add to `arguments`; `in_action`:
    whether that ARN belongs in the listener's action. `what`: the difference, as one sentence."""

    operation: str
    arguments: Mapping[str, Any]
    what: str
    group: str = ""
    in_action: bool = False


#: The policy that AWS gives a new TLS listener. A listener that changes to TLS later must be given a policy.
FIRST_POLICY = "ELBSecurityPolicy-2016-08"
#: The attributes of a new load balancer. AWS does not always return all of them.
DEFAULTS = {rules.CROSS_ZONE: "false", rules.LOGS: "false", rules.PROTECTION: "false"}


def steps(present: Present, desired: DesiredState, instances: Sequence[str], tags: Mapping[str, str]) -> list[Step]:
    """Return all calls that are still needed, in order. `tags`: for new target groups and listeners."""
    return [
        *_without_ipv6(present, desired),
        *_groups(present, desired, instances, tags),
        *_listeners(present, desired, tags),
        *_superfluous(present, desired),
        *_attributes(present, desired),
        *_with_ipv6(present, desired),
    ]


def to_leave(balancer: str, listeners: Sequence[Row], tags: Mapping[str, str]) -> list[Step]:
    """Return all calls for a load balancer that is kept without its Service, except the deletion of its target groups
    and the change of its tags. `balancer`: its ARN."""
    steps = [
        Step("delete_listener", {"ListenerArn": row["ListenerArn"]}, f"port {row['Port']} is superfluous")
        for row in listeners
    ]
    if owners.is_protected(tags):
        off = {"LoadBalancerArn": balancer, "Attributes": pairs({rules.PROTECTION: "false"})}
        steps.append(Step("modify_load_balancer_attributes", off, "it is protected"))
    return steps


def _without_ipv6(present: Present, desired: DesiredState) -> Iterator[Step]:
    """Yield the call that removes the IPv6 addresses that this provider requested; those that a person requested stay.
    This call comes first, so that no source range is written that IPv6 clients could bypass."""
    if not desired.dual_stack and owners.DUAL_STACK in owners.flags_of(present.tags) and _has_ipv6(present):
        yield _address_type(present, "ipv4", "it has IPv6 addresses")


def _with_ipv6(present: Present, desired: DesiredState) -> Iterator[Step]:
    """Yield the call that requests IPv6 addresses. This call comes last, because AWS refuses it while there is a
    listener for UDP."""
    if desired.dual_stack and not _has_ipv6(present):
        yield _address_type(present, "dualstack", "it has no IPv6 addresses")


def _has_ipv6(present: Present) -> bool:
    return bool(present.balancer.get("IpAddressType") == "dualstack")


def _address_type(present: Present, type_: str, what: str) -> Step:
    arguments = {"LoadBalancerArn": present.balancer["LoadBalancerArn"], "IpAddressType": type_}
    return Step("set_ip_address_type", arguments, what)


def target_steps(
    group: str, port: int, present: frozenset[tuple[str, int]], instances: Sequence[str]
) -> Iterator[Step]:
    """Yield the calls after which exactly these targets are in a group. New targets come first."""
    expected = {(id, port) for id in instances}
    for operation, targets in (("register_targets", expected - present), ("deregister_targets", present - expected)):
        each = sorted(targets)
        for start in range(0, len(each), CHUNK):
            rows = [{"Id": id, "Port": number} for id, number in each[start : start + CHUNK]]
            what = "are not targets" if operation == "register_targets" else "are superfluous targets"
            yield Step(operation, {"Targets": rows}, f"{len(rows)} instances {what} of {group}", group)


def _groups(
    present: Present, desired: DesiredState, instances: Sequence[str], tags: Mapping[str, str]
) -> Iterator[Step]:
    vpc = present.balancer["VpcId"]
    for listener in desired.listeners:
        row = present.groups.get(listener.group)
        if row is None:
            arguments = {
                "Name": listener.group,
                "Protocol": listener.group_protocol,
                "Port": listener.node_port,
                "VpcId": vpc,
                "TargetType": "instance",
                "Tags": pairs(tags),
                **_check(listener.check),
            }
            yield Step("create_target_group", arguments, f"target group {listener.group} is missing")
        elif changed := _changed_check(row, listener.check):
            yield Step("modify_target_group", changed, f"the health check of {listener.group} differs", listener.group)
        yield from target_steps(
            listener.group, listener.node_port, present.targets.get(listener.group, frozenset()), instances
        )
        there = present.group_attributes.get(listener.group, {})
        if wrong := {key: value for key, value in desired.group_attributes.items() if there.get(key) != value}:
            attributes = {"Attributes": pairs(wrong)}
            yield Step(
                "modify_target_group_attributes", attributes, f"attributes of {listener.group} differ", listener.group
            )


def _check(check: Check) -> dict[str, Any]:
    parameters = {
        "HealthCheckProtocol": check.protocol,
        "HealthCheckPort": check.port,
        "HealthCheckIntervalSeconds": check.interval,
        "HealthyThresholdCount": check.healthy,
        "UnhealthyThresholdCount": check.unhealthy,
    }
    return parameters | ({"HealthCheckPath": check.path} if check.path else {})


def _changed_check(row: Row, check: Check) -> dict[str, Any]:
    """Return the settings that differ. Protocol and interval never differ, because a group's name depends on them."""
    return {
        key: value
        for key, value in _check(check).items()
        if key not in ("HealthCheckProtocol", "HealthCheckIntervalSeconds") and str(row.get(key)) != str(value)
    }


def _listeners(present: Present, desired: DesiredState, tags: Mapping[str, str]) -> Iterator[Step]:
    """Yield the calls for listeners. A listener changes between TCP and TLS in place. For a change from or to UDP, the
    listener is deleted and created again."""
    there = {int(row["Port"]): row for row in present.listeners}
    for listener in desired.listeners:
        row = there.get(listener.port)
        if row is not None and (row["Protocol"] == "UDP") != (listener.protocol == "UDP"):
            yield Step(
                "delete_listener", {"ListenerArn": row["ListenerArn"]}, f"port {listener.port} is {row['Protocol']}"
            )
            row = None
        body: dict[str, Any] = {"Port": listener.port, "Protocol": listener.protocol}
        if listener.protocol == "TLS":
            body["Certificates"] = [{"CertificateArn": listener.certificate}]
            body |= {"SslPolicy": listener.policy} if listener.policy else {}
        if row is None:
            new = {"LoadBalancerArn": present.balancer["LoadBalancerArn"], **body, "Tags": pairs(tags)}
            yield Step("create_listener", new, f"port {listener.port} is missing", listener.group, in_action=True)
        elif difference := _listener_difference(row, listener, present.groups):
            arguments = {"ListenerArn": row["ListenerArn"], **body}
            if listener.protocol == "TLS" and row["Protocol"] != "TLS":
                arguments.setdefault("SslPolicy", FIRST_POLICY)
            yield Step(
                "modify_listener", arguments, f"port {listener.port}: {difference}", listener.group, in_action=True
            )
    for port in sorted(there.keys() - {listener.port for listener in desired.listeners}):
        yield Step("delete_listener", {"ListenerArn": there[port]["ListenerArn"]}, f"port {port} is superfluous")


def _listener_difference(row: Row, listener: Listener, groups: Mapping[str, Row]) -> str:
    if row["Protocol"] != listener.protocol:
        return f"its protocol is {row['Protocol']}"
    arns = [action.get("TargetGroupArn") for action in row.get("DefaultActions") or ()]
    group = groups.get(listener.group)
    if group is None or arns != [group["TargetGroupArn"]]:
        return "it sends to another target group"
    if listener.protocol != "TLS":
        return ""
    certificates = [str(one.get("CertificateArn")) for one in row.get("Certificates") or ()]
    if certificates[:1] != [listener.certificate]:
        return "it has another certificate"
    return "it has another policy" if listener.policy and row.get("SslPolicy") != listener.policy else ""


def _superfluous(present: Present, desired: DesiredState) -> Iterator[Step]:
    for name in sorted(present.groups.keys() - {each.group for each in desired.listeners}):
        yield Step("delete_target_group", {}, f"target group {name} is superfluous", name)


def _attributes(present: Present, desired: DesiredState) -> Iterator[Step]:
    there = {**DEFAULTS, **present.attributes}
    # Protection that a person set stays.
    unprotected = {rules.PROTECTION: "false"} if owners.is_protected(present.tags) else {}
    expected = {**unprotected, **desired.attributes}
    wrong = {key: value for key, value in expected.items() if there.get(key, "") != value}
    if wrong:
        arguments = {"LoadBalancerArn": present.balancer["LoadBalancerArn"], "Attributes": pairs(wrong)}
        yield Step("modify_load_balancer_attributes", arguments, f"attributes differ: {', '.join(sorted(wrong))}")
