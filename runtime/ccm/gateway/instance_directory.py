# SPDX-License-Identifier: Apache-2.0
"""Answers queries for instances, many with one listing.

A query says how fresh its answer must be: the read must have *begun* at or after `not_before` (monotonic seconds). A
newer snapshot answers at once. Otherwise the query joins the current batch. One listing answers the batch, or single
reads if these need fewer calls.

An instance is gone (`NotFound`) only if the cloud says so in a complete read. A listing that fails, ends early or is
suspiciously empty is `Transient`: unknown, never gone. A listing without a part of the cloud (`Page.unreachable`)
proves what exists; everything else is unknown.

The directory remembers the last results (`known`, `named`), for decisions that cannot wait for a read.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import math
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol, cast

import msgspec

from ccm.base.cloud_metrics import CloudCounter, CloudGauge
from ccm.base.log_context import about
from ccm.base.text import printable
from ccm.cloud import CanonicalIds, Instance, InstanceRef, Instances, Page
from ccm.cloud.errors import CloudError, Transient

from .instance_snapshot import ListingEnd, Snapshot, as_asked, canonical_ref, instance_problem

log = logging.getLogger(__name__)

ANSWERS = CloudCounter("ccm_instance_questions", "Queries for instances, by the source of the answer.", ["answered_by"])
PARTIAL = CloudGauge(
    "ccm_instances_listing_partial",
    "1 while the last listing of instances omits a part of the cloud that could not be queried: the instances there "
    "are unknown, and none of their Nodes is deleted.",
)

#: A batch is read when no further query arrives for IDLE seconds, at most MAX seconds after its first one, or later if
#: SPACING_PER_PAGE delays its listing.
IDLE, MAX = 0.1, 1.0
#: A listing for a batch starts at least this many seconds, times the number of its pages, after the previous listing.
#: So a long burst of new nodes costs a listing per second in a small project, and proportionally fewer in a large one.
SPACING_PER_PAGE = 1.0
#: How many providerIDs are cached with their canonical spelling.
REMEMBERED_SPELLINGS = 100_000
#: How many instances that are gone are remembered.
REMEMBERED_GONE = 1000


class Call(Protocol):
    """The signature of `Gateway.call`."""

    async def __call__(self, operation: str, function: Callable[[], Awaitable[Any]]) -> Any: ...


class _Batch(msgspec.Struct):
    """Queries that are answered together."""

    first: float
    latest: float
    #: The latest `not_before` of these queries.
    not_before: float = -math.inf
    waiting: dict[InstanceRef, asyncio.Future[Instance]] = msgspec.field(default_factory=dict)


class InstanceDirectory:
    """The instances of one cloud, as fresh as each query needs."""

    def __init__(
        self, instances: Instances, call: Call, *, clock: Callable[[], float] = time.monotonic, name: str = ""
    ) -> None:
        """`name`: the cloud's name if the process has several clouds, otherwise ""."""
        self._name = name
        self._instances = instances
        self._call = call
        self._clock = clock
        self._snapshot: Snapshot | None = None
        self._batch: _Batch | None = None
        self._reads: set[asyncio.Task[Any]] = set()
        self._listing: asyncio.Task[Snapshot] | None = None
        #: The listing that starts when the one in progress ends, for all callers that need a later read.
        self._next_listing: asyncio.Task[Snapshot] | None = None
        self._last_listing = -math.inf
        #: Pages that the listing in progress has read so far, 0 if none is in progress.
        self._pages_read = 0
        self._expected_at = -math.inf
        #: Results of single reads after the start of the last listing: canonical providerID -> start of read, instance.
        self._singles: dict[str, tuple[float, Instance]] = {}
        self._canonical_ids: dict[str, str | None] = {}
        #: `Page.unreachable` of the last listing.
        self._unreachable = ""
        self._news: list[Callable[[Instance | None], None]] = []
        #: When an instance was confirmed gone, by canonical providerID: the latest `REMEMBERED_GONE` instances.
        self._gone: dict[str, float] = {}

    def owns(self, provider_id: str) -> bool:
        """Return whether the providerID belongs to this provider; False if the provider's check fails."""
        try:
            return bool(provider_id) and bool(self._instances.owns(provider_id))
        except Exception as error:
            log.error("the provider failed to check whether it owns providerID %r: %r", provider_id, error)
            return False

    def replace(self, instances: Instances) -> None:
        """Query this provider from now on; discard all earlier results, which may belong to another project."""
        self._instances = instances
        self._snapshot = None
        self._singles.clear()
        self._canonical_ids.clear()
        self._gone.clear()
        self._notify_handlers()

    # Known results, without a query.

    def on_news(self, handler: Callable[[Instance | None], None]) -> None:
        """Call `handler` whenever the results of `known` or `named` may change: with the instance that a single read
        found, or with None if any instance may have changed. The handler must not block or raise."""
        self._news.append(handler)

    @property
    def listed_at(self) -> float:
        """When the last listing started (monotonic seconds), -inf if there is none or it cannot prove absence."""
        snapshot = self._snapshot
        return snapshot.began if snapshot is not None and snapshot.proves_absence else -math.inf

    def known(self, provider_id: str) -> Instance | None:
        """Return the instance from the latest read that found it: the last listing, or a later single read. No I/O.

        `provider_id` may have any spelling that the provider owns. None proves nothing.
        """
        canonical_id = self._canonical(provider_id)
        if canonical_id is None:
            return None
        if (single := self._singles.get(canonical_id)) is not None:
            return single[1]
        return self._snapshot.by_id.get(canonical_id) if self._snapshot is not None else None

    def named(self, name: str) -> list[Instance]:
        """Return the known instances with this name or alias. No I/O."""
        by_id = {each.provider_id: each for each in self._snapshot.by_name.get(name, ())} if self._snapshot else {}
        for provider_id, (_, instance) in self._singles.items():
            if instance.is_named(name):
                by_id[provider_id] = instance
            else:
                by_id.pop(provider_id, None)
        return list(by_id.values())

    def same_as(self, provider_id: str) -> str:
        """Return a providerID in its canonical spelling, for comparisons; unchanged if that is unknown. No I/O."""
        return self._canonical(provider_id) or provider_id

    def confirm_gone(self, provider_id: str) -> None:
        """Record that a listing and a single read have just reported the instance gone."""
        key = self.same_as(provider_id)
        self._gone.pop(key, None)
        self._gone[key] = self._clock()
        if len(self._gone) > REMEMBERED_GONE:
            del self._gone[next(iter(self._gone))]

    def gone_for(self, provider_id: str) -> float | None:
        """Return the seconds since the instance was confirmed gone, None if it never was. No I/O."""
        at = self._gone.get(self.same_as(provider_id))
        return None if at is None else self._clock() - at

    def _note(self, instance: Instance, began: float) -> None:
        """Record the result of a single read, unless a later read is known."""
        provider_id = instance.provider_id
        before = self._singles.get(provider_id)
        if (self._snapshot is not None and self._snapshot.began > began) or (before is not None and before[0] > began):
            return
        known = self.known(provider_id)
        self._singles[provider_id] = (began, instance)
        if known != instance:
            self._notify_handlers(instance)

    def _notify_handlers(self, instance: Instance | None = None) -> None:
        for handler in self._news:
            handler(instance)

    # Queries.

    def expect(self) -> None:
        """Announce more queries (a new node has just appeared), so that the batch waits for them."""
        self._expected_at = self._clock()

    async def lookup(self, ref: InstanceRef, *, not_before: float) -> Instance:
        """Return the instance of a Node, from a read that started at or after `not_before` (monotonic seconds).

        Raises NotFound only if such a read proves it: a complete listing without the instance, or a single read of the
        instance. Any other CloudError means unknown.
        """
        if self._snapshot is not None and self._snapshot.began >= not_before:
            ANSWERS.of(self._name).labels("snapshot").inc()
            return self._snapshot.find(ref)
        now = self._clock()
        if self._batch is None:
            self._batch = _Batch(first=now, latest=now)
            task = asyncio.create_task(self._gather(self._batch), name="instances: gather and read")
            self._reads.add(task)
            task.add_done_callback(self._reads.discard)
        self._batch.latest = now
        self._batch.not_before = max(self._batch.not_before, not_before)
        future = self._batch.waiting.get(ref)
        if future is None:
            future = self._batch.waiting[ref] = asyncio.get_running_loop().create_future()
        return await asyncio.shield(future)

    async def get(self, ref: InstanceRef) -> Instance:
        """Return the instance from a single read, whatever listings say.

        Raises CloudError; NotFound only if the cloud says so about this instance.
        """
        ANSWERS.of(self._name).labels("get").inc()
        instance: Instance = await self._call("instances.get", lambda: self._read(ref))
        return instance

    async def list(self, *, not_before: float) -> Snapshot:
        """Return a listing, read to its end, that started at or after `not_before`; for passes over all nodes. Raises
        CloudError."""
        if self._snapshot is None or self._snapshot.began < not_before:
            return await self._list_since(not_before)
        return self._snapshot

    @property
    def latest(self) -> Snapshot | None:
        """The latest listing, whoever requested it; needs no call. None before the first listing of this cloud."""
        return self._snapshot

    async def close(self) -> None:
        """Cancel the reads in progress."""
        for task in list(self._reads):
            task.cancel()
        await asyncio.gather(*self._reads, return_exceptions=True)

    async def _gather(self, batch: _Batch) -> None:
        """Wait until the batch is due, close it to new queries, read, and answer."""
        while (wait := self._until_due(batch)) > 0:
            await asyncio.sleep(wait)
        self._batch = None
        questions = batch.waiting
        try:
            snapshot = self._snapshot
            # Another listing may have finished meanwhile.
            fresh = snapshot is not None and snapshot.began >= batch.not_before
            # A provider may know an older spelling only after it has listed the instance.
            spelt = all(not ref.provider_id or self._canonical(ref.provider_id) for ref in questions)
            if not fresh and spelt and self._single_reads_cost_less(len(questions)):
                await asyncio.gather(*(self._get(ref, future) for ref, future in questions.items()))
                return
            if snapshot is None or not fresh:
                snapshot = await self._list_since(batch.not_before)
            for ref, future in questions.items():
                ANSWERS.of(self._name).labels("snapshot" if fresh else "listing").inc()
                _settle(future, lambda ref=ref: snapshot.find(ref))  # type: ignore[misc]
        except Exception as error:
            # Anything other than a CloudError is a bug, which must not stop the callers.
            failure = error if isinstance(error, CloudError) else Transient(f"instances: unexpected {error!r}")
            for future in questions.values():
                if not future.done():
                    future.set_exception(failure)
        finally:
            for future in questions.values():
                if not future.done():
                    future.cancel()
                elif not future.cancelled():
                    future.exception()  # all callers may be cancelled: avoid the warning about an unretrieved exception

    def _until_due(self, batch: _Batch) -> float:
        quiet_since = max(batch.latest, self._expected_at)
        due = min(quiet_since + IDLE, batch.first + MAX)
        if not self._single_reads_cost_less(len(batch.waiting)):
            due = max(due, self._last_listing + SPACING_PER_PAGE * self._pages)
        return due - self._clock()

    @property
    def _pages(self) -> int:
        """The minimum number of pages of a listing: as many as the last listing, or as many as the one in progress has
        read so far; 1 without either."""
        return max(1, self._snapshot.pages if self._snapshot else 0, self._pages_read)

    def _single_reads_cost_less(self, questions: int) -> bool:
        """Return whether there are fewer queries than pages in a listing. A single query never needs a listing."""
        return questions == 1 or questions < self._pages

    def _canonical(self, provider_id: str) -> str | None:
        """Return the spelling in the provider's listings (`CanonicalIds`), None if it cannot be determined."""
        if not hasattr(self._instances, "canonical"):
            return provider_id
        if provider_id not in self._canonical_ids:
            if len(self._canonical_ids) >= REMEMBERED_SPELLINGS:
                self._canonical_ids.clear()
            try:
                spelling = cast(CanonicalIds, self._instances).canonical(provider_id)
                if spelling is None:
                    return None  # the next listing may show it
            except Exception as error:
                log.error("the provider failed to determine the canonical spelling of %r: %r", provider_id, error)
                spelling = None
            self._canonical_ids[provider_id] = spelling
        return self._canonical_ids[provider_id]

    async def _get(self, ref: InstanceRef, future: asyncio.Future[Instance]) -> None:
        try:
            with about(object=ref.node_name):  # not what the first query of the batch is about
                instance = await self.get(ref)
        except CloudError as error:
            if not future.done():
                future.set_exception(error)
        else:
            if not future.done():
                future.set_result(instance)

    async def _list_since(self, not_before: float) -> Snapshot:
        """Return a listing that started at or after `not_before`: the one in progress if that is late enough, otherwise
        the next one. So there is one listing at a time, even if the cloud is slow and many callers wait."""
        current = self._listing if self._listing is not None and not self._listing.done() else None
        if current is not None and self._last_listing >= not_before:
            return await asyncio.shield(current)
        if self._next_listing is not None:
            return await asyncio.shield(self._next_listing)
        if current is not None:
            self._next_listing = self._start(self._list_after(current))
            return await asyncio.shield(self._next_listing)
        self._last_listing = self._clock()
        self._listing = self._start(self._list_now(self._last_listing))
        return await asyncio.shield(self._listing)

    def _start(self, listing: Coroutine[Any, Any, Snapshot]) -> asyncio.Task[Snapshot]:
        task = asyncio.create_task(listing, name="instances: list")
        self._reads.add(task)
        task.add_done_callback(self._listed)
        return task

    async def _list_now(self, began: float) -> Snapshot:
        self._pages_read = 0
        try:
            return await self._list(began)
        finally:
            self._pages_read = 0

    async def _list_after(self, current: asyncio.Task[Snapshot]) -> Snapshot:
        await asyncio.wait({current})
        self._listing, self._next_listing = self._next_listing, None
        self._last_listing = self._clock()
        return await self._list_now(self._last_listing)

    def _listed(self, task: asyncio.Task[Any]) -> None:
        self._reads.discard(task)
        if not task.cancelled():
            task.exception()  # all callers may be cancelled: avoid the warning about an unretrieved exception

    async def _list(self, began: float) -> Snapshot:
        """Read all pages, each with one call through the gateway, and return the snapshot. Raises CloudError, also if
        the pages do not end, or if the cloud was replaced meanwhile."""
        source = self._instances
        instances: list[Instance] = []
        unusable: list[str] = []
        tokens, end = set[str | None](), ListingEnd()
        token, total, unreachable = None, None, ""
        while not tokens or token is not None:
            tokens.add(token)
            self._pages_read = len(tokens)
            page: Page = await self._call("instances.list", lambda token=token: self._read_page(token))  # type: ignore[misc]
            if self._instances is not source:
                raise Transient("instances.list: the cloud was replaced while its instances were read")
            token = page.next
            if token is not None and token in tokens:
                raise Transient(f"instances.list: the cloud returned the next page {token!r} twice")
            total = page.total if page.total is not None else total
            unreachable = unreachable or page.unreachable
            end.require(page)
            for instance in page.instances:
                if problem := instance_problem(instance):
                    unusable.append(problem)
                else:
                    instances.append(instance)
        snapshot = Snapshot.of(instances, began, len(tokens), next(iter(unusable), ""), self._canonical, unreachable)
        came = len(snapshot.by_id) + len(unusable)
        if total is not None and came < total and not unreachable:
            raise Transient(f"instances.list: incomplete listing: got {came} of {total} instances")
        if unusable:
            log.error("the provider returned %d invalid instances, the first: %s", len(unusable), unusable[0])
        if self._snapshot is None or self._snapshot.began <= began:  # a later listing may have finished earlier
            self._snapshot = snapshot
            self._singles = {key: single for key, single in self._singles.items() if single[0] > began}
            self._report(unreachable)
            self._notify_handlers()
        return snapshot

    def _report(self, unreachable: str) -> None:
        """Log once for each cause that a part of the cloud cannot be queried, and set a metric. The Nodes of that part
        wait."""
        PARTIAL.of(self._name).set(1 if unreachable else 0)
        if unreachable and unreachable != self._unreachable:
            log.warning("cannot query a part of the cloud, so its instances are unknown: %s", printable(unreachable))
        elif self._unreachable and not unreachable:
            log.info("all parts of the cloud can be queried again")
        self._unreachable = unreachable

    async def _read(self, ref: InstanceRef) -> Instance:
        listed_ref = canonical_ref(ref, self._canonical)
        source, began = self._instances, self._clock()
        instance = await source.get(listed_ref)
        if problem := instance_problem(instance):
            raise TypeError(problem)  # a provider's bug: the gateway converts it to Transient
        if self._instances is source:
            self._note(instance, began)
        return as_asked(instance, ref, listed_ref.provider_id)

    async def _read_page(self, token: str | None) -> Page:
        """Return a page with valid fields; the page's entries are not checked here. Raises TypeError if the answer is
        not a Page, or a field has a wrong type."""
        page: Any = await self._instances.list_page(token)
        if not isinstance(page, Page):
            raise TypeError(f"expected Page, got {type(page).__name__}")
        if not isinstance(page.next, str | None) or not isinstance(page.total, int | None):
            raise TypeError(f"Page.next is {page.next!r} and Page.total {page.total!r}")
        if not isinstance(page.unreachable, str):
            raise TypeError(f"Page.unreachable is {page.unreachable!r}")
        return dataclasses.replace(page, instances=list(page.instances))


def _settle(future: asyncio.Future[Instance], find: Callable[[], Instance]) -> None:
    if future.done():
        return
    try:
        future.set_result(find())
    except CloudError as error:
        future.set_exception(error)
