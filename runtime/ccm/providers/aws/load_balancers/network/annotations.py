# SPDX-License-Identifier: Apache-2.0
"""The annotations of Services with a Network Load Balancer, named as in cloud-provider-aws. Pure.

An Event of the Service reports an invalid value.
"""

from __future__ import annotations

import ipaddress
import re

from ccm.cloud.toolkit.annotation_reader import AnnotationTable, number

from ... import annotations as forms
from ...annotations import PREFIX, SECONDS, TypeAnnotations

ALLOCATION = re.compile(r"eipalloc-[0-9a-f]{1,32}", re.ASCII)
PRESERVE_CLIENT, PROXY_PROTOCOL = "preserve_client_ip.enabled", "proxy_protocol_v2.enabled"

#: Annotations that are refused -> the reason.
REFUSED = dict.fromkeys(
    ("security-groups", "extra-security-groups"), "a Network Load Balancer of this provider has no security groups"
)
#: Annotations that have an effect on Classic Load Balancers only -> what to do instead.
CLASSIC_ONLY = {
    "proxy-protocol": f"set target-group-attributes to {PROXY_PROTOCOL}=true",
    "connection-draining-enabled": "a Network Load Balancer always drains",
    "connection-draining-timeout": "a Network Load Balancer drains for 300 s",
    "connection-idle-timeout": "a Network Load Balancer keeps idle connections for 350 s",
    "access-log-emit-interval": "a Network Load Balancer writes its log every 5 minutes",
}


def _addresses(text: str) -> tuple[str, ...]:
    try:
        addresses = tuple(str(ipaddress.IPv4Address(part.strip())) for part in text[:512].split(","))
    except ValueError:
        raise ValueError("IPv4 addresses, comma-separated") from None
    return addresses


def _group_attributes(text: str) -> dict[str, str]:
    attributes: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, value = (piece.strip() for piece in part.partition("="))
        if name not in (PRESERVE_CLIENT, PROXY_PROTOCOL) or value not in ("true", "false") or name in attributes:
            raise ValueError(f"{PRESERVE_CLIENT} and {PROXY_PROTOCOL}, each once with =true or =false")
        attributes[name] = value
    return attributes


_a = forms.annotation
TABLE = AnnotationTable(
    PREFIX,
    (
        *forms.COMMON,
        _a("subnets", "IDs or Name tags", "The subnets, one for each zone.",
           forms.list_of(forms.SUBNET, "IDs or names of subnets"), "found by their tags", for_new=True),
        _a("backend-protocol", "`ssl`, `tcp`, `http` or `https`", "With `ssl`, connections to targets use TLS, too.",
           forms.one_of("ssl", "tcp", "http", "https")),
        _a("healthcheck-protocol", "`tcp`, `http` or `https`", "The protocol of the health check.",
           forms.one_of("tcp", "http", "https"), "`tcp`; `http` with externalTrafficPolicy Local"),
        _a("healthcheck-port", "port or `traffic-port`", "The port of the health check.", forms.check_port,
           "`traffic-port`; healthCheckNodePort with externalTrafficPolicy Local"),
        _a("healthcheck-path", "path", "The path of the health check over HTTP.",
           forms.matching(forms.PATH, "a path that begins with /"),
           "`/`; `/healthz` with externalTrafficPolicy Local"),
        _a("healthcheck-interval", SECONDS, "The time between two checks.", number(5, 300), "30; 10 with Local"),
        _a("healthcheck-timeout", SECONDS, "Has no effect on Network Load Balancers.", number(2, 120)),
        _a("healthcheck-healthy-threshold", "number", "How many checks in a row must pass.", number(2, 10),
           "3; 2 with Local"),
        _a("healthcheck-unhealthy-threshold", "number", "How many checks in a row must fail.", number(2, 10),
           "3; 2 with Local"),
        _a("eip-allocations", "IDs", "Elastic IPs, one for each subnet.",
           forms.list_of(ALLOCATION, "IDs eipalloc-..."), for_new=True, names_another=True),
        _a("private-ipv4-addresses", "IPv4 addresses", "Private addresses, one for each subnet.", _addresses,
           for_new=True),
        _a("target-group-attributes", "attributes name=value", f"`{PRESERVE_CLIENT}` and `{PROXY_PROTOCOL}`.",
           _group_attributes),
    ),
)  # fmt: skip
_TYPE = TypeAnnotations("Network Load Balancer", TABLE, REFUSED, CLASSIC_ONLY)
parse, warnings = _TYPE.parse, _TYPE.warnings
