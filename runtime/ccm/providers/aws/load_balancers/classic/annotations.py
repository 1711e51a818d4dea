# SPDX-License-Identifier: Apache-2.0
"""The annotations of Services with a Classic Load Balancer, the same as in cloud-provider-aws. Pure.

An invalid value is reported on the Service.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from ccm.cloud import Invalid
from ccm.cloud.toolkit.annotation_reader import AnnotationTable, ServiceAnnotations, number

from ... import annotations as forms
from ...annotations import BOOL, ELSEWHERE, PREFIX, SECONDS

GROUP = re.compile(r"sg-[0-9a-f]{1,32}", re.ASCII)
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
           forms.list_of(forms.SUBNET, "IDs or names of subnets"), "see below"),
        _a("backend-protocol", "`ssl`, `tcp`, `http` or `https`", "With a certificate, what targets get; clients use "
           "`https` for `http` and `https`, and `ssl` for the others. Without one, `http` counts only.",
           forms.one_of("ssl", "tcp", "http", "https"), "`tcp`"),
        _a("proxy-protocol", "`*`", "Targets get the addresses of clients by the PROXY protocol.", _everywhere),
        _a("access-log-emit-interval", "minutes", "How often the log is written.", _emit_interval, "60"),
        _a("connection-draining-enabled", BOOL, "Connections to a leaving target may end.", forms.boolean, "`false`"),
        _a("connection-draining-timeout", SECONDS, "How long they may take.", number(1, 3600), "300"),
        _a("connection-idle-timeout", SECONDS, "How long an idle connection stays open.", number(1, 4000), "60"),
        _a("security-groups", "IDs", "The security groups, in place of one of its own. Their rules stay as they are.",
           forms.list_of(GROUP, "IDs sg-..."), "`ElbSecurityGroup`, or its own", names_another=True),
        _a("extra-security-groups", "IDs", "More security groups.", forms.list_of(GROUP, "IDs sg-..."),
           names_another=True),
        _a("healthcheck-protocol", "`tcp`, `ssl`, `http` or `https`", "How targets are checked.",
           forms.one_of("tcp", "ssl", "http", "https"),
           "`ssl` with a backend protocol `ssl` or `https`, otherwise `tcp`; `http` with externalTrafficPolicy Local"),
        _a("healthcheck-port", "port or `traffic-port`", "Where targets are checked.", forms.check_port,
           "the node port of the first port; healthCheckNodePort with externalTrafficPolicy Local"),
        _a("healthcheck-path", "path", "The path of a check by HTTP.",
           forms.matching(forms.PATH, "a path that begins with /"), "`/`; `/healthz` with externalTrafficPolicy Local"),
        _a("healthcheck-interval", SECONDS, "The time between two checks.", number(5, 300), "10"),
        _a("healthcheck-timeout", SECONDS, "How long to wait for an answer.", number(2, 60), "5"),
        _a("healthcheck-healthy-threshold", "number", "How many checks must pass.", number(2, 10), "2"),
        _a("healthcheck-unhealthy-threshold", "number", "How many checks must fail.", number(2, 10), "6"),
    ),
)  # fmt: skip


def parse(given: Mapping[str, str], *, nodes_only: bool = False) -> ServiceAnnotations:
    """Raises Invalid with all values that cannot be used, and all annotations that are probably misspelled.

    `nodes_only`: with those that choose nodes; nothing else keeps targets from following.
    """
    found = ServiceAnnotations(given, TABLE)
    if nodes_only:
        if unreadable := found.problems_of("target-node-labels"):
            raise Invalid("; ".join(unreadable))
        return found
    known = {PREFIX + name for name in (*NETWORK_ONLY, *ELSEWHERE)}
    problems = list(found.problems)
    name = f"{PREFIX}target-group-attributes"
    if name in given:
        problems.append(f"annotation {name}: a Classic Load Balancer has no target groups")
        known.add(name)
    problems += [f"annotation {key}: unknown" for key in TABLE.unknown(given) if key not in known]
    if problems:
        raise Invalid("; ".join(problems))
    return found


def warnings(given: Mapping[str, str]) -> list[str]:
    """Annotations without effect here."""
    found = [
        f"annotation {PREFIX}{name}: no effect on a Classic Load Balancer: {instead}"
        for name, instead in NETWORK_ONLY.items()
        if PREFIX + name in given
    ]
    return found + forms.oddities(given)
