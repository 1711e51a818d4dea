# SPDX-License-Identifier: Apache-2.0
"""Compares a Classic Load Balancer with its desired state, and returns the calls that are still needed. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...instance_rules import Row
from .load_balancer_rules import Check, DesiredState, Listener

#: Names of policies, as in cloud-provider-aws.
PROXY_POLICY = "k8s-proxyprotocol-enabled"
TLS_POLICY = "k8s-SSLNegotiationPolicy-"


@dataclass(frozen=True)
class Place:
    """The subnets and security groups that a load balancer should have, by ID. `zones`: subnet -> its zone, for all
    subnets of the VPC."""

    subnets: Sequence[str]
    groups: Sequence[str]
    zones: Mapping[str, str]


@dataclass(frozen=True)
class Present:
    """A load balancer as it is now: its description, its attributes, its tags."""

    balancer: Row
    attributes: Mapping[str, Any] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Step:
    """One call; the caller adds the load balancer's name. `what`: the difference, as one sentence."""

    operation: str
    arguments: Mapping[str, Any]
    what: str


#: The attributes of a new load balancer. AWS does not always return the attributes that are off.
DEFAULTS: dict[str, dict[str, Any]] = {
    "AccessLog": {"Enabled": False, "EmitInterval": 60, "S3BucketPrefix": ""},
    "ConnectionDraining": {"Enabled": False, "Timeout": 300},
    "ConnectionSettings": {"IdleTimeout": 60},
    "CrossZoneLoadBalancing": {"Enabled": False},
}


def creation(desired: DesiredState, place: Place) -> dict[str, Any]:
    """Return the arguments of the call that creates the load balancer, without tags."""
    parameters = {
        "LoadBalancerName": desired.name,
        "Listeners": [_listener(listener) for listener in desired.listeners],
        "Subnets": list(place.subnets),
        "SecurityGroups": list(place.groups),
    }
    return parameters | ({"Scheme": "internal"} if desired.internal else {})


def created(desired: DesiredState, place: Place, dns: str) -> Row:
    """Return a new load balancer as the API would describe it, so that no read is needed."""
    return {
        "LoadBalancerName": desired.name,
        "DNSName": dns,
        "Scheme": "internal" if desired.internal else "internet-facing",
        "Subnets": list(place.subnets),
        "SecurityGroups": list(place.groups),
        "ListenerDescriptions": [{"Listener": _listener(listener)} for listener in desired.listeners],
    }


def steps(present: Present, desired: DesiredState, place: Place, instances: Sequence[str]) -> list[Step]:
    """Return all calls that are still needed, in order."""
    return [
        *_subnets(present.balancer, place),
        *_groups(present.balancer, place),
        *_listeners(present.balancer, desired),
        *_proxy_protocol(present.balancer, desired),
        *_tls_policy(present.balancer, desired),
        *_attributes(present, desired),
        *_check(present.balancer, desired.check),
        *target_steps(registered(present.balancer), instances),
    ]


def registered(balancer: Row) -> frozenset[str]:
    return frozenset(str(each["InstanceId"]) for each in balancer.get("Instances") or ())


def target_steps(present: frozenset[str], instances: Sequence[str]) -> Iterator[Step]:
    """Yield the calls after which exactly these instances are registered. New instances come first."""
    expected = set(instances)
    for operation, ids, what in (
        ("register_instances_with_load_balancer", expected - present, "are missing"),
        ("deregister_instances_from_load_balancer", present - expected, "are superfluous"),
    ):
        if ids:
            rows = [{"InstanceId": id_} for id_ in sorted(ids)]
            yield Step(operation, {"Instances": rows}, f"{len(rows)} instances {what}")


def _subnets(balancer: Row, place: Place) -> Iterator[Step]:
    """Yield the calls that attach and detach subnets. A load balancer has at most one subnet in a zone, so the old
    subnet of a zone is detached before another one is attached."""
    present = [str(subnet) for subnet in balancer.get("Subnets") or ()]
    missing = [subnet for subnet in place.subnets if subnet not in present]
    superfluous = [each for each in present if each not in place.subnets]
    taken = {place.zones.get(each) for each in present}
    at_once = [each for each in missing if place.zones.get(each) not in taken]
    later = [each for each in missing if each not in at_once]
    for operation, ids, what in (
        ("attach_load_balancer_to_subnets", at_once, "missing"),
        ("detach_load_balancer_from_subnets", superfluous, "superfluous"),
        ("attach_load_balancer_to_subnets", later, "missing"),
    ):
        if ids:
            yield Step(operation, {"Subnets": ids}, f"subnets are {what}: {', '.join(ids)}")


def _groups(balancer: Row, place: Place) -> Iterator[Step]:
    present = sorted(map(str, balancer.get("SecurityGroups") or ()))
    if present != sorted(place.groups):
        arguments = {"SecurityGroups": list(place.groups)}
        what = f"its security groups are {', '.join(present) or 'none'}"
        yield Step("apply_security_groups_to_load_balancer", arguments, what)


def _listener(listener: Listener) -> dict[str, Any]:
    parameters = {
        "Protocol": listener.protocol,
        "LoadBalancerPort": listener.port,
        "InstanceProtocol": listener.node_protocol,
        "InstancePort": listener.node_port,
    }
    return parameters | ({"SSLCertificateId": listener.certificate} if listener.certificate else {})


def _descriptions(balancer: Row) -> dict[int, Row]:
    return {int(each["Listener"]["LoadBalancerPort"]): each for each in balancer.get("ListenerDescriptions") or ()}


