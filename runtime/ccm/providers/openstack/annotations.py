# SPDX-License-Identifier: Apache-2.0
"""The annotations of a Service that Octavia load balancers are made by: those of cloud-provider-openstack.

`TABLE` is what the documentation is generated from. A value that cannot be understood is reported on the Service, where
cloud-provider-openstack logs it and takes its default. Each value has a form and a longest text: who creates Services
may be a stranger, and values go into paths, queries, patterns and Events.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ccm.cloud import Invalid

from . import name_patterns

PREFIX = "loadbalancer.openstack.org/"
INTERNAL = "service.beta.kubernetes.io/openstack-internal-load-balancer"

LB_METHODS = ("ROUND_ROBIN", "LEAST_CONNECTIONS", "SOURCE_IP", "SOURCE_IP_PORT")
#: What the annotation and Octavia call the versions of the PROXY protocol.
PROXY = {"true": "PROXY", "v1": "PROXY", "v2": "PROXYV2", "false": "", "": ""}
#: The longest value, in characters. What has a form of its own is shorter.
LONGEST = 2048
#: How much of a value that cannot be understood is quoted, and how many annotations one message names.
QUOTED, NAMED = 80, 10
#: How many labels a selector may ask for, and how many tags a subnet.
MANY = 16

UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII)
NUMBER = re.compile(r"[+-]?[0-9]{1,15}", re.ASCII)
DNS_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?", re.ASCII)
LABEL_PART = re.compile(r"[A-Za-z0-9_./-]{0,317}", re.ASCII)
REFERENCE = re.compile(r"https?://[A-Za-z0-9.:\[\]_-]{1,255}/[A-Za-z0-9._~:/%+=-]{1,500}", re.ASCII)


@dataclass(frozen=True)
class Annotation:
    """`read` makes a value of the text or raises ValueError saying what it should be. `kind`: for readers.

    `names_another`: it names something else of the project than the Service's own load balancer, and works only if the
    administrator allows it. `for_new`: an existing load balancer stays as it is, whatever it says.
    """

    key: str
    kind: str
    effect: str
    read: Callable[[str], Any]
    default: str = ""
    names_another: bool = False
    for_new: bool = False

    @property
    def name(self) -> str:
        """As `allowed-annotations` spells it."""
        return self.key.rpartition("/")[2]


def _text(text: str) -> str:
    text = text.strip()
    if len(text) > 255 or not text.isprintable():
        raise ValueError("a name of at most 255 characters")
    return text


def identity(text: str) -> str:
    """An ID as Neutron and Octavia give them, in lower case; "" stays "". Raises ValueError."""
    text = text.strip().lower()
    if text and not UUID.fullmatch(text):
        raise ValueError("an ID such as 152a2b07-8cb3-4f5a-9d1e-0c2f6f1d3e4b")
    return text


def _address(text: str) -> str:
    text = text.strip()
    if not text:
        return ""
    try:
        return str(ipaddress.ip_address(text if len(text) <= 45 and "%" not in text else ""))
    except ValueError:
        raise ValueError("an IP address") from None


def _pattern(text: str) -> str:
    text = text.strip()
    try:
        name_patterns.check(text)
    except Invalid:
        raise ValueError(
            f"a pattern of at most {name_patterns.LONGEST} characters; after ~ a regular expression of RE2"
        ) from None
    return text


def _tags(text: str) -> str:
    text = text.strip()
    if len(text) > 1024 or text.count(",") >= MANY or not text.isprintable():
        raise ValueError(f"at most {MANY} tags, comma-separated")
    return text


def _host_name(text: str) -> str:
    """As the API server takes it for the status of a Service."""
    text = text.strip()
    labels = text.split(".") if len(text) <= 253 else [""]
    if text and not (all(DNS_LABEL.fullmatch(each) for each in labels) and not labels[-1].isdigit()):
        raise ValueError("a DNS name in lower case")
    return text


def _reference(text: str) -> str:
    text = text.strip()
    if text and not REFERENCE.fullmatch(text):
        raise ValueError("a URL such as https://HOST/v1/secrets/ID")
    return text


def _bool(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError("true or false")
    return text == "true"


def _number(least: int, most: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        number = int(text) if NUMBER.fullmatch(text.strip()) else least - 1
        if not least <= number <= most:
            raise ValueError(f"a whole number from {least} to {most}")
        return number

    return read


def _one_of(*choices: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in choices:
            raise ValueError(f"one of {', '.join(choices)}")
        return text

    return read


def _proxy(text: str) -> str:
    if text not in PROXY:
        raise ValueError("true, false, v1 or v2")
    return PROXY[text]


def selector(text: str) -> dict[str, str | None]:
    """`key=value` or `key`, comma-separated: labels and their values, None for any. Raises ValueError."""
    wanted: dict[str, str | None] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not key or not LABEL_PART.fullmatch(key) or not LABEL_PART.fullmatch(value) or len(wanted) >= MANY:
            raise ValueError(f"key=value or key, comma-separated, of at most {MANY} labels")
        wanted[key] = value if equals and value else None
    return wanted


_MILLISECONDS = _number(0, 31_536_000_000)


def _own(name: str, kind: str, effect: str, read: Callable[[str], Any], default: str = "", **more: bool) -> Annotation:
    """What shapes the Service's own load balancer."""
    return Annotation(PREFIX + name, kind, effect, read, default, **more)


def _other(name: str, kind: str, effect: str, read: Callable[[str], Any], default: str = "") -> Annotation:
    """What names another resource of the project, for a new load balancer."""
    return Annotation(PREFIX + name, kind, effect, read, default, names_another=True, for_new=True)


