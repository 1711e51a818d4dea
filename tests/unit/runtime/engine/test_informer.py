# SPDX-License-Identifier: Apache-2.0
"""The informer against a scripted client and a clock that the test moves; real faults are in tests/integration."""

import asyncio
import contextlib
import json
import math

import msgspec
import pytest
from prometheus_client import REGISTRY

from ccm.base.clock import FakeClock
from ccm.engine import informer as module
from ccm.engine import reconnecting
from ccm.engine.api_errors import ForbiddenError, GoneError, TooManyRequestsError, UnavailableError
from ccm.engine.informer import Informer
from ccm.engine.objects import PartialObject, decoder

DOWN = UnavailableError(0, "ClientConnectorError", "connection refused")


def obj(name, version, uid="u"):
    return {"metadata": {"name": name, "resourceVersion": str(version), "uid": uid}}


def event(kind, body):
    return json.dumps({"type": kind, "object": body}).encode()


class Script:
    """A client whose lists and watches are queued by the test. It answers with the last entry of a queue for ever.

    A list is (objects, version) or an exception. A watch is a list of lines, after which the stream ends. The line
    None keeps the stream open, an exception breaks it.
    """

    def __init__(self):
        self.lists, self.watches = [], []
        self.listed, self.watched = 0, []

    async def list(self, path, type, *, page, params, unreadable, keep):
        self.listed += 1
        answer = self._next(self.lists)
        if isinstance(answer, Exception):
            raise answer
        objects, version = answer
        items = []
        for item in objects:
            try:
                items.append(keep(decoder(PartialObject).decode(json.dumps(item))))
            except msgspec.ValidationError:
                unreadable(json.dumps(item).encode())
        return items, str(version)

    @contextlib.asynccontextmanager
    async def watch(self, path, params, *, read_timeout, **_):
        self.watched.append(params)
        script = self._next(self.watches) if self.watches else [None]
        if isinstance(script, Exception):
            raise script

        async def lines():
            for line in script:
                if line is None:
                    await asyncio.Event().wait()
                if isinstance(line, Exception):
                    raise line
                yield line

        yield lines()

    @staticmethod
    def _next(queue):
        return queue.pop(0) if len(queue) > 1 else queue[0]


@pytest.fixture
def script():
    return Script()


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def seen():
    return []


@pytest.fixture
async def informer(script, clock, seen):
    informer = Informer(script, "/api/v1/things", PartialObject, name="things", clock=clock)

    def name(item):
        return item and f"{item.metadata.name}@{item.metadata.resource_version}"

    informer.add_handler(lambda old, new: seen.append((name(old), name(new))))
    informer.task = None

    async def start():
        informer.task = asyncio.create_task(informer.run())
        await clock.settle()

    informer.start = start
    yield informer
    if informer.task:
        informer.task.cancel()
        await asyncio.wait({informer.task})


async def test_list_then_watch(informer, script, seen, clock):
    script.lists = [([obj("a", 1), obj("b", 2)], 5)]
    script.watches = [
        [
            event("ADDED", obj("c", 6)),
            event("MODIFIED", obj("a", 7)),
            event("DELETED", obj("b", 8)),
            event("BOOKMARK", obj("", 20)),
            None,
        ]
    ]
    assert not informer.synced and informer.last_contact == -math.inf
    await informer.start()
    await asyncio.wait_for(informer.wait_synced(), 60)
    assert seen == [(None, "a@1"), (None, "b@2"), (None, "c@6"), ("a@1", "a@7"), ("b@8", None)]
    assert sorted(item.metadata.name for item in informer.items()) == ["a", "c"] and len(informer) == 2
    assert informer.get("a").metadata.resource_version == "7" and informer.get("b") is None
    assert informer.synced and informer.last_contact == clock.monotonic()
    (params,) = script.watched
    assert params["resourceVersion"] == "5" and params["allowWatchBookmarks"] == "true"
    assert 0 < int(params["timeoutSeconds"]) < module.READ_TIMEOUT <= 60  # a quiet kind does not look like a dead watch


