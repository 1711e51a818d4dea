# SPDX-License-Identifier: Apache-2.0
"""The parts of Kubernetes objects that controllers read.

The types are partial and read-only: decoding drops all other fields, so a Node takes 4.9 KiB instead of 67. An object
of these types must therefore never be sent back whole; writes are patches (`ccm.engine.client.KubeClient.patch`), or
changes of an object's own bytes (`KubeClient.replace`). Times are RFC 3339 text, as in JSON.
"""

from __future__ import annotations

import datetime
from typing import Any, ClassVar, Generic, Protocol, TypeVar, runtime_checkable

import msgspec
from msgspec import field

from .protobuf.as_read import AsRead

T = TypeVar("T")

#: All exceptions that decoding raises for unexpected data, however broken or deeply nested.
UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class ObjectMeta(msgspec.Struct, gc=False, frozen=True, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    finalizers: list[str] = []


@runtime_checkable
class KubeObject(Protocol):
    """Anything with metadata."""

    @property
    def metadata(self) -> ObjectMeta: ...


class PartialObject(msgspec.Struct, gc=False, frozen=True, rename="camel"):
    """Any object, as its metadata alone."""

    MESSAGE: ClassVar[str] = "k8s.io.apimachinery.pkg.apis.meta.v1.PartialObjectMetadata"

    metadata: ObjectMeta = ObjectMeta()


class ObjectRef(msgspec.Struct, gc=False, frozen=True, rename="camel"):
    """The object that an Event is about."""

    api_version: str
    kind: str
    name: str
    namespace: str = ""
    uid: str = ""


class Taint(msgspec.Struct, gc=False, frozen=True, rename="camel"):
    key: str
    value: str = ""
    effect: str = ""
    time_added: str | None = None


class NodeSpec(msgspec.Struct, gc=False, frozen=True, rename="camel"):
    provider_id: str = field(default="", name="providerID")
    pod_cidr: str = field(default="", name="podCIDR")
    pod_cidrs: list[str] = field(default_factory=list, name="podCIDRs")
    taints: list[Taint] = []
    unschedulable: bool = False


class NodeAddress(msgspec.Struct, gc=False, frozen=True, rename="camel"):
    type: str
    address: str


class NodeCondition(msgspec.Struct, gc=False, frozen=True, rename="camel"):
    #: The types that controllers read. Of a Node in protobuf, no other conditions are read, because each would take as
    #: much time as all labels.
    READ: ClassVar[frozenset[bytes]] = frozenset({b"Ready", b"NetworkUnavailable"})
    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class NodeSystemInfo(msgspec.Struct, gc=False, frozen=True):
    system_uuid: str = msgspec.field(default="", name="systemUUID")


class NodeStatus(msgspec.Struct, gc=False, frozen=True, rename="camel"):
    addresses: list[NodeAddress] = []
    conditions: list[NodeCondition] = []
    node_info: NodeSystemInfo = NodeSystemInfo()


class Node(msgspec.Struct, gc=False, frozen=True, rename="camel"):
    MESSAGE: ClassVar[str] = "k8s.io.api.core.v1.Node"
    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()
    #: The bytes of a Node that was read in protobuf and waits to be initialised.
    as_read: AsRead | None = None


class ServicePort(msgspec.Struct, gc=False, frozen=True, rename="camel"):
    name: str = ""
    protocol: str = "TCP"
    port: int = 0
    target_port: int | str | None = None
    node_port: int = 0
    app_protocol: str | None = None


class ServiceSpec(msgspec.Struct, gc=False, frozen=True, rename="camel"):
    type: str = "ClusterIP"
    ports: list[ServicePort] = []
    cluster_ip: str = field(default="", name="clusterIP")
    load_balancer_class: str | None = None
    load_balancer_ip: str = field(default="", name="loadBalancerIP")
    load_balancer_source_ranges: list[str] = []
    external_ips: list[str] = field(default_factory=list, name="externalIPs")
    session_affinity: str = "None"
    session_affinity_config: dict[str, dict[str, int | None] | None] | None = None
    external_traffic_policy: str = ""
    internal_traffic_policy: str = ""
    health_check_node_port: int = 0
    ip_families: list[str] = []
    ip_family_policy: str = ""
    allocate_load_balancer_node_ports: bool | None = None
    publish_not_ready_addresses: bool = False


class IngressPortStatus(msgspec.Struct, gc=False, frozen=True, rename="camel"):
    port: int
    protocol: str = "TCP"
    error: str | None = None


class IngressEntry(msgspec.Struct, gc=False, frozen=True, rename="camel"):
    ip: str = ""
    hostname: str = ""
    ip_mode: str | None = None
    ports: list[IngressPortStatus] = []


class LoadBalancerStatus(msgspec.Struct, gc=False, frozen=True, rename="camel"):
    ingress: list[IngressEntry] = []


class ServiceCondition(msgspec.Struct, gc=False, frozen=True, rename="camel"):
    #: The type that the service controller writes. Of a Service in protobuf, no other conditions are read.
    READ: ClassVar[frozenset[bytes]] = frozenset({b"LoadBalancerWaiting"})
    type: str
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class ServiceStatus(msgspec.Struct, gc=False, frozen=True, rename="camel"):
    load_balancer: LoadBalancerStatus = LoadBalancerStatus()
    conditions: list[ServiceCondition] = []


class Service(msgspec.Struct, gc=False, frozen=True, rename="camel"):
    MESSAGE: ClassVar[str] = "k8s.io.api.core.v1.Service"
    metadata: ObjectMeta = ObjectMeta()
    spec: ServiceSpec = ServiceSpec()
    status: ServiceStatus = ServiceStatus()


class CsiSource(msgspec.Struct, gc=False, frozen=True, rename="camel"):
    driver: str = ""
    volume_handle: str = ""


class InTreeSource(msgspec.Struct, gc=False, frozen=True, rename="camel"):
    """The volume of an in-tree volume plugin: each plugin uses one of these fields."""

    volume_id: str = field(default="", name="volumeID")
    pd_name: str = ""
    disk_uri: str = field(default="", name="diskURI")
    volume_path: str = ""


class PersistentVolumeSpec(msgspec.Struct, gc=False, frozen=True, rename="camel"):
    csi: CsiSource | None = None
    aws_elastic_block_store: InTreeSource | None = None
    azure_disk: InTreeSource | None = None
    cinder: InTreeSource | None = None
    gce_persistent_disk: InTreeSource | None = None
    vsphere_volume: InTreeSource | None = None
    node_affinity: dict[str, Any] | None = None


class PersistentVolume(msgspec.Struct, gc=False, frozen=True, rename="camel"):
    MESSAGE: ClassVar[str] = "k8s.io.api.core.v1.PersistentVolume"
    metadata: ObjectMeta = ObjectMeta()
    spec: PersistentVolumeSpec = PersistentVolumeSpec()


class LeaseSpec(msgspec.Struct, gc=False, frozen=True, rename="camel"):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Lease(msgspec.Struct, gc=False, frozen=True, rename="camel"):
    MESSAGE: ClassVar[str] = "k8s.io.api.coordination.v1.Lease"
    metadata: ObjectMeta = ObjectMeta()
    spec: LeaseSpec = LeaseSpec()


class ListMeta(msgspec.Struct, gc=False, frozen=True, rename="camel"):
    resource_version: str = ""
    continue_: str = field(default="", name="continue")


class ListOf(msgspec.Struct, Generic[T], gc=False, frozen=True, rename="camel"):
    """A page of a LIST. The API machinery sometimes writes an empty list as `null`."""

    metadata: ListMeta = ListMeta()
    items: list[T] | None = None


class StatusDetails(msgspec.Struct, gc=False, frozen=True, rename="camel"):
    retry_after_seconds: int = 0


class Status(msgspec.Struct, gc=False, frozen=True, rename="camel"):
    """meta/v1 Status: an error of the API server."""

    MESSAGE: ClassVar[str] = "k8s.io.apimachinery.pkg.apis.meta.v1.Status"

    kind: str = ""
    message: str = ""
    reason: str = ""
    code: int = 0
    details: StatusDetails | None = None


class WatchEvent(msgspec.Struct, gc=False, frozen=True, rename="camel"):
    """One event of a watch; `object` is decoded when `type` is known: JSON, or bytes of protobuf in its envelope."""

    type: str
    object: msgspec.Raw


_decoders: dict[object, msgspec.json.Decoder[Any]] = {}


def decoder(type_: type[T]) -> msgspec.json.Decoder[T]:
    """Return the type's one decoder for the life of the process, because creating it costs far more than using it."""
    known = _decoders.get(type_)
    if known is None:
        known = _decoders[type_] = msgspec.json.Decoder(type_)
    return known


def list_decoder(type_: type[T]) -> msgspec.json.Decoder[ListOf[T]]:
    """Return the `decoder` for a LIST of such objects."""
    return decoder(ListOf[type_])  # type: ignore[valid-type]


class _Identity(msgspec.Struct, gc=False, frozen=True, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class _Identified(msgspec.Struct, gc=False, frozen=True):
    metadata: _Identity


def identity(data: bytes | msgspec.Raw) -> PartialObject:
    """Return name, namespace, UID and resourceVersion of an object that may be invalid otherwise. Raises one of
    `UNREADABLE` if it has no such metadata."""
    metadata = decoder(_Identified).decode(data).metadata
    return PartialObject(ObjectMeta(metadata.name, metadata.namespace, metadata.uid, metadata.resource_version))


def object_key(obj: KubeObject) -> str:
    """Return `namespace/name`, or `name` for cluster-scoped objects (client-go: MetaNamespaceKeyFunc)."""
    meta = obj.metadata
    return f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name


def object_path(collection: str, meta: ObjectMeta) -> str:
    """Return the path of one object of a collection such as `/api/v1/services`, which may cover all namespaces."""
    base, _, resource = collection.rpartition("/")
    if meta.namespace and "/namespaces/" not in collection:
        base = f"{base}/namespaces/{meta.namespace}"
    return f"{base}/{resource}/{meta.name}"


def split_key(key: str) -> tuple[str, str]:
    """Return (namespace, name) of a key; the namespace of a cluster-scoped key is ""."""
    namespace, _, name = key.rpartition("/")
    return namespace, name


def parse_time(text: str) -> datetime.datetime:
    """Return the time in RFC 3339 text (metav1.Time or MicroTime), naive if the text has no zone. Raises ValueError."""
    return datetime.datetime.fromisoformat(text)
