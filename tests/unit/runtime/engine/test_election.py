# SPDX-License-Identifier: Apache-2.0
"""The election against a Lease in memory, on a clock that the test moves."""
# ruff: noqa: ASYNC109 -- the fake has the signatures of the client

import asyncio
import contextlib
import datetime
import functools
import json
import os
import time

import pytest
from prometheus_client import REGISTRY

from ccm.base.clock import FakeClock
from ccm.base.clock import timeout as time_limit
from ccm.engine.api_errors import ConflictError, NotFoundError, UnavailableError
from ccm.engine.election import LeaderElector, LeadershipLost, free, micro_time, released, taken
from ccm.engine.objects import Lease, LeaseSpec, ObjectMeta, decoder, parse_time

PATH = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"


class Api:
    """One Lease as the API server keeps it."""

    def __init__(self, clock):
        self.clock = clock
        self.lease, self.version, self.writes = None, 0, []
        self.changed = asyncio.Event()

    def client(self):
        return Client(self)

    def store(self, lease):
        self.version += 1
        lease["metadata"]["resourceVersion"] = str(self.version)
        self.lease = lease
        self.writes.append(dict(lease["spec"]))
        self.changed.set()
        self.changed = asyncio.Event()
        return decoder(ObjectMeta).decode(json.dumps(lease["metadata"]))

    def steal(self, identity, **spec):
        self.lease["spec"] |= {"holderIdentity": identity, **spec}
        self.store(self.lease)

    @property
    def holder(self):
        return self.lease["spec"]["holderIdentity"]


def limited(method):
    """Return the method with the argument `timeout` of the real client: seconds after which the call fails."""

    @functools.wraps(method)
    async def request(self, *arguments, timeout):
        try:
            async with time_limit(self.api.clock, timeout):
                return await method(self, *arguments)
        except TimeoutError:
            raise UnavailableError(0, "TimeoutError", "no answer in time") from None

    return request


class Client:
    def __init__(self, api):
        self.api, self.requests, self.cut = api, [], None

    async def _pass(self, method):
        self.requests.append(method)
        await asyncio.sleep(0)
        if self.cut is not None:
            await self.cut(method)

    @limited
    async def get(self, path, type):
        await self._pass("get")
        assert path == f"{PATH}/ccm"
        if self.api.lease is None:
            raise NotFoundError(404, "NotFound", "no lease")
        return decoder(Lease).decode(json.dumps(self.api.lease))

    @limited
    async def create(self, path, body):
        await self._pass("create")
        if self.api.lease is not None:
            raise ConflictError(409, "AlreadyExists", "exists")
        return self.api.store(json.loads(json.dumps(body)))

    @limited
    async def patch(self, path, patch):
        await self._pass("patch")
        if self.api.lease is None:
            raise NotFoundError(404, "NotFound", "no lease")
        meta = dict(patch["metadata"])
        if meta.pop("resourceVersion") != self.api.lease["metadata"]["resourceVersion"]:
            raise ConflictError(409, "Conflict", "changed")
        lease = json.loads(json.dumps(self.api.lease))
        lease["metadata"].setdefault("annotations", {}).update(meta.get("annotations", {}))
        lease["spec"] |= patch["spec"]
        answer = self.api.store(lease)
        await self._pass("patched")  # here a test can lose the answer
        return answer

    async def list(self, path, type, *, page, params, unreadable, keep):
        assert (path, params) == (PATH, {"fieldSelector": "metadata.name=ccm"})
        await self._pass("list")
        items = [keep(decoder(Lease).decode(json.dumps(self.api.lease)))] if self.api.lease else []
        return items, str(self.api.version)

    @contextlib.asynccontextmanager
    async def watch(self, path, params, *, read_timeout, **_):
        await self._pass("watch")

        async def lines():
            while True:
                await self.api.changed.wait()
                yield json.dumps({"type": "MODIFIED", "object": self.api.lease}).encode()

        yield lines()


class Work:
    """The leader's work: waits until it is cancelled, then takes `ending` seconds to end."""

    def __init__(self, clock, ending=0.0):
        self.clock, self.ending, self.running, self.ended_at = clock, ending, False, None

    async def __call__(self):
        self.running = True
        try:
            await asyncio.Event().wait()
        finally:
            if self.ending:
                await self.clock.sleep(self.ending)
            self.running, self.ended_at = False, self.clock.monotonic()


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def api(clock):
    return Api(clock)


