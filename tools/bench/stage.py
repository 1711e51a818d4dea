# SPDX-License-Identifier: Apache-2.0
"""What every bench needs: an empty API server, a new cloud, one of the measured programs (`sides`), and functions that
wait until the program is done.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from tests.ports import free_port

from . import measure, objects
from .cloud import Cloud, internal_ip
from .cluster import LEASE, LEASES, NODES, Cluster
from .sides import BenchError, Process, Side, flags

Run = dict[str, Any]

#: The best known tuning of upstream, which both programs get where a bench says "tuned".
TUNED = {"concurrent_node_syncs": 30, "kube_api_qps": 10000, "kube_api_burst": 10000}
TUNED_SERVICES = {"concurrent_service_syncs": 50, "kube_api_qps": 10000, "kube_api_burst": 10000}
#: Limits for our runtime with a cloud that refuses nothing.
UNLIMITED = {"calls_per_second": 10000, "burst": 10000, "concurrency": 50}
#: The rate limit of a cloud that refuses more calls.
LIMITS = {"calls_per_second": 20, "burst": 40}
ALL_SERVICES = "/api/v1/services"
POD_CIDR = "10.244.0.0/16"


@dataclass(frozen=True)
class Bench:
    """What all benches of one `make bench` share: the cluster, the peer, our runtime, and the output."""

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
    """Empty the API server, and yield a folder for files and a new cloud with `instances`; stop the cloud when the
    block is left.
    """
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
    """A running program. `leading`: when it got the Lease, in monotonic seconds."""

    process: Process
    leading: asyncio.Task[float]
    port: int

    async def worked(self, queue: str) -> tuple[int, int]:
        """Return (items that a work queue has finished, items that wait) from the program's metrics."""
        return measure.queue(await self.metrics(), queue)

    async def lag(self) -> dict[str, int]:
        """Return how many times the event loop's lag was sampled (twice a second), and how many samples were above
        50 ms. Only our runtime has this metric."""
        return measure.lag(await self.metrics())

    async def metrics(self) -> str:
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"https://127.0.0.1:{self.port}/metrics", ssl=False) as answer,
        ):
            return await answer.text()


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
    """Run one process of the program `side`. `conf`: more settings for our runtime's cloud.conf; `values`: flags."""
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
    await asyncio.sleep(0.2)  # until the watch of the Lease is open
    process = Process([*side.command, *flags(given)], folder / f"{side.name}.log", side.environment)
    try:
        yield Started(process, leading, port)
    finally:
        leading.cancel()
        await process.stop()


async def all_served(
    bench: Bench, side: Side, started: Started, count: int, version: str, patience: float = 500
) -> float:
    """Wait until the first `count` Services, created after `version`, have addresses; return that moment."""
    names = [objects.name(number) for number in range(count)]
    return await bench.cluster.until(
        ALL_SERVICES, version, side.wire, names, objects.is_served, started.process, patience
    )


async def ready_nodes(bench: Bench, cloud: Cloud, count: int, *, pod_cidrs: bool = False) -> None:
    """Create initialised Nodes for the first `count` instances."""
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


async def settled(side: Side, started: Started, size: int, patience: float) -> float:
    """Wait until every Service has been processed; return that moment in monotonic seconds. Raises BenchError after
    `patience` seconds.
    """
    deadline = time.monotonic() + patience
    while True:
        finished, waiting = await started.worked("service")
        if finished >= size and not waiting:
            return time.monotonic()
        if time.monotonic() > deadline:
            raise BenchError(f"{side.name} has looked at {finished} of {size} Services after {patience:g} s")
        started.process.check()
        await asyncio.sleep(0.1)
