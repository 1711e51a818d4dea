# SPDX-License-Identifier: Apache-2.0
"""The two encodings of objects: JSON, and Kubernetes' protobuf for types that name their message (`MESSAGE`).

Each object in protobuf begins with four bytes that no JSON begins with, so an answer shows its own encoding. Therefore
an answer in JSON is understood, too, for example for a kind that its server has only in JSON.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, TypeGuard, TypeVar

import msgspec

from . import nesting
from .objects import ListMeta, ObjectMeta, PartialObject, WatchEvent, decoder, list_decoder
from .objects import identity as json_identity
from .protobuf import MAGIC

T = TypeVar("T")

JSON = "application/json"
PROTOBUF = "application/vnd.kubernetes.protobuf"
MEDIA_TYPES = (JSON, PROTOBUF)
#: The longest frame of a watch, in bytes. The API server accepts objects of 3 MiB, and etcd stores less by default.
LONGEST_FRAME = 64 * 1024 * 1024
_METADATA = "as=PartialObjectMetadata{};g=meta.k8s.io;v=v1"
_READS = frozenset({"GET", "LIST", "WATCH"})
#: Which objects travel in protobuf, by the names of their messages, and in which requests. All else is JSON.
#: `make bench BENCH=encodings` measures what that is worth.
IN_PROTOBUF: Mapping[str, frozenset[str]] = {
    "Node": _READS | {"PUT"},  # PUT: an uninitialised Node is replaced, not patched
    "Service": _READS,
    "PersistentVolume": _READS,
    "CertificateSigningRequest": _READS,
    "Lease": _READS,
    "PartialObjectMetadata": _READS | {"ANSWER"},  # ANSWER: the answer to a write
}


def in_protobuf(kind: Any, verb: str) -> bool:
    """Return whether objects of this type travel in protobuf in requests with this verb (see `IN_PROTOBUF`)."""
    return verb in IN_PROTOBUF.get(str(getattr(kind, "MESSAGE", "")).rpartition(".")[2], ())


def accepted(kind: Any, protobuf: bool, *, verb: str = "GET") -> str:
    """Return the header Accept of a request for this type. JSON stays possible, because not every kind has protobuf."""
    if not protobuf or not in_protobuf(kind, verb):
        return JSON
    how = f"{PROTOBUF};{_METADATA.format('List' * (verb == 'LIST'))}" if kind is PartialObject else PROTOBUF
    stream = ";stream=watch" if verb == "WATCH" else ""
    return f"{how}{stream},{JSON}"


def accepted_metadata(protobuf: bool) -> str:
    """Return the header Accept of a write: it asks for the metadata alone, which takes 20 % less CPU."""
    protobuf = protobuf and in_protobuf(PartialObject, "ANSWER")
    forms = [f"{PROTOBUF};{_METADATA.format('')}"] * protobuf + [f"{JSON};{_METADATA.format('')}", JSON]
    return ",".join(forms)


def read(kind: type[T], data: bytes | msgspec.Raw) -> T:
    """Return an object of this type. Raises `objects.UNREADABLE`, also if it is nested too deeply for a decoder."""
    if not _is_protobuf(data):
        return decoder(kind).decode(data)
    value: T = _reader(kind)(data)  # type: ignore[arg-type]  # any type is hashable
    return value


@functools.cache
def _reader(kind: Any) -> Callable[[bytes], Any]:
    """Return a function that reads an object in protobuf as this type. The code for it is imported when the first
    object comes."""
    from .protobuf import messages, typed_messages

    read, unwrapped = typed_messages.read_as(kind), messages.unwrapped
    name = "" if kind is PartialObject else messages.simple_name(kind)
    return lambda data: read(unwrapped(data, name))


async def read_deep(kind: type[T], data: bytes) -> T:
    """Do the same as `read`, but also for deeply nested JSON. A protobuf message is nested no deeper than its type."""
    return read(kind, data) if _is_protobuf(data) else await nesting.decode(decoder(kind), data)


def identity(data: bytes | msgspec.Raw) -> PartialObject:
    """Return name, namespace, UID and resourceVersion of an object that may be invalid otherwise. Raises one of
    `UNREADABLE` if it has no such metadata."""
    if not _is_protobuf(data):
        return json_identity(data)
    from .protobuf import messages

    meta = messages.parsed(messages.METADATA, messages.unwrapped(data)).metadata
    return PartialObject(ObjectMeta(meta.name, meta.namespace, meta.uid, meta.resourceVersion))


async def pieces(kind: type[Any], body: bytes) -> tuple[list[Any], ListMeta, Callable[[Any], Any]]:
    """Return a list's items still encoded, the list's metadata, and a function that decodes one item. Raises one of
    `UNREADABLE` if it is not a list."""
    if not _is_protobuf(body):
        page = await nesting.decode(list_decoder(msgspec.Raw), body)
        return page.items or [], page.metadata, decoder(kind).decode
    from .protobuf import messages, typed_messages

    page = messages.parsed(messages.LIST, messages.unwrapped(body, "List"))
    metadata = ListMeta(page.metadata.resourceVersion, getattr(page.metadata, "continue"))
    return page.items[:], metadata, typed_messages.read_as(kind)  # type: ignore[arg-type]


def whole(kind: Any, item: bytes | msgspec.Raw) -> bytes:
    """Return an item of a list of this type as an object of its own, for `identity` and `read`."""
    if isinstance(item, msgspec.Raw):
        return bytes(item)
    from .protobuf import messages

    return messages.wrapped("", messages.simple_name(kind), item)


async def read_event(frame: bytes) -> WatchEvent:
    """Return an event of a watch, whose object is not read yet.

    A frame in protobuf begins with the tag of the field `type` (a line feed), which no JSON does.
    """
    if not frame.startswith(b"\n"):
        return await nesting.decode(decoder(WatchEvent), frame)
    from .protobuf import messages

    event = messages.parsed(messages.WATCH_EVENT, frame)
    return WatchEvent(event.type, event.object.raw)


def _is_protobuf(data: bytes | msgspec.Raw) -> TypeGuard[bytes]:
    return isinstance(data, bytes) and data.startswith(MAGIC)


def frames(content_type: str, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Return the events of a watch, still encoded."""
    return split_frames(chunks) if content_type == PROTOBUF else split_lines(chunks)


async def split_frames(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the frames of a stream; each follows its length in four bytes. An incomplete last frame is dropped.

    Raises msgspec.DecodeError if a length is too large, because it is then unknown where the next frame starts.
    """
    pending = bytearray()
    async for chunk in chunks:
        pending += chunk
        start = 0
        while len(pending) >= start + 4:
            length = int.from_bytes(pending[start : start + 4], "big")
            if length > LONGEST_FRAME:
                raise msgspec.DecodeError(f"a frame of {length} bytes, more than {LONGEST_FRAME}")
            if len(pending) < start + 4 + length:
                break
            if length:
                yield bytes(pending[start + 4 : start + 4 + length])
            start += 4 + length
        del pending[:start]


async def split_lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the non-empty lines of a stream, of any length. A last line without a newline is incomplete: it is
    dropped."""
    pending = bytearray()
    async for chunk in chunks:
        start = 0
        while (end := chunk.find(b"\n", start)) >= 0:
            line = chunk[start:end]
            if pending:
                pending += line
                line = bytes(pending)
                pending.clear()
            start = end + 1
            if line:
                yield line
        pending += chunk[start:]
