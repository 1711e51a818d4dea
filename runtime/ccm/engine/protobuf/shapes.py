# SPDX-License-Identifier: Apache-2.0
"""Says which type of objects a field has, and whether the field is optional. Used by the tool that makes the
descriptors of messages, and by the code that reads messages with these descriptors."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from typing import Any

import msgspec

#: Message whose JSON also has the fields of an inner message, because Go embeds the inner type -> the field of the
#: inner message.
INLINED: Mapping[str, str] = {"PersistentVolumeSpec": "persistentVolumeSource"}


def element_type(kind: Any) -> type[msgspec.Struct] | None:
    """Return the type of the objects in `kind`: `kind` itself, the type of a list's items, or X of `X | None`; None if
    there is none."""
    for candidate in (kind, *typing.get_args(kind)):
        if isinstance(candidate, type) and issubclass(candidate, msgspec.Struct):
            return candidate
    return None


def is_optional(kind: Any) -> bool:
    return isinstance(kind, types.UnionType) and types.NoneType in typing.get_args(kind)
