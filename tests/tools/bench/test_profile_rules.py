# SPDX-License-Identifier: Apache-2.0
"""Which part of the work a sample belongs to, in our runtime and in kube-apiserver."""

from __future__ import annotations

import gzip
import importlib.util
from pathlib import Path
from typing import Any

import pytest

from tools.bench import page, profile_rules

LIBRARY, PACKAGES, CCM = "/usr/lib/python3.11", "/venv/site-packages", "/src/runtime/ccm"
WRITE = [f"{CCM}/engine/client.py", f"{CCM}/controllers/nodes/node_writes.py", f"{CCM}/engine/queue.py"]
LOOP = f"{LIBRARY}/asyncio/runners.py"


@pytest.mark.parametrize(
    ("stack", "part"),
    [
        ([f"{PACKAGES}/aiohttp/client.py", *WRITE, LOOP], "HTTP and TLS"),
        ([f"{LIBRARY}/asyncio/timeouts.py", *WRITE, LOOP], "the same requests in our client"),
        ([f"{PACKAGES}/aiohttp/client_proto.py", LOOP], "HTTP and TLS"),
        ([f"{CCM}/engine/protobuf/changes.py", *WRITE, LOOP], "the change"),
        ([f"{CCM}/engine/protobuf/typed_messages.py", f"{CCM}/engine/informer.py", LOOP], "the watch"),
        ([f"{CCM}/controllers/nodes/node.py", f"{CCM}/engine/informer.py", LOOP], "the watch"),
        ([f"{CCM}/controllers/nodes/node_rules.py", f"{CCM}/engine/queue.py", LOOP], "queue"),
        ([f"{LIBRARY}/logging/__init__.py", f"{CCM}/controllers/nodes/node.py", LOOP], "log line"),
        ([f"{PACKAGES}/prometheus_client/metrics.py", *WRITE, LOOP], "metrics"),
        ([f"{PACKAGES}/aiohttp/client.py", f"{CCM}/engine/client.py", f"{CCM}/engine/events.py", LOOP], "Events"),
        ([f"{CCM}/controllers/nodes/node_lifecycle.py", LOOP], "all else"),
        ([LOOP], "the event loop"),
    ],
)
def test_a_stack_of_the_runtime_has_one_part(stack: list[str], part: str) -> None:
    (found,) = profile_rules.ours([(stack, [1.0])], 0.0, 2.0)
    assert found.startswith(part)


def test_only_samples_of_the_initialisation_count() -> None:
    (count,) = profile_rules.ours([([LOOP], [0.5, 1.0, 1.5, 2.0])], 1.0, 2.0).values()
    assert count == 2


@pytest.mark.parametrize("rules", [profile_rules.OURS_ANYWHERE, profile_rules.OURS_INNERMOST])
def test_each_file_of_ours_that_a_rule_names_exists(rules: profile_rules.Rules) -> None:
    """A file that moves must move in the rules, too; otherwise its samples count for another part."""
    runtime = Path(__file__).resolve().parents[3] / "runtime"
    marks = [mark for marks in rules.values() for mark in marks]
    ours = [mark for mark in marks if mark.startswith("ccm/")]
    assert [mark for mark in ours if not any(runtime.glob(f"{mark}*"))] == []
    packages = [mark.strip("/").removesuffix(".py") for mark in marks if not mark.startswith("ccm/")]
    assert [name for name in packages if importlib.util.find_spec(name) is None] == []


@pytest.mark.parametrize(
    ("stack", "part"),
    [
        (["runtime.mallocgc", "sigs.k8s.io/structured-merge-diff/v6/value.Less", "net/http.serve"], "managed fields"),
        (["runtime.scanobject", "runtime.gcBgMarkWorker"], "garbage collection"),
        (["crypto/tls.(*Conn).Write", "k8s.io/apiserver/pkg/endpoints/handlers.(*WatchServer).HandleHTTP"], "watches"),
        (["runtime.memmove", "google.golang.org/grpc/internal/transport.(*loopyWriter).run"], "requests to etcd"),
        (["k8s.io/api/core/v1.(*Node).Unmarshal", "net/http.serve"], "objects decoded"),
        (["crypto/tls.(*Conn).Read", "net/http.(*conn).serve"], "HTTP, TLS"),
        (["runtime.futex", "runtime.mcall"], "all else"),
    ],
)
def test_a_stack_of_the_api_server_has_one_part(stack: list[str], part: str) -> None:
    found = profile_rules.parted(
        [(stack, 1.0)], profile_rules.API_ANYWHERE, profile_rules.API_INNERMOST, profile_rules.API_REST
    )
    assert [each.startswith(part) for each in found] == [True]