@pytest.fixture
async def candidate(api, clock):
    tasks = []

    def make(identity, work=None, **options):
        elector = LeaderElector(
            api.client(), namespace="kube-system", name="ccm", identity=identity, **{"clock": clock, **options}
        )
        elector.work = work or Work(clock)
        elector.task = asyncio.create_task(elector.run(elector.work))
        tasks.append(elector.task)
        return elector

    yield make
    for task in tasks:
        task.cancel()
    if tasks:
        await clock.advance(60)
        await asyncio.wait(tasks)


async def hang(method):
    await asyncio.Event().wait()


async def refuse(method):
    raise UnavailableError(0, "ClientConnectorError", "connection refused")


def status(name="ccm"):
    return REGISTRY.get_sample_value("leader_election_master_status", {"name": name})


async def test_the_first_creates_the_lease_and_renews_it(candidate, api, clock):
    elector = candidate("a", annotations=lambda: {"x": str(clock.monotonic())})
    await clock.settle()
    assert elector.is_leader and elector.work.running and elector.holder == "a" and status() == 1
    assert api.lease["metadata"]["annotations"] == {"x": "1000.0"}
    first = dict(api.lease["spec"])
    assert first["holderIdentity"] == "a" and first["leaseDurationSeconds"] == 15 and first["leaseTransitions"] == 0
    await clock.advance(7)
    assert len(api.writes) == 1 + 3, "every 2 s"
    assert api.lease["metadata"]["annotations"] == {"x": "1006.0"}
    assert api.lease["spec"]["acquireTime"] == first["acquireTime"]
    assert parse_time(api.lease["spec"]["renewTime"]) == clock.now() - datetime.timedelta(seconds=1)
    assert elector.renewed_at == 1006
    assert elector.task and elector._client.requests.count("get") == 1, "renewing needs no reading"


async def test_handover_when_the_leader_is_told_to_stop(candidate, api, clock):
    leader = candidate("a", Work(clock, ending=0.5))
    await clock.settle()
    standby = candidate("b")
    await clock.advance(30)
    assert leader.is_leader and not standby.work.running and standby.holder == "a"
    leader.task.cancel()
    await clock.advance(0.4)
    assert api.holder == "a" and leader.work.running and not standby.work.running, "the work ends before the Lease"
    await clock.advance(0.2)
    assert standby.work.running and api.holder == "b" and not leader.is_leader
    assert leader.task.cancelled()
    assert leader.work.ended_at == 1030.5
    release = next(write for write in api.writes if write["holderIdentity"] == "")
    assert release["leaseDurationSeconds"] == 1
    assert api.lease["spec"]["leaseTransitions"] == 1
    assert api.lease["spec"]["acquireTime"] >= release["acquireTime"]


async def test_the_lease_is_renewed_while_the_work_takes_long_to_end(candidate, api, clock):
    leader = candidate("a", Work(clock, ending=60))
    await clock.settle()
    standby = candidate("b")
    leader.task.cancel()
    await clock.advance(59)
    assert leader.work.running and not standby.work.running and api.holder == "a"
    await clock.advance(1.1)
    assert standby.work.running and not leader.work.running


async def test_a_dead_leader_is_followed_after_its_lease(candidate, api, clock):
    leader = candidate("a")
    await clock.settle()
    standby = candidate("b")
    await clock.advance(5)
    leader._client.cut = hang  # the process is frozen or disconnected
    died = clock.monotonic()
    while not standby.is_leader:
        await clock.advance(0.1)
        assert clock.monotonic() < died + 30
    assert 15 - 2 <= clock.monotonic() - died <= 15 + 2 + 4.4
    assert leader.work.ended_at is not None and leader.work.ended_at < clock.monotonic()


async def test_expiry_goes_by_our_clock_not_by_what_others_write(candidate, api, clock):
    leader = candidate("a")
    await clock.settle()
    leader.task.cancel()
    await clock.settle()
    # a wrong clock wrote that the Lease was renewed an hour ago; a standby that compared times would take it at once
    old = micro_time(clock.now() - datetime.timedelta(hours=1))
    api.steal("far", renewTime=old, acquireTime=old, leaseDurationSeconds=15)
    standby = candidate("b")
    await clock.advance(14)
    assert not standby.is_leader
    api.steal("far", renewTime=micro_time(clock.now()))
    clock.jump(7200)  # a jump of our own wall clock does not matter either
    await clock.advance(12)
    assert not standby.is_leader
    # The standby sees the renewal at most 4.4 s later. Then the Lease must stay unchanged for 15 s and be read again.
    await clock.advance(14)
    assert standby.is_leader


