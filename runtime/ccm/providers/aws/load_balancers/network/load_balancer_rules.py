# SPDX-License-Identifier: Apache-2.0
"""Computes the desired state of a Network Load Balancer from the Service, its annotations and cloud.conf. Pure."""

from __future__ import annotations

import hashlib
import ipaddress
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ccm.cloud import Invalid, Kept, LoadBalancerSpec, Port
from ccm.cloud.toolkit.annotation_reader import ServiceAnnotations
from ccm.cloud.toolkit.digests import NOT_COUNTED, counted, desired_digest, subjects
from ccm.cloud.toolkit.kept_settings import Setting, differences, only_for_new, without_effect
from ccm.cloud.toolkit.service_checks import (
    EVERYONE,
    ipv4_only,
    ipv4_ranges,
    limits_clients,
    require_ipv4,
    require_node_ports,
)

from ...annotations import PREFIX, TRAFFIC_PORT
from ...api import CLUSTER_TAG, LEGACY_TAG
from ...settings_sections import SHARED, Global
from ..shared import target_rules as targets
from . import annotations as notes

SERVICE_TAG = "kubernetes.io/service-name"
CROSS_ZONE, LOGS = "load_balancing.cross_zone.enabled", "access_logs.s3.enabled"
PROTECTION = "deletion_protection.enabled"
BUCKET, BUCKET_PREFIX = "access_logs.s3.bucket", "access_logs.s3.prefix"


@dataclass(frozen=True)
class Check:
    """The health check of targets. `port`: `traffic-port`, or a number. `path`: "" for TCP."""

    protocol: str = "TCP"
    port: str = TRAFFIC_PORT
    path: str = ""
    interval: int = 30
    healthy: int = 3
    unhealthy: int = 3


@dataclass(frozen=True)
class Listener:
    """One port with its target group. `group`: the group's name, which depends on all settings that cannot be changed
    in place."""

    port: int
    protocol: str
    node_port: int
    group_protocol: str
    group: str
    check: Check
    certificate: str = ""
    policy: str = ""


@dataclass(frozen=True)
class DesiredState:
    """The desired state of a Network Load Balancer. `subnets`: IDs or names, () if the provider chooses. `clients`:
    CIDRs that may connect. `dual_stack`: clients may use IPv6, too. `keep`: the load balancer outlives the Service.
    `take_back`: the name of the kept load balancer that the Service takes back, "" for none."""

    name: str
    internal: bool
    listeners: tuple[Listener, ...]
    tags: Mapping[str, str]
    attributes: Mapping[str, str]
    clients: tuple[str, ...]
    group_attributes: Mapping[str, str] = field(default_factory=dict)
    nodes: Mapping[str, str | None] = field(default_factory=dict)
    most: int = field(default=0, metadata=NOT_COUNTED)
    local: bool = field(default=False, metadata=NOT_COUNTED)
    service: str = field(default="", metadata=NOT_COUNTED)
    subnets: tuple[str, ...] = ()
    allocations: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()
    dual_stack: bool = False
    keep: bool = False
    take_back: str = ""
    warnings: tuple[str, ...] = field(default=(), metadata=counted("warnings", subjects))

    @property
    def digest(self) -> str:
        """A hash of the desired state, without the fields that are NOT_COUNTED. It includes settings that only a new
        load balancer can get, so that a later change of such a setting is noticed and reported."""
        return desired_digest(self)

    @property
    def client_protocol(self) -> str:
        return "udp" if any(each.group_protocol == "UDP" for each in self.listeners) else "tcp"

    @property
    def traffic_ports(self) -> frozenset[int]:
        return frozenset(each.node_port for each in self.listeners)

    @property
    def check_ports(self) -> frozenset[int]:
        return frozenset(
            each.node_port if each.check.port == TRAFFIC_PORT else int(each.check.port) for each in self.listeners
        )


