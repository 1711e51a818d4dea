# SPDX-License-Identifier: Apache-2.0
import asyncio
import contextlib

import pytest
from prometheus_client import REGISTRY

from ccm.base.clock import FakeClock
from ccm.engine import events as module
from ccm.engine.api_errors import ConflictError, ForbiddenError, NotFoundError, UnavailableError
from ccm.engine.events import EventRecorder, reference
from ccm.engine.objects import Node, ObjectMeta, ObjectRef, Service

NODE = Node(metadata=ObjectMeta(name="n1", uid="u1"))
SERVICE = Service(metadata=ObjectMeta(name="web", namespace="shop", uid="u2"))


class Api:
    """Keeps the Events that were written. `failures`: what each next request raises before it does anything."""

    def __init__(self):
        self.events, self.failures, self.requests = {}, [], []

    def _fail(self):
        if self.failures:
            error = self.failures.pop(0)
            if error is not None:
                raise error

    async def create(self, path, body):
        self.requests.append("create")
        self._fail()
        self.events[f"{path}/{body['metadata']['name']}"] = dict(body)

    async def patch(self, path, patch):
        self.requests.append("patch")
        self._fail()
        if path not in self.events:
            raise NotFoundError(404, "NotFound", "gone")
        self.events[path] |= patch

    @property
    def only(self):
        (event,) = self.events.values()
        return event


@pytest.fixture
def api():
    return Api()


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def recorder(api, clock):
    return EventRecorder(api, "node-controller", host="h", clock=clock)


def dropped(reason):
    return REGISTRY.get_sample_value("ccm_events_dropped_total", {"reason": reason}) or 0.0


async def test_what_an_event_says(recorder, api):
    recorder.event(NODE, "Normal", "Synced", "Node synced")
    assert api.requests == [], "recording does no I/O"
    await recorder.flush(1)
    ((path, event),) = api.events.items()
    assert path.startswith("/api/v1/namespaces/default/events/n1.")
    name = event["metadata"]["name"]
    assert event == {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": "default"},
        "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "u1"},
        "type": "Normal",
        "reason": "Synced",
        "message": "Node synced",
        "count": 1,
        "firstTimestamp": "2026-01-01T00:00:00Z",
        "lastTimestamp": "2026-01-01T00:00:00Z",
        "source": {"component": "node-controller", "host": "h"},
        "reportingComponent": "node-controller",
        "reportingInstance": "h",
    }


def test_references():
    assert reference(SERVICE) == ObjectRef("v1", "Service", "web", "shop", "u2")
    lease = ObjectRef("coordination.k8s.io/v1", "Lease", "x", "kube-system")
    assert reference(lease) is lease


async def test_a_namespaced_event_is_beside_its_object(recorder, api):
    recorder.event(SERVICE, "Normal", "R", "m")
    await recorder.flush(1)
    assert api.only["metadata"]["namespace"] == "shop" and api.only["involvedObject"]["namespace"] == "shop"


async def test_the_same_within_ten_minutes_is_counted(recorder, api, clock):
    for _ in range(3):
        recorder.event(NODE, "Warning", "Failed", "no")
        await recorder.flush(1)
        await clock.advance(300)
    assert api.requests == ["create", "patch", "patch"]
    assert api.only["count"] == 3
    assert api.only["firstTimestamp"] == "2026-01-01T00:00:00Z" and api.only["lastTimestamp"] == "2026-01-01T00:10:00Z"
    await clock.advance(301)
    recorder.event(NODE, "Warning", "Failed", "no")
    await recorder.flush(1)
    assert [event["count"] for event in api.events.values()] == [3, 1]


@pytest.mark.parametrize(
    "other",
    [
        (SERVICE, "Warning", "F", "m"),
        (NODE, "Normal", "F", "m"),
        (NODE, "Warning", "G", "m"),
        (NODE, "Warning", "F", "n"),
    ],
)
async def test_what_differs_is_another_event(recorder, api, other):
    recorder.event(NODE, "Warning", "F", "m")
    recorder.event(*other)
    await recorder.flush(1)
    assert len(api.events) == 2


async def test_repetitions_before_it_is_sent_are_one_request(recorder, api):
    for _ in range(10):
        recorder.event(NODE, "Warning", "Failed", "no")
    await recorder.flush(1)
    assert api.requests == ["create"] and api.only["count"] == 10


async def test_an_event_the_server_forgot_is_made_again(recorder, api):
    recorder.event(NODE, "Normal", "R", "m")
    await recorder.flush(1)
    api.events.clear()
    recorder.event(NODE, "Normal", "R", "m")
    await recorder.flush(1)
    assert api.only["count"] == 1 and api.requests == ["create", "patch", "create"]


