# SPDX-License-Identifier: Apache-2.0
"""Decide how much of Services and Nodes the caches keep. No I/O.

An ordinary object keeps everything that controllers read. An object that is larger than `limits` keeps just enough for
the rules to notice the excess.
"""

from __future__ import annotations

from msgspec.structs import replace

from ccm.engine.objects import (
    Node,
    NodeAddress,
    NodeCondition,
    NodeStatus,
    NodeSystemInfo,
    ObjectMeta,
    Service,
    ServiceSpec,
)

from .limits import (
    EXTERNAL_IPS,
    NODE_ADDRESSES,
    NODE_POD_CIDRS,
    NODE_TAINTS,
    PORTS,
    SOURCE_RANGES,
    SYSTEM_UUID,
)

#: The finalizer of Services with a load balancer of ours.
FINALIZER = "service.kubernetes.io/load-balancer-cleanup"
#: The conditions of a Node that controllers read.
CONDITIONS = frozenset({"Ready", "NetworkUnavailable"})
#: How many texts of Nodes to remember, and to share among Nodes: many more than clusters have zones and pools.
SHARED_TEXTS = 4096


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
    """Return the Node with the conditions that controllers read, its first addresses and pod CIDRs, and at most one
    taint more than the limit allows. Texts that many Nodes have in common are kept once.

    This is half of what was decoded: with thousands of Nodes, it is most of the memory of the process.
    """
    meta, spec, status = node.metadata, node.spec, node.status
    meta = replace(meta, labels=_shared_texts(meta.labels), annotations=_shared_texts(meta.annotations))
    if len(spec.taints) > NODE_TAINTS or len(spec.pod_cidrs) > NODE_POD_CIDRS:
        spec = replace(spec, taints=spec.taints[: NODE_TAINTS + 1], pod_cidrs=spec.pod_cidrs[:NODE_POD_CIDRS])
    first = {each.type: each for each in reversed(status.conditions) if each.type in CONDITIONS}
    info = status.node_info
    status = NodeStatus(
        [NodeAddress(_shared(each.type), each.address) for each in status.addresses[:NODE_ADDRESSES]],
        [_shared_condition(each) for each in first.values()],
        info if len(info.system_uuid) <= SYSTEM_UUID else NodeSystemInfo(),
    )
    return replace(node, metadata=meta, spec=spec, status=status)


def _shared_condition(condition: NodeCondition) -> NodeCondition:
    type_, status, reason, message = map(
        _shared, (condition.type, condition.status, condition.reason, condition.message)
    )
    return replace(condition, type=type_, status=status, reason=reason, message=message)


def _shared_texts(texts: dict[str, str]) -> dict[str, str]:
    return {_shared(key): _shared(value) for key, value in texts.items()}


def _shared(text: str) -> str:
    """Return the text, as the same Python object as last time. The memory of texts is bounded: kubelets write them."""
    if len(_texts) > SHARED_TEXTS:
        _texts.clear()
    return _texts.setdefault(text, text)


_texts: dict[str, str] = {}
