# SPDX-License-Identifier: Apache-2.0
"""If the controller is on, PersistentVolumes that people created get the zone and region of their volume."""

from __future__ import annotations

import asyncio
from typing import Any

from ccm.engine.client import KubeClient
from ccm.providers.sim.volumes import CSI_DRIVER
from ccm_simcloud.model import VolumeBody
from ccm_simcloud.testing import Simulator

from .conftest import StartCcm
from .support import VOLUMES, event_messages, eventually

LABELLING = {"controllers": "*,pvlabel"}
ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"


def volume_body(name: str, handle: str, *, driver: str = CSI_DRIVER, **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name} | metadata,
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "1Gi"},
            "csi": {"driver": driver, "volumeHandle": handle},
        },
    }


async def labels(kube: KubeClient, name: str) -> dict[str, str]:
    return (await kube.get(f"{VOLUMES}/{name}", dict))["metadata"].get("labels", {})


async def test_a_volume_gets_the_zone_of_its_disk(kube: KubeClient, cloud: Simulator, start_ccm: StartCcm):
    disk = cloud.project().create_volume(VolumeBody("disk", "north-b"))
    await kube.create(VOLUMES, volume_body("before", disk.id))
    await start_ccm(**LABELLING).leading()
    await kube.create(VOLUMES, volume_body("after", disk.id, labels={"team": "a"}))
    for name in ("before", "after"):
        await eventually(lambda name=name: labelled(kube, name))
        found = await labels(kube, name)
        assert (found[ZONE], found[REGION]) == ("north-b", "north")
        terms = (await kube.get(f"{VOLUMES}/{name}", dict))["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
        assert {each["key"]: each["values"] for each in terms[0]["matchExpressions"]} == {
            ZONE: ["north-b"],
            REGION: ["north"],
        }
    assert (await labels(kube, "after"))["team"] == "a"
    assert cloud.calls("volumes.get") == 2


async def labelled(kube: KubeClient, name: str) -> bool:
    return ZONE in await labels(kube, name)


async def test_others_are_left_alone_and_a_missing_disk_is_told(
    kube: KubeClient, cloud: Simulator, start_ccm: StartCcm
):
    disk = cloud.project().create_volume(VolumeBody("disk", "north-a"))
    made = {"annotations": {"pv.kubernetes.io/provisioned-by": CSI_DRIVER}}
    await kube.create(VOLUMES, volume_body("provisioned", disk.id, **made))
    await kube.create(VOLUMES, volume_body("of-others", "vol-1", driver="ebs.csi.example"))
    await kube.create(VOLUMES, volume_body("unwell", "not a handle"))
    await kube.create(VOLUMES, volume_body("missing", "v-0000000000ff"))
    await start_ccm(**LABELLING).leading()
    (missing,) = await eventually(lambda: event_messages(kube, "VolumeNotLabelled", "missing"))
    assert "v-0000000000ff" in missing
    assert await eventually(lambda: event_messages(kube, "VolumeNotLabelled", "unwell"))
    assert await event_messages(kube, "VolumeNotLabelled", "of-others") == []
    assert await labels(kube, "provisioned") == await labels(kube, "of-others") == {}


async def test_it_is_off_unless_named(kube: KubeClient, cloud: Simulator, start_ccm: StartCcm):
    disk = cloud.project().create_volume(VolumeBody("disk", "north-a"))
    await kube.create(VOLUMES, volume_body("unasked", disk.id))
    await start_ccm().leading()
    await asyncio.sleep(1.5)
    assert await labels(kube, "unasked") == {}
    assert cloud.calls("volumes.*") == 0


async def test_a_cloud_that_cannot_say_is_asked_again(kube: KubeClient, cloud: Simulator, start_ccm: StartCcm):
    disk = cloud.project().create_volume(VolumeBody("disk", "north-a"))
    cloud.fault(action="status", status=500, match={"operation": "volumes.*"})
    await kube.create(VOLUMES, volume_body("patient", disk.id))
    await start_ccm(**LABELLING).leading()
    await eventually(lambda: event_messages(kube, "VolumeNotLabelled", "patient"))
    cloud.clear_faults()
    await eventually(lambda: labelled(kube, "patient"))
