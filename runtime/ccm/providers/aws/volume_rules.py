# SPDX-License-Identifier: Apache-2.0
"""Decides which EBS volume a PersistentVolume refers to, and which labels it gets. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ccm.cloud import Invalid, NotFound, NotImplementedByCloud, Transient, VolumeRef
from ccm.cloud.toolkit.untrusted_text import quoted

from .instance_rules import Row

#: The CSI driver, and Kubernetes' former in-tree plugin.
DRIVERS = ("ebs.csi.aws.com", "kubernetes.io/aws-ebs")
#: The forms that the in-tree plugin read: the ID alone, or the ID after a zone, which may be empty.
HANDLE = re.compile(r"(?:aws://[a-z0-9-]*/)?(?P<id>vol-[0-9a-f]{8,32})")
#: States of a volume that is gone, although EC2 may show it for a while.
GONE = ("deleting", "deleted")
ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"


def volume_id(ref: VolumeRef) -> str:
    """Return the volume's ID. A zone in front of the ID is ignored, because EC2 knows the volume's zone. Raises
    NotImplementedByCloud for a volume of another driver, and Invalid for a handle that has neither form."""
    if ref.driver not in DRIVERS:
        raise NotImplementedByCloud(f"volumes of driver {ref.driver!r} are not EBS volumes ({', '.join(DRIVERS)})")
    match = HANDLE.fullmatch(ref.handle)
    if match is None:
        raise Invalid(f"volume handle {quoted(ref.handle)} is not of the form vol-... or aws://ZONE/vol-...")
    return match["id"]


def labels(id: str, rows: Mapping[str, Row], region: str) -> dict[str, str]:
    """Return the labels of a volume. `rows`: ID -> the volume as EC2 has it now. Raises NotFound, and Transient for a
    row without a zone."""
    row = rows.get(id)
    if row is None or row.get("State") in GONE:
        raise NotFound(f"there is no volume {id}")
    zone = row.get("AvailabilityZone")
    if not zone:
        raise Transient(f"volume {id} in the answer has no zone")
    return {ZONE: str(zone), REGION: region}
