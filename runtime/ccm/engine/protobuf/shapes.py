# SPDX-License-Identifier: Apache-2.0
"""What a field of a type is, for the tool that makes the descriptors, and for reading with them."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from typing import Any

import msgspec

#: Messages whose JSON has the fields of an inner message, too: its name in Go is that of a type that is embedded.
INLINED: Mapping[str, str] = {"PersistentVolumeSpec": "persistentVolumeSource"}


def element_type(kind: Any) -> type[msgspec.Struct] | None:
    """The type of objects in `kind`: itself, or that in a list or beside None."""
    for each in (kind, *typing.get_args(kind)):
        if isinstance(each, type) and issubclass(each, msgspec.Struct):
            return each
    return None


def is_optional(kind: Any) -> bool:
    return isinstance(kind, types.UnionType) and types.NoneType in typing.get_args(kind)
