# SPDX-License-Identifier: Apache-2.0
"""Failing objects hold back no other object, whereas an outage of the cloud holds back all calls."""

import asyncio
import itertools
import random

import pytest

from ccm.base.log_context import about
from ccm.cloud import Limits, RateLimited, Transient, Unauthorized
from ccm.gateway.breaker import (
    BREAKER_FIRST,
    BREAKER_MAX,
    REMEMBERED_FAILURES,
    REMEMBERED_WAITING,
    TRIES_PER_SECOND,
    WAIT_MAX,
    Breaker,
    HeldBack,
    Pass,
    Subject,
)
from ccm.gateway.gateway import BREAKER_OPEN, Gateway
from ccm.gateway.newcomers import EVERY

from .fake import FakeCloud
from .virtual import in_virtual_time, now

DOWN = Transient("503 from the cloud")


class Cloud:
    """A gateway to a cloud whose calls for some objects fail after `seconds`."""

    def __init__(self, *failing, seconds=0.0, error=DOWN, **limits):
        limits = {"calls_per_second": 1e6, "burst": 10**6, **limits}
        self.gate = Gateway(FakeCloud(limits=Limits(**limits)), clock=now)
        self.failing, self.seconds, self.error, self.down = set(failing), seconds, error, False
        self.calls = []

    async def ensure(self, key, operation="services.make"):
        async def call():
            self.calls.append((now(), key))
            if self.down or key in self.failing:
                await asyncio.sleep(self.seconds)
                raise self.error
            return key

        with about(object=key):
            return await self.gate.call(operation, call)

    async def fails(self, key):
        """Call for the object and return the error, whose `retry_after` is None if the cloud was called."""
        with pytest.raises((Transient, Unauthorized)) as caught:
            await self.ensure(key)
        return caught.value

    async def client(self, key, until, first=5.0):
        """Retry as the work queue does: after its back-off, or after `retry_after` if the gateway refused the call."""
        tries = 0
        while now() < until:
            try:
                await self.ensure(key)
            except Transient as error:
                tries += 1
                wait = error.retry_after or min(300.0, first * 2.0 ** (tries - 1)) * random.uniform(0.75, 1.0)
                await asyncio.sleep(wait * random.uniform(1.0, 1.25))
            else:
                return


def bad(count, namespace="bad"):
    return [f"{namespace}/{number}" for number in range(count)]


@in_virtual_time
@pytest.mark.threat("tenant-cannot-stop-the-controller")
@pytest.mark.parametrize("times", [5, 50])
async def test_one_object_that_fails_again_and_again_is_no_outage(times):
    cloud = Cloud("bad/0")
    for _ in range(times):
        assert (await cloud.fails("bad/0")).retry_after is None
    assert await cloud.ensure("bad/other") == "bad/other"
    assert len(cloud.calls) == times + 1


@in_virtual_time
@pytest.mark.threat("tenant-cannot-stop-the-controller")
@pytest.mark.parametrize("error", [DOWN, Unauthorized("forbidden")])
@pytest.mark.parametrize("count", [5, 20, 100])
async def test_the_objects_of_one_namespace_hold_back_only_each_other(count, error):
    cloud = Cloud(*bad(count), error=error)
    for key in bad(count):
        await cloud.fails(key)
    assert (await cloud.fails("bad/0")).retry_after is not None
    assert BREAKER_OPEN.labels("services")._value.get() == 0
    for number in range(10):
        assert await cloud.ensure(f"good/{number}") == f"good/{number}"
        assert await cloud.ensure(f"node-{number}") == f"node-{number}"


@in_virtual_time
@pytest.mark.threat("tenant-cannot-stop-the-controller")
async def test_a_probe_of_a_failing_object_that_hangs_holds_back_nobody_else():
    cloud = Cloud(*bad(5), *bad(5, "worse"), seconds=30.0, deadline=60.0)
    await asyncio.gather(*map(cloud.fails, cloud.failing))
    await asyncio.sleep(1.0)
    probe = asyncio.create_task(cloud.fails("bad/0"))
    await asyncio.sleep(1.0)
    assert await cloud.ensure("good/0") == "good/0"
    await probe


@in_virtual_time
@pytest.mark.parametrize("namespaces", [["a", "b"], ["a", "b", "c", "d", "e"]])
async def test_failures_of_several_namespaces_are_an_outage_until_one_succeeds(namespaces):
    failing = [f"{each}/{number}" for number in range(5) for each in namespaces][:5]
    cloud = Cloud(*failing)
    for key in failing:
        await cloud.fails(key)
    assert BREAKER_OPEN.labels("services")._value.get() == 1
    assert (await cloud.fails(failing[0])).retry_after is not None
    assert await cloud.ensure("good/0") == "good/0"  # good/0 has not failed before, so its call is new evidence
    assert BREAKER_OPEN.labels("services")._value.get() == 0


@in_virtual_time
async def test_another_object_of_the_namespace_may_probe_at_once():
    cloud = Cloud(*bad(5))
    for key in bad(5):
        await cloud.fails(key)
    assert await cloud.ensure("bad/good") == "bad/good"


