# SPDX-License-Identifier: Apache-2.0
"""How often the API server is asked on behalf of others, and how long its answers are kept.

Whoever reaches the secure port can make up tokens and paths, and each of them is a question to the API server. These
questions have a budget of their own, so that they cost the controllers nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from prometheus_client import Counter

from ccm.base.clock import SYSTEM_CLOCK, Clock
from ccm.base.token_bucket import TokenBucket

T = TypeVar("T")

REFUSED = Counter(
    "ccm_serving_reviews_refused_total",
    "Requests that were answered 429, because they needed a review by the API server and the budget was spent.",
    ["asker"],
)
#: Answers of one kind that are kept, and peers whose share is kept.
CACHE_SIZE = 1000
#: Seconds after which a request may come again that was refused.
RETRY_AFTER = 1


class BudgetSpent(Exception):
    """No more reviews for now."""


@dataclass(frozen=True)
class Rates:
    """`rate` reviews a second and `burst` at once for all peers together, a share of these for each, and so many at a
    time."""

    rate: float
    burst: int
    peer_rate: float
    peer_burst: int
    at_a_time: int


#: For those who brought nothing that the API server knows.
STRANGERS = Rates(rate=5, burst=10, peer_rate=1, peer_burst=8, at_a_time=4)
#: For those whom it knew lately: strangers cannot spend what these need. Any Pod has a token that it knows.
KNOWN = Rates(rate=20, burst=40, peer_rate=2, peer_burst=10, at_a_time=8)


class Budget:
    """The reviews that one kind of asker may cause."""

    def __init__(self, asker: str, rates: Rates, clock: Clock = SYSTEM_CLOCK) -> None:
        self._asker, self._rates, self._clock = asker, rates, clock
        self._all = TokenBucket(rates.rate, rates.burst, clock.monotonic)
        self._peers: OrderedDict[str, TokenBucket] = OrderedDict()
        self._under_way = 0

    @contextlib.contextmanager
    def spend(self, peer: str) -> Iterator[None]:
        """One review for `peer`, which takes as long as the context. Raises BudgetSpent; nothing waits for its turn."""
        if self._under_way >= self._rates.at_a_time or not self._share_of(peer).take() or not self._all.take():
            REFUSED.labels(self._asker).inc()
            raise BudgetSpent
        self._under_way += 1
        try:
            yield
        finally:
            self._under_way -= 1

    def _share_of(self, peer: str) -> TokenBucket:
        share = self._peers.pop(peer, None) or TokenBucket(
            self._rates.peer_rate, self._rates.peer_burst, self._clock.monotonic
        )
        self._peers[peer] = share
        if len(self._peers) > CACHE_SIZE:
            self._peers.popitem(last=False)
        return share


class Memory(Generic[T]):
    """Answers for a while; the oldest go first when there are too many. Who asks what is being asked waits for it."""

    def __init__(self, clock: Clock, lifetime: Callable[[T], float], is_good: Callable[[T], bool]) -> None:
        """`lifetime`: seconds. Answers that are good are kept apart: the others cannot push them out."""
        self._clock, self._lifetime, self._is_good = clock, lifetime, is_good
        self._good: OrderedDict[Hashable, tuple[float, T]] = OrderedDict()
        self._bad: OrderedDict[Hashable, tuple[float, T]] = OrderedDict()
        self._asking: dict[Hashable, asyncio.Task[T]] = {}

    async def get(self, key: Hashable, ask: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """What is kept for `key`, otherwise what `ask` says. Raises what `ask` raises; that is not kept."""
        kept = self._good.get(key) or self._bad.get(key)
        if kept is not None and self._clock.monotonic() < kept[0]:
            return kept[1]
        asking = self._asking.get(key)
        if asking is None:
            asking = self._asking[key] = asyncio.create_task(self._ask(key, ask))
            asking.add_done_callback(lambda task: task.cancelled() or task.exception())
        # Whoever asked first may hang up; the others still want to know.
        return await asyncio.shield(asking)

    async def _ask(self, key: Hashable, ask: Callable[[], Awaitable[T]]) -> T:
        try:
            answer = await ask()
        finally:
            del self._asking[key]
        self._good.pop(key, None)
        self._bad.pop(key, None)
        if (seconds := self._lifetime(answer)) > 0:
            kept = self._good if self._is_good(answer) else self._bad
            kept[key] = (self._clock.monotonic() + seconds, answer)
            if len(kept) > CACHE_SIZE:
                kept.popitem(last=False)
        return answer


class Acquaintances:
    """Keys that were good lately: for `lifetime` seconds, and not more than `CACHE_SIZE`."""

    def __init__(self, clock: Clock, lifetime: float = 3600.0) -> None:
        self._clock, self._lifetime = clock, lifetime
        self._until: OrderedDict[Hashable, float] = OrderedDict()

    def meet(self, key: Hashable) -> None:
        self._until.pop(key, None)
        self._until[key] = self._clock.monotonic() + self._lifetime
        if len(self._until) > CACHE_SIZE:
            self._until.popitem(last=False)

    def leave(self, key: Hashable) -> None:
        self._until.pop(key, None)

    def __contains__(self, key: Hashable) -> bool:
        return self._until.get(key, 0.0) > self._clock.monotonic()
