# SPDX-License-Identifier: Apache-2.0
"""What is measured. Each bench runs the peer and ours in turn on the same API server and yields one run after another;
`table` turns runs into rows."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from tests.ports import free_port

from . import limits, measure, objects, shared_nodes
from .cloud import Cloud, internal_ip, summary
from .cluster import LEASE, LEASES, NODES, SERVICES, Cluster
from .sides import BenchError, Process, Side, flags

Run = dict[str, Any]

#: Upstream's best known tuning, given to both sides where a bench says "tuned".
TUNED = {"concurrent_node_syncs": 30, "kube_api_qps": 10000, "kube_api_burst": 10000}
TUNED_SERVICES = {"concurrent_service_syncs": 50, "kube_api_qps": 10000, "kube_api_burst": 10000}
#: For ours, where the cloud bears whatever comes.
UNLIMITED = {"calls_per_second": 10000, "burst": 10000, "concurrency": 50}
#: What a cloud bears that refuses more.
LIMITS = {"calls_per_second": 20, "burst": 40}
ALL_SERVICES = "/api/v1/services"
POD_CIDR = "10.244.0.0/16"
GROWTH = (100, 500, 1000, 2500, 5000)
GENERATOR_CONCURRENCIES = (8, 16, 32, 64)


@dataclass(frozen=True)
class Bench:
    """One `make bench` has: the cluster, both sides, and where to say what happens."""

    cluster: Cluster
    peer: Side
    ours: Side
    say: Callable[[str], None]

    @property
    def sides(self) -> tuple[Side, Side]:
        return self.peer, self.ours


@contextlib.asynccontextmanager
async def scene(
    bench: Bench, instances: int, *, limits: dict[str, Any] | None = None, **timing: float
) -> AsyncIterator[tuple[Path, Cloud]]:
    """An empty API server and a fresh cloud; everything is stopped at the end."""
    await bench.cluster.clear()
    with tempfile.TemporaryDirectory(prefix="ccm-bench-") as folder:
        names = [objects.name(number) for number in range(instances)]
        cloud = await Cloud.start(bench.ours, Path(folder), names, limits or {}, timing)
        try:
            yield Path(folder), cloud
        finally:
            await cloud.close()


@dataclass
class Started:
    """A side that runs. `leading` is the monotonic second in which its Lease said so."""

    process: Process
    leading: asyncio.Task[float]
    port: int

    async def worked(self, queue: str) -> tuple[int, int]:
        """(items that a work queue has finished, items that wait), by its metrics."""
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"https://127.0.0.1:{self.port}/metrics", ssl=False) as answer,
        ):
            return queue_figures(await answer.text(), queue)


@contextlib.asynccontextmanager
async def running(
    bench: Bench,
    side: Side,
    folder: Path,
    cloud: Cloud,
    conf: Mapping[str, Any],
    values: Mapping[str, Any],
    *,
    beside_a_leader: bool = False,
) -> AsyncIterator[Started]:
    """One process of a side; `conf` is for the cloud.conf of ours, `values` are flags."""
    port = free_port()
    (folder / "cloud.conf").write_text(cloud.conf(**(conf if side.name == "ours" else {})))
    given = {
        "cloud_provider": "sim",
        "cloud_config": folder / "cloud.conf",
        "kubeconfig": bench.cluster.kubeconfig,
        "bind_address": "127.0.0.1",
        "secure_port": port,
        "authorization_always_allow_paths": "/healthz,/metrics",
        "configure_cloud_routes": False,
        **values,
    }
    if side.name == "peer":
        given |= {"authentication_skip_lookup": True, "webhook_secure_port": 0}
    if not beside_a_leader:
        await bench.cluster.request("DELETE", f"{LEASES}/{LEASE}")
    leading = asyncio.create_task(bench.cluster.next_leader())
    await asyncio.sleep(0.2)  # the watch stands
    process = Process([*side.command, *flags(given)], folder / f"{side.name}.log", side.environment)
    try:
        yield Started(process, leading, port)
    finally:
        leading.cancel()
        await process.stop()


def queue_figures(metrics: str, queue: str) -> tuple[int, int]:
    """(finished, waiting) of the work queue `queue` in a text of metrics."""
    found = {"workqueue_work_duration_seconds_count": 0.0, "workqueue_depth": 0.0}
    for line in metrics.splitlines():
        name, brace, rest = line.partition("{")
        if brace and name in found and f'name="{queue}"' in rest:
            found[name] = float(rest.rpartition(" ")[2])
    return int(found["workqueue_work_duration_seconds_count"]), int(found["workqueue_depth"])


# --- Nodes -----------------------------------------------------------------------------------------------------------


async def nodes(bench: Bench) -> AsyncIterator[Run]:
    """1,000 tainted Nodes: both sides at their defaults, both tuned, and the API server's own limit."""
    for side in bench.sides:
        yield await initialise(bench, side, 1000, "defaults", {})
    for side in bench.sides:
        yield await initialise(bench, side, 1000, "tuned", TUNED)
    for concurrency in GENERATOR_CONCURRENCIES:
        yield await limits.generate(bench.cluster, bench.say, 1000, concurrency)


