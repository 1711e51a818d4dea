# SPDX-License-Identifier: Apache-2.0
"""What a PersistentVolume lacks: pure decisions, no I/O.

The rules are those of the controller that upstream had until 1.13, and of the admission plugin PersistentVolumeLabel
that followed it until 1.30. There are two differences: labels that are there are never overruled, and a node affinity
that is there is left as it is, because the API server does not let it change.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ccm.cloud import VolumeRef
from ccm.engine.objects import PersistentVolume

from .rule_error import RuleError

ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
_LEGACY = {ZONE: "failure-domain.beta.kubernetes.io/zone", REGION: "failure-domain.beta.kubernetes.io/region"}
#: Between the zones of a volume that is in several.
ZONES = "__"
PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"


def reference(volume: PersistentVolume) -> VolumeRef | None:
    """The volume in some cloud that it stands for; None for NFS, local disks and the like."""
    spec = volume.spec
    if spec.csi is not None:
        return VolumeRef(spec.csi.driver, spec.csi.volume_handle)
    in_tree = {
        "kubernetes.io/aws-ebs": spec.aws_elastic_block_store and spec.aws_elastic_block_store.volume_id,
        "kubernetes.io/cinder": spec.cinder and spec.cinder.volume_id,
        "kubernetes.io/gce-pd": spec.gce_persistent_disk and spec.gce_persistent_disk.pd_name,
        "kubernetes.io/azure-disk": spec.azure_disk and spec.azure_disk.disk_uri,
        "kubernetes.io/vsphere-volume": spec.vsphere_volume and spec.vsphere_volume.volume_path,
    }
    return next((VolumeRef(driver, handle) for driver, handle in in_tree.items() if handle), None)


def is_wanting(volume: PersistentVolume) -> bool:
    """Whether its cloud should be asked where it is.

    One that a provisioner made is not: whoever made it knows, and one that says no zone may be meant for all.
    """
    meta = volume.metadata
    if meta.deletion_timestamp or PROVISIONED_BY in meta.annotations or reference(volume) is None:
        return False
    return not all(_is_labelled(volume, key) for key in (ZONE, REGION))


def patch(volume: PersistentVolume, found: Mapping[str, str]) -> dict[str, Any] | None:
    """A merge patch that adds what is lacking, on the very volume that was looked at; None when nothing is.

    The scheduler keeps Pods where the labels say, and the affinity says it in the form that is in use today. Raises
    RuleError for a label of the cloud's with an empty zone among several.
    """
    labels = {key: value for key, value in found.items() if value and not _is_labelled(volume, key)}
    for key, value in labels.items():
        if not all(value.split(ZONES)):
            raise RuleError(f"the cloud says {key}={value!r}: one of the zones is empty")
    if not labels:
        return None
    meta = {"uid": volume.metadata.uid, "resourceVersion": volume.metadata.resource_version, "labels": labels}
    if volume.spec.node_affinity is not None:
        return {"metadata": meta}
    expressions = [
        {"key": key, "operator": "In", "values": sorted(value.split(ZONES)) if key == ZONE else [value]}
        for key, value in sorted(found.items())
        if value
    ]
    affinity = {"required": {"nodeSelectorTerms": [{"matchExpressions": expressions}]}}
    return {"metadata": meta, "spec": {"nodeAffinity": affinity}}


def _is_labelled(volume: PersistentVolume, key: str) -> bool:
    labels = volume.metadata.labels
    return key in labels or _LEGACY.get(key, key) in labels