async def test_work_that_outlives_the_lease_is_told_before_any_task_of_it_runs(candidate, api, clock):
    """A process freezes in the middle of a write and resumes when another process leads: `expired` is called first."""
    happened = []

    async def write(answer):
        with contextlib.suppress(asyncio.CancelledError):  # work that ignores its cancellation
            await answer.wait()
        happened.append("write")

    answer = asyncio.Event()
    leader = candidate("a", lambda: write(answer), expired=lambda: happened.append("expired"))
    await clock.settle()
    await clock.advance(5)
    assert happened == []
    leader._client.cut = hang
    clock._move(clock.monotonic() + 60)  # no task ran meanwhile
    answer.set()  # the answer waited in the kernel
    for callback in [timer.callback for _, _, timer in sorted(clock._timers) if timer.callback]:
        callback()  # all timers are due in the same turn
    await clock.settle()
    assert happened[0] == "expired"


async def test_the_end_in_time_is_not_told_as_too_late(candidate, api, clock):
    told = []
    leader = candidate("a", expired=lambda: told.append("expired"))
    await clock.settle()
    await clock.advance(60)
    leader._client.cut = hang
    await clock.advance(60)
    with pytest.raises(LeadershipLost):
        await leader.task
    other = candidate("b", Work(clock, ending=60), expired=lambda: told.append("expired"))
    await clock.settle()
    other.task.cancel()
    await clock.advance(61)
    assert told == [], "nor while the Lease is renewed for work that takes long to end"


@pytest.mark.parametrize("jump", [-(10**9), -86400, -11, 11, 86400, 10**9])
async def test_a_jump_of_the_wall_clock_neither_costs_nor_gives_the_leadership(candidate, api, clock, jump):
    leader = candidate("a")
    await clock.settle()
    standby = candidate("b")
    for _ in range(3):
        await clock.advance(5)
        clock.jump(jump)
        await clock.advance(5)
        clock.jump(-jump / 2)
        assert leader.work.running and not standby.work.running
        assert clock.monotonic() - leader.renewed_at <= 2
    leader._client.cut = hang
    last = leader.renewed_at
    clock.jump(-jump)
    await clock.advance(30)
    assert leader.work.ended_at == last + 10 and standby.work.running, "deadline and lease last as long as ever"


class Skewed:
    """A machine's clocks: the wall clock is `off` seconds ahead, the monotonic clock runs `rate` times as fast."""

    def __init__(self, true, off=0.0, rate=1.0):
        self.true, self.off, self.rate = true, datetime.timedelta(seconds=off), rate

    def monotonic(self):
        return self.true.monotonic() * self.rate

    def now(self):
        return self.true.now() + self.off

    async def sleep(self, seconds):
        await self.true.sleep(seconds / self.rate)

    def call_later(self, seconds, callback):
        return self.true.call_later(seconds / self.rate, callback)


@pytest.mark.parametrize("off", [-86400, 0, 86400])
@pytest.mark.parametrize("rates", [(1.0, 1.0), (0.8, 1.0), (1.0, 1.25), (1.3, 0.7)])
async def test_two_machines_with_different_clocks_never_both_lead(candidate, api, clock, off, rates):
    """Times in the Lease are never compared with a clock, and between renew deadline and Lease duration there is room
    for a clock that runs a quarter faster."""
    a, b = (
        candidate(name, clock=Skewed(clock, shift, rate))
        for name, shift, rate in zip("ab", (0, off), rates, strict=True)
    )
    await clock.settle()
    both = led = 0
    for second in range(300):
        leader = next((one for one in (a, b) if one.work.running), None)
        if second == 20 and leader is not None:
            leader._client.cut = hang  # the leader loses its connection to the API server
        await clock.advance(0.25)
        both += a.work.running and b.work.running
        led += a.work.running or b.work.running
    assert both == 0 and led > 200
    assert sum(elector.work.running for elector in (a, b)) == 1, "the other one took over"


