# SPDX-License-Identifier: Apache-2.0
"""Reads and deletes the cloud's load balancers for the Service controller.

At start, one listing shows what the cloud has. Later, if `BULK` or more Services wait for their load balancers,
one listing shows the state of most of them.
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
    DrainsBackends,
    ImplementedElsewhere,
    Kept,
    LoadBalancer,
    LoadBalancers,
    LoadBalancerSpec,
    NotFound,
    NotImplementedByCloud,
    RetryAfter,
    Transient,
)

from ..nodes import first_listing, node_rules
from ..shared.context import Context
from . import late_answer_rules
from . import service_rules as rules
from .allocations import ServiceAllocations
from .drain_rules import Mode
from .keep_rules import keepable
from .service_state import ServiceState
from .waiting_services import Waiting

log = logging.getLogger(__name__)

T = TypeVar("T")

#: From this number on, waiting load balancers are read with one listing instead of one by one.
BULK = 3
#: Every READ_EVERY reads, a waiting load balancer is read alone, because only that read shows a failure in the cloud.
READ_EVERY = 6
#: Seconds until a second request to delete a load balancer that the cloud did not know.
CONFIRM = 5.0
#: Seconds until the next request to delete a load balancer that the cloud does not know and that may be in another
#: project.
DOUBTED = 60.0
#: Why a deletion waits.
NOT_SHOWN = "the cloud does not show it, and is asked once more whether it is really gone"


class _Listing(NamedTuple):
    """All load balancers by Service UID, shared by concurrent callers; `begun` in monotonic seconds."""

    begun: float
    balancers: Mapping[str, LoadBalancer]


class ServiceBalancers:
    """Reads and deletes the load balancers of one cloud. `poll`: seconds for which waiting load balancers share a
    listing.

    `at_start`: the listing at start, or after the cloud was replaced, by Service UID, without the entries that have
    been used since. Each audit adds the load balancers that are to be released.
    """

    def __init__(self, context: Context, allocations: ServiceAllocations, poll: float) -> None:
        self._context, self._allocations, self._poll = context, allocations, poll
        self.at_start: dict[str, LoadBalancer] = {}
        self._introduced: LoadBalancers | None = None
        # The current cloud's capabilities; kept because `isinstance` with a protocol is slow. `_draining`: the same
        # object as the cloud, None if the cloud cannot drain.
        self._draining: DrainsBackends | None = None
        self._keeps: frozenset[Kept] = frozenset()
        self._listing: _Listing | None = None
        self._listing_now = asyncio.Lock()
        self._deletions = late_answer_rules.Deletions()
        self._took_over_at = -math.inf

    @property
    def cloud(self) -> LoadBalancers:
        """The load balancer functions of the current cloud. A reload of the credentials replaces the cloud."""
        return self._introduce()

    def _introduce(self) -> LoadBalancers:
        """Return the current cloud's load balancers. If the cloud is new, learn what it can do first."""
        cloud = self._context.gateway.cloud.load_balancers
        assert cloud is not None
        if cloud is not self._introduced:
            self._introduced = cloud
            self._draining = cloud if isinstance(cloud, DrainsBackends) else None
            self._keeps = keepable(cloud)
            if isinstance(cloud, AllocatesAddresses):
                cloud.use_allocations(self._allocations)
        return cloud

    @property
    def keeps(self) -> frozenset[Kept]:
        """What the current cloud can keep of a load balancer whose Service is deleted."""
        self._introduce()
        return self._keeps

    @property
    def lag(self) -> float:
        """Seconds for which the current cloud may still show the state before a change."""
        return self._context.gateway.cloud.limits.listing_lag

    def shows_deleted(self, uid: str) -> float:
        """Return the seconds for which the cloud may still show a load balancer that this process deleted."""
        return self._deletions.left(uid, self._context.monotonic(), self.lag)

    async def call(self, verb: str, function: Callable[[], Awaitable[T]]) -> T:
        return await self._context.gateway.call(f"load_balancers.{verb}", function)

    def take_listed(self, uid: str, *, is_written: bool) -> LoadBalancer | None:
        """Remove a Service's entry from the listing and return it.

        Return None if there is no entry, or if the load balancer was written since the listing. That is possible,
        because a cloud with new credentials is listed while Services are served.
        """
        listed = self.at_start.pop(uid, None)
        return None if is_written else listed

    def take_over(self) -> None:
        """Remember that no other process writes from now on. What a former leader wrote may not be shown yet."""
        self._took_over_at = self._context.monotonic()

    async def begin(self) -> None:
        """List what the current cloud has, for `at_start`. Returns when the cloud has answered."""
        self._listing = None
        listed = await self._list_until_answered()
        self.at_start = {uid: balancer for uid, balancer in listed.items() if not self.shows_deleted(uid)}

    async def _list_until_answered(self) -> dict[str, LoadBalancer]:
        """List until the cloud answers, because without a listing, every Service would be written. Return {} if the
        cloud cannot list."""
        delay = 1.0
        while True:
            try:
                return await self._list()
            except NotImplementedByCloud as error:
                log.warning("load balancers cannot be listed, so every Service is written once: %s", error)
                return {}
            except CloudError as error:
                delay = min(30.0, delay * 2)
                wait = error.retry_after or delay
                log.warning("cannot list load balancers, trying again in %.0f s: %s", wait, error)
                await asyncio.sleep(wait)

    async def _list(self) -> dict[str, LoadBalancer]:
        balancers = await self.call("list", lambda: self.cloud.list(self._context.cluster_name))
        return {balancer.service_uid: balancer for balancer in balancers}

    async def _listing_since(self, moment: float) -> Mapping[str, LoadBalancer]:
        """Return a recent listing that began after `moment`."""
        async with self._listing_now:
            now = self._context.monotonic()
            if self._listing is None or self._listing.begun < max(moment, now - self._poll):
                self._listing = _Listing(now, await self._list())
            return self._listing.balancers

    async def look(self, spec: LoadBalancerSpec, state: ServiceState, waiting: Collection[str]) -> LoadBalancer:
        """Return the load balancer's current state in the cloud.

        If `BULK` or more wait, one listing shows the state of all that it contains, except at every `READ_EVERY`th look
        of a Service. Raises CloudError. After NotFound and Conflict, the load balancer counts as not written.
        """
        written = state.written
        if len(waiting) >= BULK and state.polling.reads % READ_EVERY:
            with contextlib.suppress(NotImplementedByCloud):
                late = late_answer_rules.is_late(written.late_until, self._context.monotonic())
                listed = await self._listing_since(written.at if late else max(written.at, written.late_until))
                if spec.uid in listed:
                    return listed[spec.uid]
        try:
            return await self.call("get", lambda: self.cloud.get(spec))
        except (NotFound, Conflict):
            written.fingerprint = None  # it vanished or failed in the meantime: create it again
            raise

    async def name_of_kept(self, spec: LoadBalancerSpec) -> str:
        """Return the name of a load balancer that is to stay, "" if it is not or the cloud does not report the name.

        After the release, nothing of the Service refers to the load balancer.
        """
        if spec.keep is not Kept.LOAD_BALANCER:
            return ""
        try:
            return (await self.call("get", lambda: self.cloud.get(spec))).name
        except CloudError as error:
            log.info("Service %s/%s: the name of its load balancer is unknown: %s", spec.namespace, spec.name, error)
            return ""

    def fingerprint(self, spec: LoadBalancerSpec, backends: Backends) -> Hashable:
        """Return a comparable value of what would be written for this spec; an equal value means no write is needed.

        Raises Transient if the provider fails.
        """
        try:
            fingerprint = self.cloud.fingerprint(spec, backends)
        except Exception as error:
            raise Transient(
                f"load_balancers.fingerprint: bug in the provider: {type(error).__name__}: {error}"
            ) from error
        return fingerprint or (repr(spec), backends.digest)

    def drain(self, spec: LoadBalancerSpec) -> bool:
        """Return whether the load balancer of this Service can drain a Node: keep its connections and send no new ones.
        False if the provider cannot say."""
        self._introduce()
        try:
            return self._draining is not None and self._draining.drains(spec)
        except Exception as error:  # of a Service that the provider refuses, or a bug
            log.debug("Service %s/%s: cannot say whether it drains: %s", spec.namespace, spec.name, error)
            return False

    def warn_about_draining(self, mode: Mode) -> None:
        """Log a warning if cordoned Nodes are to drain, and no load balancer of the current cloud can do that."""
        self._introduce()
        if mode is Mode.CORDONED and self._draining is None:
            log.warning(
                "--load-balancer-drain-nodes=%s has no effect: the cloud's load balancers cannot drain Nodes, so "
                "cordoned Nodes continue to serve",
                mode,
            )

    async def delete(self, spec: LoadBalancerSpec, state: ServiceState, *, is_named: bool) -> None:
        """Delete the load balancer. Returns when nothing is left to delete; raises Waiting and RetryAfter until then,
        and CloudError if a request fails. `is_named`: the Service's status has named the load balancer.

        The Service has our finalizer, so a load balancer may exist, and nothing looks for it once the finalizer is
        removed. If the cloud reports that there is none, it is asked again after `CONFIRM`, because one wrong answer
        would leak a load balancer. The same applies to an eventually consistent cloud, until its listings have caught
        up with the last write, which may be one of the former leader. Neither is needed once the cloud has reported
        that it is deleting the load balancer (RetryAfter). Until its listings have caught up, such a report does not
        count, because it may mean that the cloud is still writing.

        Another project has no such load balancer either. So if the cloud never knew it, the report that there is none
        is believed only if the machines that the cloud lists do not contradict the Nodes (`_doubt`). While the machines
        cannot be listed, it is believed only without `is_named`.
        """
        deletion, is_unknown = state.deletion, False
        if (left := deletion.again_at - self._context.monotonic()) > 0:
            raise Waiting(left, NOT_SHOWN)
        again_at = max(state.written.tried_at, self._took_over_at) + self.lag
        try:
            await self.call("delete", lambda: self.cloud.delete(spec))
        except RetryAfter:
            deletion.known = True
            deletion.confirmed = self.lag == 0 or again_at <= self._context.monotonic()
            raise
        except ImplementedElsewhere:
            return
        except NotFound:
            is_unknown = not deletion.known
            if deletion.again_at == -math.inf:
                again_at = max(again_at, self._context.monotonic() + CONFIRM)
        else:
            deletion.known = True
        finally:  # even after an error, the cloud may have deleted it
            self._deletions.add(spec.uid, self._context.monotonic(), self.lag)
        if (left := again_at - self._context.monotonic()) > 0 and not deletion.confirmed:
            deletion.again_at = again_at
            raise Waiting(left, NOT_SHOWN)
        if is_unknown and (doubt := await self._doubt(is_named=is_named)):
            raise Waiting(DOUBTED, rules.not_believed(doubt))
        deletion.confirmed = True  # if the Service cannot be released now, nothing has to be confirmed again

    async def _doubt(self, *, is_named: bool) -> str:
        """Return how the Nodes contradict the cloud, which may be another project, "" if they do not. If the cloud does
        not list its instances, raises CloudError for a Service whose load balancer `is_named`."""
        directory, now = self._context.gateway.instances, self._context.monotonic()
        if directory is None:
            return ""
        nodes = [each for each in self._context.nodes.items() if directory.owns(each.spec.provider_id)]
        if not any(map(node_rules.is_ready, nodes)):
            return ""
        try:
            listing = await directory.list(not_before=now)
        except CloudError:
            if is_named:
                raise
            return ""
        return first_listing.doubted(nodes, [node for node, _ in first_listing.missing_from(nodes, listing)])
