# SPDX-License-Identifier: Apache-2.0
"""Log lines that quote tenants' text: a tenant can neither inject a second line nor log a mebibyte."""

import io
import json
import logging

import pytest

from ccm.base.log_context import about
from ccm.manager import logs

pytestmark = pytest.mark.threat("tenant-cannot-stop-the-controller")

FORGED = "x\n2026-01-01T00:00:00.000Z INFO ccm.manager.leadership: leading\x1b[2J\u2028y"


@pytest.fixture
def written(monkeypatch):
    """Return a function that configures a format and returns a logger and a reader of the lines so far."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    out = io.StringIO()
    log = logging.getLogger("ccm.test")

    def use(format):
        monkeypatch.setattr("sys.stderr", out)
        logs.configure(format, 0)
        return log, lambda: out.getvalue().splitlines()

    yield use
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.mark.parametrize("format", ["text", "json"])
def test_a_message_is_one_line(written, format):
    log, lines = written(format)
    log.warning("%s: %s", "shop/web", FORGED)
    (line,) = lines()
    assert "\x1b" not in line and "\n" not in line
    message = json.loads(line)["msg"] if format == "json" else line.partition("ccm.test: ")[2]
    assert message == r"shop/web: x\n2026-01-01T00:00:00.000Z INFO ccm.manager.leadership: leading\x1b[2J\u2028y"


@pytest.mark.parametrize("format", ["text", "json"])
def test_a_message_has_a_longest_length(written, format):
    log, lines = written(format)
    log.warning("%s", "\x00" * 1_400_000)
    (line,) = lines()
    assert len(line) < 7 * logs.MESSAGE_LIMIT and "(1400000 characters)" in line


def test_a_traceback_forges_no_line(written):
    log, lines = written("text")
    try:
        raise ValueError(FORGED + "\n" * 1000 + "a" * 1_000_000)
    except ValueError:
        log.exception("failed")
    first, *trace = lines()
    assert first.endswith("ERROR ccm.test: failed")
    assert all(line.startswith("    ") and line.isprintable() for line in trace)
    assert len(trace) <= logs.TRACE_LINES + 1 and sum(map(len, trace)) < 100_000


def test_a_traceback_in_json_is_one_line(written):
    log, lines = written("json")
    try:
        raise ValueError(FORGED)
    except ValueError:
        log.exception("failed")
    (line,) = lines()
    assert "ValueError: x" in json.loads(line)["exception"] and "\x1b" not in json.loads(line)["exception"]


@pytest.mark.parametrize("format", ["text", "json"])
def test_a_line_says_what_it_is_about(written, format):
    log, lines = written(format)
    with about(queue="Nodes", object="worker-1"), about(call="instances.list", request="0000002a"):
        log.warning("slow")
    log.warning("other")
    first, second = lines()
    if format == "json":
        found = json.loads(first)
        assert [found[key] for key in ("msg", "queue", "object", "call", "request")] == [
            *("slow", "Nodes", "worker-1"),
            *("instances.list", "0000002a"),
        ]
        assert set(json.loads(second)) == {"ts", "level", "logger", "msg"}
    else:
        assert first.endswith('slow queue="Nodes" object="worker-1" call="instances.list" request="0000002a"')
        assert second.endswith(" other")


@pytest.mark.parametrize("format", ["text", "json"])
def test_a_field_forges_nothing_and_is_short(written, format):
    log, lines = written(format)
    with about(object='"' + FORGED + "x" * 1_000_000):
        log.warning("m")
    (line,) = lines()
    assert "\x1b" not in line and len(line) < 7 * logs.FIELD_LIMIT + 500


@pytest.mark.parametrize(("verbosity", "shown"), [(0, False), (3, False), (4, True), (9, True)])
def test_decisions_are_shown_from_verbosity_4_as_in_upstream(monkeypatch, written, verbosity, shown):
    log, lines = written("text")
    logs.configure("text", verbosity)
    log.debug("a decision")
    assert bool(lines()) is shown