@pytest.mark.parametrize("fault", [hang, refuse], ids=["black-hole", "refused"])
async def test_the_renew_deadline_is_enforced_and_the_work_cancelled_before_others_may_lead(
    candidate, api, clock, fault
):
    leader = candidate("a")
    await clock.settle()
    await clock.advance(5)
    last = leader.renewed_at
    leader._client.cut = fault
    await clock.advance(20)
    with pytest.raises(LeadershipLost, match=r"could not be renewed for 10 s: (no answer|connection refused)"):
        await leader.task
    assert leader.work.ended_at == last + 10
    assert leader._client.requests[-1] in ("patch", "get") and 3 <= leader._client.requests.count("patch") <= 30
    assert not leader.is_leader and status() == 0
    assert api.holder == "a", "what is not ours for sure is not released"


async def test_a_passing_fault_costs_nothing(candidate, clock):
    leader = candidate("a")
    await clock.advance(5)
    leader._client.cut = hang
    await clock.advance(6)
    leader._client.cut = None
    await clock.advance(20)
    assert leader.is_leader and leader.work.running


async def test_work_that_does_not_end_does_not_keep_the_process(candidate, clock, caplog):
    leader = candidate("a", Work(clock, ending=1000))
    await clock.advance(1)
    leader._client.cut = hang
    await clock.advance(10 + 5)
    with pytest.raises(LeadershipLost):
        await leader.task
    assert "is abandoned" in caplog.text
    await clock.advance(1000)


async def test_a_stolen_lease_ends_the_work_at_the_next_renewal(candidate, api, clock):
    leader = candidate("a")
    await clock.advance(1)
    api.steal("thief")
    await clock.advance(2)
    with pytest.raises(LeadershipLost, match="kube-system/ccm was taken by thief"):
        await leader.task
    assert not leader.work.running and api.holder == "thief" and leader.holder == "thief"


async def test_an_emptied_lease_is_lost_too(candidate, api, clock):
    leader = candidate("a")
    await clock.advance(1)
    api.steal("")
    await clock.advance(2)
    with pytest.raises(LeadershipLost, match="released by another process"):
        await leader.task


async def test_a_foreign_annotation_is_kept_and_costs_nothing(candidate, api, clock):
    leader = candidate("a", annotations=lambda: {"ours": "1"})
    await clock.advance(1)
    api.lease["metadata"]["annotations"]["theirs"] = "2"
    api.store(api.lease)
    await clock.advance(4)
    assert leader.is_leader and api.lease["metadata"]["annotations"] == {"ours": "1", "theirs": "2"}


@pytest.mark.parametrize(("read", "write"), [(0.3, 0.9), (0.5, 1.1), (0.8, 1.2), (2.0, 2.0)])
async def test_an_api_server_that_is_slow_costs_nothing(candidate, api, clock, read, write):
    """Each single answer comes in time. But after somebody else's write, a renewal takes three requests, which together
    take longer than one request may."""

    async def slow(method):
        await clock.sleep({"get": read, "patch": write / 2, "patched": write / 2, "create": write}.get(method, 0))

    leader = candidate("a")
    leader._client.cut = slow
    await clock.advance(20)
    assert leader.is_leader, "it took the Lease"
    for _ in range(3):
        api.lease["metadata"].setdefault("annotations", {})["theirs"] = str(clock.monotonic())
        api.store(api.lease)
        await clock.advance(30)
        assert leader.is_leader and leader.work.running


async def test_an_answer_that_is_lost_is_no_theft(candidate, clock):
    leader = candidate("a")
    await clock.advance(1)

    async def lose_one(method):
        if method == "patched":
            leader._client.cut = None
            raise UnavailableError(0, "ServerDisconnectedError", "lost")

    leader._client.cut = lose_one
    await clock.advance(20)
    assert leader.is_leader and leader._client.requests.count("get") == 2


async def test_a_deleted_lease_is_made_again(candidate, api, clock):
    leader = candidate("a")
    await clock.advance(1)
    api.lease = None
    await clock.advance(2)
    assert leader.is_leader and api.holder == "a"


async def test_a_lease_that_vanished_is_its_holders_until_it_runs_out(candidate, api, clock):
    """etcd was restored or replaced: the leader notices at its next renewal, and until then a standby must not lead."""
    leader = candidate("a", lease_duration=60.0, renew_deadline=50.0, retry_period=30.0)
    await clock.advance(1)
    standby = candidate("b")
    await clock.advance(10)
    api.lease = None
    for _ in range(18):
        await clock.advance(1)
        assert api.lease is None and leader.is_leader and not standby.is_leader
    await clock.advance(20)
    assert leader.is_leader and api.holder == "a" and not standby.is_leader


