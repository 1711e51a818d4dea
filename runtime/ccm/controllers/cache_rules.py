# SPDX-License-Identifier: Apache-2.0
"""What the caches keep of Services and Nodes: pure decisions, no I/O.

All that controllers read of an ordinary object is kept. Of one that is larger than `limits` only so much is kept that
the rules see the excess.
"""

from __future__ import annotations

from msgspec.structs import replace

from ccm.engine.objects import Node, ObjectMeta, Service, ServiceSpec

from .limits import EXTERNAL_IPS, NODE_ADDRESSES, NODE_CONDITIONS, PORTS, SOURCE_RANGES
from .service_rules import FINALIZER

#: The conditions of a Node that controllers read.
CONDITIONS = frozenset({"Ready", "NetworkUnavailable"})


def kept_service(service: Service) -> Service:
    """One entry more than the limits allow. Of a Service that has no load balancer of ours and wants none, only what
    identifies it and its status."""
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
    """The first addresses; of too many conditions those that controllers read."""
    addresses, conditions = node.status.addresses, node.status.conditions
    if len(addresses) <= NODE_ADDRESSES and len(conditions) <= NODE_CONDITIONS:
        return node
    if len(conditions) > NODE_CONDITIONS:
        first = {each.type: each for each in reversed(conditions) if each.type in CONDITIONS}
        conditions = list(first.values())
    return replace(node, status=replace(node.status, addresses=addresses[:NODE_ADDRESSES], conditions=conditions))
