# SPDX-License-Identifier: Apache-2.0
"""Computes the desired state of a Service's load balancer in Octavia. No I/O.

Names are exactly those of cloud-provider-openstack, so that either controller finds what the other one created.
`load_balancer_owners` and `sharing_rules` decide who owns an existing load balancer.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ccm.cloud import Ingress, Invalid, Kept, LoadBalancerSpec, Port
from ccm.cloud.toolkit.annotation_reader import selector
from ccm.cloud.toolkit.digests import NOT_COUNTED, desired_digest, digest
from ccm.cloud.toolkit.kept_settings import Setting, differences
from ccm.cloud.toolkit.service_checks import node_port_problem
from ccm.cloud.toolkit.untrusted_text import quoted

from ..annotations import INTERNAL, PREFIX, Annotations
from ..settings_sections import LoadBalancerClass, LoadBalancerSection
from . import permissions
from .floating_ips import DesiredFloatingIP
from .load_balancer_owners import LONGEST, load_balancer_name

Row = Mapping[str, Any]

EVERYBODY = {"IPv4": "0.0.0.0/0", "IPv6": "::/0"}
#: Hexadecimal digits of each half of a fingerprint, which shares a tag with much else.
DIGITS = 12
#: Names of the same Octavia provider.
AMPHORA = ("amphora", "amphorav2", "octavia")


def description(cluster: str, namespace: str, name: str) -> str:
    return f"Kubernetes external service {namespace}/{name} from cluster {cluster}"[:LONGEST]


# Desired state


@dataclass(frozen=True)
class Features:
    """What the API version and the provider support."""

    acl: bool = True
    timeouts: bool = True
    flavors: bool = True
    zones: bool = True
    http_monitor: bool = True
    udp_http_monitor: bool = True

    @classmethod
    def of(cls, version: tuple[int, int], provider: str) -> Features:
        full = provider != "ovn"
        return cls(
            acl=full and version >= (2, 12),
            timeouts=full and version >= (2, 1),
            flavors=full and version >= (2, 6),
            zones=full and version >= (2, 14),
            http_monitor=full,
            udp_http_monitor=full and version >= (2, 16),
        )


@dataclass(frozen=True)
class DesiredLoadBalancer:
    """A Service's desired state, including cloud.conf and its class: everything except what only the cloud knows.

    `provider`: for a new load balancer; `made_by`: the provider of an existing one. `load_balancer_id`: chosen by the
    user. `vip_address`: for a load balancer without floating IP. `floating`: None if clients use the VIP.
    `keep_balancer`: it outlives the Service. `take_back`: the name or ID of a kept one, "" for none. `max_members`: in
    all pools together, 0 for no limit; the members' own fingerprint shows it. `chooses_nodes`: a node may be left out,
    because each answers for all Pods.
    """

    name: str
    description: str
    family: str
    internal: bool
    load_balancer_id: str
    provider: str
    flavor_id: str
    availability_zone: str
    network_id: str
    subnet_id: str
    port_id: str
    vip_address: str
    member_subnet_id: str
    floating: DesiredFloatingIP | None
    floating_description: str
    keep_floating_ip: bool
    hostname: str
    suffix: str
    proxy: str
    x_forwarded_for: bool
    tls: str
    method: str
    connection_limit: int
    timeouts: Mapping[str, int]
    monitor: Mapping[str, int] | None
    health_check_node_port: int
    affinity: bool
    source_ranges: tuple[str, ...]
    selector: Mapping[str, str | None]
    ports: tuple[Port, ...]
    security_groups: bool
    given: frozenset[str] = field(metadata=NOT_COUNTED)
    protected: bool = False
    keep_balancer: bool = False
    take_back: str = ""
    made_by: str = field(default="", metadata=NOT_COUNTED)
    max_members: int = field(default=0, metadata=NOT_COUNTED)
    chooses_nodes: bool = field(default=True, metadata=NOT_COUNTED)

    @property
    def pools(self) -> int:
        """The number of pools with members."""
        return sum(1 for port in self.ports if port.node_port)

    @property
    def most_nodes(self) -> int:
        """The number of nodes that may be members, 0 for all."""
        if not (self.max_members and self.chooses_nodes):
            return 0
        return max(1, self.max_members // max(1, self.pools))

    @property
    def runs_on(self) -> str:
        """The Octavia provider whose features apply; "" for Octavia's default."""
        return self.made_by or self.provider

    @property
    def allowed(self) -> tuple[str, ...]:
        return self.source_ranges or (EVERYBODY[self.family],)


