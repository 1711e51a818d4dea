# SPDX-License-Identifier: Apache-2.0
"""Computations that are split into stretches have the same result and let other tasks run in between."""

import asyncio

import pytest

from ccm.controllers.shared.stretches import STRETCH, at_once, in_order, in_stretches


def counted(steps):
    for _ in range(steps):
        yield
    return steps


@pytest.mark.parametrize("steps", [0, 1, STRETCH, 3 * STRETCH + 1])
def test_the_result_is_that_of_the_generator(steps):
    assert at_once(counted(steps)) == steps


@pytest.mark.parametrize(
    ("steps", "turns"), [(0, 0), (STRETCH - 1, 0), (STRETCH, 1), (2 * STRETCH - 1, 1), (3 * STRETCH + 1, 3)]
)
async def test_other_tasks_get_a_turn_after_each_stretch(steps, turns):
    found = []

    async def other():
        while True:
            found.append(None)
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    assert await in_stretches(counted(steps)) == steps
    task.cancel()
    assert len(found) == turns


def test_objects_are_sorted_and_those_of_one_key_keep_their_order():
    items = [("b", 1), ("a", 2), ("b", 0), ("a", 1), ("c", 0)]
    assert at_once(in_order(items, lambda item: item[0])) == sorted(items, key=lambda item: item[0])
    assert at_once(in_order([], str)) == []


def test_each_object_is_a_step_of_its_own():
    assert sum(1 for _ in in_order(range(5), lambda number: -number)) == 10
