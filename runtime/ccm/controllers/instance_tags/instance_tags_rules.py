# SPDX-License-Identifier: Apache-2.0
"""Decide which tags an instance is missing. No I/O.

Tags are only added. A key that has another value is somebody else's, so it is kept and reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ccm.base.text import quoted
from ccm.engine.objects import Node

#: The maximum length of a key and of a value, in characters. Clouds accept 63 to 255, and refuse longer ones
#: themselves.
LENGTH = 255


def parse_tags(texts: Iterable[str]) -> dict[str, str]:
    """Parse `--instance-tags`: KEY=VALUE each; the value may be empty and may contain "=". Raises ValueError."""
    tags: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise ValueError(f"--instance-tags: {quoted(text)} is not KEY=VALUE")
        if max(len(key), len(value)) > LENGTH or not text.isprintable():
            raise ValueError(f"--instance-tags: {quoted(text)} is longer than {LENGTH} characters or not printable")
        if tags.get(key, value) != value:
            raise ValueError(f"--instance-tags: {quoted(key)} is given twice, with different values")
        tags[key] = value
    return tags


@dataclass(frozen=True)
class Difference:
    """How an instance's tags differ from the desired ones. `missing`: tags to add. `other`: keys that have another
    value, with that value."""

    missing: Mapping[str, str] = field(default_factory=dict)
    other: Mapping[str, str] = field(default_factory=dict)


def compare(desired: Mapping[str, str], has: Mapping[str, str]) -> Difference:
    """Compare the tags of an instance with the desired ones; other tags do not matter."""
    missing = {key: value for key, value in desired.items() if key not in has}
    other = {key: has[key] for key, value in desired.items() if key in has and has[key] != value}
    return Difference(missing, other)


def other_message(desired: Mapping[str, str], difference: Difference, provider_id: str) -> str:
    """Return the message about tags that are kept with another value."""
    kept = ", ".join(f"{key}={quoted(has)} instead of {quoted(desired[key])}" for key, has in difference.other.items())
    return (
        f"instance {provider_id} has {kept}: the tag is kept, because it may be somebody else's. Remove it in the "
        "cloud, or change --instance-tags"
    )


def is_news(old: Node | None, new: Node | None) -> bool:
    """Return whether a Node is new or has a new providerID, so that its instance may be missing tags."""
    if new is None or not new.spec.provider_id:
        return False
    return old is None or old.metadata.uid != new.metadata.uid or old.spec.provider_id != new.spec.provider_id
