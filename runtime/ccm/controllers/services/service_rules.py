# SPDX-License-Identifier: Apache-2.0
"""Decide what a Service requests from the cloud. No I/O.

`backend_rules` decides which Nodes serve it. docs/reference/parity.md, S1-S159 and W13-W20, lists upstream's behaviour
and where these rules differ.
"""

from __future__ import annotations

import dataclasses
import enum
import ipaddress
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from typing import Any

from ccm.base.text import quoted
from ccm.cloud import AddressType, Backend, Backends, Ingress, IngressPort, Kept, LoadBalancer, LoadBalancerSpec, Port
from ccm.engine.objects import IngressEntry, IngressPortStatus, Service

from ..shared.cache_rules import FINALIZER as FINALIZER
from ..shared.limits import PORTS, SOURCE_RANGES
from ..shared.rule_error import ServiceRuleError as ServiceRuleError
from . import keep_rules
from .class_rules import ServedClasses
from .comparison_rules import Compared
from .service_state import ServiceState

SOURCE_RANGES_ANNOTATION = "service.beta.kubernetes.io/load-balancer-source-ranges"
HEALTH_CHECK_PATH = "/healthz"
#: Number of Nodes that a message names.
_NAMED = 20
_IP = (AddressType.INTERNAL_IP, AddressType.EXTERNAL_IP)


def needs_cleanup(service: Service) -> bool:
    """Return whether a Service has our finalizer, and is being deleted or no longer wants a load balancer (S43-S46)."""
    return FINALIZER in service.metadata.finalizers and (
        service.metadata.deletion_timestamp is not None or service.spec.type != "LoadBalancer"
    )


def is_to_be_released(service: Service, classes: ServedClasses) -> bool:
    """Return whether a Service needs a cleanup by this controller, not by another one."""
    return needs_cleanup(service) and not classes.leave_alone(service)


def is_still_unwanted(cached: Service, live: Service, classes: ServedClasses) -> bool:
    """Return whether a read of a Service confirms what the cache shows: the same Service, and no load balancer."""
    return live.metadata.uid == cached.metadata.uid and (
        live.metadata.deletion_timestamp is not None or not classes.include(live)
    )


def wants_it_served(service: Service, classes: ServedClasses) -> bool:
    """Return whether this controller must maintain a load balancer for the Service."""
    return classes.include(service) and service.metadata.deletion_timestamp is None


def concerns_us(service: Service, classes: ServedClasses) -> bool:
    return classes.include(service) or is_to_be_released(service, classes)


def needs_update(old: Service, new: Service, classes: ServedClasses) -> bool:
    """Return whether a change of a Service requires a sync (S48-S62).

    While it needs a cleanup, every change does. Otherwise changes of labels, selector, status and
    internalTrafficPolicy do not, unless they remove our finalizer or all addresses.
    """
    was, concerned = concerns_us(old, classes), concerns_us(new, classes)
    if was != concerned or needs_cleanup(new) or lost_ours(old, new, classes):
        return True
    return concerned and _watched(old) != _watched(new)


def lost_ours(old: Service, new: Service, classes: ServedClasses) -> bool:
    """Return whether a Service that wants a load balancer lost our finalizer or all its addresses.

    This happens if etcd was restored, or if someone removed them.
    """
    if not classes.include(new):
        return False
    finalizer = FINALIZER in old.metadata.finalizers and FINALIZER not in new.metadata.finalizers
    return finalizer or (bool(old.status.load_balancer.ingress) and not new.status.load_balancer.ingress)


def _watched(service: Service) -> tuple[Any, ...]:
    spec = service.spec
    return (
        service.metadata.uid,
        service.metadata.annotations,
        spec.type,
        spec.load_balancer_class,
        spec.load_balancer_source_ranges,
        spec.ports,
        spec.session_affinity,
        spec.session_affinity_config,
        spec.load_balancer_ip,
        spec.external_ips,
        spec.external_traffic_policy,
        spec.health_check_node_port,
        len(spec.ip_families),
    )


def requests_only_local_traffic(service: Service) -> bool:
    """Return whether clients outside of the cluster reach only Pods on the Node that they connect to (S137-S143)."""
    return service.spec.type in ("LoadBalancer", "NodePort") and service.spec.external_traffic_policy == "Local"


