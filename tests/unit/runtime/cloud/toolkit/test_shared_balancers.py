# SPDX-License-Identifier: Apache-2.0
"""Services share one listing, and only one at a time writes a shared load balancer. In virtual time."""

import asyncio

import pytest

from ccm.cloud import Transient
from ccm.cloud.toolkit.shared_balancers import SharedBalancers

from ...gateway.virtual import in_virtual_time, now


class Cloud:
    def __init__(self):
        self.rows, self.calls, self.error = {"a": {"id": "a"}, "b": {"id": "b"}}, [], None
        self.shared = SharedBalancers(self.all, self.one)

    async def all(self):
        self.calls.append("all")
        await asyncio.sleep(1.0)
        if self.error:
            raise self.error
        return dict(self.rows)

    async def one(self, balancer_id):
        self.calls.append(balancer_id)
        return self.rows.get(balancer_id)


@in_virtual_time
async def test_many_who_ask_at_once_cost_one_listing():
    cloud = Cloud()
    found = await asyncio.gather(*(cloud.shared.look("a") for _ in range(50)))
    assert cloud.calls == ["all"] and all(each == cloud.rows for each in found)


@in_virtual_time
async def test_one_who_asks_alone_reads_the_one():
    cloud = Cloud()
    assert await cloud.shared.look("a") == {"a": {"id": "a"}}
    assert await cloud.shared.look("gone") == {}
    assert await cloud.shared.look() == cloud.rows
    assert cloud.calls == ["a", "gone", "all"]


@in_virtual_time
async def test_who_asks_while_a_listing_is_read_gets_the_next_one():
    cloud = Cloud()
    first = asyncio.create_task(cloud.shared.look())
    await asyncio.sleep(0.5)
    cloud.rows["c"] = {"id": "c"}
    assert "c" in await cloud.shared.look()
    await first
    assert cloud.calls == ["all", "all"]


@in_virtual_time
async def test_a_failure_is_everybodys_and_the_next_look_is_a_new_one():
    cloud = Cloud()
    cloud.error = Transient("down")
    found = await asyncio.gather(*(cloud.shared.look() for _ in range(3)), return_exceptions=True)
    assert [type(each) for each in found] == [Transient] * 3
    cloud.error = None
    assert await cloud.shared.look() == cloud.rows


@in_virtual_time
async def test_one_who_gives_up_leaves_the_read_to_the_others():
    cloud = Cloud()
    gone, stays = asyncio.create_task(cloud.shared.look()), asyncio.create_task(cloud.shared.look())
    await asyncio.sleep(0.2)
    gone.cancel()
    assert await stays == cloud.rows
    with pytest.raises(asyncio.CancelledError):
        await gone


@in_virtual_time
async def test_a_load_balancer_has_one_writer_at_a_time():
    cloud, ended = Cloud(), []

    async def write(balancer_id):
        async with cloud.shared.writing(balancer_id):
            await asyncio.sleep(1.0)
            ended.append((balancer_id, now() - 1000.0))

    await asyncio.gather(write("a"), write("a"), write("b"))
    assert sorted(ended) == [("a", 1.0), ("a", 2.0), ("b", 1.0)]