TABLE: tuple[Annotation, ...] = (
    _own(
        "class",
        "text",
        "Take networks from this `[LoadBalancerClass]` of cloud.conf; for a new load balancer",
        _text,
        for_new=True,
    ),
    _other(
        "floating-network-id",
        "ID",
        "Network of the floating IP; for a new load balancer",
        identity,
        "`floating-network-id`, else found",
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
        "Subnets of the floating IP by name: a glob, `~` and a regular expression; `!` first negates; "
        "for a new load balancer",
        _pattern,
        "`floating-subnet`",
    ),
    _other(
        "floating-subnet-tags",
        "tags",
        "Subnets of the floating IP by tags, comma-separated: any of them; all of them after `&`; `!` first negates; "
        "for a new load balancer",
        _tags,
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
        "`member-subnet-id`, else `subnet-id`, else that of the VIP",
    ),
    _own("keep-floatingip", "true, false", "Keep the floating IP when the Service is deleted", _bool, "`false`"),
    _own(
        "load-balancer-id",
        "ID",
        "Use this load balancer: one's own, or one that `sharing` lets it share with other Services (`max-shared-lb`)",
        identity,
        for_new=True,
    ),
    _own(
        "load-balancer-address",
        "address",
        "Written by cloud-provider-openstack. With `sharing = project` a load balancer of the Service's name at this "
        "address is its own. Where `load-balancer-id` names one that is gone, a new one is made",
        _address,
        for_new=True,
    ),
    _own("hostname", "DNS name", "This host name in the Service's status, in place of the address", _host_name),
    _own(
        "node-selector",
        "labels",
        "Only nodes with these labels are members: `key=value` or `key`, comma-separated",
        selector,
        "`node-selector`",
    ),
    _own("connection-limit", "number", "Connections per listener, -1 for no limit", _number(-1, 2**31 - 1), "`-1`"),
    _own("proxy-protocol", "true, false, v1, v2", "Speak the PROXY protocol to members (TCP ports)", _proxy, "`false`"),
    _own("x-forwarded-for", "true, false", "HTTP listeners that add the header (TCP ports)", _bool, "`false`"),
    _own(
        "lb-method", "choice", f"How members are chosen: {', '.join(LB_METHODS)}", _one_of(*LB_METHODS), "`lb-method`"
    ),
    _own("timeout-client-data", "ms", "Inactivity of the client", _MILLISECONDS, "`50000`"),
    _own("timeout-member-connect", "ms", "Connecting to a member", _MILLISECONDS, "`5000`"),
    _own("timeout-member-data", "ms", "Inactivity of the member", _MILLISECONDS, "`50000`"),
    _own("timeout-tcp-inspect", "ms", "Waiting for more data of a request to inspect", _MILLISECONDS, "`0`"),
    _own("enable-health-monitor", "true, false", "Whether members are probed", _bool, "`create-monitor`"),
    _own("health-monitor-delay", "s", "Between probes", _number(1, 2**31 - 1), "`monitor-delay`"),
    _own("health-monitor-timeout", "s", "For one probe, at most the delay", _number(1, 2**31 - 1), "`monitor-timeout`"),
    _own("health-monitor-max-retries", "1-10", "Good probes until up", _number(1, 10), "`monitor-max-retries`"),
    _own(
        "health-monitor-max-retries-down", "1-10", "Bad probes until down", _number(1, 10), "`monitor-max-retries-down`"
    ),
    _other("flavor-id", "ID", "Octavia flavor; for a new load balancer", identity, "`flavor-id`"),
    _other(
        "availability-zone", "text", "Octavia availability zone; for a new load balancer", _text, "`availability-zone`"
    ),
    _own(
        "default-tls-container-ref",
        "URL",
        "TERMINATED_HTTPS listeners with this secret or container (TCP ports)",
        _reference,
        "`default-tls-container-ref`",
        names_another=True,
    ),
    Annotation(INTERNAL, "true, false", "No floating IP", _bool, "`false`; `internal-lb = true` wins"),
)

BY_KEY = {each.key: each for each in TABLE}
BY_NAME = {each.name: each for each in TABLE}


class Annotations:
    """What a Service says, read. `problems`: a sentence for each value that cannot be understood."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self.problems: list[str] = []
        self._values: dict[str, Any] = {}
        for key, text in sorted(given.items()):
            if (known := BY_KEY.get(key)) is None:
                continue
            try:
                if len(text) > LONGEST:
                    raise ValueError(f"{known.kind} of at most {LONGEST} characters")
                self._values[key] = known.read(text)
            except ValueError as error:
                self.problems.append(f"annotation {key}: {quoted(text)} is not {error}")

    def get(self, name: str, default: Any = None) -> Any:
        """The value of `loadbalancer.openstack.org/NAME` (or of a whole key), `default` where the Service says nothing.

        Empty text is said, too: it undoes what cloud.conf says.
        """
        return self._values.get(name if "/" in name else PREFIX + name, default)

    def given(self, name: str) -> bool:
        return PREFIX + name in self._values


def quoted(text: str) -> str:
    """For a message: the beginning of a long one."""
    return repr(text if len(text) <= QUOTED else f"{text[:QUOTED]}...")


def unknown(given: Mapping[str, str]) -> list[str]:
    """Annotations of our prefix that mean nothing, most likely misspelt; the first ones of many."""
    return sorted(key for key in given if key.startswith(PREFIX) and key not in BY_KEY)[:NAMED]