@in_virtual_time
async def test_probes_at_once_are_made_one_at_a_time():
    cloud = Cloud(*bad(3), *bad(3, "worse"), "slow/0", seconds=10.0)
    await asyncio.gather(*map(cloud.fails, [*bad(3), *bad(3, "worse")]))
    first = asyncio.create_task(cloud.fails("slow/0"))
    await asyncio.sleep(0.5)
    assert (await cloud.fails("good/0")).retry_after is not None
    assert (await first).retry_after is None
    assert await cloud.ensure("good/0") == "good/0"


@in_virtual_time
async def test_in_an_outage_probes_at_once_end_and_count_as_probes():
    cloud = Cloud()
    cloud.down = True
    keys = [f"{number}/service" for number in range(100)]
    for key in keys:
        await cloud.fails(key)
    assert [key for _, key in cloud.calls] == keys[:7]
    await asyncio.sleep(3.9)
    pause = (await cloud.fails(keys[0])).retry_after
    assert pause == pytest.approx(1.25)  # the third pause is four seconds
    assert len(cloud.calls) == 7


@in_virtual_time
async def test_the_more_objects_wait_the_more_seldom_each_of_them_asks():
    cloud = Cloud()
    cloud.down = True
    waits = [(await cloud.fails(f"{number}/service")).retry_after for number in range(1007)][7:]
    assert waits[:16] == [4.0] * 16, "few wait no longer than for the end of the pause"
    assert waits[99] == 100 / TRIES_PER_SECOND and waits[-1] == WAIT_MAX
    assert waits == sorted(waits)
    assert (await cloud.fails("7/service")).retry_after == 2 * EVERY, "its turn to probe comes before"
    assert (await cloud.fails("8/service")).retry_after == WAIT_MAX, "it counts once"


@in_virtual_time
async def test_the_end_of_an_outage_calls_those_that_wait_and_none_that_failed():
    cloud, called = Cloud(), []
    cloud.gate.on_recovery("services", called.append)
    cloud.gate.on_recovery("others", called.append)
    cloud.down = True
    keys = [f"{number}/service" for number in range(100)]
    for key in (*keys, *reversed(keys)):
        await cloud.fails(key)
    assert called == []
    cloud.down = False
    await asyncio.sleep(30.0)
    assert await cloud.ensure(keys[50]) == keys[50]
    assert called == keys[:6:-1], "whoever came last is the least likely to be at fault"
    assert await cloud.ensure(keys[51]) == keys[51]
    assert called == keys[:6:-1], "once"


@in_virtual_time
async def test_the_end_of_an_outage_also_calls_those_that_waited_and_then_failed_as_a_probe():
    """In a long outage, every object is sooner or later the probe."""
    cloud, called = Cloud(), []
    cloud.gate.on_recovery("services", called.append)
    cloud.down = True
    keys = [f"{number}/service" for number in range(20)]
    for key in keys:
        await cloud.fails(key)
    await asyncio.sleep(30.0)
    calls = len(cloud.calls)
    await cloud.fails(keys[10])
    assert cloud.calls[calls:] == [(now(), keys[10])]
    cloud.down = False
    await asyncio.sleep(30.0)
    assert await cloud.ensure(keys[0]) == keys[0]
    assert called == keys[:6:-1]


@in_virtual_time
async def test_the_end_of_a_pause_that_the_cloud_asked_for_calls_those_that_wait():
    """A 429 answer shows that the cloud is up."""
    cloud, called = Cloud(*bad(7, "a"), *bad(7, "b")), []
    cloud.gate.on_recovery("services", called.append)
    for key in (*bad(7, "a"), *bad(7, "b")):
        await cloud.fails(key)
    held = sorted(cloud.failing - {key for _, key in cloud.calls})
    cloud.error = RateLimited("slow down", retry_after=1.0)
    await asyncio.sleep(30.0)
    with pytest.raises(RateLimited):
        await cloud.ensure(held[0])
    assert held and sorted(called) == held


@in_virtual_time
@pytest.mark.parametrize("seconds", [0.0, 30.0])
@pytest.mark.parametrize("namespaces", [1, 100])
async def test_an_outage_gets_no_more_calls_than_with_one_probe_after_each_pause(seconds, namespaces):
    random.seed(7)
    cloud = Cloud(seconds=seconds, deadline=60.0, concurrency=20)
    cloud.down = True
    async with asyncio.TaskGroup() as group:
        for number in range(500):
            group.create_task(cloud.client(f"{number % namespaces}/{number}", now() + 300.0))
    # first one call per slot, before the outage is known; then probes with pauses of 1, 2, 4, 8, 16 and 30 s
    pauses = itertools.accumulate(min(30.0, 2.0**each) + seconds for each in range(100))
    assert len(cloud.calls) <= 20 + sum(each + seconds < 300.0 for each in pauses)