async def wire(bench: Bench) -> AsyncIterator[Run]:
    """The ways to write 1,000 initialisations, each sent by the raw generator three times, in turn."""
    async for run in limits.compare(bench.cluster, bench.say, 1000):
        yield run


async def limited(bench: Bench) -> AsyncIterator[Run]:
    """1,000 tainted Nodes, and a cloud that refuses more than 20 calls a second."""
    for side in bench.sides:
        yield await initialise(bench, side, 1000, "tuned", TUNED, limits=dict(LIMITS))


async def growth(bench: Bench) -> AsyncIterator[Run]:
    """From 100 to 5,000 Nodes, both tuned, the controllers of Nodes alone; at 5,000 also what one refresh costs
    of all addresses."""
    values = {**TUNED, "controllers": "cloud-node-controller,cloud-node-lifecycle-controller"}
    for size in GROWTH:
        for side in bench.sides:
            yield await initialise(bench, side, size, "tuned", values, refresh=size == GROWTH[-1])


async def initialise(
    bench: Bench,
    side: Side,
    size: int,
    tuning: str,
    values: Mapping[str, Any],
    *,
    limits: dict[str, Any] | None = None,
    refresh: bool = False,
    patience: float = 500,
) -> Run:
    """Start a side beside `size` tainted Nodes and wait until all are initialised and told so by Events."""
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
        if refresh:
            run["refresh"] = await _refresh(bench, side, folder, cloud, values)
            run["peak"] = max(run["peak"], run["refresh"]["peak"])
    bench.say(
        f"{side.name}, {tuning}: {size} Nodes in {run['seconds']:.1f} s ({run['seconds_leading']:.1f} s leading), "
        f"{run['cloud_calls']} cloud calls ({run['cloud_refused']} refused), {run['peak']:.0f} MiB; CPU-s until done, "
        f"until Events are told: {run['cpu_done']:.2f}, {run['cpu']:.2f}; "
        f"API server {run['api_cpu_done']:.1f}, {run['api_cpu']:.1f}"
    )
    return run


async def _events(cluster: Cluster, wanted: int) -> int:
    """Wait until there is an Event for every Node, or none came for 5 s."""
    found, since = -1, time.monotonic()
    while (now := await cluster.events()) < wanted and time.monotonic() - since < 5:
        if now != found:
            found, since = now, time.monotonic()
        await asyncio.sleep(0.25)
    return now


async def _refresh(bench: Bench, side: Side, folder: Path, cloud: Cloud, values: Mapping[str, Any]) -> dict[str, Any]:
    """Start the side again, beside Nodes that are initialised: both begin with a refresh of all addresses."""
    await cloud.forget()
    async with running(bench, side, folder, cloud, {}, values) as started:
        await started.leading
        await cloud.quiet(5, 300)
        return {**summary(await cloud.calls()), "peak": started.process.usage().peak}


# --- Services --------------------------------------------------------------------------------------------------------


