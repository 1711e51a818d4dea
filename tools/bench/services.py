# SPDX-License-Identifier: Apache-2.0
"""Benches of Services: a restart, new ones, and a Node that joins."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator

from . import objects, shared_nodes
from .cloud import summary
from .cluster import NODES, SERVICES
from .sides import BenchError
from .stage import (
    ALL_SERVICES,
    TUNED_SERVICES,
    UNLIMITED,
    Bench,
    Run,
    all_served,
    ready_nodes,
    running,
    scene,
    settled,
)


async def restart(bench: Bench) -> AsyncIterator[Run]:
    """A restart with 500 LoadBalancer Services of which none has changed; the peer and our runtime at their
    defaults.
    """
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
                looked_at = await settled(side, started, size, 300)
                await cloud.quiet(3, 60)
                run = {
                    "side": side.name,
                    "tuning": "defaults",
                    "size": size,
                    "seconds": looked_at - started.process.started,
                    "seconds_leading": looked_at - leading,
                    **summary(await cloud.calls()),
                }
        bench.say(
            f"{side.name}: restart with {size} Services settled in {run['seconds']:.1f} s "
            f"({run['seconds_leading']:.1f} s leading), {run['cloud_calls']} cloud calls, {run['cloud_writes']} writes"
        )
        yield run


async def services(bench: Bench) -> AsyncIterator[Run]:
    """New Services while the cloud takes 2 s for each; the peer and our runtime at their defaults. The peer creates one
    after the other, so 30 Services are enough to measure its rate.
    """
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
    """A Node joins a cluster of 2,000 Nodes and 1,000 Services: CPU seconds of the service controller with each
    provider.
    """
    for name in shared_nodes.CASES:
        command = [sys.executable, "-m", "tools.bench.shared_nodes", name]
        child = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        output, _ = await child.communicate()
        if child.returncode:
            raise BenchError(f"the measurement of {name} ended with {child.returncode}")
        run = {"side": "ours", "tuning": name, **json.loads(output)}
        bench.say(f"ours: one Node joins {run['nodes']}, provider {name}: {run['cpu']:.2f} CPU-s")
        yield run
