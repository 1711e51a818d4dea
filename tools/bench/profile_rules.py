# SPDX-License-Identifier: Apache-2.0
"""Assigns each sample of a stack to a part of the work, and writes the tables of parts on docs/performance.md. Pure."""

from __future__ import annotations

import gzip
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

#: (the files of the stack from the innermost frame, the moments of its samples in monotonic seconds)
Samples = list[tuple[list[str], list[float]]]
Rules = Mapping[str, Sequence[str]]

REST, LOOP = "all else: lifecycle controller, lists, servers", "the event loop, without TLS that another part waits for"
#: Part of the work -> texts in the path of a file. A sample belongs to the first part of which a file is anywhere in
#: the stack.
OURS_ANYWHERE: Rules = {
    "Events": ("ccm/engine/events.py", "ccm/controllers/shared/event_budget.py"),
    "log line": ("/logging/", "ccm/manager/logs.py"),
    "metrics": ("/prometheus_client/", "ccm/engine/metrics.py"),
    "the watch: the events of a Node are read, kept and handed on": ("ccm/engine/informer.py",),
}
#: Like OURS_ANYWHERE, for samples that it assigns to no part. Here the innermost frame whose file fits a part decides.
OURS_INNERMOST: Rules = {
    "HTTP and TLS of the two requests: aiohttp and yarl": (
        "/aiohttp/",
        "/yarl/",
        "/multidict/",
        "/propcache/",
        "/frozenlist/",
        "/aiosignal/",
        "/aiohappyeyeballs/",
        "/ssl.py",
    ),
    "the same requests in our client: retries, deadlines, credentials": (
        "ccm/engine/client.py",
        "ccm/engine/api_credentials.py",
        "ccm/engine/connection_pool.py",
        "ccm/engine/encodings.py",
        "ccm/engine/api_errors.py",
        "ccm/base/token_bucket.py",
    ),
    "the change in the Node's own bytes, twice, and its new metadata": ("ccm/engine/protobuf/",),
    "queue, and the decision": (
        "ccm/engine/queue.py",
        "ccm/base/rounds.py",
        "ccm/base/log_context.py",
        "ccm/base/clock.py",
        "ccm/controllers/nodes/node.py",
        "ccm/controllers/nodes/node_rules.py",
        "ccm/controllers/nodes/node_label_rules.py",
        "ccm/controllers/nodes/node_writes.py",
        "ccm/controllers/nodes/vouching",
        "ccm/controllers/nodes/instance_warnings.py",
        "ccm/gateway/",
    ),
    REST: ("ccm/",),
}

API_REST = "all else"
API_ANYWHERE: Rules = {
    "managed fields: who owns which field of the Node": ("structured-merge-diff", "managedfields", "fieldmanager"),
    "garbage collection": ("runtime.gcBgMarkWorker", "runtime.gcAssistAlloc", "runtime.bgsweep", "runtime.gcStart"),
    "watches: each change is kept and sent": (
        "apiserver/pkg/storage/cacher",
        "handlers.(*WatchServer)",
        "etcd3.(*watchChan)",
        "client-go/tools/cache",
    ),
    "admission": ("apiserver/pkg/admission", "plugin/pkg/admission"),
    "requests to etcd": ("go.etcd.io/etcd/client", "google.golang.org/grpc"),
}
API_INNERMOST: Rules = {
    "objects decoded, converted, copied and encoded": (
        "pkg/runtime",
        "serializer",
        "Marshal",
        "DeepCopy",
        "api/core/v1.",
        "apis/core.",
        "apis/core/v1.",
        "apis/meta/v1.",
        "pkg/conversion",
    ),
    "validation, and the order of a write": ("registry/", "validation", "handlers.", "apiserver/pkg/storage"),
    "who asks, and what they may do": ("authentication", "authorization", "authorizer", "rbac"),
    "fair queuing, metrics, audit and tracing": (
        "flowcontrol",
        "metrics",
        "prometheus",
        "pkg/audit",
        "pkg/server/filters",
        "endpoints/filters",
        "k8s.io/component-base",
        "k8s.io/klog",
        "opentelemetry",
    ),
    "HTTP, TLS and sockets": ("crypto/", "net/http", "x/net/", "internal/poll", "net.", "bufio.", "syscall."),
}


