# SPDX-License-Identifier: Apache-2.0
"""What Services may request: `allowed-annotations` and `allowed-load-balancer-ips` of `[LoadBalancer]`. No I/O.

A Service without a load balancer that requests more is refused, and the message names the key. A Service with a load
balancer keeps it: settings for new load balancers have no effect, and everything else stays as written. Permissions
never cause a deletion and never prevent one.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ccm.cloud import Invalid
from ccm.cloud.toolkit.annotation_reader import NAMED, Annotation

from ..annotations import BY_KEY, BY_NAME, PREFIX, TABLE, UUID
from ..settings_sections import DEFAULT, EVERY, EVERYWHERE, LoadBalancerSection

Row = Mapping[str, Any]

KEY = "allowed-annotations in [LoadBalancer] of cloud.conf"
ADDRESSES = "allowed-load-balancer-ips in [LoadBalancer] of cloud.conf"
TLS = f"{PREFIX}default-tls-container-ref"


def allowed(section: LoadBalancerSection) -> frozenset[str]:
    """Return the keys, with their prefix, of the annotations that Services may have."""
    keys: set[str] = set()
    for allowed_annotation in section.allowed_annotations:
        if allowed_annotation == EVERY:
            keys |= BY_KEY.keys()
        elif allowed_annotation == DEFAULT:
            keys |= {one.key for one in TABLE if not one.names_another}
        else:
            keys.add(BY_NAME[allowed_annotation].key)
    return frozenset(keys)


def denied(annotations: Iterable[str], section: LoadBalancerSection) -> tuple[Annotation, ...]:
    """Return the known annotations of a Service that it may not have."""
    known = [key for key in sorted(annotations) if key in BY_KEY]
    may = allowed(section) if known else frozenset()
    return tuple(BY_KEY[key] for key in known if key not in may)


def effective(annotations: Mapping[str, str], section: LoadBalancerSection) -> dict[str, str]:
    """Return the annotations without the forbidden ones that have an effect only on new load balancers (`for_new`)."""
    without = {each.key for each in denied(annotations, section) if each.for_new}
    return {key: value for key, value in annotations.items() if key not in without}


def named(annotations: Mapping[str, str], section: LoadBalancerSection) -> str:
    """Return the load balancer ID that the Service names, "" if it names none or may not name one."""
    text = effective(annotations, section).get(f"{PREFIX}load-balancer-id", "").strip().lower()
    return text if UUID.fullmatch(text) else ""


def check_new(annotations: Iterable[str], section: LoadBalancerSection) -> None:
    """Raises Invalid if a Service without a load balancer has an annotation that it may not have."""
    if refused := denied(annotations, section):
        raise Invalid(_refusal(refused))


def check_kept(
    annotations: Iterable[str], section: LoadBalancerSection, present_tls: Iterable[str], desired_tls: str
) -> None:
    """Raises Invalid if an annotation that the Service may not have would change its existing load balancer.

    `present_tls`: the certificates of the Service's own listeners. A certificate that is in use may stay.
    """
    denials = [each for each in denied(annotations, section) if not each.for_new]
    if desired_tls in set(present_tls):
        denials = [each for each in denials if each.key != TLS]
    if denials:
        raise Invalid(f"{_refusal(denials)}; the load balancer stays unchanged")


def _refusal(refused: Sequence[Annotation]) -> str:
    keys = ", ".join(each.key for each in refused[:NAMED])
    return f"annotation {keys}: {KEY} does not allow it: remove it, or ask the cluster's administrator"


def warning(annotations: Mapping[str, str], section: LoadBalancerSection, balancer_id: str) -> str:
    """Return the warning about a Service that has annotations that it may not have; "" if it has none.

    cloud-provider-openstack writes the ID of a Service's load balancer to the Service. If that ID is `balancer_id`,
    neither it nor the annotation of the address causes a warning.
    """
    allowed_once = f"{PREFIX}load-balancer-id", f"{PREFIX}load-balancer-address"
    keys = [
        each.key
        for each in denied(annotations, section)
        if not (each.key in allowed_once and annotations.get(allowed_once[0], "").strip().lower() == balancer_id)
    ]
    if not keys:
        return ""
    return f"{', '.join(keys[:NAMED])}: {KEY} does not allow it; it is ignored and the load balancer stays unchanged"


# Addresses


def may_have(address: str, section: LoadBalancerSection) -> bool:
    """Return whether a Service may request an address that it did not have before."""
    if not address:
        return True
    parsed = ipaddress.ip_address(address)
    return any(parsed in network for network in section.allowed_load_balancer_ips)


def may_have_others(section: LoadBalancerSection) -> bool:
    """Return whether a Service may take a free floating IP that was created for a Service of another name."""
    return set(EVERYWHERE) <= set(section.allowed_load_balancer_ips)


def refused_address(address: str) -> Invalid:
    return Invalid(
        f"loadBalancerIP: {ADDRESSES} does not allow {address}: remove it, or ask the cluster's administrator"
    )


def port_problem(
    port: Row, balancers: Iterable[Row], neighbours: Iterable[Row], floating: Row | None, project_id: str
) -> str:
    """Return why a port that a Service names with `port-id` cannot become its VIP; "" if it can.

    `neighbours`: the ports of its network. Machines that share an address, for example with keepalived, have it in
    their ports' allowed address pairs, and the port that reserves the address is not bound. `floating`: the port's
    floating IP.
    """
    addresses = {str(fixed.get("ip_address")) for fixed in port.get("fixed_ips") or ()}
    if project_id and port.get("project_id") not in (None, project_id):
        return "it belongs to another project"
    if port.get("device_id") or port.get("device_owner") or port.get("binding:host_id"):
        return f"{port.get('device_owner') or 'something'} uses it"
    if any(row.get("vip_port_id") == port["id"] for row in balancers):
        return "it is the VIP of a load balancer"
    if floating is not None:
        return f"it has the floating IP {floating.get('floating_ip_address')}"
    for neighbour in neighbours:
        pairs = {_single(str(pair.get("ip_address"))) for pair in neighbour.get("allowed_address_pairs") or ()}
        if neighbour.get("id") != port["id"] and addresses & pairs:
            return f"port {neighbour.get('id')} shares its address"
    return ""


def _single(address: str) -> str:
    """Return the address of a network with only one address, any other text unchanged."""
    text, _, length = address.partition("/")
    return text if length in ("", "32" if "." in text else "128") else address
