# SPDX-License-Identifier: Apache-2.0
"""The gateway through which all cloud calls go. In virtual time every wait is exact; one test takes real time."""

import asyncio
import datetime
import itertools

import pytest

from ccm.base import log_context
from ccm.cloud import (
    CloudError,
    ConfigError,
    Conflict,
    Forbidden,
    InstanceRef,
    Invalid,
    Limits,
    LoadBalancer,
    NotFound,
    Page,
    QuotaExceeded,
    RateLimited,
    RetryAfter,
    Route,
    Transient,
    Unauthorized,
)
from ccm.gateway.breaker import BREAKER_FIRST, HeldBack
from ccm.gateway.gateway import (
    ABANDONED,
    BREAKER_OPEN,
    GRACE,
    LAST_SUCCESS,
    REQUESTS,
    WAITING,
    Gateway,
)

from .fake import FakeCloud, FakeInstances, machine
from .virtual import in_virtual_time, now

DOWN = Transient("503 from the cloud")


def gateway(**limits):
    defaults = {"calls_per_second": 1e6, "burst": 10**6}
    return Gateway(FakeCloud(limits=Limits(**(defaults | limits))), clock=now)


def answer(value, *, after=0.0, calls=None):
    """Return a call that takes `after` seconds, then returns or raises `value`. `calls` gets the time of each call."""

    async def function():
        if calls is not None:
            calls.append(now())
        await asyncio.sleep(after)
        if isinstance(value, BaseException):
            raise value
        return value

    return function


async def outcome(awaitable):
    try:
        return await awaitable
    except CloudError as error:
        return Transient if isinstance(error, HeldBack) else type(error)


async def fail(gate, times, error=DOWN, operation="a.x"):
    for _ in range(times):
        with pytest.raises(type(error)):
            await gate.call(operation, answer(error))


# --- token bucket ---------------------------------------------------------------------------------------------------


@in_virtual_time
async def test_calls_keep_to_the_rate():
    gate, calls = gateway(calls_per_second=2.0, burst=2), []
    await asyncio.gather(*(gate.call("a.x", answer(1, calls=calls)) for _ in range(6)))
    assert calls == pytest.approx([1000.0, 1000.0, 1000.5, 1001.0, 1001.5, 1002.0])


@in_virtual_time
async def test_concurrency_cap():
    gate, running, most = gateway(concurrency=3), 0, 0

    async def work():
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(1.0)
        running -= 1

    await asyncio.gather(*(gate.call("a.x", work) for _ in range(10)))
    assert (most, now()) == (2, 1005.0)  # one group gets three quarters of the three slots


@in_virtual_time
async def test_waiting_for_slots_is_waiting():
    gate = gateway(concurrency=1)
    before = WAITING._sum.get()
    await asyncio.gather(*(gate.call("a.x", answer(1, after=2.0)) for _ in range(3)))
    assert WAITING._sum.get() - before == pytest.approx(0 + 2 + 4)


# --- the pause that a cloud asks for --------------------------------------------------------------------------------


@in_virtual_time
@pytest.mark.parametrize(("retry_after", "pause"), [(7.0, 7.0), (None, 5.0), (1e9, 300.0)])
async def test_rate_limited_pauses_calls_of_every_group(retry_after, pause):
    gate, calls = gateway(), []
    with pytest.raises(RateLimited, match="slow down"):
        await gate.call("a.x", answer(RateLimited("slow down", retry_after=retry_after)))
    await asyncio.gather(gate.call("a.y", answer(1, calls=calls)), gate.call("b.x", answer(1, calls=calls)))
    assert calls == [1000.0 + pause] * 2


async def test_rate_limited_needs_an_event_loop_only():
    """Without a fake clock the gateway pauses in real time, so this pause is short."""
    gate = Gateway(FakeCloud())
    loop = asyncio.get_running_loop()
    with pytest.raises(RateLimited):
        await gate.call("a.x", answer_now(RateLimited("slow down", retry_after=0.05)))
    started = loop.time()
    assert await gate.call("a.x", answer_now("ok")) == "ok"
    assert 0.04 <= loop.time() - started < 1.0


def answer_now(value):
    async def function():
        if isinstance(value, BaseException):
            raise value
        return value

    return function


