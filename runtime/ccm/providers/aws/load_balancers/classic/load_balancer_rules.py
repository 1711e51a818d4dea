# SPDX-License-Identifier: Apache-2.0
"""Computes the desired state of a Classic Load Balancer from the Service, its annotations and cloud.conf. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ccm.cloud import Invalid, LoadBalancerSpec, Port
from ccm.cloud.toolkit.annotation_reader import ServiceAnnotations
from ccm.cloud.toolkit.digests import NOT_COUNTED, counted, desired_digest, subjects
from ccm.cloud.toolkit.service_checks import EVERYONE, ipv4_only, limits_clients, require_ipv4, require_node_ports

from ...annotations import PREFIX, TRAFFIC_PORT
from ...settings_sections import SHARED, Global
from ..network.load_balancer_rules import clients, has_tls, require_bucket, tags_of_cluster
from ..shared import target_rules as targets
from ..shared import type_rules
from . import annotations as notes

#: Prefix of the name of a load balancer's own security group.
OWN_GROUP = "k8s-elb-"
#: For listeners with a certificate: the protocol of instances -> the protocol of clients.
WITH_CERTIFICATE = {"HTTPS": "HTTPS", "HTTP": "HTTPS", "SSL": "SSL", "TCP": "SSL"}


#: The message for a Service that asks to keep its Classic Load Balancer.
NOT_KEPT = (
    "annotation ccm.outoftree.dev/keep-on-deletion: only a Network Load Balancer can be kept: remove the annotation, "
    "and this Classic Load Balancer is deleted with its Service"
)


@dataclass(frozen=True)
class Listener:
    """One port. `protocol`: the protocol between clients and the load balancer; `node_protocol`: the one between the
    load balancer and instances."""

    port: int
    protocol: str
    node_port: int
    node_protocol: str
    certificate: str = ""

    @property
    def has_tls(self) -> bool:
        return self.protocol in ("SSL", "HTTPS")


@dataclass(frozen=True)
class Check:
    """The health check of the instances; a Classic Load Balancer has only this one. `target`: PROTOCOL:PORT, with a
    path for HTTP and HTTPS."""

    target: str
    interval: int = 10
    timeout: int = 5
    healthy: int = 2
    unhealthy: int = 6


@dataclass(frozen=True)
class DesiredState:
    """The desired state of a Classic Load Balancer. `attributes`: in the form of the API; `clients`: CIDRs that may
    connect. `groups`: the security groups that the Service or cloud.conf names, () for a group of its own; `extra`:
    additional ones. `subnets`: IDs or names, () if the provider chooses."""

    name: str
    internal: bool
    listeners: tuple[Listener, ...]
    tags: Mapping[str, str]
    attributes: Mapping[str, Mapping[str, Any]]
    check: Check
    clients: tuple[str, ...] = (EVERYONE,)
    proxy_protocol: bool = False
    policy: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()
    nodes: Mapping[str, str | None] = field(default_factory=dict)
    most: int = field(default=0, metadata=NOT_COUNTED)
    local: bool = field(default=False, metadata=NOT_COUNTED)
    service: str = field(default="", metadata=NOT_COUNTED)
    subnets: tuple[str, ...] = ()
    protected: bool = False
    warnings: tuple[str, ...] = field(default=(), metadata=counted("warnings", subjects))

    @property
    def digest(self) -> str:
        """A hash of the desired state, without the fields that are NOT_COUNTED."""
        return desired_digest(self)

    @property
    def own_group(self) -> str:
        """The name of the security group that exists for this load balancer alone."""
        return f"{OWN_GROUP}{self.name}"


def desired_state(
    spec: LoadBalancerSpec, common: Global, cluster: str, *, most: int = 0, nodes_only: bool = False
) -> DesiredState:
    """Return the desired state of a Service. `cluster`: its name in tags. `most`: how many targets a load balancer may
    have, 0 for all. `nodes_only`: only the targets change, so other problems of the Service are not reported. Raises
    Invalid with what is wrong with the Service."""
    annotations = notes.parse(spec.annotations, nodes_only=nodes_only)
    groups = annotations.get("security-groups", ()) or ((common.elbsecuritygroup,) if common.elbsecuritygroup else ())
    if not nodes_only:
        _check(spec, annotations, groups)
    return DesiredState(
        name=spec.default_name,
        protected=spec.protected,
        internal=annotations.get("internal", False),
        listeners=tuple(_listener(port, annotations) for port in spec.ports),
        tags=tags_of_cluster(spec, annotations, common, cluster),
        attributes=_attributes(annotations),
        check=health_check(spec, annotations, common),
        clients=clients(spec, nodes_only=nodes_only),
        proxy_protocol=annotations.get("proxy-protocol", False),
        policy=annotations.get("ssl-negotiation-policy", ""),
        groups=groups,
        extra=annotations.get("extra-security-groups", ()),
        nodes=annotations.get("target-node-labels", {}),
        most=targets.share(most, 1),
        local=spec.external_traffic_policy == "Local",
        service=spec.uid,
        subnets=annotations.get("subnets", ()),
        warnings=(*type_rules.warnings(spec), *notes.warnings(spec.annotations), *ipv4_only(spec)),
    )


def _check(spec: LoadBalancerSpec, annotations: ServiceAnnotations, groups: tuple[str, ...]) -> None:
    if other := sorted({port.protocol for port in spec.ports} - {"TCP"}):
        raise Invalid(
            f"spec.ports: a Classic Load Balancer forwards TCP, not {', '.join(other)}: a Network Load Balancer also "
            f"forwards UDP (annotation {PREFIX}type: nlb)"
        )
    require_node_ports(spec)
    require_ipv4(spec)
    if spec.session_affinity != "None":
        raise Invalid("spec.sessionAffinity: neither cloud-provider-aws nor this provider supports it: set it to None")
    if spec.load_balancer_ip:
        raise Invalid("spec.loadBalancerIP: AWS chooses the addresses of a Classic Load Balancer")
    interval, timeout = (
        annotations.get("healthcheck-interval", Check.interval),
        annotations.get("healthcheck-timeout", 5),
    )
    if timeout >= interval:
        raise Invalid(f"annotation {PREFIX}healthcheck-timeout: {timeout} s is not less than the interval {interval} s")
    require_bucket(annotations)
    if spec.keep is not None:
        raise Invalid(NOT_KEPT)
    if spec.take_back:
        raise Invalid(
            f"annotation ccm.outoftree.dev/take-back-load-balancer: {spec.take_back} is not a Classic Load Balancer, "
            f"because only Network Load Balancers are kept: set the annotation {PREFIX}type to nlb"
        )
    if limits_clients(spec) and groups:
        raise Invalid(
            f"spec.loadBalancerSourceRanges: the rules of the security groups {', '.join(groups)} are not changed, so "
            "nothing would apply the ranges"
        )


def _attributes(annotations: ServiceAnnotations) -> dict[str, dict[str, Any]]:
    """Return the attributes: `Enabled` and the idle timeout always, the others only if an annotation sets them."""
    log = {
        "Enabled": annotations.get("access-log-enabled", False),
        "EmitInterval": annotations.get("access-log-emit-interval"),
        "S3BucketName": annotations.get("access-log-s3-bucket-name"),
        "S3BucketPrefix": annotations.get("access-log-s3-bucket-prefix"),
    }
    draining = {
        "Enabled": annotations.get("connection-draining-enabled", False),
        "Timeout": annotations.get("connection-draining-timeout"),
    }
    return {
        "AccessLog": {key: value for key, value in log.items() if value not in (None, "")},
        "ConnectionDraining": {key: value for key, value in draining.items() if value is not None},
        "ConnectionSettings": {"IdleTimeout": annotations.get("connection-idle-timeout", 60)},
        "CrossZoneLoadBalancing": {"Enabled": annotations.get("cross-zone-load-balancing-enabled", False)},
    }


def _listener(port: Port, annotations: ServiceAnnotations) -> Listener:
    backend = annotations.get("backend-protocol", "").upper()
    if has_tls(port, annotations):
        node_protocol = backend or "TCP"
        return Listener(
            port.port, WITH_CERTIFICATE[node_protocol], port.node_port, node_protocol, annotations.get("ssl-cert")
        )
    protocol = "HTTP" if backend == "HTTP" else "TCP"
    return Listener(port.port, protocol, port.node_port, protocol)


def health_check(spec: LoadBalancerSpec, annotations: ServiceAnnotations, common: Global) -> Check:
    """Return the health check that cloud-provider-aws writes. With externalTrafficPolicy Local, it asks kube-proxy
    about the Service; with `Shared` in cloud.conf, it asks kube-proxy about the Node; otherwise, it checks the first
    node port. Annotations overrule each part, except that the port `traffic-port` changes nothing with `Shared`."""
    first = spec.ports[0].node_port if spec.ports else 0
    protocol, port, path = "TCP", first, "/"
    if spec.external_traffic_policy == "Local":
        protocol, port, path = "HTTP", spec.health_check_node_port, "/healthz"
    elif common.clusterserviceloadbalancerhealthprobemode == SHARED:
        protocol, path = "HTTP", common.clusterservicesharedloadbalancerhealthprobepath
        port = common.clusterservicesharedloadbalancerhealthprobeport
    elif annotations.get("backend-protocol") in ("https", "ssl"):
        protocol = "SSL"
    protocol = annotations.get("healthcheck-protocol", protocol).upper()
    port_setting = annotations.get("healthcheck-port", "")
    if port_setting == TRAFFIC_PORT and spec.external_traffic_policy == "Local":
        port = first
    elif port_setting and port_setting != TRAFFIC_PORT:
        port = int(port_setting)
    path = annotations.get("healthcheck-path", path) if protocol in ("HTTP", "HTTPS") else ""
    return Check(
        f"{protocol}:{port}{path}",
        annotations.get("healthcheck-interval", Check.interval),
        annotations.get("healthcheck-timeout", Check.timeout),
        annotations.get("healthcheck-healthy-threshold", Check.healthy),
        annotations.get("healthcheck-unhealthy-threshold", Check.unhealthy),
    )
