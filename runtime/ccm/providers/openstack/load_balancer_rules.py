# SPDX-License-Identifier: Apache-2.0
"""What a Service's load balancer should be in Octavia, and whose one is that is there. Pure.

Names and tags are those of cloud-provider-openstack, byte for byte, so that either controller finds what the other one
made. Beside them every Service that uses a load balancer has one tag of ours on it (`Mark`), which says for certain
whose it is and what was written last.
"""

from __future__ import annotations

import hashlib
import ipaddress
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from ccm.cloud import AddressType, Backend, Conflict, Ingress, Invalid, LoadBalancerSpec, Port

from .annotations import INTERNAL, PREFIX, Annotations, selector
from .config import LoadBalancerClass, LoadBalancerSection
from .floating_ips import FloatingWish

Row = Mapping[str, Any]

#: cloud-provider-openstack counts the Services that share a load balancer by this prefix of its tags.
SERVICE_PREFIX = "kube_service_"
MARK = "ccm:v1"
XFF = "X-Forwarded-For"
EVERYBODY = {"IPv4": "0.0.0.0/0", "IPv6": "::/0"}
#: Names of one and the same provider of Octavia's.
AMPHORA = ("amphora", "amphorav2", "octavia")
#: The longest name, description or tag.
LONGEST = 255


# Names


def load_balancer_name(cluster: str, namespace: str, name: str) -> str:
    return f"{SERVICE_PREFIX}{cluster}_{namespace}_{name}"[:LONGEST]


def part_name(kind: str, index: int, balancer: str) -> str:
    """Of the listener, pool or monitor of a Service's port, counted from 0."""
    return f"{kind}_{index}_{balancer}"[:LONGEST]


def description(cluster: str, namespace: str, name: str) -> str:
    return f"Kubernetes external service {namespace}/{name} from cluster {cluster}"[:LONGEST]


def cluster_tag(cluster: str) -> str:
    """A cluster's name as it stands in a Mark: without separators, and short enough."""
    quoted = quote(cluster, safe="")
    return quoted if len(quoted) <= 80 else f"sha256-{_digest(cluster, 24)}"


# Whose a load balancer is


@dataclass(frozen=True)
class Mark:
    """The tag that a Service has on its load balancer: `ccm:v1:CLUSTER:UID:NAME:FINGERPRINT:FLAGS`.

    `name`: a digest of the tag of cloud-provider-openstack's that belongs with it, so that both go when only the UID is
    known. `flags`: f, it has a floating IP; k, which is kept in the end; p, its address is a proxy's; h, the Service's
    status shows a host name.
    """

    cluster: str
    uid: str
    name: str
    fingerprint: str = ""
    flags: str = ""

    @classmethod
    def of(cls, spec: LoadBalancerSpec, fingerprint: str, flags: str = "") -> Mark:
        name = load_balancer_name(spec.cluster, spec.namespace, spec.name)
        return cls(cluster_tag(spec.cluster), spec.uid, _digest(name, 8), fingerprint, flags)

    @classmethod
    def parse(cls, tag: str) -> Mark | None:
        prefix, _, rest = tag.partition(f"{MARK}:")
        parts = rest.split(":")
        return cls(*parts) if not prefix and len(parts) == 5 else None

    def __str__(self) -> str:
        return ":".join((MARK, self.cluster, self.uid, self.name, self.fingerprint, self.flags))

    def is_of(self, cluster: str, uid: str) -> bool:
        return (self.cluster, self.uid) == (cluster_tag(cluster), uid)


def marks(row: Row) -> list[Mark]:
    return [mark for tag in row.get("tags") or () if (mark := Mark.parse(tag)) is not None]


def own_mark(row: Row, cluster: str, uid: str) -> Mark | None:
    return next((mark for mark in marks(row) if mark.is_of(cluster, uid)), None)


def foreign_marks(row: Row, uid: str) -> list[Mark]:
    """Those of other Services, of whatever cluster."""
    return [mark for mark in marks(row) if mark.uid != uid]


def service_tags(row: Row) -> list[str]:
    """Of all Services that use it, as cloud-provider-openstack tags them."""
    return [tag for tag in row.get("tags") or () if tag.startswith(SERVICE_PREFIX)]


