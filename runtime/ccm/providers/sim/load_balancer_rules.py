# SPDX-License-Identifier: Apache-2.0
"""Computes the desired state of a load balancer, and converts the cloud's load balancers to the contract's. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ccm import cloud
from ccm.cloud import Backend, Backends, Ingress, Kept, LoadBalancerSpec, NotImplementedByCloud
from ccm.cloud.toolkit.service_checks import ipv4_ranges, nobody_serves, require_node_ports

from .api import PASS_THROUGH, LoadBalancer
from .instance_rules import PROVIDER_ID

#: Tags. KEEP: what outlives the Service. NAMESPACE: that of the Service. PROTECTED: the load balancer must not be
#: deleted. Of these tags, a kept load balancer without a Service has only KEPT_FOR: the namespace whose Services
#: may take it back.
KEEP, NAMESPACE, PROTECTED, KEPT_FOR = "keep", "namespace", "protected", "kept_for"
#: The default port of kube-proxy's /healthz, which fails once its Node is being deleted.
KUBE_PROXY_HEALTH = 10256


def load_balancer(row: LoadBalancer, warnings: tuple[str, ...] = ()) -> cloud.LoadBalancer:
    """Return the contract's load balancer. Its address is published once the address answers. With the ipMode `Proxy`,
    nodes see the node port as the destination; with `VIP`, the address itself."""
    ready = row.state == "active"
    ip_mode = "VIP" if row.mode == PASS_THROUGH else "Proxy"
    return cloud.LoadBalancer(
        service_uid=row.tags.get("service_uid", ""),
        name=row.name,
        ingress=(Ingress(ip=row.ip, ip_mode=ip_mode),) if row.state in ("active", "updating") else (),
        fingerprint=row.tags.get("fingerprint", ""),
        ready=ready,
        warnings=warnings,
        keep=keep_of(row),
        protected=bool(row.tags.get(PROTECTED)),
    )


def keep_of(row: LoadBalancer) -> Kept | None:
    """Return what to keep according to the tags, None for nothing."""
    text = row.tags.get(KEEP, "")
    return Kept(text) if text in tuple(Kept) else None


def retention_tags(spec: LoadBalancerSpec) -> dict[str, str]:
    """Return the tags that say what outlives the Service. They include the namespace, which a deletion may not know."""
    keep = {KEEP: str(spec.keep), NAMESPACE: spec.namespace} if spec.keep is not None else {}
    return keep | ({PROTECTED: "true"} if spec.protected else {})


def changed_retention_tags(spec: LoadBalancerSpec, row: LoadBalancer) -> dict[str, str]:
    """Return `retention_tags` for a load balancer that already has tags. Tags can be emptied, but not removed."""
    return {key: "" for key in (KEEP, NAMESPACE, PROTECTED) if row.tags.get(key)} | retention_tags(spec)


def kept_tags(spec: LoadBalancerSpec, row: LoadBalancer) -> dict[str, str]:
    """Return the tags of a load balancer that loses its Service and stays for the namespace."""
    namespace = spec.namespace or row.tags.get(NAMESPACE, "")
    emptied = {key: "" for key in (KEEP, NAMESPACE, PROTECTED) if row.tags.get(key)}
    return {"service_uid": "", "fingerprint": "", KEPT_FOR: namespace} | emptied


def check_supported(spec: LoadBalancerSpec, passes_through: bool = False) -> None:
    """Raises NotImplementedByCloud or Invalid if the cloud cannot serve the Service."""
    for port in spec.ports:
        if port.protocol not in ("TCP", "UDP"):
            raise NotImplementedByCloud(
                f"port {port.port}: load balancers of this cloud forward only TCP and UDP, not {port.protocol}"
            )
    if not passes_through:
        require_node_ports(spec)
    ipv4_ranges(spec)
    if "IPv4" not in spec.ip_families:
        raise NotImplementedByCloud("load balancers of this cloud have only IPv4 addresses")


def desired(spec: LoadBalancerSpec, passes_through: bool = False) -> dict[str, Any]:
    """Return everything that is written for a Service, except its targets. If load balancers pass packets through and
    the Service has no port for health checks, the check asks kube-proxy about the node (KEP-3836)."""
    port = spec.health_check_node_port or (KUBE_PROXY_HEALTH if passes_through else 0)
    health = {"node_port": port} if port else None
    return {
        "ports": [
            {"name": port.name, "protocol": port.protocol, "port": port.port, "node_port": port.node_port}
            for port in spec.ports
        ],
        "source_ranges": sorted(spec.source_ranges),
        "session_affinity": spec.session_affinity,
        "health_check": health,
    }


def nobody(backends: Sequence[Backend]) -> tuple[str, ...]:
    return nobody_serves(backends, targets(backends))


def digest_of(backends: Sequence[Backend]) -> str:
    return Backends.of(backends).once("sim digest of targets", lambda each: digest(targets(each)))


def targets(backends: Sequence[Backend]) -> tuple[Mapping[str, str | bool], ...]:
    """Return the targets, sorted because their order has no meaning. Nodes of other clouds, and Nodes without an
    address, are left out."""
    return Backends.of(backends).recent("sim targets", _all_targets)


def _all_targets(backends: Sequence[Backend]) -> tuple[Mapping[str, str | bool], ...]:
    """Return the targets. If all of them would drain, none does."""
    matches = [
        (PROVIDER_ID.fullmatch(backend.provider_id), backend.internal_ip, backend.draining) for backend in backends
    ]
    targets = sorted((match["id"], address, draining) for match, address, draining in matches if match and address)
    some_serve = not all(draining for _, _, draining in targets)
    return tuple(
        {"instance_id": id_, "address": address} | ({"draining": True} if draining and some_serve else {})
        for id_, address, draining in targets
    )


def digest(value: Any) -> str:
    return hashlib.sha256(msgspec.json.encode(value, order="deterministic")).hexdigest()
