# SPDX-License-Identifier: Apache-2.0
"""The Service annotations that configure Octavia load balancers; the same as in cloud-provider-openstack.

The documentation is generated from `TABLE`. An invalid value is reported on the Service. cloud-provider-openstack only
logs such a value, and uses the default. Each value has a format and a maximum length, because the author of a Service
may be untrusted and values end up in paths, queries, patterns and Events.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from ccm.cloud import Invalid
from ccm.cloud.toolkit.annotation_reader import (
    Annotation,
    AnnotationTable,
    ServiceAnnotations,
    address,
    boolean,
    host_name,
    number,
    one_of,
    selector,
    short_text,
    tags,
)

from . import name_patterns

PREFIX = "loadbalancer.openstack.org/"
INTERNAL = "service.beta.kubernetes.io/openstack-internal-load-balancer"

LB_METHODS = ("ROUND_ROBIN", "LEAST_CONNECTIONS", "SOURCE_IP", "SOURCE_IP_PORT")
#: Versions of the PROXY protocol: value of the annotation -> Octavia's name.
PROXY = {"true": "PROXY", "v1": "PROXY", "v2": "PROXYV2", "false": "", "": ""}

UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII)
REFERENCE = re.compile(r"https?://[A-Za-z0-9.:\[\]_-]{1,255}/[A-Za-z0-9._~:/%+=-]{1,500}", re.ASCII)


def identity(text: str) -> str:
    """Parse an ID of Neutron or Octavia, and return it in lower case; "" stays "". Raises ValueError."""
    text = text.strip().lower()
    if text and not UUID.fullmatch(text):
        raise ValueError("an ID such as 152a2b07-8cb3-4f5a-9d1e-0c2f6f1d3e4b")
    return text


def _pattern(text: str) -> str:
    text = text.strip()
    try:
        name_patterns.check(text)
    except Invalid:
        raise ValueError(
            f"a pattern of at most {name_patterns.LONGEST} characters; after ~, an RE2 regular expression"
        ) from None
    return text


def _reference(text: str) -> str:
    text = text.strip()
    if text and not REFERENCE.fullmatch(text):
        raise ValueError("a URL such as https://HOST/v1/secrets/ID")
    return text


def _proxy(text: str) -> str:
    if text not in PROXY:
        raise ValueError("true, false, v1 or v2")
    return PROXY[text]


_MILLISECONDS = number(0, 31_536_000_000)


def _own(name: str, kind: str, effect: str, read: Callable[[str], Any], default: str = "", **more: bool) -> Annotation:
    """Return an annotation with the provider's prefix."""
    return Annotation(PREFIX + name, kind, effect, read, default, **more)


def _other(name: str, kind: str, effect: str, read: Callable[[str], Any], default: str = "") -> Annotation:
    """Return an annotation with the provider's prefix that names another resource of the project and has an effect only
    on new load balancers or members."""
    return Annotation(PREFIX + name, kind, effect, read, default, names_another=True, for_new=True)


