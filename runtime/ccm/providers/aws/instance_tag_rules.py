# SPDX-License-Identifier: Apache-2.0
"""Decides which tags of EC2 instances may be added, and to which instances. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ccm.cloud import CloudError, Conflict, Invalid, NotFound
from ccm.cloud.toolkit.untrusted_text import quoted

from . import instance_rules
from .api import tags_of
from .instance_rules import Row

#: The maximum length of a tag's key, and of its value.
KEY_LENGTH, VALUE_LENGTH = 128, 256
#: Keys with this prefix, in upper or lower case, belong to AWS.
RESERVED = "aws:"


def check(tags: Mapping[str, str]) -> None:
    """Raises Invalid for tags that EC2 does not allow."""
    for key, value in tags.items():
        if not 0 < len(key) <= KEY_LENGTH or len(value) > VALUE_LENGTH:
            raise Invalid(
                f"tag {quoted(key)}: a key has 1 to {KEY_LENGTH} characters, and a value at most {VALUE_LENGTH}"
            )
        if key.lower().startswith(RESERVED):
            raise Invalid(f"tag {quoted(key)}: keys that begin with {RESERVED} belong to AWS")


def tags_by_provider_id(rows: Iterable[Row]) -> dict[str, dict[str, str]]:
    """Return providerID -> tags for all instances that exist."""
    return {_provider_id(row): tags_of(row) for row in rows if instance_rules.exists(row)}


def verdicts(
    provider_ids: Iterable[str], rows: Mapping[str, Row], tags: Mapping[str, str]
) -> dict[str, CloudError | str]:
    """Return providerID -> the result: the ID of the instance if it does not have all of the tags, "" if it has all of
    them, or the error. `rows`: ID -> the instance as EC2 has it now."""
    by_provider_id: dict[str, CloudError | str] = {}
    for provider_id in provider_ids:
        id = instance_rules.instance_id(provider_id)
        row = rows.get(id or "")
        if id is None:
            by_provider_id[provider_id] = Conflict(
                f"providerID {quoted(provider_id)} is not of the form aws:///ZONE/i-..."
            )
        elif row is None or not instance_rules.exists(row) or provider_id not in (_provider_id(row), f"aws:////{id}"):
            by_provider_id[provider_id] = NotFound(f"there is no instance {provider_id}")
        else:
            by_provider_id[provider_id] = _verdict(id, tags_of(row), tags)
    return by_provider_id


def _verdict(id: str, has: Mapping[str, str], tags: Mapping[str, str]) -> CloudError | str:
    if other := sorted(key for key, value in tags.items() if has.get(key, value) != value):
        return Conflict(f"instance {id} has another value for the tags {', '.join(map(quoted, other))}")
    return "" if tags.items() <= has.items() else id


def _provider_id(row: Row) -> str:
    return instance_rules.provider_id(str(row["Placement"]["AvailabilityZone"]), str(row["InstanceId"]))