async def test_a_loop_about_one_object_is_stopped_after_25_and_fed_one_in_300_s(recorder, api, clock):
    before = dropped("spam")
    for number in range(40):
        recorder.event(NODE, "Warning", f"Failed{number}", "no")
    recorder.event(SERVICE, "Normal", "R", "others are not concerned")
    await recorder.flush(1)
    assert len(api.events) == 26 and dropped("spam") - before == 15
    await clock.advance(300)
    recorder.event(NODE, "Warning", "Failed", "one more")
    recorder.event(NODE, "Warning", "Failed", "too many")
    await recorder.flush(1)
    assert len(api.events) == 27


async def test_messages_that_differ_become_one_event_from_the_tenth_on(recorder, api, clock):
    """As in client-go's EventAggregator: otherwise "attempt 1", "attempt 2" ... would each be an object in etcd."""
    for number in range(14):
        recorder.event(NODE, "Warning", "Failed", f"attempt {number}")
        recorder.event(NODE, "Warning", "Other", "is another matter") if number < 3 else None
        await recorder.flush(1)
        await clock.advance(60)
    told = {event["message"]: event["count"] for event in api.events.values()}
    assert told == {f"attempt {number}": 1 for number in range(9)} | {
        "is another matter": 3,
        "(combined from similar events): attempt 13": 5,
    }
    await clock.advance(601)
    recorder.event(NODE, "Warning", "Failed", "attempt 14")
    await recorder.flush(1)
    assert "attempt 14" in [event["message"] for event in api.events.values()], "after ten quiet minutes it counts anew"


async def test_a_combined_message_is_cut_too(recorder, api):
    for number in range(10):
        recorder.event(NODE, "Warning", "Failed", f"{number}" * 2000)
    await recorder.flush(1)
    assert {len(event["message"]) for event in api.events.values()} == {1024}
    assert sum(event["message"].startswith("(combined from similar events): 9") for event in api.events.values()) == 1


async def test_a_full_queue_drops_and_counts(recorder, api, monkeypatch):
    monkeypatch.setattr(module, "QUEUE", 3)
    before = dropped("queue-full")
    for number in range(5):
        recorder.event(Node(metadata=ObjectMeta(name=f"n{number}")), "Normal", "R", "m")
    recorder.event(Node(metadata=ObjectMeta(name="n0")), "Normal", "R", "m")  # already queued, so only its count grows
    assert dropped("queue-full") - before == 2
    await recorder.flush(1)
    assert sorted(event["count"] for event in api.events.values()) == [1, 1, 2]


async def test_memory_is_bounded(recorder, monkeypatch):
    monkeypatch.setattr(module, "REMEMBERED", 10)
    for number in range(100):
        recorder.event(Node(metadata=ObjectMeta(name=f"n{number}")), "Normal", "R", "m")
    assert len(recorder._series) == len(recorder._buckets) == len(recorder._similar) == 10


async def test_what_is_over_is_forgotten(recorder, clock):
    """Otherwise, in a busy cluster, the memory of old Events would grow to its bound."""
    for number in range(100):
        recorder.event(Node(metadata=ObjectMeta(name=f"n{number}")), "Normal", "R", "m")
    await clock.advance(601)
    recorder.event(NODE, "Normal", "R", "m")
    assert len(recorder._series) == len(recorder._similar) == 1


@contextlib.asynccontextmanager
async def running(recorder):
    task = asyncio.create_task(recorder.run())
    yield task
    task.cancel()
    await asyncio.wait({task})


async def test_the_rate_of_an_object_that_is_quiet_again_is_forgotten(recorder, clock):
    """A process that sees Nodes come and go for months remembers only the latest ones."""
    for number in range(100):
        recorder.event(Node(metadata=ObjectMeta(name=f"n{number}", uid=f"u{number}")), "Normal", "Synced", "done")
        await clock.advance(60.0)
    assert len(recorder._buckets) <= 6


async def test_run_survives_an_outage_and_delivers_late(recorder, api, clock):
    api.failures = [UnavailableError(0, "", "down"), UnavailableError(503, "", "busy", retry_after=7)]
    async with running(recorder):
        recorder.event(NODE, "Normal", "R", "m")
        await clock.advance(6)
        assert api.events == {}
        await clock.advance(4)
    assert api.only["count"] == 1 and len(api.requests) == 3