def desired_load_balancer(
    spec: LoadBalancerSpec,
    section: LoadBalancerSection,
    classes: Mapping[str, LoadBalancerClass],
    made_by: str = "",
    *,
    nodes_only: bool = False,
) -> DesiredLoadBalancer:
    """Compute the desired state. Raises Invalid with all problems of the Service.

    Annotations for new load balancers that the Service may not have are ignored. `made_by`: the Octavia provider of an
    existing load balancer; `section` names the one for new load balancers. `nodes_only`: only members change, so that
    only a problem with the choice of nodes matters.
    """
    given = permissions.effective(spec.annotations, section)
    said = Annotations(given)
    problems = list(said.problems)
    chosen, name = LoadBalancerClass(), said.get("class", "")
    if name:
        if name in classes:
            chosen = classes[name]
        else:
            known = ", ".join(sorted(classes)) or "none"
            problems.append(
                f"annotation {PREFIX}class: cloud.conf has no [LoadBalancerClass {quoted(name)}]; it has {known}"
            )
    if not spec.ports:
        problems.append("the Service has no ports")
    family = spec.ip_families[0] if spec.ip_families else "IPv4"
    internal = section.internal_lb or said.get(INTERNAL, False)
    proxy, forwarded = said.get("proxy-protocol", ""), said.get("x-forwarded-for", False)
    if proxy and forwarded:
        problems.append(f"annotations {PREFIX}proxy-protocol and {PREFIX}x-forwarded-for exclude each other")
    if spec.keep is Kept.ADDRESS and not said.get("keep-floatingip", True):
        problems.append(f"the Service asks to keep its address, and annotation {PREFIX}keep-floatingip says false")
    if spec.keep is Kept.ADDRESS and (internal or family == "IPv6"):
        problems.append("the Service asks to keep its address, and only floating IPs can be kept: it has none")
    if spec.take_back and "load-balancer-id" in {key.removeprefix(PREFIX) for key in given}:
        problems.append(
            f"the Service takes back a load balancer, and annotation {PREFIX}load-balancer-id names another"
        )
    method = said.get("lb-method", section.lb_method)
    if (made_by or section.lb_provider) == "ovn" and not said.given("lb-method"):
        method = "SOURCE_IP_PORT"
    address = ""
    try:
        address = _address(spec.load_balancer_ip, family)
    except ValueError:
        problems.append(f"loadBalancerIP: {quoted(spec.load_balancer_ip)} is not an {family} address")
    ranges = tuple(each for each in spec.source_ranges if ipaddress.ip_network(each).version == int(family[-1]))
    if spec.source_ranges and not ranges:
        problems.append(f"loadBalancerSourceRanges has no {family} range, but the load balancer's address is {family}")
    chosen_nodes = said.get("node-selector", selector(section.node_selector))
    monitor = None
    if said.get("enable-health-monitor", section.create_monitor):
        monitor = {
            "delay": said.get("health-monitor-delay", int(section.monitor_delay)),
            "timeout": said.get("health-monitor-timeout", int(section.monitor_timeout)),
            "max_retries": said.get("health-monitor-max-retries", section.monitor_max_retries),
            "max_retries_down": said.get("health-monitor-max-retries-down", section.monitor_max_retries_down),
        }
    if nodes_only:
        problems = said.problems_of("node-selector")
    if problems:
        raise Invalid("; ".join(problems))
    return DesiredLoadBalancer(
        name=load_balancer_name(spec.cluster, spec.namespace, spec.name),
        description=description(spec.cluster, spec.namespace, spec.name),
        family=family,
        internal=internal,
        load_balancer_id=said.get("load-balancer-id", ""),
        provider=section.lb_provider,
        flavor_id=said.get("flavor-id", section.flavor_id),
        availability_zone=said.get("availability-zone", section.availability_zone),
        network_id=_place("network", said, chosen, section, internal=internal),
        subnet_id=_place("subnet", said, chosen, section, internal=internal),
        port_id=said.get("port-id", ""),
        vip_address=address if internal or family == "IPv6" else "",
        member_subnet_id=said.get("member-subnet-id", "")
        or chosen.member_subnet_id
        or section.member_subnet_id
        or section.subnet_id
        or said.get("subnet-id", "")
        or chosen.subnet_id,
        floating=None if internal or family == "IPv6" else _floating(spec, address, said, chosen, section),
        floating_description=_floating_description(spec),
        keep_floating_ip=said.get("keep-floatingip", spec.keep is Kept.ADDRESS),
        protected=spec.protected,
        keep_balancer=spec.keep is Kept.LOAD_BALANCER,
        take_back=spec.take_back,
        hostname=said.get("hostname", ""),
        suffix=section.ingress_hostname_suffix if proxy and section.enable_ingress_hostname else "",
        proxy=proxy,
        x_forwarded_for=forwarded,
        tls=said.get("default-tls-container-ref", section.default_tls_container_ref),
        method=method,
        connection_limit=said.get("connection-limit", -1),
        timeouts={
            "timeout_client_data": said.get("timeout-client-data", 50000),
            "timeout_member_connect": said.get("timeout-member-connect", 5000),
            "timeout_member_data": said.get("timeout-member-data", 50000),
            "timeout_tcp_inspect": said.get("timeout-tcp-inspect", 0),
        },
        monitor=monitor,
        health_check_node_port=spec.health_check_node_port if spec.external_traffic_policy == "Local" else 0,
        affinity=spec.session_affinity == "ClientIP",
        source_ranges=() if any(ipaddress.ip_network(each).prefixlen == 0 for each in ranges) else ranges,
        selector=chosen_nodes,
        ports=spec.ports,
        security_groups=section.manage_security_groups,
        given=frozenset(key.removeprefix(PREFIX) for key in given),
        made_by=made_by,
        max_members=section.max_members,
        chooses_nodes=spec.external_traffic_policy != "Local",
    )


