# SPDX-License-Identifier: Apache-2.0
"""Changes an object in its encoded form, so that fields which the runtime does not know stay as they were. No I/O.

A change has the form of a JSON merge patch. Lists of messages are replaced, but an entry that stays keeps its bytes.
"""

from __future__ import annotations

import datetime
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from . import messages
from .descriptors import ENTRIES
from .messages import message_class, parsed
from .typed_messages import document


def changed(kind: Any, data: bytes, change: Mapping[str, Any]) -> bytes:
    """Return the changed object, for a PUT. `data`: the object's message. Raises msgspec.DecodeError.

    managedFields are left out, so that the API server keeps its own, which already include the last write.
    """
    message = parsed(kind.MESSAGE, data)
    if not message.metadata.resourceVersion:  # without it, a PUT overwrites what others wrote
        raise msgspec.DecodeError("the object has no resourceVersion, so it cannot be replaced")
    _merge(message, change)
    message.metadata.ClearField("managedFields")
    package, _, name = kind.MESSAGE.rpartition(".")
    return messages.wrapped(_api_version(package), name, message.SerializeToString())


def _api_version(package: str) -> str:
    group, version = package.split(".")[-2:]
    return version if group == "core" else f"{group}.k8s.io/{version}"


def with_metadata(kind: Any, data: bytes, answer: bytes) -> bytes:
    """Return the message with the metadata in the answer to its write. Raises msgspec.DecodeError.

    A webhook may have changed the metadata, and the next write must not undo that.
    """
    message = parsed(kind.MESSAGE, data)
    message.metadata.Clear()
    message.metadata.MergeFrom(parsed(messages.METADATA, messages.unwrapped(answer, "PartialObjectMetadata")).metadata)
    return bytes(message.SerializeToString())


def _merge(message: Any, change: Mapping[str, Any]) -> None:
    for name, value in change.items():
        entry = ENTRIES.get(f"{message.DESCRIPTOR.full_name}.{name}")
        if value is None:
            message.ClearField(name)
        elif entry is not None:
            former = getattr(message, name)[:]
            entries = _map(entry, former, value) if isinstance(value, Mapping) else _list(entry, former, value)
            message.ClearField(name)
            getattr(message, name).extend(entries)
        elif isinstance(value, Mapping):
            _merge(getattr(message, name), value)
        else:
            setattr(message, name, value)


def _map(entry: str, former: Sequence[bytes], change: Mapping[str, str | None]) -> list[bytes]:
    kept = [each for each in former if parsed(entry, each).key not in change]
    return kept + [_encoded(entry, key=key, value=value) for key, value in change.items() if value is not None]


def _list(entry: str, former: Sequence[bytes], desired: Sequence[Mapping[str, Any]]) -> Iterator[bytes]:
    encoded = [_encoded(entry, **item) for item in desired]
    # Most entries that stay have the very bytes that we write. The others are compared by their fields.
    kept = [(_filled(document(parsed(entry, each))), each) for each in former if each not in encoded]
    for item, data in zip(desired, encoded, strict=True):
        yield next((each for fields, each in kept if fields == _filled(item)), data)


def _filled(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that are not empty, because JSON may leave out the others."""
    return {name: value for name, value in fields.items() if value}


def _encoded(entry: str, **fields: Any) -> bytes:
    times = _times(entry)
    values = {name: _time(value) if name in times else value for name, value in fields.items()}
    return bytes(message_class(entry)(**values).SerializeToString())


@functools.cache
def _times(entry: str) -> frozenset[str]:
    return frozenset(field.name for field in message_class(entry).DESCRIPTOR.fields if field.message_type)


def _time(text: str) -> dict[str, int]:
    """Return a metav1.Time in whole seconds. The entries that we write contain no other message."""
    return {"seconds": int(datetime.datetime.fromisoformat(text).timestamp()), "nanos": 0}
