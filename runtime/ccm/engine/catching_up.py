# SPDX-License-Identifier: Apache-2.0
"""Decides when a watch that was opened again has shown everything up to a known moment.

The API server sends at once what changed since the resourceVersion from which a watch starts. Nothing in the stream
marks the end of these changes. So a consistent read provides a resourceVersion: the watch has caught up when it reaches
that version. If no object of the kind changes, the watch never reaches it; then silence is the end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from ccm.base.clock import Clock, Timer

from .api_errors import GoneError
from .client import KubeClient
from .objects import ListOf

#: If a new watch sends nothing for this many seconds, it has sent everything that happened before.
SILENCE = 0.25


def is_reached(version: str, goal: str) -> bool:
    """Return whether `version` is as new as `goal`, both of one kind. Only numbers have an order."""
    return version.isdecimal() and goal.isdecimal() and int(version) >= int(goal)


async def newest_version(client: KubeClient, path: str, params: Mapping[str, str], reached: str) -> str:
    """Return the newest resourceVersion of a kind, from a consistent list that asks for one object.

    Raises GoneError if that version is missing, not a number, or older than `reached`: the API server lost its newest
    state, and a watch from `reached` would show nothing. Raises ApiError if the list fails.
    """
    answer = await client.get(path, ListOf[msgspec.Raw], params={**params, "limit": "1"})
    newest = answer.metadata.resource_version
    if not is_reached(newest, reached):
        raise GoneError(200, "", f"the newest resourceVersion is {newest or 'missing'}, but {reached} was seen before")
    return newest


class CatchingUp:
    """Calls `done` once after `start`: when the watch has reached `goal`, or has been silent. Call `advance` after each
    event of the watch."""

    def __init__(self, clock: Clock, done: Callable[[], None]) -> None:
        self._clock, self._done, self._goal = clock, done, ""
        self._timer: Timer | None = None

    def start(self, goal: str) -> None:
        self._goal, self._timer = goal, self._clock.call_later(SILENCE, self._end)

    def advance(self, version: str) -> None:
        if self._timer is None:
            return
        self._timer.cancel()
        if is_reached(version, self._goal):
            self._end()
        else:
            self.start(self._goal)

    def _end(self) -> None:
        self._timer = None
        self._done()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
