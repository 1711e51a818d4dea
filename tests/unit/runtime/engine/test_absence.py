# SPDX-License-Identifier: Apache-2.0
"""An object that a list lacks is deleted only after a read or a watch event confirms its end.

After reads, only a few objects are deleted at a time.
"""

import asyncio

import pytest

from ccm.base.clock import FakeClock
from ccm.engine import absence_rules as rules
from ccm.engine.api_errors import GoneError, UnavailableError
from ccm.engine.informer import LIST_AGAIN_FIRST, Informer
from ccm.engine.objects import ObjectMeta, PartialObject, object_path

from .test_informer import Script, event, obj

EXPIRED = GoneError(410, "Expired", "too old")


class Server(Script):
    """A scripted client. `live`: UID by name of the objects that a single read finds."""

    def __init__(self, *lists):
        super().__init__()
        self.lists = [(objects, 10 * number) for number, objects in enumerate(lists, 1)]
        self.watches = [EXPIRED, [None]]
        self.live: dict[str, str] = {}
        self.asked: list[str] = []
        self.error: Exception | None = None

    async def exists(self, collection, meta):
        assert collection == "/api/v1/things"
        self.asked.append(meta.name)
        if self.error is not None:
            raise self.error
        return self.live.get(meta.name) == meta.uid


def objects(*numbers):
    return [obj(f"o{number}", number) for number in numbers]


class Followed:
    """A running informer with its clock. `gone`: names of the objects whose deletion the handler received."""

    def __init__(self, server, **options):
        self.server, self.clock, self.gone = server, FakeClock(), []
        self.informer = Informer(
            server, "/api/v1/things", PartialObject, name="doubt", clock=self.clock, doubtful=True, **options
        )
        self.informer.add_handler(lambda old, new: new is None and self.gone.append(old.metadata.name))

    async def __aenter__(self):
        self.task = asyncio.create_task(self.informer.run())
        await self.clock.settle()
        await self.clock.advance(1)  # the watch ended with a 410, and the second list was read
        return self

    async def __aexit__(self, *_):
        self.task.cancel()
        await asyncio.wait({self.task})


@pytest.mark.parametrize("left", [(), (1,), (1, 2, 3, 4, 5)], ids=["empty", "shrunken", "half"])
async def test_a_list_without_half_of_the_objects_deletes_none(left, caplog):
    server = Server(objects(*range(1, 11)), objects(*left), objects(*range(1, 11)))
    async with Followed(server) as followed:
        assert followed.gone == [] and len(followed.informer) == 10 and server.asked == []
        assert f"{10 - len(left)} of 10 objects are missing from a list: the list is not trusted" in caplog.text
        await followed.clock.advance(LIST_AGAIN_FIRST + 1)  # the informer soon lists again, and this list is complete
        assert server.listed == 3 and followed.gone == [] and not followed.informer._missing


async def test_of_a_list_that_proves_nothing_goes_what_another_source_and_a_read_say_is_gone():
    """A read still finds o1; o2 to o4 are gone, but only two may go at a time. No other source confirms o5 to o8."""
    server = Server(objects(*range(1, 11)), objects(9, 10))
    server.live = {"o1": "u"}
    followed = Followed(server)
    confirmed = {"o1", "o2", "o3", "o4"}
    followed.informer.confirm_by(lambda obj: obj.metadata.name in confirmed)
    async with followed:
        assert followed.gone == ["o2"] and server.asked == ["o1", "o2"]
        confirmed.remove("o1")
        await followed.clock.advance(LIST_AGAIN_FIRST + 1)
        assert followed.gone == ["o2", "o3"]
        await followed.clock.advance(rules.GRACE / 2)
        assert followed.gone == ["o2", "o3"]
        await followed.clock.advance(rules.GRACE)
        assert followed.gone == ["o2", "o3", "o4"] and len(followed.informer) == 7


async def test_a_list_can_be_asked_for_while_a_watch_is_open():
    server = Server(objects(1), objects(1, 2))
    server.watches = [[None], [None]]
    async with Followed(server) as followed:
        assert server.listed == 1 and not followed.informer.confirmed
        followed.informer.list_again()
        followed.informer.list_again()
        await followed.clock.settle()
        followed.informer.list_again()  # no effect during the pause before the list
        await followed.clock.advance(1)
        assert server.listed == 2 and followed.informer.confirmed and len(followed.informer) == 2


