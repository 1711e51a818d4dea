# SPDX-License-Identifier: Apache-2.0
"""What the volume controller would do with one PersistentVolume now. No I/O; `volume_rules` decides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ccm.cloud import CloudError, Invalid, NotFound, NotImplementedByCloud
from ccm.controllers.shared.rule_error import RuleError
from ccm.controllers.volumes import volume_rules as rules
from ccm.engine.objects import PersistentVolume

from ..asking.answers import Action, Outlook

RULE = "a volume without zone and region gets them from the cloud; labels that it has are kept"
FLAG = "--controllers=*,persistentvolume-label-controller"


def volume_outlook(volume: PersistentVolume, answer: Mapping[str, str] | CloudError | None) -> Outlook:
    """Return the outlook of one volume. `answer`: what the cloud said about the volume's zone and region; None if the
    cloud was not asked."""
    if answer is None:
        return _outlook(volume, Action.NOTHING, because=no_need(volume))
    if isinstance(answer, NotImplementedByCloud):
        return _outlook(volume, Action.NOTHING, because=str(answer))
    failed: dict[str, Any] = {"reason": "VolumeNotLabelled"}
    if isinstance(answer, (Invalid, NotFound)):
        to_do = "correct the volume's handle, or label the volume by hand"
        return _outlook(volume, Action.BLOCKED, because=str(answer), to_do=to_do, **failed)
    if isinstance(answer, CloudError):
        return _outlook(volume, Action.UNKNOWN, because=str(answer), **failed)
    try:
        patch = rules.patch(volume, answer)
    except RuleError as error:
        return _outlook(volume, Action.BLOCKED, because=str(error), to_do="label the volume by hand", **failed)
    if patch is None:
        return _outlook(volume, Action.NOTHING, because="the cloud names neither zone nor region")
    changes = [f"label {key}: none -> {value}" for key, value in sorted(patch["metadata"]["labels"].items())]
    if "spec" in patch:
        changes.append("spec.nodeAffinity: none -> the same zone and region")
    because = "it has no labels for zone and region"
    return _outlook(volume, Action.UPDATE, changes=changes, because=because, when="at once")


def no_need(volume: PersistentVolume) -> str:
    """Return why the cloud is not asked about a volume."""
    meta = volume.metadata
    if meta.deletion_timestamp:
        return "it is being deleted"
    if rules.PROVISIONED_BY in meta.annotations:
        return f"{meta.annotations[rules.PROVISIONED_BY]} provisioned it, and knows its zone"
    if rules.reference(volume) is None:
        return "it is no disk of a cloud"
    return "it has its zone and region"


def _outlook(volume: PersistentVolume, action: Action, **more: Any) -> Outlook:
    return Outlook(kind="PersistentVolume", name=volume.metadata.name, action=action, rule=RULE, flag=FLAG, **more)