def health_check(service: Service) -> tuple[str, int]:
    """Return path and node port that show whether a Node has Pods of this Service (S144-S148); ("", 0) if the Service
    has no such health check."""
    if service.spec.type != "LoadBalancer" or not requests_only_local_traffic(service):
        return "", 0
    return HEALTH_CHECK_PATH, service.spec.health_check_node_port


def load_balancer_spec(
    service: Service, cluster: str, *, needs_node_ports: bool = False, keeps: Collection[Kept] = tuple(Kept)
) -> LoadBalancerSpec:
    """Return the Service's desired load balancer in the terms of the contract. Raises ServiceRuleError if the Service
    breaks a rule.

    `needs_node_ports`: see `Cloud.needs_node_ports`. `keeps`: what the cloud can keep.
    """
    if len(service.spec.ports) > PORTS:
        raise ServiceRuleError(
            f"spec.ports: more than {PORTS} ports, the maximum for one load balancer: split it into several Services"
        )
    if needs_node_ports and (without := [str(port.port) for port in service.spec.ports if not port.node_port]):
        raise ServiceRuleError(
            f"spec.ports: no node port for {', '.join(without[:_NAMED])}, and load balancers of this cloud send "
            "traffic to node ports: set spec.allocateLoadBalancerNodePorts to true"
        )
    spec = _spec(service, cluster, source_ranges(service), load_balancer_ip(service))
    return dataclasses.replace(spec, **keep_rules.outliving(service.metadata.annotations, keeps))


#: Ranges that admit nobody, because no client has an address in them (RFC 919, RFC 6666).
NOBODY = ("255.255.255.255/32", "100::/128")


def tolerant_spec(service: Service, cluster: str) -> LoadBalancerSpec:
    """Return what to update the backends with if `load_balancer_spec` refuses the Service.

    It neither requests an address nor says what outlives the Service, because backends need neither. If a range cannot
    be read, nobody is admitted, because a provider that writes ranges with the backends must not open the load
    balancer.
    """
    try:
        ranges = source_ranges(service)
    except ServiceRuleError:
        ranges = NOBODY
    return _spec(service, cluster, ranges, "")


def _spec(service: Service, cluster: str, ranges: tuple[str, ...], address: str) -> LoadBalancerSpec:
    spec = service.spec
    affinity = (spec.session_affinity_config or {}).get("clientIP") or {}
    return LoadBalancerSpec(
        cluster=cluster,
        uid=service.metadata.uid,
        namespace=service.metadata.namespace,
        name=service.metadata.name,
        ports=tuple(
            Port(
                name=port.name,
                protocol=port.protocol or "TCP",
                port=port.port,
                node_port=port.node_port,
                app_protocol=port.app_protocol,
            )
            for port in spec.ports[:PORTS]
        ),
        annotations=dict(service.metadata.annotations),
        ip_families=tuple(spec.ip_families) or ("IPv4",),
        source_ranges=ranges,
        load_balancer_ip=address,
        session_affinity=spec.session_affinity or "None",
        session_affinity_timeout=affinity.get("timeoutSeconds"),
        external_traffic_policy=spec.external_traffic_policy or "Cluster",
        health_check_node_port=health_check(service)[1],
        ingress=tuple(
            Ingress(ip=entry.ip, hostname=entry.hostname, ip_mode=entry.ip_mode)
            for entry in service.status.load_balancer.ingress
        ),
    )


def deletion_spec(service: Service, cluster: str) -> LoadBalancerSpec:
    """Return a spec for the deletion, even if the Service breaks a rule, because a deletion needs only the identity and
    what to keep."""
    try:
        return load_balancer_spec(service, cluster)
    except ServiceRuleError:
        meta = service.metadata
        keep = keep_rules.readable_keep(meta.annotations)
        return LoadBalancerSpec(cluster, meta.uid, meta.namespace, meta.name, ports=(), keep=keep)


def not_believed(doubt: str) -> str:
    """Return why a Service is not released although the cloud has no load balancer for it, and what a person can do."""
    return (
        f"the cloud reports no load balancer for the Service, but that is not trusted, because {doubt}. This may be "
        "the wrong project, and the load balancer would stay, and cost money, in the right one. Check the project, the "
        "region and the filter in --cloud-config. If the load balancer is really gone, remove the finalizer "
        f"{FINALIZER} by hand"
    )


