# SPDX-License-Identifier: Apache-2.0
"""Notes for the next leader by controllers of one of several clouds."""

import asyncio

from ccm.controllers.shared.notes_of_cloud import NotesOfCloud


class Lease:
    def __init__(self, **texts):
        self.texts = texts

    async def read(self, key):
        return self.texts.get(key)

    async def write(self, key, text):
        self.texts[key] = text


def test_each_cloud_has_its_own_note_and_begins_with_that_of_a_leader_of_one_cloud():
    async def run():
        lease = Lease(deletions="before")
        north, metal = NotesOfCloud(lease, "north"), NotesOfCloud(lease, "metal")
        assert await north.read("deletions") == await metal.read("deletions") == "before"
        await north.write("deletions", "")
        assert (await north.read("deletions"), await metal.read("deletions")) == ("", "before")
        assert await north.read("other") is None
        assert lease.texts == {"deletions": "before", "deletions.north": ""}

    asyncio.run(run())