async def test_a_clean_end_resumes_from_the_last_version_also_of_a_bookmark(informer, script, clock, seen):
    script.lists = [([obj("a", 1)], 5)]
    script.watches = [[event("MODIFIED", obj("a", 9))], [event("BOOKMARK", obj("", 30))], [None]]
    await informer.start()
    await clock.advance(5)
    assert [params["resourceVersion"] for params in script.watched] == ["5", "9", "30"]
    assert script.listed == 1 and seen == [(None, "a@1"), ("a@1", "a@9")]


@pytest.mark.parametrize("how", ["http", "in-stream"])
async def test_410_lists_again_and_tells_what_went_came_and_changed(informer, script, clock, seen, how):
    gone = event("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"})
    script.lists = [
        ([obj("kept", 1), obj("changed", 2), obj("gone", 3), obj("reborn", 4, "old")], 5),
        ([obj("kept", 1), obj("changed", 12), obj("new", 13), obj("reborn", 14, "new")], 20),
    ]
    script.watches = [GoneError(410, "Expired", "too old") if how == "http" else [gone], [None]]
    await informer.start()
    seen.clear()
    await clock.advance(2)
    assert script.listed == 2
    assert seen == [
        ("gone@3", None),
        ("changed@2", "changed@12"),
        (None, "new@13"),
        ("reborn@4", None),
        (None, "reborn@14"),
    ]
    assert script.watched[-1]["resourceVersion"] == "20"


async def test_a_long_list_does_not_hold_the_event_loop(informer, script, seen):
    """Other tasks run while handlers are notified of thousands of objects; `start` returns after all notifications."""
    script.lists = [([obj(f"n{number}", number + 1) for number in range(1000)], 5)]
    reached = []

    async def beside():
        while len(seen) < 1000:
            await asyncio.sleep(0)
            reached.append(len(seen))

    task = asyncio.create_task(beside())
    await informer.start()
    await informer.wait_synced()
    await task
    assert len(seen) == 1000 and {250, 500, 750} <= set(reached)


async def test_handlers_see_the_new_state_in_the_cache(informer, script, clock):
    script.lists = [([obj("a", 1), obj("b", 1)], 5), ([obj("c", 9)], 10)]
    script.watches = [GoneError(410, "", ""), [None]]
    states = []
    await informer.start()
    informer._handlers[:] = [lambda old, new: states.append(sorted(informer._store))]
    await clock.advance(2)
    assert states == [["c"]] * 3


async def test_another_uid_under_the_same_name_is_a_deletion_and_an_addition(informer, script, seen):
    script.lists = [([obj("a", 1, "old")], 5)]
    script.watches = [[event("MODIFIED", obj("a", 9, "new")), None]]
    await informer.start()
    assert seen == [(None, "a@1"), ("a@1", None), (None, "a@9")]


async def test_a_handler_that_raises_stops_neither_the_others_nor_the_watch(informer, script, seen, caplog):
    def broken(old, new):
        raise ValueError("bug")

    informer._handlers.insert(0, broken)
    script.lists = [([obj("a", 1)], 5)]
    script.watches = [[event("MODIFIED", obj("a", 6)), event("DELETED", obj("a", 7)), None]]
    await informer.start()
    assert seen == [(None, "a@1"), ("a@1", "a@6"), ("a@7", None)]
    assert caplog.text.count("things: a handler failed for a") == 3


async def test_a_late_handler_hears_of_what_is_there(informer, script):
    script.lists = [([obj("a", 1), obj("b", 2)], 5)]
    await informer.start()
    late = []
    informer.add_handler(lambda old, new: late.append((old, new.metadata.name)))
    assert late == [(None, "a"), (None, "b")]


async def test_items_may_be_iterated_while_the_cache_moves(informer, script):
    script.lists = [([obj("a", 1), obj("b", 2)], 5)]
    await informer.start()
    for item in informer.items():
        informer._store.pop(item.metadata.name)
    assert len(informer) == 0