@in_virtual_time
async def test_those_who_wait_for_a_token_or_a_slot_see_a_pause_that_came_later():
    gate, calls = gateway(concurrency=1, calls_per_second=1.0, burst=2), []
    first = asyncio.create_task(
        outcome(gate.call("a.x", answer(RateLimited("no", retry_after=10.0), after=0.5, calls=calls)))
    )
    others = [asyncio.create_task(gate.call("a.x", answer(1, calls=calls))) for _ in range(3)]  # 1 slot, 2 tokens
    assert await first is RateLimited
    await asyncio.gather(*others)
    assert calls == [1000.0, 1010.5, 1010.5, 1010.5]


# --- how a call ends ------------------------------------------------------------------------------------------------


@in_virtual_time
async def test_deadline():
    gate = gateway(deadline=3.0, set_by="patience")
    with pytest.raises(Transient, match=r"^a\.x: no answer within 3 s \(set by patience\)$"):
        await gate.call("a.x", answer(1, after=3.1))
    assert now() == 1003.0
    assert await gate.call("a.x", answer("just in time", after=2.9)) == "just in time"


@in_virtual_time
async def test_the_deadline_does_not_count_our_own_queue():
    gate = gateway(deadline=3.0, concurrency=1)
    assert await asyncio.gather(*(gate.call("a.x", answer(n, after=2.0)) for n in range(4))) == [0, 1, 2, 3]


@in_virtual_time
async def test_a_bug_of_the_provider_is_transient_and_named():
    gate = gateway()
    with pytest.raises(Transient, match=r"^a\.x: provider 'fake' raised ValueError: bad json$") as caught:
        await gate.call("a.x", answer(ValueError("bad json")))
    assert isinstance(caught.value.__cause__, ValueError)


@in_virtual_time
async def test_a_cancelled_error_that_nobody_caused_is_a_bug_of_the_provider():
    gate = gateway()
    with pytest.raises(Transient, match="provider 'fake' cancelled its own call"):
        await gate.call("a.x", answer(asyncio.CancelledError()))