@in_virtual_time
@pytest.mark.threat("tenant-cannot-stop-the-controller")
@pytest.mark.parametrize("namespaces", [1, 3])
@pytest.mark.parametrize("count", [5, 50])
async def test_a_new_object_of_another_namespace_is_served_at_once(count, namespaces):
    """This holds in every phase of the failing objects' retries, and if several tenants have failing objects."""
    waits = []
    for seed in range(10):
        random.seed(seed)
        failing = [f"bad{number % namespaces}/{number}" for number in range(count)]
        cloud, until = Cloud(*failing), now() + 400.0
        clients = [asyncio.create_task(cloud.client(key, until)) for key in failing]
        await asyncio.sleep(random.uniform(20.0, 300.0))
        started = now()
        await cloud.client("good/0", until, first=1.0)
        waits.append(now() - started)
        for each in clients:
            each.cancel()
        await asyncio.gather(*clients, return_exceptions=True)
    assert sorted(waits)[5] <= 1.0 and max(waits) <= 10.0


@pytest.mark.threat("tenant-cannot-stop-the-controller")
@in_virtual_time
@pytest.mark.parametrize("error", [Transient("own", scope="object"), Unauthorized("own", scope="object")])
async def test_what_the_cloud_says_of_one_object_proves_that_it_works(error):
    cloud = Cloud(*bad(3), *bad(3, "worse"), error=error)
    for _ in range(3):
        for key in sorted(cloud.failing):
            assert await cloud.fails(key) is error
    assert len(cloud.calls) == 18
    assert cloud.gate.failing_since is None and cloud.gate.last_success is not None


@in_virtual_time
async def test_a_listing_is_about_no_object():
    cloud = Cloud("a/0", error=Transient("x", scope="object"))
    for _ in range(5):
        with pytest.raises(Transient):
            await cloud.ensure("a/0", "services.list")
    with pytest.raises(Transient, match="call not made"):
        await cloud.ensure("b/0", "services.list")


@in_virtual_time
async def test_those_who_failed_let_others_probe_first():
    cloud = Cloud(*bad(3), *bad(3, "worse"))
    for key in [*bad(3), *bad(3, "worse")]:
        await cloud.fails(key)
    await cloud.fails("worse/2")
    cloud.failing |= {"a/0", "b/0"}
    await cloud.fails("a/0")
    await cloud.fails("b/0")
    pause = (await cloud.fails("good/0")).retry_after
    assert (await cloud.fails("bad/0")).retry_after == pytest.approx(1.25 * pause)


def test_who_failed_before_the_last_success_is_not_accused():
    breaker = Breaker("x")
    breaker.failed(DOWN, Subject.of("a/0"), 0.0, Pass.FREE)
    breaker.succeeded()
    for key in bad(5):
        breaker.failed(DOWN, Subject.of(key), 1.0, Pass.FREE)
    assert breaker.is_open and not breaker.is_open_for_all


@pytest.mark.parametrize(("outage", "wait"), [(3.0, 3.0), (10.0, 10.0), (1000.0, BREAKER_MAX)])
def test_while_a_probe_is_under_way_one_waits_as_long_as_the_outage_has_lasted(outage, wait):
    breaker = Breaker("x")
    for _ in range(5):
        breaker.failed(DOWN, None, 0.0, Pass.FREE)
    breaker.failed(DOWN, None, BREAKER_FIRST, Pass.PROBE)
    assert breaker.open_until == BREAKER_FIRST + 2 * BREAKER_FIRST == 3.0  # the moment at which the first case asks
    assert breaker.check(None, outage) is Pass.PROBE
    with pytest.raises(HeldBack) as held:
        breaker.check(None, outage)
    assert held.value.retry_after == wait


def test_only_the_latest_failing_objects_are_remembered():
    breaker = Breaker("x")
    for number in range(3 * REMEMBERED_FAILURES):
        breaker.failed(DOWN, Subject.of(f"ns/{number}"), 0.0, Pass.FREE)
    assert len(breaker._failing) == REMEMBERED_FAILURES
    assert breaker._owners == {"ns": REMEMBERED_FAILURES}
    breaker.succeeded(Subject.of(f"ns/{3 * REMEMBERED_FAILURES - 1}"))
    assert breaker._owners == {"ns": REMEMBERED_FAILURES - 1}
    again, next_one, other = (f"ns/{2 * REMEMBERED_FAILURES + number}" for number in range(3))
    for key in (again, "ns/new", "ns/newer"):
        breaker.failed(DOWN, Subject.of(key), 0.0, Pass.FREE)
    assert again in breaker._failing and next_one not in breaker._failing and other in breaker._failing


@pytest.mark.threat("tenant-cannot-stop-the-controller")
def test_objects_that_come_and_go_in_an_outage_do_not_pile_up():
    breaker = Breaker("x")
    for kind in (*[Pass.FREE] * 5, *[Pass.EARLY] * 2):
        breaker.failed(DOWN, None, 0.0, kind)
    for number in range(2 * REMEMBERED_WAITING):
        with pytest.raises(Transient) as held:
            breaker.check(Subject.of(f"ns/{number}"), 0.5)
        assert held.value.retry_after <= WAIT_MAX
    breaker.succeeded()
    assert len(breaker.take_waiting()) == REMEMBERED_WAITING
    assert breaker.take_waiting() == []
