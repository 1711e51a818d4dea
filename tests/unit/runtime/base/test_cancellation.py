# SPDX-License-Identifier: Apache-2.0
"""A task that gets a cancellation that nobody asked for."""

import asyncio

import pytest

from ccm.base.cancellation import TaskGroup


async def wait_for_what_was_cancelled() -> None:
    gone = asyncio.get_running_loop().create_future()
    gone.cancel()
    await gone


async def test_a_group_fails_if_something_that_a_task_waited_for_was_cancelled():
    with pytest.raises(ExceptionGroup) as raised:
        async with TaskGroup() as tasks:
            tasks.create_task(asyncio.Event().wait())
            tasks.create_task(wait_for_what_was_cancelled())
    (error,) = raised.value.exceptions
    assert str(error) == "something that wait_for_what_was_cancelled waited for was cancelled"


async def test_a_group_goes_on_without_a_task_that_somebody_cancelled():
    async with TaskGroup() as tasks:
        tasks.create_task(asyncio.Event().wait()).cancel()
        task = tasks.create_task(asyncio.sleep(0, "result"))
    assert task.result() == "result"


async def test_a_group_ends_when_its_owner_is_cancelled():
    async def run() -> None:
        async with TaskGroup() as tasks:
            tasks.create_task(asyncio.Event().wait())

    owner = asyncio.create_task(run())
    await asyncio.sleep(0)
    owner.cancel()
    with pytest.raises(asyncio.CancelledError):
        await owner