def tags_with(row: Row, name: str, mark: Mark) -> list[str]:
    """All tags, with those of one Service as they should be."""
    others = [
        tag
        for tag in row.get("tags") or ()
        if tag != name
        and ((found := Mark.parse(tag)) is None or (found.cluster, found.uid) != (mark.cluster, mark.uid))
    ]
    return [*others, name, str(mark)]


def tags_without(row: Row, mark: Mark | None, name: str) -> list[str]:
    """All tags but those of one Service. `name`: its load balancer's name, where it is known.

    The tag of that name stays where the Mark of another Service of this name needs it.
    """
    needed = {each.name for each in marks(row) if mark is None or each.uid != mark.uid}
    return [
        tag
        for tag in row.get("tags") or ()
        if _digest(tag, 8) in needed
        or not (tag == name or (mark is not None and (tag == str(mark) or _digest(tag, 8) == mark.name)))
    ]


def is_known(row: Row, spec: LoadBalancerSpec, addresses: Iterable[str], chosen: str) -> bool:
    """Whether a load balancer that has the right name, and no Mark, was made for this very Service.

    Clusters that are all called "kubernetes" make load balancers of the same name, so the name alone proves nothing:
    the Service must have it in its status or annotations. `addresses`: those at which the load balancer is reached.
    """
    known = {each.ip for each in spec.ingress} | {spec.annotations.get(f"{PREFIX}load-balancer-address", "")}
    return row["id"] == chosen or bool((known - {""}) & set(addresses))


@dataclass(frozen=True)
class Choice:
    """Among all load balancers: the one of a Service, or those that have its name and may be.

    `owner`: it was made for this Service, and not for another one that shares it. `superfluous`: made for it, too, by a
    request whose answer was lost, and that was carried out after all.
    """

    row: Row | None = None
    owner: bool = True
    superfluous: tuple[Row, ...] = ()
    candidates: tuple[Row, ...] = ()


def choose(rows: Iterable[Row], spec: LoadBalancerSpec, *, to_delete: bool = False) -> Choice:
    """Raises Invalid when there is no load balancer of the ID that the user chose, Conflict when it has another one, or
    when that one is a namesake's.

    A Mark says it for sure; `to_delete`, nothing else counts then. Then the ID counts, which cloud-provider-openstack
    writes onto the Service; if it did, and that load balancer is gone, a new one is made. Then the name, unless it is
    another Service's Mark that is there.
    """
    names = {load_balancer_name(spec.cluster, spec.namespace, spec.name), spec.default_name} if spec.name else set()
    every = list(rows)
    marked = sorted(
        (row for row in every if own_mark(row, spec.cluster, spec.uid)),
        key=lambda row: (str(row.get("created_at") or ""), row["id"]),
    )
    chosen = spec.annotations.get(f"{PREFIX}load-balancer-id", "").strip()
    if chosen and not (marked and to_delete):
        row = next((row for row in every if row["id"] == chosen), None)
        if row is not None and any(each is not row for each in marked):
            raise Conflict(
                f"annotation {PREFIX}load-balancer-id: the Service is served by load balancer {marked[0]['id']} and "
                f"cannot move to {chosen}: delete it and create it again"
            )
        if row is not None:
            _refuse_a_namesakes(row, spec)
            return Choice(row, row.get("name") in names)
        if not marked and not to_delete and not spec.annotations.get(f"{PREFIX}load-balancer-address"):
            raise Invalid(f"annotation {PREFIX}load-balancer-id: there is no load balancer {chosen} in this project")
    if marked:
        mark = own_mark(marked[0], spec.cluster, spec.uid)
        return Choice(marked[0], mark is not None and is_owner(marked[0], mark), tuple(marked[1:]))
    return Choice(
        candidates=tuple(
            row
            for row in every
            if row.get("name") in names and not marks(row) and row.get("provisioning_status") != "PENDING_DELETE"
        )
    )


def _refuse_a_namesakes(row: Row, spec: LoadBalancerSpec) -> None:
    """Raises Conflict when a Service of the same cluster's name, namespace and name, and of another UID, uses it.

    Tags of listeners tell Services apart by these names, so that two namesakes would take each other's away. Of other
    names they share. cloud-provider-openstack leaves no Mark: what it made is the first one's who shows its ID.
    """
    name = _digest(load_balancer_name(spec.cluster, spec.namespace, spec.name), 8)
    for mark in foreign_marks(row, spec.uid):
        if mark.name == name:
            raise Conflict(
                f"annotation {PREFIX}load-balancer-id: load balancer {row['id']} is used by another Service called "
                f"{spec.namespace}/{spec.name} of a cluster called {spec.cluster!r}, of UID {mark.uid}: take the "
                "annotation off, or choose another --cluster-name; if that Service is no more, take its tag off the "
                f"load balancer: {mark}"
            )