TABLE: tuple[Annotation, ...] = (
    _own(
        "class",
        "text",
        "Take networks from this `[LoadBalancerClass]` of cloud.conf; for a new load balancer. For an internal one, "
        "the annotations `network-id` and `subnet-id` take precedence",
        short_text,
        for_new=True,
    ),
    _other(
        "floating-network-id",
        "ID",
        "Network of the floating IP; for a new load balancer",
        identity,
        "`floating-network-id`, otherwise discovered",
    ),
    _other(
        "floating-subnet-id",
        "ID",
        "Subnet of the floating IP; for a new load balancer",
        identity,
        "`floating-subnet-id`",
    ),
    _other(
        "floating-subnet",
        "pattern",
        "Subnets of the floating IP by name: a glob, or `~` and a regular expression; a leading `!` negates; "
        "for a new load balancer",
        _pattern,
        "`floating-subnet`",
    ),
    _other(
        "floating-subnet-tags",
        "tags",
        "Subnets of the floating IP by tags, comma-separated: any of them; after `&`, all of them; a leading `!` "
        "negates; for a new load balancer",
        tags,
        "`floating-subnet-tags`",
    ),
    _other("network-id", "ID", "Network of the VIP; for a new load balancer", identity, "`network-id`"),
    _other("subnet-id", "ID", "Subnet of the VIP; for a new load balancer", identity, "`subnet-id`, else the nodes'"),
    _other("port-id", "ID", "An existing port that becomes the VIP; for a new load balancer", identity),
    _other(
        "member-subnet-id",
        "ID",
        "Subnet of the members; for new members",
        identity,
        "`member-subnet-id`, else `subnet-id`, else the VIP's subnet",
    ),
    _own("keep-floatingip", "true, false", "Keep the floating IP when the Service is deleted", boolean, "`false`"),
    _own(
        "load-balancer-id",
        "ID",
        "Use this load balancer: the Service's own, or one that `sharing` allows it to share (`max-shared-lb`)",
        identity,
        for_new=True,
    ),
    _own(
        "load-balancer-address",
        "address",
        "Written by cloud-provider-openstack. With `sharing = project`, a load balancer with the Service's name at "
        "this address belongs to the Service. If `load-balancer-id` names one that is gone, a new one is created",
        address,
        for_new=True,
    ),
    _own("hostname", "DNS name", "Write this host name to the Service's status instead of the address", host_name),
    _own(
        "node-selector",
        "labels",
        "Use only nodes with these labels as members: `key=value` or `key`, comma-separated",
        selector,
        "`node-selector`",
    ),
    _own("connection-limit", "number", "Connections per listener, -1 for no limit", number(-1, 2**31 - 1), "`-1`"),
    _own("proxy-protocol", "true, false, v1, v2", "Send the PROXY protocol to members (TCP ports)", _proxy, "`false`"),
    _own("x-forwarded-for", "true, false", "Use HTTP listeners that add the header (TCP ports)", boolean, "`false`"),
    _own("lb-method", "choice", f"How members are chosen: {', '.join(LB_METHODS)}", one_of(*LB_METHODS), "`lb-method`"),
    _own("timeout-client-data", "ms", "Inactivity timeout of the client", _MILLISECONDS, "`50000`"),
    _own("timeout-member-connect", "ms", "Timeout for connecting to a member", _MILLISECONDS, "`5000`"),
    _own("timeout-member-data", "ms", "Inactivity timeout of the member", _MILLISECONDS, "`50000`"),
    _own("timeout-tcp-inspect", "ms", "Time to wait for more data of a request to inspect", _MILLISECONDS, "`0`"),
    _own("enable-health-monitor", "true, false", "Whether members are probed", boolean, "`create-monitor`"),
    _own("health-monitor-delay", "s", "Time between probes", number(1, 2**31 - 1), "`monitor-delay`"),
    _own(
        "health-monitor-timeout",
        "s",
        "Timeout of a probe; if it is longer than the delay, an Event warns",
        number(1, 2**31 - 1),
        "`monitor-timeout`",
    ),
    _own(
        "health-monitor-max-retries",
        "1-10",
        "Successful probes until a member is up",
        number(1, 10),
        "`monitor-max-retries`",
    ),
    _own(
        "health-monitor-max-retries-down",
        "1-10",
        "Failed probes until a member is down",
        number(1, 10),
        "`monitor-max-retries-down`",
    ),
    _other("flavor-id", "ID", "Octavia flavor; for a new load balancer", identity, "`flavor-id`"),
    _other(
        "availability-zone",
        "text",
        "Octavia availability zone; for a new load balancer",
        short_text,
        "`availability-zone`",
    ),
    _own(
        "default-tls-container-ref",
        "URL",
        "Use TERMINATED_HTTPS listeners with this secret or container (TCP ports)",
        _reference,
        "`default-tls-container-ref`",
        names_another=True,
    ),
    Annotation(INTERNAL, "true, false", "Use no floating IP", boolean, "`false`; `internal-lb = true` wins"),
)

KNOWN = AnnotationTable(PREFIX, TABLE)
BY_KEY, BY_NAME = KNOWN.by_key, KNOWN.by_name


class Annotations(ServiceAnnotations):
    """The annotations of one Service, parsed."""

    def __init__(self, annotations: Mapping[str, str]) -> None:
        super().__init__(annotations, KNOWN)


def unknown(annotations: Mapping[str, str]) -> list[str]:
    """Return annotations that have the prefix of this table but are not in it: they are probably misspelled. If there
    are many, only the first ones are returned."""
    return KNOWN.unknown(annotations)
