# SPDX-License-Identifier: Apache-2.0
"""Computes the desired state of a Service's load balancer in Octavia. No I/O.

Names are exactly those of cloud-provider-openstack, so that either controller finds what the other one created.
`load_balancer_owners` and `sharing_rules` decide who owns an existing load balancer.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ccm.cloud import Ingress, Invalid, Kept, LoadBalancerSpec, Port
from ccm.cloud.toolkit.annotation_reader import selector
from ccm.cloud.toolkit.digests import NOT_COUNTED, desired_digest, digest
from ccm.cloud.toolkit.untrusted_text import quoted

from ..annotations import INTERNAL, PREFIX, Annotations
from ..settings_sections import LoadBalancerClass, LoadBalancerSection
from . import permissions
from .floating_ips import DesiredFloatingIP
from .load_balancer_owners import LONGEST, load_balancer_name

Row = Mapping[str, Any]

EVERYBODY = {"IPv4": "0.0.0.0/0", "IPv6": "::/0"}
#: Hexadecimal digits of each half of a fingerprint. They are few, because a tag also has other fields.
DIGITS = 12
#: Annotations for the timeouts of listeners, with Octavia's defaults in milliseconds.
TIMEOUTS = {
    "timeout-client-data": 50000,
    "timeout-member-connect": 5000,
    "timeout-member-data": 50000,
    "timeout-tcp-inspect": 0,
}


def description(cluster: str, namespace: str, name: str) -> str:
    return f"Kubernetes external service {namespace}/{name} from cluster {cluster}"[:LONGEST]


# Desired state


@dataclass(frozen=True)
class DesiredLoadBalancer:
    """The load balancer that a Service, its class and cloud.conf request. Only `made_by` and `second` come from the
    cloud.

    `provider`: for a new load balancer; `made_by`: the provider of an existing one. `load_balancer_id`: chosen by the
    user. `vip_address`: for a load balancer without floating IP. `floating`: None if clients use the VIP.
    `keep_balancer`: the load balancer outlives the Service. `take_back`: the name or ID of a kept one, "" for none.
    `max_members`: in all pools together, 0 for no limit; it counts in the members' half of the fingerprint.
    `chooses_nodes`: whether nodes may be left out; they may if each node forwards to all Pods. `also`: the second
    family that the Service requests, "" for none. `second`: the second family that the load balancer has or gets, ""
    for none.
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
    also: str = field(default="", metadata=NOT_COUNTED)
    second: str = field(default="", metadata=NOT_COUNTED)
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
    def families(self) -> tuple[str, ...]:
        """The families of the load balancer's addresses."""
        return (self.family, self.second) if self.second else (self.family,)

    @property
    def allowed(self) -> tuple[str, ...]:
        return self.source_ranges or tuple(EVERYBODY[family] for family in self.families)


def desired_load_balancer(
    spec: LoadBalancerSpec,
    section: LoadBalancerSection,
    classes: Mapping[str, LoadBalancerClass],
    made_by: str = "",
    *,
    second: str = "",
    nodes_only: bool = False,
) -> DesiredLoadBalancer:
    """Compute the desired state. Raises Invalid with all problems of the Service.

    Annotations for new load balancers that the Service may not have are ignored. `made_by`: the Octavia provider of an
    existing load balancer; `section` names the one for new load balancers. `second`: the family of an additional VIP
    that exists or is possible, "" without one. `nodes_only`: only members change, so that only problems with the choice
    of nodes are raised.
    """
    effective = permissions.effective(spec.annotations, section)
    annotations = Annotations(effective)
    family = family_of(spec)
    internal = section.internal_lb or annotations.get(INTERNAL, False)
    floats = not internal and family != "IPv6"
    problems = (
        annotations.problems_of("node-selector")
        if nodes_only
        else [*annotations.problems, *_problems(spec, annotations, classes, second, floats=floats)]
    )
    if problems:
        raise Invalid("; ".join(problems))
    chosen = classes.get(annotations.get("class", ""), LoadBalancerClass())
    address = "" if nodes_only and _address_problem(spec) else _address(spec.load_balancer_ip, family)
    proxy = annotations.get("proxy-protocol", "")
    return DesiredLoadBalancer(
        name=load_balancer_name(spec.cluster, spec.namespace, spec.name),
        description=description(spec.cluster, spec.namespace, spec.name),
        family=family,
        internal=internal,
        load_balancer_id=annotations.get("load-balancer-id", ""),
        provider=section.lb_provider,
        flavor_id=annotations.get("flavor-id", section.flavor_id),
        availability_zone=annotations.get("availability-zone", section.availability_zone),
        network_id=_place("network", annotations, chosen, section, internal=internal),
        subnet_id=_place("subnet", annotations, chosen, section, internal=internal),
        port_id=annotations.get("port-id", ""),
        vip_address="" if floats else address,
        member_subnet_id=_member_subnet(annotations, chosen, section),
        floating=floating_ip(spec, address, annotations, chosen, section) if floats else None,
        floating_description=_floating_description(spec),
        keep_floating_ip=annotations.get("keep-floatingip", spec.keep is Kept.ADDRESS),
        protected=spec.protected,
        keep_balancer=spec.keep is Kept.LOAD_BALANCER,
        take_back=spec.take_back,
        hostname=annotations.get("hostname", ""),
        suffix=section.ingress_hostname_suffix if proxy and section.enable_ingress_hostname else "",
        proxy=proxy,
        x_forwarded_for=annotations.get("x-forwarded-for", False),
        tls=annotations.get("default-tls-container-ref", section.default_tls_container_ref),
        method=_method(annotations, section, made_by),
        connection_limit=annotations.get("connection-limit", -1),
        timeouts={key.replace("-", "_"): annotations.get(key, default) for key, default in TIMEOUTS.items()},
        monitor=_monitor(annotations, section),
        health_check_node_port=spec.health_check_node_port if spec.external_traffic_policy == "Local" else 0,
        affinity=spec.session_affinity == "ClientIP",
        source_ranges=limits(ranges_of(spec, (family, second)), 2 if second else 1),
        selector=annotations.get("node-selector", selector(section.node_selector)),
        ports=spec.ports,
        security_groups=section.manage_security_groups,
        given=frozenset(key.removeprefix(PREFIX) for key in effective),
        made_by=made_by,
        also=second_family_of(spec),
        second=second,
        max_members=section.max_members,
        chooses_nodes=spec.external_traffic_policy != "Local",
    )