class Step(enum.Enum):
    """What is done next for a Service that wants a load balancer."""

    ADOPT = "the cloud's load balancer was already up to date at start: write nothing"
    ENSURE = "create the load balancer, or write all of it"
    UPDATE = "write only the backends"
    LOOK = "it is written: read whether the cloud is done"
    COMPARE = "the cloud is done: compare the load balancer with what was written"
    NOTHING = "the cloud is done: write nothing"


def next_step(
    state: ServiceState, fingerprint: Hashable, fingerprint_of: Callable[[Backends], Hashable], listed: str = ""
) -> Step:
    """Return the smallest step that brings the cloud to the desired state.

    `fingerprint`: that of what would be written to the cloud now; `fingerprint_of`: returns it for other backends.
    `listed`: the fingerprint in the cloud's listing at start, "" for none.
    """
    if state.written.fingerprint is None:
        return Step.ADOPT if listed and listed == fingerprint else Step.ENSURE
    if state.written.fingerprint != fingerprint or state.following.unconfirmed:
        return Step.UPDATE if state.written.fingerprint == fingerprint_of(state.written.backends) else Step.ENSURE
    if not state.polling.settled:
        return Step.LOOK
    return Step.COMPARE if state.comparing.due else Step.NOTHING


def works(service: Service, listed: LoadBalancer | None) -> bool:
    """Return whether the Service has an address of a load balancer that the cloud listed and some process has written,
    and is not being deleted. Only changes of the Service or of the Nodes since then may be missing.
    """
    written = listed is not None and bool(listed.fingerprint)
    return written and bool(service.status.load_balancer.ingress) and service.metadata.deletion_timestamp is None


def comparable(states: Mapping[str, ServiceState], classes: ServedClasses) -> list[Compared]:
    """Return the Services whose load balancer is ready and as this process last wrote or recognised it."""
    return [
        Compared(key, state.written.at, state.comparing.at)
        for key, state in states.items()
        if state.polling.settled and state.written.fingerprint is not None and classes.include(state.service)
    ]


def source_ranges(service: Service) -> tuple[str, ...]:
    """Return the CIDRs that may connect, normalised and without duplicates; () means all clients (S132-S136).

    The spec's field wins over the annotation. A range with all addresses of a family makes that family's other ranges
    redundant, so they are left out. 0.0.0.0/0 means all clients, as in upstream, unless there are IPv6 ranges without
    ::/0. Raises ServiceRuleError for text that is not a CIDR, and for more than `limits.SOURCE_RANGES`.
    """
    if service.spec.load_balancer_source_ranges:
        texts, where = list(service.spec.load_balancer_source_ranges), "spec.loadBalancerSourceRanges"
    else:
        where = f"annotation {SOURCE_RANGES_ANNOTATION}"
        annotation = service.metadata.annotations.get(SOURCE_RANGES_ANNOTATION, "").strip()
        texts = annotation.split(",") if annotation else []
    if len(texts) > SOURCE_RANGES:
        raise ServiceRuleError(
            f"{where}: more than {SOURCE_RANGES} CIDRs, the maximum for one Service: combine them into larger ones"
        )
    networks: dict[str, None] = {}
    for text in texts:
        try:
            networks[str(_network(text.strip()))] = None
        except ValueError as error:
            raise ServiceRuleError(f"{where}: {quoted(text)} is not a CIDR such as 10.0.0.0/8 ({error})") from None
    everywhere = {network for network in networks if network in ("0.0.0.0/0", "::/0")}
    if "0.0.0.0/0" in everywhere and all(network in everywhere or ":" not in network for network in networks):
        return ()
    open_families = {":" in each for each in everywhere}
    return tuple(network for network in networks if network in everywhere or (":" in network) not in open_families)


#: The longest CIDR in any spelling: an IPv6 address with an IPv4 address at its end (45 characters), a slash, 3 digits.
_LONGEST = 49


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    """Parse a CIDR. Raises ValueError, also without a prefix length and for a zone, which is local to a machine."""
    if len(text) > _LONGEST:
        raise ValueError(f"{len(text)} characters")
    if "/" not in text:
        raise ValueError("no prefix length")
    if "%" in text:
        raise ValueError("a zone")
    return ipaddress.ip_network(text, strict=False)


