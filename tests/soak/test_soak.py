# SPDX-License-Identifier: Apache-2.0
"""A leader and a standby under a steady churn: nothing in them grows.

SOAK_SECONDS: the approximate duration (`make soak`: 30 minutes; otherwise 2). The figures are kept in build/soak/.

Values are measured when everything is right after a round of changes, because work that waits on a busy machine is not
a leak. The number of rounds is fixed, so a slow machine takes longer.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections import defaultdict
from pathlib import Path

import pytest

from ccm.engine.client import KubeClient
from ccm_simcloud.testing import Simulator

from ..integration.faults.audit import Witness, passes
from ..integration.faults.churn import Churn
from ..integration.faults.conftest import FAST, StartCcm
from ..integration.runtime.support import Ccm
from .flat import judge, table

SECONDS = float(os.environ.get("SOAK_SECONDS", "120"))
SEED = int(os.environ.get("SOAK_SEED", "0")) or random.randrange(1, 1 << 32)
NODES, SERVICES = 50, 30
#: Changes in a round, changes in a second at most, and rounds; a round takes about eight seconds.
CHANGES, PER_SECOND, ROUNDS = 40, 7.0, max(15, round(SECONDS / 8))
RESULTS = Path(__file__).parents[2] / "build" / "soak"

#: How much higher a value may be at the end than after the warm-up. The numbers of Nodes and Services vary by chance,
#: and memory with them.
TOLERANCES = {
    "RSS, MiB": 8.0,
    "file descriptors": 6.0,
    "asyncio tasks": 15.0,
    "objects in caches": 20.0,
    "keys in queues": 10.0,
    "threads": 2.0,
}


async def measure(process: Ccm, token: str) -> dict[str, float]:
    """Return figures of a process at this moment, from its metrics and from the kernel."""
    folder = Path(f"/proc/{process.process.pid}")
    status = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines())
    _, text = await process.get("/metrics", token)
    metrics: dict[str, float] = defaultdict(float)
    for line in text.splitlines():
        if not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            metrics[name.partition("{")[0]] += float(value)
    return {
        "RSS, MiB": float(status["VmRSS"].split()[0]) / 1024,
        "threads": float(status["Threads"]),
        "file descriptors": float(len(os.listdir(folder / "fd"))),
        "asyncio tasks": metrics["ccm_asyncio_tasks"],
        "objects in caches": metrics["ccm_cached_objects"],
        "keys in queues": metrics["workqueue_depth"],
    }


@pytest.mark.timeout(600 + 10 * SECONDS)
async def test_nothing_grows_under_a_steady_churn(
    kube: KubeClient,
    cloud: Simulator,
    witness: Witness,
    start_ccm: StartCcm,
    admin_token: str,
    capsys: pytest.CaptureFixture[str],
):
    processes = {"leader": start_ccm(**FAST)}
    await processes["leader"].leading()
    processes["standby"] = start_ccm(**FAST)
    await processes["standby"].until_logged("the cloud accepts the credentials")
    churn = Churn(kube, cloud, witness, seed=SEED, nodes=NODES, services=SERVICES)
    await churn.begin()
    samples: dict[str, list[tuple[float, float]]] = defaultdict(list)
    started = time.monotonic()
    for number in range(ROUNDS):
        await churn.changes(CHANGES, PER_SECOND)
        await churn.rest()
        await passes(kube, cloud, witness)
        for role, process in processes.items():
            for name, value in (await measure(process, admin_token)).items():
                samples[f"{role}: {name}"].append((float(number), value))
    seconds = time.monotonic() - started

    verdicts = [judge(name, values, TOLERANCES[name.partition(": ")[2]]) for name, values in samples.items()]
    RESULTS.mkdir(parents=True, exist_ok=True)
    report = {
        "seconds": seconds,
        "seed": SEED,
        "changes": dict(churn.done),
        "cloud_calls": cloud.server.journal.sequence,
        "verdicts": [verdict.as_json() for verdict in verdicts],
        "samples": samples,
    }
    (RESULTS / time.strftime("%Y-%m-%dT%H-%M-%S.json")).write_text(json.dumps(report, indent=1))
    with capsys.disabled():
        changes = sum(churn.done.values())
        print(f"\nsoak: {seconds:.0f} s, {ROUNDS} rounds, {changes} changes, {SEED=}\n{table(verdicts)}", flush=True)
    assert [verdict.name for verdict in verdicts if not verdict.flat] == []
