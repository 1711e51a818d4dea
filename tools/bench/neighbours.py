# SPDX-License-Identifier: Apache-2.0
"""Measures how failing and slow objects delay others: the shipped controllers, queues and gateway in one process, with
an API server and a cloud in memory, in virtual time. Seconds are those of the virtual clock; CPU is real.

`python -m tools.bench.neighbours` prints the figures alone.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from statistics import median
from typing import Any

from ccm.cloud import InstanceRef, Transient
from tests.unit.runtime.controllers.services_harness import Cluster
from tests.unit.runtime.gateway.virtual import VirtualLoop, now

Run = dict[str, Any]

FAILING, SEEDS = (5, 20, 50, 100), 20
#: Pages of a listing of 2,000 instances, and seconds for each.
PAGES, PAGE = 40, 0.2
#: Limits of the gateway. The deadline of a call is above the 160 s that AWS allows.
LIMITS = {"concurrency": 20, "deadline": 170.0}


def in_virtual_time(measure: Callable[[], Awaitable[Any]]) -> Any:
    # The loop's limit of work is meant for tests; benches exceed it.
    loop = VirtualLoop()
    loop.given_up = time.process_time() + 600.0
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(measure())  # type: ignore[arg-type]


def add(cluster: Cluster, namespace: str, name: str, port: int = 80) -> None:
    ports = [{"name": "http", "protocol": "TCP", "port": 80, "nodePort": 30000 + port % 2000}]
    meta = {"name": name, "namespace": namespace, "uid": f"uid-of-{namespace}-{name}"}
    cluster.api.put("services", {"metadata": meta, "spec": {"type": "LoadBalancer", "ports": ports}, "status": {}})


async def served(cluster: Cluster, namespace: str, name: str, most: float = 3600.0) -> float:
    """Return the seconds until the Service has an address; stop waiting after `most` seconds."""
    started = now()
    while not cluster.api.objects["services"][f"{namespace}/{name}"]["status"].get("loadBalancer"):
        await asyncio.sleep(0.05)
        if now() - started > most:
            break
    return now() - started


async def beside_failing(count: int, seed: int) -> float:
    """Return the seconds until a new Service is served, while `count` Services of another namespace keep failing."""
    random.seed(seed)
    async with Cluster(**LIMITS) as cluster:
        cluster.add_node("n0")
        cluster.cloud.fault = lambda verb, spec: Transient("503") if spec and spec.name.startswith("bad") else None
        for number in range(count):
            add(cluster, "bad", f"bad{number}", number)
        cluster.serve()
        await asyncio.sleep(random.uniform(20.0, 320.0))
        add(cluster, "good", "new")
        return await served(cluster, "good", "new")


async def beside_slow(count: int = 20, seconds: float = 60.0) -> tuple[float, float]:
    """Return the seconds for the instance of a new Node, and for a listing of all instances, while each call that
    ensures a load balancer takes `seconds`."""
    async with Cluster(**LIMITS) as cluster:
        cluster.add_node("n0")
        cluster.machines.put("n1", "10.0.0.9")
        cluster.serve()
        await asyncio.sleep(5.0)
        cluster.cloud.latency["ensure"] = seconds
        for number in range(count):
            add(cluster, "slow", f"slow{number}", number)
        await asyncio.sleep(1.0)
        started = now()
        assert cluster.gateway.instances is not None
        await cluster.gateway.instances.lookup(InstanceRef("n1"), not_before=started)
        node, started = now() - started, now()
        for _ in range(PAGES):
            await cluster.gateway.call("instances.list", lambda: asyncio.sleep(PAGE))
        return node, now() - started


async def beside_many(count: int = 500, seconds: float = 5.0) -> float:
    """Return the seconds until a new Service is served that comes after `count` new ones of another namespace."""
    async with Cluster(**LIMITS) as cluster:
        cluster.add_node("n0")
        cluster.serve()
        await asyncio.sleep(5.0)
        cluster.cloud.latency["ensure"] = seconds
        for number in range(count):
            add(cluster, "busy", f"busy{number}", number)
        await asyncio.sleep(1.0)
        add(cluster, "quiet", "new")
        return await served(cluster, "quiet", "new")


async def outage(hang: float, count: int = 500, seconds: float = 300.0) -> tuple[float, int]:
    """Return the CPU seconds during an outage in which each call fails after `hang` seconds, and the number of
    calls."""
    random.seed(1)
    async with Cluster(**{**LIMITS, "deadline": 30.0}) as cluster:
        cluster.add_node("n0")
        cluster.serve()
        await asyncio.sleep(5.0)
        cluster.cloud.fault = lambda verb, spec: Transient("503")
        cluster.cloud.latency = dict.fromkeys(("ensure", "list", "get"), hang)
        for number in range(count):
            add(cluster, f"ns{number % 50}", f"s{number}", number)
        cpu, calls = time.process_time(), len(cluster.cloud.calls)
        await asyncio.sleep(seconds)
        return time.process_time() - cpu, len(cluster.cloud.calls) - calls


def figures() -> list[Run]:
    logging.disable(logging.ERROR)
    try:
        runs: list[Run] = []
        for count in FAILING:
            waits = [
                in_virtual_time(lambda count=count, seed=seed: beside_failing(count, seed)) for seed in range(SEEDS)
            ]
            runs.append({"form": "failing", "size": count, "seconds": median(waits), "most": max(waits)})
        node, listing = in_virtual_time(beside_slow)
        runs.append({"form": "slow", "size": 20, "seconds": node, "most": listing})
        runs.append({"form": "many", "size": 500, "seconds": in_virtual_time(beside_many)})
        for hang in (0.01, 30.0):
            cpu, calls = in_virtual_time(partial(outage, hang))
            runs.append({"form": "outage", "size": 500, "hang": hang, "cpu": cpu, "cloud_calls": calls})
        return [{"side": "ours", "tuning": "defaults", **run} for run in runs]
    finally:
        logging.disable(logging.NOTSET)


async def neighbours(bench: Any) -> AsyncIterator[Run]:
    """Failing, slow and many Services of one namespace, and how they delay other objects; in virtual time."""
    for run in await asyncio.to_thread(figures):
        bench.say(json.dumps(run))
        yield run


if __name__ == "__main__":
    for each in figures():
        print(json.dumps(each))