async def test_an_outage_that_lasts_drops_and_goes_on(recorder, api, clock):
    before = dropped("unavailable")
    api.failures = [UnavailableError(0, "", "down")] * module.ATTEMPTS
    async with running(recorder):
        recorder.event(NODE, "Normal", "R", "m")
        recorder.event(SERVICE, "Normal", "R", "m")
        await clock.advance(60)
    assert dropped("unavailable") - before == 1 and api.only["involvedObject"]["kind"] == "Service"


async def test_what_is_refused_is_not_repeated(recorder, api):
    before = dropped("refused")
    api.failures = [ForbiddenError(403, "Forbidden", "namespace is being terminated")]
    recorder.event(NODE, "Normal", "R", "m")
    recorder.event(SERVICE, "Normal", "R", "m")
    await recorder.flush(1)
    assert dropped("refused") - before == 1 and len(api.requests) == 2 and len(api.events) == 1


GOING = 'events "web.1" is forbidden: unable to create new content in namespace shop because it is being terminated'


@pytest.mark.parametrize(
    ("error", "lines"),
    [
        (ForbiddenError(403, "Forbidden", GOING), 0),
        (NotFoundError(404, "NotFound", 'namespaces "shop" not found'), 0),
        (ForbiddenError(403, "Forbidden", "user x cannot create events"), 1),
    ],
)
async def test_a_namespace_that_goes_is_no_reason_for_a_log_line(recorder, api, caplog, error, lines):
    caplog.set_level("INFO")
    before = dropped("refused")
    api.failures = [error]
    recorder.event(SERVICE, "Normal", "R", "m")
    await recorder.flush(1)
    assert dropped("refused") - before == 1
    assert len([record for record in caplog.records if "dropped event" in record.message]) == lines


async def test_a_create_whose_answer_was_lost_is_not_doubled(recorder, api, clock):
    create, before = api.create, dropped("refused")

    async def lossy(path, body):
        if api.events:
            api.requests.append("create")
            raise ConflictError(409, "AlreadyExists", "exists")
        await create(path, body)
        raise UnavailableError(0, "ServerDisconnectedError", "lost")

    api.create = lossy
    async with running(recorder):
        recorder.event(NODE, "Normal", "R", "m")
        await clock.advance(1)
        recorder.event(NODE, "Normal", "R", "m")
        await clock.advance(1)
    assert api.requests == ["create", "create", "patch"]
    assert api.only["count"] == 2 and dropped("refused") == before


async def test_flush_ends_in_time(recorder, api):
    async def never(path, body):
        await asyncio.Event().wait()

    api.create = never
    recorder.event(NODE, "Normal", "R", "m")
    await asyncio.wait_for(recorder.flush(0.05), 60)


async def test_recording_never_raises(recorder, caplog):
    recorder.event(None, "Normal", "R", "m")
    recorder.event(NODE, "Normal", "R", None)
    assert caplog.text.count("cannot record event R") == 2


async def test_long_messages_are_cut_to_what_the_server_takes(recorder, api):
    recorder.event(NODE, "Normal", "R", "ü" * 2000)
    await recorder.flush(1)
    message = api.only["message"]
    assert len(message.encode()) <= 1024 and message.endswith("ü...")


@pytest.mark.threat("tenant-cannot-stop-the-controller")
@pytest.mark.parametrize("message", ["a\nb\x1b[2J\u202e", "\ud800", "\x00" * 1_400_000, "ü\n" * 700_000])
async def test_text_of_tenants_is_one_printable_line(recorder, api, message):
    recorder.event(NODE, "Warning", "R", f"the value {message}")
    await recorder.flush(1)
    told = api.only["message"]
    assert told.startswith("the value ") and told.isprintable() and len(told.encode()) <= 1024


async def test_a_bug_costs_the_event_that_brings_it_out_and_no_other(api, clock, recorder, caplog):
    """Otherwise the task that sends Events would end silently, and no Event would be written until a restart."""
    before = dropped("bug")
    api.failures = [TypeError("unhashable type")]
    for name in ("n0", "n1", "n2"):
        recorder.event(ObjectRef("v1", "Node", name), "Normal", "Synced", "Node synced successfully")
    async with running(recorder):
        await clock.settle()
        assert sorted(event["involvedObject"]["name"] for event in api.events.values()) == ["n1", "n2"]
        recorder.event(NODE, "Normal", "Registered", "another one, later")
        await clock.settle()
    assert len(api.events) == 3 and dropped("bug") - before == 1
    assert "dropped event Synced about n0" in caplog.text and "unhashable type" in caplog.text
