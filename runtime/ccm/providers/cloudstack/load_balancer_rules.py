# SPDX-License-Identifier: Apache-2.0
"""Computes a load balancer's desired state from its Service: an address, and a rule for each port. Pure."""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ccm.cloud import Backend, Backends, Ingress, Invalid, LoadBalancerSpec, Port
from ccm.cloud.toolkit.backend_addresses import Selector
from ccm.cloud.toolkit.digests import counted, desired_digest, subjects
from ccm.cloud.toolkit.service_checks import EVERYONE, ipv4_only, ipv4_ranges, require_ipv4, require_node_ports

from . import annotations as notes
from .instance_rules import machine_id

Row = Mapping[str, Any]

#: Session affinity -> how a rule chooses a machine, as in cloudstack-kubernetes-provider.
ALGORITHMS = {"None": "roundrobin", "ClientIP": "source"}


@dataclass(frozen=True)
class Rule:
    """One port. `protocol`: CloudStack's protocol: tcp, udp or tcp-proxy. The name contains the protocol, because one
    port may serve TCP and UDP."""

    name: str
    protocol: str
    port: int
    node_port: int

    @property
    def key(self) -> tuple[str, int]:
        """Protocol and port. They identify a rule, because an address has at most one rule for them."""
        return ip_protocol(self.protocol), self.port


@dataclass(frozen=True)
class DesiredState:
    """The desired state. `name`: the beginning of the names of all rules. `cidrs`: from the annotation; `ranges`: from
    the Service's spec. Both are sorted, () admits everyone, and `admitted` decides whether rules or the firewall apply
    them. `address`: as the Service requests it, "" for any. `released`: whether the requested address of a load
    balancer that was taken over is released with it. `nodes`: labels that a Node must have."""

    name: str
    algorithm: str
    rules: tuple[Rule, ...]
    cidrs: tuple[str, ...] = ()
    ranges: tuple[str, ...] = ()
    address: str = ""
    hostname: str = ""
    proxy: bool = False
    released: bool = False
    nodes: Selector = field(default_factory=dict)
    warnings: tuple[str, ...] = field(default=(), metadata=counted("warnings", subjects))

    @property
    def digest(self) -> str:
        """A hash of the whole desired state."""
        return desired_digest(self)


def desired_state(spec: LoadBalancerSpec) -> DesiredState:
    """Return the desired state of a Service. Raises Invalid with what is wrong with the Service."""
    annotations = notes.parse(spec.annotations)
    if other := sorted({f"{port.protocol} {port.port}" for port in spec.ports if port.protocol not in ("TCP", "UDP")}):
        raise Invalid(f"spec.ports: load balancers of this cloud forward TCP and UDP, not {', '.join(other)}")
    require_node_ports(spec)
    require_ipv4(spec)
    proxy = annotations.get("proxy-protocol", False)
    return DesiredState(
        name=spec.default_name,
        algorithm=ALGORITHMS[spec.session_affinity],
        rules=tuple(sorted((_rule(spec, port, proxy) for port in spec.ports), key=lambda each: each.key)),
        cidrs=_not_everyone(annotations.get("source-cidrs", ())),
        ranges=_not_everyone(ipv4_ranges(spec)),
        address=_address(spec.load_balancer_ip),
        hostname=annotations.get("hostname", ""),
        proxy=proxy,
        released=annotations.get("ip-associated-by-controller", False),
        nodes=annotations.get("node-selector", {}),
        warnings=tuple(_warnings(spec)),
    )


def _rule(spec: LoadBalancerSpec, port: Port, proxy: bool) -> Rule:
    protocol = "tcp-proxy" if proxy and port.protocol == "TCP" else port.protocol.lower()
    return Rule(f"{spec.default_name}-{protocol}-{port.port}", protocol, port.port, port.node_port)


def _address(text: str) -> str:
    try:
        return str(ipaddress.IPv4Address(text)) if text else ""
    except ValueError:
        raise Invalid("spec.loadBalancerIP: expected an IPv4 address") from None


def _not_everyone(ranges: Iterable[str]) -> tuple[str, ...]:
    every = tuple(ranges)
    return () if EVERYONE in every else every


def _warnings(spec: LoadBalancerSpec) -> Iterator[str]:
    if spec.health_check_node_port:
        yield (
            "spec.externalTrafficPolicy: the cloud does not check healthCheckNodePort, so nodes without Pods of the "
            "Service receive connections, too, and drop them"
        )
    yield from ipv4_only(spec)


def admitted(desired: DesiredState, has_firewall: bool) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the CIDRs of the rules, and the CIDRs of the firewall. Raises Invalid if both lists exclude somebody, they
    differ, and the network has no firewall, so that only one list could have an effect."""
    if has_firewall:
        return desired.cidrs, desired.ranges
    if desired.cidrs and desired.ranges and desired.cidrs != desired.ranges:
        raise Invalid(
            f"spec.loadBalancerSourceRanges and the annotation {notes.PREFIX}source-cidrs differ, and the network has "
            "no firewall: remove one of them"
        )
    return desired.cidrs or desired.ranges, ()


def ip_protocol(protocol: str) -> str:
    return protocol.removesuffix("-proxy")


# Targets.


def selector(spec: LoadBalancerSpec) -> Selector:
    """Return the labels that a Node of the Service must have. Raises Invalid if the annotation cannot be read."""
    return dict(notes.parse(spec.annotations, nodes_only=True).get("node-selector", {}))


def targets(backends: Sequence[Backend], nodes: Selector) -> tuple[str, ...]:
    """Return the sorted IDs of the machines. Nodes of other clouds, those without the labels `nodes`, and those whose
    instance confirms no address are left out. So are Nodes that drain, unless all of them drain: a machine that is
    removed from a rule keeps its open connections (see `drains`). The IDs are computed once for all Services that
    select the same Nodes."""
    return Backends.of(backends).recent(_key("machines", nodes), lambda every: _machines(every, nodes))


def _key(what: str, nodes: Selector) -> tuple[object, ...]:
    return "cloudstack", what, tuple(sorted(nodes.items()))


def _machines(backends: Sequence[Backend], nodes: Selector) -> tuple[str, ...]:
    selected = [
        (id_, backend.draining)
        for backend in backends
        if backend.addresses
        and all(key in backend.labels and value in (None, backend.labels[key]) for key, value in nodes.items())
        if (id_ := machine_id(backend.provider_id)) is not None
    ]
    serving = {id_ for id_, draining in selected if not draining}
    return tuple(sorted(serving or {id_ for id_, _ in selected}))


def network(backends: Sequence[Backend], networks: Mapping[str, Sequence[str]]) -> str:
    """Return the network in which most machines have their first interface; of several such networks, the one with the
    lowest ID; "" if no machine has an interface. `networks`: ID of a machine -> the IDs of its networks, in the order
    of its interfaces."""
    counts = Counter(networks[each][0] for each in targets(backends, {}) if networks.get(each))
    return min(counts, key=lambda each: (-counts[each], each), default="")


def targets_digest(backends: Sequence[Backend], nodes: Selector) -> str:
    return Backends.of(backends).once(_key("targets", nodes), lambda each: desired_digest(targets(each, nodes)))


def ingress(address: str, hostname: str, proxy: bool) -> tuple[Ingress, ...]:
    """Return the ingress for the Service's status: the host name if one is set, else the address; () without either."""
    if hostname:
        return (Ingress(hostname=hostname),)
    return (Ingress(ip=address, ip_mode="Proxy" if proxy else "VIP"),) if address else ()
