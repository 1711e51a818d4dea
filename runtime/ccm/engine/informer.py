# SPDX-License-Identifier: Apache-2.0
"""A cache of one kind of object that follows the API server: LIST, then WATCH, for as long as it runs.

It avoids common faults of informers. After any gap, the handlers receive the difference: what was added, changed or
*deleted* meanwhile. No failure makes it loop without pause. It detects a connection that died silently. If absence is
`doubtful`, an object that a list omits stays until a read confirms that it is gone (`absence_rules`).
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import math
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Generic, TypeVar

import msgspec

from ccm.base.clock import SYSTEM_CLOCK, Clock, timeout

from . import absence_rules as rules
from . import metrics
from .api_errors import ApiError, GoneError, UnavailableError, from_status
from .catching_up import CatchingUp, newest_version
from .client import KubeClient
from .encodings import identity, read, read_event
from .objects import UNREADABLE, KubeObject, PartialObject, Status, WatchEvent, object_key
from .reconnecting import Pauses

logger = logging.getLogger(__name__)

T = TypeVar("T", bound=KubeObject)

#: Seconds of silence after which a watch counts as dead. A watch is shorter, so a quiet one ends before that.
READ_TIMEOUT = 60.0
#: How long the API server keeps one watch open, in seconds; random within this range, so that watches do not end
#: together. The server sends a bookmark 2 s before the end.
WATCH_SECONDS = (40, 50)
#: A list follows once the API server has accepted watches but sent nothing on them for this many seconds in total. A
#: watch lasts longer, so one without even a bookmark is enough.
SILENT = 35.0
#: How many changes of a list to notify handlers of before other tasks can run.
STRETCH = 250
#: A watch that lasted this long, in seconds, was healthy: the next pause is the shortest one again.
HEALTHY_AFTER = 5.0
#: Shortest and longest time to the next list, in seconds, while the cache keeps objects that the last one omits.
LIST_AGAIN_FIRST, LIST_AGAIN_MAX = 30.0, 60.0

Handler = Callable[[T | None, T | None], None]


async def _no_check() -> None:
    return None


class Informer(Generic[T]):
    """The objects under `path`, by key ("namespace/name", or "name" for cluster-scoped objects).

    Handlers receive `(None, new)` for an added, `(old, new)` for a changed, `(old, None)` for a deleted object, in the
    order of the stream, after the cache has the new state. An object that is re-created under its name with another UID
    is a deletion and an addition, also if both happened while the watch was down.

    An object that cannot be decoded keeps its last known state, so that it never looks deleted. It is logged and
    counted (`ccm_objects_not_understood`), and does not affect other objects.

    `keep` returns what the cache stores and handlers receive; it must keep name, namespace, UID and resourceVersion.

    `params` restrict the list and watch, e.g. {"fieldSelector": "metadata.name=x"}. `last_error` says why the informer
    lost its connection to the API server, "" otherwise.

    `doubtful`: an object that is missing from a list stays in the cache until a read of it confirms that it is gone
    (see `absence_rules` and `confirm_by`); meanwhile the informer repeats the list. `check` is awaited before the first
    list, after each list, and as a watch begins. Its ApiError makes `run` try again, another exception ends `run`.
    """

    def __init__(
        self,
        client: KubeClient,
        path: str,
        type: type[T],
        *,
        name: str,
        key: Callable[[KubeObject], str] = object_key,
        keep: Callable[[T], T] = lambda obj: obj,
        clock: Clock = SYSTEM_CLOCK,
        params: Mapping[str, str] | None = None,
        read_timeout: float = READ_TIMEOUT,
        page: int = 500,
        doubtful: bool = False,
        check: Callable[[], Awaitable[None]] = _no_check,
    ) -> None:
        self.name = name
        self.synced = False
        self.last_contact = -math.inf
        self.last_error = ""
        self._client, self._path, self._type, self._key, self._clock = client, path, type, key, clock
        self._keep = keep
        self._params = dict(params or {})
        self._read_timeout, self._page = read_timeout, page
        self._store: dict[str, T] = {}
        self._unreadable: dict[str, str] = {}  # key and resourceVersion of objects that cannot be decoded
        self._doubtful, self._check = doubtful, check
        self._confirmers: list[Callable[[T], bool]] = []
        self._missing: set[str] = set()  # keys of objects that the last list omits and the cache keeps
        self._gone_at: list[float] = []
        self._list_again = LIST_AGAIN_FIRST
        self._lists = 0
        self._interrupt: asyncio.Timeout | None = None  # while a watch is open
        metrics.CACHED.labels(name).set_function(lambda: float(len(self._store)))
        self._handlers: list[Handler[T]] = []
        self._synced = asyncio.Event()  # cleared while the cache has to catch up
        self._catch_ups = 0
        self._resource_version = ""
        self._silence = 0.0
        self._pauses = Pauses(clock)

    def add_handler(self, handler: Handler[T]) -> None:
        """Call `handler` for every change; objects in the cache are added at once. The handler must not block."""
        self._handlers.append(handler)
        for obj in list(self._store.values()):
            self._call(handler, None, obj)

    def confirm_by(self, confirm: Callable[[T], bool]) -> None:
        """Ask `confirm` about each object that is missing from a list that proves nothing. If it returns True, another
        source says that the object is gone, and a read of the object decides. `confirm` must not block."""
        self._confirmers.append(confirm)

    def _is_confirmed(self, key: str) -> bool:
        return any(confirm(self._store[key]) for confirm in self._confirmers)

    def get(self, key: str) -> T | None:
        return self._store.get(key)

    def items(self) -> Iterable[T]:
        """Return all objects as they are now; safe to iterate while the cache changes."""
        return list(self._store.values())

    def __len__(self) -> int:
        return len(self._store)

    async def wait_synced(self) -> None:
        """Wait until the first list, or what `catch_up` asks for, is in the cache and the handlers have received it."""
        await self._synced.wait()

    def catch_up(self) -> None:
        """Make `wait_synced` wait until the cache shows the objects as they are at this moment, or newer.

        The watch may be dead without saying so. If the objects fit into a page, they are listed again. If there are
        more, the watch is opened again and shows what it missed (`catching_up`).
        """
        self._synced.clear()
        self._catch_ups += 1
        self._pauses.hurry()
        self._end_watch()

    def _caught_up(self, catch_ups: int) -> None:
        """End `wait_synced`, unless `catch_up` was called more than `catch_ups` times and may need a newer cache."""
        if catch_ups == self._catch_ups:
            self._synced.set()

    @property
    def confirmed(self) -> bool:
        """Whether more than one list was read. A process has nothing to compare its first list with."""
        return self._lists > 1

    def list_again(self) -> None:
        """End the open watch, if any, so that a list follows after the pause between connections."""
        self._end_watch()

    def _end_watch(self) -> None:
        if self._interrupt is not None and not self._interrupt.expired():
            self._interrupt.reschedule(asyncio.get_running_loop().time())

    async def run(self) -> None:
        """Follow the API server until cancelled. Errors of the server or the network do not end it."""
        while True:
            started = self._clock.monotonic()
            reason, after = "eof", 0.0
            try:
                while not self._resource_version or (not self._synced.is_set() and len(self._store) <= self._page):
                    await self._relist()
                started = self._clock.monotonic()
                await self._follow()
            except GoneError as error:
                reason = "gone"
                logger.info("%s: the watch is too far behind, listing again: %s", self.name, error)
                self._resource_version = ""
            except ApiError as error:
                reason, after = error.reason or str(error.status), error.retry_after or 0.0
                self._lost(str(error))
            except UNREADABLE as error:
                reason = "undecodable"
                self._lost(f"{self._path}: the watch sent an invalid event: {error}")
                self._resource_version = ""
            metrics.WATCH_RESTARTS.labels(self.name, reason).inc()
            await self._pauses.wait(healthy=self._clock.monotonic() - started >= HEALTHY_AFTER, retry_after=after)

    def _lost(self, why: str) -> None:
        if why != self.last_error:
            logger.warning("%s: lost the connection to the API server, trying again: %s", self.name, why)
        self.last_error = why

    def _in_touch(self) -> None:
        self.last_contact = self._clock.monotonic()
        if self.last_error:
            logger.info("%s: connected to the API server again", self.name)
            self.last_error = ""

    async def _relist(self) -> None:
        unreadable: list[bytes] = []
        catch_ups = self._catch_ups
        if not self._lists:  # the next list may come from another cluster
            await self._check()
        items, version = await self._client.list(
            self._path,
            self._type,
            page=self._page,
            params=self._params,
            unreadable=unreadable.append,
            keep=self._known_or_new,
        )
        if not version:
            raise UnavailableError(200, "NotUnderstood", f"LIST {self._path}: the answer has no resourceVersion")
        await self._check()
        known, self._unreadable = self._unreadable, {}
        for data in unreadable:
            self._skip(data, known)
        self._resource_version = ""
        metrics.NOT_UNDERSTOOD.labels(self.name).set(len(self._unreadable))
        listed = {self._key(obj): obj for obj in items}
        if self._doubtful:
            await self._doubt(listed)
        await self._replace(listed)
        self._resource_version, self._silence = version, 0.0
        self._lists += 1
        self._in_touch()
        self.synced = True
        self._caught_up(catch_ups)

    def _skip(self, data: bytes | msgspec.Raw, logged: Mapping[str, str]) -> None:
        """Log an object that cannot be decoded, once for each of its versions; `logged`: versions already logged."""
        try:
            obj = identity(data)
            key, version = self._key(obj), obj.metadata.resource_version
        except UNREADABLE:
            key, version = "", ""  # it can be any object
        if logged.get(key) != version:
            logger.warning(
                "%s: %s cannot be decoded and keeps its last known state: %s",
                self.name,
                key or "an object without a readable name",
                _problem(self._type, data),
            )
        self._unreadable[key] = version
        self._resource_version = version or self._resource_version
        metrics.NOT_UNDERSTOOD.labels(self.name).set(len(self._unreadable))

    def _understood(self, key: str) -> None:
        """Forget doubts about an object, because an event shows what became of it."""
        if key in self._missing:
            self._set_missing(self._missing - {key})
        if self._unreadable.pop(key, None) is not None:
            metrics.NOT_UNDERSTOOD.labels(self.name).set(len(self._unreadable))

    def _known_or_new(self, item: T) -> T:
        """Return what the cache keeps of a listed object. An unchanged object stays the same Python object. An equal
        resourceVersion alone does not prove it unchanged, because a restored etcd issues versions again."""
        obj = self._keep(item)
        cached = self._store.get(self._key(obj))
        return cached if cached is not None and cached == obj else obj

    async def _doubt(self, listed: Mapping[str, T]) -> None:
        """Find out which objects to keep although a list omits them. Raises ApiError if they cannot be read."""
        missing = [key for key in self._store if key not in listed and key not in self._unreadable]
        if "" in self._unreadable:  # keep all of them
            missing = []
        known, now = len(self._store), self._clock.monotonic()
        self._gone_at = [moment for moment in self._gone_at if now - moment < rules.GRACE]
        belief, gone = rules.belief(known, len(missing)), []
        to_read = missing if belief is rules.Belief.ASK else list(filter(self._is_confirmed, missing))
        for key in to_read[: rules.room(known, self._gone_at, now)]:
            if not await self._client.exists(self._path, self._store[key].metadata):
                gone.append(key)
        kept = set(missing) - set(gone)
        if missing and kept != self._missing:
            logger.warning(
                "%s: %d of %d objects are missing from a list: %s; %d of them are kept for now. If they are really "
                "gone, restart this process",
                self.name,
                len(missing),
                known,
                belief.value,
                len(kept),
            )
        if kept:
            metrics.LISTS_DOUBTED.labels(self.name).inc()
        self._gone_at += [now] * len(gone)
        self._set_missing(kept)

    def _set_missing(self, keys: set[str]) -> None:
        self._missing = keys
        metrics.DOUBTED.labels(self.name).set(len(keys))

    async def _replace(self, listed: Mapping[str, T]) -> None:
        """Make the cache equal to `listed`, except for kept objects; handlers receive the changes, deletions first.

        Other tasks run in between, as they do between the events of a watch.
        """
        before, self._store = self._store, dict(listed)
        changes: list[tuple[T | None, T | None]] = []
        for key, old in before.items():
            if key in self._store:
                continue
            if key in self._missing or key in self._unreadable or "" in self._unreadable:
                self._store[key] = old
            else:
                changes.append((old, None))
        changes += [(before.get(key), new) for key, new in self._store.items() if before.get(key) is not new]
        for number, (old_or_none, new_or_none) in enumerate(changes, 1):
            self._notify(old_or_none, new_or_none)
            if number % STRETCH == 0:
                await asyncio.sleep(0)

    async def _follow(self) -> None:
        """Watch until the watch ends, or `list_again` or `catch_up` ends it."""
        try:
            async with asyncio.timeout(None) as interrupt:
                self._interrupt = interrupt
                await self._follow_list()
        except TimeoutError:
            if not interrupt.expired():
                raise
            if self._synced.is_set():  # else `catch_up` ended it
                self._resource_version = ""
        finally:
            self._interrupt = None

    async def _follow_list(self) -> None:
        """Watch; only for a while if the cache keeps objects that the list omits, so that the next list decides."""
        if not self._missing:
            self._list_again = LIST_AGAIN_FIRST
            await self._watch()
            return
        wait, self._list_again = self._list_again, min(LIST_AGAIN_MAX, self._list_again * 2)
        with contextlib.suppress(TimeoutError):
            async with timeout(self._clock, wait):
                await self._watch()
        self._resource_version = ""

    async def _watch(self) -> None:
        """Run one watch, from the last resourceVersion seen to the end of the watch."""
        params = {
            **self._params,
            "resourceVersion": self._resource_version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(random.randint(*WATCH_SECONDS)),
        }
        catching_up = CatchingUp(self._clock, functools.partial(self._caught_up, self._catch_ups))
        goal = ""
        if not self._synced.is_set():
            goal = await newest_version(self._client, self._path, self._params, self._resource_version)
        answered = math.inf  # when the API server accepted the watch; infinite again after its first event
        try:
            watch = self._client.watch(self._path, params, read_timeout=self._read_timeout, type=self._type)
            async with watch as frames:
                self._in_touch()  # the server answered; some servers send no bookmarks, and a quiet watch is silent
                await self._check()
                answered = self._clock.monotonic()
                if not self._synced.is_set():
                    catching_up.start(goal)
                async for frame in frames:
                    answered, self._silence = math.inf, 0.0
                    self._apply(await read_event(frame))
                    self._in_touch()
                    catching_up.advance(self._resource_version)
        except UnavailableError:
            self._count_silence(answered)
            raise
        else:
            self._count_silence(answered)
        finally:
            catching_up.close()

    def _count_silence(self, answered: float) -> None:
        """Count silence. After a restore without `--bump-revision`, the resourceVersion is in the API server's future.
        The server then accepts every watch and ends it in time, but sends nothing, no bookmark either, until a list."""
        self._silence += max(0.0, self._clock.monotonic() - answered)
        if self._silence >= SILENT:
            logger.info("%s: the API server accepts watches but sends nothing, listing again", self.name)
            self._resource_version = ""

    def _apply(self, event: WatchEvent) -> None:
        match event.type:
            case "ADDED" | "MODIFIED":
                try:
                    obj = self._keep(read(self._type, event.object))
                except UNREADABLE:
                    self._skip(event.object, self._unreadable)
                    return
                key = self._key(obj)
                old = self._store.get(key)
                self._store[key] = obj
                self._resource_version = obj.metadata.resource_version
                self._understood(key)
                self._notify(old, obj)
            case "DELETED":
                gone = identity(event.object)  # its last state may be undecodable
                key = self._key(gone)
                cached = self._store.pop(key, None)
                self._resource_version = gone.metadata.resource_version
                self._understood(key)
                if cached is not None:
                    self._notify(self._last_state(event.object, cached), None)
            case "BOOKMARK":
                self._resource_version = read(PartialObject, event.object).metadata.resource_version
            case "ERROR":
                raise from_status(read(Status, event.object), f"WATCH {self._path}")
            case other:
                logger.warning("%s: ignored a watch event of the unknown type %r", self.name, other)

    def _last_state(self, data: bytes | msgspec.Raw, cached: T) -> T:
        try:
            return self._keep(read(self._type, data))
        except UNREADABLE:
            return cached

    def _notify(self, old: T | None, new: T | None) -> None:
        if old is not None and new is not None and old.metadata.uid != new.metadata.uid:
            self._notify(old, None)
            old = None
        for handler in self._handlers:
            self._call(handler, old, new)

    def _call(self, handler: Handler[T], old: T | None, new: T | None) -> None:
        try:
            handler(old, new)
        except Exception:
            obj = new if new is not None else old
            logger.exception("%s: a handler failed for %s", self.name, self._key(obj) if obj is not None else "nothing")


def _problem(type_: type[T], data: bytes | msgspec.Raw) -> str:
    try:
        read(type_, data)
    except UNREADABLE as error:
        return str(error)
    return "nothing"
