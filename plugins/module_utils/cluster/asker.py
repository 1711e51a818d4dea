# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A server that reports the Node on which it runs, and a client of such servers. The server runs in Pods, the client in Pods and on a module's host.

A Pod gets the text of this file in its environment. Therefore the file imports only the standard library, and knows nothing of Kubernetes: only addresses,
ports and a token.
"""

from __future__ import annotations

import http.server
import json
import os
import signal
import socket
import sys
import threading
import time
from typing import Any, Dict, List, Tuple

#: Number of failures in a row after which a target is not asked again, so that the check takes a bounded time.
PATIENCE = 3

#: Number of bytes of an answer after which no more of it is read.
LONGEST = 4096

#: How an attempt may end, besides C(ok) and C(http STATUS).
REFUSED, TIMEOUT, RESET, UNREACHABLE, NAME, STRANGER = "refused", "timeout", "reset", "unreachable", "name", "stranger"


def ask(target: Dict[str, Any], token: str, timeout: float, turn: int = 0) -> Tuple[str, str]:
    """Ask once, on a connection of its own; return (how the attempt ended, the Node that answered or '').

    C(target) has C(host), C(port), C(path), and C(any) if any answer with the status 200 counts, such as that of a health check.
    C(turn) chooses among the addresses of a name: a load balancer may have one in each zone.
    """
    try:
        status, body = _get(target, timeout, turn)
    except socket.timeout:
        return TIMEOUT, ""
    except socket.gaierror:
        return NAME, ""
    except ConnectionRefusedError:
        return REFUSED, ""
    except (ConnectionError, ValueError):
        return RESET, ""
    except OSError:
        return UNREACHABLE, ""
    return _judged(target, token, status, body)


def _judged(target: Dict[str, Any], token: str, status: int, body: bytes) -> Tuple[str, str]:
    if target.get("any"):
        return ("ok" if status == 200 else "http {0}".format(status)), ""
    try:
        answer = json.loads(body.decode("utf-8"))
    except ValueError:
        answer = None
    if isinstance(answer, dict) and answer.get("token") == token:
        return "ok", str(answer.get("node") or "")
    # A load balancer answers with these statuses if it reaches no backend.
    return ("http {0}".format(status) if status in (502, 503, 504) else STRANGER), ""


def _get(target: Dict[str, Any], timeout: float, turn: int) -> Tuple[int, bytes]:
    """Return status and body. Raises OSError, and ValueError if the answer is not HTTP."""
    addresses = sorted({str(item[4][0]) for item in socket.getaddrinfo(target["host"], target["port"], type=socket.SOCK_STREAM)})
    end = time.monotonic() + timeout
    with socket.create_connection((addresses[turn % len(addresses)], target["port"]), timeout) as connection:
        connection.sendall("GET {0} HTTP/1.0\r\nHost: check\r\n\r\n".format(target.get("path", "/")).encode("ascii"))
        answer = b""
        while len(answer) < LONGEST:
            connection.settimeout(max(0.01, end - time.monotonic()))
            more = connection.recv(LONGEST)
            if not more:
                break
            answer += more
    head, unused, body = answer.partition(b"\r\n\r\n")
    return int(head.split(None, 2)[1]) if head.startswith(b"HTTP/") else _no_http(), body


def _no_http() -> int:
    raise ValueError("the connection was closed without an HTTP answer")


def ask_often(target: Dict[str, Any], token: str, timeout: float) -> Dict[str, Any]:
    """Ask a target C(count) times, or until PATIENCE attempts in a row have failed; return {name, asked, answered, nodes, errors, ms}.

    C(ms) has each answer's time in milliseconds.
    """
    result: Dict[str, Any] = {"name": target["name"], "asked": 0, "answered": 0, "nodes": {}, "errors": {}, "ms": []}
    failures = 0
    while result["asked"] < target.get("count", 1) and failures < PATIENCE:
        begun = time.monotonic()
        kind, node = ask(target, token, timeout, result["asked"])
        result["asked"] += 1
        if kind == "ok":
            failures = 0
            result["answered"] += 1
            result["ms"].append(round((time.monotonic() - begun) * 1000, 1))
            if node:
                result["nodes"][node] = result["nodes"].get(node, 0) + 1
        else:
            failures += 1
            result["errors"][kind] = result["errors"].get(kind, 0) + 1
    return result


def ask_all(job: Dict[str, Any]) -> List[Dict[str, Any]]:
    """Ask the C(targets) of a job at the same time, with its C(token) and C(timeout); return their results in the order of the targets."""
    results: Dict[int, Dict[str, Any]] = {}

    def run(place: int, target: Dict[str, Any]) -> None:
        results[place] = ask_often(target, job["token"], job["timeout"])

    threads = [threading.Thread(target=run, args=item, daemon=True) for item in enumerate(job["targets"])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [results[place] for place in sorted(results)]


class Answer(http.server.BaseHTTPRequestHandler):
    """Answers each request with the name of this Node and the token of the check."""

    def do_GET(self) -> None:
        body = json.dumps({"token": os.environ["CHECK_TOKEN"], "node": os.environ["CHECK_NODE"]}).encode("utf-8")
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Write no log, because nobody would read it."""


class Server(http.server.ThreadingHTTPServer):
    """Listens on one address, or on all addresses: of IPv4 and IPv6, if the machine has both."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: str, port: int) -> None:
        if address or not socket.has_dualstack_ipv6():
            super().__init__((address, port), Answer)
            return
        self.address_family = socket.AF_INET6
        super().__init__(("::", port), Answer, bind_and_activate=False)
        self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        self.server_bind()
        self.server_activate()


def main(arguments: List[str]) -> None:
    """Run C(serve PORT [ADDRESS]), or C(ask JOB), which prints the results as JSON."""
    if arguments[0] == "serve":
        # The first process of a container ignores signals that it does not handle.
        signal.signal(signal.SIGTERM, lambda *unused: os._exit(0))
        Server((arguments[2:] or [""])[0], int(arguments[1])).serve_forever()
    else:
        sys.stdout.write(json.dumps(ask_all(json.loads(arguments[1]))))


if __name__ == "__main__":
    main(sys.argv[1:])
