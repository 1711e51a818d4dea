# SPDX-License-Identifier: Apache-2.0
"""Decide what of a Node is believed when the API server may show the past. No I/O.

A restored etcd, or an API server that lags behind, shows Nodes as they were. The resourceVersion does not reveal that:
after a restore it may be older or newer. Two facts do. Kubernetes never takes `spec.providerID` away from a Node, so
one without it and with the `uninitialized` taint is shown as it was. And the Node that replaces another one under its
name is created later.

A past state is ignored only while the cloud supports what was seen since.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from ccm.engine.objects import Node

from .node_rules import is_uninitialized


def believed(known: Node | None, shown: Node, has_instance: Callable[[Node], bool]) -> Node:
    """Return the Node that load balancers and routes use.

    `known`: the one that they used last under this name, None for none. `shown`: what the API server shows now.
    `has_instance`: whether the cloud knows a Node's instance. Clocks of API servers differ, so a Node with an instance
    is never taken for a former one.
    """
    if known is None or not known.spec.provider_id:
        return shown
    if known.metadata.uid != shown.metadata.uid:
        return known if _is_older(shown, known) and has_instance(known) and not has_instance(shown) else shown
    if shown.spec.provider_id or not is_uninitialized(shown) or not has_instance(known):
        return shown
    before = known.spec
    spec = replace(shown.spec, provider_id=before.provider_id)
    if not spec.pod_cidrs:
        spec = replace(spec, pod_cidr=before.pod_cidr, pod_cidrs=before.pod_cidrs)
    return replace(shown, spec=spec, status=replace(shown.status, addresses=known.status.addresses))


def _is_older(one: Node, other: Node) -> bool:
    """Return whether it was created earlier; not if one of the times is missing. Kubernetes writes all in one form."""
    created, later = one.metadata.creation_timestamp, other.metadata.creation_timestamp
    return bool(created) and bool(later) and str(created) < str(later)