async def test_a_lease_that_vanished_with_its_holder_is_taken_when_it_has_run_out(candidate, api, clock):
    leader, standby = candidate("a"), candidate("b")
    await clock.advance(5)
    assert leader.is_leader
    leader._client.cut, api.lease = hang, None
    await clock.advance(9)
    assert not standby.is_leader
    await clock.advance(20)
    assert standby.is_leader and api.holder == "b"


async def test_work_that_ends_or_fails_releases_the_lease(candidate, api, clock):
    async def fails():
        await clock.sleep(3)
        raise ValueError("the work failed")

    leader = candidate("a", fails)
    await clock.advance(5)
    with pytest.raises(ValueError, match="the work failed"):
        await leader.task
    assert api.holder == ""

    async def ends():
        await clock.sleep(3)

    leader = candidate("b", ends)
    await clock.advance(8)
    assert await leader.task is None
    assert api.holder == "" and api.lease["spec"]["leaseTransitions"] == 1


async def test_release_when_a_renewal_was_cut_off(candidate, api, clock):
    leader = candidate("a")
    await clock.advance(1)

    async def slow_answer(method):
        if method == "patched":
            leader._client.cut = None
            await clock.sleep(1)

    leader._client.cut = slow_answer
    await clock.advance(1.5)
    leader.task.cancel()
    await clock.settle()
    assert api.holder == "" and leader.task.cancelled()


async def test_a_release_that_hangs_does_not_hold_up_the_end(candidate, api, clock):
    leader = candidate("a")
    await clock.advance(1)
    leader._client.cut = hang
    leader.task.cancel()
    await clock.advance(4)
    assert leader.task.cancelled() and api.holder == "a"


async def test_cancelled_twice_it_ends_at_once_and_releases_nothing(candidate, api, clock):
    leader = candidate("a", Work(clock, ending=30))
    await clock.advance(1)
    leader.task.cancel()
    await clock.advance(1)
    leader.task.cancel()
    await clock.settle()
    assert leader.task.cancelled() and api.holder == "a"
    writes = len(api.writes)
    await clock.advance(20)
    assert len(api.writes) == writes, "nobody renews a Lease that nobody answers for"
    await clock.advance(20)


async def test_a_standby_that_is_cancelled_just_ends(candidate, api, clock):
    candidate("a")
    await clock.settle()
    standby = candidate("b")
    await clock.advance(5)
    writes = len(api.writes)
    standby.task.cancel()
    await clock.settle()
    assert standby.task.cancelled() and len(api.writes) == writes
    assert [task for task in asyncio.all_tasks() if "watch Lease" in task.get_name()] == []


@pytest.mark.parametrize("existing", [False, True])
async def test_a_candidate_that_is_cancelled_while_it_takes_the_lease_gives_it_back(candidate, api, clock, existing):
    if existing:
        candidate("a").task.cancel()
        await clock.settle()
    one = candidate("one")
    arrived = asyncio.Event()
    store = api.store

    async def cut(method):
        if method != "get" and not arrived.is_set():
            one._client.cut = None
            arrived.set()
            lease = {"metadata": {}, "spec": {"holderIdentity": "one", "leaseDurationSeconds": 15}}
            store({**(api.lease or lease), "spec": lease["spec"]} if api.lease else lease)
            await asyncio.Event().wait()  # the Lease is written, but the answer does not arrive

    one._client.cut = cut
    async with asyncio.timeout(30):
        await arrived.wait()
    one.task.cancel()
    await clock.settle()
    assert one.task.cancelled() and api.holder == ""
    standby = candidate("b")
    await clock.advance(0.1)
    assert standby.is_leader


async def test_the_lease_expires_while_a_write_to_the_cloud_may_still_happen(candidate, api, clock, caplog):
    unfinished = True
    leader = candidate("a", may_release=lambda: not unfinished)
    await clock.settle()
    standby = candidate("b")
    leader.task.cancel()
    await clock.advance(14)
    assert leader.task.done() and api.holder == "a" and not standby.is_leader
    assert "a write to the cloud may still happen" in caplog.text
    await clock.advance(6)
    assert standby.is_leader
    unfinished = False