def family_of(spec: LoadBalancerSpec) -> str:
    """Return the family of the VIP: the first that the Service names, IPv4 if it names none."""
    return spec.ip_families[0] if spec.ip_families else "IPv4"


def second_family_of(spec: LoadBalancerSpec) -> str:
    """Return the family of an additional VIP, "" if the Service names one family."""
    return next((each for each in spec.ip_families[1:] if each != family_of(spec)), "")


def _problems(
    spec: LoadBalancerSpec,
    annotations: Annotations,
    classes: Mapping[str, LoadBalancerClass],
    second: str,
    *,
    floats: bool,
) -> list[str]:
    """Return what is wrong with the Service, besides invalid annotations. `floats`: it gets a floating IP."""
    family, name, keeps_address = family_of(spec), annotations.get("class", ""), spec.keep is Kept.ADDRESS
    known = ", ".join(sorted(classes)) or "none"
    no_class = f"annotation {PREFIX}class: cloud.conf has no [LoadBalancerClass {quoted(name)}]; it has {known}"
    invalid_address = _address_problem(spec)
    problems = {
        no_class: name and name not in classes,
        "the Service has no ports": not spec.ports,
        f"annotations {PREFIX}proxy-protocol and {PREFIX}x-forwarded-for exclude each other": (
            annotations.get("proxy-protocol", "") and annotations.get("x-forwarded-for", False)
        ),
        f"the Service asks to keep its address, and annotation {PREFIX}keep-floatingip says false": (
            keeps_address and not annotations.get("keep-floatingip", True)
        ),
        "the Service asks to keep its address, but only floating IPs can be kept, and it has none": (
            keeps_address and not floats
        ),
        f"the Service takes back a load balancer, and annotation {PREFIX}load-balancer-id names another": (
            spec.take_back and annotations.is_set("load-balancer-id")
        ),
        invalid_address: invalid_address,
        f"loadBalancerSourceRanges has no {family} range, but the load balancer's address is {family}": (
            spec.source_ranges and not ranges_of(spec, (family, second))
        ),
    }
    return [problem for problem, applies in problems.items() if applies]


def _address_problem(spec: LoadBalancerSpec) -> str:
    family = family_of(spec)
    try:
        _address(spec.load_balancer_ip, family)
    except ValueError:
        return f"loadBalancerIP: {quoted(spec.load_balancer_ip)} is not an {family} address"
    return ""


def ranges_of(spec: LoadBalancerSpec, families: Sequence[str]) -> tuple[str, ...]:
    """Return the Service's source ranges of these IP families. An empty text in `families` stands for no family."""
    return tuple(each for each in spec.source_ranges if f"IPv{ipaddress.ip_network(each).version}" in families)


def limits(ranges: Sequence[str], families: int) -> tuple[str, ...]:
    """Return the ranges without those inside a range of all addresses; () if each family has a range of all addresses.
    `families`: the number of families. A family without a range admits nobody."""
    networks = {each: ipaddress.ip_network(each) for each in ranges}
    open_to = {network.version for network in networks.values() if network.prefixlen == 0}
    if len(open_to) == families:
        return ()
    return tuple(each for each, of in networks.items() if of.version not in open_to or of.prefixlen == 0)


def second_family(row: Row) -> str:
    """Return the IP family of a load balancer's additional VIP, "" if all its addresses are of one family."""
    other = "IPv4" if ":" in str(row.get("vip_address") or "") else "IPv6"
    return other if additional_vip(row, other) else ""


