# SPDX-License-Identifier: Apache-2.0
"""Zone and region of Cinder's volumes."""

from __future__ import annotations

from collections.abc import Mapping

from ccm.cloud import Invalid, NotImplementedByCloud, Transient, VolumeRef

from .api import BLOCK_STORAGE, Api
from .instance_rules import UUID, label

#: The CSI driver, and Kubernetes' former in-tree plugin.
DRIVERS = ("cinder.csi.openstack.org", "kubernetes.io/cinder")
ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"


class OpenStackVolumes:
    def __init__(self, api: Api) -> None:
        self._api = api

    async def labels(self, ref: VolumeRef) -> Mapping[str, str]:
        if ref.driver not in DRIVERS:
            raise NotImplementedByCloud(f"volumes of driver {ref.driver!r} are not Cinder's ({', '.join(DRIVERS)})")
        id = ref.handle.lower()
        if not UUID.fullmatch(id):
            raise Invalid(f"volume handle {ref.handle[:80]!r} is not the ID of a Cinder volume")
        answer = await self._api.call("GET", BLOCK_STORAGE, f"/volumes/{id}", missing=id)
        volume = answer.get("volume") if isinstance(answer, dict) else None
        if not isinstance(volume, dict) or str(volume.get("id")).lower() != id:
            raise Transient(f"GET block-storage /volumes/{id}: the response is about another object")
        zone = "" if self._api.settings.block_storage.ignore_volume_az else str(volume.get("availability_zone") or "")
        labels_by_name = {ZONE: label(zone), REGION: label(self._api.region)}
        return {key: value for key, value in labels_by_name.items() if value}
