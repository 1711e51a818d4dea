# SPDX-License-Identifier: Apache-2.0
"""Selects the nodes behind a load balancer, and their addresses. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ccm.cloud import AddressType, Backend

Selector = Mapping[str, str | None]


def node_address(backend: Backend, family: str) -> str:
    """Return the address of this family ("IPv4", "IPv6") at which the node receives traffic, "" if it has none. The
    first InternalIP takes precedence over the first ExternalIP."""
    for kind in (AddressType.INTERNAL_IP, AddressType.EXTERNAL_IP):
        for address in backend.addresses:
            if address.type is kind and (":" in address.address) == (family == "IPv6"):
                return address.address
    return ""


def serving(backends: Sequence[Backend], family: str, selector: Selector | None = None) -> dict[str, Backend]:
    """Return the members of a load balancer: address -> node, sorted by node name. If several nodes report an address,
    it belongs to the first of them.

    `selector`: labels that a node must have, and their values, None for any value (`annotation_reader.selector`). Nodes
    without an address of the family are left out.
    """
    required = (selector or {}).items()
    backends_by_address: dict[str, Backend] = {}
    for backend in sorted(backends, key=lambda each: each.node_name):
        labels = backend.labels
        if not all(key in labels and value in (None, labels[key]) for key, value in required):
            continue
        if address := node_address(backend, family):
            backends_by_address.setdefault(address, backend)
    return backends_by_address


def draining(members: Mapping[str, Backend]) -> frozenset[str]:
    """Return the addresses of the members that drain; none if all members would drain."""
    draining_addresses = frozenset(address for address, backend in members.items() if backend.draining)
    return draining_addresses if len(draining_addresses) < len(members) else frozenset()


def members_of(backends: Sequence[Backend], family: str, selector: Selector | None = None) -> list[tuple[str, str]]:
    """Return name and address of each node that `serving` returns, sorted by name."""
    return [(backend.node_name, address) for address, backend in serving(backends, family, selector).items()]
