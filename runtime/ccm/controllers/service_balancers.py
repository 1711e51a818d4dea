# SPDX-License-Identifier: Apache-2.0
"""The cloud's load balancers, as the Service controller asks for them and deletes them.

At start, one listing tells what the cloud has; one listing answers for all that wait for the cloud at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Awaitable, Callable, Collection, Hashable, Mapping
from typing import NamedTuple, TypeVar

from ccm.cloud import (
    AllocatesAddresses,
    Backends,
    CloudError,
    Conflict,
    ImplementedElsewhere,
    LoadBalancer,
    LoadBalancers,
    LoadBalancerSpec,
    NotFound,
    NotImplementedByCloud,
    RetryAfter,
    Transient,
)
from ccm.engine.queue import Requeue

from .allocations import ServiceAllocations
from .context import Context
from .service_state import ServiceState

log = logging.getLogger(__name__)

T = TypeVar("T")

#: So many waiting load balancers are looked at by one listing rather than one by one.
BULK = 3
#: Every so many looks at a waiting load balancer it is read alone: only that shows that it failed in the cloud.
READ_EVERY = 6
#: A load balancer that the cloud does not know when it is to be deleted is asked for again so much later, in seconds.
CONFIRM = 5.0


class _Listing(NamedTuple):
    """All load balancers by Service UID, for all who ask at the time; `begun` in monotonic seconds."""

    begun: float
    found: Mapping[str, LoadBalancer]


class ServiceBalancers:
    """`poll`: seconds that a listing answers for those that wait.

    `at_start`: what the cloud had, by Service UID, when it was first listed and nobody has looked at since.
    """

    def __init__(self, context: Context, allocations: ServiceAllocations, poll: float) -> None:
        self._context, self._allocations, self._poll = context, allocations, poll
        self.at_start: dict[str, LoadBalancer] = {}
        self._introduced: LoadBalancers | None = None
        self._listing: _Listing | None = None
        self._listing_now = asyncio.Lock()

    @property
    def cloud(self) -> LoadBalancers:
        """The present cloud's: it is replaced when credentials are reloaded."""
        found = self._context.gateway.cloud.load_balancers
        assert found is not None
        if found is not self._introduced:
            self._introduced = found
            if isinstance(found, AllocatesAddresses):
                found.use_allocations(self._allocations)
        return found

    async def call(self, verb: str, function: Callable[[], Awaitable[T]]) -> T:
        return await self._context.gateway.call(f"load_balancers.{verb}", function)

    async def begin(self) -> None:
        """List what the present cloud has, for `at_start`. Returns when the cloud has answered."""
        self._listing = None
        self.at_start = await self._list_for_sure()

    async def _list_for_sure(self) -> dict[str, LoadBalancer]:
        """Asked until it answers: without a listing every Service would be written."""
        delay = 1.0
        while True:
            try:
                return await self._list()
            except NotImplementedByCloud as error:
                log.warning("every Service is written once, since load balancers cannot be listed: %s", error)
                return {}
            except CloudError as error:
                delay = min(30.0, delay * 2)
                wait = error.retry_after or delay
                log.warning("load balancers cannot be listed, trying again in %.0f s: %s", wait, error)
                await asyncio.sleep(wait)

    async def _list(self) -> dict[str, LoadBalancer]:
        found = await self.call("list", lambda: self.cloud.list(self._context.cluster_name))
        return {balancer.service_uid: balancer for balancer in found}

    async def _listing_since(self, moment: float) -> Mapping[str, LoadBalancer]:
        """A listing that was begun after `moment`, and not long ago."""
        async with self._listing_now:
            now = self._context.monotonic()
            if self._listing is None or self._listing.begun < max(moment, now - self._poll):
                self._listing = _Listing(now, await self._list())
            return self._listing.found

    async def look(self, spec: LoadBalancerSpec, state: ServiceState, waiting: Collection[str]) -> LoadBalancer:
        """The load balancer as the cloud has it now; one listing answers for all that wait."""
        if len(waiting) >= BULK and state.polls % READ_EVERY:
            with contextlib.suppress(NotImplementedByCloud):
                found = await self._listing_since(state.written_at)
                if spec.uid in found:
                    return found[spec.uid]
        try:
            return await self.call("get", lambda: self.cloud.get(spec))
        except (NotFound, Conflict):
            state.mark = None  # it vanished or failed while we waited: it is made again
            raise

    def mark(self, spec: LoadBalancerSpec, backends: Backends) -> Hashable:
        """What the cloud would be told for this spec, to be compared: a change that no write would show is none.

        Raises Transient when the provider fails.
        """
        try:
            found = self.cloud.fingerprint(spec, backends)
        except Exception as error:
            raise Transient(
                f"load_balancers.fingerprint: a bug of the provider: {type(error).__name__}: {error}"
            ) from error
        return found or (repr(spec), backends.digest)

    async def delete(self, spec: LoadBalancerSpec, state: ServiceState) -> None:
        """Returns when nothing is left. Raises Requeue and RetryAfter until then.

        A Service has our finalizer, so something may well be there, and once the finalizer is gone nobody looks for it
        any more: a cloud that knows of nothing is asked once more, after `CONFIRM`, since one wrong answer of it would
        leak a load balancer. The same goes for one that is eventually consistent, until its listings have caught up.
        Neither is needed once the cloud said that it was at it.
        """
        if (left := state.again_at - self._context.monotonic()) > 0:
            raise Requeue(left)
        again_at = state.tried_at + self._context.gateway.cloud.limits.listing_lag
        try:
            await self.call("delete", lambda: self.cloud.delete(spec))
        except RetryAfter:
            state.met = True
            raise
        except ImplementedElsewhere:
            return
        except NotFound:
            if state.again_at == -math.inf:
                again_at = max(again_at, self._context.monotonic() + CONFIRM)
        if (left := again_at - self._context.monotonic()) > 0 and not state.met:
            state.again_at = again_at
            raise Requeue(left)
