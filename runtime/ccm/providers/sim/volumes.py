# SPDX-License-Identifier: Apache-2.0
"""Zones of volumes."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ccm.cloud import Invalid, NotImplementedByCloud, VolumeRef

from .api import Api, Volume

VOLUME_ID = re.compile(r"v-[0-9a-f]{12}")
CSI_DRIVER = "sim.ccm.outoftree.dev"


class SimVolumes:
    def __init__(self, api: Api) -> None:
        self._api = api

    async def labels(self, ref: VolumeRef) -> Mapping[str, str]:
        if ref.driver != CSI_DRIVER:
            raise NotImplementedByCloud(
                f"volumes of driver {ref.driver!r} do not belong to this cloud (its driver is {CSI_DRIVER!r})"
            )
        if not VOLUME_ID.fullmatch(ref.handle):
            raise Invalid(f"volume handle {ref.handle!r} is not of the form v-…")
        row = await self._api.call("GET", f"/volumes/{ref.handle}", Volume, missing="volume_not_found")
        return {"topology.kubernetes.io/zone": row.zone, "topology.kubernetes.io/region": row.region}
