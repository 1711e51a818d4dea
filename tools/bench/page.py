# SPDX-License-Identifier: Apache-2.0
"""Stores raw figures as JSON, and makes docs/performance.md from them."""

from __future__ import annotations

import datetime
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from . import model, profile_rules, sizing, table, wire
from .sides import REPOSITORY

DOCS = REPOSITORY / "docs"
FIGURES = DOCS / "performance"
RAW = REPOSITORY / "build" / "bench"
PAGE = DOCS / "performance.md"
SIZING = DOCS / "reference" / "sizing.md"

#: The version of the framework that the peer is built on (k8s.io/cloud-provider), for older figures, which did not
#: record it.
UNRECORDED = "v0.36.3"
#: Two benches ran on the same kind of machine if these are equal.
SURROUNDINGS = ("cores", "memory", "processor", "Kubernetes")

Results = Mapping[str, Mapping[str, Any]]


def keep(name: str, runs: Sequence[Mapping[str, Any]], machine: Mapping[str, str], load: float) -> None:
    """Write the figures of one bench, for a closer look and for the page. `load`: the load average before the bench."""
    taken = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
    data = msgspec.json.format(
        msgspec.json.encode({"bench": name, "taken": taken, "machine": machine, "load": round(load, 1), "runs": runs})
    )
    for folder in (RAW, FIGURES):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.json").write_bytes(data + b"\n")


def read() -> dict[str, dict[str, Any]]:
    """Return the figures for the page, by bench."""
    results = {file.stem: msgspec.json.decode(file.read_bytes()) for file in sorted(FIGURES.glob("*.json"))}
    for result in results.values():
        result["machine"].setdefault("cloud-provider", UNRECORDED)
    return results


def write() -> None:
    """Write the page and its plots, and the tables of the page about sizing if `growth` and `large` have figures."""
    from . import plots

    results = read()
    plots.draw(results, FIGURES)
    PAGE.write_text(render(results))
    if {"growth", "large"} <= results.keys():
        runs = {name: result["runs"] for name, result in results.items()}
        SIZING.write_text(sizing.render(SIZING.read_text(), runs))


def render(results: Results) -> str:
    """Return the page. Pure."""
    runs = {name: result["runs"] for name, result in results.items()}
    judged = table.rows(runs)
    missed = [row for row in judged if not row.met]
    machine = results.get("nodes", next(iter(results.values())))["machine"] if results else {}
    loads = [result["load"] for result in results.values() if "load" in result]
    taken = sorted(result["taken"] for result in results.values())
    return PAGE_TEXT.format(
        verdict=f"{len(judged) - len(missed)} of {len(judged)} targets are met.",
        table=table.markdown(judged),
        framework=framework(results),
        elsewhere=elsewhere(results),
        raw=wrapped(f"Raw figures: {', '.join(f'[{name}](performance/{name}.json)' for name in results)}."),
        machine="\n".join(f"| {name} | {value} |" for name, value in machine.items()),
        taken=f"{taken[0]} to {taken[-1]}" if taken else "never",
        load=f"{min(loads):g} to {max(loads):g}" if loads else "not taken",
        growth=growth(runs["growth"]) if "growth" in runs else "",
        forms=forms(runs["wire"]) if "wire" in runs else "",
        encodings=encodings(results) if {"nodes", "encodings"} <= runs.keys() else "",
        model=model.text(runs) if {"nodes", "growth", "large"} <= runs.keys() else "",
        generator=generator(runs["nodes"]) if "nodes" in runs else "",
        cpu=cpu(runs["nodes"]) if "nodes" in runs else "",
        profile=profile(runs),
        ceiling=ceiling(runs["nodes"], runs["limited"]) if {"nodes", "limited"} <= runs.keys() else "",
    )


def profile(runs: Mapping[str, Any]) -> str:
    """Return the section about the CPU time that the runtime, kube-apiserver and etcd need for one Node, and that the
    runtime needs to start; "" if the bench `profile` has no result."""
    return PROFILE_TEXT.format(text=profile_rules.text(runs["profile"])) if "profile" in runs else ""


def framework(results: Results) -> str:
    """Return the version of the peer's framework in most benches, and the benches that had another one; "" without any.
    """
    having: dict[str, list[str]] = {}
    for name, result in results.items():
        if any(run["side"] == "peer" for run in result["runs"]):
            having.setdefault(result["machine"]["cloud-provider"], []).append(name)
    if not having:
        return ""
    usual, *others = sorted(having, key=lambda version: -len(having[version]))
    return " ".join([usual, *(f"and, in {' and '.join(having[version])}, {version}" for version in others)])


def surroundings(machine: Mapping[str, str]) -> str:
    return f"{machine['processor']}, Kubernetes {machine['Kubernetes']}"


