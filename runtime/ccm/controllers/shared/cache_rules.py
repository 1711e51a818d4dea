# SPDX-License-Identifier: Apache-2.0
"""Decide how much of Services and Nodes the caches keep. No I/O.

An ordinary object keeps everything that controllers read. Of a list that exceeds its limit (`limits`), the first
entries are kept: one more than the limit if a rule must notice the excess.
"""

from __future__ import annotations

from msgspec.structs import replace

from ccm.base.shared_texts import MANY, shared
from ccm.engine.objects import (
    Node,
    NodeAddress,
    NodeCondition,
    NodeSpec,
    NodeStatus,
    NodeSystemInfo,
    ObjectMeta,
    Service,
    ServiceSpec,
)
from ccm.engine.protobuf.as_read import AsRead

from .limits import (
    AS_READ,
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
CONDITIONS = frozenset(each.decode() for each in NodeCondition.READ)
#: The taint with which a kubelet registers, until its Node is initialised.
UNINITIALIZED_TAINT = "node.cloudprovider.kubernetes.io/uninitialized"


def kept_service(service: Service) -> Service:
    """Return the Service with at most one entry more than the limits allow.

    A Service that has no load balancer of ours and requests none keeps only its identity, type and status.
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

    With thousands of Nodes, their decoded fields are most of the memory of the process. Half of that stays.
    """
    meta, spec, status = node.metadata, node.spec, node.status
    if spec.provider_id:  # the SMBIOS UUID only serves to find the machine of a Node without a providerID
        status = NodeStatus(status.addresses, status.conditions)
    if node.as_read is not None and _is_ordinary(spec, status):  # texts in protobuf are shared as they are read
        return Node(meta, spec, status, _as_read(node))
    meta = replace(meta, labels=_shared_texts(meta.labels), annotations=_shared_texts(meta.annotations))
    if len(spec.taints) > NODE_TAINTS or len(spec.pod_cidrs) > NODE_POD_CIDRS:
        spec = replace(spec, taints=spec.taints[: NODE_TAINTS + 1], pod_cidrs=spec.pod_cidrs[:NODE_POD_CIDRS])
    first: dict[str, NodeCondition] = {}
    for condition in status.conditions:
        if condition.type in CONDITIONS:
            first.setdefault(condition.type, condition)
    info = status.node_info
    status = NodeStatus(
        [NodeAddress(shared(address.type), address.address) for address in status.addresses[:NODE_ADDRESSES]],
        [_shared_condition(each) for each in first.values()],
        info if len(info.system_uuid) <= SYSTEM_UUID else NodeSystemInfo(),
    )
    return replace(node, metadata=meta, spec=spec, status=status, as_read=_as_read(node))


def _is_ordinary(spec: NodeSpec, status: NodeStatus) -> bool:
    """Return whether the Node exceeds no limit and has each condition once, so that all of it is kept."""
    conditions = status.conditions
    return (
        len(spec.taints) <= NODE_TAINTS
        and len(spec.pod_cidrs) <= NODE_POD_CIDRS
        and len(status.addresses) <= NODE_ADDRESSES
        and len(status.node_info.system_uuid) <= SYSTEM_UUID
        and len(conditions) == len({condition.type for condition in conditions})
    )


def _as_read(node: Node) -> AsRead | None:
    """Return the bytes from which the Node was read if it waits to be initialised, and if all such bytes in memory are
    within the limit. Otherwise return None."""
    waits = any(taint.key == UNINITIALIZED_TAINT for taint in node.spec.taints)
    return node.as_read if waits and AsRead.held <= AS_READ else None


def _shared_condition(condition: NodeCondition) -> NodeCondition:
    type_, status, reason, message = map(
        shared, (condition.type, condition.status, condition.reason, condition.message)
    )
    return replace(condition, type=type_, status=status, reason=reason, message=message)


def _shared_texts(texts: dict[str, str]) -> dict[str, str]:
    return texts if len(texts) > MANY else {shared(key): shared(value) for key, value in texts.items()}