@in_virtual_time
async def test_cancellation_reaches_the_provider_and_frees_the_slot():
    gate, ended = gateway(concurrency=1), []

    async def work():
        try:
            await asyncio.sleep(20.0)
        finally:
            ended.append(now())

    task = asyncio.create_task(gate.call("a.x", work))
    await asyncio.sleep(1.0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == [1001.0]
    assert await gate.call("a.x", answer("next")) == "next"


def counted(result):
    return REQUESTS.labels("counted.x", result)._value.get()


@in_virtual_time
@pytest.mark.parametrize(
    ("value", "after", "result"),
    [
        (1, 0.0, "success"),
        (NotFound("x"), 0.0, "NotFound"),
        (RateLimited("x", retry_after=0.1), 0.0, "RateLimited"),
        (ValueError("x"), 0.0, "bug"),
        (1, 99.0, "timeout"),
    ],
)
async def test_every_outcome_is_counted(value, after, result):
    before = counted(result)
    await outcome(gateway().call("counted.x", answer(value, after=after)))
    assert counted(result) == before + 1


@in_virtual_time
@pytest.mark.parametrize(
    ("value", "answered"),
    [
        (1, True),
        (NotFound("x"), True),
        (Conflict("x"), True),
        (Forbidden("x"), True),
        (Invalid("x"), True),
        (QuotaExceeded("x"), True),
        (RetryAfter("x", 1.0), True),
        (RateLimited("x"), False),
        (Unauthorized("x"), False),
        (Transient("x"), False),
        (ValueError("x"), False),
    ],
)
async def test_last_success(value, answered):
    gate = gateway()
    assert gate.last_success is None
    before = datetime.datetime.now(datetime.UTC)
    await outcome(gate.call("a.x", answer(value)))
    if answered:
        assert before <= gate.last_success <= datetime.datetime.now(datetime.UTC)
        assert LAST_SUCCESS._value.get() == gate.last_success.timestamp()
        assert gate.last_error == ""
    else:
        assert gate.last_success is None
        assert "x" in gate.last_error


# --- breaker --------------------------------------------------------------------------------------------------------


@in_virtual_time
async def test_breaker_opens_after_five_failures_and_holds_back_without_calling():
    gate, calls = gateway(), []
    await fail(gate, 4)
    assert BREAKER_OPEN.labels("a")._value.get() == 0
    await fail(gate, 1)
    assert BREAKER_OPEN.labels("a")._value.get() == 1
    with pytest.raises(Transient, match="not made: the cloud failed 5 times in a row, most recently: 503") as caught:
        await gate.call("a.y", answer(1, calls=calls))
    assert caught.value.retry_after == 1.0
    assert calls == []
    assert await gate.call("b.x", answer("another group")) == "another group"


@in_virtual_time
@pytest.mark.threat("tenant-cannot-stop-the-controller")
@pytest.mark.parametrize("bug", [ValueError("x"), RecursionError(), asyncio.CancelledError(), KeyError("annotation")])
async def test_a_bug_that_some_objects_bring_out_holds_back_no_other_call(bug):
    """Otherwise a tenant who finds a bug would need only five Services to stop the load balancers of all Services."""
    gate = gateway()
    for _ in range(20):
        assert issubclass(await outcome(gate.call("a.x", answer(bug))), Transient)
    assert await gate.call("a.x", answer("healthy")) == "healthy"


@in_virtual_time
async def test_a_connection_error_that_a_provider_lets_through_opens_the_breaker():
    gate = gateway()
    for _ in range(5):
        await outcome(gate.call("a.x", answer(ConnectionRefusedError("down"))))
    with pytest.raises(Transient, match="call not made"):
        await gate.call("a.x", answer(1))


@in_virtual_time
async def test_the_state_has_what_is_left_and_who_fails():
    gate = gateway(calls_per_second=2.0, burst=10)
    await fail(gate, 5)
    await outcome(gate.call("b.x", answer(RateLimited("slow down", retry_after=30.0))))
    state = gate.state
    assert [(each.group, each.failures, each.open_for) for each in state.breakers] == [("a", 5, 1.0)]
    assert "503" in state.breakers[0].last_error
    (budget,) = state.budgets
    assert (budget.group, budget.per_second, budget.burst, budget.left, budget.paused_for) == (
        *("all calls", 2.0, 10.0),
        *(4.0, 30.0),
    )
    assert state.under_way == 0


@in_virtual_time
async def test_every_line_of_a_call_has_its_operation_and_a_request_of_its_own():
    gate, seen = gateway(), []

    async def provider():
        await asyncio.sleep(0.1)
        seen.append(dict(log_context.fields()))
        return "done"

    with log_context.about(object="worker-1"):
        await asyncio.gather(gate.call("a.x", provider), gate.call("b.y", provider))
        assert dict(log_context.fields()) == {"object": "worker-1"}
    assert [each["call"] for each in seen] == ["a.x", "b.y"]
    assert all(each["object"] == "worker-1" for each in seen)
    assert len({each["request"] for each in seen}) == 2


@in_virtual_time
async def test_a_refusal_comes_at_once_and_costs_no_token():
    gate = gateway(calls_per_second=0.1, burst=6)
    await fail(gate, 5)
    for _ in range(20):
        await fail(gate, 1)  # refused without a call to the cloud
    assert await gate.call("b.x", answer("with the sixth token")) == "with the sixth token"
    assert now() == 1000.0


@in_virtual_time
async def test_breaker_lets_one_probe_through_and_closes():
    gate, calls = gateway(), []
    await fail(gate, 5)
    await asyncio.sleep(1.0)
    probe = asyncio.create_task(gate.call("a.x", answer("up again", after=2.0, calls=calls)))
    await asyncio.sleep(1.0)
    assert await outcome(gate.call("a.x", answer("second", calls=calls))) is Transient
    assert await probe == "up again"
    assert calls == [1001.0]
    assert await gate.call("a.x", answer("closed", calls=calls)) == "closed"
    assert BREAKER_OPEN.labels("a")._value.get() == 0
    await fail(gate, 4)  # the count of failures starts again
    assert await gate.call("a.x", answer("still closed")) == "still closed"


@in_virtual_time
async def test_each_failed_probe_doubles_the_time_up_to_thirty_seconds():
    gate = gateway()
    await fail(gate, 5)
    opened, probes = now(), []
    while len(probes) < 8:
        await outcome(gate.call("a.x", answer(DOWN, calls=probes)))
        await asyncio.sleep(0.5)
    gaps = [later - earlier for earlier, later in itertools.pairwise([opened, *probes])]
    assert gaps == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]