def slow_monitor(desired: DesiredLoadBalancer) -> str:
    """Return the warning about annotations with which a probe may still wait when the next one is due. Octavia takes
    them, as cloud-provider-openstack does."""
    if desired.monitor is None or not desired.given & {"health-monitor-timeout", "health-monitor-delay"}:
        return ""
    timeout, delay = desired.monitor["timeout"], desired.monitor["delay"]
    if timeout <= delay:
        return ""
    return (
        f"annotation {PREFIX}health-monitor-timeout: {timeout} s is more than the delay between two probes, {delay} s"
    )


def _place(
    kind: str, annotations: Annotations, chosen: LoadBalancerClass, section: LoadBalancerSection, *, internal: bool
) -> str:
    """Return the network or subnet of the VIP. As in cloud-provider-openstack, the class comes before the annotation,
    except for an internal load balancer."""
    of_class, annotated = str(getattr(chosen, f"{kind}_id")), str(annotations.get(f"{kind}-id", ""))
    first, second = (annotated, of_class) if internal else (of_class, annotated)
    return first or second or str(getattr(section, f"{kind}_id"))


def _address(text: str, family: str) -> str:
    """Return the address in one spelling; "" stays "". Raises ValueError if it is not an address of the family."""
    if not (text := text.strip()):
        return ""
    found = ipaddress.ip_address(text if len(text) <= 45 and "%" not in text else "")
    if found.version != int(family[-1]):
        raise ValueError(family)
    return str(found)


def _floating(
    spec: LoadBalancerSpec,
    address: str,
    annotations: Annotations,
    chosen: LoadBalancerClass,
    section: LoadBalancerSection,
) -> DesiredFloatingIP:
    """Use class, then annotation, then cloud.conf; within one of them, a subnet ID wins over a pattern."""
    places = [
        (chosen.floating_subnet_id, chosen.floating_subnet, chosen.floating_subnet_tags),
        tuple(annotations.get(key, "") for key in ("floating-subnet-id", "floating-subnet", "floating-subnet-tags")),
        (section.floating_subnet_id, section.floating_subnet, section.floating_subnet_tags),
    ]
    subnet_id, pattern, tags = next((place for place in places if any(place)), ("", "", ""))
    return DesiredFloatingIP(
        network_id=chosen.floating_network_id or annotations.get("floating-network-id", section.floating_network_id),
        subnet_id=subnet_id,
        pattern="" if subnet_id else pattern,
        tags="" if subnet_id else tags,
        address=address,
        description=_floating_description(spec),
        may_ask=permissions.may_have(address, section),
        may_take_others=permissions.may_have_others(section),
    )


def _floating_description(spec: LoadBalancerSpec) -> str:
    """Return the description. cloud-provider-openstack recognises its beginning; the UID at its end is ours."""
    text = f"Floating IP for Kubernetes external service {spec.namespace}/{spec.name} from cluster {spec.cluster}"
    uid = f" ({spec.uid})"
    return text[: LONGEST - len(uid)] + uid


def refused(desired: DesiredLoadBalancer, features: Features) -> list[str]:
    """Return what the Service requests but this Octavia does not support. See `left_out` for cloud.conf."""
    problems = []
    if problem := node_port_problem(desired.ports):
        problems.append(problem)
    if desired.runs_on == "ovn" and desired.method != "SOURCE_IP_PORT":
        problems.append(
            f"annotation {PREFIX}lb-method: the provider ovn supports only SOURCE_IP_PORT, not {desired.method!r}"
        )
    if desired.source_ranges and not features.acl and not (desired.runs_on == "ovn" and desired.security_groups):
        way = ": set manage-security-groups in cloud.conf" if desired.runs_on == "ovn" else ""
        problems.append(
            f"loadBalancerSourceRanges: the load balancer would be open to everybody, {_cannot(desired)}{way}"
        )
    for able, keys in (
        (features.flavors, ("flavor-id",)),
        (features.zones, ("availability-zone",)),
        (features.timeouts, tuple(key.replace("_", "-") for key in desired.timeouts)),
    ):
        problems += [
            f"annotation {PREFIX}{key}: {_cannot(desired)}" for key in keys if not able and key in desired.given
        ]
    return problems


