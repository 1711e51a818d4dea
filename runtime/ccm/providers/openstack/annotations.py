# SPDX-License-Identifier: Apache-2.0
"""The annotations of a Service that Octavia load balancers are made by: those of cloud-provider-openstack.

`TABLE` is what the documentation is generated from. A value that cannot be understood is told on the Service, where
cloud-provider-openstack logs it and takes its default.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

PREFIX = "loadbalancer.openstack.org/"
INTERNAL = "service.beta.kubernetes.io/openstack-internal-load-balancer"

LB_METHODS = ("ROUND_ROBIN", "LEAST_CONNECTIONS", "SOURCE_IP", "SOURCE_IP_PORT")
#: What the annotation and Octavia call the versions of the PROXY protocol.
PROXY = {"true": "PROXY", "v1": "PROXY", "v2": "PROXYV2", "false": "", "": ""}


@dataclass(frozen=True)
class Annotation:
    """`read` makes a value of the text or raises ValueError saying what it should be. `kind`: for readers."""

    key: str
    kind: str
    effect: str
    read: Callable[[str], Any]
    default: str = ""


def _text(text: str) -> str:
    return text.strip()


def _bool(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError("true or false")
    return text == "true"


def _number(least: int, most: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = least - 1
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
        if not key or "=" in value:
            raise ValueError("key=value or key, comma-separated")
        wanted[key] = value if equals and value else None
    return wanted


_MILLISECONDS = _number(0, 31_536_000_000)


def _own(name: str, kind: str, effect: str, read: Callable[[str], Any], default: str = "") -> Annotation:
    return Annotation(PREFIX + name, kind, effect, read, default)


TABLE: tuple[Annotation, ...] = (
    _own(
        "class", "text", "Take networks from this `[LoadBalancerClass]` of cloud.conf; for a new load balancer", _text
    ),
    _own(
        "floating-network-id",
        "ID",
        "Network of the floating IP; for a new load balancer",
        _text,
        "`floating-network-id`, else found",
    ),
    _own(
        "floating-subnet-id",
        "ID",
        "Subnet of the floating IP; for a new load balancer",
        _text,
        "`floating-subnet-id`",
    ),
    _own(
        "floating-subnet",
        "pattern",
        "Subnets of the floating IP by name: a glob, `~` and a regular expression; `!` first negates; "
        "for a new load balancer",
        _text,
        "`floating-subnet`",
    ),
    _own(
        "floating-subnet-tags",
        "tags",
        "Subnets of the floating IP by tags, comma-separated: any of them; all of them after `&`; `!` first negates; "
        "for a new load balancer",
        _text,
        "`floating-subnet-tags`",
    ),
    _own("network-id", "ID", "Network of the VIP; for a new load balancer", _text, "`network-id`"),
    _own("subnet-id", "ID", "Subnet of the VIP; for a new load balancer", _text, "`subnet-id`, else the nodes'"),
    _own("port-id", "ID", "An existing port that becomes the VIP; for a new load balancer", _text),
    _own(
        "member-subnet-id",
        "ID",
        "Subnet of the members; for new members",
        _text,
        "`member-subnet-id`, else `subnet-id`, else that of the VIP",
    ),
    _own("keep-floatingip", "true, false", "Keep the floating IP when the Service is deleted", _bool, "`false`"),
    _own(
        "load-balancer-id",
        "ID",
        "Use this load balancer: one's own, or one that is shared with other Services (`max-shared-lb`)",
        _text,
    ),
    _own(
        "load-balancer-address",
        "address",
        "Written by cloud-provider-openstack. A load balancer of the Service's name at this address is its own; where "
        "`load-balancer-id` names one that is gone, a new one is made",
        _text,
    ),
    _own("hostname", "text", "This host name in the Service's status, in place of the address", _text),
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
    _own("flavor-id", "ID", "Octavia flavor; for a new load balancer", _text, "`flavor-id`"),
    _own(
        "availability-zone", "text", "Octavia availability zone; for a new load balancer", _text, "`availability-zone`"
    ),
    _own(
        "default-tls-container-ref",
        "URL",
        "TERMINATED_HTTPS listeners with this secret or container (TCP ports)",
        _text,
        "`default-tls-container-ref`",
    ),
    Annotation(INTERNAL, "true, false", "No floating IP", _bool, "`false`; `internal-lb = true` wins"),
)

_BY_KEY = {each.key: each for each in TABLE}


class Annotations:
    """What a Service says, read. `problems`: a sentence for each value that cannot be understood."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self.problems: list[str] = []
        self._values: dict[str, Any] = {}
        for key, text in sorted(given.items()):
            if (known := _BY_KEY.get(key)) is None:
                continue
            try:
                self._values[key] = known.read(text)
            except ValueError as error:
                self.problems.append(f"annotation {key}: {text!r} is not {error}")

    def get(self, name: str, default: Any = None) -> Any:
        """The value of `loadbalancer.openstack.org/NAME` (or of a whole key), `default` where the Service says nothing.

        Empty text is said, too: it undoes what cloud.conf says.
        """
        return self._values.get(name if "/" in name else PREFIX + name, default)

    def given(self, name: str) -> bool:
        return PREFIX + name in self._values


def unknown(given: Mapping[str, str]) -> list[str]:
    """Annotations of our prefix that mean nothing, most likely misspelt."""
    return sorted(key for key in given if key.startswith(PREFIX) and key not in _BY_KEY)