def desired_state(
    spec: LoadBalancerSpec, common: Global, cluster: str, *, most: int = 0, nodes_only: bool = False
) -> DesiredState:
    """Return the desired state of a Service. `cluster`: its name in tags. `most`: how many targets a load balancer may
    have, 0 for all. `nodes_only`: only the targets change, so other problems of the Service are not reported. Raises
    Invalid with what is wrong with the Service."""
    annotations = notes.parse(spec.annotations, nodes_only=nodes_only)
    if not nodes_only:
        _check(spec, annotations, common)
    why_ipv4 = why_only_ipv4(spec)
    return DesiredState(
        name=spec.default_name,
        internal=annotations.get("internal", False),
        listeners=tuple(_listener(port, spec, annotations, common, cluster) for port in spec.ports),
        tags=tags_of_cluster(spec, annotations, common, cluster),
        attributes=_attributes(annotations) | ({PROTECTION: "true"} if spec.protected else {}),
        clients=(EVERYONE,) if EVERYONE in (admitted := clients(spec, nodes_only=nodes_only)) else admitted,
        group_attributes=annotations.get("target-group-attributes", {}),
        nodes=annotations.get("target-node-labels", {}),
        most=targets.share(most, len(spec.ports)),
        local=spec.external_traffic_policy == "Local",
        service=spec.uid,
        subnets=annotations.get("subnets", ()),
        allocations=annotations.get("eip-allocations", ()),
        addresses=annotations.get("private-ipv4-addresses", ()),
        dual_stack="IPv6" in spec.ip_families and not why_ipv4,
        keep=spec.keep is Kept.LOAD_BALANCER,
        take_back=spec.take_back,
        warnings=(*notes.warnings(spec.annotations), *why_ipv4, *_overruled(spec, annotations, common)),
    )


def why_only_ipv4(spec: LoadBalancerSpec) -> tuple[str, ...]:
    """Return the warnings about IPv6 that a Service requests, as a family or in source ranges, and does not get.

    AWS translates connections of IPv6 clients to IPv4, because the targets have IPv4 addresses. Nodes then see the load
    balancer as the client, so nothing could apply source ranges to IPv6 clients. AWS does not translate UDP.
    """
    if "IPv6" not in spec.ip_families:
        return tuple(ipv4_only(spec))
    networks = [ipaddress.ip_network(each, strict=False) for each in spec.source_ranges]
    is_open = {each.version for each in networks if not each.prefixlen} == {4, 6}
    if networks and not is_open:
        why = "Nodes do not see the addresses of IPv6 clients, so nothing would apply loadBalancerSourceRanges to them"
        return (f"spec.ipFamilies: the load balancer gets IPv4 addresses only: {why}", *list(ipv4_only(spec))[1:])
    if any(port.protocol == "UDP" for port in spec.ports):
        return ("spec.ipFamilies: the load balancer gets IPv4 addresses only: AWS does not translate UDP to IPv4",)
    return ()


