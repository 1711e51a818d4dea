# SPDX-License-Identifier: Apache-2.0
"""Decide which PersistentVolume a request for admission is about, and what the answer is. No I/O.

`volume_rules` decides what a volume is missing, as for the controller. An answer always admits the volume, because the
controller, if it runs, completes later what is missing. AdmissionRequest and AdmissionResponse are those of
admission.k8s.io/v1, as plain data.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import msgspec

from ccm.base.text import printable, shorten
from ccm.engine.objects import UNREADABLE, PersistentVolume

from .volume_rules import Additions

UNCHANGED: Mapping[str, Any] = {"allowed": True}
#: An annotation of a volume in a dry run. The value CHECK asks whether the webhook answers; ANSWERED is the reply.
CHECKED, CHECK, ANSWERED = "ccm.outoftree.dev/volume-webhook", "check", "answered"
#: Characters of the reason in a warning. The API server may cut a warning of more than 256 characters.
_REASON = 120


def volume_of(request: Mapping[str, Any]) -> PersistentVolume | None:
    """Return the volume that the request creates; None for every other request, and for what no API server sends."""
    kind = request.get("kind")
    if request.get("operation") != "CREATE" or request.get("subResource") or not isinstance(kind, Mapping):
        return None
    if (kind.get("group"), kind.get("version"), kind.get("kind")) != ("", "v1", "PersistentVolume"):
        return None
    try:
        return msgspec.convert(request.get("object"), PersistentVolume)
    except UNREADABLE:
        return None


def is_check(request: Mapping[str, Any], volume: PersistentVolume) -> bool:
    """Return whether the request only asks whether the webhook answers."""
    return request.get("dryRun") is True and volume.metadata.annotations.get(CHECKED) == CHECK


def checked() -> dict[str, Any]:
    """Return the answer to a request in which `CHECKED` has the value `CHECK`."""
    return _patched([{"op": "replace", "path": _path("/metadata/annotations", CHECKED), "value": ANSWERED}])


def completed(volume: PersistentVolume, added: Additions) -> dict[str, Any]:
    """Return the answer that adds labels and node affinity to this volume."""
    patch: list[dict[str, Any]]
    if volume.metadata.labels:
        patch = [
            {"op": "add", "path": _path("/metadata/labels", key), "value": value}
            for key, value in sorted(added.labels.items())
        ]
    else:  # there may be no object to add a member to
        patch = [{"op": "add", "path": "/metadata/labels", "value": added.labels}]
    if added.node_affinity is not None:
        patch.append({"op": "add", "path": "/spec/nodeAffinity", "value": added.node_affinity})
    return _patched(patch)


def unknown(reason: str) -> dict[str, Any]:
    """Return the answer that leaves the volume as it is, and warns its creator."""
    return {
        **UNCHANGED,
        "warnings": [
            f"zone and region of the volume are unknown: {shorten(printable(reason), _REASON)}; "
            "persistentvolume-label-controller, if it runs, tries again"
        ],
    }


def _patched(patch: list[dict[str, Any]]) -> dict[str, Any]:
    text = base64.b64encode(msgspec.json.encode(patch)).decode()
    return {**UNCHANGED, "patchType": "JSONPatch", "patch": text}


def _path(parent: str, key: str) -> str:
    """Return a JSON Pointer (RFC 6901)."""
    return f"{parent}/{key.replace('~', '~0').replace('/', '~1')}"
