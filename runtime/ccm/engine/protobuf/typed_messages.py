# SPDX-License-Identifier: Apache-2.0
"""Reads the types of `ccm.engine.objects` from messages, with the values that JSON gives them.

A type names its message in `MESSAGE`. Kubernetes gives the fields of messages the names that they have in JSON, so
nothing else is declared. This module knows where the two encodings differ: times, values that are a number or a text,
and fields that JSON inlines and protobuf has in an inner message.
"""

from __future__ import annotations

import datetime
import functools
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from keyword import iskeyword
from typing import Any

import msgspec
from google.protobuf.message import DecodeError

from ccm.base.shared_texts import LONGEST, MANY, MOST, shared

from .as_read import AsRead
from .descriptors import ENTRIES
from .messages import message_class, parsed, unreadable
from .shapes import INLINED, element_type, is_optional

#: IntOrString.type of a text; a number has 0.
_TEXT = 1
#: One empty list, shared by all objects that have no entries: nobody changes what was read.
_NONE: list[Any] = []

Convert = Callable[[Any], Any]


@functools.cache
def read_as(kind: Any) -> Callable[[bytes], Any]:
    """Return a function that reads messages of this type, without Kubernetes' envelope. It raises one of
    `objects.UNREADABLE`."""
    parse, convert = message_class(kind.MESSAGE).FromString, reader(kind, kind.MESSAGE)

    def read(message: bytes) -> Any:
        try:
            return convert(parse(message), message)
        except DecodeError as error:
            raise unreadable(kind.MESSAGE, error) from None
        except (ValueError, OverflowError, OSError) as error:  # a time that does not exist
            if isinstance(error, UnicodeDecodeError | msgspec.MsgspecError):
                raise
            raise msgspec.DecodeError(f"not readable as {kind.__name__}: {error}") from None

    return read


@functools.cache
def reader(kind: Any, message: str, *, is_entry: bool = False) -> Callable[..., Any]:
    """Return a function that makes a `kind` from a message of this name, and from the message's bytes if `kind` keeps
    them.

    The function is one expression, as one would write it for each type: for a Node, calls of converters field by field
    take twice the time. `is_entry`: share the texts, because many objects have entries with the same ones.
    """
    names: dict[str, Any] = {"AsRead": AsRead, "shared": shared, "none": _NONE}
    made = _expression(kind, message_class(message).DESCRIPTOR, "message", names, is_entry)
    convert: Callable[..., Any] = eval(f"lambda message, data=b'': {made}", names)
    return convert


def _expression(kind: type[Any], descriptor: Any, variable: str, names: dict[str, Any], is_entry: bool = False) -> str:
    """Return Python code for a `kind` whose message is in the variable. `names` gets what the expression calls."""
    values = [_value(field, descriptor, variable, names, is_entry) for field in msgspec.structs.fields(kind)]
    return f"{_name(kind, names)}({', '.join(values)})"


def _value(field: Any, descriptor: Any, variable: str, names: dict[str, Any], is_entry: bool) -> str:
    name, inlined = field.encode_name, INLINED.get(descriptor.name)
    described = descriptor.fields_by_name.get(name)
    if described is None and inlined:
        descriptor, variable = descriptor.fields_by_name[inlined].message_type, f"{variable}.{inlined}"
        described = descriptor.fields_by_name[name]
    if described is None and AsRead in typing.get_args(field.type):
        return "AsRead(data)"
    if described is None:  # the kind of a Status: it is in the envelope
        return _name(field.default, names)
    value, convert = f"getattr({variable}, {name!r})" if iskeyword(name) else f"{variable}.{name}", None
    struct = element_type(field.type)
    if described.is_repeated:
        message = ENTRIES.get(described.full_name)
        return f"({value}[:] or none)" if message is None else _entries(struct, message, value, names)
    if described.message_type is not None and struct is not None:
        inner = f"_{len(names)}"
        names[inner] = None
        value = f"({inner} := {value}, {_expression(struct, described.message_type, inner, names)})[1]"
    elif described.message_type is not None:
        convert = _SPECIAL.get(described.message_type.name, document)
        value = f"{_name(convert, names)}({value})"
    elif field.default not in (msgspec.NODEFAULT, None, "", 0, False, b""):
        value += f" or {field.default!r}"  # JSON leaves out what is empty, and then the type has its default
    if is_entry and field.type is str:
        value = f"shared({value})"
    if is_optional(field.type) and convert not in _NONE_IF_UNSET:
        value = f"{value} if {variable}.HasField({name!r}) else None"
    return value


