# SPDX-License-Identifier: Apache-2.0
"""Which Services this process serves, and which it leaves to others: `--load-balancer-class` and
`--default-load-balancer-provider`. No I/O."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ccm.base.text import quoted
from ccm.controllers.services.class_rules import ServedClasses

#: The value of `--default-load-balancer-provider` that leaves Services without a class to other controllers.
NOBODY = "none"
#: What the API server accepts as spec.loadBalancerClass: a name of labels, with or without a domain.
_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_DOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LONGEST_DOMAIN = 253


def served_classes(declared: Sequence[str], default: str, provider: str) -> ServedClasses:
    """Return the Services that this process serves.

    `declared`: NAME or NAME=PROVIDER. `default`: the provider of Services without a class, "" for the only provider,
    `NOBODY` for none. `provider`: the only provider, "" if it is not known. Raises ValueError with one sentence.
    """
    names = [_named(text, provider) for text in declared]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"--load-balancer-class names {name} more than once")
    if default not in ("", NOBODY) and provider and default != provider:
        raise ValueError(
            f"--default-load-balancer-provider is {default!r}, but --cloud-provider is {provider!r}: set it to that "
            f"provider, or to {NOBODY}"
        )
    if default == NOBODY and not names:
        raise ValueError(
            f"--default-load-balancer-provider={NOBODY} without --load-balancer-class leaves no Service to serve: "
            "name a class, or turn the controller off with --controllers='*,-service-lb-controller'"
        )
    return ServedClasses(frozenset(names), default != NOBODY)


def _named(text: str, provider: str) -> str:
    """Return the class that one value names. Raises ValueError."""
    name, separator, server = text.partition("=")
    if not is_class(name):
        raise ValueError(
            f"--load-balancer-class: {quoted(name)} is no class that a Service can have, such as internal or "
            "example.com/internal"
        )
    if separator and not server:
        raise ValueError(f"--load-balancer-class: {text} names no provider after the equals sign")
    if separator and provider and server != provider:
        raise ValueError(
            f"--load-balancer-class: {text} names the provider {server!r}, but --cloud-provider is {provider!r}"
        )
    return name


def is_class(text: str) -> bool:
    """Return whether a Service can have this class."""
    domain, separator, name = text.rpartition("/")
    if separator and not (len(domain) <= _LONGEST_DOMAIN and _DOMAIN.fullmatch(domain)):
        return False
    return _NAME.fullmatch(name) is not None
