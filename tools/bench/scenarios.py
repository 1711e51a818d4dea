# SPDX-License-Identifier: Apache-2.0
"""All benches by name. Most run the peer (a controller on Kubernetes' own framework, tools/bench/peer) and our runtime
in turn on the same API server. Each yields one run after another; `table` turns runs into rows.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from . import large, neighbours, nodes, objects, profiles, services, several_clouds
from .cloud import summary
from .cluster import NODES
from .stage import LIMITS, POD_CIDR, Bench, Run, ready_nodes, running, scene


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
    """The leader gets SIGTERM while a second process stands by: the time until the second process leads."""
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
                await asyncio.sleep(6)  # until the second process has filled its caches and waits
                begun = time.monotonic()
                leader.process.signal(signal.SIGTERM)
                took.append(await asyncio.wait_for(standby.leading, 60) - begun)
                await leader.process.stop()
                leader = standby
        run = {"side": side.name, "tuning": "defaults", "size": times, "seconds": max(took), "each": took}
        bench.say(f"{side.name}: handed over in {', '.join(f'{seconds:.2f} s' for seconds in took)}")
        yield run


BENCHES: Mapping[str, Callable[[Bench], AsyncIterator[Run]]] = {
    "nodes": nodes.nodes,
    "wire": nodes.forms,
    "encodings": nodes.encodings,
    "profile": profiles.profile,
    "limited": nodes.limited,
    "growth": nodes.growth,
    "restart": services.restart,
    "services": services.services,
    "join": services.join,
    "shared": services.shared,
    "routes": routes,
    "handover": handover,
    "large": large.large,
    "neighbours": neighbours.neighbours,
    "clouds": several_clouds.clouds,
}
