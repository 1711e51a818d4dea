# SPDX-License-Identifier: Apache-2.0
"""Reads a page of a LIST in either encoding."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from . import encodings
from .api_errors import not_understood
from .objects import UNREADABLE, ListMeta, list_decoder
from .protobuf import MAGIC

T = TypeVar("T")

#: Bytes of a list to decode without interruption, which takes about 10 ms.
STRETCH = 2 * 1024 * 1024


async def read_page(
    body: bytes,
    kind: type[T],
    path: str,
    unreadable: Callable[[bytes], None] | None,
    keep: Callable[[T], T],
) -> tuple[list[T], ListMeta]:
    """Return each item as `keep` returns it, and the list's metadata. Raises UnavailableError.

    A small page of JSON is decoded at once. A large page, a page in protobuf, or a small page that cannot be decoded is
    decoded item by item, and other tasks run in between. `unreadable` is called with each item that cannot be decoded.
    If it is None, such an item raises UnavailableError.
    """
    if len(body) <= STRETCH and not body.startswith(MAGIC):
        try:
            page = list_decoder(kind).decode(body)
            return [keep(item) for item in page.items or []], page.metadata
        except UNREADABLE as error:
            if unreadable is None and not isinstance(error, RecursionError):
                raise not_understood(path, error) from None
    try:
        pieces, metadata, read = await encodings.pieces(kind, body)
    except UNREADABLE as error:
        raise not_understood(path, error) from None
    items, size = [], 0
    for piece in pieces:
        try:
            items.append(keep(read(piece)))
        except UNREADABLE as error:
            if unreadable is None:
                raise not_understood(path, error) from None
            unreadable(encodings.whole(kind, piece))
        size += len(bytes(piece))
        if size > STRETCH:
            size = 0
            await asyncio.sleep(0)
    return items, metadata