@pytest.mark.parametrize(
    "watch",
    [
        DOWN,
        [],
        [DOWN],
        [event("ERROR", {"kind": "Status", "code": 500, "message": "x"})],
        GoneError(410, "", "x"),
        [b"{"],
    ],
    ids=["refused", "empty-eof", "broken", "in-stream-500", "410-for-ever", "garbage"],
)
async def test_no_failure_makes_it_spin(informer, script, clock, watch):
    script.lists = [([], 5)]
    script.watches = [watch]
    await informer.start()
    await clock.advance(300)
    # 0.2, 0.4, ... 30 s, each times 1 to 1.5: 8 short pauses, then 30 to 45 s each
    assert 13 <= len(script.watched) <= 18


async def test_an_unreachable_server_at_start_is_waited_for(informer, script, clock, caplog):
    script.lists = [DOWN, DOWN, ForbiddenError(403, "Forbidden", "LIST /n: 403: may not list"), ([obj("a", 1)], 5)]
    await informer.start()
    assert not informer.synced and informer.last_error == "connection refused"
    await clock.advance(1)
    assert "may not list" in informer.last_error
    await clock.advance(5)
    assert informer.synced and informer.last_error == "" and informer.get("a") is not None
    told = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(told) == 2, "the same reason is told once"


@pytest.mark.parametrize(("asked", "waits"), [(8, 8), (10**9, reconnecting.BACKOFF_MAX), (0, 0.2)])
async def test_retry_after_is_heeded_within_reason(informer, script, clock, asked, waits):
    script.lists = [([obj("a", 1)], 5)]
    script.watches = [TooManyRequestsError(429, "", "busy", retry_after=asked), [None]]
    await informer.start()
    await clock.advance(waits * 0.99)
    assert len(script.watched) == 1
    await clock.advance(waits * 0.52)
    assert len(script.watched) == 2


async def test_a_watch_that_stood_resets_the_pause(informer, script, clock):
    script.lists = [([], 5)]
    script.watches = [DOWN] * 6 + [[]]
    await informer.start()
    await clock.advance(40)
    assert informer._pauses.next > 10

    @contextlib.asynccontextmanager
    async def long(path, params, *, read_timeout, **_):
        async def lines():
            await clock.sleep(module.HEALTHY_AFTER)
            yield event("BOOKMARK", obj("", 9))

        yield lines()

    script.watch = long
    await clock.advance(60)
    assert informer._pauses.next <= reconnecting.BACKOFF_FIRST * 2


async def test_an_unknown_event_is_ignored(informer, script, seen, caplog):
    script.lists = [([obj("a", 1)], 5)]
    script.watches = [[event("SURPRISE", obj("a", 6)), event("MODIFIED", obj("a", 7)), None]]
    await informer.start()
    assert seen[-1] == ("a@1", "a@7") and "'SURPRISE'" in caplog.text


def broken(name, version, **fields):
    return {"metadata": {"name": name, "resourceVersion": str(version), "labels": "no mapping", **fields}}


def kinds(seen):
    """Return the kind and the name of each notification, without versions."""
    return [
        ("added" if old is None else "deleted" if new is None else "changed", (new or old).partition("@")[0])
        for old, new in seen
    ]


def not_understood():
    return REGISTRY.get_sample_value("ccm_objects_not_understood", {"name": "things"})


async def test_an_unreadable_object_in_a_list_keeps_no_other_away(informer, script, seen, caplog):
    script.lists = [([obj("a", 1), broken("b", 2), obj("c", 3)], 5)]
    await informer.start()
    assert kinds(seen) == [("added", "a"), ("added", "c")] and script.listed == 1
    assert not_understood() == 1
    assert "b cannot be decoded" in caplog.text and "labels" in caplog.text


