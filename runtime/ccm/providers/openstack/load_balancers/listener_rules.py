# SPDX-License-Identifier: Apache-2.0
"""The parts of a Service's load balancer in Octavia: listeners, pools, members and monitors. No I/O.

Names are exactly those of cloud-provider-openstack, so that either controller finds what the other one created.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from ccm.cloud import Backend, Backends, Port
from ccm.cloud.toolkit import backend_addresses
from ccm.cloud.toolkit.limited_members import Candidates, Choices
from ccm.cloud.toolkit.service_checks import nobody_serves

from .. import instance_rules
from .feature_rules import Features
from .load_balancer_owners import LONGEST, Mark
from .load_balancer_rules import DesiredLoadBalancer

XFF = "X-Forwarded-For"
NONE: frozenset[str] = frozenset()
#: For load balancers that may not have all Nodes as members: the members chosen so far. They are remembered, so that
#: little needs to be computed for each Service when a Node joins or leaves.
_CHOICES = Choices()


def part_name(kind: str, index: int, balancer: str) -> str:
    """Return the name of the listener, pool or monitor of the Service's port with this index; at most `LONGEST`
    characters."""
    return f"{kind}_{index}_{balancer}"[:LONGEST]


@dataclass(frozen=True)
class Member:
    """A node behind a port. `monitor_port`: the port for probes, None if it is `port`. `draining`: the node keeps its
    connections and gets no new ones. `weighs`: whether the Octavia provider supports weights; ovn does not."""

    name: str = field(compare=False)
    address: str
    port: int
    subnet_id: str = field(default="", compare=False)
    monitor_port: int | None = None
    draining: bool = False
    weighs: bool = field(default=False, compare=False)

    def body(self) -> dict[str, Any]:
        fields: dict[str, Any] = {"name": self.name, "address": self.address, "protocol_port": self.port}
        if self.subnet_id:
            fields["subnet_id"] = self.subnet_id
        if self.monitor_port is not None:
            fields["monitor_port"] = self.monitor_port
        if self.weighs:  # even the default, because a member keeps its weight if a request does not set it
            fields["weight"] = weight(self.draining)
        return fields


def weight(draining: bool) -> int:
    return 0 if draining else 1


@dataclass(frozen=True)
class Monitor:
    """The desired health monitor of a pool. `settings`: the changeable attributes, in the API's spelling; the type
    cannot change."""

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
        """Return the pool alone, without its members and monitor."""
        return {"name": self.name, "protocol": self.protocol, **self.settings}


@dataclass(frozen=True)
class Listener:
    name: str
    protocol: str
    port: int
    settings: Mapping[str, Any]
    pool: Pool

    def body(self) -> dict[str, Any]:
        """Return the listener alone, without its pool."""
        return {"name": self.name, "protocol": self.protocol, "protocol_port": self.port, **self.settings}

    def whole(self) -> dict[str, Any]:
        """Return the listener with all its parts, for creating a load balancer in one call."""
        pool = self.pool.body() | {"members": [member.body() for member in self.pool.members]}
        if self.pool.monitor is not None:
            pool["healthmonitor"] = self.pool.monitor.body()
        return self.body() | {"default_pool": pool}


def listeners(
    desired: DesiredLoadBalancer, backends: Sequence[Backend], member_subnet_id: str, features: Features
) -> tuple[Listener, ...]:
    """Return one listener for each port, in the order of the ports. Nodes that drain are left out if the provider
    supports no weights."""
    chosen = [
        (name, address, draining)
        for name, address, draining in _weighed(desired, backends)
        if features.weights or not draining
    ]
    return tuple(
        _listener(desired, index, port, chosen, member_subnet_id, features) for index, port in enumerate(desired.ports)
    )


def _listener(
    desired: DesiredLoadBalancer,
    index: int,
    port: Port,
    chosen: Sequence[tuple[str, str, bool]],
    subnet_id: str,
    features: Features,
) -> Listener:
    tcp = port.protocol == "TCP"
    protocol = port.protocol
    settings: dict[str, Any] = {"connection_limit": desired.connection_limit, "insert_headers": {}}
    if tcp and desired.tls:
        protocol, settings["default_tls_container_ref"] = "TERMINATED_HTTPS", desired.tls
    elif tcp and desired.x_forwarded_for:
        protocol = "HTTP"
    if tcp and desired.x_forwarded_for:
        settings["insert_headers"] = {XFF: "true"}
    if features.timeouts:
        settings |= desired.timeouts
    if features.acl:
        settings["allowed_cidrs"] = list(desired.allowed)
    settings["tags"] = [desired.name]
    inner = (desired.proxy or ("HTTP" if desired.tls or desired.x_forwarded_for else "TCP")) if tcp else protocol
    probe = _probe(desired, port, features)
    pool = Pool(
        part_name("pool", index, desired.name),
        inner,
        {
            "lb_algorithm": desired.method,
            "session_persistence": {"type": "SOURCE_IP"} if desired.affinity else None,
        },
        tuple(
            Member(name, address, port.node_port, subnet_id, probe, draining, features.weights)
            for name, address, draining in chosen
            if port.node_port  # 0 if the Service does not allocate node ports
        ),
        _monitor(desired, index, port, probe is not None),
    )
    return Listener(part_name("listener", index, desired.name), protocol, port.port, settings, pool)


def member_bodies(
    desired: DesiredLoadBalancer, backends: Sequence[Backend], port: Port, subnet_id: str, features: Features
) -> msgspec.Raw:
    """Return `Member.body` of each member of a port's pool, as a JSON array.

    With thousands of Services and members, most CPU time would go into creating and encoding them. So all Services
    share the JSON of the fields that depend on the Node. The port's fields are encoded once for all members.
    """
    nodes = Backends.of(backends).recent(
        ("openstack member heads", features.weights, *selection(desired)),
        lambda every: tuple(_heads(desired, every, features.weights)),
    )
    if not (len(nodes) > 1 and port.node_port):
        return msgspec.Raw(b"[]")
    rest = Member("", "", port.node_port, subnet_id, _probe(desired, port, features)).body()
    of_port = b"," + _json({key: value for key, value in rest.items() if key not in ("name", "address")}) + b"}"
    return msgspec.Raw(of_port.join(nodes))


def _heads(desired: DesiredLoadBalancer, backends: Sequence[Backend], weights: bool) -> Iterator[bytes]:
    """Yield the beginning of each object of a JSON array, with the fields that depend on the Node, then the end of the
    array. Joined by the rest of an object, these texts are the whole array. Without weights, members that drain are
    left out."""
    opening = b"[{"
    for name, address, draining in _weighed(desired, backends):
        if weights or not draining:
            by_weight = {"weight": weight(draining)} if weights else {}
            yield opening + _json({"name": name, "address": address, **by_weight})
            opening = b",{"
    yield b"]"


def _json(fields: Mapping[str, Any]) -> bytes:
    """Return the fields of a JSON object without its braces."""
    return msgspec.json.encode(fields)[1:-1]


def _probe(desired: DesiredLoadBalancer, port: Port, features: Features) -> int | None:
    """Return the port for probes, None if probes go to the port of each member."""
    return (desired.health_check_node_port or None) if desired.monitor and _probes_http(port, features) else None


def _probes_http(port: Port, features: Features) -> bool:
    return features.http_monitor and (port.protocol != "UDP" or features.udp_http_monitor)


def _monitor(desired: DesiredLoadBalancer, index: int, port: Port, http: bool) -> Monitor | None:
    if desired.monitor is None:
        return None
    settings: dict[str, Any] = dict(desired.monitor)
    kind = "UDP-CONNECT" if port.protocol == "UDP" else port.protocol
    if http:
        kind = "HTTP"
        settings |= {"url_path": "/healthz", "http_method": "GET", "expected_codes": "200"}
    return Monitor(part_name("monitor", index, desired.name), kind, settings)


def members_of(desired: DesiredLoadBalancer, backends: Sequence[Backend]) -> tuple[tuple[str, str], ...]:
    """Return (name, address) of each node that is a member, sorted by name. Services with equal selections share
    the result."""
    return Backends.of(backends).recent(
        ("openstack members", *selection(desired)),
        lambda every: tuple((backend.node_name, address) for address, backend in _chosen(desired, every).items()),
    )


def draining_of(desired: DesiredLoadBalancer, backends: Sequence[Backend]) -> frozenset[str]:
    """Return the addresses of the members that drain."""
    return backend_addresses.draining(_chosen(desired, backends)) if any(each.draining for each in backends) else NONE


def _weighed(desired: DesiredLoadBalancer, backends: Sequence[Backend]) -> Iterator[tuple[str, str, bool]]:
    draining = draining_of(desired, backends)
    for name, address in members_of(desired, backends):
        yield name, address, address in draining


def _chosen(desired: DesiredLoadBalancer, backends: Sequence[Backend]) -> Mapping[str, Backend]:
    """Return address -> node for the nodes that are members; at most `most_nodes` of them, if that is set."""
    if not desired.most_nodes:
        return backend_addresses.serving(backends, desired.family, desired.selector)

    def candidates(every: Backends) -> Candidates[str]:
        return Candidates(backend_addresses.serving(every, desired.family, desired.selector))

    shared = Backends.of(backends).recent(("openstack candidates", *_selected(desired)), candidates)
    return _CHOICES.limited(shared, desired.most_nodes, desired.name)


def nobody(desired: DesiredLoadBalancer, backends: Sequence[Backend]) -> tuple[str, ...]:
    """Return the warning about a load balancer without members although there are Nodes, () otherwise."""
    selector = "node-selector" if desired.selector else ""
    return nobody_serves(backends, members_of(desired, backends), selector, f"has an {desired.family} address")


def too_many(desired: DesiredLoadBalancer, backends: Sequence[Backend]) -> tuple[str, ...]:
    """Return a warning if the load balancer has more members than cloud.conf permits, and no node may be left out
    (`chooses_nodes`); () otherwise."""
    members = len(members_of(desired, backends)) * desired.pools
    if desired.chooses_nodes or not desired.max_members or members <= desired.max_members:
        return ()
    return (
        f"it has {members} members, more than max-members={desired.max_members} in cloud.conf. With "
        "externalTrafficPolicy: Local none is left out, because each node may have the only Pod: choose nodes with the "
        "annotation node-selector",
    )


def selection(desired: DesiredLoadBalancer) -> tuple[Hashable, ...]:
    """Return a key for results about members: load balancers with an equal key have the same Nodes as members, at the
    same addresses."""
    limit = (desired.most_nodes, desired.name) if desired.most_nodes else ()
    return *_selected(desired), limit


def _selected(desired: DesiredLoadBalancer) -> tuple[Hashable, ...]:
    """Return a key for results about candidates: load balancers with an equal key choose their members from the same
    Nodes, at the same addresses."""
    return desired.family, tuple(sorted(desired.selector.items(), key=str))


def served_at(desired: DesiredLoadBalancer, backends: Sequence[Backend], region: str) -> frozenset[tuple[str, str]]:
    """Return servers and their member addresses, without Nodes that are not servers of this region."""
    members = (
        (instance_rules.server_id(backend.provider_id, region), address)
        for address, backend in _chosen(desired, backends).items()
    )
    return frozenset((server, address) for server, address in members if server is not None)


def create_body(
    desired: DesiredLoadBalancer,
    new_listeners: Sequence[Listener],
    owner: Mark,
    subnet_id: str,
    vip_address: str,
    features: Features,
    second_subnet: str = "",
) -> dict[str, Any]:
    """Return the body that creates a load balancer. `subnet_id`: the VIP's, configured or discovered, "" if unknown;
    `new_listeners`: () to create them later. `second_subnet`: that of an additional VIP, "" for none."""
    body: dict[str, Any] = {
        "name": desired.name,
        "description": desired.description,
        "tags": [desired.name, str(owner)],
    }
    if desired.provider:
        body["provider"] = desired.provider
    if features.flavors and desired.flavor_id:
        body["flavor_id"] = desired.flavor_id
    if features.zones and desired.availability_zone:
        body["availability_zone"] = desired.availability_zone
    if desired.port_id:
        body["vip_port_id"] = desired.port_id
    else:
        if subnet_id:
            body["vip_subnet_id"] = subnet_id
        if desired.network_id:
            body["vip_network_id"] = desired.network_id
        if vip_address:
            body["vip_address"] = vip_address
    if second_subnet:
        body["additional_vips"] = [{"subnet_id": second_subnet}]
    if new_listeners:
        body["listeners"] = [each.whole() for each in new_listeners]
    return body
