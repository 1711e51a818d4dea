# SPDX-License-Identifier: Apache-2.0
"""Restrictions on option values beyond their type. Each check raises ValueError with the problem."""

from __future__ import annotations

import re
from collections.abc import Callable

from ccm.controllers.nodes.node_lifecycle_rules import Safety
from ccm.engine.encodings import JSON, PROTOBUF

from .tls_options import CIPHERS, VERSIONS


def at_least(limit: int) -> Callable[[int], None]:
    """Return a check that requires a whole number of `limit` or more."""

    def check(value: int) -> None:
        if value < limit:
            raise ValueError(f"must be {limit} or more, not {value}")

    return check


def not_negative(value: float) -> None:
    """Require a duration of 0 seconds or more."""
    if value < 0:
        raise ValueError(f"must be 0 or more, not {value:g}s")


def positive(value: float) -> None:
    """Require a duration of more than 0 seconds."""
    if value <= 0:
        raise ValueError(f"must be more than 0, not {value:g}s")


def port(value: int) -> None:
    """Require a TCP port, or 0 for none."""
    if not 0 <= value <= 65535:
        raise ValueError(f"must be between 0 and 65535, not {value}")


def log_format(value: str) -> None:
    """Require a value of `--logging-format`."""
    if value not in ("text", "json"):
        raise ValueError(f"must be text or json, not {value!r}")


def tls_version(value: str) -> None:
    """Require Go's name of a TLS version, or an empty text."""
    if value not in ("", *VERSIONS):
        raise ValueError(f"must be one of {', '.join(VERSIONS)}, not {value!r}")


def cipher_suites(value: tuple[str, ...]) -> None:
    """Require Go's names of cipher suites."""
    if unknown := [name for name in value if name not in CIPHERS]:
        raise ValueError(f"unknown {', '.join(unknown)}: known cipher suites are {', '.join(CIPHERS)}")


def parse_cap(text: str) -> tuple[float, int]:
    """Return the share and the number of `--node-deletion-cap`: (0.1, `Safety.cap_min`) for "10%", (0.0, 5) for "5",
    (0.0, 0) for "0%" and "0". Raises ValueError."""
    if match := re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)%", text):
        if (share := float(match[1]) / 100) <= 1:
            return share, Safety().cap_min if share else 0
    elif re.fullmatch(r"[0-9]+", text):
        return 0.0, int(text)
    raise ValueError(f"{text!r} is neither a share such as 10% nor a number of Nodes")


def encoding(value: str) -> None:
    """Require one of the two encodings of the API server's objects."""
    if value not in (PROTOBUF, JSON):
        raise ValueError(f"must be {PROTOBUF} or {JSON}, not {value!r}")