async def test_what_is_really_gone_goes_after_a_read_of_it():
    server = Server(objects(*range(1, 11)), objects(*range(2, 11)))
    async with Followed(server) as followed:
        assert (followed.gone, server.asked) == (["o1"], ["o1"])


async def test_what_a_list_lacks_and_a_read_finds_stays():
    server = Server(objects(*range(1, 11)), objects(*range(2, 11)))
    server.live = {"o1": "u"}
    async with Followed(server) as followed:
        assert followed.gone == [] and server.asked == ["o1"] and len(followed.informer) == 10


async def test_another_object_of_its_name_is_not_it():
    server = Server(objects(*range(1, 11)), objects(*range(2, 11)))
    server.live = {"o1": "another"}
    async with Followed(server) as followed:
        assert followed.gone == ["o1"]


async def test_objects_go_at_a_bounded_rate():
    """Twelve of 30 objects vanish, as after an unseen scale-down: a tenth is deleted at once, a tenth in each GRACE."""
    server = Server(objects(*range(30)), objects(*range(12, 30)))
    async with Followed(server) as followed:
        times = [followed.clock.monotonic()] * 3
        assert len(followed.gone) == 3
        for _ in range(300):
            await followed.clock.advance(10)
            times += [followed.clock.monotonic()] * (len(followed.gone) - len(times))
        assert len(times) == 12
        assert all(sum(1 for each in times if 0 <= each - first < rules.GRACE) <= 3 for first in times)


async def test_a_read_that_fails_makes_the_list_be_read_again():
    server = Server(objects(*range(1, 11)), objects(*range(2, 11)))
    server.error = UnavailableError(0, "Timeout", "no answer")
    async with Followed(server) as followed:
        assert followed.gone == [] and len(followed.informer) == 10
        server.error = None
        await followed.clock.advance(5)
        assert followed.gone == ["o1"] and server.listed > 2


async def test_an_event_about_a_missing_object_ends_the_doubt():
    server = Server(objects(1, 2, 3), [])
    server.watches = [EXPIRED, [event("MODIFIED", obj("o1", 50)), event("DELETED", obj("o2", 51)), None]]
    async with Followed(server) as followed:
        assert followed.gone == ["o2"]
        assert followed.informer._missing == {"o3"}


async def test_what_is_listed_is_checked_before_it_counts():
    """`check` runs after each list was read: by then the answer may come from another server. `check` also runs before
    the first list, so that no cache starts with another cluster."""

    class Changed(Exception):
        pass

    server, checked = Server(objects(1, 2, 3), objects(4)), []

    async def check():
        checked.append((server.listed, len(server.watched)))
        if server.listed == 2:
            raise Changed

    followed = Followed(server, check=check)
    async with followed:
        assert checked == [(0, 0), (1, 0), (2, 1)]
        assert isinstance(followed.task.exception(), Changed)
        assert [item.metadata.name for item in followed.informer.items()] == ["o1", "o2", "o3"]


async def test_a_watch_is_checked_before_its_first_event():
    server, checks = Server(objects(1, 2, 3)), []
    server.watches = [[event("DELETED", obj("o1", 50)), None]]

    async def check():
        checks.append(len(server.watched))
        if server.watched:
            raise UnavailableError(0, "Timeout", "no answer")

    async with Followed(server, check=check) as followed:
        assert checks[:3] == [0, 0, 1] and followed.gone == []


@pytest.mark.parametrize(
    ("known", "missing", "asked"),
    [(1, 1, False), (2, 1, True), (2, 2, False), (3, 1, True), (3, 2, False), (4, 2, False), (100, 49, True)],
)
def test_more_than_half_must_be_listed(known, missing, asked):
    assert (rules.belief(known, missing) is rules.Belief.ASK) is asked


@pytest.mark.parametrize(
    ("known", "gone_at", "room"),
    [(1, [], 2), (20, [], 2), (30, [], 3), (30, [0.0, 1.0], 1), (30, [0.0] * 9, 0), (30, [-300.0], 3)],
)
def test_room(known, gone_at, room):
    assert rules.room(known, gone_at, 0.0) == room


@pytest.mark.parametrize(
    ("collection", "namespace", "path"),
    [
        ("/api/v1/nodes", "", "/api/v1/nodes/x"),
        ("/api/v1/services", "shop", "/api/v1/namespaces/shop/services/x"),
        ("/api/v1/namespaces/shop/services", "shop", "/api/v1/namespaces/shop/services/x"),
    ],
)
def test_the_path_of_an_object(collection, namespace, path):
    assert object_path(collection, ObjectMeta("x", namespace)) == path