def elsewhere(results: Results) -> str:
    """Return sentences about the benches that ran on another machine, or with another Kubernetes, than the bench of
    Nodes; "" if there are none."""
    others: dict[str, list[str]] = {}
    for name, result in results.items():
        if not alike(results["nodes"], result):
            others.setdefault(surroundings(result["machine"]), []).append(name)
    return "".join(f"\nBut {' and '.join(names)} ran on: {where}.\n" for where, names in others.items())


def alike(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return all(one["machine"].get(key) == other["machine"].get(key) for key in SURROUNDINGS)


def growth(runs: Sequence[Mapping[str, Any]]) -> str:
    """Return the table of the peer and our runtime, tuned, at each size."""
    header = (
        "Nodes",
        "side",
        "seconds",
        "from leading",
        "cloud calls",
        "CPU s",
        "with Events",
        "Events",
        "peak MiB",
        "API server CPU s",
    )
    lines = [header, ("---:",) + ("---",) + ("---:",) * 8]
    lines += [
        (
            f"{run['size']:,}",
            run["side"],
            f"{run['seconds']:.1f}",
            f"{run['seconds_leading']:.1f}",
            str(run["cloud_calls"]),
            f"{run['cpu_done']:.1f}",
            f"{run['cpu']:.1f}",
            f"{run['events']:,}",
            f"{run['peak']:.0f}",
            f"{run['api_cpu']:.1f}",
        )
        for run in sorted(table.medians(runs), key=lambda run: (run["size"], run["side"] == "ours"))
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def encodings(results: Results) -> str:
    """Return the table of the runtime in each encoding, and of the peer."""
    result = results["encodings"]
    runs = table.medians(result["runs"])
    lines = [("side", "seconds", "from leading", "CPU s", "peak MiB", "API server CPU s"), ("---", *("---:",) * 5)]
    lines += [
        (
            f"{run['side']}, {run['form']}" if run["form"] else f"{run['side']}, {result['machine']['cloud-provider']}",
            f"{run['seconds']:.2f}",
            f"{run['seconds_leading']:.2f}",
            f"{run['cpu']:.2f}",
            f"{run['peak']:.0f}",
            f"{run['api_cpu']:.2f}",
        )
        for run in runs
    ]
    json, read, both = (run for run in runs if run["form"])
    theirs = table.several(result["runs"], "peer", "seconds")
    ours = table.several(result["runs"], "ours", "seconds", form=both["form"])
    faster = sum(mine < other for mine, other in zip(ours, theirs, strict=True))
    beside = table.pick(runs, "peer")
    return ENCODINGS_TEXT.format(
        table="\n".join(f"| {' | '.join(line)} |" for line in lines),
        about=wrapped(f"{ENCODINGS_ABOUT}{other_tables(results)}"),
        gains=wrapped(
            f"The API server needs {1 - read['api_cpu'] / json['api_cpu']:.0%} less CPU if the runtime reads in "
            f"protobuf, and another {1 - both['api_cpu'] / read['api_cpu']:.0%} less if the runtime also writes in "
            f"protobuf. Writing in protobuf costs the runtime {both['cpu'] - read['cpu']:.1f} s of CPU. With both, the "
            f"runtime was faster than the peer in {faster} of {len(ours)} turns, and the API server needed "
            f"{both['api_cpu'] / beside['api_cpu']:.0%} of the CPU that it needed for the peer."
        ),
    )


def wrapped(text: str) -> str:
    return textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False)


def other_tables(results: Results) -> str:
    """Return why the figures of encodings cannot be compared with those of the other tables; "" if they can."""
    nodes, here = results["nodes"], results["encodings"]
    reasons = []
    if not alike(nodes, here):
        there = table.pick(table.medians(nodes["runs"]), "peer", tuning="tuned")["seconds"]
        reasons.append(
            f"The machine ({surroundings(here['machine'])}) is not that of the other tables, where the peer "
            f"({nodes['machine']['cloud-provider']}) took {there:.2f} s."
        )
    if "PUT nodes" not in table.pick(nodes["runs"], "ours")["api_writes"]:
        reasons.append("The runtime of the other tables still read and patched in JSON.")
    return "".join(f" {text}" for text in (*reasons, "So compare these lines only with each other.") if reasons)


def forms(runs: Sequence[Mapping[str, Any]]) -> str:
    """Return the table of the ways to write an initialisation, the cheapest first."""
    header = ("form of both writes", "seconds", "API server CPU s", "of which etcd", "generator CPU s", "bytes a Node")
    lines = [header, ("---",) + ("---:",) * 5]
    for run in sorted(table.medians(runs), key=lambda run: float(run["api_cpu"])):
        figures = [f"{run[key]:.2f}" for key in ("seconds", "api_cpu", "etcd_cpu", "cpu")]
        lines.append((run["form"], *figures, f"{run['bytes'] / run['size']:,.0f}"))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def generator(runs: Sequence[Mapping[str, Any]]) -> str:
    """Return the generator's seconds with strategic merge patches, at each concurrency."""
    found = [run for run in table.medians(runs) if run["side"] == "generator" and run["form"] == wire.OURS.name]
    return ", ".join(f"{run['tuning']} {run['seconds']:.2f} s" for run in found)


def cpu(runs: Sequence[Mapping[str, Any]]) -> str:
    """Return a clause that compares the CPU seconds of the runtime, and of the generator with strategic merge
    patches."""
    typical = table.medians(runs)
    ours = table.pick(typical, "ours", tuning="tuned")["cpu_done"]
    alone = table.pick(typical, "generator", form=wire.OURS.name, tuning="16 at a time")["cpu"]
    return f"{ours:.1f} s of CPU, start included, where the generator takes {alone:.1f} s"


def ceiling(nodes: Sequence[Mapping[str, Any]], limited: Sequence[Mapping[str, Any]]) -> str:
    """Return a sentence with two ratios: the times of the peer, tuned and beside the limited cloud, divided by the
    shortest time of the generator with strategic merge patches."""
    typical = table.medians(nodes)
    best = min(run["seconds"] for run in typical if run["side"] == "generator" and run["form"] == wire.OURS.name)
    tuned = table.pick(typical, "peer", tuning="tuned")["seconds_leading"] / best
    slow = table.pick(limited, "peer")["seconds_leading"] / best
    return (
        f" The peer, tuned, takes {tuned:.2f} times as long, and beside the limited cloud {slow:.0f} times. With "
        "such patches, ratios in the table cannot be higher; PUTs in protobuf may be faster."
    )


ENCODINGS_ABOUT = (
    "The table shows what protobuf changes (1,000 Nodes, both tuned, five runs in turn; medians; `make bench "
    "BENCH=encodings`). Seconds count from the start of the process, and CPU counts until Events are written."
)
ENCODINGS_TEXT = """
{about}

{table}

{gains}
"""
PROFILE_TEXT = """\
## Where each microsecond goes

{text}

"""
PAGE_TEXT = """\
# Performance

<!-- Made by `make bench` from docs/performance/*.json; do not edit. -->

This page compares the runtime with a peer: the upstream Go framework (`k8s.io/cloud-provider` {framework})
with a thin provider of the simulated cloud, [tools/bench/peer](../tools/bench/peer), which makes one call per question
about an instance as upstream providers do. {verdict}

{table}

"1,000 Nodes" are tainted Nodes that exist before the process starts. Their time ends when the last of them has its
addresses and no `uninitialized` taint. It begins when the Lease names the process. A single time in parentheses begins
when the process starts. The time of routes begins with the Lease, too, and that of a restart with Services when the
process starts.

## How cost grows

Both sides run only the controllers of Nodes, with `--concurrent-node-syncs=30 --kube-api-qps=10000
--kube-api-burst=10000`.

![Seconds, CPU, memory and cloud calls from 100 to 5,000 Nodes, both sides](performance/growth.svg)

{growth}

*CPU s* is the CPU time of the process until the last Node is done, and *with Events* until its Events are written, too.
If there are many Events, both sides drop some: the peer drops those that do not fit into its queue, and ours drops
those beyond 50 at once and 5 a second. *Peak MiB* is the highest resident memory of the process. In the first table,
the peak at 5,000 Nodes is the maximum of all runs, and of a second process that starts when the Nodes are done and
refreshes all their addresses. *API server CPU s* is the CPU time of kube-apiserver and etcd together.

![Each bench, peer against ours](performance/bars.svg)

## What the API server can take

The raw generator initialises 1,000 Nodes, 16 at a time, and does nothing else. It runs three times with each form of
write in the table, in turn (medians; `make bench BENCH=wire`). CBOR is not among the forms, because the API server has
it only behind an alpha gate.

{forms}

A PUT in protobuf is cheapest for the API server, because the API server then merges and translates nothing. So the
runtime initialises a Node with PUTs in protobuf: it changes the bytes that the API server sent. It keeps those bytes
only of Nodes that wait, 16 MiB at most. It writes any other Node with strategic merge patches, which the API server
answers with metadata only.
{encodings}
The runtime takes longer than the generator for two reasons. Before its first write, it makes three calls to the cloud,
one after the other (0.15 s here). Then it follows the watch that its own writes cause, and shares the two cores with
the API server: {cpu}. On a machine where the API server has
cores of its own, only the first reason remains. At 1,000 Nodes, the CPU of the API server differs as much from run to
run as from side to side; at 5,000 it does not.

With the limited cloud, the peer waits for the cloud, so its time is the same on every machine. The runtime waits for
the API server, so the ratio is lower where the API server is slower. The same code reached a ratio of 43 on an earlier
day, when the generator took 1.9 s on this machine.

{profile}## Beyond what was measured

{model}

## What features cost in calls

Tests count these calls with a stand-in of each cloud. While nothing changes, these features cost no calls.

- [Dead machines are fenced](how-to/dead-machines.md): two more reads for each machine that is off, and two PATCHes of
  its Node, one of them when the machine is back.
- [Nodes drain](how-to/replace-nodes.md#what-it-costs): a read and a write for each load balancer when a Node starts to
  drain, and again when the Node is gone or stays.
- [Labels follow the machines](how-to/labels.md): none, because the refresh lists the machines in any case.
- [A Node selector](how-to/load-balancers.md#use-some-nodes-only): none. A Node without the label costs no write when it
  joins or leaves.
- [Both families](how-to/load-balancers.md#serve-both-families): with OpenStack, two reads of subnets when the load
  balancer is created. With AWS, one read of subnets then, and two writes to convert a load balancer that exists.
- [The condition of a Service that waits](how-to/troubleshooting.md#services): no call to the cloud. The API server gets
  one PATCH when the condition is set and one when it is removed, however often the controller tries again. While the
  message changes, the API server gets at most one more a minute.
- [A kept load balancer](how-to/keep-load-balancers.md): the writes in this table, for a Service with one port and two
  Nodes. Reads follow each write until the cloud is done.

| cloud | create | delete | delete and keep | take back |
| --- | ---: | ---: | ---: | ---: |
| OpenStack | 2 | 2 | 3 | 6 |
| AWS, Network Load Balancer | 6 | 3 | 4 | 6 |
| Hetzner | 1 | 1 | 3 | 4 |

With Hetzner, each further Node costs one more write to keep the load balancer, and one more to take it back.

## How it is measured

`make bench` runs all benches and writes this page; `make bench BENCH="nodes handover"` runs two. The benches are nodes,
limited, wire, encodings, profile, growth, restart, services, join, shared, routes, handover, large, clouds and
neighbours. The last one runs only our runtime, in virtual time; `python -m tools.bench.neighbours` needs no cluster.
All other benches give both sides the same API server (kube-apiserver with its default limits, etcd without fsync,
nothing else in the cluster), the same Nodes (4 KB, as a kubelet registers them), Events on, and a fresh simulated
cloud, a separate process in which every call takes 50 ms. The sides run one after the other, never together. A watch
in the side's own encoding shows when a Node is done, so that the measurement costs the API server almost nothing. The
simulator's journal counts cloud calls.

- *Defaults*: no flag that changes speed is set. *Tuned*: both sides get `--kube-api-qps=10000 --kube-api-burst=10000`,
  and `--concurrent-node-syncs=30`, or `--concurrent-service-syncs=50` in benches that prepare Services.
- *Limited*: the cloud answers 429 beyond 20 calls a second (40 at once). Both sides are tuned; for routes, both have
  their defaults. Our runtime keeps its default limit of cloud calls.
- *The raw generator* sends the two patches of an initialisation for each of 1,000 Nodes and does nothing else:
  {generator}. No controller that writes two such patches for each Node
  can be faster than the shortest of these times.{ceiling}
- *Runs in turn*: both sides and the generator run five times, one after the other. The table has the median, and the
  minimum and maximum in parentheses.
- *Large* runs only our runtime, with the controllers of Nodes only: 15,000 Nodes are initialised. Then, beside them, a
  process starts; the API server restarts with its history compacted, so that watches get a 410; a standby takes over
  from a leader that gets SIGTERM, and another one from a leader that is killed. 5,000 Services follow. The event loop's
  lag is taken twice a second in all of these processes.
- *Three clouds* runs only our runtime, too: the simulated cloud, a second one under another name, and a file with
  machines have a third of the Nodes each. The answers of all clouds decide which cloud owns a Node. This decision and
  two more providers cost CPU that one cloud does not need.
- *Restart* ends when the work queue has finished every Service and is empty, as a metric of both sides shows. The
  peer's provider writes every load balancer without comparing first; a provider that compares would read instead.
- *New Services*: the peer works on one Service at a time (its default), so its time for 200 was calculated from its
  time for fewer. Everything else in the table was measured in full.
- *A Node joins*: it registers, is initialised, and becomes Ready 2 s later.
- *A Node joins 2,000 Nodes*: the CPU of the service controller and of the provider, from the Node's arrival until every
  load balancer has it. The clouds answer from memory, so their CPU, HTTP, and the decoding of their answers do not
  count.
- *Routes*: 101 calls, of which the cloud accepts 40 at once.

API server, sides and cloud share the cores of one machine, so the seconds here are an upper bound, and only the ratios
are meaningful. Taken {taken}; the machine's load average before the benches was {load}:

| | |
|---|---|
{machine}
{elsewhere}
{raw}
"""
