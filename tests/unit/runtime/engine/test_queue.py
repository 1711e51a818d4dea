# SPDX-License-Identifier: Apache-2.0
import asyncio
import contextlib
import itertools
import logging

import pytest
from prometheus_client import CollectorRegistry

from ccm.base import log_context, tracing
from ccm.base.clock import FakeClock
from ccm.engine.api_errors import ConflictError, NotFoundError, UnavailableError
from ccm.engine.metrics import QueueMetrics
from ccm.engine.queue import Blocked, Requeue, WorkQueue


@contextlib.asynccontextmanager
async def workers(queue, process, n=1, **options):
    task = asyncio.create_task(queue.run_workers(n, process, **options))
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait({task})


@pytest.fixture
def clock():
    return FakeClock()


async def test_a_key_waits_once(clock):
    queue, seen = WorkQueue("q", clock=clock), []

    async def process(key):
        seen.append(key)

    for key in ("a", "b", "a", "a"):
        queue.add(key)
    assert queue.depth == 2
    async with workers(queue, process):
        await clock.settle()
    assert seen == ["a", "b"]


async def test_a_key_added_while_it_runs_runs_again_and_never_beside_itself(clock):
    queue, running, most, runs = WorkQueue("q", clock=clock), 0, 0, 0

    async def process(key):
        nonlocal running, most, runs
        running, runs = running + 1, runs + 1
        most = max(most, running)
        await clock.sleep(1)
        running -= 1

    queue.add("a")
    async with workers(queue, process, n=4):
        await clock.settle()
        for _ in range(3):
            queue.add("a")
        await clock.settle()
        assert (running, queue.depth) == (1, 0)
        await clock.advance(5)
    assert (most, runs) == (1, 2)


async def test_workers_share_the_keys(clock):
    queue, together, most = WorkQueue("q", clock=clock), 0, 0

    async def process(key):
        nonlocal together, most
        together += 1
        most = max(most, together)
        await clock.sleep(1)
        together -= 1

    for key in range(10):
        queue.add(key)
    async with workers(queue, process, n=3):
        await clock.advance(1.5)
        assert queue.depth == 4
        await clock.advance(10)
    assert most == 3


async def test_thousands_of_keys_that_wait_for_nothing_do_not_hold_the_event_loop(clock):
    queue, done, reached = WorkQueue("q", clock=clock), [], []

    async def process(key):
        done.append(key)

    async def beside():
        while len(done) < 1000:
            await asyncio.sleep(0)
            reached.append(len(done))

    for key in range(1000):
        queue.add(key)
    async with workers(queue, process, n=10):
        await beside()
    assert max(after - before for before, after in zip([0, *reached], reached, strict=False)) <= 10


async def test_failures_back_off_exponentially_with_jitter_up_to_the_maximum(clock):
    queue = WorkQueue("q", base_delay=1, max_delay=60, clock=clock)
    delays = [queue.retry("a") for _ in range(10)]
    for delay, full in zip(delays, [1, 2, 4, 8, 16, 32, 60, 60, 60, 60], strict=True):
        assert 0.75 * full <= delay <= full
    assert len(set(delays[6:])) == 4, "no two waits are alike"
    assert queue.failures("a") == 10
    queue.forget("a")
    assert queue.failures("a") == 0 and queue.retry("a") <= 1


async def test_a_key_that_has_failed_for_ever_still_has_a_finite_delay(clock):
    queue = WorkQueue("q", clock=clock)
    for _ in range(2000):
        delay = queue.retry("a")
    assert 750 <= delay <= 1000


async def test_an_error_is_retried_and_success_forgets_it(clock, caplog):
    queue, times = WorkQueue("q", base_delay=1, clock=clock), []

    async def process(key):
        times.append(clock.monotonic())
        if len(times) < 3:
            raise UnavailableError(503, "", "busy") if len(times) == 1 else ValueError("bug")

    queue.add("a")
    async with workers(queue, process):
        await clock.advance(10)
    assert len(times) == 3
    assert 0.75 <= times[1] - times[0] <= 1 and 1.5 <= times[2] - times[1] <= 2
    assert queue.failures("a") == 0
    expected, bug = (record for record in caplog.records if record.name == "ccm.engine.queue")
    assert expected.levelno == logging.WARNING and expected.exc_info is None
    assert bug.levelno == logging.ERROR and bug.exc_info


async def test_a_lost_race_runs_again_soon_and_is_no_failure(clock, caplog):
    queue, times, reported = WorkQueue("q", base_delay=60, clock=clock), [], []

    async def process(key):
        times.append(clock.monotonic())
        raise ConflictError(409, "Conflict", "the object has been modified")

    queue.add("a")
    async with workers(queue, process, on_error=lambda *failure: reported.append(failure)):
        await clock.advance(30)
    assert len(times) > 70
    waits = [after - before for before, after in itertools.pairwise(times)]
    assert all(0.2 <= wait <= 0.4 for wait in waits) and len(set(waits)) > 1
    assert (queue.failures("a"), queue.failures_now, reported) == (0, 0, [])
    assert not [record for record in caplog.records if record.levelno > logging.DEBUG]


