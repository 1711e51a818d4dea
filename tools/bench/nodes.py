# SPDX-License-Identifier: Apache-2.0
"""Benches of Nodes: initialisation by the peer and by our runtime (`sides`), at their defaults and tuned, as the
cluster grows, and with a cloud that limits calls.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from . import limits, measure, objects, sides, table, wire
from .cloud import Cloud, summary
from .cluster import NODES, Cluster
from .sides import Side
from .stage import LIMITS, TUNED, Bench, Run, running, scene

GROWTH = (100, 500, 1000, 2500, 5000)
GENERATOR_CONCURRENCIES = (8, 32, 64)
#: How many times each program is measured if the figures are close to a target, because one run says little on a shared
#: machine.
ROUNDS = 5
#: Flags that run only the controllers of Nodes.
ONLY_NODES = {"controllers": "cloud-node-controller,cloud-node-lifecycle-controller"}


async def nodes(bench: Bench) -> AsyncIterator[Run]:
    """1,000 tainted Nodes: the peer and our runtime at their defaults, both tuned, and the raw generator."""
    for side in bench.sides:
        yield await initialise(bench, side, 1000, "defaults", {})
    for number in range(ROUNDS):
        for side in bench.sides:
            yield await initialise(bench, side, 1000, "tuned", TUNED) | {"round": number}
        for form in (wire.OURS, wire.BEST):
            found = await limits.generate(bench.cluster, bench.say, 1000, limits.CONCURRENCY, form)
            yield found | {"round": number}
    for concurrency in GENERATOR_CONCURRENCIES:
        yield await limits.generate(bench.cluster, bench.say, 1000, concurrency)


async def forms(bench: Bench) -> AsyncIterator[Run]:
    """The ways to write 1,000 initialisations, each sent by the raw generator three times, in turn."""
    async for run in limits.compare(bench.cluster, bench.say, 1000):
        yield run


async def encodings(bench: Bench) -> AsyncIterator[Run]:
    """1,000 tainted Nodes, tuned: the peer, and our runtime with each encoding of requests and answers, in turn."""
    runs = []
    for number in range(ROUNDS):
        for side in (bench.peer, *sides.encodings(bench.ours)):
            runs.append(await initialise(bench, side, 1000, "tuned", TUNED) | {"form": side.form, "round": number})
            yield runs[-1]
    for run in table.medians(runs):
        bench.say(_encoded(run))


def _encoded(run: Run) -> str:
    return (
        f"median of {run['side']}, {run['form'] or 'protobuf'}: {run['seconds']:.2f} s "
        f"({run['seconds_leading']:.2f} s leading), CPU-s until Events are told: {run['cpu']:.2f}, "
        f"API server and etcd {run['api_cpu']:.2f}; {run['peak']:.0f} MiB"
    )


async def limited(bench: Bench) -> AsyncIterator[Run]:
    """1,000 tainted Nodes, and a cloud that refuses more than 20 calls a second; the peer once, as it takes so long."""
    yield await initialise(bench, bench.peer, 1000, "tuned", TUNED, limits=dict(LIMITS))
    for number in range(ROUNDS):
        run = await initialise(bench, bench.ours, 1000, "tuned", TUNED, limits=dict(LIMITS))
        yield run | {"round": number}
        found = await limits.generate(bench.cluster, bench.say, 1000, limits.CONCURRENCY)
        yield found | {"round": number}


async def growth(bench: Bench) -> AsyncIterator[Run]:
    """From 100 to 5,000 Nodes, the peer and our runtime tuned, with only the controllers of Nodes; at 5,000 also the
    cost of one refresh of all addresses.
    """
    for size in GROWTH:
        for number in range(ROUNDS if size == GROWTH[-1] else 1):
            for side in bench.sides:
                then = functools.partial(_refresh, bench, side) if (size, number) == (GROWTH[-1], 0) else None
                yield await initialise(bench, side, size, "tuned", TUNED | ONLY_NODES, then=then) | {"round": number}


async def initialise(
    bench: Bench,
    side: Side,
    size: int,
    tuning: str,
    values: Mapping[str, Any],
    *,
    limits: dict[str, Any] | None = None,
    patience: float = 500,
    then: Callable[[Path, Cloud], Awaitable[Run]] | None = None,
) -> Run:
    """Run the program `side` on `size` tainted Nodes until all are initialised and no more Events come. `then`: a
    further measurement on the initialised Nodes, after the controller has stopped."""
    cluster = bench.cluster
    async with scene(bench, size, limits=limits) as (folder, cloud):
        await cluster.create(NODES, (objects.node(number) for number in range(size)))
        version = await cluster.version(NODES)
        names = [objects.name(number) for number in range(size)]
        before, api = await cluster.writes(), cluster.usage()
        async with running(bench, side, folder, cloud, {}, values) as started:
            process = started.process
            done = await cluster.until(NODES, version, side.wire, names, objects.is_initialised, process, patience)
            at_done = {"cpu_done": process.usage().cpu, "api_cpu_done": cluster.usage().cpu - api.cpu}
            at_done["events_done"] = await cluster.events()
            leading = await started.leading
            calls = summary(await cloud.calls())
            events = await _events(cluster, size)
            used, api_after = process.usage(), cluster.usage()
            run = {
                "side": side.name,
                "tuning": tuning,
                "size": size,
                "seconds": done - process.started,
                "seconds_leading": done - leading,
                **calls,
                **at_done,
                "cpu": used.cpu,
                "peak": used.peak,
                "api_writes": measure.difference(before, await cluster.writes()),
                "api_cpu": api_after.cpu - api.cpu,
                "cloud_cpu": cloud.process.usage().cpu,
                "events": events,
            }
            if side.name == "ours":
                run["lag"] = await started.lag()
        if then is not None:
            run |= await then(folder, cloud)
    bench.say(
        f"{side.name}, {side.form or tuning}: {size} Nodes in {run['seconds']:.1f} s "
        f"({run['seconds_leading']:.1f} s leading), "
        f"{run['cloud_calls']} cloud calls ({run['cloud_refused']} refused), {run['peak']:.0f} MiB; CPU-s until done, "
        f"until Events are told: {run['cpu_done']:.2f}, {run['cpu']:.2f}; "
        f"API server {run['api_cpu_done']:.1f}, {run['api_cpu']:.1f}"
    )
    return run


async def _events(cluster: Cluster, wanted: int) -> int:
    """Wait until there is an Event for every Node, or none came for 5 s; return the number of Events."""
    found, since = -1, time.monotonic()
    while (now := await cluster.events()) < wanted and time.monotonic() - since < 5:
        if now != found:
            found, since = now, time.monotonic()
        await asyncio.sleep(0.25)
    return now


async def _refresh(bench: Bench, side: Side, folder: Path, cloud: Cloud) -> Run:
    """Measure a refresh of all addresses: start the program again on initialised Nodes. Each controller refreshes all
    addresses when it starts.
    """
    await cloud.forget()
    async with running(bench, side, folder, cloud, {}, TUNED | ONLY_NODES) as started:
        await started.leading
        await cloud.quiet(5, 300)
        return {"refresh": {**summary(await cloud.calls()), "peak": started.process.usage().peak}}