def additional_vip(row: Row, family: str) -> str:
    """Return the address of a family that a load balancer has in addition to its VIP, "" without one."""
    addresses = (str(each.get("ip_address") or "") for each in row.get("additional_vips") or ())
    return next((each for each in addresses if each and (":" in each) == (family == "IPv6")), "") if family else ""


def _method(annotations: Annotations, section: LoadBalancerSection, made_by: str) -> str:
    """Return the algorithm of the pools: the annotation's, else the only one that the provider ovn has, else that of
    cloud.conf."""
    if (made_by or section.lb_provider) == "ovn" and not annotations.is_set("lb-method"):
        return "SOURCE_IP_PORT"
    return str(annotations.get("lb-method", section.lb_method))


def _monitor(annotations: Annotations, section: LoadBalancerSection) -> dict[str, int] | None:
    """Return the health monitor of the pools; None if there is none."""
    if not annotations.get("enable-health-monitor", section.create_monitor):
        return None
    return {
        "delay": annotations.get("health-monitor-delay", int(section.monitor_delay)),
        "timeout": annotations.get("health-monitor-timeout", int(section.monitor_timeout)),
        "max_retries": annotations.get("health-monitor-max-retries", section.monitor_max_retries),
        "max_retries_down": annotations.get("health-monitor-max-retries-down", section.monitor_max_retries_down),
    }


def _member_subnet(annotations: Annotations, chosen: LoadBalancerClass, section: LoadBalancerSection) -> str:
    """Return the configured subnet of the members, else the configured subnet of the VIP, "" if there is neither."""
    own = annotations.get("member-subnet-id", "") or chosen.member_subnet_id or section.member_subnet_id
    return str(own or section.subnet_id or annotations.get("subnet-id", "") or chosen.subnet_id)


def _place(
    kind: str, annotations: Annotations, chosen: LoadBalancerClass, section: LoadBalancerSection, *, internal: bool
) -> str:
    """Return the ID of the VIP's network or subnet (`kind`): from the class, else the annotation, else cloud.conf. For
    an internal load balancer the annotation comes first, as in cloud-provider-openstack."""
    of_class, annotated = str(getattr(chosen, f"{kind}_id")), str(annotations.get(f"{kind}-id", ""))
    first, second = (annotated, of_class) if internal else (of_class, annotated)
    return first or second or str(getattr(section, f"{kind}_id"))


def _address(text: str, family: str) -> str:
    """Return the address in one spelling; "" stays "". Raises ValueError if it is not an address of the family."""
    if not (text := text.strip()):
        return ""
    address = ipaddress.ip_address(text if len(text) <= 45 and "%" not in text else "")
    if address.version != int(family[-1]):
        raise ValueError(family)
    return str(address)


def floating_ip(
    spec: LoadBalancerSpec,
    address: str,
    annotations: Annotations,
    chosen: LoadBalancerClass,
    section: LoadBalancerSection,
) -> DesiredFloatingIP:
    """Return the desired floating IP: from the class, else from annotations, else from cloud.conf. In each of these, a
    subnet ID takes precedence over a pattern and tags."""
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


def same_address(one: str, other: str) -> bool:
    """Return whether two addresses are equal in any spelling of IPv6. Texts that are no addresses must be identical."""
    try:
        return ipaddress.ip_address(one) == ipaddress.ip_address(other)
    except ValueError:
        return one == other


# Status and fingerprints


def ingress(desired: DesiredLoadBalancer, address: str, second: str = "") -> tuple[Ingress, ...]:
    """Return the ingress for the Service's status; () if there is neither a host name in the Service nor an address.
    `second`: the address of the other family, "" without one.

    With the PROXY protocol, connections of Pods must also go through the load balancer, which ipMode Proxy ensures.
    """
    if desired.hostname:
        return (Ingress(hostname=desired.hostname),)
    if not address:
        return ()
    if desired.suffix:
        return (Ingress(hostname=f"{address}.{desired.suffix}"),)
    return tuple(Ingress(ip=each, ip_mode="Proxy" if desired.proxy else "VIP") for each in (address, second) if each)


def fingerprint(spec: LoadBalancerSpec, section: LoadBalancerSection, classes: Mapping[str, LoadBalancerClass]) -> str:
    """Return the fingerprint of the desired state without its backends.

    An invalid Service has a fingerprint, too, but no load balancer ever has it. The fingerprint covers IP families that
    are not served, so that a request for them is noticed and reported.
    """
    try:
        others = sorted(ranges_of(spec, spec.ip_families[1:]))  # they count if there is an additional VIP
        whole = [desired_load_balancer(spec, section, classes), spec.ip_families[1:], *([others] if others else [])]
        return desired_digest(whole, DIGITS)
    except Invalid as error:
        return f"!{digest(str(error), DIGITS - 1)}"


def members_fingerprint(chosen: Sequence[tuple[str, str]], draining: Collection[str] = ()) -> str:
    """Return the members' half of the fingerprint. `draining`: the addresses of members that drain."""
    return desired_digest([chosen, sorted(draining)] if draining else chosen, DIGITS)
