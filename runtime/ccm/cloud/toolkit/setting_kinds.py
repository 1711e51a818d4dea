# SPDX-License-Identifier: Apache-2.0
"""Kinds of values in a provider's configuration, and settings as fields of dataclasses. Pure.

Each kind makes a value of its text or raises ValueError with what was expected; never with the text, since that may be
a secret in the wrong place. A provider adds kinds of its own as further functions.
"""

from __future__ import annotations

import dataclasses
import ipaddress
import re
from collections.abc import Callable
from typing import Any, TypeVar

from ccm.base import durations

T = TypeVar("T")

TRUE, FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")
#: Nothing that is waited for takes longer, in seconds; what counts time takes no number without end.
LONGEST = 86400.0

IPNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network


def text(raw: str) -> str:
    return raw


def boolean(raw: str) -> bool:
    if raw.lower() in TRUE + FALSE:
        return raw.lower() in TRUE
    raise ValueError("expected true or false")


def number(raw: str) -> float:
    try:
        if (value := float(raw)) > 0 and value < float("inf"):
            return value
    except ValueError:
        pass
    raise ValueError("expected a number greater than 0")


def count(raw: str) -> int:
    if not re.fullmatch(r"[1-9]\d{0,8}", raw):
        raise ValueError("expected a whole number greater than 0")
    return int(raw)


def duration(raw: str) -> float:
    try:
        value = round(durations.parse(raw), 9)
    except ValueError:
        raise ValueError("expected a duration with its unit, such as 5s or 1m30s") from None
    if not 0 < value <= LONGEST:
        raise ValueError("expected more than no time at all, and a day at most")
    return value


def one_of(*choices: str) -> Callable[[str], str]:
    def choice(raw: str) -> str:
        if raw not in choices:
            raise ValueError(f"expected one of {', '.join(choices)}")
        return raw

    choice.__name__ = " | ".join(f"`{each}`" for each in choices)
    return choice


def networks(raw: str) -> tuple[IPNetwork, ...]:
    try:
        return tuple(ipaddress.ip_network(each.strip(), strict=False) for each in raw.split(",") if each.strip())
    except ValueError:
        raise ValueError("expected CIDRs separated by commas") from None


def names(raw: str) -> tuple[str, ...]:
    """Of a key that may be repeated: one name."""
    return (raw,) if raw else ()


#: Kind -> what documents call it.
KINDS: dict[Callable[[str], Any], str] = {
    text: "text",
    boolean: "true or false",
    number: "number",
    count: "whole number",
    duration: "duration",
    networks: "CIDRs, separated by commas",
    names: "text; may be repeated",
}


def key(default: T, help: str, kind: Callable[[str], Any] = text, *, secret: bool = False, ours: bool = False) -> T:
    """A field that is a key of the configuration, spelt with dashes there. `ours`: the Go provider does not know it."""
    metadata = {"kind": kind, "help": help, "secret": secret, "ours": ours}
    return dataclasses.field(default=default, repr=not secret, metadata=metadata)
