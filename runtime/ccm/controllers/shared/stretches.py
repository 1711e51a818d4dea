# SPDX-License-Identifier: Apache-2.0
"""Run computations about all objects in stretches, so that the event loop can run other tasks in between.

A long decision is a generator: it yields after each object, does no I/O, and returns its result. It remains a pure
function, and its caller decides how much of it runs at a time.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Generator, Iterable
from typing import Any, TypeAlias, TypeVar

T = TypeVar("T")

Steps: TypeAlias = Generator[None, None, T]

#: Steps to run, or Nodes to judge, before other tasks get their turn. It is a number and not a time, so that a
#: simulation in virtual time is repeatable. A step takes up to 0.1 ms.
STRETCH = 250


def at_once(steps: Steps[T]) -> T:
    """Return the result, without a pause."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            result: T = done.value
            return result


async def in_stretches(steps: Steps[T]) -> T:
    """Return the result. Other tasks get a turn after each `STRETCH` steps."""
    while True:
        try:
            for _ in range(STRETCH):
                next(steps)
        except StopIteration as done:
            result: T = done.value
            return result
        await asyncio.sleep(0)


def in_order(items: Iterable[T], key: Callable[[T], Any]) -> Steps[list[T]]:
    """Sort like `sorted(items, key=key)`, in steps, because sorting 50,000 objects at once would take a tenth of a
    second."""
    heap: list[tuple[Any, int, T]] = []
    for number, item in enumerate(items):
        heap.append((key(item), number, item))
        yield
    heapq.heapify(heap)  # takes linear time
    ordered: list[T] = []
    while heap:
        ordered.append(heapq.heappop(heap)[2])
        yield
    return ordered