@in_virtual_time
async def test_a_success_after_probes_starts_from_the_first_time_again():
    gate, calls = gateway(), []
    await fail(gate, 5)
    for _ in range(3):
        await asyncio.sleep(30.0)
        await fail(gate, 1)
    await asyncio.sleep(30.0)
    await gate.call("a.x", answer(1))
    await fail(gate, 5)
    await asyncio.sleep(1.0)
    assert await gate.call("a.x", answer("probe", calls=calls)) == "probe"


@in_virtual_time
async def test_calls_that_fail_together_open_it_for_the_first_time_only():
    gate, calls = gateway(concurrency=20), []
    together = [gate.call("a.x", answer(DOWN, after=0.1)) for _ in range(20)]
    assert await asyncio.gather(*map(outcome, together)) == [Transient] * 20
    await asyncio.sleep(1.0)
    assert await gate.call("a.x", answer("probe", calls=calls)) == "probe"


@in_virtual_time
async def test_calls_that_wait_for_their_turn_are_not_made_once_it_is_open():
    gate, calls = gateway(concurrency=1, deadline=2.0), []
    waiting = [gate.call("a.x", answer(1, after=60.0, calls=calls)) for _ in range(30)]
    assert await asyncio.gather(*map(outcome, waiting)) == [Transient] * 30
    assert calls == [1000.0, 1002.0, 1004.0, 1006.0, 1008.0]
    assert now() == 1010.0


@in_virtual_time
async def test_a_cancelled_probe_makes_room_for_the_next_one():
    gate = gateway()
    await fail(gate, 5)
    await asyncio.sleep(1.0)
    probe = asyncio.create_task(gate.call("a.x", answer(1, after=20.0)))
    await asyncio.sleep(0.1)
    probe.cancel()
    await asyncio.gather(probe, return_exceptions=True)
    assert await gate.call("a.x", answer("next probe")) == "next probe"


@in_virtual_time
async def test_cancelling_an_older_call_lets_no_second_probe_through():
    gate, calls = gateway(), []
    old = asyncio.create_task(gate.call("a.x", answer(1, after=20.0)))
    await asyncio.sleep(0.0)
    await fail(gate, 5)
    await asyncio.sleep(1.0)
    probe = asyncio.create_task(gate.call("a.x", answer(1, after=5.0)))
    await asyncio.sleep(0.1)
    old.cancel()
    await asyncio.gather(old, return_exceptions=True)
    assert await outcome(gate.call("a.x", answer(1, calls=calls))) is Transient
    assert calls == []
    await probe


@in_virtual_time
@pytest.mark.parametrize("error", [NotFound("x"), Conflict("x"), Invalid("x"), QuotaExceeded("x")])
async def test_answers_are_no_failures(error):
    gate = gateway()
    await fail(gate, 4)
    await fail(gate, 1, error)
    await fail(gate, 4)
    assert await gate.call("a.x", answer("asked")) == "asked"


@in_virtual_time
@pytest.mark.parametrize("error", [Transient("x"), Unauthorized("x")])
async def test_what_counts_as_a_failure(error):
    gate = gateway()
    await fail(gate, 5, error)
    assert await outcome(gate.call("a.x", answer("asked"))) is Transient


# --- writes that may still happen -----------------------------------------------------------------------------------


@in_virtual_time
@pytest.mark.parametrize("operation", ["load_balancers.ensure", "routes.delete", "instance_tags.add"])
@pytest.mark.parametrize("cancelled", [True, False])
async def test_a_write_without_an_answer_may_happen_for_as_long_as_a_call_may_take(operation, cancelled):
    gate = gateway(deadline=10.0)
    assert not gate.has_unfinished_writes
    call = asyncio.create_task(gate.call(operation, answer(1, after=60.0)))
    await asyncio.sleep(5.0)
    assert gate.has_unfinished_writes
    if cancelled:
        call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    await asyncio.sleep(9.0)
    assert gate.has_unfinished_writes
    await asyncio.sleep(2.0)
    assert not gate.has_unfinished_writes


@in_virtual_time
@pytest.mark.parametrize("operation", ["instances.list", "load_balancers.get", "volumes.labels"])
async def test_reads_and_writes_that_were_answered_leave_nothing_behind(operation):
    gate = gateway()
    call = asyncio.create_task(gate.call(operation, answer(1, after=60.0)))
    await asyncio.sleep(1.0)
    assert not gate.has_unfinished_writes
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    await fail(gate, 1, Conflict("x"), "routes.create")
    assert not gate.has_unfinished_writes


