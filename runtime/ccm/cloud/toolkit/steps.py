# SPDX-License-Identifier: Apache-2.0
"""Look, do the next step, ask again: how a cloud is changed that takes one change at a time, without waiting.

From what is there and what should be, a pure function makes all steps that are left. The first is done, and RetryAfter
says when to come back; then what is there is looked at again. Whatever happens in between, the next look shows it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from ccm.cloud import RetryAfter


@dataclass(frozen=True)
class Step:
    """One request that changes a thing of the cloud.

    `repairs`: the part in an error state that it only writes again; "" where something differs.
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
    """Do the first of these steps, and raise RetryAfter with the seconds that `again` gives then.

    `what`: the thing, for the message. `left`: how many steps there are, if `steps` has not all of them.
    """
    await do(steps[0])
    raise RetryAfter(f"{what} is being changed: {left or len(steps)} steps to go", again())
