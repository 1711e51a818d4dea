# SPDX-License-Identifier: Apache-2.0
"""Classes of Kubernetes' messages, made from their descriptors when they are first used.

The descriptors have only what the runtime reads. A parsed message keeps the bytes of all other fields, and writes them
back as they were.
"""

from __future__ import annotations

import functools
from typing import Any

import msgspec
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from . import MAGIC
from .descriptors import FILES

META = "k8s.io.apimachinery.pkg.apis.meta.v1"
METADATA, WATCH_EVENT, LIST = f"{META}.PartialObjectMetadata", f"{META}.WatchEvent", "ccm.List"
_RUNTIME = "k8s.io.apimachinery.pkg.runtime"


@functools.cache
def _pool() -> Any:
    pool = DescriptorPool()
    for file in FILES:
        pool.AddSerializedFile(file)
    return pool


@functools.cache
def message_class(name: str) -> Any:
    """Return the class of the message with this full name, such as `k8s.io.api.core.v1.Node`."""
    return GetMessageClass(_pool().FindMessageTypeByName(name))


def simple_name(kind: Any) -> str:
    """Return the kind of the objects that this type reads."""
    return str(kind.MESSAGE).rpartition(".")[2]


def parsed(name: str, data: bytes) -> Any:
    """Return the message with this name. Raises msgspec.DecodeError, as decoding of JSON does."""
    try:
        return message_class(name).FromString(data)
    except DecodeError as error:
        raise unreadable(name, error) from None


def unreadable(name: str, error: DecodeError) -> msgspec.DecodeError:
    return msgspec.DecodeError(f"not a message of the type {name.rpartition('.')[2]}: {error}")


def unwrapped(data: bytes, kind: str = "") -> bytes:
    """Return the message in the envelope of an object. `kind`: how the object's kind must end, "" for any kind.

    A message numbers its fields and does not name them, so another kind would be read as nonsense. Raises
    msgspec.DecodeError.
    """
    if not data.startswith(MAGIC):
        raise msgspec.DecodeError("not an object in Kubernetes' protobuf: its first bytes are different")
    envelope = parsed(f"{_RUNTIME}.Unknown", data[len(MAGIC) :])
    if envelope.contentEncoding:
        raise msgspec.DecodeError(f"an object with the unknown encoding {envelope.contentEncoding!r}")
    if not envelope.typeMeta.kind.endswith(kind):
        raise msgspec.DecodeError(f"an object of the kind {envelope.typeMeta.kind!r}, not {kind}")
    return bytes(envelope.raw)


def wrapped(api_version: str, kind: str, message: bytes) -> bytes:
    """Return an object as the API server expects it in a request."""
    envelope = message_class(f"{_RUNTIME}.Unknown")(raw=message)
    envelope.typeMeta.apiVersion, envelope.typeMeta.kind = api_version, kind
    return MAGIC + bytes(envelope.SerializeToString())
