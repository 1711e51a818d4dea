# SPDX-License-Identifier: Apache-2.0
"""Decodes JSON that is nested more deeply than a decoder supports.

Anyone who may create a Service can also write its `metadata.managedFields`, and the API server serves them unchanged,
up to 10,000 levels deep. Recursive decoders reject such a text, and with it the whole page of a LIST. This module
replaces values below a maximum depth with `null`; controllers read no field that is so deep.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from typing import TypeVar

import msgspec

T = TypeVar("T")

#: The maximum depth. Fields of Kubernetes objects that this program reads are at most ten levels deep in a list.
DEEPEST = 64
#: How many bytes to process at once, which takes about 10 ms.
AT_ONCE = 64 * 1024

#: Up to and including the next bracket outside a string, or the whole rest. The pattern does not backtrack (`*+`), so
#: the time is linear in the length.
_TO_BRACKET = re.compile(rb'[^][{}"]*+(?:"[^"\\]*+(?:\\.[^"\\]*+)*+"[^][{}"]*+)*+([][{}])|.+', re.DOTALL)


async def decode(decoder: msgspec.json.Decoder[T], data: bytes) -> T:
    """Like `decoder.decode`, however deeply `data` is nested. Raises `objects.UNREADABLE`.

    Removing deep values takes about 200 ms for an object of the maximum size, so a thread does it if there are more
    than `AT_ONCE` bytes.
    """
    try:
        return decoder.decode(data)
    except RecursionError:
        if len(data) <= AT_ONCE:
            return decoder.decode(shallow(data))
        return decoder.decode(await asyncio.to_thread(shallow, data))


def shallow(data: bytes, deepest: int = DEEPEST) -> bytes:
    """Return `data` with `null` in place of each object and array that is more than `deepest` levels deep.

    `data` should be JSON; invalid JSON stays invalid.
    """
    return b"".join(_pieces(data, deepest))


def _pieces(data: bytes, deepest: int) -> Iterator[bytes]:
    depth = kept = 0
    for match in _TO_BRACKET.finditer(data):
        if match[1] is None:
            break
        if match[1] in b"[{":
            depth += 1
            if depth == deepest + 1:
                yield data[kept : match.start(1)]
                yield b"null"
        else:
            if depth == deepest + 1:
                kept = match.end(1)
            depth -= 1
    if depth <= deepest:
        yield data[kept:]
