# SPDX-License-Identifier: Apache-2.0
"""Decides which type of load balancer a Service asks for, and what happens when the requested type changes. Pure."""

from __future__ import annotations

from ccm.cloud import ImplementedElsewhere, LoadBalancerSpec
from ccm.cloud.toolkit.untrusted_text import quoted

from ...annotations import PREFIX
from ...settings_sections import CLASSIC, NETWORK

TITLES = {CLASSIC: "Classic Load Balancer", NETWORK: "Network Load Balancer"}
#: How host names of Classic Load Balancers end. Those of Network Load Balancers have the region after `elb`.
CLASSIC_HOSTS = (".elb.amazonaws.com", ".elb.amazonaws.com.cn")


def type_of(spec: LoadBalancerSpec, default: str) -> str:
    """Return NETWORK for the text `nlb`, and CLASSIC for any other text, as cloud-provider-aws does. Raises
    ImplementedElsewhere for types of the AWS Load Balancer Controller. `default`: for Services that name no type."""
    type_ = spec.annotations.get(f"{PREFIX}type", default)
    if type_ in ("external", "nlb-ip"):
        raise ImplementedElsewhere(f"annotation {PREFIX}type is {type_}: the AWS Load Balancer Controller serves it")
    return NETWORK if type_ == NETWORK else CLASSIC


def had(spec: LoadBalancerSpec) -> str:
    """Return the type of the load balancer in the status of the Service, "" without one."""
    hosts = [ingress.hostname for ingress in spec.ingress if ingress.hostname]
    if not hosts:
        return ""
    return CLASSIC if hosts[0].endswith(CLASSIC_HOSTS) else NETWORK


def never_changes(name: str, has: str, wants: str) -> str:
    """Return what to do about a Service whose load balancer is of another type. The load balancer is not replaced,
    because clients know its host name."""
    return (
        f"the Service has the {TITLES[has]} {name}, and asks for a {TITLES[wants]}: the type never changes. Set the "
        f"annotation {PREFIX}type to {has}, or create another Service, move the clients, and delete this one"
    )


def warnings(spec: LoadBalancerSpec) -> list[str]:
    """Return a warning if the annotation names an unknown type, which means a Classic Load Balancer; [] otherwise."""
    text = spec.annotations.get(f"{PREFIX}type", "")
    if text in ("", CLASSIC, NETWORK):
        return []
    return [f"annotation {PREFIX}type: {quoted(text)} is not a type, so the Service has a Classic Load Balancer"]
