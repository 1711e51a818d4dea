# SPDX-License-Identifier: Apache-2.0
"""Decide which labels a PersistentVolume is missing. No I/O.

The rules follow the controller that upstream had until 1.13, and the admission plugin PersistentVolumeLabel that
replaced it until 1.30. There are two differences: existing labels are never overwritten, and an existing node affinity
is kept, because the API server does not allow changes to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from ccm.cloud import VolumeRef
from ccm.engine.objects import PersistentVolume

from ..shared.rule_error import RuleError

ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
_LEGACY = {ZONE: "failure-domain.beta.kubernetes.io/zone", REGION: "failure-domain.beta.kubernetes.io/region"}
#: Separates the zones of a volume that is in several.
ZONES = "__"
PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"


def reference(volume: PersistentVolume) -> VolumeRef | None:
    """Return the driver and handle of the volume behind the object; None if it is neither a CSI volume nor a disk of a
    cloud's in-tree plugin."""
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


def needs_labels(volume: PersistentVolume) -> bool:
    """Return whether to ask the cloud where the volume is.

    A volume from a provisioner is skipped, because the provisioner knows its zones, and a missing label may mean all
    zones.
    """
    meta = volume.metadata
    if meta.deletion_timestamp or PROVISIONED_BY in meta.annotations or reference(volume) is None:
        return False
    return not all(_is_labelled(volume, key) for key in (ZONE, REGION))


class Additions(msgspec.Struct, frozen=True):
    """What a volume is missing. `node_affinity`: None if the volume keeps its own."""

    labels: dict[str, str]
    node_affinity: dict[str, Any] | None


def additions(volume: PersistentVolume, cloud_labels: Mapping[str, str]) -> Additions | None:
    """Return the missing labels and node affinity; None if no label is missing.

    The scheduler follows the labels. The node affinity expresses the same in the form used today. Raises RuleError if
    the cloud returns several zones of which one is empty.
    """
    labels = {key: value for key, value in cloud_labels.items() if value and not _is_labelled(volume, key)}
    for key, value in labels.items():
        if not all(value.split(ZONES)):
            raise RuleError(f"the cloud returned {key}={value!r}, in which a zone is empty")
    if not labels:
        return None
    if volume.spec.node_affinity is not None:
        return Additions(labels, None)
    expressions = [
        {"key": key, "operator": "In", "values": sorted(value.split(ZONES)) if key == ZONE else [value]}
        for key, value in sorted(cloud_labels.items())
        if value
    ]
    return Additions(labels, {"required": {"nodeSelectorTerms": [{"matchExpressions": expressions}]}})


def patch(volume: PersistentVolume, cloud_labels: Mapping[str, str]) -> dict[str, Any] | None:
    """Return `additions` as a merge patch of exactly the volume that was read; None if there are none. Raises RuleError
    if the cloud returns several zones of which one is empty."""
    added = additions(volume, cloud_labels)
    if added is None:
        return None
    meta = {"uid": volume.metadata.uid, "resourceVersion": volume.metadata.resource_version, "labels": added.labels}
    if added.node_affinity is None:
        return {"metadata": meta}
    return {"metadata": meta, "spec": {"nodeAffinity": added.node_affinity}}


def _is_labelled(volume: PersistentVolume, key: str) -> bool:
    labels = volume.metadata.labels
    return key in labels or _LEGACY.get(key, key) in labels