async def test_of_many_candidates_one_leads(candidate, api, clock):
    electors = [candidate(str(number)) for number in range(5)]
    for _ in range(20):
        await clock.advance(3)
        leading = [elector for elector in electors if elector.work.running]
        assert len(leading) == 1 and leading[0].identity == api.holder
        if clock.monotonic() > 1030:
            electors.remove(leading[0])
            leading[0].task.cancel()
            if len(electors) == 1:
                break


async def test_the_same_identity_takes_its_own_lease_at_once(candidate, api, clock):
    first = candidate("a")
    await clock.settle()
    first._client.cut = hang
    again = candidate("a")
    await clock.settle()
    assert again.is_leader and api.lease["spec"]["leaseTransitions"] == 0


async def test_health(candidate, clock):
    leader = candidate("a")
    await clock.advance(1)
    assert leader.healthy(5)
    leader.renewed_at = clock.monotonic() - 15 - 4
    assert leader.healthy(5)
    leader.renewed_at = clock.monotonic() - 15 - 6
    assert not leader.healthy(5)
    leader.is_leader = False
    assert leader.healthy(5), "a standby has nothing to renew"


async def test_annotations_that_fail_do_not_cost_the_lease(candidate, clock, caplog):
    leader = candidate("a", annotations=lambda: 1 / 0)
    await clock.advance(30)
    assert leader.is_leader and "cannot update the annotations" in caplog.text


async def test_the_recorder_hears_of_it(candidate, clock):
    told = []

    class Recorder:
        def event(self, obj, type, reason, message):
            told.append((obj.kind, obj.name, type, reason, message))

    leader = candidate("a", recorder=Recorder())
    await clock.advance(1)
    leader.task.cancel()
    await clock.settle()
    assert told == [
        ("Lease", "ccm", "Normal", "LeaderElection", "a became leader"),
        ("Lease", "ccm", "Normal", "LeaderElection", "a stopped leading"),
    ]


@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Kolkata", "UTC"])
def test_times_are_utc_whatever_the_local_zone(zone, monkeypatch):
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        when = datetime.datetime.fromtimestamp(1793491200.5).astimezone()
        assert micro_time(when) == "2026-11-01T00:00:00.500000Z"
        from ccm.base.clock import SYSTEM_CLOCK

        assert abs((parse_time(micro_time(SYSTEM_CLOCK.now())).timestamp()) - time.time()) < 5
    finally:
        monkeypatch.undo()
        os.environ.get("TZ")
        time.tzset()


@pytest.mark.parametrize(
    ("record", "unchanged", "expected"),
    [
        (LeaseSpec(), 0, True),
        (LeaseSpec(""), 0, True),
        (LeaseSpec("me", 15), 0, True),
        (LeaseSpec("other", 15), 15, False),
        (LeaseSpec("other", 15), 15.1, True),
        (LeaseSpec("other", 40), 39, False),
        (LeaseSpec("other", None), 14, False),
        (LeaseSpec("other", None), 16, True),
    ],
)
def test_free(record, unchanged, expected):
    assert free(record, "me", unchanged, 15) is expected


def test_transitions():
    first = taken(LeaseSpec(), "a", 15, "t1")
    assert (first.lease_transitions, first.acquire_time) == (0, "t1")
    assert taken(first, "b", 15, "t2").lease_transitions == 1
    assert taken(released(first, "t2"), "a", 15, "t3").lease_transitions == 1
    again = taken(first, "a", 15, "t2")
    assert (again.lease_transitions, again.acquire_time, again.renew_time) == (0, "t1", "t2")


@pytest.mark.parametrize("durations", [(10, 10, 2), (15, 2, 2), (15, 10, 0), (15, 20, 2)])
def test_durations_that_cannot_work_are_refused(api, durations):
    lease, renew, retry = durations
    with pytest.raises(ValueError, match="each must be greater than the next"):
        LeaderElector(
            api.client(),
            namespace="n",
            name="x",
            identity="a",
            lease_duration=lease,
            renew_deadline=renew,
            retry_period=retry,
        )


def test_an_empty_identity_is_refused(api):
    with pytest.raises(ValueError, match="identity is empty"):
        LeaderElector(api.client(), namespace="n", name="x", identity="")