async def test_an_object_that_becomes_unreadable_does_not_look_deleted(informer, script, seen, clock, caplog):
    """A Service that looked deleted would lose its load balancer."""
    script.lists = [([obj("a", 1), obj("b", 2)], 5), ([broken("a", 8)], 9), ([obj("a", 12)], 12)]
    script.watches = [
        [event("MODIFIED", broken("a", 6)), event("MODIFIED", obj("b", 7)), GoneError(410, "", "")],
        [event("MODIFIED", broken("a", 8)), GoneError(410, "", "")],
        [None],
    ]
    await informer.start()
    assert kinds(seen)[2:] == [("changed", "b")] and informer.get("a").metadata.resource_version == "1"
    assert not_understood() == 1
    await clock.advance(0.4)
    assert kinds(seen)[3:] == [("deleted", "b")] and informer.get("a").metadata.resource_version == "1"
    await clock.advance(1)
    assert kinds(seen)[4:] == [("changed", "a")] and informer.get("a").metadata.resource_version == "12"
    assert not_understood() == 0
    assert caplog.text.count("a cannot be decoded") == 2, "once for each version"


async def test_unreadable_events_do_not_list_again_and_their_end_is_noticed(informer, script, seen, clock):
    script.lists = [([obj("a", 1)], 5)]
    script.watches = [
        [event("ADDED", broken("b", 6)), event("MODIFIED", obj("b", 7)), event("MODIFIED", broken("a", 8))],
        [event("DELETED", broken("a", 9)), None],
    ]
    await informer.start()
    assert kinds(seen) == [("added", "a"), ("added", "b")] and not_understood() == 1
    await clock.advance(0.4)
    assert kinds(seen)[2:] == [("deleted", "a")] and script.listed == 1 and not_understood() == 0
    assert script.watched[1]["resourceVersion"] == "8"


@pytest.mark.parametrize("item", [{"metadata": {"name": 5}}, {"metadata": None}, {"metadata": {"name": ["x"]}}])
async def test_an_object_without_a_readable_name_deletes_nothing(informer, script, seen, clock, item):
    """The unreadable object may be any of the known ones."""
    script.lists = [([obj("a", 1)], 5), ([item], 9), ([], 10)]
    script.watches = [GoneError(410, "", ""), GoneError(410, "", ""), [None]]
    await informer.start()
    await clock.advance(0.4)
    assert kinds(seen) == [("added", "a")]
    await clock.advance(1)
    assert ("deleted", "a") in kinds(seen)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{",
        b"null",
        b'{"type":"MODIFIED","object":' + b"[" * 5000 + b"]" * 5000 + b"}",
        b'{"type":"MODIFIED","object":{"metadata":{"name":"\xff"}}}',
        b'{"type":"ERROR","object":7}',
    ],
)
async def test_lines_that_are_no_events_end_the_watch_only(informer, script, seen, clock, line):
    script.lists = [([obj("a", 1)], 5)]
    script.watches = [[line, event("ADDED", obj("b", 6))], [event("ADDED", obj("b", 6)), None]]
    await informer.start()
    await clock.advance(1)
    assert kinds(seen)[:2] == [("added", "a"), ("added", "b")] and ("deleted", "a") not in kinds(seen)


async def test_a_watch_that_is_answered_is_contact_although_nothing_changes(script, clock, informer):
    """If a server sends no bookmarks, each watch of a quiet kind times out, but the next watch is answered."""
    silence = UnavailableError(0, "SocketTimeoutError", "silence for 90 s")

    @contextlib.asynccontextmanager
    async def quiet(path, params, *, read_timeout, **_):
        async def lines():
            await clock.sleep(read_timeout)
            raise silence
            yield b""

        yield lines()

    script.lists, script.watch = [([], 1)], quiet
    await informer.start()
    for _ in range(20):
        await clock.advance(60)
        assert clock.monotonic() - informer.last_contact < 180


