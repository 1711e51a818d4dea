# SPDX-License-Identifier: Apache-2.0
"""Notes for the next leader from the controllers of one cloud of several: each cloud has a budget of its own."""

from __future__ import annotations

import msgspec

from .context import Notes


class NotesOfCloud(msgspec.Struct, frozen=True):
    """Notes under keys with the name of the cloud. Both methods raise ApiError.

    A note of a leader with one cloud has no cloud's name. It counts for each cloud that has no note of its own yet,
    because a deletion that counts twice only delays another one, but one that does not count could let too many
    through.
    """

    notes: Notes
    cloud: str

    async def read(self, key: str) -> str | None:
        own = await self.notes.read(self._own(key))
        return await self.notes.read(key) if own is None else own

    async def write(self, key: str, text: str) -> None:
        await self.notes.write(self._own(key), text)

    def _own(self, key: str) -> str:
        return f"{key}.{self.cloud}"
