# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The data of a cluster that modules, filters and roles exchange: the result of M(outoftree.ccm.ccm_cluster_info), and its Nodes.

NodeFacts is also an item of M(outoftree.ccm.ccm_node_info). Both modules describe the fields in RETURN. All of it passes through Ansible, so
it consists of plain dictionaries. Pure and stdlib-only (Python 3.8). The module shapes explains how optional keys are declared.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional, TypedDict

#: An object of the API or a part of one, as in its JSON. Any key may be missing.
ApiObject = Dict[str, Any]

# -- Nodes ------------------------------------------------------------------------------------------------------------


class NodeAddress(TypedDict):
    type: str
    address: str


#: C(class) is a keyword of Python, so a type with this key is written as a call. Newer versions of pylint do not see that this is a class.
_NodeClass = TypedDict("_NodeClass", {"class": str, "reason": str})


class _NodeFacts(_NodeClass):  # pylint: disable=inherit-non-class
    name: str
    uid: str
    resource_version: str
    provider_id: str
    taints: List[str]
    uninitialized: bool
    addresses: List[NodeAddress]
    zone: str
    region: str
    instance_type: str
    control_plane: bool
    etcd_voter: Optional[bool]
    managed_by: str
    ready: bool
    ready_reason: str
    heartbeat: str
    kubelet_version: str
    instance: str
    primary: List[str]
    primary_after: List[str]


class NodeFacts(_NodeFacts, total=False):
    """A Node. C(lease_renewed) is the renew time of its Lease, which only a wait for a heartbeat reads."""

    lease_renewed: str


class CloudMatch(TypedDict, total=False):
    """A row of C(ccm nodes): what the cloud says about a Node. The runtime's release decides which keys it has."""

    name: str
    verdict: str
    reason: str
    instance: str
    primary: List[str]
    primary_after: List[str]


# -- controllers ------------------------------------------------------------------------------------------------------


class LeaseState(TypedDict):
    exists: bool
    holder: str
    renewed: str
    age: Optional[float]
    held: bool
    annotations: Dict[str, str]


class ControllerLease(LeaseState):
    """The Lease of the new controller."""

    namespace: str
    name: str


class DaemonSetState(TypedDict):
    exists: bool
    desired: int
    ready: int
    updated: int
    observed: bool
    image: str


class PodState(TypedDict):
    name: str
    node: str
    ready: bool
    leaving: bool
    restarts: int
    reason: str


class Health(TypedDict):
    """The verdict about the controller's health."""

    healthy: bool
    reasons: List[str]
    unjudged: List[str]
    last_cloud_success_age: Optional[float]


class HealthFacts(Health):
    """The result of M(outoftree.ccm.ccm_health_info). C(held): why the controller does not delete a Node, by the UID of the Node."""

    held: Dict[str, str]
    daemonset: DaemonSetState
    pods: List[PodState]
    lease: LeaseState


class RuntimeFacts(TypedDict):
    """The DaemonSet of the new controller, which may be a vendor's."""

    exists: bool
    name: str
    image: str
    created: str
    managed: bool
    wide: bool
    leftovers: List[str]


class LeaseName(TypedDict, total=False):
    """The Lease of a controller, empty if the controller runs without leader election."""

    namespace: str
    name: str


class OtherController(TypedDict):
    """A Deployment or DaemonSet that is another cloud-controller-manager."""

    kind: str
    namespace: str
    name: str
    image: str
    managed: str
    pods: int
    paused: bool
    active: bool
    cloud_provider: str
    cluster_name: str
    lease: LeaseName
    holder: str
    keeper: str
    port: int


class StaticController(TypedDict):
    """A static Pod that has a name like a cloud-controller-manager's. C(certain): whether only such a controller has a
    name like that."""

    name: str
    image: str
    certain: bool


class HeldLease(TypedDict):
    namespace: str
    name: str
    holder: str


# -- serving certificates ---------------------------------------------------------------------------------------------


class _Approver(TypedDict):
    kind: str
    namespace: str
    name: str
    role: str


class Approver(_Approver, total=False):
    """Who may approve requests. C(running) is the number of Pods of a ServiceAccount."""

    running: int


class SigningRequest(TypedDict):
    name: str
    node: str
    created: str


class ServingFacts(TypedDict):
    approvers: List[Approver]
    pending: List[SigningRequest]


# -- volumes of in-tree plug-ins --------------------------------------------------------------------------------------


class PersistentVolume(TypedDict):
    name: str
    source: str
    claim: str


class _StorageClass(TypedDict):
    name: str
    source: str
    default: bool


class StorageClass(_StorageClass, total=False):
    """A StorageClass with an in-tree provisioner. C(claims): how many claims use it; missing until they are counted."""

    claims: int


class InlineVolume(TypedDict):
    """An in-tree volume in the Pod template of a workload or in a Pod's own spec, not in a claim."""

    kind: str
    namespace: str
    name: str
    source: str


class _PodVolumes(TypedDict):
    namespace: str
    name: str
    node: str
    sources: List[str]


class PodVolumes(_PodVolumes, total=False):
    """A Pod that uses volumes of in-tree plug-ins. read_volumes() moves C(inline) to VolumeFacts."""

    inline: List[InlineVolume]


class NodeDrivers(TypedDict):
    """A CSINode: its Node's name, and the CSI drivers on it that serve in-tree volumes."""

    name: str
    drivers: List[str]


class VolumeFacts(TypedDict, total=False):
    """The volumes of in-tree plug-ins and the CSI drivers that serve them; empty if they were not requested."""

    persistent: List[PersistentVolume]
    classes: List[StorageClass]
    inline: List[InlineVolume]
    pods: List[PodVolumes]
    drivers: List[str]
    nodes: Dict[str, List[str]]
    unread: List[str]


# -- the cluster ------------------------------------------------------------------------------------------------------


class NodeSelector(TypedDict):
    labels: Dict[str, str]
    nodes: int


class Compared(TypedDict):
    done: bool
    reason: str


class KubeadmConfig(TypedDict):
    exists: bool
    content: str
    sha256: str


class ServedClasses(TypedDict):
    """Which Services the controller serves: those of the classes C(names) and, if C(without) is true, those without a class."""

    names: List[str]
    without: bool


#: A Service of type LoadBalancer. C(ours): whether the controller serves its class.
BalancedService = TypedDict(
    "BalancedService", {"namespace": str, "name": str, "class": str, "ours": bool, "ingress": List[str], "finalizer": bool})


class _ClusterFacts(TypedDict):
    version: str
    nodes: List[NodeFacts]
    node_selector: NodeSelector
    compared: Compared
    serving: ServingFacts
    kubeadm_config: KubeadmConfig
    kube_proxy: Dict[str, str]
    runtime: RuntimeFacts
    lease: ControllerLease
    others: List[OtherController]
    leases: List[HeldLease]
    ignored: List[str]
    taken: List[str]
    services: List[BalancedService]
    volumes: VolumeFacts


class ClusterFacts(_ClusterFacts, total=False):
    """Everything in a cluster on which the plan of a migration depends. It has C(images) only if Pods were listed."""

    images: List[str]
