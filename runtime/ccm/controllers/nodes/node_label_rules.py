# SPDX-License-Identifier: Apache-2.0
"""Decide which of a provider's own labels a Node gets, and how they follow its instance. No I/O.

Labels of Nodes have several writers. To know which labels are its own, the controller records them in an annotation,
with the values that it last saw or wrote. A label with any other value was set by somebody else, and stays. A kubelet
can write the annotation of its Node, so the annotation never changes labels in the domains of Kubernetes, which the
kubelet may not change itself.
"""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Mapping

import msgspec

from ccm.cloud import Instance

#: Annotation with the provider's own labels as this controller last saw or wrote them: a JSON object.
RECORD = "ccm.outoftree.dev/labels"
_RESERVED_PREFIX = re.compile(r"(^|\.)(kubernetes|k8s)\.io/")
#: What the API server accepts (k8s.io/apimachinery `util/validation`); one invalid label makes it refuse the patch.
_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
_DNS_LABEL = r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?"
_LABEL_VALUE = re.compile(rf"(?:{_NAME})?")
_LABEL_KEY = re.compile(rf"(?:(?P<prefix>{_DNS_LABEL}(?:\.{_DNS_LABEL})*)/)?(?P<name>{_NAME})")


class Refresh(enum.StrEnum):
    """What a refresh does to the labels of initialised Nodes (`--refresh-node-labels`)."""

    NEVER = "never"
    MISSING = "missing"
    ALWAYS = "always"


class Followed(msgspec.Struct, frozen=True):
    """The change after which a Node's labels follow its instance. `labels`: label -> value to write, None to remove the
    label. `record`: the annotation with its new text, None to remove it; {} if the annotation does not change."""

    labels: Mapping[str, str | None]
    record: Mapping[str, str | None]


def is_label(key: str, value: str) -> bool:
    """Return whether the API server accepts the label: parts of at most 63 characters, a DNS prefix of at most 253."""
    match = _LABEL_KEY.fullmatch(key)
    if match is None or len(match["name"]) > 63 or len(match["prefix"] or "") > 253:
        return False
    return len(value) <= 63 and _LABEL_VALUE.fullmatch(value) is not None


def is_reserved(key: str) -> bool:
    """Return whether a label is in the domains of Kubernetes."""
    return _RESERVED_PREFIX.search(key) is not None


def own_labels(instance: Instance) -> dict[str, str]:
    """Return the provider's own labels of an instance."""
    return {key: value for key, value in instance.labels.items() if not is_reserved(key)}


def followed(instance: Instance, present: Mapping[str, str], annotations: Mapping[str, str]) -> Followed:
    """Return what to write so that the provider's own labels follow the instance.

    A missing label is added. One with the recorded value is changed, or removed if the instance no longer has it.
    """
    own = {key: value for key, value in own_labels(instance).items() if is_label(key, value)}
    recorded = _recorded(annotations.get(RECORD, ""))
    others = others_labels(instance, present, annotations)
    labels: dict[str, str | None] = {
        key: value for key, value in own.items() if present.get(key) != value and key not in others
    }
    labels |= {key: None for key, value in recorded.items() if key not in own and present.get(key) == value}
    after = {key: value for key, value in own.items() if labels.get(key, present.get(key)) == value}
    if after == recorded:
        return Followed(labels, {})
    text = json.dumps(after, sort_keys=True, separators=(",", ":")) if after else None
    return Followed(labels, {RECORD: text} if text or RECORD in annotations else {})


def others_labels(instance: Instance, present: Mapping[str, str], annotations: Mapping[str, str]) -> dict[str, str]:
    """Return the provider's own labels, with the instance's values, to which somebody else gave another value on the
    Node."""
    recorded = _recorded(annotations.get(RECORD, ""))
    return {
        key: value
        for key, value in own_labels(instance).items()
        if is_label(key, value) and present.get(key, value) not in (value, recorded.get(key))
    }


def _recorded(text: str) -> dict[str, str]:
    """Return the recorded labels that may be changed; {} for text that is not a record."""
    try:
        record = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return {}
    if not isinstance(record, dict):
        return {}
    pairs = {key: value for key, value in record.items() if isinstance(value, str) and is_label(key, value)}
    return {key: value for key, value in pairs.items() if not is_reserved(key)}