async def restart(bench: Bench) -> AsyncIterator[Run]:
    """A restart beside 500 LoadBalancer Services of which none has changed; both sides at their defaults."""
    size = 500
    for side in bench.sides:
        async with scene(bench, 10) as (folder, cloud):
            await ready_nodes(bench, cloud, 10)
            version = await bench.cluster.version(ALL_SERVICES)
            await bench.cluster.create(SERVICES, (objects.service(number) for number in range(size)))
            async with running(bench, side, folder, cloud, UNLIMITED, TUNED_SERVICES) as started:
                await all_served(bench, side, started, size, version)
                await cloud.quiet(3, 120)
            await cloud.forget()
            async with running(bench, side, folder, cloud, {}, {}) as started:
                leading = await started.leading
                settled = await _settled(side, started, size, 300)
                await cloud.quiet(3, 60)
                run = {
                    "side": side.name,
                    "tuning": "defaults",
                    "size": size,
                    "seconds": settled - started.process.started,
                    "seconds_leading": settled - leading,
                    **summary(await cloud.calls()),
                }
        bench.say(
            f"{side.name}: restart beside {size} Services settled in {run['seconds']:.1f} s "
            f"({run['seconds_leading']:.1f} s leading), {run['cloud_calls']} cloud calls, {run['cloud_writes']} writes"
        )
        yield run


async def _settled(side: Side, started: Started, size: int, patience: float) -> float:
    """When all Services have been looked at; monotonic seconds."""
    deadline = time.monotonic() + patience
    while True:
        finished, waiting = await started.worked("service")
        if finished >= size and not waiting:
            return time.monotonic()
        if time.monotonic() > deadline:
            raise BenchError(f"{side.name} has looked at {finished} of {size} Services after {patience:g} s")
        started.process.check()
        await asyncio.sleep(0.1)


async def services(bench: Bench) -> AsyncIterator[Run]:
    """New Services while the cloud takes 2 s for each; both sides at their defaults. The peer makes one after the
    other, so fewer of them tell its rate."""
    for side, size in ((bench.peer, 30), (bench.ours, 200)):
        async with scene(bench, 10, load_balancer_create=2) as (folder, cloud):
            await ready_nodes(bench, cloud, 10)
            async with running(bench, side, folder, cloud, {}, {}) as started:
                await started.leading
                await cloud.quiet(3, 60)
                await cloud.forget()
                version, begun = await bench.cluster.version(ALL_SERVICES), time.monotonic()
                await bench.cluster.create(SERVICES, (objects.service(number) for number in range(size)))
                done = await all_served(bench, side, started, size, version)
                run = {
                    "side": side.name,
                    "tuning": "defaults",
                    "size": size,
                    "seconds": done - begun,
                    **summary(await cloud.calls()),
                }
        bench.say(f"{side.name}: {size} new Services in {run['seconds']:.1f} s, {run['cloud_calls']} cloud calls")
        yield run


async def join(bench: Bench) -> AsyncIterator[Run]:
    """A Node joins a cluster of 10 with 200 Services: it registers, is initialised, and 2 s later becomes Ready."""
    size = 200
    for side in bench.sides:
        async with scene(bench, 11) as (folder, cloud):
            await ready_nodes(bench, cloud, 10)
            version = await bench.cluster.version(ALL_SERVICES)
            await bench.cluster.create(SERVICES, (objects.service(number) for number in range(size)))
            async with running(bench, side, folder, cloud, UNLIMITED, TUNED_SERVICES) as started:
                await all_served(bench, side, started, size, version)
                await cloud.quiet(5, 120)
                await cloud.forget()
                version, name = await bench.cluster.version(NODES), objects.name(10)
                await bench.cluster.create(NODES, [objects.node(10, ready=False)])
                await bench.cluster.until(
                    NODES, version, side.wire, [name], objects.is_initialised, started.process, 60
                )
                await asyncio.sleep(2)
                ready = {"status": {"conditions": [objects.condition("Ready", "True", "KubeletReady")]}}
                strategic = "application/strategic-merge-patch+json"
                await bench.cluster.request("PATCH", f"{NODES}/{name}/status", ready, strategic)
                await cloud.quiet(12, 180)
                calls = await cloud.calls()
                run = {"side": side.name, "tuning": "tuned", "size": size, **summary(calls)}
                run["updates"] = sum(call.write and call.operation.startswith("load_balancers.") for call in calls)
        bench.say(f"{side.name}: one Node joined, {run['updates']} updates of {size} load balancers")
        yield run


