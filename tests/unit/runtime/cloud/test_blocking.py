# SPDX-License-Identifier: Apache-2.0
"""Blocking client libraries run off the event loop. Calls that hang really block a thread until an Event is set."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from prometheus_client import REGISTRY

from ccm.cloud import BlockingCalls, CloudError, NotFound, Transient


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """The Event on which hanging calls wait. It is set after the test, so that no thread outlives the test."""
    event = threading.Event()
    yield event
    event.set()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.005)


def metric(name: str, pool: str) -> float:
    return REGISTRY.get_sample_value(name, {"pool": pool}) or 0.0


class Work:
    """A function that blocks until the gate opens. `begun` is set as soon as a thread runs it."""

    def __init__(self, gate: threading.Event) -> None:
        self._gate, self.begun = gate, threading.Event()

    def __call__(self) -> bool:
        self.begun.set()
        return self._gate.wait(300)


async def test_the_event_loop_goes_on_while_a_call_blocks(gate: threading.Event) -> None:
    calls, work = BlockingCalls("goes-on", deadline=300), Work(gate)
    call = asyncio.create_task(calls.run(work))
    await until(work.begun.is_set)
    assert not call.done()
    gate.set()
    assert await call is True


async def test_threads_are_used_again_and_never_more_than_allowed(gate: threading.Event) -> None:
    calls, at_once, most, lock = BlockingCalls("bounded", threads=3, deadline=300), 0, 0, threading.Lock()
    three = threading.Barrier(3, timeout=200)

    def work() -> str:
        nonlocal at_once, most
        with lock:
            at_once += 1
            most = max(most, at_once)
        three.wait()
        with lock:
            at_once -= 1
        return threading.current_thread().name

    await asyncio.gather(*(calls.run(work) for _ in range(30)))
    assert most == 3
    assert metric("ccm_blocking_threads", "bounded") == 3
    calls.close()
    assert metric("ccm_blocking_threads", "bounded") == 0


async def test_a_call_that_hangs_ends_for_its_asker_and_its_thread_is_replaced(gate: threading.Event) -> None:
    calls = BlockingCalls("hangs", threads=1, deadline=0.1, set_by="patience", hung_limit=2)
    late = r"hangs: no answer within 0\.1 s \(set by patience\); the call was left behind \(1 hang\)"
    with pytest.raises(Transient, match=late):
        await calls.run(gate.wait)
    calls._deadline = 60.0  # for the new thread on a busy machine
    assert metric("ccm_blocking_calls_hung", "hangs") == 1
    assert await calls.run(lambda: "from the thread that took its place") == "from the thread that took its place"


async def test_beyond_the_limit_of_hung_calls_all_fail_at_once_until_one_comes_back(gate: threading.Event) -> None:
    calls = BlockingCalls("limit", threads=2, deadline=0.05)
    await asyncio.gather(*(calls.run(gate.wait) for _ in range(2)), return_exceptions=True)
    asked = False

    def ask() -> None:
        nonlocal asked
        asked = True

    with pytest.raises(Transient, match="2 earlier calls hang in the client library"):
        await calls.run(ask)
    assert not asked
    gate.set()
    await until(lambda: calls.hung == 0)
    calls._deadline = 60.0  # for a new thread on a busy machine
    await calls.run(ask)
    assert asked
    assert metric("ccm_blocking_calls_hung", "limit") == 0
    assert metric("ccm_blocking_calls_left_behind_total", "limit") == 2


async def test_a_cancelled_call_ends_at_once_and_its_late_result_is_dropped(gate: threading.Event) -> None:
    calls, work = BlockingCalls("cancelled", threads=1), Work(gate)
    call = asyncio.create_task(calls.run(work))
    await until(work.begun.is_set)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert calls.hung == 1
    gate.set()
    await until(lambda: calls.hung == 0)
    assert await calls.run(lambda: 1) == 1


async def test_waiting_for_a_thread_counts_against_the_deadline(gate: threading.Event) -> None:
    calls = BlockingCalls("waits", threads=1, deadline=0.2)
    first = asyncio.create_task(calls.run(gate.wait))
    await asyncio.sleep(0.1)
    second = asyncio.create_task(calls.run(time.sleep, 1))
    outcomes = await asyncio.gather(first, second, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [Transient, Transient]
    calls = BlockingCalls("waits", threads=1, deadline=0.1)
    calls._slots = asyncio.Semaphore(0)
    with pytest.raises(Transient, match="none of 1 threads became free"):
        await calls.run(time.sleep, 0)


class LibraryError(Exception):
    pass


def fails(error: BaseException) -> None:
    raise error


def translate(error: Exception) -> CloudError:
    return NotFound(f"translated: {error}")


@pytest.mark.parametrize(
    ("raised", "kind", "message"),
    [
        pytest.param(LibraryError("no such server"), NotFound, "translated: no such server", id="the-librarys-own"),
        pytest.param(Transient("as it is"), Transient, "^as it is$", id="of-the-contract-already"),
        pytest.param(SystemExit(3), NotFound, "translated: SystemExit: 3", id="would-end-the-event-loop"),
        pytest.param(StopIteration(), NotFound, "translated", id="that-no-future-can-hold"),
    ],
)
async def test_what_a_library_raises_becomes_the_contracts(
    raised: BaseException, kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        await BlockingCalls("raises", translate=translate).run(fails, raised)


async def test_without_translation_the_librarys_error_comes_through() -> None:
    with pytest.raises(LibraryError):
        await BlockingCalls("raises").run(fails, LibraryError())


async def test_an_iterator_is_refused_since_it_would_block_the_event_loop_later() -> None:
    with pytest.raises(TypeError, match="return a list instead"):
        await BlockingCalls("iterator").run(lambda: (page for page in [1, 2]))


async def test_the_context_is_the_askers() -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable")
    variable.set("here")
    assert await BlockingCalls("context").run(variable.get) == "here"


async def test_closed_it_takes_no_call_and_threads_at_work_end_when_they_come_back(gate: threading.Event) -> None:
    calls, work = BlockingCalls("closed"), Work(gate)
    call = asyncio.create_task(calls.run(work))
    await until(work.begun.is_set)
    calls.close()
    with pytest.raises(Transient, match="closed"):
        await calls.run(print)
    gate.set()
    assert await call
    await until(lambda: not [thread for thread in threading.enumerate() if thread.name == "closed-blocking"])


def test_a_hung_thread_outlives_the_event_loop_without_an_error(gate: threading.Event) -> None:
    errors: list[object] = []
    former, threading.excepthook = threading.excepthook, errors.append
    try:
        with pytest.raises(Transient):
            asyncio.run(BlockingCalls("outlives", deadline=0.05).run(gate.wait))
        gate.set()
        deadline = time.monotonic() + 60
        while [thread for thread in threading.enumerate() if thread.name == "outlives-blocking"]:
            assert time.monotonic() < deadline
            time.sleep(0.005)
    finally:
        threading.excepthook = former
    assert not errors
