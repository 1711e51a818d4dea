# SPDX-License-Identifier: Apache-2.0
"""Kinds of values in a provider's configuration, and settings as fields of dataclasses. Pure.

Each kind converts a text or raises a ValueError that says what is expected. The error never quotes the text, because it
may be a misplaced secret. A provider adds its own kinds as further functions.
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
#: The longest duration, in seconds; timers do not accept unlimited numbers.
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
        raise ValueError("expected a duration of more than 0, and at most 24h")
    return value


def one_of(*choices: str) -> Callable[[str], str]:
    def choice(raw: str) -> str:
        if raw not in choices:
            raise ValueError(f"expected one of {', '.join(choices)}")
        return raw

    choice.__name__ = " | ".join(f"`{each}`" for each in choices)
    return choice


def whole_number(low: int, high: int) -> Callable[[str], int]:
    """Return a kind for whole numbers from `low` to `high`."""

    def whole(raw: str) -> int:
        if not re.fullmatch(r"\d{1,9}", raw, re.ASCII) or not low <= int(raw) <= high:
            raise ValueError(f"expected a whole number from {low} to {high}")
        return int(raw)

    whole.__name__ = f"whole number from {low} to {high}"
    return whole


def matching(pattern: str, expected: str) -> Callable[[str], str]:
    """Return a kind for texts that match the whole pattern; `expected` completes "expected ..." in the error."""

    def kind(raw: str) -> str:
        if not re.fullmatch(pattern, raw):
            raise ValueError(f"expected {expected}")
        return raw

    return kind


def port(raw: str) -> int:
    if not re.fullmatch(r"[1-9]\d{0,4}", raw) or int(raw) > 65535:
        raise ValueError("expected a port, 1 to 65535")
    return int(raw)


def url(raw: str) -> str:
    """Parse a URL, and remove a slash at its end."""
    if not re.fullmatch(r"https?://[^\s/@?#]+(/[^\s@?#]*)?", raw):
        raise ValueError("expected https://HOST/PATH, without credentials")
    return raw.rstrip("/")


def path(raw: str) -> str:
    if not raw.startswith("/"):
        raise ValueError("expected an absolute path")
    return raw


def networks(raw: str) -> tuple[IPNetwork, ...]:
    try:
        return tuple(ipaddress.ip_network(each.strip(), strict=False) for each in raw.split(",") if each.strip())
    except ValueError:
        raise ValueError("expected CIDRs separated by commas") from None


def names(raw: str) -> tuple[str, ...]:
    """Return a tuple of one name, for a key that may be repeated; () for an empty text."""
    return (raw,) if raw else ()


#: Kind -> its name in the documentation.
KINDS: dict[Callable[[str], Any], str] = {
    text: "text",
    boolean: "true or false",
    number: "number",
    count: "whole number",
    duration: "duration",
    port: "port",
    url: "URL",
    path: "path",
    networks: "CIDRs, separated by commas",
    names: "text; may be repeated",
}


def key(
    default: T,
    help: str,
    kind: Callable[[str], Any] = text,
    *,
    secret: bool = False,
    ours: bool = False,
    former: str = "",
) -> T:
    """Return a dataclass field that is a configuration key; the file's format decides how the key separates words.

    `ours`: the Go provider does not have the key. `former`: an earlier name of the key, as the file spells it; it is
    still read, with a warning.
    """
    metadata = {"kind": kind, "help": help, "secret": secret, "ours": ours, "former": former}
    return dataclasses.field(default=default, repr=not secret, metadata=metadata)


def deprecated(former: str, name: str) -> str:
    """Return the warning about a former key."""
    return f"{former} is deprecated: write {name}"
