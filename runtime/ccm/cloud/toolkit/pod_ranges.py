# SPDX-License-Identifier: Apache-2.0
"""Reads `Instance.pod_cidrs` from the answers of a cloud's API."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable


def pod_ranges(texts: Iterable[object]) -> tuple[str, ...]:
    """Return the CIDRs among these values, in their order.

    Anything else is left out and is no error: the Node's life depends on its instance, so a range that cannot be read
    must not make the instance unknown.
    """
    networks = []
    for text in texts:
        try:
            networks.append(str(ipaddress.ip_network(str(text))))
        except ValueError:
            continue
    return tuple(networks)
