# SPDX-License-Identifier: Apache-2.0
"""Refuses or reports Services that a load balancer would publish although nobody serves them. Pure.

A provider calls these functions in `ensure` and computes the fingerprint from the same desired state.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator, Sequence

from ccm.cloud.errors import Invalid
from ccm.cloud.load_balancer_contract import Backend, LoadBalancerSpec, Port

EVERYONE = "0.0.0.0/0"


def require_node_ports(spec: LoadBalancerSpec) -> None:
    """Raises Invalid if a port has no node port, because the cloud would send its traffic to port 0."""
    if problem := node_port_problem(spec.ports):
        raise Invalid(problem)


def node_port_problem(ports: Iterable[Port]) -> str:
    """Like `require_node_ports`, for a provider that reports all problems at once: return the problem, "" for none."""
    which = ", ".join(map(str, sorted(port.port for port in ports if not port.node_port)))
    text = f"spec.allocateLoadBalancerNodePorts: nodes are reached by node ports, and port {which} has none"
    return f"{text}: set it to true" if which else ""


def require_ipv4(spec: LoadBalancerSpec) -> None:
    """Raises Invalid if the Service has only IPv6. Load balancers that reach nodes with IPv4 cannot serve it, because
    its node ports do not listen on IPv4."""
    if "IPv4" not in spec.ip_families:
        raise Invalid(
            "spec.ipFamilies: load balancers of this cloud reach nodes with IPv4 only, and node ports of this Service "
            "listen on IPv6 only"
        )


def ipv4_only(spec: LoadBalancerSpec) -> Iterator[str]:
    """Yield warnings for load balancers whose addresses are IPv4 only: about IPv6 among the Service's IP families, and
    about IPv6 source ranges if an IPv4 range is not 0.0.0.0/0."""
    if "IPv6" in spec.ip_families:
        yield "spec.ipFamilies: the load balancer has an IPv4 address only"
    ranges = [ipaddress.ip_network(source_range, strict=False) for source_range in spec.source_ranges]
    if any(each.version == 6 for each in ranges) and any(each.version == 4 and each.prefixlen for each in ranges):
        yield "spec.loadBalancerSourceRanges: the load balancer has an IPv4 address only, so IPv6 ranges admit nobody"


def ipv4_ranges(spec: LoadBalancerSpec) -> tuple[str, ...]:
    """Return the IPv4 ranges of the Service, sorted; () if it has no ranges at all. Raises Invalid if it has only IPv6
    ranges: none of them admits IPv4 clients, not even ::/0."""
    every = [ipaddress.ip_network(source_range, strict=False) for source_range in spec.source_ranges]
    ranges = sorted({str(each) for each in every if each.version == 4})
    if every and not ranges:
        raise Invalid("spec.loadBalancerSourceRanges: they have no IPv4 range, so nobody could connect")
    return tuple(ranges)


def limits_clients(spec: LoadBalancerSpec) -> bool:
    """Return whether the Service excludes some IPv4 clients. Raises Invalid as `ipv4_ranges` does."""
    return EVERYONE not in (ipv4_ranges(spec) or (EVERYONE,))


def nobody_serves(
    backends: Sequence[Backend], targets: Sequence[object], selector: str = "", lacks: str = "can be a target"
) -> tuple[str, ...]:
    """Return the warning about a load balancer without targets although the cluster has nodes, () otherwise.

    `selector`: the name of the setting that chose among the nodes, "" if none did. `lacks`: how the message's sentence
    "no node ..." ends. If there are no nodes at all, the framework itself reports it.
    """
    if targets or not backends:
        return ()
    which = f" with the labels of {selector}" if selector else ""
    return (f"nobody serves this Service: no node{which} {lacks}",)