def parted(
    stacks: Iterable[tuple[Sequence[str], float]], anywhere: Rules, innermost: Rules, rest: str
) -> dict[str, float]:
    """Return the weight of each part's stacks, the heaviest part first. `stacks`: each with its weight."""
    found: Counter[str] = Counter()
    for stack, weight in stacks:
        found[_part(stack, anywhere, innermost, rest)] += weight  # type: ignore[assignment]
    return dict(found.most_common())


def _part(stack: Sequence[str], anywhere: Rules, innermost: Rules, rest: str) -> str:
    for part, marks in anywhere.items():
        if any(mark in frame for frame in stack for mark in marks):
            return part
    for frame in stack:
        for part, marks in innermost.items():
            if any(mark in frame for mark in marks):
                return part
    return rest


def ours(samples: Samples, began: float, ended: float) -> dict[str, float]:
    """Return the number of samples of each part between two moments, in monotonic seconds."""
    stacks = ((stack, float(sum(began <= moment < ended for moment in moments))) for stack, moments in samples)
    return parted((each for each in stacks if each[1]), OURS_ANYWHERE, OURS_INNERMOST, LOOP)


def api_server(profile: bytes) -> dict[str, float]:
    """Return the seconds of each part in a CPU profile of kube-apiserver (`/debug/pprof/profile`)."""
    return parted(go_stacks(profile), API_ANYWHERE, API_INNERMOST, API_REST)


def go_stacks(profile: bytes) -> Iterator[tuple[list[str], float]]:
    """Yield the functions of each stack in a profile of pprof, from the innermost one, and its seconds of CPU.

    The message is `perftools.profiles.Profile`: samples (2), locations (4), functions (5) and texts (6).
    """
    fields: dict[int, list[Any]] = {}
    for number, value in _fields(gzip.decompress(profile)):
        fields.setdefault(number, []).append(value)
    texts = [text.decode() for text in fields[6]]
    names = {(one := dict(_fields(each)))[1]: texts[one[2]] for each in fields[5]}
    places: dict[int, list[str]] = {}
    for each in fields[4]:
        parts = list(_fields(each))
        lines = [dict(_fields(value)) for number, value in parts if number == 4]
        places[dict(parts)[1]] = [names[line[1]] for line in lines]
    for each in fields[2]:
        yield [name for place in _numbers(each, 1) for name in places[place]], _numbers(each, 2)[-1] / 1e9


