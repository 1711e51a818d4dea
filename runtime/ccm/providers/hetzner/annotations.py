# SPDX-License-Identifier: Apache-2.0
"""The annotations of Services, the same as in hcloud-cloud-controller-manager. Pure.

An Event of the Service reports an invalid value. Each value has a format and a maximum length, because the author of a
Service may be untrusted and values end up in the cloud's resources, in paths and in Events.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Mapping
from typing import Any

from ccm.cloud import Invalid
from ccm.cloud.toolkit.annotation_reader import (
    Annotation,
    AnnotationTable,
    ServiceAnnotations,
    address,
    host_name,
    number,
    one_of,
    short_text,
)

from . import settings
from .label_selectors import Selector

PREFIX = "load-balancer.hetzner.cloud/"
PROTOCOLS = ("tcp", "http", "https")
NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?", re.ASCII)
WORD = re.compile(r"[a-z0-9-]{0,63}", re.ASCII)
STATUS_CODE = re.compile(r"[1-5][0-9?]{2}", re.ASCII)
PATH = re.compile(r"/[!-~]{0,1023}", re.ASCII)
MANY = 50


def _boolean(text: str) -> bool:
    try:
        return settings.boolean(text)
    except ValueError:
        raise ValueError("true or false") from None


def _seconds(least: int, most: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        with contextlib.suppress(ValueError):
            if least <= (value := settings.seconds(text)) <= most:
                return value
        raise ValueError(f"a duration in whole seconds from {least}s to {most}s")

    return read


def _lower(*choices: str) -> Callable[[str], str]:
    read = one_of(*choices)
    return lambda text: read(text.strip().lower())


def _name(text: str) -> str:
    if not NAME.fullmatch(text):
        raise ValueError("a name of at most 63 letters, digits and ._-")
    return text


def _word(text: str) -> str:
    if not WORD.fullmatch(text):
        raise ValueError("a name of at most 63 small letters, digits and -")
    return text


def _list(form: re.Pattern[str], kind: str) -> Callable[[str], tuple[str, ...]]:
    def read(text: str) -> tuple[str, ...]:
        value = tuple(part.strip() for part in text.split(","))
        if len(value) > MANY or not all(form.fullmatch(each) for each in value):
            raise ValueError(f"at most {MANY} {kind}, comma-separated")
        return value

    return read


def _domains(text: str) -> tuple[str, ...]:
    domains = tuple(part.strip() for part in text.split(","))
    try:
        if len(domains) <= MANY and all(host_name(each.removeprefix("*.")) for each in domains):
            return domains
    except ValueError:
        pass
    raise ValueError(f"at most {MANY} DNS names, comma-separated")


def _ipv4(text: str) -> str:
    if ":" in (ip := address(text)):
        raise ValueError("an IPv4 address")
    return ip


def _cidr(text: str) -> str:
    try:
        return settings.subnet(text)
    except ValueError:
        raise ValueError("a CIDR") from None


def _path(text: str) -> str:
    if not PATH.fullmatch(text):
        raise ValueError("a path that begins with /")
    return text


def _a(name: str, kind: str, effect: str, read: Callable[[str], Any], default: str = "", **more: bool) -> Annotation:
    return Annotation(PREFIX + name, kind, effect, read, default, **more)


_BOOL = "true or false"
_NAMES = re.compile(r"[A-Za-z0-9][ -+.-~-]{0,254}", re.ASCII)
TABLE = AnnotationTable(
    PREFIX,
    (
        _a(
            "name",
            "name",
            "The load balancer's name. An unmarked load balancer with this name is taken over if the Service's status "
            "has its address, or if `HCLOUD_LOAD_BALANCERS_ADOPT_BY_NAME` allows that.",
            _name,
        ),
        _a("hostname", "DNS name", "The host name in the Service's status, instead of addresses.", host_name),
        _a(
            "type",
            "name",
            "The load balancer's type. If `HCLOUD_LOAD_BALANCERS_TYPE` is not set either, an existing load balancer "
            "keeps its type.",
            _word,
            "`lb11`",
        ),
        _a("location", "name", "The load balancer's location.", _word, for_new=True),
        _a("network-zone", "name", "The load balancer's network zone, if no location is set.", _word, for_new=True),
        _a("node-selector", "label selector", "Only Nodes whose labels match receive traffic.", Selector.parse),
        _a(
            "algorithm-type",
            "round_robin or least_connections",
            "How the load balancer chooses a target.",
            _lower("round_robin", "least_connections"),
            "round_robin",
        ),
        _a("protocol", "tcp, http or https", "The protocol of all ports.", _lower(*PROTOCOLS), "tcp"),
        _a("uses-proxyprotocol", _BOOL, "Sends the PROXY protocol to the nodes.", _boolean),
        _a("disable-public-network", _BOOL, "Switches off the public interface.", _boolean),
        _a("disable-private-ingress", _BOOL, "Leaves the private address out of the status.", _boolean),
        _a("use-private-ip", _BOOL, "Sends traffic to the servers' private addresses.", _boolean),
        _a("private-ipv4", "IPv4 address", "The load balancer's address in the private network.", _ipv4),
        _a("private-subnet-ip-range", "CIDR", "The subnet of the load balancer's private address.", _cidr),
        _a("ipv6-disabled", _BOOL, "Leaves the IPv6 address out of the status.", _boolean),
        _a("ipv4-rdns", "DNS name", "The reverse DNS name of the load balancer's IPv4 address.", host_name),
        _a("ipv6-rdns", "DNS name", "The reverse DNS name of the load balancer's IPv6 address.", host_name),
        _a("http-cookie-name", "name", "The cookie of sticky sessions.", _name),
        _a("http-cookie-lifetime", "duration", "How long the cookie lasts.", _seconds(1, 86400)),
        _a("http-timeout-idle", "duration", "How long an idle HTTP connection stays open.", _seconds(30, 300)),
        _a("http-redirect-http", _BOOL, "Redirects port 80 to https.", _boolean),
        _a("http-sticky-sessions", _BOOL, "Always sends a client to the same node.", _boolean),
        _a(
            "http-certificates",
            "names or IDs",
            "Certificates of the project.",
            _list(_NAMES, "names or IDs"),
            names_another=True,
        ),
        _a(
            "certificate-type",
            "uploaded or managed",
            "With `managed`, the controller creates the certificate.",
            _lower("uploaded", "managed"),
            "uploaded",
        ),
        _a(
            "http-managed-certificate-name",
            "name",
            "The name of the managed certificate.",
            _name,
            "`ccm-managed-certificate-UID`",
        ),
        _a(
            "http-managed-certificate-domains",
            "DNS names",
            "The domains of the managed certificate: one or more.",
            _domains,
        ),
        _a("http-managed-certificate-acme-staging", _BOOL, "Uses Let's Encrypt's staging service.", _boolean),
        _a(
            "health-check-protocol",
            "tcp, http or https",
            "The protocol of health checks.",
            _lower(*PROTOCOLS),
            "tcp, or `protocol` if port, interval, timeout or retries are set; http with externalTrafficPolicy Local",
        ),
        _a(
            "health-check-port",
            "port",
            "The port of health checks.",
            number(1, 65535),
            "the node port; healthCheckNodePort with externalTrafficPolicy Local",
        ),
        _a("health-check-interval", "duration", "The time between two checks.", _seconds(3, 60), "15s"),
        _a("health-check-timeout", "duration", "How long a check may take.", _seconds(1, 60), "10s"),
        _a("health-check-retries", "number", "How many checks in a row must fail.", number(1, 5), "3"),
        _a("health-check-http-domain", "DNS name", "The Host header of health checks.", host_name),
        _a(
            "health-check-http-path",
            "path",
            "The path of health checks.",
            _path,
            "/; /healthz with externalTrafficPolicy Local",
        ),
        _a("health-check-http-validate-certificate", _BOOL, "Whether the node's certificate must be valid.", _boolean),
        _a(
            "http-status-codes",
            "status codes",
            "The status codes of healthy answers.",
            _list(STATUS_CODE, "status codes"),
            "2??,3??",
        ),
        _a("id", "text", "Has no effect.", short_text),
        _a("ipv4", "text", "Has no effect.", short_text),
        _a("ipv6", "text", "Has no effect.", short_text),
    ),
)


def parse(annotations: Mapping[str, str], *, nodes_only: bool = False) -> ServiceAnnotations:
    """Return the values of the annotations. Raises Invalid with all values that cannot be used, and all annotations
    that are probably misspelled.

    `nodes_only`: check only annotations that choose nodes and their addresses. A mistake in another annotation must not
    stop updates of the targets.
    """
    reader = ServiceAnnotations(annotations, TABLE)
    if nodes_only:
        if problems := reader.problems_of("node-selector", "use-private-ip"):
            raise Invalid("; ".join(problems))
        return reader
    problems = [*reader.problems, *(f"annotation {key}: unknown" for key in TABLE.unknown(annotations))]
    if problems:
        raise Invalid("; ".join(problems))
    return reader
