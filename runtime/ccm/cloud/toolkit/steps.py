# SPDX-License-Identifier: Apache-2.0
"""Read, do the next step, retry: changes a cloud that accepts one change at a time, without waiting.

A pure function computes all remaining steps from the current and the desired state. `do_next` does the first one and
raises RetryAfter. The next attempt reads the current state again, and so accounts for whatever happened in between.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from ccm.cloud import RetryAfter


@dataclass(frozen=True)
class Step:
    """One request that changes a resource of the cloud.

    `repairs`: the part in an error state that the step writes again unchanged; "" if the step changes something.
    """

    method: str
    path: str
    body: Any = None
    repairs: str = ""

    def __str__(self) -> str:
        return self.repairs or f"{_VERBS[self.method]} {self.path.strip('/')}"


_VERBS = {"POST": "missing in", "PUT": "other values in", "DELETE": "superfluous:"}


async def do_next(
    steps: Sequence[Step], do: Callable[[Step], Awaitable[None]], what: str, again: Callable[[], float], left: int = 0
) -> NoReturn:
    """Do the first step, and raise RetryAfter with the seconds that `again` returns.

    `what`: the resource, for the message. `left`: the number of all steps, if `steps` has only some.
    """
    await do(steps[0])
    raise RetryAfter(f"{what} is being changed: {left or len(steps)} steps left", again())