def _differs(row: Row, listener: Listener) -> bool:
    """Return whether two listeners differ in more than their certificate."""
    return any(
        str(row.get(key, "")).upper() != str(value).upper()
        for key, value in _listener(listener).items()
        if key != "SSLCertificateId"
    )


def _listeners(balancer: Row, desired: DesiredState) -> Iterator[Step]:
    """Yield the calls for listeners. A certificate is changed in place. For any other difference, the listener is
    deleted and created again."""
    present = {port: each["Listener"] for port, each in _descriptions(balancer).items()}
    expected = {listener.port: listener for listener in desired.listeners}
    gone = [port for port, row in present.items() if port not in expected or _differs(row, expected[port])]
    new = [listener for listener in desired.listeners if listener.port not in present or listener.port in gone]
    if gone:
        what = f"ports differ or are superfluous: {', '.join(map(str, gone))}"
        yield Step("delete_load_balancer_listeners", {"LoadBalancerPorts": gone}, what)
    if new:
        what = f"ports are missing: {', '.join(str(each.port) for each in new)}"
        yield Step("create_load_balancer_listeners", {"Listeners": [_listener(each) for each in new]}, what)
    for kept in desired.listeners:
        if kept not in new and str(present[kept.port].get("SSLCertificateId") or "") != kept.certificate:
            arguments = {"LoadBalancerPort": kept.port, "SSLCertificateId": kept.certificate}
            what = f"port {kept.port} has another certificate"
            yield Step("set_load_balancer_listener_ssl_certificate", arguments, what)


def _policy(balancer: Row, name: str, kind: str, attribute: str, value: str) -> Iterator[Step]:
    """Yield the call that creates a policy, unless the load balancer has one of this name."""
    if name not in (balancer.get("Policies") or {}).get("OtherPolicies", ()):
        arguments = {
            "PolicyName": name,
            "PolicyTypeName": kind,
            "PolicyAttributes": [{"AttributeName": attribute, "AttributeValue": value}],
        }
        yield Step("create_load_balancer_policy", arguments, f"policy {name} is missing")


def _proxy_protocol(balancer: Row, desired: DesiredState) -> Iterator[Step]:
    """Yield the calls that set or remove the policy on each node port. AWS keeps the policy of a node port whose
    listener was deleted, so the policy is removed from node ports without a listener, too."""
    policies = {
        int(description["InstancePort"]): list(map(str, description.get("PolicyNames") or ()))
        for description in balancer.get("BackendServerDescriptions") or ()
    }
    expected = {listener.node_port for listener in desired.listeners} if desired.proxy_protocol else set()
    has = {port for port, names in policies.items() if PROXY_POLICY in names}
    if expected - has:
        yield from _policy(balancer, PROXY_POLICY, "ProxyProtocolPolicyType", "ProxyProtocol", "true")
    for port in sorted(expected ^ has):
        names = [each for each in policies.get(port, ()) if each != PROXY_POLICY]
        names += [PROXY_POLICY] if port in expected else []
        what = f"node port {port}: the PROXY protocol is {'off' if port in expected else 'on'}"
        arguments = {"InstancePort": port, "PolicyNames": names}
        yield Step("set_load_balancer_policies_for_backend_server", arguments, what)


def _tls_policy(balancer: Row, desired: DesiredState) -> Iterator[Step]:
    """Yield the calls that set the TLS policy of listeners. Without an annotation, listeners keep the policy that they
    have."""
    if not desired.policy:
        return
    name, there = f"{TLS_POLICY}{desired.policy}", _descriptions(balancer)
    ports = [
        listener.port
        for listener in desired.listeners
        if listener.has_tls
        and (
            listener.port not in there
            or _differs(there[listener.port]["Listener"], listener)
            or list(there[listener.port].get("PolicyNames") or ()) != [name]
        )
    ]
    if ports:
        yield from _policy(balancer, name, "SSLNegotiationPolicyType", "Reference-Security-Policy", desired.policy)
    for port in ports:
        arguments = {"LoadBalancerPort": port, "PolicyNames": [name]}
        yield Step("set_load_balancer_policies_of_listener", arguments, f"port {port} has another policy")


def _attributes(present: Present, desired: DesiredState) -> Iterator[Step]:
    """Yield the one call that writes the attributes, if any attribute differs. For a feature that is off, only
    `Enabled` is compared. If an annotation was removed, its attribute gets the default again."""
    wrong, values = [], {}
    for name, settings in desired.attributes.items():
        there = {**DEFAULTS[name], **(present.attributes.get(name) or {})}
        expected = {**DEFAULTS[name], **settings}
        keys = expected if expected.get("Enabled", True) else ["Enabled"]
        if any(there.get(key) != expected[key] for key in keys):
            wrong.append(name)
        values[name] = {
            key: value for key, value in expected.items() if key in settings or (value and there.get(key) != value)
        }
    if wrong:
        arguments = {"LoadBalancerAttributes": values}
        yield Step("modify_load_balancer_attributes", arguments, f"attributes differ: {', '.join(wrong)}")


def _check(balancer: Row, check: Check) -> Iterator[Step]:
    expected = {
        "Target": check.target,
        "Interval": check.interval,
        "Timeout": check.timeout,
        "HealthyThreshold": check.healthy,
        "UnhealthyThreshold": check.unhealthy,
    }
    there = balancer.get("HealthCheck") or {}
    if any(there.get(key) != value for key, value in expected.items()):
        yield Step("configure_health_check", {"HealthCheck": expected}, "the health check differs")
