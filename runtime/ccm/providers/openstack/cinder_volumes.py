# SPDX-License-Identifier: Apache-2.0
"""Where Cinder's volumes are."""

from __future__ import annotations

from collections.abc import Mapping

from ccm.cloud import Invalid, NotImplementedByCloud, Transient, VolumeRef

from .server_rules import UUID, label
from .session import BLOCK_STORAGE, Api

#: The CSI driver, and the plugin that Kubernetes itself had.
DRIVERS = ("cinder.csi.openstack.org", "kubernetes.io/cinder")
ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"


class OpenStackVolumes:
    def __init__(self, api: Api) -> None:
        self._api = api

    async def labels(self, ref: VolumeRef) -> Mapping[str, str]:
        if ref.driver not in DRIVERS:
            raise NotImplementedByCloud(f"volumes of {ref.driver!r} are not Cinder's ({', '.join(DRIVERS)})")
        id = ref.handle.lower()
        if not UUID.fullmatch(id):
            raise Invalid(f"volume handle {ref.handle[:80]!r} is not the ID of a volume of Cinder")
        answer = await self._api.call("GET", BLOCK_STORAGE, f"/volumes/{id}", missing=id)
        volume = answer.get("volume") if isinstance(answer, dict) else None
        if not isinstance(volume, dict) or str(volume.get("id")).lower() != id:
            raise Transient(f"GET block-storage /volumes/{id}: the answer is about something else")
        zone = "" if self._api.settings.block_storage.ignore_volume_az else str(volume.get("availability_zone") or "")
        found = {ZONE: label(zone), REGION: label(self._api.region)}
        return {key: value for key, value in found.items() if value}
