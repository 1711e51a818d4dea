# SPDX-License-Identifier: Apache-2.0
"""What a Service asks for, in the terms of the cloud. No I/O."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from ccm.cloud import Backend, Backends, Ingress, LoadBalancer, LoadBalancerSpec


def path_of(spec: LoadBalancerSpec) -> str:
    name = hashlib.sha256(f"{spec.cluster}/{spec.uid}".encode()).hexdigest()[:24]
    return f"/balancers/{quote(f'k8s-{name}')}"


def refusals(spec: LoadBalancerSpec) -> list[str]:
    """Return what the Service requests and this cloud does not have, if traffic would go wrong without it."""
    problems = []
    if unknown := {port.protocol for port in spec.ports} - {"TCP"}:
        problems.append(f"balancers of this cloud forward TCP, not {', '.join(sorted(unknown))}")
    if any(not port.node_port for port in spec.ports):
        problems.append("allocateLoadBalancerNodePorts: balancers of this cloud send to node ports")
    if "IPv4" not in spec.ip_families:
        problems.append("ipFamilies: balancers of this cloud have IPv4 only")
    if spec.source_ranges:
        problems.append("loadBalancerSourceRanges: balancers of this cloud admit everyone")
    if spec.load_balancer_ip:
        problems.append("loadBalancerIP: this cloud chooses the addresses of balancers")
    return problems


def warnings(spec: LoadBalancerSpec, backends: Sequence[Backend]) -> list[str]:
    """Return what the Service requests and this cloud does not have, if traffic arrives without it, and whether no node
    can receive traffic. Each sentence becomes an Event of the Service."""
    problems = []
    if spec.session_affinity != "None":
        problems.append("sessionAffinity: balancers of this cloud send each connection to any node")
    if spec.health_check_node_port:
        problems.append("externalTrafficPolicy Local: balancers of this cloud also send to nodes without Pods")
    if "IPv6" in spec.ip_families:
        problems.append("ipFamilies: balancers of this cloud have IPv4 only")
    if backends and not Backends.of(backends).recent("acme targets", _targets):
        problems.append("no node has an InternalIP to which this balancer could send")
    return problems


def ports(spec: LoadBalancerSpec) -> list[tuple[int, int]]:
    return [(port.port, port.node_port) for port in spec.ports]


def desired(spec: LoadBalancerSpec, backends: Sequence[Backend]) -> dict[str, Any]:
    return {
        "ports": ports(spec),
        "targets": Backends.of(backends).recent("acme targets", _targets),
    }


def _targets(backends: Sequence[Backend]) -> tuple[str, ...]:
    return tuple(sorted(address for backend in backends if (address := backend.internal_ip)))


def load_balancer_of(row: dict[str, Any], news: Sequence[str] = ()) -> LoadBalancer:
    return LoadBalancer(
        service_uid=row["labels"].get("service", ""),
        name=row["name"],
        ingress=(Ingress(ip=row["ip"], ip_mode="Proxy"),),
        fingerprint=row["labels"].get("fingerprint", ""),
        ready=row["state"] == "active",
        warnings=tuple(news),
    )