def _name(thing: Any, names: dict[str, Any]) -> str:
    name = f"_{len(names)}"
    names[name] = thing
    return name


def _entries(struct: Any, message: str, value: str, names: dict[str, Any]) -> str:
    """Return Python code that builds a dict (`struct` is None), or a list of `struct`, from entries of this message.

    `value`: the code that gives the entries. `names` gets what the code calls.
    """
    parse = message_class(message).FromString
    if struct is None:
        return f"dict({_name(_each(_Shared(_shared_pair(parse)).__getitem__, _pair(parse)), names)}({value}[:]))"
    shared_entry, plain_entry = reader(struct, message, is_entry=True), reader(struct, message)

    def read(entry: bytes) -> Any:
        return shared_entry(parse(entry))

    def plain(entry: bytes) -> Any:
        return plain_entry(parse(entry))

    if selected := getattr(struct, "READ", ()):
        begin = b"\n"  # the tag of the type
        starts = tuple(begin + bytes([len(each)]) + each for each in selected)
        is_read = f"entry.startswith({_name(starts, names)}) or not entry.startswith({_name(begin, names)})"
        return f"(list({_name(_each(read, plain), names)}([entry for entry in {value}[:] if {is_read}])) or none)"
    return f"(list({_name(_each(_Shared(read).__getitem__, plain), names)}({value}[:])) or none)"


def _pair(parse: Convert) -> Convert:
    return lambda entry: ((parsed := parse(entry)).key, parsed.value)


def _shared_pair(parse: Convert) -> Convert:
    def pair(entry: bytes) -> tuple[str, str]:
        parsed = parse(entry)
        return shared(parsed.key), shared(parsed.value)

    return pair


def _each(read: Convert, plain: Convert) -> Callable[[Sequence[bytes]], Iterable[Any]]:
    """Return a function that reads all entries of an object. `read` shares what it makes; `plain`, for more than `MANY`
    entries, takes less time."""
    return lambda entries: map(read if len(entries) <= MANY else plain, entries)


class _Shared(dict[bytes, Any]):
    """What was read from entries. Many objects have the same ones, such as labels: these are read once, and their texts
    are kept once. Its memory is bounded, because users and kubelets write such texts."""

    def __init__(self, read: Convert) -> None:
        self._read = read

    def __missing__(self, entry: bytes) -> Any:
        value = self._read(entry)
        if len(entry) <= LONGEST:
            if len(self) >= MOST:
                self.clear()
            self[entry] = value
        return value


def time_text(time: Any) -> str | None:
    """Return metav1.Time as in JSON: RFC 3339 in seconds. None for an empty message, Go's zero time."""
    return _second(time.seconds) if time.HasField("seconds") else None


def micro_time_text(time: Any) -> str | None:
    """Return metav1.MicroTime as in JSON: with six digits. None for an empty message."""
    return f"{_second(time.seconds)[:-1]}.{time.nanos // 1000:06d}Z" if time.HasField("seconds") else None


@functools.lru_cache(4096)
def _second(seconds: int) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat()[:19] + "Z"


def number_or_text(value: Any) -> int | str:
    """Return IntOrString as in JSON."""
    return str(value.strVal) if value.type == _TEXT else int(value.intVal)


_SPECIAL: Mapping[str, Convert] = {
    "Time": time_text,
    "MicroTime": micro_time_text,
    "IntOrString": number_or_text,
}
_NONE_IF_UNSET = (time_text, micro_time_text)


def document(message: Any) -> dict[str, Any]:
    """Return a message in the form of its JSON: only fields that are set, and no empty lists."""
    return {field.name: _plain(field, value) for field, value in message.ListFields()}


def _plain(field: Any, value: Any) -> Any:
    if (message := ENTRIES.get(field.full_name)) is not None:
        return [document(parsed(message, entry)) for entry in value]
    if field.is_repeated:
        return list(value)
    if field.message_type is None:
        return value
    convert: Convert = _SPECIAL.get(field.message_type.name, document)
    return convert(value)
