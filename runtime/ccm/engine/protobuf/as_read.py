# SPDX-License-Identifier: Apache-2.0
"""The bytes of an object that was read, kept in addition to the fields that the runtime reads."""

from __future__ import annotations


class AsRead:
    """The bytes of an object as the API server sent them, needed to write the whole object back. `held`: the number of
    such bytes in memory, of all objects.

    Thousands of objects may wait to be written, so there is a limit: `cache_rules.kept_node` drops bytes beyond it.
    """

    __slots__ = ("data",)
    held = 0

    def __init__(self, data: bytes) -> None:
        self.data = data
        AsRead.held += len(data)

    def __del__(self) -> None:
        AsRead.held -= len(self.data)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AsRead) and self.data == other.data

    __hash__ = None  # type: ignore[assignment]
