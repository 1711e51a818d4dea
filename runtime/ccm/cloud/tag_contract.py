# SPDX-License-Identifier: Apache-2.0
"""The tag part of the contract: tags, labels or metadata that the cloud keeps with an instance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable


@runtime_checkable
class InstanceTags(Protocol):
    """Tags of instances, as keys and values. The framework only adds tags: it changes none and removes none."""

    async def list(self) -> Mapping[str, Mapping[str, str]]:
        """Return the tags of all instances, by providerID as in `Instances.list_page`.

        Raise an error instead of leaving out tags, because the framework would add the missing tags again.
        """
        ...

    async def add(self, provider_id: str, tags: Mapping[str, str]) -> None:
        """Add these tags and keep all others, also those that somebody else adds at the same time.

        Succeeds if the instance already has them. Raises Conflict if one of the keys has another value, and then adds
        none of the tags; Invalid if the cloud does not allow such a tag; NotFound if the cloud reports that the
        instance does not exist.
        """
        ...
