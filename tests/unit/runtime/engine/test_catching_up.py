# SPDX-License-Identifier: Apache-2.0
"""A new leader's caches are as new as its Lease, even if its watches had died before."""

import asyncio

import pytest

from ccm.base.clock import FakeClock
from ccm.engine.api_errors import UnavailableError
from ccm.engine.catching_up import SILENCE, is_reached
from ccm.engine.informer import Informer
from ccm.engine.objects import ObjectMeta, PartialObject
from ccm.engine.reconnecting import BACKOFF_FIRST, BACKOFF_MAX
from ccm.manager.running_controllers import ConfiguredController, RunningControllers

from .test_informer import Script, event, obj

DOWN = UnavailableError(0, "ClientConnectorError", "connection refused")


class Server(Script):
    """Lists the objects in `present`. Watches stay silent unless a test scripts them."""

    def __init__(self, *present):
        super().__init__()
        self.present, self.version, self.watches = list(present), 10, [[None]]
        self.asked, self.hold = [], None

    async def list(self, *args, **options):
        answer = (list(self.present), self.version)
        if self.hold is not None:
            await self.hold.wait()
        if not self.lists:
            self.lists = [answer]
            try:
                return await super().list(*args, **options)
            finally:
                self.lists = []
        return await super().list(*args, **options)

    async def get(self, path, type, *, params):
        self.asked.append((path, params))
        return PartialObject(ObjectMeta(resource_version=str(self.version)))


class Standby:
    def __init__(self, server, **options):
        self.server, self.clock, self.seen = server, FakeClock(), []
        self.informer = Informer(
            server, "/api/v1/things", PartialObject, name="things", clock=self.clock, params={"a": "b"}, **options
        )
        self.informer.add_handler(lambda old, new: self.seen.append(new and new.metadata.name))

    async def __aenter__(self):
        self.tasks = [asyncio.create_task(self.informer.run())]
        await self.clock.settle()
        return self

    async def __aexit__(self, *_):
        for task in self.tasks:
            task.cancel()
        await asyncio.wait(self.tasks)

    async def lead(self):
        """Become the leader. The task `ready` is what a controller waits for."""
        self.informer.catch_up()
        self.ready = asyncio.create_task(self.informer.wait_synced())
        self.tasks.append(self.ready)
        await self.clock.settle()


def names(informer):
    return {each.metadata.name for each in informer.items()}


async def test_what_a_dead_watch_did_not_tell_is_listed_before_anything_is_done():
    server = Server(obj("n1", 1), obj("n2", 2))
    async with Standby(server) as standby:
        server.present.append(obj("n3", 11))
        assert names(standby.informer) == {"n1", "n2"}
        server.hold = asyncio.Event()
        await standby.lead()
        assert not standby.ready.done() and standby.informer.synced
        server.hold.set()
        await standby.clock.settle()
        assert standby.ready.done() and standby.seen == ["n1", "n2", "n3"]
        assert server.listed == 2 and server.asked == []
        await standby.clock.advance(5)
        assert server.listed == 2 and len(server.watched) == 2


async def test_a_list_that_began_before_is_not_enough():
    server = Server(obj("n1", 1))
    server.hold = asyncio.Event()
    async with Standby(server) as standby:
        server.present.append(obj("n2", 11))
        await standby.lead()
        server.hold.set()
        await standby.clock.settle()
        assert standby.ready.done() and names(standby.informer) == {"n1", "n2"}
        assert server.listed == 2


async def test_a_list_that_fails_is_tried_again_until_it_succeeds():
    server = Server(obj("n1", 1))
    async with Standby(server) as standby:
        server.present.append(obj("n2", 11))
        server.lists = [DOWN]
        await standby.lead()
        await standby.clock.advance(60)
        assert server.listed > 3 and not standby.ready.done()
        server.lists = []
        await standby.clock.advance(BACKOFF_MAX * 1.5)
        assert standby.ready.done() and names(standby.informer) == {"n1", "n2"}


async def test_a_back_off_does_not_delay_it():
    server = Server(obj("n1", 1))
    server.watches = [DOWN]
    async with Standby(server) as standby:
        await standby.clock.advance(60)
        server.present.append(obj("n2", 11))
        server.watches = [[None]]
        await standby.lead()
        assert standby.ready.done() and names(standby.informer) == {"n1", "n2"}


async def test_what_failed_before_does_not_delay_what_fails_now():
    """After an outage this process becomes leader, and its first request fails again: the back-off starts small."""
    server = Server(obj("n1", 1))
    server.watches = [DOWN]
    async with Standby(server) as standby:
        await standby.clock.advance(200)
        server.watches, server.lists = [[None]], [DOWN]
        await standby.lead()
        assert not standby.ready.done()
        server.lists = []
        await standby.clock.advance(BACKOFF_FIRST * 2 * 1.5)
        assert standby.ready.done()


