# SPDX-License-Identifier: Apache-2.0
"""Callers share a read if they ask before it starts. In virtual time."""

import asyncio
import gc

import pytest

from ccm.cloud.toolkit.shared_balancers import SharedBalancers
from ccm.cloud.toolkit.shared_reads import GATHER, ObjectLocks, Shared

from ...gateway.virtual import in_virtual_time


class Cloud:
    """A cloud that counts its reads. Each read takes a second."""

    def __init__(self, error=None):
        self.reads, self.error = 0, error

    async def read(self):
        self.reads += 1
        number = self.reads
        await asyncio.sleep(1.0)
        if self.error:
            raise self.error
        return {"read": number}


def readers(cloud):
    return [Shared(cloud.read).get, SharedBalancers(cloud.read, None).look]


KINDS = pytest.mark.parametrize("kind", [0, 1], ids=["any read", "load balancers"])


@KINDS
@in_virtual_time
async def test_who_asks_a_little_later_gets_the_same_read(kind):
    cloud = Cloud()
    get = readers(cloud)[kind]
    first = asyncio.create_task(get())
    await asyncio.sleep(GATHER / 2)
    assert await get() == await first == {"read": 1}


@KINDS
@in_virtual_time
async def test_who_asks_while_it_is_read_gets_the_next_one(kind):
    cloud = Cloud()
    get = readers(cloud)[kind]
    first = asyncio.create_task(get())
    await asyncio.sleep(GATHER * 2)
    assert await get() == {"read": 2} and await first == {"read": 1}


@KINDS
@in_virtual_time
async def test_a_failure_that_nobody_waits_for_any_more_is_no_trouble(kind):
    told = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    cloud = Cloud(error=OSError("down"))
    asking = asyncio.create_task(readers(cloud)[kind]())
    await asyncio.sleep(GATHER * 2)
    asking.cancel()
    await asyncio.sleep(2.0)
    gc.collect()
    assert cloud.reads == 1 and told == []


@in_virtual_time
async def test_a_lock_is_kept_while_it_is_held():
    locks = ObjectLocks()
    async with locks.of("a"):
        gc.collect()
        assert locks.of("a").locked() and not locks.of("b").locked()
    gc.collect()
    assert not locks.of("a").locked()