@pytest.mark.parametrize(
    ("lines", "seconds", "broken", "lists"),
    [
        ([], module.READ_TIMEOUT, True, 2),  # accepted but silent: the server may not have this resourceVersion yet
        ([], module.WATCH_SECONDS[0], False, 2),  # the same, and the server ends the watch in time
        ([], 1, True, 1),  # a connection that breaks
        ([], 1, False, 1),  # the server ends the watch early, e.g. because it stops
        ([event("BOOKMARK", obj("", 9))], module.READ_TIMEOUT, True, 1),  # a connection that worked and then died
        ([event("BOOKMARK", obj("", 9))], module.WATCH_SECONDS[1], False, 1),  # a kind that does not change
    ],
)
async def test_only_a_watch_that_sent_nothing_lists_again(script, clock, informer, lines, seconds, broken, lists):
    @contextlib.asynccontextmanager
    async def silent(path, params, *, read_timeout, **_):
        assert read_timeout == module.READ_TIMEOUT

        async def stream():
            for line in lines:
                yield line
            await clock.sleep(seconds)
            if broken:
                raise UnavailableError(0, "SocketTimeoutError", "silence")

        yield stream()
        script.watched.append(params)

    script.lists, script.watch = [([obj("a", 4)], 5), ([obj("a", 2)], 3)], silent
    await informer.start()
    await clock.advance(seconds + 0.1)
    script.watch = Script().watch
    await clock.advance(2)
    assert script.listed == lists


async def test_short_watches_that_sent_nothing_list_again_after_as_long(script, clock, informer):
    """A proxy may end every idle watch after 10 s, so one short silent watch proves nothing. Several in a row do."""
    script.lists = [([obj("a", 4)], 5), ([obj("a", 2)], 3)]

    @contextlib.asynccontextmanager
    async def short(path, params, *, read_timeout, type):
        async def lines():
            await clock.sleep(10)
            for line in () if len(script.watched) > 1 else (event("BOOKMARK", obj("", 9)),):
                yield line

        script.watched.append(params)
        yield lines()

    script.watch = short
    await informer.start()
    await clock.advance(40)
    assert script.listed == 1
    await clock.advance(15)
    assert script.listed == 2 and informer.get("a").metadata.resource_version == "2"


async def test_a_list_without_a_version_is_none(script, clock, informer, seen):
    """No watch could start without a version, and an immediate new list could loop for ever."""
    script.lists = [([obj("a", 1)], "")]
    await informer.start()
    await clock.advance(60)
    assert 5 < script.listed < 12 and not informer.synced and seen == [] and script.watched == []
    script.lists = [([obj("a", 1)], 5)]
    await clock.advance(reconnecting.BACKOFF_MAX * 1.5)
    assert informer.synced


async def test_a_watch_that_is_refused_is_no_contact(script, clock, informer):
    script.lists, script.watches = [([], 1)], [UnavailableError(503, "", "no etcd leader")]
    await informer.start()
    began = informer.last_contact
    await clock.advance(600)
    assert informer.last_contact == began


async def test_a_re_list_keeps_the_objects_that_did_not_change(script, clock, informer, seen):
    """Handlers are not notified of an unchanged object, and memory holds no second copy of thousands of objects."""
    script.lists = [([obj("a", 1), obj("b", 2)], 5), ([obj("a", 1), obj("b", 7), obj("c", 6)], 9)]
    script.watches = [GoneError(410, "Expired", "too old"), [None]]
    await informer.start()
    a, b = informer.get("a"), informer.get("b")
    seen.clear()
    await clock.advance(5)
    assert script.listed == 2
    assert informer.get("a") is a and informer.get("b") is not b
    assert seen == [("b@2", "b@7"), (None, "c@6")]


@pytest.mark.parametrize("field", ["labels", "uid"])
async def test_another_object_with_the_same_version_is_a_change(script, clock, informer, seen, field):
    """A restored etcd assigns the same resourceVersions again."""
    other = obj("a", 1)
    other["metadata"][field] = {"zone": "z2"} if field == "labels" else "another"
    script.lists = [([obj("a", 1)], 5), ([other], 5)]
    script.watches = [GoneError(410, "Expired", "too old"), [None]]
    await informer.start()
    seen.clear()
    await clock.advance(5)
    assert informer.get("a") == decoder(PartialObject).decode(json.dumps(other))
    assert seen == ([("a@1", "a@1")] if field == "labels" else [("a@1", None), (None, "a@1")])