def without_ipv6(subnets: Iterable[str], rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the IDs of these subnets that have no IPv6 range. `rows`: all subnets of the VPC."""
    have = {
        row["SubnetId"]
        for row in rows
        for each in row.get("Ipv6CidrBlockAssociationSet") or ()
        if (each.get("Ipv6CidrBlockState") or {}).get("State") == "associated"
    }
    return sorted(set(subnets) - have)


def no_ipv6_in(subnets: Sequence[str]) -> tuple[str, ...]:
    """Return the warning about subnets without an IPv6 range, () for no subnets."""
    if not subnets:
        return ()
    return (
        f"spec.ipFamilies: the load balancer has IPv4 addresses only, because {', '.join(subnets)} "
        "have no IPv6 range: after they get one, the next comparison adds IPv6 addresses",
    )


def clients(spec: LoadBalancerSpec, *, nodes_only: bool) -> tuple[str, ...]:
    """Return the CIDRs that may connect, by default all. If the Service names only IPv6 ranges, nobody may connect:
    this raises Invalid, or returns () with `nodes_only`."""
    try:
        return ipv4_ranges(spec) or (EVERYONE,)
    except Invalid:
        if nodes_only:
            return ()
        raise


def _overruled(spec: LoadBalancerSpec, annotations: ServiceAnnotations, common: Global) -> tuple[str, ...]:
    """Return a warning about annotations without effect because all Services share one health check, () otherwise."""
    if common.clusterserviceloadbalancerhealthprobemode != SHARED or spec.external_traffic_policy == "Local":
        return ()
    names = ("healthcheck-protocol", "healthcheck-path", "healthcheck-port")
    keys = [f"{PREFIX}{name}" for name in names if annotations.is_set(name)]
    return without_effect(keys, f"ClusterServiceLoadBalancerHealthProbeMode in cloud.conf is {SHARED}")


def tags_of_cluster(
    spec: LoadBalancerSpec, annotations: ServiceAnnotations, common: Global, cluster: str
) -> dict[str, str]:
    """Return the tags of a load balancer of either type, the same as those of cloud-provider-aws."""
    return {
        **annotations.get("additional-resource-tags", {}),
        SERVICE_TAG: f"{spec.namespace}/{spec.name}",
        **({LEGACY_TAG: cluster} if common.kubernetesclustertag else {}),
        f"{CLUSTER_TAG}{cluster}": "owned",
    }


def _check(spec: LoadBalancerSpec, annotations: ServiceAnnotations, common: Global) -> None:
    protocols = {port.protocol for port in spec.ports}
    if other := sorted(protocols - {"TCP", "UDP"}):
        raise Invalid(f"spec.ports: a Network Load Balancer forwards TCP and UDP, not {', '.join(other)}")
    if len(protocols) > 1:
        raise Invalid("spec.ports: a Network Load Balancer of one Service forwards TCP or UDP, not both")
    require_node_ports(spec)
    require_ipv4(spec)
    if spec.session_affinity != "None":
        raise Invalid("spec.sessionAffinity: neither cloud-provider-aws nor this provider supports it: set it to None")
    if spec.load_balancer_ip:
        raise Invalid("spec.loadBalancerIP: AWS chooses the addresses: use the annotation ...eip-allocations")
    require_bucket(annotations)
    attributes = annotations.get("target-group-attributes", {})
    keeps_clients = attributes.get(notes.PRESERVE_CLIENT, "true") == "true"
    if not keeps_clients and "UDP" in protocols:
        raise Invalid(f"annotation {PREFIX}target-group-attributes: {notes.PRESERVE_CLIENT} is always on for UDP")
    if limits_clients(spec):
        if common.disablesecuritygroupingress:
            raise Invalid("spec.loadBalancerSourceRanges: with DisableSecurityGroupIngress nothing would apply them")
        if not keeps_clients or any(has_tls(port, annotations) for port in spec.ports):
            what = "TLS" if keeps_clients else f"{notes.PRESERVE_CLIENT}=false"
            raise Invalid(f"spec.loadBalancerSourceRanges: with {what}, Nodes do not see the addresses of clients")


def require_bucket(annotations: ServiceAnnotations) -> None:
    """Raise Invalid if access logs are on and no bucket is set. For load balancers of either type."""
    if annotations.get("access-log-enabled") and not annotations.get("access-log-s3-bucket-name"):
        raise Invalid(f"annotation {PREFIX}access-log-enabled: {PREFIX}access-log-s3-bucket-name is missing")


def _attributes(annotations: ServiceAnnotations) -> dict[str, str]:
    """Return the attributes of the load balancer. The bucket is set only if access logs are on, because AWS accepts no
    empty name."""
    attributes = {
        CROSS_ZONE: str(annotations.get("cross-zone-load-balancing-enabled", False)).lower(),
        LOGS: str(annotations.get("access-log-enabled", False)).lower(),
    }
    if annotations.get("access-log-enabled"):
        attributes[BUCKET] = annotations.get("access-log-s3-bucket-name")
        attributes[BUCKET_PREFIX] = annotations.get("access-log-s3-bucket-prefix", "")
    return attributes


def kept(row: Mapping[str, Any], desired: DesiredState, subnets: Sequence[str]) -> tuple[str, ...]:
    """Return the warning about annotations that count only for a new load balancer and differ from the existing one; ()
    if all agree. `subnets`: IDs, () if the Service names none."""
    zones = row.get("AvailabilityZones") or ()
    addresses = [address for zone in zones for address in zone.get("LoadBalancerAddresses") or ()]
    settings = {
        "subnets": (subnets, [zone.get("SubnetId") for zone in zones]),
        "eip-allocations": (desired.allocations, [address.get("AllocationId") for address in addresses]),
        "private-ipv4-addresses": (desired.addresses, [address.get("PrivateIPv4Address") for address in addresses]),
    }
    return only_for_new(
        differences(
            {f"{PREFIX}{key}": Setting(_sorted(requested), _sorted(has)) for key, (requested, has) in settings.items()}
        )
    )


def _sorted(every: Iterable[object]) -> str:
    return ", ".join(sorted(str(each) for each in every if each))


def has_tls(port: Port, annotations: ServiceAnnotations) -> bool:
    chosen = annotations.get("ssl-ports", ())
    return (
        port.protocol == "TCP"
        and bool(annotations.get("ssl-cert"))
        and (not chosen or str(port.port) in chosen or (bool(port.name) and port.name in chosen))
    )


def _listener(
    port: Port, spec: LoadBalancerSpec, annotations: ServiceAnnotations, common: Global, cluster: str
) -> Listener:
    check = health_check(spec, annotations, common)
    protocol, group_protocol, certificate, policy = port.protocol, port.protocol, "", ""
    if has_tls(port, annotations):
        protocol, certificate = "TLS", annotations.get("ssl-cert")
        policy = annotations.get("ssl-negotiation-policy", "")
        group_protocol = "TLS" if annotations.get("backend-protocol") == "ssl" else "TCP"
    name = group_name(cluster, spec, port, group_protocol, check)
    return Listener(port.port, protocol, port.node_port, group_protocol, name, check, certificate, policy)


def health_check(spec: LoadBalancerSpec, annotations: ServiceAnnotations, common: Global) -> Check:
    """Return the health check that cloud-provider-aws writes. Annotations overrule the defaults; for protocol, path and
    port, `Shared` in cloud.conf overrules annotations, unless externalTrafficPolicy is Local."""
    is_local = spec.external_traffic_policy == "Local"
    check = Check("HTTP", str(spec.health_check_node_port), "/healthz", 10, 2, 2) if is_local else Check()
    protocol = str(annotations.get("healthcheck-protocol", check.protocol)).upper()
    path = annotations.get("healthcheck-path", check.path or "/")
    port = annotations.get("healthcheck-port", check.port)
    if common.clusterserviceloadbalancerhealthprobemode == SHARED and not is_local:
        protocol, path = "HTTP", common.clusterservicesharedloadbalancerhealthprobepath
        port = str(common.clusterservicesharedloadbalancerhealthprobeport)
    return Check(
        protocol,
        port,
        "" if protocol == "TCP" else path,
        annotations.get("healthcheck-interval", check.interval),
        annotations.get("healthcheck-healthy-threshold", check.healthy),
        annotations.get("healthcheck-unhealthy-threshold", check.unhealthy),
    )


def group_name(cluster: str, spec: LoadBalancerSpec, port: Port, protocol: str, check: Check) -> str:
    """Return the name that cloud-provider-aws gives a target group, so that either controller finds the groups of the
    other."""
    parts = (cluster, spec.namespace, spec.name, port.port, port.node_port, protocol, "instance")
    text = "".join(map(str, (*parts, check.protocol, check.interval)))
    digest = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
    namespace, name = (re.sub(r"[^A-Za-z0-9]", "", each)[:8] for each in (spec.namespace, spec.name))
    return f"k8s-{namespace}-{name}-{digest[:10]}"