async def shared(bench: Bench) -> AsyncIterator[Run]:
    """A Node joins 2,000 beside 1,000 Services: CPU seconds of the service controller with each provider."""
    for name in shared_nodes.CASES:
        command = [sys.executable, "-m", "tests.bench.shared_nodes", name]
        child = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        output, _ = await child.communicate()
        if child.returncode:
            raise BenchError(f"the measurement of {name} ended with {child.returncode}")
        run = {"side": "ours", "tuning": name, **json.loads(output)}
        bench.say(f"ours: one Node joins {run['nodes']}, provider {name}: {run['cpu']:.2f} CPU-s")
        yield run


async def all_served(bench: Bench, side: Side, started: Started, count: int, version: str) -> float:
    """Wait until Services that were made after `version` have addresses."""
    names = [objects.name(number) for number in range(count)]
    return await bench.cluster.until(ALL_SERVICES, version, side.wire, names, objects.is_served, started.process, 500)


async def ready_nodes(bench: Bench, cloud: Cloud, count: int, *, pod_cidrs: bool = False) -> None:
    """Initialised Nodes for the first instances."""
    ids = await cloud.provider_ids()
    await bench.cluster.create(
        NODES,
        (
            objects.node(
                number,
                provider_id=ids[objects.name(number)],
                address=internal_ip(number),
                pod_cidr=f"10.244.{number}.0/24" if pod_cidrs else "",
            )
            for number in range(count)
        ),
    )


# --- Routes, leadership ----------------------------------------------------------------------------------------------


async def routes(bench: Bench) -> AsyncIterator[Run]:
    """100 Nodes whose pod CIDRs need routes, and a cloud that refuses more than 20 calls a second."""
    size = 100
    for side in bench.sides:
        async with scene(bench, size, limits=dict(LIMITS)) as (folder, cloud):
            await ready_nodes(bench, cloud, size, pod_cidrs=True)
            await asyncio.sleep(3)  # the cloud's bucket is full again
            await cloud.forget()
            values: dict[str, Any] = {"configure_cloud_routes": True, "cluster_cidr": POD_CIDR}
            if side.name == "peer":
                values["allocate_node_cidrs"] = True
            names, version = [objects.name(number) for number in range(size)], await bench.cluster.version(NODES)
            async with running(bench, side, folder, cloud, {}, values) as started:
                done = await bench.cluster.until(
                    NODES, version, side.wire, names, objects.is_routed, started.process, 300
                )
                leading = await started.leading
                run = {
                    "side": side.name,
                    "tuning": "defaults",
                    "size": size,
                    "seconds": done - started.process.started,
                    "seconds_leading": done - leading,
                    **summary(await cloud.calls()),
                }
        bench.say(
            f"{side.name}: {size} routes in {run['seconds']:.1f} s ({run['seconds_leading']:.1f} s leading), "
            f"{run['cloud_calls']} cloud calls ({run['cloud_refused']} refused)"
        )
        yield run


async def handover(bench: Bench) -> AsyncIterator[Run]:
    """The leader gets SIGTERM while a second process stands by: the time until that one leads."""
    for side, times in ((bench.peer, 2), (bench.ours, 5)):
        async with scene(bench, 10) as (folder, cloud), contextlib.AsyncExitStack() as processes:
            await ready_nodes(bench, cloud, 10)
            leader = await processes.enter_async_context(running(bench, side, folder, cloud, {}, {}))
            await leader.leading
            took = []
            for number in range(times):
                (inner := folder / str(number)).mkdir()
                standby = await processes.enter_async_context(
                    running(bench, side, inner, cloud, {}, {}, beside_a_leader=True)
                )
                await asyncio.sleep(6)  # it has filled its caches and waits
                begun = time.monotonic()
                leader.process.terminate()
                took.append(await asyncio.wait_for(standby.leading, 60) - begun)
                await leader.process.stop()
                leader = standby
        run = {"side": side.name, "tuning": "defaults", "size": times, "seconds": max(took), "each": took}
        bench.say(f"{side.name}: handed over in {', '.join(f'{seconds:.2f} s' for seconds in took)}")
        yield run


BENCHES: Mapping[str, Callable[[Bench], AsyncIterator[Run]]] = {
    "nodes": nodes,
    "wire": wire,
    "limited": limited,
    "growth": growth,
    "restart": restart,
    "services": services,
    "join": join,
    "shared": shared,
    "routes": routes,
    "handover": handover,
}