def load_balancer_ip(service: Service) -> str:
    """Return the address that the Service requests, "" for any, in the spelling that clouds use (RFC 5952).

    The API server accepts any text of any length there. Raises ServiceRuleError for text that is not an address, and
    for an IPv4-mapped IPv6 address, because providers compare addresses, and such an address equals none of theirs.
    """
    text = service.spec.load_balancer_ip
    if not text:
        return ""
    try:
        if len(text) > _LONGEST or "%" in text:
            raise ValueError
        address = ipaddress.ip_address(text)
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
            raise ValueError
    except ValueError:
        raise ServiceRuleError(f"spec.loadBalancerIP: {quoted(text)} is not an IP address such as 192.0.2.1") from None
    return str(address)


def without_family(spec: LoadBalancerSpec, chosen: Backends) -> tuple[str, ...]:
    """Return a warning if no backend has an address of a family of the Service: no traffic is served then.

    Return () otherwise, without backends, and if the addresses of a backend are unknown.
    """
    families = chosen.once("families", _families)
    if not families or families & set(spec.ip_families):
        return ()
    requested, present = " and ".join(spec.ip_families), " and ".join(sorted(families))
    return (
        f"no traffic is served: the Service has the family {requested}, and the Nodes have only {present} addresses",
    )


def _families(chosen: Backends) -> frozenset[str]:
    if not all(backend.addresses for backend in chosen):
        return frozenset()
    texts = (each.address for backend in chosen for each in backend.addresses if each.type in _IP)
    return frozenset("IPv6" if ":" in text else "IPv4" for text in texts)


def some_names(chosen: Sequence[Backend]) -> str:
    """Return the Nodes' names for a message; only the first ones if there are many."""
    names = ", ".join(backend.node_name for backend in chosen[:_NAMED])
    return f"[{names}]" if len(chosen) <= _NAMED else f"[{names}, ... ({len(chosen)} in total)]"


def ingress_wire(ingress: Sequence[Ingress]) -> list[dict[str, Any]]:
    """Return `status.loadBalancer.ingress` in wire form, with ipMode set where the API server would default it."""
    entries = []
    for one in ingress:
        entry: dict[str, Any] = {}
        if one.ip:
            entry |= {"ip": one.ip, "ipMode": one.ip_mode or "VIP"}
        if one.hostname:
            entry["hostname"] = one.hostname
        if one.ports:
            entry["ports"] = [_port_wire(port) for port in one.ports]
        entries.append(entry)
    return entries


def release_patch(service: Service, ours: Sequence[Ingress], classes: ServedClasses) -> dict[str, Any]:
    """Return what removes our addresses and finalizer from a Service, {} if it has none of them.

    `ours`: the addresses of our load balancer. If another controller serves the Service, only these are removed, and
    the finalizer, whose name all controllers share, stays while other addresses are left. Otherwise all addresses and
    the finalizer are removed; also if the Service is being deleted and no classes are declared, because the other
    controller might then never release it.
    """
    meta, entries = service.metadata, service.status.load_balancer.ingress
    own = {text for entry in ours for text in (entry.ip, entry.hostname) if text}
    is_shared = classes.exclude(service) and (classes.are_declared or meta.deletion_timestamp is None)
    left = [entry for entry in entries if not own & {entry.ip, entry.hostname}] if is_shared else []
    patch: dict[str, Any] = {}
    if len(left) < len(entries):
        patch["status"] = {"loadBalancer": {"ingress": [_entry_wire(each) for each in left]} if left else None}
    if FINALIZER in meta.finalizers and not left:
        kept = [finalizer for finalizer in meta.finalizers if finalizer != FINALIZER]
        patch["metadata"] = {"finalizers": kept or None, "resourceVersion": meta.resource_version}
    return patch


def _entry_wire(entry: IngressEntry) -> dict[str, Any]:
    wire: dict[str, Any] = {}
    if entry.ip:
        wire |= {"ip": entry.ip, "ipMode": entry.ip_mode or "VIP"}
    if entry.hostname:
        wire["hostname"] = entry.hostname
    if entry.ports:
        wire["ports"] = [_port_wire(port) for port in entry.ports]
    return wire


def _port_wire(port: IngressPort | IngressPortStatus) -> dict[str, Any]:
    return {"port": port.port, "protocol": port.protocol, **({"error": port.error} if port.error else {})}


def same_ingress(current: Sequence[IngressEntry], desired: Sequence[dict[str, Any]]) -> bool:
    """Return whether the status already equals the result of `ingress_wire` (W20: a missing ipMode means VIP)."""
    return [_entry_wire(entry) for entry in current] == list(desired)
