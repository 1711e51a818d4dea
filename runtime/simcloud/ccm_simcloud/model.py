# SPDX-License-Identifier: Apache-2.0
"""The resources of the simulated cloud, as stored and sent, and the bodies that create them. Data only.

Rows are frozen: a change creates a new row, so keeping old rows keeps an old state (eventual consistency).
"""

from __future__ import annotations

import ipaddress
import re
from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,252}$")]
PortNumber = Annotated[int, Meta(ge=1, le=65535)]
Seconds = Annotated[float, Meta(ge=0, le=86400)]

AddressType = Literal["InternalIP", "ExternalIP", "Hostname", "InternalDNS", "ExternalDNS"]
InstanceState = Literal["running", "stopped"]
LoadBalancerState = Literal["creating", "active", "updating", "error", "deleting"]
#: "proxy" ends connections and opens others to node ports. "pass-through" passes clients' packets to nodes unchanged.
LoadBalancerMode = Literal["proxy", "pass-through"]


class Address(Struct, frozen=True):
    type: AddressType
    address: str

    def __post_init__(self) -> None:
        if self.type.endswith("IP"):
            ip_address(self.address)
        elif not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?", self.address):
            raise ValueError(f"{self.address!r} is not a host name")


class InstanceBody(Struct, frozen=True):
    """The fields that a client sends to create or replace an instance."""

    name: Name
    type: str = "sim.small"
    zone: str = ""
    addresses: tuple[Address, ...] = ()
    labels: dict[str, str] = {}
    state: InstanceState = "running"
    #: Ranges that this cloud routes to the instance for Pods.
    pod_cidrs: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for cidr in self.pod_cidrs:
            ip_network(cidr)


class InstancePatch(Struct, frozen=True):
    """Changes only the given fields."""

    name: Name | UnsetType = UNSET
    type: str | UnsetType = UNSET
    zone: str | UnsetType = UNSET
    addresses: tuple[Address, ...] | UnsetType = UNSET
    labels: dict[str, str] | UnsetType = UNSET
    state: InstanceState | UnsetType = UNSET
    pod_cidrs: tuple[str, ...] | UnsetType = UNSET

    def __post_init__(self) -> None:
        for cidr in self.pod_cidrs or ():
            ip_network(cidr)


class LabelsBody(Struct, frozen=True):
    """Labels to add; the others stay."""

    labels: dict[str, str]


class Instance(Struct, frozen=True):
    id: str
    name: str
    type: str
    region: str
    zone: str
    addresses: tuple[Address, ...]
    labels: dict[str, str]
    state: InstanceState
    created_at: float
    pod_cidrs: tuple[str, ...] = ()

    def gateway_to(self, destination: str) -> str | None:
        """Return the first InternalIP of the destination's family, None if there is none."""
        version = ip_network(destination).version
        internal = (address.address for address in self.addresses if address.type == "InternalIP")
        return next((address for address in internal if ip_address(address).version == version), None)


class Port(Struct, frozen=True):
    """Clients connect to `port`. A proxy load balancer forwards to `node_port` of a target; a pass-through load
    balancer needs no node port.
    """

    port: PortNumber
    node_port: Annotated[int, Meta(ge=0, le=65535)] = 0
    protocol: Literal["TCP", "UDP"] = "TCP"
    name: str = ""


class Target(Struct, frozen=True):
    """A backend of a load balancer. `draining`: the target keeps its connections and gets no new ones. Connections of a
    removed target end."""

    address: str
    instance_id: str = ""
    draining: bool = False

    def __post_init__(self) -> None:
        ip_address(self.address)


class HealthCheck(Struct, frozen=True):
    """HTTP GET /healthz on this port of each target. Without it, a proxy connects to its TCP node ports; UDP ports and
    pass-through load balancers are not checked."""

    node_port: PortNumber


class LoadBalancerBody(Struct, frozen=True):
    name: Name
    ports: tuple[Port, ...]
    targets: tuple[Target, ...] = ()
    source_ranges: tuple[str, ...] = ()
    ip: str = ""
    tags: dict[str, str] = {}
    session_affinity: Literal["None", "ClientIP"] = "None"
    health_check: HealthCheck | None = None

    def __post_init__(self) -> None:
        check_ports(self.ports)
        check_ranges(self.source_ranges)
        if self.ip:
            ip_address(self.ip)


class LoadBalancerPatch(Struct, frozen=True):
    """Changes only the given fields; tags are merged."""

    ports: tuple[Port, ...] | UnsetType = UNSET
    targets: tuple[Target, ...] | UnsetType = UNSET
    source_ranges: tuple[str, ...] | UnsetType = UNSET
    tags: dict[str, str] | UnsetType = UNSET
    session_affinity: Literal["None", "ClientIP"] | UnsetType = UNSET
    health_check: HealthCheck | UnsetType | None = UNSET

    def __post_init__(self) -> None:
        if self.ports is not UNSET:
            check_ports(self.ports)
        if self.source_ranges is not UNSET:
            check_ranges(self.source_ranges)


class TargetsBody(Struct, frozen=True):
    """Replaces all targets; tags are merged."""

    targets: tuple[Target, ...]
    tags: dict[str, str] | UnsetType = UNSET


class LoadBalancer(Struct, frozen=True):
    """A load balancer. `busy_until` (Unix seconds) and `next_state` are set while the cloud works on it; the next state
    "gone" means deletion."""

    id: str
    name: str
    region: str
    ip: str
    state: LoadBalancerState
    ports: tuple[Port, ...]
    targets: tuple[Target, ...]
    source_ranges: tuple[str, ...]
    tags: dict[str, str]
    session_affinity: Literal["None", "ClientIP"]
    health_check: HealthCheck | None
    created_at: float
    reason: str = ""
    busy_until: float | None = None
    next_state: Literal["active", "error", "gone"] | None = None
    mode: LoadBalancerMode = "proxy"


class RouteBody(Struct, frozen=True):
    """The body of a new route. `owner`: the cluster that owns the route, for clusters that share a network."""

    destination: str
    instance_id: str
    owner: str = ""

    def __post_init__(self) -> None:
        ip_network(self.destination)


class Route(Struct, frozen=True):
    """A route whose instance is gone remains as a blackhole until a client deletes it."""

    id: str
    region: str
    destination: str
    instance_id: str
    state: Literal["active", "blackhole"]
    owner: str = ""


class VolumeBody(Struct, frozen=True):
    name: Name
    zone: str = ""
    size_gb: Annotated[int, Meta(ge=1)] = 1


class Volume(Struct, frozen=True):
    id: str
    name: str
    region: str
    zone: str
    size_gb: int


def ip_address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        raise ValueError(f"{text!r} is not an IP address") from None


def ip_network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    try:
        return ipaddress.ip_network(text)
    except ValueError as error:
        raise ValueError(f"{text!r} is not a CIDR: {error}") from None


def check_ranges(ranges: tuple[str, ...]) -> None:
    for text in ranges:
        ip_network(text)


def check_ports(ports: tuple[Port, ...]) -> None:
    """Require at least one port, and no duplicates. Raises ValueError."""
    if not ports:
        raise ValueError("ports: at least one is required")
    seen = [(port.protocol, port.port) for port in ports]
    for protocol, number in seen:
        if seen.count((protocol, number)) > 1:
            raise ValueError(f"ports: duplicate {protocol} {number}")
