# SPDX-License-Identifier: Apache-2.0
"""The annotations of Services, the same as in cloud-provider-aws. Pure.

An invalid value is reported on the Service. Each value has a form and a maximum length, because the author of a Service
may be untrusted and values end up in the account's resources and in Events.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping
from typing import Any

from ccm.cloud import Invalid
from ccm.cloud.toolkit.annotation_reader import (
    MANY,
    Annotation,
    AnnotationTable,
    ServiceAnnotations,
    number,
    selector,
)

PREFIX = "service.beta.kubernetes.io/aws-load-balancer-"
ARN = re.compile(r"arn:[\w-]{1,32}:(acm|iam):[\w-]{0,32}:\d{12}:[\w+=,.@/:-]{1,512}", re.ASCII)
WORD = re.compile(r"[A-Za-z0-9_.-]{1,128}", re.ASCII)
PATH = re.compile(r"/[!-~]{0,1023}", re.ASCII)
BUCKET = re.compile(r"[a-z0-9.-]{3,63}", re.ASCII)
OBJECTS = re.compile(r"[ -~]{0,512}", re.ASCII)
SUBNET = re.compile(r"[ -+.-~-]{1,255}", re.ASCII)
ALLOCATION = re.compile(r"eipalloc-[0-9a-f]{1,32}", re.ASCII)
TAG = re.compile(r"[\w .:/=+@-]{1,127}")
TAG_VALUE = re.compile(r"[\w .:/=+@-]{0,256}")
TRAFFIC_PORT = "traffic-port"
PRESERVE_CLIENT, PROXY_PROTOCOL = "preserve_client_ip.enabled", "proxy_protocol_v2.enabled"

#: Annotations that have an effect on Classic Load Balancers only -> what to do instead.
CLASSIC_ONLY = {
    "proxy-protocol": f"set target-group-attributes to {PROXY_PROTOCOL}=true",
    "connection-draining-enabled": "a Network Load Balancer always drains",
    "connection-draining-timeout": "a Network Load Balancer drains for 300 s",
    "connection-idle-timeout": "a Network Load Balancer keeps idle connections for 350 s",
    "access-log-emit-interval": "a Network Load Balancer writes its log every 5 minutes",
}
#: Annotations that only the AWS Load Balancer Controller reads.
ELSEWHERE = (
    *("alpn-policy", "attributes", "ip-address-type", "ipv6-addresses", "listener-attributes"),
    *("manage-backend-security-group-rules", "multi-cluster-target-group", "name", "nlb-target-type", "scheme"),
    *("healthcheck-success-codes", "inbound-sg-rules-on-private-link-traffic", "security-group-prefix-lists"),
)


def _internal(text: str) -> bool:
    """Any value but `false` counts, as in the original."""
    return text not in ("", "false")


def _boolean(text: str) -> bool:
    if text not in ("1", "t", "T", "TRUE", "true", "True", "0", "f", "F", "FALSE", "false", "False"):
        raise ValueError("true or false")
    return text in ("1", "t", "T", "TRUE", "true", "True")


def _form(form: re.Pattern[str], kind: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if not form.fullmatch(text):
            raise ValueError(kind)
        return text

    return read


def _list(form: re.Pattern[str], kind: str) -> Callable[[str], tuple[str, ...]]:
    def read(text: str) -> tuple[str, ...]:
        found = tuple(part.strip() for part in text.split(",") if part.strip())
        if not 0 < len(found) <= MANY or not all(form.fullmatch(each) for each in found):
            raise ValueError(f"at most {MANY} {kind}, comma-separated")
        return found

    return read


def _addresses(text: str) -> tuple[str, ...]:
    try:
        found = tuple(str(ipaddress.IPv4Address(part.strip())) for part in text[:512].split(","))
    except ValueError:
        raise ValueError("IPv4 addresses, comma-separated") from None
    return found


def _ports(text: str) -> tuple[str, ...]:
    """Names or numbers; () stands for all."""
    return () if text.strip() in ("", "*") else _list(WORD, "names or numbers of ports")(text)


def _one_of(*choices: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text.lower() not in choices:
            raise ValueError(f"one of {', '.join(choices)}")
        return text.lower()

    return read


def _check_port(text: str) -> str:
    return text if text == TRAFFIC_PORT else str(number(1, 65535)(text))


def _tags(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, value = (piece.strip() for piece in part.partition("="))
        reserved = name.lower().startswith(("aws:", "kubernetes.io/", "ccm-outoftree/")) or name == "KubernetesCluster"
        if not TAG.fullmatch(name) or not TAG_VALUE.fullmatch(value) or reserved or len(found) >= MANY:
            raise ValueError(f"at most {MANY} tags name=value, comma-separated, none of AWS or of a cluster")
        found[name] = value
    return found


def _group_attributes(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, value = (piece.strip() for piece in part.partition("="))
        if name not in (PRESERVE_CLIENT, PROXY_PROTOCOL) or value not in ("true", "false") or name in found:
            raise ValueError(f"{PRESERVE_CLIENT} and {PROXY_PROTOCOL}, each once with =true or =false")
        found[name] = value
    return found


def _a(name: str, kind: str, effect: str, read: Callable[[str], Any], default: str = "", **more: bool) -> Annotation:
    return Annotation(PREFIX + name, kind, effect, read, default, **more)


_BOOL = "true or false"
_SECONDS = "seconds"
TABLE = AnnotationTable(
    PREFIX,
    (
        _a("type", "`nlb`, `external` or `nlb-ip`", "`nlb` is a Network Load Balancer. The others are left to the AWS "
           "Load Balancer Controller.", _form(WORD, "a word"), "`LoadBalancerType`"),
        _a("internal", "`false`, or any other text", "The load balancer has private addresses only.", _internal,
           "`false`", for_new=True),
        _a("subnets", "IDs or Name tags", "The subnets, one for each zone.", _list(SUBNET, "IDs or names of subnets"),
           "see below", for_new=True),
        _a("target-node-labels", "labels", "Only Nodes with these labels are targets.", selector),
        _a("additional-resource-tags", "tags name=value", "Tags of what is created.", _tags),
        _a("ssl-cert", "ARN", "The certificate of TLS listeners.", _form(ARN, "the ARN of a certificate"),
           names_another=True),
        _a("ssl-ports", "names or numbers", "The ports with TLS, all unless set.", _ports, "`*`"),
        _a("ssl-negotiation-policy", "name", "The policy of TLS listeners.", _form(WORD, "the name of a policy")),
        _a("backend-protocol", "`ssl`, `tcp`, `http` or `https`", "`ssl`: targets get TLS, too.",
           _one_of("ssl", "tcp", "http", "https")),
        _a("cross-zone-load-balancing-enabled", _BOOL, "Traffic goes to targets in all zones.", _boolean, "`false`"),
        _a("access-log-enabled", _BOOL, "Writes a log to S3.", _boolean, "`false`"),
        _a("access-log-s3-bucket-name", "name", "The bucket of the log.", _form(BUCKET, "the name of a bucket"),
           names_another=True),
        _a("access-log-s3-bucket-prefix", "text", "A prefix in the bucket.", _form(OBJECTS, "a prefix")),
        _a("healthcheck-protocol", "`tcp`, `http` or `https`", "How targets are checked.",
           _one_of("tcp", "http", "https"), "`tcp`; `http` with externalTrafficPolicy Local"),
        _a("healthcheck-port", "port or `traffic-port`", "Where targets are checked.", _check_port,
           "`traffic-port`; healthCheckNodePort with externalTrafficPolicy Local"),
        _a("healthcheck-path", "path", "The path of a check by HTTP.", _form(PATH, "a path that begins with /"),
           "`/`; `/healthz` with externalTrafficPolicy Local"),
        _a("healthcheck-interval", _SECONDS, "The time between two checks.", number(5, 300), "30; 10 with Local"),
        _a("healthcheck-timeout", _SECONDS, "Has no effect on Network Load Balancers.", number(2, 120)),
        _a("healthcheck-healthy-threshold", "number", "How many checks must pass.", number(2, 10), "3; 2 with Local"),
        _a("healthcheck-unhealthy-threshold", "number", "How many checks must fail.", number(2, 10), "3; 2 with Local"),
        _a("eip-allocations", "IDs", "Elastic IPs, one for each subnet.", _list(ALLOCATION, "IDs eipalloc-..."),
           for_new=True, names_another=True),
        _a("private-ipv4-addresses", "IPv4 addresses", "Private addresses, one for each subnet.", _addresses,
           for_new=True),
        _a("target-group-attributes", "attributes name=value", f"`{PRESERVE_CLIENT}` and `{PROXY_PROTOCOL}`.",
           _group_attributes),
    ),
)  # fmt: skip


def parse(given: Mapping[str, str]) -> ServiceAnnotations:
    """Raises Invalid with all values that cannot be used, and all annotations that are probably misspelled."""
    found = ServiceAnnotations(given, TABLE)
    known = {PREFIX + name for name in (*CLASSIC_ONLY, *ELSEWHERE)}
    problems = list(found.problems)
    for name in ("security-groups", "extra-security-groups"):
        if PREFIX + name in given:
            problems.append(f"annotation {PREFIX}{name}: a Network Load Balancer of this provider has no groups")
            known.add(PREFIX + name)
    problems += [f"annotation {key}: unknown" for key in TABLE.unknown(given) if key not in known]
    if problems:
        raise Invalid("; ".join(problems))
    return found


def warnings(given: Mapping[str, str]) -> list[str]:
    """Annotations without effect here."""
    found = [
        f"annotation {PREFIX}{name} has no effect on a Network Load Balancer: {instead}"
        for name, instead in CLASSIC_ONLY.items()
        if PREFIX + name in given
    ]
    elsewhere = [name for name in ELSEWHERE if PREFIX + name in given]
    if elsewhere:
        names = ", ".join(f"...{name}" for name in elsewhere)
        found.append(f"only the AWS Load Balancer Controller reads the annotations {PREFIX}{names}")
    return found
