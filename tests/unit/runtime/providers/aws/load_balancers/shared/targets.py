# SPDX-License-Identifier: Apache-2.0
"""Nodes that may be targets, and a desired state that selects among them."""

from __future__ import annotations

from dataclasses import dataclass, field

from ccm.cloud import Address, AddressType, Backend


@dataclass
class Desired:
    nodes: dict[str, str | None] = field(default_factory=dict)
    most: int = 0
    local: bool = False
    service: str = "u-1"


def backend(number: int, *, draining: bool = False, addressed: bool = True, **labels: str) -> Backend:
    addresses = (Address(AddressType.INTERNAL_IP, f"10.0.0.{number}"),) if addressed else ()
    return Backend(f"n{number}", f"aws:///eu-west-1a/i-{number:017x}", addresses, labels, draining)


def id_of(number: int) -> str:
    return f"i-{number:017x}"


ZONE = "topology.kubernetes.io/zone"
MANY = [backend(number, **{ZONE: "ab"[number % 2]}) for number in range(10)]