@in_virtual_time
async def test_a_cloud_without_instances_has_no_directory():
    assert gateway().instances is None


# --- a provider that does what it should not (W24) ------------------------------------------------------------------


@in_virtual_time
async def test_W24_a_call_that_heeds_no_cancellation_is_left_behind():
    gate, ended = gateway(deadline=2.0), asyncio.Event()

    async def deaf():
        while not ended.is_set():
            try:
                await ended.wait()
            except asyncio.CancelledError:
                continue

    before = ABANDONED.labels("deaf.x")._value.get()
    with pytest.raises(Transient, match="no answer within 2 s"):
        await gate.call("deaf.x", deaf)
    assert now() == 1000.0 + 2.0 + GRACE
    assert ABANDONED.labels("deaf.x")._value.get() == before + 1
    assert await gate.call("deaf.x", answer("next")) == "next"  # its slot is free
    ended.set()


class Odd(BaseException):
    pass


@in_virtual_time
@pytest.mark.parametrize(
    "error",
    [
        SystemExit(3),
        KeyboardInterrupt(),
        GeneratorExit(),
        Odd("x"),
        StopAsyncIteration(),
        ExceptionGroup("g", [OSError()]),
    ],
)
async def test_W24_whatever_a_provider_raises_is_transient(error):
    gate = gateway()
    with pytest.raises(Transient, match=type(error).__name__):
        await gate.call("a.x", answer(error))
    assert await gate.call("a.x", answer("next")) == "next"


@in_virtual_time
async def test_W24_a_provider_that_raises_before_it_is_awaited():
    def function():
        raise KeyError("token")

    with pytest.raises(Transient, match="raised KeyError"):
        await gateway().call("a.x", function)
    with pytest.raises(Transient, match="raised TypeError"):
        await gateway().call("a.x", lambda: "no awaitable")


@in_virtual_time
@pytest.mark.parametrize(
    ("operation", "junk"),
    [
        ("load_balancers.get", None),
        ("load_balancers.ensure", {"name": "x"}),
        ("load_balancers.update_backends", "ready"),
        ("load_balancers.list", None),
        ("load_balancers.list", [None]),
        ("load_balancers.list", {}),
        ("routes.list", ["10.0.0.0/8"]),
        ("routes.list", (Route("10.0.0.0/8", "x") for _ in range(2))),
    ],
)
async def test_W24_junk_is_no_answer(operation, junk):
    gate = gateway()
    with pytest.raises(Transient, match="raised TypeError: expected"):
        await gate.call(operation, answer(junk))
    assert gate.last_success is None


@in_virtual_time
async def test_answers_as_agreed_pass():
    gate, balancer = gateway(), LoadBalancer("uid", "lb")
    assert await gate.call("load_balancers.ensure", answer(balancer)) is balancer
    assert await gate.call("load_balancers.list", answer([balancer])) == [balancer]
    assert await gate.call("routes.list", answer(())) == ()


@in_virtual_time
async def test_W24_one_probe_among_many_askers():
    """Half open: of a hundred concurrent callers only one calls the cloud; after its success all may call."""
    gate, calls = gateway(), []
    await fail(gate, 5)
    await asyncio.sleep(BREAKER_FIRST)
    asked = [gate.call("a.x", answer("up", after=1.0, calls=calls)) for _ in range(100)]
    outcomes = await asyncio.gather(*map(outcome, asked))
    assert len(calls) == 1 and outcomes.count("up") == 1 and outcomes.count(Transient) == 99
    assert await asyncio.gather(*(gate.call("a.x", answer("up")) for _ in range(100))) == ["up"] * 100


@in_virtual_time
async def test_since_when_it_fails():
    gate = gateway()
    assert gate.failing_since is None
    await fail(gate, 1)
    await asyncio.sleep(7)
    await fail(gate, 1)
    assert gate.failing_since == 1000.0
    assert await outcome(gate.call("a.x", answer(NotFound("no such thing")))) is NotFound
    assert gate.failing_since is None


# --- replacing the cloud (W27) --------------------------------------------------------------------------------------


