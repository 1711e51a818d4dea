# SPDX-License-Identifier: Apache-2.0
"""Profiles our runtime and kube-apiserver during an initialisation, and the start of a process. `profile_rules` reads
the profiles.
"""

from __future__ import annotations

import asyncio
import resource
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from statistics import median

import msgspec

from tests.ports import free_port

from . import measure, objects, profile_rules
from .cluster import NODES, Cluster
from .nodes import ONLY_NODES
from .sampled_ccm import INTERVAL
from .sides import BenchError, Process, Side, flags
from .stage import TUNED, Bench, Run, running, scene

SIZE, PATIENCE = 5000, 500.0
#: Length of kube-apiserver's CPU profile in seconds. The profile starts when the process leads, and must end before the
#: last Node is written.
API_PROFILE = 8
STARTS = 7
#: Imports what a process imports before its first request: `--version` ends it there.
IMPORTS = "from ccm.cli import main; main(['--version'])"


async def profile(bench: Bench) -> AsyncIterator[Run]:
    """Where the CPU time of an initialisation goes, in our runtime and in the API server, and what a start costs."""
    yield await _initialisation(bench)
    for side in bench.sides:
        yield await _start(bench, side)


async def _initialisation(bench: Bench) -> Run:
    cluster = bench.cluster
    async with scene(bench, SIZE) as (folder, cloud):
        file = folder / "samples"
        side = replace(bench.ours, command=(sys.executable, "-m", "tools.bench.sampled_ccm", str(file)))
        await cluster.create(NODES, (objects.node(number) for number in range(SIZE)))
        version, names = await cluster.version(NODES), [objects.name(number) for number in range(SIZE)]
        async with running(bench, side, folder, cloud, {}, TUNED | ONLY_NODES) as started:
            process = started.process
            at_leading = asyncio.create_task(_at_leading(cluster, started.leading, process))
            done = await cluster.until(NODES, version, side.wire, names, objects.is_initialised, process, PATIENCE)
            after = _usages(cluster, process)
            before, api = await at_leading
            leading = await started.leading
        samples = msgspec.json.decode(file.read_bytes(), type=profile_rules.Samples)
    run: Run = {
        "side": "ours",
        "tuning": "tuned",
        "size": SIZE,
        "seconds_leading": done - leading,
        "interval": INTERVAL,
        "parts": profile_rules.ours(samples, leading, done),
        "api_profile": API_PROFILE,
        "api_parts": profile_rules.api_server(api),
        **{f"{name}_cpu": after[name] - before[name] for name in after},
    }
    bench.say(f"ours: {SIZE} Nodes in {done - leading:.1f} s with a sampler, {run['ours_cpu']:.2f} CPU-s from leading")
    return run


async def _at_leading(
    cluster: Cluster, leading: asyncio.Task[float], process: Process
) -> tuple[dict[str, float], bytes]:
    """Return the CPU seconds that were used before the process led, and kube-apiserver's profile from then on."""
    await asyncio.shield(leading)
    before = _usages(cluster, process)
    url = f"{cluster.server.url}/debug/pprof/profile?seconds={API_PROFILE}"
    async with cluster.session.get(url) as answer:
        if answer.status != 200:
            raise BenchError(f"no profile of kube-apiserver: {answer.status} {await answer.text()}")
        return before, await answer.read()


def _usages(cluster: Cluster, process: Process) -> dict[str, float]:
    parts = {"api": "kube-apiserver", "etcd": "etcd"}
    return {
        "ours": process.usage().cpu,
        **{name: measure.usage(cluster.server.pid(program)).cpu for name, program in parts.items()},
    }


async def _start(bench: Bench, side: Side) -> Run:
    """Measure starts until the first request leaves, with an API server that only accepts a connection."""
    async with scene(bench, 1) as (folder, cloud):
        (folder / "cloud.conf").write_text(cloud.conf())
        found = [await _until_first_request(side, folder) for _ in range(STARTS + 1)][1:]
    run: Run = {
        "side": side.name,
        "tuning": "start",
        "size": 0,
        "starts": STARTS,
        "seconds": median(seconds for seconds, _ in found),
        "cpu": median(used for _, used in found),
    }
    if side.name == "ours":
        run["imports"] = profile_rules.imports(_import_times(side))
        run["python"] = median(_cpu_of_python() for _ in range(STARTS))
    bench.say(f"{side.name}: the first request leaves after {run['seconds']:.2f} s and {run['cpu']:.2f} CPU-s")
    return run


async def _until_first_request(side: Side, folder: Path) -> tuple[float, float]:
    """Return the seconds from the start of a process until it sends its first byte to the API server, and its CPU."""
    moment: asyncio.Future[float] = asyncio.get_running_loop().create_future()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        if not moment.done():
            moment.set_result(time.monotonic())
        writer.close()

    port = free_port()
    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    async with server:
        address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        given = {"cloud_provider": "sim", "cloud_config": folder / "cloud.conf", "master": address, "secure_port": port}
        given["configure_cloud_routes"] = False
        if side.name == "peer":
            given |= {"authentication_skip_lookup": True, "webhook_secure_port": 0}
        process = Process([*side.command, *flags(given)], folder / f"{side.name}.log", side.environment)
        try:
            seconds = await _awaited(moment, process) - process.started
            return seconds, process.usage().cpu
        finally:
            await process.stop()


async def _awaited(moment: asyncio.Future[float], process: Process) -> float:
    """Wait for the result of `moment` and return it. Raises BenchError after a minute, and when the process ends."""
    for _ in range(600):
        process.check()
        if moment.done():
            return moment.result()
        await asyncio.sleep(0.1)
    raise BenchError("no request has left after 60 s")


def _import_times(side: Side) -> str:
    command = [sys.executable, "-X", "importtime", "-c", IMPORTS]
    return subprocess.run(command, env=side.environment, check=True, capture_output=True, text=True).stderr


def _cpu_of_python() -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", "pass"], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
