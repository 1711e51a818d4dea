# SPDX-License-Identifier: Apache-2.0
"""Limits how often the API server is queried on behalf of clients, and caches its answers.

Anyone who reaches the secure port can invent tokens and paths, and each of them needs a query to the API server. These
queries have a separate budget, so that they do not affect the controllers.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Iterator
from typing import Any, Generic, TypeVar

import msgspec
from prometheus_client import Counter

from ccm.base.clock import SYSTEM_CLOCK, Clock
from ccm.base.token_bucket import TokenBucket

T = TypeVar("T")

REFUSED = Counter(
    "ccm_serving_reviews_refused_total",
    "Requests answered with 429 because they needed a review by the API server and the budget was exhausted.",
    ["asker"],
)
#: How many answers of one kind are cached, for how many peers a share is tracked, and how many good keys are
#: remembered.
CACHE_SIZE = 1000
#: Seconds after which a rejected client may retry.
RETRY_AFTER = 1


class BudgetSpent(Exception):
    """No more reviews are allowed at the moment."""


class Rates(msgspec.Struct, frozen=True):
    """Limits of reviews: `rate` per second and `burst` at once for all peers together, a share of these for each peer,
    and a maximum number in progress."""

    rate: float
    burst: int
    peer_rate: float
    peer_burst: int
    at_a_time: int


#: The limits for clients without credentials, or with a token that the API server has not accepted recently.
STRANGERS = Rates(rate=5, burst=10, peer_rate=1, peer_burst=8, at_a_time=4)
#: The limits for clients with a valid certificate or a token that was accepted recently; unknown clients cannot exhaust
#: this budget. Known clients are limited, too, because every Pod has an accepted token.
KNOWN = Rates(rate=20, burst=40, peer_rate=2, peer_burst=10, at_a_time=8)


class Budget:
    """The budget for reviews of one kind of client."""

    def __init__(self, asker: str, rates: Rates, clock: Clock = SYSTEM_CLOCK) -> None:
        self._asker, self._rates, self._clock = asker, rates, clock
        self._all = TokenBucket(rates.rate, rates.burst, clock.monotonic)
        self._peers: OrderedDict[str, TokenBucket] = OrderedDict()
        self._under_way = 0

    @contextlib.contextmanager
    def spend(self, peer: str) -> Iterator[None]:
        """Take one review from the share of `peer`; it is in progress while the context lasts. Raises BudgetSpent
        instead of waiting."""
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
    """A cache of answers; the oldest are dropped when it is full. Concurrent requests for one key share a query."""

    def __init__(self, clock: Clock, lifetime: Callable[[T], float], is_good: Callable[[T], bool]) -> None:
        """`lifetime` returns how many seconds an answer is cached. `is_good` returns whether an answer is good: good
        answers are stored separately, so that the others cannot displace them."""
        self._clock, self._lifetime, self._is_good = clock, lifetime, is_good
        self._good: OrderedDict[Hashable, tuple[float, T]] = OrderedDict()
        self._bad: OrderedDict[Hashable, tuple[float, T]] = OrderedDict()
        self._asking: dict[Hashable, asyncio.Task[T]] = {}

    async def get(self, key: Hashable, ask: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return the cached answer for `key`, otherwise the result of `ask`. Errors of `ask` are raised and not
        cached."""
        kept = self._good.get(key) or self._bad.get(key)
        if kept is not None and self._clock.monotonic() < kept[0]:
            return kept[1]
        asking = self._asking.get(key)
        if asking is None:
            asking = self._asking[key] = asyncio.create_task(self._ask(key, ask))
            asking.add_done_callback(lambda task: task.cancelled() or task.exception())
        # The first client may disconnect; the others still need the answer.
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
    """Remembers keys that were good within the last `lifetime` seconds, at most `CACHE_SIZE` of them."""

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