class Replacement(FakeCloud):
    def __init__(self, instances=None, limits=None, *, refuses=None):
        super().__init__(instances, limits)
        self.refuses, self.closed = refuses, None

    async def start(self):
        if self.refuses:
            raise self.refuses

    async def close(self):
        assert self.closed is None, "closed twice"
        self.closed = now()


@in_virtual_time
async def test_W27_a_replaced_cloud_is_closed_when_its_calls_have_ended():
    old, new = Replacement(), Replacement()
    gate = Gateway(old, clock=now)
    running = asyncio.create_task(gate.call("a.x", answer("from the old one", after=3.0)))
    await asyncio.sleep(1.0)
    await gate.replace(new)
    await asyncio.sleep(1.0)
    assert (gate.cloud, old.closed) == (new, None)
    assert await running == "from the old one"
    await asyncio.sleep(0.1)
    assert (old.closed, new.closed) == (1003.0, None)
    await gate.close()
    assert new.closed == now()


@in_virtual_time
async def test_W27_those_who_wait_for_their_turn_go_to_the_new_one():
    old = Replacement(limits=Limits(calls_per_second=1.0, burst=1, concurrency=1))
    gate = Gateway(old, clock=now)

    async def whose():
        assert gate.cloud is new
        raise DOWN

    first = asyncio.create_task(gate.call("a.x", answer(1, after=5.0)))
    waiting = [asyncio.create_task(outcome(gate.call("a.x", whose))) for _ in range(2)]
    await asyncio.sleep(0.5)
    new = Replacement(limits=Limits(calls_per_second=1e6, burst=10**6))
    await gate.replace(new)
    assert await asyncio.gather(*waiting) == [Transient, Transient]
    assert gate.failing_since == 1005.0  # the new cloud fails
    await first


@in_virtual_time
@pytest.mark.parametrize("error", [Unauthorized("no"), DOWN, ValueError("bug")])
async def test_W27_a_cloud_that_does_not_start_changes_nothing(error):
    old, new = Replacement(), Replacement(refuses=error)
    gate = Gateway(old, clock=now)
    with pytest.raises((Unauthorized, Transient)):
        await gate.replace(new)
    assert (gate.cloud, old.closed, new.closed) == (old, None, 1000.0)
    assert await gate.call("a.x", answer("still there")) == "still there"


@in_virtual_time
async def test_W27_a_cloud_that_lacks_what_is_in_use_is_refused():
    old, new = Replacement(FakeInstances(machine("n"))), Replacement()
    gate = Gateway(old, clock=now)
    with pytest.raises(ConfigError, match="no longer offers instances"):
        await gate.replace(new)
    assert gate.cloud is old and new.closed is not None


@in_virtual_time
async def test_W27_what_was_learnt_about_the_old_one_is_forgotten():
    """Breaker, pause and instances are reset: new credentials may be valid, or belong to another project."""
    gate = Gateway(Replacement(FakeInstances(machine("old"))), clock=now)
    ref = InstanceRef("old", "fake://old")
    await gate.instances.list(not_before=now())
    late = asyncio.create_task(outcome(gate.call("b.x", answer(DOWN, after=9.0))))
    await fail(gate, 5)
    await outcome(gate.call("a.x", answer(RateLimited("slow", retry_after=60.0))))
    assert BREAKER_OPEN.labels("a")._value.get() == 1
    await gate.replace(Replacement(FakeInstances(machine("new"))))
    assert BREAKER_OPEN.labels("a")._value.get() == 0
    assert await gate.call("a.x", answer("at once")) == "at once" and now() == 1000.0
    with pytest.raises(NotFound):
        await gate.instances.lookup(ref, not_before=0.0)
    await late
    assert gate.failing_since is None  # the old one's failure says nothing about the new one


@in_virtual_time
async def test_W27_a_listing_is_not_made_of_two_projects():
    pages = FakeInstances(machine("a"), latency=1.0)
    pages.pages = {None: Page([machine("a")], next="2"), "2": Page([machine("b")])}
    gate = Gateway(Replacement(pages), clock=now)
    listing = asyncio.create_task(outcome(gate.instances.list(not_before=now())))
    await asyncio.sleep(0.5)
    other = FakeInstances(machine("c"), machine("d"))
    other.pages["2"] = Page([machine("e")])
    await gate.replace(Replacement(other))
    assert await listing is Transient
    assert set((await gate.instances.list(not_before=now())).by_id) == {"fake://c", "fake://d"}