def number(value: int) -> bytes:
    return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + number(value >> 7)


def field(tag: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return number(tag << 3) + number(value)
    return number(tag << 3 | 2) + number(len(value)) + value


def test_a_profile_of_go_becomes_stacks() -> None:
    """Two samples of 10 and 20 ms: `inlined` and `outer` are at one place, and `main` called them. The first sample
    packs the numbers of a field, the second has a single number in each."""
    texts = [b"", b"inlined", b"outer", b"main"]
    functions = [field(1, 300 + name) + field(2, name) for name in (1, 2, 3)]
    places = [
        field(1, 7) + field(4, field(1, 301)) + field(4, field(1, 302)),
        field(1, 8) + field(4, field(1, 303)),
    ]
    samples = [
        field(1, number(7) + number(8)) + field(2, number(1) + number(10_000_000)),
        field(1, 8) + field(2, 2) + field(2, 20_000_000),
    ]
    parts: list[tuple[int, list[bytes]]] = [(2, samples), (4, places), (5, functions), (6, texts)]
    profile = gzip.compress(b"".join(field(tag, each) for tag, found in parts for each in found))
    assert list(profile_rules.go_stacks(profile)) == [(["inlined", "outer", "main"], 0.01), (["main"], 0.02)]


def test_imports_by_group() -> None:
    text = (
        "import time: self [us] | cumulative | imported package\n"
        "import time:      1500 |       2000 |   aiohttp.client\n"
        "import time:       500 |        500 |     yarl\n"
        "import time:      3000 |       9000 | ccm.cli\n"
        "import time:       100 |        100 | email\n"
    )
    assert profile_rules.imports(text) == {
        "the runtime's own modules": [1, 3.0],
        "aiohttp and what it needs": [2, 2.0],
        profile_rules.LIBRARY: [1, 0.1],
    }


def runs() -> list[dict[str, Any]]:
    node = {
        "side": "ours",
        "tuning": "tuned",
        "size": 1000,
        "interval": 0.002,
        "parts": {"HTTP": 300.0, "queue": 100.0},
        "api_profile": 8,
        "api_parts": {"admission": 1.0, "watches": 3.0},
        "ours_cpu": 1.0,
        "api_cpu": 3.2,
        "etcd_cpu": 0.8,
    }
    start = {"tuning": "start", "size": 0, "starts": 7, "seconds": 0.4, "cpu": 0.45}
    mine = {"side": "ours", "python": 0.02, "imports": {"aiohttp and what it needs": [90, 80.4], "msgspec": [5, 3.2]}}
    return [node, start | {"side": "peer", "seconds": 0.2}, start | mine]


def test_the_parts_add_up_to_what_a_node_costs() -> None:
    text = profile_rules.text(runs())
    assert "| HTTP | 750 | 75% |\n| queue | 250 | 25% |" in text
    assert "| admission | 800 | 25% |\n| watches | 2,400 | 75% |" in text
    assert "costs 4.0 times as much: 3,200 µs of kube-apiserver and 800 µs of\netcd" in text
    assert "takes 0.40 s, and 0.45 s of CPU" in text and "The peer takes 0.20 s" in text
    assert "| in all | 95 | 84 |" in text


def test_the_page_has_the_profile_that_was_taken() -> None:
    results = page.read()
    results["profile"] = {**results["nodes"], "runs": runs()}
    assert "## Where each microsecond goes\n\n1,000 Nodes" in page.render(results)
