# SPDX-License-Identifier: Apache-2.0
"""Measures our runtime with three clouds in one process, and with one cloud that has as many Nodes.

The clouds are the simulated cloud, a second simulated cloud under another name, and a file with machines.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import msgspec

import ccm.providers.sim

from . import nodes, objects
from .cloud import Cloud, internal_ip
from .cluster import NODES
from .stage import TUNED, Bench, Run, running

#: Nodes of each cloud, and seconds after which a wait fails.
EACH, PATIENCE = 5_000, 900.0
PROVIDERS = ("sim", "metro", "static")


async def clouds(bench: Bench) -> AsyncIterator[Run]:
    """15,000 Nodes: of one cloud, and 5,000 of each of three clouds in one process."""
    yield await nodes.initialise(
        bench, bench.ours, EACH * len(PROVIDERS), "tuned", TUNED | nodes.ONLY_NODES, patience=PATIENCE
    )
    yield await _several(bench)


async def _several(bench: Bench) -> Run:
    cluster, size = bench.cluster, EACH * len(PROVIDERS)
    await cluster.clear()
    names = [objects.name(number) for number in range(size)]
    own = {provider: names[number :: len(PROVIDERS)] for number, provider in enumerate(PROVIDERS)}
    async with contextlib.AsyncExitStack() as cleanup:
        folder = Path(cleanup.enter_context(tempfile.TemporaryDirectory(prefix="ccm-bench-")))
        started: dict[str, Cloud] = {}
        for provider in ("sim", "metro"):
            (folder / provider).mkdir()
            started[provider] = await Cloud.start(bench.ours, folder / provider, own[provider], {}, {})
            cleanup.push_async_callback(started[provider].close)
        environment = {**bench.ours.environment, "PYTHONPATH": str(install_metro(folder))}
        side, values = replace(bench.ours, environment=environment), _flags(folder, own["static"], started)
        await cluster.create(NODES, (objects.node(number) for number in range(size)))
        version, api = await cluster.version(NODES), cluster.usage()
        async with running(bench, side, folder, started["sim"], {}, values) as ours:
            process = ours.process
            done = await cluster.until(NODES, version, side.wire, names, objects.is_initialised, process, PATIENCE)
            leading, used = await ours.leading, process.usage()
            run: Run = {
                "side": "ours",
                "form": "three clouds",
                "tuning": "tuned",
                "size": size,
                "seconds": done - process.started,
                "seconds_leading": done - leading,
                "cpu": used.cpu,
                "peak": used.peak,
                "api_cpu": cluster.usage().cpu - api.cpu,
                "cloud_calls": sum([len(await cloud.calls()) for cloud in started.values()]),
                "lag": await ours.lag(),
                "at": time.time(),
            }
    bench.say(
        f"ours, three clouds: {size} Nodes in {run['seconds']:.1f} s ({run['seconds_leading']:.1f} s leading), "
        f"{run['cloud_calls']} cloud calls, {run['peak']:.0f} MiB, {run['cpu']:.2f} CPU-s"
    )
    return run


def _flags(folder: Path, machines: list[str], started: dict[str, Cloud]) -> dict[str, object]:
    files = {provider: folder / f"{provider}.conf" for provider in PROVIDERS}
    for provider, cloud in started.items():
        files[provider].write_text(cloud.conf(calls_per_second=10000, burst=10000, concurrency=50))
    rows = [{"name": name, "addresses": [internal_ip(number)]} for number, name in enumerate(machines)]
    (folder / "machines.yaml").write_bytes(msgspec.yaml.encode(rows))
    files["static"].write_text(f"cluster: bench\nmachines_file: {folder / 'machines.yaml'}\n")
    return {
        **TUNED,
        **nodes.ONLY_NODES,
        "cloud_provider": ",".join(PROVIDERS),
        "cloud_config": ",".join(f"{provider}={path}" for provider, path in files.items()),
    }


def install_metro(folder: Path) -> Path:
    """Install the simulated cloud's provider under the name metro, with providerIDs of its own; return what must be on
    the path of the process."""
    path = folder / "path"
    package, info = path / "metro_cloud", path / "metro_cloud-1.0.dist-info"
    shutil.copytree(Path(ccm.providers.sim.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    for file in package.glob("*.py"):
        text = file.read_text().replace("sim://", "metro://")
        file.write_text(text.replace('ClassVar[str] = "sim"', 'ClassVar[str] = "metro"'))
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: metro-cloud\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[ccm.providers]\nmetro = metro_cloud:SimCloud\n")
    return path
