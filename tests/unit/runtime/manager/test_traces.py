# SPDX-License-Identifier: Apache-2.0
"""When traces are exported, what is logged if export fails, and that OpenTelemetry logs little and no secrets."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator

import pytest

from ccm.base import tracing
from ccm.base.start_error import StartError
from ccm.manager import traces
from tests.ports import free_port

COLLECTOR = "http://collector:4318"


@pytest.mark.parametrize(
    "environment, wanted",
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, False),
        ({"OTEL_SERVICE_NAME": "ccm"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": COLLECTOR}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": COLLECTOR}, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": COLLECTOR, "OTEL_SDK_DISABLED": "True"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": COLLECTOR, "OTEL_SDK_DISABLED": "false"}, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": COLLECTOR, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, True),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, False),
    ],
)
def test_an_endpoint_switches_them_on(environment: dict[str, str], wanted: bool):
    assert traces.wanted(environment) is wanted


def test_another_protocol_is_refused():
    environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": COLLECTOR, "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "grpc"}
    with pytest.raises(StartError, match=r"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL is 'grpc'.*http/protobuf only"):
        traces.wanted(environment)


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "opentelemetry"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)  # as if OpenTelemetry were not installed
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", COLLECTOR)
    with pytest.raises(StartError, match=r"OTEL_EXPORTER_OTLP_ENDPOINT asks.*outoftree-ccm\[otel\]"):
        traces.start()
    assert tracing.span("Nodes", {}) is tracing.NOTHING


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Callable[[], None]]]:
    """Return a function that starts traces with these variables. By default, nothing listens at the endpoint."""
    library, connections = logging.getLogger("opentelemetry"), logging.getLogger("urllib3.connectionpool")
    before = library.propagate, library.handlers, library.level, list(connections.filters)
    running = []

    def start(**variables: str) -> Callable[[], None]:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{free_port()}")
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        running.append(traces.start())
        return running[0]

    yield start
    for stop in running:
        stop()
    library.propagate, library.handlers, connections.filters = before[0], before[1], before[3]
    library.setLevel(before[2])


def test_one_line_says_that_a_collector_is_away(start: Callable[..., Callable[[], None]], caplog, monkeypatch):
    monkeypatch.setattr(logging, "logThreads", False)  # as logs.configure does
    caplog.set_level(logging.DEBUG)
    stop = start(OTEL_BSP_SCHEDULE_DELAY="50", OTEL_EXPORTER_OTLP_TIMEOUT="0.2")
    for _ in range(3):
        with tracing.span("Nodes", {"object": "node-1"}):
            pass
    stop()
    logging.getLogger("opentelemetry.sdk._shared_internal").warning("Queue full, dropping Span.")
    assert tracing.span("Nodes", {}) is tracing.NOTHING
    (line,) = [record.getMessage() for record in caplog.records if "traces: " in record.getMessage()]
    assert "Failed to export spans" in line or "Transient error" in line
    assert not [record for record in caplog.records if record.name.startswith(("opentelemetry", "urllib3"))]


def test_no_line_has_a_credential(start: Callable[..., Callable[[], None]], caplog):
    caplog.set_level(logging.DEBUG)
    stop = start(
        OTEL_EXPORTER_OTLP_HEADERS="a-credential-without-its-name",
        OTEL_EXPORTER_OTLP_ENDPOINT="user:a-credential@collector",
    )
    with tracing.span("Nodes", {"object": "node-1"}):
        pass
    stop()
    assert "...@collector" in caplog.text
    assert "a-credential" not in caplog.text