def is_owner(row: Row, mark: Mark) -> bool:
    """Whether it was made for the Service with this Mark, of which we may know no more than the UID."""
    name = str(row.get("name") or "")
    return mark.name == _digest(name, 8) or name == default_name(mark.uid)


def default_name(uid: str) -> str:
    """The name that load balancers had before they were called by their Service."""
    return LoadBalancerSpec("", uid, "", "", ()).default_name


# What is wanted


@dataclass(frozen=True)
class Member:
    """A node behind a port. `monitor_port`: where it is probed, if not at `port`."""

    name: str = field(compare=False)
    address: str
    port: int
    subnet_id: str = field(default="", compare=False)
    monitor_port: int | None = None

    def body(self) -> dict[str, Any]:
        found: dict[str, Any] = {"name": self.name, "address": self.address, "protocol_port": self.port}
        if self.subnet_id:
            found["subnet_id"] = self.subnet_id
        if self.monitor_port is not None:
            found["monitor_port"] = self.monitor_port
        return found


@dataclass(frozen=True)
class Monitor:
    """`settings`: attributes as the API spells them, which can be changed; the type cannot."""

    name: str
    type: str
    settings: Mapping[str, Any]

    def body(self) -> dict[str, Any]:
        return {"name": self.name, "type": self.type, **self.settings}


@dataclass(frozen=True)
class Pool:
    name: str
    protocol: str
    settings: Mapping[str, Any]
    members: tuple[Member, ...]
    monitor: Monitor | None

    def body(self) -> dict[str, Any]:
        """Without what belongs to it."""
        return {"name": self.name, "protocol": self.protocol, **self.settings}


@dataclass(frozen=True)
class Listener:
    name: str
    protocol: str
    port: int
    settings: Mapping[str, Any]
    pool: Pool

    def body(self) -> dict[str, Any]:
        """Without its pool."""
        return {"name": self.name, "protocol": self.protocol, "protocol_port": self.port, **self.settings}

    def whole(self) -> dict[str, Any]:
        """With all that belongs to it, as a load balancer is created in one call."""
        pool = self.pool.body() | {"members": [member.body() for member in self.pool.members]}
        if self.pool.monitor is not None:
            pool["healthmonitor"] = self.pool.monitor.body()
        return self.body() | {"default_pool": pool}


