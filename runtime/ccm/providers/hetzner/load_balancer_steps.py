# SPDX-License-Identifier: Apache-2.0
"""Compares a load balancer with its desired state, and returns the API calls that are still needed, in order. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ccm.cloud.toolkit.kept_load_balancers import PROTECTED

from .load_balancer_owners import flags
from .load_balancer_rules import DEFAULT_TYPE, INTERVAL, RETRIES, TIMEOUT, DesiredState, Row, present_targets

#: How many targets the smallest type has room for.
SMALLEST = 25


@dataclass(frozen=True)
class Change:
    """One call. `what`: a sentence about the difference. `settles`: whether traffic flows while the action runs, so
    that a write that ends with this call need not wait."""

    action: str
    body: Any
    what: str
    settles: bool = False


def capacity(row: Row) -> int:
    """Return how many targets may be servers or label selectors: the type's maximum minus the IP targets, which are
    left alone."""
    ips = sum(1 for each in row["targets"] if each["type"] == "ip")
    return max(0, int(row["load_balancer_type"]["max_targets"]) - ips)


def changes(row: Row, desired: DesiredState, servers: Sequence[int], network: int) -> list[Change]:
    """Return all calls that are still needed, in order. `servers`: at most `capacity` of them. `network`: the ID, 0
    without one."""
    return [
        *_names(row, desired),
        *_settings(row, desired),
        *_networks(row, desired, network),
        *_services(row, desired),
        *_targets(row, desired, servers),
        *protection(row, desired.protected),
    ]


def to_leave(row: Row) -> list[Change]:
    """Return all calls for a load balancer that is kept without its Service. They remove its targets, and the
    protection that the Service asked for."""
    servers, selectors = present_targets(row)
    return [
        *(_removed(_selector(selector), f"selector {selector!r}") for selector in sorted(selectors)),
        *(_removed(_server(server), f"server {server}") for server in sorted(servers)),
        *protection(row, False),
    ]


def in_one_call(desired: DesiredState) -> bool:
    """Return whether the call that creates the load balancer can contain everything. An address or a subnet of the
    private network, reverse names, and protection can be set only afterwards."""
    return not (desired.private_ipv4 or desired.subnet or desired.protected) and desired.reverse == (None, None)


def create_body(
    desired: DesiredState, servers: Sequence[int], network: int, labels: Mapping[str, str]
) -> dict[str, Any]:
    """Return the body of the call that creates the load balancer, with all that the API accepts in it
    (`in_one_call`)."""
    later = bool(desired.private_ipv4 or desired.subnet)
    body: dict[str, Any] = {
        "name": desired.name,
        "load_balancer_type": desired.type or DEFAULT_TYPE,
        "labels": dict(labels),
        "services": [complete(service) for service in desired.all_services],
        "targets": [] if later and desired.private_ip else target_bodies(desired, servers),
    }
    if desired.location:
        body["location"] = desired.location
    else:
        body["network_zone"] = desired.zone
    if desired.algorithm:
        body["algorithm"] = {"type": desired.algorithm}
    if desired.public is not None:
        body["public_interface"] = desired.public
    if network and not later:
        body["network"] = network
    return body


def target_bodies(desired: DesiredState, servers: Sequence[int]) -> list[dict[str, Any]]:
    if desired.label_selector:
        return [_selector(desired.label_selector) | {"use_private_ip": desired.private_ip}]
    return [_server(each) | {"use_private_ip": desired.private_ip} for each in servers]


def complete(service: Mapping[str, Any]) -> dict[str, Any]:
    """Return a new service, with the cloud's defaults where the Service sets nothing."""
    check = {"interval": INTERVAL, "timeout": TIMEOUT, "retries": RETRIES, **service["health_check"]}
    if "http" in check:
        check["http"] = {"domain": "", "path": "/", **check["http"]}
    return {"proxyprotocol": False, **service, "health_check": check}


def _names(row: Row, desired: DesiredState) -> Iterator[Change]:
    public = row["public_net"]
    for kind, name in zip(("ipv4", "ipv6"), desired.reverse, strict=True):
        if name is not None and (public[kind].get("dns_ptr") or "") != name:
            body = {"ip": public[kind]["ip"], "dns_ptr": name or None}
            yield Change("change_dns_ptr", body, f"the reverse name of {public[kind]['ip']} is not {name!r}")


def _settings(row: Row, desired: DesiredState) -> Iterator[Change]:
    if desired.algorithm and row["algorithm"]["type"] != desired.algorithm:
        yield Change("change_algorithm", {"type": desired.algorithm}, f"the algorithm is not {desired.algorithm}")
    if desired.type and row["load_balancer_type"]["name"] != desired.type:
        yield Change("change_type", {"load_balancer_type": desired.type}, f"the type is not {desired.type}")


