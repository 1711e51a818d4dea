# SPDX-License-Identifier: Apache-2.0
"""JSON that is nested more deeply than a decoder can follow.

Everybody who may create a Service may also write its `metadata.managedFields`, and the API server serves them as they
are, up to 10,000 levels deep. Decoders that call themselves for each level refuse such a text, and with it the whole
page of a LIST. Here, what is nested too deeply becomes `null`; no field that a controller reads is that deep.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from typing import TypeVar

import msgspec

T = TypeVar("T")

#: Levels that are kept. Fields of Kubernetes objects that this program reads are at most ten levels deep in a list.
DEEPEST = 64
#: Bytes that are cut at once, in some 10 ms.
AT_ONCE = 64 * 1024

#: Up to and including the next bracket outside of a string, or all the rest. Nothing is tried twice (`*+`), so the time
#: is linear in the text.
_TO_BRACKET = re.compile(rb'[^][{}"]*+(?:"[^"\\]*+(?:\\.[^"\\]*+)*+"[^][{}"]*+)*+([][{}])|.+', re.DOTALL)


async def decode(decoder: msgspec.json.Decoder[T], data: bytes) -> T:
    """As `decoder.decode`, however deeply `data` is nested. Raises `objects.UNREADABLE`.

    Cutting off what is too deep takes some 200 ms for an object of the largest size, so a thread does it.
    """
    try:
        return decoder.decode(data)
    except RecursionError:
        if len(data) <= AT_ONCE:
            return decoder.decode(shallow(data))
        return decoder.decode(await asyncio.to_thread(shallow, data))


def shallow(data: bytes, deepest: int = DEEPEST) -> bytes:
    """`data` with `null` in place of each object and array that is more than `deepest` levels deep.

    `data` should be JSON; what is not JSON stays something that is not JSON.
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