def _fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """Yield the number of each field of a message, and its value: an integer or bytes."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        value, at = _varint(message, at)
        if tag & 7 == 2:
            value, at = message[at : at + value], at + value  # type: ignore[assignment]
        yield tag >> 3, value


def _numbers(message: bytes, number: int) -> list[int]:
    """Return the numbers of a repeated field. Go packs them into one value if there are more than two."""
    found: list[int] = []
    for each, value in _fields(message):
        if each == number and isinstance(value, int):
            found.append(value)
        elif each == number:
            at = 0
            while at < len(value):
                one, at = _varint(value, at)
                found.append(one)
    return found


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value, shift, at = value | (byte & 127) << shift, shift + 7, at + 1
        if byte < 128:
            return value, at


# --- what a start imports --------------------------------------------------------------------------------------------

_IMPORTED = re.compile(r"^import time:\s+(\d+) \|\s+\d+ \|\s+(\S+)$", re.MULTILINE)
LIBRARY = "Python's own library"
GROUPS: Mapping[str, str] = {
    **dict.fromkeys(("ccm",), "the runtime's own modules"),
    **dict.fromkeys(
        ("aiohttp", "attr", "attrs", "yarl", "multidict", "idna", "propcache", "frozenlist", "aiosignal",
         "aiohappyeyeballs"),
        "aiohttp and what it needs",
    ),
    "prometheus_client": "prometheus_client",
    "msgspec": "msgspec",
    "uvloop": "asyncio and uvloop",
    "asyncio": "asyncio and uvloop",
}  # fmt: skip


def imports(text: str) -> dict[str, list[float]]:
    """Return the number of modules of each group, and their milliseconds, from what `python -X importtime` prints."""
    found: dict[str, list[float]] = {}
    for microseconds, module in _IMPORTED.findall(text):
        group = found.setdefault(GROUPS.get(module.partition(".")[0], LIBRARY), [0, 0.0])
        group[0] += 1
        group[1] += int(microseconds) / 1000
    return dict(sorted(found.items(), key=lambda each: -each[1][1]))


# --- the page ---------------------------------------------------------------------------------------------------------


def text(runs: Sequence[Mapping[str, Any]]) -> str:
    """Return the section of the page. `runs`: the results of the bench `profile`."""
    node = next(run for run in runs if run["tuning"] == "tuned")
    starts = {run["side"]: run for run in runs if run["tuning"] == "start"}
    size, start = node["size"], starts["ours"]
    each = {name: node[f"{name}_cpu"] / size * 1e6 for name in ("ours", "api", "etcd")}
    return TEXT.format(
        size=f"{size:,}",
        samples=f"{sum(node['parts'].values()):,.0f}",
        interval=f"{node['interval'] * 1000:g}",
        profile=f"{node['api_profile']:g}",
        ours=f"{each['ours']:,.0f}",
        api=f"{each['api']:,.0f}",
        etcd=f"{each['etcd']:,.0f}",
        ours_table=_table("what the runtime does for a Node", node["parts"], each["ours"]),
        api_table=_table("what kube-apiserver does for a Node", node["api_parts"], each["api"]),
        times=f"{(each['api'] + each['etcd']) / each['ours']:.1f}",
        start=f"{start['seconds']:.2f}",
        start_cpu=f"{start['cpu']:.2f}",
        peer_start=f"{starts['peer']['seconds']:.2f}",
        starts=start["starts"],
        python=f"{start['python']:.2f}",
        imports=_imports(start["imports"]),
    )


def _table(head: str, parts: Mapping[str, float], whole: float) -> str:
    """Return a table of the parts' microseconds, which add up to `whole`."""
    weight = sum(parts.values())
    lines = [f"| {head} | µs | share |", "| --- | ---: | ---: |"]
    lines += [f"| {part} | {whole * own / weight:,.0f} | {own / weight:.0%} |" for part, own in parts.items()]
    return "\n".join(lines)


def _imports(groups: Mapping[str, Sequence[float]]) -> str:
    lines = ["| imported before the first request | modules | ms |", "| --- | ---: | ---: |"]
    lines += [f"| {name} | {count:.0f} | {took:.0f} |" for name, (count, took) in groups.items()]
    whole = [sum(each) for each in zip(*groups.values(), strict=True)]
    return "\n".join([*lines, f"| in all | {whole[0]:.0f} | {whole[1]:.0f} |"])


TEXT = """\
{size} Nodes are initialised, tuned, with only the controllers of Nodes (`make bench BENCH=profile`). From the moment
when the process leads until the last Node is done, a Node costs {ours} µs of the runtime's CPU. The stack is sampled
every {interval} ms of CPU: {samples} samples. If a sample is due while C code such as TLS runs, it counts for the
Python function that runs next.

{ours_table}

On the API server's side, the same Node costs {times} times as much: {api} µs of kube-apiserver and {etcd} µs of
etcd. A profile of kube-apiserver, {profile} s long and taken at the same time, shows where its CPU goes:

{api_table}

Our process takes {start} s, and {start_cpu} s of CPU, until it sends its first request (medians of {starts} starts;
`python -c pass` takes {python} s of CPU). The peer takes {peer_start} s. The next table lists what our process imports
until then, as `python -X importtime` measures it:

{imports}"""
