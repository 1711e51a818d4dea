# SPDX-License-Identifier: Apache-2.0
"""What Services may ask for: `allowed-annotations` and `allowed-load-balancer-ips` of `[LoadBalancer]`. Pure.

A Service that has no load balancer yet is refused, with the name of the key. One that has a load balancer keeps it:
what is for new load balancers has no effect, and all else stays as it was written. Nothing is ever deleted, and no
deletion is refused, because of a permission.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ccm.cloud import Invalid
from ccm.cloud.toolkit.annotation_reader import NAMED, Annotation

from .annotations import BY_KEY, BY_NAME, PREFIX, TABLE, UUID
from .config_sections import DEFAULT, EVERY, EVERYWHERE, LoadBalancerSection

Row = Mapping[str, Any]

KEY = "allowed-annotations in [LoadBalancer] of cloud.conf"
ADDRESSES = "allowed-load-balancer-ips in [LoadBalancer] of cloud.conf"
TLS = f"{PREFIX}default-tls-container-ref"


def allowed(section: LoadBalancerSection) -> frozenset[str]:
    """Whole keys of the annotations that Services may have."""
    found: set[str] = set()
    for each in section.allowed_annotations:
        if each == EVERY:
            found |= BY_KEY.keys()
        elif each == DEFAULT:
            found |= {one.key for one in TABLE if not one.names_another}
        else:
            found.add(BY_NAME[each].key)
    return frozenset(found)


def denied(given: Iterable[str], section: LoadBalancerSection) -> tuple[Annotation, ...]:
    """Those of a Service's annotations that mean something and that it may not have."""
    may = allowed(section)
    return tuple(BY_KEY[key] for key in sorted(given) if key in BY_KEY and key not in may)


def effective(given: Mapping[str, str], section: LoadBalancerSection) -> dict[str, str]:
    """The annotations without those that are for a new load balancer and that the Service may not have."""
    without = {each.key for each in denied(given, section) if each.for_new}
    return {key: value for key, value in given.items() if key not in without}


def named(given: Mapping[str, str], section: LoadBalancerSection) -> str:
    """The load balancer that the Service names by its ID, "" where it names none, or may name none."""
    text = effective(given, section).get(f"{PREFIX}load-balancer-id", "").strip().lower()
    return text if UUID.fullmatch(text) else ""


def check_new(given: Iterable[str], section: LoadBalancerSection) -> None:
    """Raises Invalid when a Service without a load balancer has an annotation that it may not have."""
    if found := denied(given, section):
        raise Invalid(_refusal(found))


def check_kept(given: Iterable[str], section: LoadBalancerSection, present_tls: Iterable[str], wanted_tls: str) -> None:
    """Raises Invalid when the wish of a Service that has a load balancer would change it by what it may not have.

    `present_tls`: the certificates that the Service's own listeners have. The one that is there may stay.
    """
    found = [each for each in denied(given, section) if not each.for_new]
    if wanted_tls in set(present_tls):
        found = [each for each in found if each.key != TLS]
    if found:
        raise Invalid(f"{_refusal(found)}; the load balancer stays as it is")


def _refusal(found: Sequence[Annotation]) -> str:
    keys = ", ".join(each.key for each in found[:NAMED])
    return f"annotation {keys}: {KEY} does not allow it: take it off, or ask who runs the cluster"


def warning(given: Mapping[str, str], section: LoadBalancerSection, balancer_id: str) -> str:
    """What to report of a Service that is served and has annotations that it may not have; "" without any.

    cloud-provider-openstack writes the ID of its own load balancer onto each Service: that is not worth a word.
    """
    said = f"{PREFIX}load-balancer-id", f"{PREFIX}load-balancer-address"
    keys = [
        each.key
        for each in denied(given, section)
        if not (each.key in said and given.get(said[0], "").strip().lower() == balancer_id)
    ]
    if not keys:
        return ""
    return f"{', '.join(keys[:NAMED])}: {KEY} does not allow it; the load balancer stays as it is, whatever it says"


# Addresses


def may_have(address: str, section: LoadBalancerSection) -> bool:
    """Whether a Service may ask for an address that nobody gave it before."""
    if not address:
        return True
    parsed = ipaddress.ip_address(address)
    return any(parsed in network for network in section.allowed_load_balancer_ips)


def may_have_others(section: LoadBalancerSection) -> bool:
    """Whether a Service may have a floating IP that was made for a Service of another name and is free."""
    return set(EVERYWHERE) <= set(section.allowed_load_balancer_ips)


def refused_address(address: str) -> Invalid:
    return Invalid(f"loadBalancerIP: {ADDRESSES} does not allow {address}: take it off, or ask who runs the cluster")


def port_problem(
    port: Row, balancers: Iterable[Row], neighbours: Iterable[Row], floating: Row | None, project_id: str
) -> str:
    """Why a port that a Service names with `port-id` cannot become its VIP; "" when it can.

    `neighbours`: the ports of its network. An address that is a pair of another port is one that machines share, as
    keepalived does; its port is bound to nothing. `floating`: that of the port.
    """
    addresses = {str(fixed.get("ip_address")) for fixed in port.get("fixed_ips") or ()}
    if project_id and port.get("project_id") not in (None, project_id):
        return "it is another project's"
    if port.get("device_id") or port.get("device_owner") or port.get("binding:host_id"):
        return f"{port.get('device_owner') or 'something'} uses it"
    if any(row.get("vip_port_id") == port["id"] for row in balancers):
        return "it is the VIP of a load balancer"
    if floating is not None:
        return f"it has the floating IP {floating.get('floating_ip_address')}"
    for each in neighbours:
        pairs = {_single(str(pair.get("ip_address"))) for pair in each.get("allowed_address_pairs") or ()}
        if each.get("id") != port["id"] and addresses & pairs:
            return f"port {each.get('id')} shares its address"
    return ""


def _single(address: str) -> str:
    """Of a network of one address that address."""
    text, _, length = address.partition("/")
    return text if length in ("", "32" if "." in text else "128") else address
