# SPDX-License-Identifier: Apache-2.0
"""Measures only our runtime, in the largest clusters: 15,000 Nodes, and 5,000 Services.

After `nodes.initialise` has initialised the Nodes, it measures a restart, a watch that cannot be resumed, and a standby
that takes over.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from . import measure, nodes, objects
from .cloud import Cloud, summary
from .cluster import NODES, SERVICES
from .sides import BenchError
from .stage import (
    ALL_SERVICES,
    TUNED,
    TUNED_SERVICES,
    UNLIMITED,
    Bench,
    Run,
    Started,
    all_served,
    ready_nodes,
    running,
    scene,
    settled,
)

SIZES = (5_000, 15_000)
SERVICE_COUNT = 5_000
#: A longer Lease than the default: otherwise the leader exits before an API server on a busy machine has restarted.
LONG_LEASE = {"leader_elect_lease_duration": "60s", "leader_elect_renew_deadline": "45s"}
#: Seconds after which a wait in this bench fails.
PATIENCE = 900.0


async def large(bench: Bench) -> AsyncIterator[Run]:
    """15,000 Nodes: their initialisation, then a restart, a 410 and a take-over. 5,000 Services: a restart, and a Node
    that joins."""
    small, many = SIZES
    values = TUNED | nodes.ONLY_NODES
    yield await nodes.initialise(bench, bench.ours, small, "tuned", values, patience=PATIENCE)

    async def then(folder: Path, cloud: Cloud) -> Run:
        return {
            "restart": await _restart(bench, folder, cloud),
            "relist": await _relist(bench, folder, cloud),
            "takeover": await _takeover(bench, folder, cloud),
        }

    yield await nodes.initialise(bench, bench.ours, many, "tuned", values, patience=PATIENCE, then=then)
    async for run in _services(bench):
        yield run


async def _restart(bench: Bench, folder: Path, cloud: Cloud) -> Run:
    """Measure the start of a process, and its first comparison of all Nodes with the cloud."""
    await cloud.forget()
    async with running(bench, bench.ours, folder, cloud, {}, nodes.ONLY_NODES) as started:
        leading = await started.leading
        refreshed = await _refreshed(started, 1)
        await cloud.quiet(3, PATIENCE)
        run = {
            "leading": leading - started.process.started,
            "refreshed": refreshed - leading,
            **summary(await cloud.calls()),
            **await _state(started),
        }
    bench.say(
        f"ours: restart with {SIZES[-1]} Nodes: leading after {run['leading']:.2f} s, all compared "
        f"{run['refreshed']:.2f} s later, {run['cloud_calls']} cloud calls, {_told(run)}"
    )
    return run


async def _relist(bench: Bench, folder: Path, cloud: Cloud) -> Run:
    """Measure a 410: the API server restarts, no longer knows the watch's resourceVersion, and all Nodes are listed
    again. Measure also how many seconds later a Node that registers then is initialised."""
    server = bench.cluster.server
    async with running(bench, bench.ours, folder, cloud, {}, nodes.ONLY_NODES | LONG_LEASE) as started:
        await started.leading
        await _refreshed(started, 1)
        await cloud.quiet(3, PATIENCE)
        await asyncio.to_thread(server.stop)
        await asyncio.to_thread(server.compact)
        await asyncio.to_thread(server.start)
        back = time.monotonic()
        name = objects.name(0)
        await bench.cluster.request("DELETE", f"{NODES}/{name}")
        version = await bench.cluster.version(NODES)
        await bench.cluster.create(NODES, [objects.node(0)])
        done = await bench.cluster.until(
            NODES, version, bench.ours.wire, [name], objects.is_initialised, started.process, PATIENCE
        )
        run = {"seconds": done - back, "gone": _gone(await started.metrics()), **await _state(started)}
    if not run["gone"]:
        raise BenchError("no watch ended with a 410, so nothing was listed again")
    bench.say(
        f"ours: {run['seconds']:.2f} s after the API server was back and the watch got a 410, a new Node was "
        f"initialised beside {SIZES[-1]}, {_told(run)}"
    )
    return run


def _gone(metrics: str) -> int:
    return int(measure.samples(metrics, "ccm_watch_restarts_total", 'reason="gone"'))


async def _takeover(bench: Bench, folder: Path, cloud: Cloud) -> Run:
    """Measure two take-overs: a standby follows a leader that gets SIGTERM, and the next one a leader that is
    killed."""
    run: Run = {}
    async with contextlib.AsyncExitStack() as processes:
        leader = await processes.enter_async_context(running(bench, bench.ours, folder, cloud, {}, nodes.ONLY_NODES))
        await leader.leading
        for name, number in (("term", signal.SIGTERM), ("kill", signal.SIGKILL)):
            (inner := folder / name).mkdir()
            standby = await processes.enter_async_context(
                running(bench, bench.ours, inner, cloud, {}, nodes.ONLY_NODES, beside_a_leader=True)
            )
            await _cached(standby, SIZES[-1])
            await cloud.quiet(3, PATIENCE)
            begun = time.monotonic()
            leader.process.signal(number)
            leads = await asyncio.wait_for(standby.leading, 60)
            compared = await _refreshed(standby, 1)
            run[name] = {"leading": leads - begun, "refreshed": compared - leads, **await _state(standby)}
            bench.say(
                f"ours: {number.name} of the leader beside {SIZES[-1]} Nodes: the standby led after "
                f"{leads - begun:.2f} s, and had compared all Nodes {compared - leads:.2f} s later, {_told(run[name])}"
            )
            leader = standby
    return run


async def _services(bench: Bench) -> AsyncIterator[Run]:
    """Measure a restart with 5,000 unchanged Services; then a Node that joins, and a new Service."""
    size = SERVICE_COUNT
    async with scene(bench, 11) as (folder, cloud):
        await ready_nodes(bench, cloud, 10)
        version = await bench.cluster.version(ALL_SERVICES)
        await bench.cluster.create(SERVICES, (objects.service(number) for number in range(size)))
        async with running(bench, bench.ours, folder, cloud, UNLIMITED, TUNED_SERVICES) as started:
            await all_served(bench, bench.ours, started, size, version, PATIENCE)
            await cloud.quiet(3, PATIENCE)
        await cloud.forget()
        async with running(bench, bench.ours, folder, cloud, {}, {}) as started:
            leading = await started.leading
            looked_at = await settled(bench.ours, started, size, PATIENCE)
            await cloud.quiet(3, 60)
            run = {
                "side": "ours",
                "tuning": "restart",
                "size": size,
                "seconds": looked_at - started.process.started,
                "seconds_leading": looked_at - leading,
                **summary(await cloud.calls()),
                **await _state(started),
            }
        bench.say(
            f"ours: restart with {size} Services settled in {run['seconds']:.1f} s "
            f"({run['seconds_leading']:.1f} s leading), {run['cloud_calls']} cloud calls, {run['cloud_writes']} "
            f"writes, {_told(run)}"
        )
        yield run
        async with running(bench, bench.ours, folder, cloud, UNLIMITED, TUNED_SERVICES) as started:
            await started.leading
            await settled(bench.ours, started, size, PATIENCE)
            await cloud.quiet(5, PATIENCE)
            yield await _node_joins(bench, cloud, started, size)


async def _node_joins(bench: Bench, cloud: Cloud, started: Started, size: int) -> Run:
    """Add an 11th Node, which becomes a backend of all Services, and a new Service once the first update was made."""
    await cloud.forget()
    await bench.cluster.create(NODES, [objects.node(10)])
    while not await _updates(cloud):
        started.process.check()
        await asyncio.sleep(0.05)
    begun, version = time.monotonic(), await bench.cluster.version(ALL_SERVICES)
    await bench.cluster.create(SERVICES, [objects.service(size)])
    name = objects.name(size)
    served = await bench.cluster.until(
        ALL_SERVICES, version, bench.ours.wire, [name], objects.is_served, started.process, PATIENCE
    )
    await cloud.quiet(12, PATIENCE)
    calls = await cloud.calls()
    updated = [call.time + call.duration for call in calls if call.operation == "load_balancers.set_targets"]
    run = {
        "side": "ours",
        "tuning": "join",
        "size": size,
        "seconds": max(updated) - min(updated),
        "new_service": served - begun,
        "updates": len(updated),
        **summary(calls),
        **await _state(started),
    }
    bench.say(
        f"ours: a Node joined {size} Services: {run['updates']} updates in {run['seconds']:.1f} s; a new Service was "
        f"served {run['new_service']:.2f} s after the first of them, {_told(run)}"
    )
    return run


async def _updates(cloud: Cloud) -> int:
    return sum(call.operation == "load_balancers.set_targets" for call in await cloud.calls())


async def _refreshed(started: Started, times: int) -> float:
    """Wait until all Nodes have been compared with the cloud `times` times; return that moment in monotonic seconds."""
    label = 'result="success"'
    return await _until(
        started, lambda text: measure.samples(text, "ccm_node_refresh_duration_seconds_count", label) >= times
    )


async def _cached(started: Started, count: int) -> float:
    """Wait until a process has all Nodes in its cache; return that moment in monotonic seconds."""
    return await _until(started, lambda text: measure.samples(text, "ccm_cached_objects", 'name="nodes"') >= count)


async def _until(started: Started, reached: Callable[[str], bool], *, patience: float = PATIENCE) -> float:
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        started.process.check()
        with contextlib.suppress(OSError):  # not yet listening
            if reached(await started.metrics()):
                return time.monotonic()
        await asyncio.sleep(0.1)
    raise BenchError(f"{started.process.log.stem} has not got that far after {patience:g} s")


async def _state(started: Started) -> dict[str, Any]:
    usage = started.process.usage()
    return {"peak": usage.peak, "cpu": usage.cpu, "lag": await started.lag()}


def _told(run: Run) -> str:
    lag = run["lag"]
    return f"{run['peak']:.0f} MiB, event loop late {lag['above']} of {lag['taken']} times"
