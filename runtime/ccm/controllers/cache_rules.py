# SPDX-License-Identifier: Apache-2.0
"""Decide how much of Services and Nodes the caches keep. No I/O.

An ordinary object keeps everything that controllers read. An object that is larger than `limits` keeps just enough for
the rules to notice the excess.
"""

from __future__ import annotations

from msgspec.structs import replace

from ccm.engine.objects import Node, NodeSystemInfo, ObjectMeta, Service, ServiceSpec

from .limits import (
    EXTERNAL_IPS,
    NODE_ADDRESSES,
    NODE_CONDITIONS,
    NODE_POD_CIDRS,
    NODE_TAINTS,
    PORTS,
    SOURCE_RANGES,
    SYSTEM_UUID,
)
from .service_rules import FINALIZER

#: The conditions of a Node that controllers read.
CONDITIONS = frozenset({"Ready", "NetworkUnavailable"})


def kept_service(service: Service) -> Service:
    """Return the Service with at most one entry more than the limits allow.

    A Service that has no load balancer of ours and wants none keeps only its identity and its status.
    """
    meta, spec = service.metadata, service.spec
    if spec.type != "LoadBalancer" and FINALIZER not in meta.finalizers:
        identity = ObjectMeta(
            meta.name, meta.namespace, meta.uid, meta.resource_version, meta.creation_timestamp, meta.deletion_timestamp
        )
        return Service(identity, ServiceSpec(type=spec.type), service.status)
    ranges, addresses = spec.load_balancer_source_ranges, spec.external_ips
    if len(spec.ports) <= PORTS and len(ranges) <= SOURCE_RANGES and len(addresses) <= EXTERNAL_IPS:
        return service
    trimmed = replace(
        spec,
        ports=spec.ports[: PORTS + 1],
        load_balancer_source_ranges=ranges[: SOURCE_RANGES + 1],
        external_ips=addresses[:EXTERNAL_IPS],
    )
    return replace(service, spec=trimmed)


def kept_node(node: Node) -> Node:
    """Return the Node with its first addresses and pod CIDRs, and at most one taint more than the limit allows.

    A Node with too many conditions keeps only those that controllers read.
    """
    spec, status = node.spec, node.status
    if len(spec.taints) > NODE_TAINTS or len(spec.pod_cidrs) > NODE_POD_CIDRS:
        spec = replace(spec, taints=spec.taints[: NODE_TAINTS + 1], pod_cidrs=spec.pod_cidrs[:NODE_POD_CIDRS])
    if len(status.addresses) > NODE_ADDRESSES:
        status = replace(status, addresses=status.addresses[:NODE_ADDRESSES])
    if len(status.conditions) > NODE_CONDITIONS:
        first = {each.type: each for each in reversed(status.conditions) if each.type in CONDITIONS}
        status = replace(status, conditions=list(first.values()))
    if len(status.node_info.system_uuid) > SYSTEM_UUID:
        status = replace(status, node_info=NodeSystemInfo())
    return node if spec is node.spec and status is node.status else replace(node, spec=spec, status=status)