async def test_who_begins_to_lead_twice_waits_for_the_second_time():
    """A process becomes the leader twice. The version that it asked for at first proves nothing the second time."""
    server = large([None])
    async with Standby(server, page=4) as standby:
        server.version = 12
        await standby.lead()
        await standby.clock.advance(SILENCE * 0.9)
        await standby.lead()
        await standby.clock.advance(SILENCE * 0.9)
        assert not standby.ready.done() and len(server.watched) == 3
        await standby.clock.advance(SILENCE * 0.2)
        assert standby.ready.done()
        standby.informer._caught_up(1)
        assert standby.informer._synced.is_set()
        standby.informer.catch_up()
        standby.informer._caught_up(2)  # an older watch that has not been stopped yet
        assert not standby.informer._synced.is_set()


def large(watch):
    """Return a server with more objects than fit on a page. `watch`: what the second watch sends."""
    server = Server(*(obj(f"n{number}", number) for number in range(1, 6)))
    server.watches = [[None], watch]
    return server


async def test_many_objects_are_not_listed_again_but_followed_to_the_newest_version():
    told = asyncio.Event()
    server = large([event("ADDED", obj("n6", 11)), event("MODIFIED", obj("n1", 12)), None])
    async with Standby(server, page=4) as standby:
        server.version = 12
        standby.informer.add_handler(lambda old, new: told.set() if new.metadata.resource_version == "12" else None)
        await standby.lead()
        assert standby.ready.done() and told.is_set() and "n6" in names(standby.informer)
        assert server.listed == 1 and server.asked == [("/api/v1/things", {"a": "b", "limit": "1"})]
        assert [params["resourceVersion"] for params in server.watched] == ["10", "10"]


async def test_a_large_kind_that_does_not_change_has_told_all_when_it_is_silent():
    server = large([None])
    async with Standby(server, page=4) as standby:
        server.version = 12  # an object of another kind changed
        await standby.lead()
        await standby.clock.advance(SILENCE * 0.9)
        assert not standby.ready.done()
        await standby.clock.advance(SILENCE * 0.2)
        assert standby.ready.done() and server.listed == 1 and len(server.watched) == 2


async def test_a_large_kind_whose_versions_went_back_is_listed_again():
    """After a restore of etcd, a watch from the last seen version is silent although changes are missing."""
    server = large([None])
    async with Standby(server, page=4) as standby:
        server.present, server.version = [obj(f"n{number}", 3) for number in range(1, 7)], 7
        await standby.lead()
        await standby.clock.advance(BACKOFF_FIRST * 2 * 1.5)
        assert standby.ready.done() and server.listed == 2 and "n6" in names(standby.informer)


async def test_a_watch_that_tells_older_changes_is_not_silent():
    server = large([event("ADDED", obj(f"late{number}", 11 + number)) for number in range(3)])
    async with Standby(server, page=4) as standby:
        server.version = 14  # the watch ends before it reaches this version; the next one is silent
        server.watches.append([None])
        await standby.lead()
        assert not standby.ready.done()
        await standby.clock.advance(0.6)  # the next watch begins between 0.4 s and this moment
        assert len(server.watched) == 3 and not standby.ready.done()
        await standby.clock.advance(SILENCE)
        assert standby.ready.done() and {"late0", "late1", "late2"} <= names(standby.informer)


async def test_without_an_answer_about_the_newest_version_nothing_is_assumed():
    server = large([None])
    async with Standby(server, page=4) as standby:

        async def down(*args, **options):
            raise DOWN

        whole, server.get = server.get, down
        await standby.lead()
        await standby.clock.advance(30)
        assert not standby.ready.done() and len(server.watched) == 1
        server.get = whole
        await standby.clock.advance(BACKOFF_MAX * 1.5 + SILENCE)
        assert standby.ready.done()


@pytest.mark.parametrize(
    ("version", "goal", "reached"),
    [
        ("12", "12", True),
        ("13", "12", True),
        ("9", "12", False),
        ("", "12", False),
        ("12", "", False),
        ("b", "a", False),
    ],
)
def test_versions_are_compared_as_numbers(version, goal, reached):
    assert is_reached(version, goal) is reached


async def test_who_leads_lets_every_cache_catch_up_before_controllers_begin():
    order = []

    class Cache:
        def catch_up(self):
            order.append("catch up")

    class Spec:
        name = label = "c"
        section = flags = None
        vouching = False

        def make(self, context, options):
            return self

        async def run(self):
            order.append("run")
            raise asyncio.CancelledError

    class Context:
        caches = {"nodes": Cache(), "services": Cache()}  # noqa: RUF012
        vouching = None

    running = RunningControllers([ConfiguredController(Spec())], Context())
    task = asyncio.create_task(running.run())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait({task})
    assert order == ["catch up", "catch up", "run"]
