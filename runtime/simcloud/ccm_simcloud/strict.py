# SPDX-License-Identifier: Apache-2.0
"""Strict conversion of external data (YAML, JSON) to Structs, with *all* problems and their places.

msgspec alone stops at the first problem, but the author of a file needs all of them.
"""

from __future__ import annotations

import functools
import types
import typing
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")


class Invalid(Exception):
    """The data is invalid. `problems`: one sentence each, starting with the place."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


def convert(value: Any, type_: type[T], place: str) -> T:
    """Return `value` (plain dicts, lists, scalars) as `type_`. `place` names the value in messages. Raises Invalid with
    all problems of the value."""
    problems: list[str] = []
    converted = _convert(value, type_, place, problems)
    if problems:
        raise Invalid(problems)
    return typing.cast(T, converted)


def _convert(value: Any, type_: Any, place: str, problems: list[str]) -> Any:
    type_ = _essence(type_) if value is not None else type_
    if isinstance(type_, type) and issubclass(type_, msgspec.Struct):
        return _convert_struct(value, type_, place, problems)
    origin = typing.get_origin(type_)
    if origin in (list, tuple) and isinstance(value, list):
        item_type = typing.get_args(type_)[0]
        return origin([_convert(item, item_type, f"{place}[{index}]", problems) for index, item in enumerate(value)])
    try:
        return msgspec.convert(value, type_)
    except msgspec.ValidationError as error:
        problems.append(f"{place}: {_said(error)}, got {value!r}")
        return None


def _convert_struct(value: Any, type_: type[msgspec.Struct], place: str, problems: list[str]) -> Any:
    if not isinstance(value, dict):
        problems.append(f"{place}: expected a mapping, got {value!r}")
        return None
    before = len(problems)
    prefix = f"{place}." if place else ""
    hints, known = _shape(type_)
    for key in value:
        if key not in known:
            problems.append(f"{prefix}{key}: unknown key; known keys are {', '.join(known)}")
    values = {}
    for name, field in known.items():
        if name in value:
            values[name] = _convert(value[name], hints[name], f"{prefix}{name}", problems)
        elif field.required:
            problems.append(f"{prefix}{name}: is missing")
    if len(problems) > before:
        return None
    try:
        return type_(**values)
    except ValueError as error:  # from __post_init__
        problems.append(f"{place}: {error}" if place else str(error))
        return None


@functools.cache
def _shape(type_: type[msgspec.Struct]) -> tuple[dict[str, Any], dict[str, msgspec.structs.FieldInfo]]:
    fields = {field.name: field for field in msgspec.structs.fields(type_)}
    return typing.get_type_hints(type_, include_extras=True), fields


def _essence(type_: Any) -> Any:
    """Return X of `X | None | UnsetType`, so that Structs in optional fields are converted as well; any other type as
    it is."""
    if typing.get_origin(type_) in (typing.Union, types.UnionType):
        arguments = [
            argument for argument in typing.get_args(type_) if argument not in (types.NoneType, msgspec.UnsetType)
        ]
        if len(arguments) == 1:
            return arguments[0]
    return type_


def _said(error: msgspec.ValidationError) -> str:
    """Return msgspec's sentence, as a part of another one."""
    message = str(error)
    return message[:1].lower() + message[1:]
