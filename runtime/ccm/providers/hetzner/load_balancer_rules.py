# SPDX-License-Identifier: Apache-2.0
"""Computes a load balancer's desired state from the Service, its annotations and the configuration. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ccm.cloud import Backend, Backends, Ingress, Invalid, LoadBalancerSpec, Port
from ccm.cloud.toolkit import kept_load_balancers
from ccm.cloud.toolkit.annotation_reader import ServiceAnnotations
from ccm.cloud.toolkit.digests import NOT_COUNTED, counted, desired_digest, subjects
from ccm.cloud.toolkit.kept_settings import Setting, differences, only_for_new
from ccm.cloud.toolkit.limited_members import Candidates, Choices
from ccm.cloud.toolkit.service_checks import EVERYONE, limits_clients, require_ipv4, require_node_ports

from . import annotations as notes
from .instance_rules import server_id
from .label_selectors import Selector
from .settings import Variables

Row = Mapping[str, Any]

#: The type of a new load balancer if nothing names one.
DEFAULT_TYPE = "lb11"
#: The cloud's defaults for a health check: interval and timeout in seconds, and the number of retries.
INTERVAL, TIMEOUT, RETRIES = 15, 10, 3
#: The targets that were chosen for load balancers that have no room for all Nodes. They are remembered, so that little
#: is computed for each Service when a Node comes or goes.
_CHOICES = Choices()


@dataclass(frozen=True)
class Certificate:
    """A managed certificate, which the controller creates and deletes."""

    name: str
    domains: tuple[str, ...]
    staging: bool = False


@dataclass(frozen=True)
class DesiredState:
    """The desired state of a load balancer. A field that is None leaves the load balancer as it is. `services`: in the
    form of the API, only with the values that the Service or the configuration sets. `network`: as configured, ""
    without one. `certificates`: names or IDs, not yet looked up. `address`: what the Service requests, "" for any.
    `keep`: the mark's letters for what happens when the Service is deleted. `take_back`: the name of a kept load
    balancer, "" for none."""

    name: str
    named: bool
    network: str
    type: str = ""
    location: str = ""
    zone: str = ""
    algorithm: str = ""
    public: bool | None = None
    private_ip: bool = False
    private_ipv4: str = ""
    subnet: str = ""
    reverse: tuple[str | None, str | None] = (None, None)
    services: tuple[dict[str, Any], ...] = ()
    certificates: tuple[str, ...] | None = None
    managed: Certificate | None = None
    node_selector: Selector = field(default_factory=Selector)
    label_selector: str = ""
    hostname: str = ""
    proxy: bool = False
    ipv6: bool = True
    private_ingress: bool = True
    address: str = ""
    warnings: tuple[str, ...] = field(default=(), metadata=counted("warnings", subjects))
    certificate_ids: tuple[int, ...] | None = field(default=None, metadata=NOT_COUNTED)
    keep: str = ""
    take_back: str = ""

    @property
    def all_services(self) -> tuple[dict[str, Any], ...]:
        """The services. Those with HTTPS have the certificates that were looked up, if the Service names any."""
        if self.certificate_ids is None:
            return self.services
        http = {"certificates": list(self.certificate_ids)}
        return tuple(
            service | {"http": service.get("http", {}) | http} if service["protocol"] == "https" else service
            for service in self.services
        )

    @property
    def flags(self) -> str:
        """Letters for the load balancer's mark. From them, a listing knows the addresses to report, and a deletion what
        to keep or to delete, even if the Service is gone."""
        on = (
            ("p", self.proxy),
            ("6", not self.ipv6),
            ("i", not self.private_ingress),
            ("h", bool(self.hostname)),
            ("m", self.managed is not None),
        )
        return "".join(letter for letter, set_ in on if set_) + self.keep

    @property
    def protected(self) -> bool:
        """Whether the cloud must refuse to delete the load balancer, whoever requests it."""
        return kept_load_balancers.PROTECTED in self.keep

    @property
    def digest(self) -> str:
        """A hash of the desired state without the certificates' IDs. It includes the location, although a location
        never changes, so that a later request for another one is noticed and reported."""
        return desired_digest(self)


def desired_state(spec: LoadBalancerSpec, settings: Variables, *, nodes_only: bool = False) -> DesiredState:
    """Return the desired state of a Service. `nodes_only`: only the targets change, so other problems of the Service
    are not reported. Raises Invalid with what is wrong with the Service."""
    annotations = notes.parse(spec.annotations, nodes_only=nodes_only)
    tcp = [port for port in spec.ports if port.protocol == "TCP"]
    if not nodes_only:
        _check(spec, annotations, tcp, settings)
    private_ip = annotations.get("use-private-ip", settings.hcloud_load_balancers_use_private_ip)
    subnet = settings.hcloud_load_balancers_private_subnet_ip_range if settings.hcloud_network else ""
    location, zone = _place(annotations, settings)
    proxy = annotations.get("uses-proxyprotocol", settings.hcloud_load_balancers_uses_proxyprotocol)
    off = annotations.get("disable-public-network", settings.hcloud_load_balancers_disable_public_network)
    selects = annotations.is_set("node-selector")
    return DesiredState(
        name=annotations.get("name", spec.default_name),
        named=annotations.is_set("name"),
        network=settings.hcloud_network,
        type=annotations.get("type", "") or settings.hcloud_load_balancers_type,
        location=location,
        zone=zone,
        algorithm=annotations.get("algorithm-type", settings.hcloud_load_balancers_algorithm_type),
        public=None if off is None else not off,
        private_ip=private_ip,
        private_ipv4=annotations.get("private-ipv4", ""),
        subnet=annotations.get("private-subnet-ip-range", subnet),
        reverse=(annotations.get("ipv4-rdns"), annotations.get("ipv6-rdns")),
        services=tuple(_service(port, annotations, settings, proxy, spec.health_check_node_port) for port in tcp),
        certificates=None if annotations.get("certificate-type") == "managed" else annotations.get("http-certificates"),
        managed=None if nodes_only else _managed(spec, annotations),
        node_selector=annotations.get("node-selector", Selector()),
        label_selector="" if selects else settings.hcloud_load_balancers_target_selector,
        hostname=annotations.get("hostname", ""),
        proxy=bool(proxy),
        ipv6=not annotations.get("ipv6-disabled", settings.hcloud_load_balancers_disable_ipv6),
        private_ingress=not annotations.get(
            "disable-private-ingress", settings.hcloud_load_balancers_disable_private_ingress
        ),
        address=spec.load_balancer_ip,
        warnings=tuple(_warnings(spec)),
        keep=kept_load_balancers.flags(spec),
        take_back=spec.take_back,
    )


def _check(spec: LoadBalancerSpec, annotations: ServiceAnnotations, tcp: Sequence[Port], settings: Variables) -> None:
    if other := sorted({f"{port.protocol} {port.port}" for port in spec.ports if port not in tcp}):
        raise Invalid(f"spec.ports: load balancers of this cloud forward only TCP, not {', '.join(other)}")
    require_node_ports(spec)
    require_ipv4(spec)
    ranges = set(spec.source_ranges)
    limits_ipv6 = any(":" in each for each in ranges) and "::/0" not in ranges
    if limits_clients(spec) or limits_ipv6:
        missing = "::/0" if limits_ipv6 else EVERYONE
        raise Invalid(
            f"spec.loadBalancerSourceRanges: load balancers of this cloud are open to all clients, and {missing} is "
            "not in the list"
        )
    if spec.take_back and annotations.get("name", spec.take_back) != spec.take_back:
        raise Invalid(
            f"annotation {notes.PREFIX}name: the Service takes back the load balancer {spec.take_back}, which cannot "
            "get another name by that"
        )
    if spec.keep is not None and annotations.get("certificate-type") == "managed":
        raise Invalid(
            f"annotation {notes.PREFIX}certificate-type: a managed certificate is deleted with its Service, so the "
            "load balancer cannot be kept: use uploaded certificates, or do not keep it"
        )
    if not settings.hcloud_network:
        for name in ("private-ipv4", "private-subnet-ip-range"):
            if annotations.is_set(name):
                raise Invalid(f"annotation {notes.PREFIX}{name}: it needs HCLOUD_NETWORK in the configuration")
        if annotations.get("use-private-ip"):
            raise Invalid(f"annotation {notes.PREFIX}use-private-ip: it needs HCLOUD_NETWORK in the configuration")
        if settings.hcloud_load_balancers_use_private_ip and not annotations.is_set("use-private-ip"):
            raise Invalid("HCLOUD_LOAD_BALANCERS_USE_PRIVATE_IP: it needs HCLOUD_NETWORK in the configuration")


def _warnings(spec: LoadBalancerSpec) -> Iterable[str]:
    if spec.session_affinity != "None":
        yield (
            "spec.sessionAffinity: nodes see the load balancer as the client, so it has no effect; "
            f"with HTTP there is {notes.PREFIX}http-sticky-sessions"
        )


def _place(annotations: ServiceAnnotations, settings: Variables) -> tuple[str, str]:
    """Return location and network zone of a new load balancer. With a location, the zone is "". An empty annotation
    resets the configured value."""
    location = annotations.get("location", settings.hcloud_load_balancers_location)
    zone = annotations.get("network-zone", settings.hcloud_load_balancers_network_zone)
    return location, "" if location else zone


def kept(row: Row, desired: DesiredState) -> tuple[str, ...]:
    """Return the warning about settings that count only for a new load balancer and differ from the existing one; () if
    all agree."""
    location = row.get("location") or {}
    places = {
        "location": Setting(desired.location, str(location.get("name") or "")),
        "network-zone": Setting(desired.zone, str(location.get("network_zone") or "")),
    }
    return only_for_new({f"{notes.PREFIX}{key}": what for key, what in differences(places).items()})


def _managed(spec: LoadBalancerSpec, annotations: ServiceAnnotations) -> Certificate | None:
    if annotations.get("certificate-type") != "managed":
        return None
    if not (domains := annotations.get("http-managed-certificate-domains")):
        name = f"{notes.PREFIX}http-managed-certificate-domains"
        raise Invalid(f"annotation {name}: it is missing, and a managed certificate needs at least one domain")
    return Certificate(
        annotations.get("http-managed-certificate-name") or f"ccm-managed-certificate-{spec.uid}",
        domains,
        annotations.get("http-managed-certificate-acme-staging", False),
    )


def _service(
    port: Port, annotations: ServiceAnnotations, settings: Variables, proxy: bool | None, healthz: int
) -> dict[str, Any]:
    """Return a service in the API's form, only with the values that the Service or the configuration sets. Certificates
    are added later (`all_services`)."""
    protocol = annotations.get("protocol", "tcp")
    service: dict[str, Any] = {
        "protocol": protocol,
        "listen_port": port.port,
        "destination_port": port.node_port,
        "health_check": _health_check(port, annotations, settings, protocol, healthz),
    }
    if proxy is not None:
        service["proxyprotocol"] = proxy
    http = {
        "cookie_name": annotations.get("http-cookie-name"),
        "cookie_lifetime": annotations.get("http-cookie-lifetime"),
        "timeout_idle": annotations.get("http-timeout-idle"),
        "redirect_http": annotations.get("http-redirect-http"),
        "sticky_sessions": annotations.get("http-sticky-sessions"),
    }
    if protocol != "tcp" and (set_ := {name: value for name, value in http.items() if value is not None}):
        service["http"] = set_
    return service


def _health_check(
    port: Port, annotations: ServiceAnnotations, settings: Variables, protocol: str, healthz: int
) -> dict[str, Any]:
    """Return a health check. Without settings, it is TCP on the node port. If port, interval, timeout or retries are
    set, it has the protocol of the service, unless an annotation sets another protocol. `healthz`: the
    healthCheckNodePort, 0 without one. It is checked over HTTP, unless annotations set protocol or port."""
    values = {
        "interval": annotations.get("health-check-interval", settings.hcloud_load_balancers_health_check_interval),
        "timeout": annotations.get("health-check-timeout", settings.hcloud_load_balancers_health_check_timeout),
        "retries": annotations.get("health-check-retries", settings.hcloud_load_balancers_health_check_retries),
    }
    own = annotations.get("health-check-protocol")
    changed = any(value is not None for value in (own, annotations.get("health-check-port"), *values.values()))
    if own is not None or annotations.is_set("health-check-port"):
        healthz = 0
    check: dict[str, Any] = {
        "protocol": own or ("http" if healthz else protocol if changed else "tcp"),
        "port": annotations.get("health-check-port", healthz or port.node_port),
        **{name: value for name, value in values.items() if value is not None},
    }
    http = {
        "domain": annotations.get("health-check-http-domain"),
        "path": annotations.get("health-check-http-path", "/healthz" if healthz else None),
        "tls": annotations.get("health-check-http-validate-certificate"),
        "status_codes": annotations.get("http-status-codes"),
    }
    if check["protocol"] != "tcp":
        check["http"] = {name: value for name, value in http.items() if value is not None}
        if "status_codes" in check["http"]:
            check["http"]["status_codes"] = list(check["http"]["status_codes"])
    return check


# Targets.


def targets(desired: DesiredState, backends: Sequence[Backend]) -> tuple[int, ...]:
    """Return the sorted IDs of the servers that are targets; () if a label selector chooses them. Nodes of other
    clouds, Nodes of Robot servers, and Nodes whose instance confirms no address are left out. The IDs are computed once
    for all Services with the same selector."""
    if desired.label_selector:
        return ()
    selector = desired.node_selector
    return Backends.of(backends).recent(("hetzner servers", selector), lambda every: _servers(selector, every))


def fitting(desired: DesiredState, backends: Sequence[Backend], room: int, service: str) -> tuple[int, ...]:
    """Return the targets, or only `room` of them if the type of the load balancer does not allow more.

    The choice depends on `service`, the Service's UID, so that all Nodes get traffic. A Node that comes or goes
    replaces at most one target.
    """
    every = targets(desired, backends)
    if len(every) <= room or not room:
        return every[:room]

    def candidates(of_all: Backends) -> Candidates[int]:
        ids = ((server_id(each.provider_id), each) for each in of_all)
        target_ids = set(every)
        return Candidates({id_: each for id_, each in ids if id_ is not None and id_ in target_ids})

    shared = Backends.of(backends).recent(("hetzner candidates", desired.node_selector), candidates)
    return tuple(sorted(_CHOICES.limited(shared, room, service)))


def _servers(selector: Selector, backends: Sequence[Backend]) -> tuple[int, ...]:
    ids = (server_id(each.provider_id) for each in backends if each.addresses and selector.matches(each.labels))
    return tuple(sorted({each for each in ids if each is not None}))


def targets_digest(desired: DesiredState, backends: Sequence[Backend]) -> str:
    """Return the digest of the desired targets, computed once for all Services with the same settings."""
    key = ("hetzner targets", desired.private_ip, desired.node_selector, desired.label_selector)
    return Backends.of(backends).once(
        key, lambda each: digest_of_targets(targets(desired, each), desired.private_ip, desired.label_selector)
    )


def digest_of_targets(ids: Iterable[int], private: bool, label_selector: str) -> str:
    servers = sorted(ids)
    return desired_digest([servers, private, label_selector]) if servers or label_selector else "none"


def present_targets(row: Row) -> tuple[dict[int, bool], dict[str, bool]]:
    """Return the servers and the label selectors that are targets, each with whether traffic goes to private addresses.
    IP targets belong to Robot servers and are left alone."""
    servers: dict[int, bool] = {}
    selectors: dict[str, bool] = {}
    for target in row["targets"]:
        if target["type"] == "server":
            servers[int(target["server"]["id"])] = bool(target.get("use_private_ip"))
        elif target["type"] == "label_selector":
            selectors[str(target["label_selector"]["selector"])] = bool(target.get("use_private_ip"))
    return servers, selectors


def digest_of_row(row: Row) -> str:
    """Return the digest of the targets that a load balancer really has: equal to `targets_digest` if they are the
    desired ones, "mixed" for targets that this provider never writes together."""
    servers, selectors = present_targets(row)
    modes = {*servers.values(), *selectors.values()}
    if len(modes) > 1 or len(selectors) > 1 or (selectors and servers):
        return "mixed"
    return digest_of_targets(servers, modes == {True}, next(iter(selectors), ""))


# Addresses.


def ingress(row: Row, hostname: str, flags: str) -> tuple[Ingress, ...]:
    """Return the ingress for the Service's status: the host name if one is set, otherwise the addresses; () without
    either. `flags`: the letters of the load balancer's mark."""
    if hostname:
        return (Ingress(hostname=hostname),)
    public, entries = row["public_net"], []
    if public["enabled"]:
        entries.append(public["ipv4"]["ip"])
        if "6" not in flags:
            entries.append(public["ipv6"]["ip"])
    if "i" not in flags:
        entries += [each["ip"] for each in row["private_net"]]
    mode = "Proxy" if "p" in flags else "VIP"
    return tuple(Ingress(ip=str(each), ip_mode=mode) for each in entries if each)
