# SPDX-License-Identifier: Apache-2.0
"""Where volumes are."""

from __future__ import annotations

from ccm.cloud import Invalid, NotFound, NotImplementedByCloud, VolumeRef

from ..kit import Failed, Trial
from .collection import Collection

COLLECTION = Collection("volumes", needs="volumes")
case = COLLECTION.case

TOPOLOGY = "topology.kubernetes.io/"


@case()
async def volumes_of_others_are_left_alone(trial: Trial) -> None:
    """A volume of another driver gets no labels: NotImplementedByCloud, NotFound or Invalid."""
    ref = VolumeRef("no.such.driver.example.org", "volume")
    kinds = (NotImplementedByCloud, NotFound, Invalid)
    await trial.expect(kinds, f"labels of {ref}", trial.volumes.labels, ref)


@case()
async def a_volume_has_its_zone(trial: Trial) -> None:
    """The labels of a volume name its zone or region; once it is deleted, it is NotFound."""
    ref = await trial.world.create_volume()

    async def remove() -> None:
        await trial.world.delete_volume(ref)

    trial.at_end(f"volume {ref.handle}", remove)
    labels = await trial.ask(trial.volumes.labels, ref)
    if not {f"{TOPOLOGY}zone", f"{TOPOLOGY}region"} & labels.keys():
        raise Failed(f"labels of {ref}: {dict(labels)} name neither zone nor region")
    if not all(isinstance(key, str) and isinstance(value, str) for key, value in labels.items()):
        raise Failed(f"labels of {ref}: {dict(labels)} are not all text")
    await remove()
    await trial.expect((NotFound,), f"labels of the deleted {ref}", trial.volumes.labels, ref)
