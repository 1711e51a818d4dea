# SPDX-License-Identifier: Apache-2.0
"""`ccm explain pv NAME`: whether a PersistentVolume gets the labels of its disk, and why not."""

from __future__ import annotations

import asyncio

from ccm.cloud import CloudError
from ccm.controllers.volumes import volume_rules as rules
from ccm.controllers.volumes.volume import VolumeController
from ccm.engine.objects import PersistentVolume

from ..asking.answers import Action, Outlook
from ..asking.explanation import Explanation, Looked, together
from ..outlooks.gathering import Gathered, Survey, not_run, volume_answer
from ..outlooks.volume_outlook import FLAG, RULE, no_need, volume_outlook

#: The component of the Events about volumes.
COMPONENTS = (VolumeController.name,)


def state_of(volume: PersistentVolume, since: str) -> list[str]:
    """Return the volume's state, in sentences. `since`: how long ago it was created, in words."""
    ref = rules.reference(volume)
    lines = [f"PersistentVolume {volume.metadata.name}: created {since}"]
    lines.append(f"Its disk: {ref.handle} of driver {ref.driver}" if ref else "It is no disk of a cloud.")
    for label in (rules.ZONE, rules.REGION):
        lines.append(f"label {label}: {volume.metadata.labels.get(label, 'none')}")
    if rules.needs_labels(volume):
        lines.append("Without them, a Pod may be scheduled where the disk cannot be attached.")
    else:
        lines.append(f"Nothing is looked up: {no_need(volume)}.")
    return lines


async def ask_clouds(volume: PersistentVolume, survey: Survey) -> Explanation:
    """Return what the clouds with volumes say and what the runtime would do. If no cloud has volumes, all are asked."""
    able = [each for each in survey.parts if each.gateway.cloud.volumes is not None]
    parts = able or survey.parts
    return together([each.name for each in parts], await asyncio.gather(*(ask_cloud(volume, each) for each in parts)))


async def ask_cloud(volume: PersistentVolume, survey: Gathered) -> Explanation:
    """Return what the cloud says and what the runtime would do; without state, leader and Events."""
    name, where = volume.metadata.name, f"provider {survey.options.cloud_provider}"
    explanation = Explanation(kind="PersistentVolume", name=name, state=[])
    answer = await volume_answer(volume, survey)
    ref = rules.reference(volume)
    if answer is not None and ref is not None:
        text = answer if isinstance(answer, CloudError) else ", ".join(f"{k}={v}" for k, v in sorted(answer.items()))
        explanation.looked_up.append(Looked(f"labels of disk {ref.handle}", where, str(text) or "none"))
    if VolumeController.name in survey.usable or not rules.needs_labels(volume):
        explanation.outlooks.append(volume_outlook(volume, answer))
        return explanation
    why = not_run(survey.options, survey.gateway).get(VolumeController.name, "it does not run")
    explanation.outlooks.append(
        Outlook(
            kind="PersistentVolume",
            name=name,
            action=Action.BLOCKED,
            because=f"{VolumeController.name} does not run: {why}",
            rule=RULE,
            flag=FLAG,
            to_do="name the controller in --controllers, or label the volume by hand",
        )
    )
    return explanation
