# SPDX-License-Identifier: Apache-2.0
"""The annotations of Services with a Classic Load Balancer, named as in cloud-provider-aws. Pure.

An Event of the Service reports an invalid value.
"""

from __future__ import annotations

import re

from ccm.cloud.toolkit.annotation_reader import AnnotationTable, number

from ... import annotations as forms
from ...annotations import BOOL, PREFIX, SECONDS, TypeAnnotations

GROUP = re.compile(r"sg-[0-9a-f]{1,32}", re.ASCII)
#: Annotations that are refused -> the reason.
REFUSED = {"target-group-attributes": "a Classic Load Balancer has no target groups"}
#: Annotations that have an effect on Network Load Balancers only -> what to do instead.
NETWORK_ONLY = {
    "eip-allocations": "AWS chooses the addresses of a Classic Load Balancer",
    "private-ipv4-addresses": "AWS chooses the addresses of a Classic Load Balancer",
}


def _everywhere(text: str) -> bool:
    if text not in ("", "*"):
        raise ValueError("`*`, which stands for all ports")
    return text == "*"


def _emit_interval(text: str) -> int:
    if text not in ("5", "60"):
        raise ValueError("5 or 60, in minutes")
    return int(text)


_a = forms.annotation
TABLE = AnnotationTable(
    PREFIX,
    (
        *forms.COMMON,
        _a("subnets", "IDs or Name tags", "The subnets, one for each zone.",
           forms.list_of(forms.SUBNET, "IDs or names of subnets"), "found by their tags"),
        _a("backend-protocol", "`ssl`, `tcp`, `http` or `https`", "The protocol to the targets. With a certificate, "
           "clients use `https` if it is `http` or `https`, and `ssl` otherwise. Without a certificate, only `http` "
           "has an effect.",
           forms.one_of("ssl", "tcp", "http", "https"), "`tcp`"),
        _a("proxy-protocol", "`*`", "Targets get the addresses of clients through the PROXY protocol.", _everywhere),
        _a("access-log-emit-interval", "minutes", "How often access logs are written.", _emit_interval, "60"),
        _a("connection-draining-enabled", BOOL, "Open connections to a removed target may finish.", forms.boolean,
           "`false`"),
        _a("connection-draining-timeout", SECONDS, "How long these connections may last.", number(1, 3600), "300"),
        _a("connection-idle-timeout", SECONDS, "How long an idle connection stays open.", number(1, 4000), "60"),
        _a("security-groups", "IDs", "The security groups, instead of one of its own. Their rules are never changed.",
           forms.list_of(GROUP, "IDs sg-..."), "`ElbSecurityGroup`, or its own", names_another=True),
        _a("extra-security-groups", "IDs", "Additional security groups.", forms.list_of(GROUP, "IDs sg-..."),
           names_another=True),
        _a("healthcheck-protocol", "`tcp`, `ssl`, `http` or `https`", "The protocol of the health check.",
           forms.one_of("tcp", "ssl", "http", "https"),
           "`ssl` with a backend protocol `ssl` or `https`, otherwise `tcp`; `http` with externalTrafficPolicy Local"),
        _a("healthcheck-port", "port or `traffic-port`", "The port of the health check.", forms.check_port,
           "the node port of the first port; healthCheckNodePort with externalTrafficPolicy Local"),
        _a("healthcheck-path", "path", "The path of the health check over HTTP.",
           forms.matching(forms.PATH, "a path that begins with /"), "`/`; `/healthz` with externalTrafficPolicy Local"),
        _a("healthcheck-interval", SECONDS, "The time between two checks.", number(5, 300), "10"),
        _a("healthcheck-timeout", SECONDS, "How long to wait for an answer.", number(2, 60), "5"),
        _a("healthcheck-healthy-threshold", "number", "How many checks in a row must pass.", number(2, 10), "2"),
        _a("healthcheck-unhealthy-threshold", "number", "How many checks in a row must fail.", number(2, 10), "6"),
    ),
)  # fmt: skip
_TYPE = TypeAnnotations("Classic Load Balancer", TABLE, REFUSED, NETWORK_ONLY)
parse, warnings = _TYPE.parse, _TYPE.warnings