async def test_an_object_that_is_not_there_is_looked_for_once_more_and_is_no_failure(clock):
    queue, times, reported = WorkQueue("q", base_delay=60, clock=clock), [], []

    async def process(key):
        times.append(clock.monotonic())
        if len(times) < 3:
            raise NotFoundError(404, "NotFound", "not found")

    queue.add("a")
    async with workers(queue, process, on_error=lambda *failure: reported.append(failure)):
        await clock.advance(60)
    waits = [after - before for before, after in itertools.pairwise(times)]
    assert len(waits) == 2 and all(5.0 <= wait <= 10.0 for wait in waits)
    assert (queue.failures("a"), queue.failures_now, reported) == (0, 0, [])


async def test_requeue_waits_and_leaves_the_failure_count_alone(clock):
    queue, times = WorkQueue("q", base_delay=1, clock=clock), []

    async def process(key):
        times.append(clock.monotonic())
        match len(times):
            case 1:
                raise ValueError
            case 2:
                raise Requeue(30)
            case 3:
                raise Requeue(0)

    queue.add("a")
    async with workers(queue, process, on_error=lambda key, error: None):
        await clock.advance(2)
        assert len(times) == 2 and queue.failures("a") == 1
        await clock.advance(28)
        assert len(times) == 2
        await clock.advance(2)
    assert len(times) == 4 and queue.failures("a") == 0


async def test_a_key_that_is_requeued_at_once_each_time_does_not_spin(clock):
    queue, times = WorkQueue("q", clock=clock), []

    async def process(key):
        times.append(clock.monotonic())
        raise Requeue(0)

    queue.add("a")
    async with workers(queue, process, on_error=lambda key, error: None):
        await clock.advance(1)
    assert len(times) <= 11


async def test_of_several_delays_the_shortest_counts(clock):
    queue, times = WorkQueue("q", clock=clock), []

    async def process(key):
        times.append(clock.monotonic() - 1000)

    queue.add_after("a", 10)
    queue.add_after("a", 3)
    queue.add_after("a", 20)
    async with workers(queue, process):
        await clock.advance(60)
    assert times == [3.0]


async def test_on_error_hears_of_it_and_may_itself_fail(clock, caplog):
    queue, heard = WorkQueue("q", base_delay=1, clock=clock), []

    async def process(key):
        raise ValueError("x")

    def on_error(key, error):
        heard.append((key, str(error)))
        raise RuntimeError("handler")

    queue.add("a")
    async with workers(queue, process, on_error=on_error):
        await clock.advance(1)
        assert heard == [("a", "x")] * 2 and queue.failures("a") == 2
    assert "the error handler failed for a" in caplog.text


async def test_a_cancellation_from_inside_is_a_failure_and_loses_no_worker(clock):
    queue, seen = WorkQueue("q", base_delay=1, clock=clock), []

    async def process(key):
        seen.append(key)
        if len(seen) == 1:
            inner = asyncio.get_running_loop().create_future()
            inner.cancel()
            await inner

    queue.add("a")
    async with workers(queue, process, on_error=lambda key, error: seen.append(type(error))):
        await clock.advance(2)
    assert seen == ["a", RuntimeError, "a"]


async def test_cancelling_ends_the_work_in_progress(clock):
    queue, ended = WorkQueue("q", clock=clock), []

    async def process(key):
        try:
            await clock.sleep(100)
        finally:
            ended.append(key)

    queue.add("a")
    queue.add("b")
    async with workers(queue, process, n=2) as task:
        await clock.settle()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert sorted(ended) == ["a", "b"]


async def test_no_workers_is_refused(clock):
    with pytest.raises(ValueError, match="at least 1"):
        await WorkQueue("q", clock=clock).run_workers(0, lambda key: asyncio.sleep(0))


async def test_metrics_are_upstreams(clock):
    registry = CollectorRegistry()
    queue = WorkQueue("service", base_delay=1, clock=clock, metrics=QueueMetrics(registry))

    def value(name, **labels):
        return registry.get_sample_value(name, {"name": "service", **labels})

    async def process(key):
        await clock.sleep(3)

    queue.add("a")
    queue.add("a")
    queue.add("b")
    await clock.advance(2)
    assert value("workqueue_depth") == 2 and value("workqueue_adds_total") == 2
    assert queue.oldest_age == 2
    async with workers(queue, process, n=1):
        await clock.advance(1)
        assert value("workqueue_depth") == 1
        assert value("workqueue_unfinished_work_seconds") == 1
        assert value("workqueue_longest_running_processor_seconds") == 1
        await clock.advance(10)
    assert queue.oldest_age == 0
    assert value("workqueue_queue_duration_seconds_sum") == 2 + 5
    assert value("workqueue_work_duration_seconds_sum") == 6
    assert value("workqueue_work_duration_seconds_bucket", le="1e-08") == 0
    assert value("workqueue_work_duration_seconds_bucket", le="10.0") == 2
    queue.retry("a")
    assert value("workqueue_retries_total") == 1