def protection(row: Row, protected: bool) -> Iterator[Change]:
    """Yield the call that switches protection on or off. Protection that a person set stays; the mark then has no
    letter for it."""
    is_on = bool(row["protection"]["delete"])
    if protected and not is_on:
        yield Change("change_protection", {"delete": True}, "it is not protected against deletion")
    elif is_on and not protected and PROTECTED in flags(row):
        yield Change("change_protection", {"delete": False}, "it is protected against deletion")


def _networks(row: Row, desired: DesiredState, network: int) -> Iterator[Change]:
    """Yield the calls that move the load balancer to the configured network, and that switch its public interface.
    Without a configured network, the load balancer stays in its networks."""
    attached = False
    for interface in row["private_net"] if network else ():
        if interface["network"] == network and desired.private_ipv4 in ("", interface["ip"]):
            attached = True
        else:
            yield Change(
                "detach_from_network",
                {"network": interface["network"]},
                f"it is in network {interface['network']} as {interface['ip']}",
            )
    if network and not attached:
        body: dict[str, Any] = {"network": network}
        if desired.private_ipv4:
            body["ip"] = desired.private_ipv4
        if desired.subnet:
            body["ip_range"] = desired.subnet
        yield Change("attach_to_network", body, f"it is not in network {network}")
    if desired.public is not None and row["public_net"]["enabled"] is not desired.public:
        action = "enable_public_interface" if desired.public else "disable_public_interface"
        yield Change(action, None, f"the public interface is {'off' if desired.public else 'on'}")


def _services(row: Row, desired: DesiredState) -> Iterator[Change]:
    present = {int(each["listen_port"]): each for each in row["services"]}
    for service in desired.all_services:
        port = service["listen_port"]
        if port not in present:
            yield Change("add_service", complete(service), f"port {port} is missing")
        elif differs(service, present[port]):
            yield Change("update_service", service, f"port {port} has other values")
    for port in sorted(present.keys() - {service["listen_port"] for service in desired.all_services}):
        yield Change("delete_service", {"listen_port": port}, f"port {port} is superfluous")


def differs(desired: Any, present: Any) -> bool:
    """Return whether `present` differs from `desired`. Keys that `desired` does not have are ignored."""
    if isinstance(desired, Mapping):
        return not isinstance(present, Mapping) or any(differs(desired[key], present.get(key)) for key in desired)
    if isinstance(desired, list):
        return not isinstance(present, list) or sorted(map(str, desired)) != sorted(map(str, present))
    return bool((desired or None) != (present or None))


def _targets(row: Row, desired: DesiredState, servers: Sequence[int]) -> Iterator[Change]:
    """Yield the calls for targets. As far as there is room, new servers are added before superfluous ones are removed,
    so that the Service keeps a target."""
    present, selectors = present_targets(row)
    if desired.label_selector and selectors.get(desired.label_selector) is not desired.private_ip:
        if desired.label_selector in selectors:
            yield _removed(_selector(desired.label_selector), f"selector {desired.label_selector!r}")
        yield _added(_selector(desired.label_selector), desired, f"selector {desired.label_selector!r}")
    for other in sorted(selectors.keys() - {desired.label_selector}):
        yield _removed(_selector(other), f"selector {other!r}")
    wrong = [server for server in servers if present.get(server, desired.private_ip) is not desired.private_ip]
    for id_ in wrong:
        yield _removed(_server(id_), f"server {id_}")
        yield _added(_server(id_), desired, f"server {id_}")
    missing = [server for server in servers if server not in present]
    room = max(0, capacity(row) - len(present) - len(selectors))
    for id_ in missing[:room]:
        yield _added(_server(id_), desired, f"server {id_}")
    for server in sorted(present.keys() - set(servers)):
        yield _removed(_server(server), f"server {server}")
    for id_ in missing[room:]:
        yield _added(_server(id_), desired, f"server {id_}")


def _server(server: int) -> dict[str, Any]:
    return {"type": "server", "server": {"id": server}}


def _selector(selector: str) -> dict[str, Any]:
    return {"type": "label_selector", "label_selector": {"selector": selector}}


def _added(target: dict[str, Any], desired: DesiredState, name: str) -> Change:
    body = target | {"use_private_ip": desired.private_ip}
    return Change("add_target", body, f"{name} is not a target", settles=True)


def _removed(target: dict[str, Any], name: str) -> Change:
    return Change("remove_target", target, f"{name} is a target with other settings, or superfluous", settles=True)
