# SPDX-License-Identifier: Apache-2.0
"""Decide which state of a Node to believe when the API server may show a past one. No I/O.

A restored etcd, or an API server that lags behind, shows Nodes as they were. The resourceVersion does not reveal that:
after a restore it may be older or newer. Two facts do. Kubernetes never removes `spec.providerID`, so a Node that had
one, and now has none and the `uninitialized` taint, is shown in a past state. And a Node that replaces another one of
its name is created later.

A past state is ignored only while the cloud still has the instance of the later state.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from ccm.engine.objects import Node

from .node_rules import is_uninitialized


def believed(known: Node | None, shown: Node, has_instance: Callable[[Node], bool]) -> Node:
    """Return the Node that load balancers and routes use.

    `known`: the Node of this name that they used last, None for none. `shown`: what the API server shows now.
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
    """Return whether `one` was created before `other`; False if a time is missing. All times have the same format,
    so they are compared as strings."""
    created, later = one.metadata.creation_timestamp, other.metadata.creation_timestamp
    return bool(created) and bool(later) and str(created) < str(later)