@dataclass(frozen=True)
class Features:
    """What the API version and the provider can do."""

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
class Wish:
    """A Service's wish with cloud.conf and its class taken into account: no more questions but to the cloud.

    `load_balancer_id`: one that the user chose. `vip_address`: for a load balancer without floating IP.
    `floating`: None for one that is reached at its VIP.
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
    floating: FloatingWish | None
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
    given: frozenset[str] = field(repr=False)

    @property
    def allowed(self) -> tuple[str, ...]:
        return self.source_ranges or (EVERYBODY[self.family],)


def wish(spec: LoadBalancerSpec, section: LoadBalancerSection, classes: Mapping[str, LoadBalancerClass]) -> Wish:
    """Raises Invalid with all that is wrong with the Service."""
    said = Annotations(spec.annotations)
    problems = list(said.problems)
    chosen, name = LoadBalancerClass(), said.get("class", "")
    if name:
        if name in classes:
            chosen = classes[name]
        else:
            known = ", ".join(sorted(classes)) or "none"
            problems.append(
                f"annotation {PREFIX}class: there is no [LoadBalancerClass {name!r}] in cloud.conf: {known}"
            )
    if not spec.ports:
        problems.append("the Service has no ports")
    family = spec.ip_families[0] if spec.ip_families else "IPv4"
    internal = section.internal_lb or said.get(INTERNAL, False)
    proxy, forwarded = said.get("proxy-protocol", ""), said.get("x-forwarded-for", False)
    if proxy and forwarded:
        problems.append(f"annotations {PREFIX}proxy-protocol and {PREFIX}x-forwarded-for exclude each other")
    method = said.get("lb-method", section.lb_method)
    if section.lb_provider == "ovn":
        if said.given("lb-method") and method != "SOURCE_IP_PORT":
            problems.append(f"annotation {PREFIX}lb-method: the provider ovn takes SOURCE_IP_PORT only, not {method!r}")
        method = "SOURCE_IP_PORT"
    ranges = tuple(each for each in spec.source_ranges if ipaddress.ip_network(each).version == int(family[-1]))
    if spec.source_ranges and not ranges:
        problems.append(f"loadBalancerSourceRanges has no {family} range, and the load balancer's address is {family}")
    chosen_nodes = said.get("node-selector", selector(section.node_selector))
    monitor = None
    if said.get("enable-health-monitor", section.create_monitor):
        monitor = {
            "delay": said.get("health-monitor-delay", int(section.monitor_delay)),
            "timeout": said.get("health-monitor-timeout", int(section.monitor_timeout)),
            "max_retries": said.get("health-monitor-max-retries", section.monitor_max_retries),
            "max_retries_down": said.get("health-monitor-max-retries-down", section.monitor_max_retries_down),
        }
        if monitor["timeout"] > monitor["delay"]:
            problems.append(
                f"annotation {PREFIX}health-monitor-timeout: {monitor['timeout']} s is more than the delay between "
                f"two probes, {monitor['delay']} s"
            )
    if problems:
        raise Invalid("; ".join(problems))
    return Wish(
        name=load_balancer_name(spec.cluster, spec.namespace, spec.name),
        description=description(spec.cluster, spec.namespace, spec.name),
        family=family,
        internal=internal,
        load_balancer_id=said.get("load-balancer-id", ""),
        provider=section.lb_provider,
        flavor_id=said.get("flavor-id", section.flavor_id),
        availability_zone=said.get("availability-zone", section.availability_zone),
        network_id=chosen.network_id or said.get("network-id", "") or section.network_id,
        subnet_id=chosen.subnet_id or said.get("subnet-id", "") or section.subnet_id,
        port_id=said.get("port-id", ""),
        vip_address=spec.load_balancer_ip if internal or family == "IPv6" else "",
        member_subnet_id=said.get("member-subnet-id", "")
        or chosen.member_subnet_id
        or section.member_subnet_id
        or section.subnet_id
        or said.get("subnet-id", "")
        or chosen.subnet_id,
        floating=None if internal or family == "IPv6" else _floating(spec, said, chosen, section),
        keep_floating_ip=said.get("keep-floatingip", False),
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
        source_ranges=ranges,
        selector=chosen_nodes,
        ports=spec.ports,
        security_groups=section.manage_security_groups,
        given=frozenset(key.removeprefix(PREFIX) for key in spec.annotations),
    )


def _floating(
    spec: LoadBalancerSpec, said: Annotations, chosen: LoadBalancerClass, section: LoadBalancerSection
) -> FloatingWish:
    """Class, then annotation, then cloud.conf; an ID of a subnet goes before a pattern of the same place."""
    places = [
        (chosen.floating_subnet_id, chosen.floating_subnet, chosen.floating_subnet_tags),
        tuple(said.get(key, "") for key in ("floating-subnet-id", "floating-subnet", "floating-subnet-tags")),
        (section.floating_subnet_id, section.floating_subnet, section.floating_subnet_tags),
    ]
    subnet_id, pattern, tags = next((place for place in places if any(place)), ("", "", ""))
    return FloatingWish(
        network_id=chosen.floating_network_id or said.get("floating-network-id", section.floating_network_id),
        subnet_id=subnet_id,
        pattern="" if subnet_id else pattern,
        tags="" if subnet_id else tags,
        address=spec.load_balancer_ip,
        description=_floating_description(spec),
    )


def _floating_description(spec: LoadBalancerSpec) -> str:
    """As cloud-provider-openstack begins it, by which it knows those that may be deleted; ours has the UID, too."""
    text = f"Floating IP for Kubernetes external service {spec.namespace}/{spec.name} from cluster {spec.cluster}"
    uid = f" ({spec.uid})"
    return text[: LONGEST - len(uid)] + uid


def refused(want: Wish, features: Features) -> list[str]:
    """What this Octavia cannot do, and the Service asked for itself. What only cloud.conf says is `left_out`."""
    problems = []
    if want.source_ranges and not features.acl and not (want.provider == "ovn" and want.security_groups):
        way = ": set manage-security-groups in cloud.conf" if want.provider == "ovn" else ""
        problems.append(
            f"loadBalancerSourceRanges: this load balancer could be reached by everybody, {_cannot(want)}{way}"
        )
    for able, keys in (
        (features.flavors, ("flavor-id",)),
        (features.zones, ("availability-zone",)),
        (features.timeouts, tuple(key.replace("_", "-") for key in want.timeouts)),
    ):
        problems += [f"annotation {PREFIX}{key}: {_cannot(want)}" for key in keys if not able and key in want.given]
    return problems


def left_out(
    spec: LoadBalancerSpec,
    want: Wish,
    features: Features,
    section: LoadBalancerSection,
    classes: Mapping[str, LoadBalancerClass],
) -> list[str]:
    """A sentence for each thing that the Service goes without, although it or cloud.conf says it."""
    lacking = {
        "flavor-id": want.flavor_id if not features.flavors else "",
        "availability-zone": want.availability_zone if not features.zones else "",
    }
    found = [f"{key} of cloud.conf is left out: {_cannot(want)}" for key, value in lacking.items() if value]
    if len(spec.ip_families) > 1:
        found.append(
            f"the Service asks for {' and '.join(spec.ip_families)}, and is served with {want.family} alone: a load "
            "balancer has one address"
        )
    if want.family == "IPv6" and not want.internal:
        said = Annotations(spec.annotations)
        floating = _floating(spec, said, classes.get(said.get("class", ""), LoadBalancerClass()), section)
        if keys := floating.keys():
            found.append(
                f"{', '.join(keys)}: there are no floating IPs with IPv6, so the load balancer is reached at its own "
                "address"
            )
    return found


def kept(want: Wish, row: Row, features: Features) -> dict[str, str]:
    """Wishes that are for a new load balancer, and that this one was not made with: key -> what is wished, and is."""
    wishes = {
        "lb-provider": (want.provider, "provider"),
        "flavor-id": (want.flavor_id if features.flavors else "", "flavor_id"),
        "availability-zone": (want.availability_zone if features.zones else "", "availability_zone"),
        "port-id": (want.port_id, "vip_port_id"),
        "network-id": ("" if want.port_id else want.network_id, "vip_network_id"),
        "subnet-id": ("" if want.port_id else want.subnet_id, "vip_subnet_id"),
    }
    found = {}
    for key, (wished, attribute) in wishes.items():
        present = str(row.get(attribute) or "")
        same = wished == present or (key == "lb-provider" and {wished, present} <= set(AMPHORA))
        if wished and not same:
            found[key] = f"{wished} ({'it has ' + present if present else 'it has none'})"
    return found


def same_address(one: str, other: str) -> bool:
    """IPv6 is written in many ways."""
    try:
        return ipaddress.ip_address(one) == ipaddress.ip_address(other)
    except ValueError:
        return one == other


def _cannot(want: Wish) -> str:
    return f"Octavia's provider {want.provider or 'in use'}, or its API version, cannot do that"


# Its parts


def listeners(
    want: Wish, backends: Sequence[Backend], member_subnet_id: str, features: Features
) -> tuple[Listener, ...]:
    """One for each port, in their order."""
    chosen = members_of(want, backends)
    return tuple(
        _listener(want, index, port, chosen, member_subnet_id, features) for index, port in enumerate(want.ports)
    )


def _listener(
    want: Wish,
    index: int,
    port: Port,
    chosen: Sequence[tuple[str, str]],
    subnet_id: str,
    features: Features,
) -> Listener:
    tcp = port.protocol == "TCP"
    protocol = port.protocol
    settings: dict[str, Any] = {"connection_limit": want.connection_limit, "insert_headers": {}}
    if tcp and want.tls:
        protocol, settings["default_tls_container_ref"] = "TERMINATED_HTTPS", want.tls
    elif tcp and want.x_forwarded_for:
        protocol = "HTTP"
    if tcp and want.x_forwarded_for:
        settings["insert_headers"] = {XFF: "true"}
    if features.timeouts:
        settings |= want.timeouts
    if features.acl:
        settings["allowed_cidrs"] = list(want.allowed)
    settings["tags"] = [want.name]
    inner = (want.proxy or ("HTTP" if want.tls or want.x_forwarded_for else "TCP")) if tcp else protocol
    probe = want.health_check_node_port if want.monitor and _probes_http(port, features) else 0
    pool = Pool(
        part_name("pool", index, want.name),
        inner,
        {
            "lb_algorithm": want.method,
            "session_persistence": {"type": "SOURCE_IP"} if want.affinity else None,
        },
        tuple(
            Member(name, address, port.node_port, subnet_id, probe or None)
            for name, address in chosen
            if port.node_port  # 0 where the Service was told to have none
        ),
        _monitor(want, index, port, bool(probe)),
    )
    return Listener(part_name("listener", index, want.name), protocol, port.port, settings, pool)


def _probes_http(port: Port, features: Features) -> bool:
    return features.http_monitor and (port.protocol != "UDP" or features.udp_http_monitor)


def _monitor(want: Wish, index: int, port: Port, http: bool) -> Monitor | None:
    if want.monitor is None:
        return None
    settings: dict[str, Any] = dict(want.monitor)
    kind = "UDP-CONNECT" if port.protocol == "UDP" else port.protocol
    if http:
        kind = "HTTP"
        settings |= {"url_path": "/healthz", "http_method": "GET", "expected_codes": "200"}
    return Monitor(part_name("monitor", index, want.name), kind, settings)


def members_of(want: Wish, backends: Sequence[Backend]) -> list[tuple[str, str]]:
    """Names and addresses of the nodes that serve, by name: those that the selector chooses, at an address of the
    family, an InternalIP before an ExternalIP. Nodes without such an address cannot serve."""
    found: dict[str, str] = {}
    for backend in sorted(backends, key=lambda each: each.node_name):
        if not all(
            key in backend.labels and value in (None, backend.labels[key]) for key, value in want.selector.items()
        ):
            continue
        if address := node_address(backend, want.family):
            found.setdefault(address, backend.node_name)
    return [(name, address) for address, name in found.items()]


def node_address(backend: Backend, family: str) -> str:
    """The one that load balancers send to, "" without one."""
    for kind in (AddressType.INTERNAL_IP, AddressType.EXTERNAL_IP):
        for each in backend.addresses:
            if each.type is kind and (":" in each.address) == (family == "IPv6"):
                return each.address
    return ""


def create_body(
    want: Wish, wanted: Sequence[Listener], mark: Mark, subnet_id: str, vip_address: str, features: Features
) -> dict[str, Any]:
    """The whole load balancer. `subnet_id`: the VIP's, if it had to be found; `wanted`: empty, if its parts follow."""
    body: dict[str, Any] = {"name": want.name, "description": want.description, "tags": [want.name, str(mark)]}
    if want.provider:
        body["provider"] = want.provider
    if features.flavors and want.flavor_id:
        body["flavor_id"] = want.flavor_id
    if features.zones and want.availability_zone:
        body["availability_zone"] = want.availability_zone
    if want.port_id:
        body["vip_port_id"] = want.port_id
    else:
        if subnet_id:
            body["vip_subnet_id"] = subnet_id
        if want.network_id:
            body["vip_network_id"] = want.network_id
        if vip_address:
            body["vip_address"] = vip_address
    if wanted:
        body["listeners"] = [each.whole() for each in wanted]
    return body


# What is told


def ingress(want: Wish, address: str) -> tuple[Ingress, ...]:
    """What the Service's status should say.

    With the PROXY protocol connections of Pods must go through the load balancer, too: ipMode Proxy says so.
    """
    if want.hostname:
        return (Ingress(hostname=want.hostname),)
    if not address:
        return ()
    if want.suffix:
        return (Ingress(hostname=f"{address}.{want.suffix}"),)
    return (Ingress(ip=address, ip_mode="Proxy" if want.proxy else "VIP"),)


def fingerprint(spec: LoadBalancerSpec, section: LoadBalancerSection, classes: Mapping[str, LoadBalancerClass]) -> str:
    """Of all that the wish says but its backends. A Service that cannot be understood has one, too, which no load
    balancer carries. Families that are not served count, so that this is told when they are asked for."""
    try:
        return _digest(repr(wish(spec, section, classes)) + " ".join(spec.ip_families[1:]), 12)
    except Invalid as error:
        return f"!{_digest(str(error), 11)}"


def backends_fingerprint(chosen: Sequence[tuple[str, str]]) -> str:
    return _digest(json.dumps(list(chosen)), 12)


def _digest(text: str, length: int) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:length]
