# SPDX-License-Identifier: Apache-2.0
"""The slots of calls in progress: as many as the cloud accepts at a time, and no group of calls holds all of them.

Slow calls succeed, so no breaker stops them. Without these limits, the load balancers of one namespace that take a
minute each would hold every slot, and no Node would be initialised meanwhile.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, defaultdict

from ccm.base.rounds import Rounds

#: The group that has slots of its own, because Nodes wait for its calls.
INSTANCES = "instances"


class Slots:
    """At most `concurrency` calls at a time. A group holds three quarters of the slots at most, and one more if its
    calls are of several namespaces, because one namespace leaves a slot of its group to the others. All groups except
    the instances leave an eighth of the slots, but at least one, to the instances. If there is only one slot, any call
    may take it.

    Waiting calls of a group take turns by namespace, and the groups take turns.
    """

    def __init__(self, concurrency: int) -> None:
        self._free = concurrency
        share = concurrency * 3 // 4
        self._most_of_group = max(1, min(share + 1, concurrency - 1))
        self._most_of_one = max(1, min(share, self._most_of_group - 1))
        self._most_without = max(1, share)  # of calls that are about no object of a namespace
        self._most_of_others = max(1, concurrency - max(1, concurrency // 8))
        self._held: dict[str, int] = defaultdict(int)
        self._others = 0
        self._held_by: dict[tuple[str, str], int] = defaultdict(int)
        self._waiting: OrderedDict[str, Rounds[asyncio.Future[None]]] = OrderedDict()

    def take(self, group: str, namespace: str) -> bool:
        """Take a slot if the call may have one at once. Return whether it did."""
        if self._waiting.get(group) or not self._may_go(group, namespace):
            return False
        self._count(group, namespace, 1)
        return True

    async def acquire(self, group: str, namespace: str) -> None:
        """Wait for a slot. `namespace`: "" if the call is about no object of a namespace."""
        if self.take(group, namespace):
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = self._waiting.setdefault(group, Rounds())
        waiting.add(namespace, turn)
        self._wake()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                waiting.discard(namespace, turn)
            else:
                self.release(group, namespace)
            raise

    def release(self, group: str, namespace: str) -> None:
        self._count(group, namespace, -1)
        if self._waiting:
            self._wake()

    def _may_go(self, group: str, namespace: str) -> bool:
        if self._free <= 0 or (group != INSTANCES and self._others >= self._most_of_others):
            return False
        if not namespace:
            return self._held[group] < self._most_without
        return self._held[group] < self._most_of_group and self._held_by.get((group, namespace), 0) < self._most_of_one

    def _count(self, group: str, namespace: str, change: int) -> None:
        self._free -= change
        self._held[group] += change
        if group != INSTANCES:
            self._others += change
        if namespace:
            self._held_by[group, namespace] += change
            if not self._held_by[group, namespace]:
                del self._held_by[group, namespace]

    def _wake(self) -> None:
        """Give the free slots to waiting calls that may have them; the groups take turns."""
        while any(self._serve(group) for group in list(self._waiting)):
            pass

    def _serve(self, group: str) -> bool:
        """Give a slot to the next call of this group that may have one. Return whether there was such a call, even if
        it had been cancelled."""
        chosen = self._waiting[group].take(lambda namespace: self._may_go(group, namespace))
        if chosen is None:
            return False
        namespace, turn = chosen
        if not turn.done():
            self._count(group, namespace, 1)
            turn.set_result(None)
            self._waiting.move_to_end(group)
        return True