def left_out(
    spec: LoadBalancerSpec,
    desired: DesiredLoadBalancer,
    features: Features,
    section: LoadBalancerSection,
    classes: Mapping[str, LoadBalancerClass],
) -> list[str]:
    """Return a sentence for each setting of the Service or of cloud.conf that has no effect for this Service."""
    unsupported = {
        "flavor-id": desired.flavor_id if not features.flavors else "",
        "availability-zone": desired.availability_zone if not features.zones else "",
    }
    found = [f"{key} of cloud.conf is ignored: {_cannot(desired)}" for key, value in unsupported.items() if value]
    if len(spec.ip_families) > 1:
        found.append(
            f"the Service requests {' and '.join(spec.ip_families)}, but gets only {desired.family}: a load balancer "
            "has one address"
        )
    if spec.external_traffic_policy == "Local" and desired.monitor is None:
        found.append(
            "externalTrafficPolicy is Local, but members are not probed: the load balancer also sends traffic to nodes "
            f"without a Pod of the Service, which drop it; set the annotation {PREFIX}enable-health-monitor to "
            '"true", or create-monitor in [LoadBalancer] of cloud.conf'
        )
    if desired.family == "IPv6" and not desired.internal:
        said = Annotations(permissions.effective(spec.annotations, section))
        floating = _floating(spec, "", said, classes.get(said.get("class", ""), LoadBalancerClass()), section)
        if keys := floating.keys():
            found.append(
                f"{', '.join(keys)}: floating IPs do not exist for IPv6, so the load balancer is reached at its own "
                "address"
            )
    return found


def kept(desired: DesiredLoadBalancer, row: Row, features: Features) -> dict[str, str]:
    """Return settings for new load balancers that this one was not created with: key -> desired and present value."""
    names = ("provider", "flavor_id", "availability_zone", "vip_port_id", "vip_network_id", "vip_subnet_id")
    present = {attribute: str(row.get(attribute) or "") for attribute in names}
    zone = desired.availability_zone if features.zones else ""
    if {desired.provider, present["provider"]} <= set(AMPHORA):  # two names of one
        present["provider"] = desired.provider
    return differences(
        {
            "lb-provider": Setting(desired.provider, present["provider"]),
            "flavor-id": Setting(desired.flavor_id if features.flavors else "", present["flavor_id"]),
            "availability-zone": Setting(zone, present["availability_zone"]),
            "port-id": Setting(desired.port_id, present["vip_port_id"]),
            "network-id": Setting("" if desired.port_id else desired.network_id, present["vip_network_id"]),
            "subnet-id": Setting("" if desired.port_id else desired.subnet_id, present["vip_subnet_id"]),
        }
    )


def same_address(one: str, other: str) -> bool:
    """Compare addresses by value: IPv6 has many spellings."""
    try:
        return ipaddress.ip_address(one) == ipaddress.ip_address(other)
    except ValueError:
        return one == other


def _cannot(desired: DesiredLoadBalancer) -> str:
    return f"Octavia's provider {desired.runs_on or 'in use'}, or its API version, does not support it"


# Status and fingerprints


def ingress(desired: DesiredLoadBalancer, address: str) -> tuple[Ingress, ...]:
    """Return the ingress for the Service's status.

    With the PROXY protocol, connections of Pods must also go through the load balancer, which ipMode Proxy ensures.
    """
    if desired.hostname:
        return (Ingress(hostname=desired.hostname),)
    if not address:
        return ()
    if desired.suffix:
        return (Ingress(hostname=f"{address}.{desired.suffix}"),)
    return (Ingress(ip=address, ip_mode="Proxy" if desired.proxy else "VIP"),)


def fingerprint(spec: LoadBalancerSpec, section: LoadBalancerSection, classes: Mapping[str, LoadBalancerClass]) -> str:
    """Return the fingerprint of the desired state without its backends.

    An invalid Service also has one, which no load balancer carries. It includes IP families that are not served, so
    that a request for them is noticed and reported.
    """
    try:
        return desired_digest([desired_load_balancer(spec, section, classes), spec.ip_families[1:]], DIGITS)
    except Invalid as error:
        return f"!{digest(str(error), DIGITS - 1)}"


def members_fingerprint(chosen: Sequence[tuple[str, str]]) -> str:
    return desired_digest(chosen, DIGITS)