async def test_a_key_that_fails_is_remembered_with_its_reason_until_it_succeeds():
    outcomes = iter([ValueError("first"), ValueError("second"), None])
    done = asyncio.Event()
    queue: WorkQueue[str] = WorkQueue("q", base_delay=0.001)

    async def process(key):
        outcome = next(outcomes)
        if outcome is not None:
            raise outcome
        failing.extend(queue.failing)
        done.set()

    failing = []
    queue.add("a")
    task = asyncio.create_task(queue.run_workers(1, process, on_error=lambda key, error: None))
    await asyncio.wait_for(done.wait(), 60)
    await asyncio.sleep(0)
    assert [(each.key, each.error, each.tries) for each in failing] == [("a", "second", 2)]
    assert queue.failing == [] and queue.failures_now == 0
    task.cancel()


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [
        (Requeue(100), None),
        (Blocked("only a change helps"), "only a change helps"),
    ],
)
async def test_work_that_waits_does_not_fail_and_work_that_is_blocked_does(outcome, reason):
    tried = asyncio.Event()
    queue: WorkQueue[str] = WorkQueue("q")

    async def process(key):
        tried.set()
        raise outcome

    queue.add("a")
    task = asyncio.create_task(queue.run_workers(1, process))
    await asyncio.wait_for(tried.wait(), 60)
    await asyncio.sleep(0)
    assert [each.error for each in queue.failing] == ([] if reason is None else [reason])
    assert queue.delayed == (1 if reason is None else 0) and queue.running == {}
    queue.forget("a")
    assert queue.failing == []
    task.cancel()


async def test_an_error_for_which_work_waits_is_remembered():
    tried = asyncio.Event()
    queue: WorkQueue[str] = WorkQueue("q")

    async def process(key):
        tried.set()
        raise Requeue(100) from ValueError("x" * 1_000_000)

    queue.add("a")
    task = asyncio.create_task(queue.run_workers(1, process))
    await asyncio.wait_for(tried.wait(), 60)
    await asyncio.sleep(0)
    (failing,) = queue.failing
    assert failing.error.startswith("xxx") and len(failing.error) < 500 and queue.age(failing.since) >= 0
    task.cancel()


async def test_a_line_of_a_worker_says_which_key_it_is_about():
    seen, reported = {}, {}
    queue: WorkQueue[str] = WorkQueue("q", base_delay=100)

    async def process(key):
        await asyncio.sleep(0)
        seen[key] = dict(log_context.fields())
        raise ValueError

    queue.add("a")
    queue.add("b")
    async with workers(queue, process, 2, on_error=lambda key, error: reported.update({key: log_context.fields()})):
        while len(reported) < 2:
            await asyncio.sleep(0)
    expected = {key: {"queue": "q", "object": key} for key in "ab"}
    assert seen == expected and reported == expected


class Recorded(tracing.Span):
    """A span that records its name, attributes and error."""

    def __init__(self, name, attributes, outgoing):
        self.name, self.attributes, self.error = name, attributes, None

    def failed(self, error):
        self.error = error


def requeue_because_of(error):
    later = Requeue(100)
    later.__cause__ = error
    return later


@pytest.mark.parametrize(
    "outcome, error",
    [
        (None, None),
        (Requeue(100), None),
        (requeue_because_of(OSError()), OSError),
        (Blocked("no"), Blocked),
        (ValueError(), ValueError),
    ],
    ids=["success", "requeue", "requeue-cause", "blocked", "error"],
)
async def test_a_span_says_which_key_it_is_about_and_why_it_failed(outcome, error):
    spans, queue = [], WorkQueue("q", base_delay=100)

    def record(*about):
        spans.append(Recorded(*about))
        return spans[-1]

    async def process(key):
        if outcome is not None:
            raise outcome

    tracing.switch(record)
    try:
        queue.add("a")
        async with workers(queue, process, on_error=lambda key, error: None):
            while not spans or queue.running:
                await asyncio.sleep(0)
    finally:
        tracing.switch(None)
    (span,) = spans
    assert (span.name, span.attributes) == ("q", {"queue": "q", "object": "a"})
    assert span.error is None if error is None else isinstance(span.error, error)
