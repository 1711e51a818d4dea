# SPDX-License-Identifier: Apache-2.0
"""Which answers of a URL count, and a background process that ends by itself."""

from __future__ import annotations

import http.server
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from ansible_collections.outoftree.ccm.plugins.module_utils.cluster import prober, this_machine
from ansible_collections.outoftree.ccm.plugins.modules import ccm_disruption_probe as module


@contextmanager
def server(answer: Callable[[http.server.BaseHTTPRequestHandler], None]) -> Iterator[int]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer(self)

        def log_message(self, *unused: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as found:
        thread = threading.Thread(target=found.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield found.server_port
        found.shutdown()
        thread.join()


def status(code: int) -> Callable[[http.server.BaseHTTPRequestHandler], None]:
    def answer(request: http.server.BaseHTTPRequestHandler) -> None:
        request.send_response(code)
        request.send_header("Content-Length", "0")
        request.end_headers()

    return answer


@pytest.mark.parametrize(("code", "expected"), [(200, ""), (301, ""), (404, ""), (500, "http 500"), (503, "http 503")])
def test_a_server_that_is_there_answers_and_one_that_reaches_nobody_does_not(code: int, expected: str) -> None:
    with server(status(code)) as port:
        assert prober.ask(f"http://127.0.0.1:{port}/a?b=c", 20.0) == expected


def test_path_and_query_are_asked_for() -> None:
    paths = []

    def answer(request: http.server.BaseHTTPRequestHandler) -> None:
        paths.append(request.path)
        status(200)(request)

    with server(answer) as port:
        prober.ask(f"http://127.0.0.1:{port}/healthz?full=1", 20.0)
        prober.ask(f"http://127.0.0.1:{port}", 20.0)
    assert paths == ["/healthz?full=1", "/"]


def test_each_way_of_not_answering_has_its_name() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        assert prober.ask(f"http://127.0.0.1:{port}/", 0.05) == "timeout"
        assert prober.ask(f"tcp://127.0.0.1:{port}", 20.0) == ""
    for scheme in ("http", "https", "tcp"):
        assert prober.ask(f"{scheme}://127.0.0.1:{port}", 20.0) == "refused"

    def hang_up(request: http.server.BaseHTTPRequestHandler) -> None:
        request.close_connection = True

    with server(hang_up) as port:
        assert prober.ask(f"http://127.0.0.1:{port}/", 20.0) == "reset"


@pytest.mark.parametrize(("url", "text"), [
    ("", "must begin with"), ("203.0.113.7", "must begin with"), ("ftp://a/", "must begin with"), ("http:///x", "must begin with"),
    ("http://alice:secret@a/", "must not have a password"), ("tcp://a", "needs a port"), ("http://a:b/", "ort"), ("http://[::1/", "IPv6"),
])
def test_a_url_that_cannot_be_asked_is_refused_with_the_reason(url: str, text: str) -> None:
    assert text in prober.problem_of(url)


@pytest.mark.parametrize("url", ["http://a", "https://[2001:db8::1]:8443/x", "tcp://a:1", "HTTP://A/"])
def test_a_url_that_can_be_asked_has_no_problem(url: str) -> None:
    assert prober.problem_of(url) == ""


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_what_fails_in_between_is_measured_and_nothing_is_left() -> None:
    """The server refuses requests 11 to 15 by their number, so that no clock decides."""
    codes = [200] * 10 + [503] * 5 + [200] * 1_000_000
    count = iter(range(len(codes)))
    seen: list[int] = []

    def answer(request: http.server.BaseHTTPRequestHandler) -> None:
        seen.append(next(count))
        status(codes[seen[-1]])(request)

    with server(answer) as port:
        params = {"url": f"http://127.0.0.1:{port}/", "request_timeout": 30.0, "interval": 0.01, "run": {}, "limit": 300}
        folder = prober.begin(lambda place: module.probe(place, params))
        assert os.stat(folder).st_mode & 0o777 == 0o700
        until(lambda: len(seen) >= 20)
        result = module.stopped({"folder": folder, "request_timeout": 30.0})
    assert result["errors"] == {"http 503": 5} and result["requests"] == len(seen)
    assert result["gap_count"] == 1 and result["gaps"][0]["requests"] == 5 and result["answers_now"]
    assert not os.path.exists(folder)
    assert "stopped early" in module.stopped({"folder": folder, "request_timeout": 0.1})["why"]


@pytest.mark.parametrize("end", ["run", "limit"])
def test_it_ends_by_itself_and_leaves_nothing_after_a_killed_run(end: str) -> None:
    gone = {"machine": this_machine.machine(), "pid": os.getpid(), "start": "1"}
    with server(status(200)) as port:
        params = {"url": f"http://127.0.0.1:{port}/", "request_timeout": 30.0, "interval": 0.01,
                  "run": gone if end == "run" else {}, "limit": 0 if end == "limit" else 300}
        folder = prober.begin(lambda place: module.probe(place, params))
        until(lambda: not os.path.exists(folder))


def test_a_result_without_a_folder_is_left_nowhere(tmp_path: Path) -> None:
    prober.leave(str(tmp_path / "gone"), {"requests": 1})
    assert list(tmp_path.iterdir()) == []
