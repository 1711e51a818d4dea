# SPDX-License-Identifier: Apache-2.0
"""PersistentVolumes get the zone and region that a real cinder has for their volumes. This cinder has no disks."""

from __future__ import annotations

import asyncio
from typing import Any

from ccm.engine.client import KubeClient
from ccm.providers.openstack.volumes import DRIVERS, REGION, ZONE
from tests.integration.runtime.support import VOLUMES, event_messages, eventually

from .conftest import StartCcm
from .customer import Site

SECONDS = 600.0


def volume_body(name: str, source: dict[str, Any]) -> dict[str, Any]:
    spec = {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, **source}
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec}


async def test_a_volume_has_the_zone_of_its_disk(kube: KubeClient, site: Site, start_ccm: StartCcm) -> None:
    """Each volume takes one call, whichever plug-in names it. A volume that cinder does not know is reported."""
    ids = {f"of-{zone}": await asyncio.to_thread(site.make_volume, zone) for zone in ("zone-a", "zone-b")}
    gone = await asyncio.to_thread(site.make_volume, "zone-c")
    await asyncio.to_thread(site.delete_volume, gone)
    csi, in_tree = DRIVERS
    assert in_tree == "kubernetes.io/cinder"
    await kube.create(VOLUMES, volume_body("of-zone-a", {"csi": {"driver": csi, "volumeHandle": ids["of-zone-a"]}}))
    await kube.create(VOLUMES, volume_body("of-zone-b", {"cinder": {"volumeID": ids["of-zone-b"]}}))
    await kube.create(VOLUMES, volume_body("gone", {"csi": {"driver": csi, "volumeHandle": gone}}))
    site.rig.reset()
    start_ccm(controllers="pvlabel", configure_cloud_routes="false")

    async def labels(name: str) -> dict[str, str]:
        return dict((await kube.get(f"{VOLUMES}/{name}", dict))["metadata"].get("labels", {}))

    async def labelled() -> bool:
        return all([ZONE in await labels(name) for name in ids])

    try:
        await eventually(labelled, SECONDS, "labels")
        for name in ids:
            assert await labels(name) == {ZONE: name.removeprefix("of-"), REGION: site.world["region"]}
        (message,) = await eventually(lambda: event_messages(kube, "VolumeNotLabelled", "gone"), SECONDS)
        assert gone in message
        calls = {call: count for call, count in site.rig.calls().items() if call.startswith("block-storage")}
        assert calls.pop("block-storage GET /volumes/{id}") == 3, "one for each"
        assert set(calls) <= {"block-storage GET /"}
    finally:
        for volume in ids.values():
            await asyncio.to_thread(site.delete_volume, volume)
