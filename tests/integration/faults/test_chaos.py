# SPDX-License-Identifier: Apache-2.0
"""The leader is killed repeatedly while everything changes; finally nothing is leaked, duplicated or wrongly deleted.

CHAOS_KILLS: number of kills (`make integration`: 3; `make chaos`: 100, but 30 in `make test-ci`). CHAOS_SEED: the seed
of a run to repeat; the timing still differs, because real processes run.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import time
from collections.abc import AsyncIterator

import pytest

from ccm.engine.client import KubeClient
from ccm_simcloud.testing import Simulator

from ..runtime.support import DEADLINE, Ccm, expire
from .audit import Witness, passes
from .churn import Churn
from .conftest import FAST, StartCcm

KILLS = int(os.environ.get("CHAOS_KILLS", "3"))
SEED = int(os.environ.get("CHAOS_SEED", "0")) or random.randrange(1, 1 << 32)
NODES, SERVICES = 100, 50

#: The Lease itself is long, so that no leader loses it on a busy machine. After a kill, the test makes it expire.
RETRY = {"leader_elect_retry_period": "300ms"}


class Pair:
    """Two processes, which are restarted when they end, as by a DaemonSet."""

    def __init__(self, start_ccm: StartCcm) -> None:
        self._start = lambda: start_ccm(**FAST, **RETRY)
        self.processes: list[Ccm] = [self._start(), self._start()]

    def tend(self) -> None:
        """Restart processes that have ended."""
        for number, process in enumerate(self.processes):
            if process.process.poll() is not None:
                self.processes[number] = self._start()

    async def leader(self, seconds: float = DEADLINE) -> Ccm:
        """Wait until a process leads; return it."""
        deadline = time.monotonic() + seconds
        while True:
            self.tend()
            for process in self.processes:
                if "leading; controllers" in process.text:
                    return process
            if time.monotonic() > deadline:
                pytest.fail(f"nobody leads after {seconds:g} s")
            await asyncio.sleep(0.05)

    @contextlib.asynccontextmanager
    async def tended(self) -> AsyncIterator[None]:
        """Keep restarting processes, as a DaemonSet does, while the block waits for something else."""

        async def always() -> None:
            while True:
                self.tend()
                await asyncio.sleep(0.1)

        task = asyncio.create_task(always())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@pytest.mark.timeout(2 * DEADLINE + 20 * KILLS)
async def test_a_leader_killed_at_random_points_leaks_and_doubles_nothing(
    kube: KubeClient, cloud: Simulator, witness: Witness, start_ccm: StartCcm, capsys: pytest.CaptureFixture[str]
):
    with capsys.disabled():
        print(f"\nchaos: CHAOS_SEED={SEED} CHAOS_KILLS={KILLS}", flush=True)
    chance, started = random.Random(SEED), time.monotonic()
    pair = Pair(start_ccm)
    churn = Churn(kube, cloud, witness, seed=SEED, nodes=NODES, services=SERVICES)
    await pair.leader()
    await churn.begin()
    async with pair.tended():
        await passes(kube, cloud, witness)  # a Node that was never initialised is not deleted with its instance
    changes = asyncio.create_task(churn.run(per_second=12))
    for _ in range(KILLS):
        leader = await pair.leader()
        # Half of the kills come in the first moments, when a new leader compares actual and desired state.
        await asyncio.sleep(chance.choice([chance.uniform(0, 0.3), chance.uniform(0, 1.5)]))
        leader.signal(signal.SIGKILL)
        await leader.wait()
        await expire(kube)
        if changes.done():
            changes.result()
    changes.cancel()
    await asyncio.gather(changes, return_exceptions=True)
    await churn.rest()
    async with pair.tended():
        await passes(kube, cloud, witness)
    with capsys.disabled():
        print(
            f"chaos: {KILLS} kills in {time.monotonic() - started:.0f} s; "
            f"{sum(churn.done.values())} changes {dict(churn.done)}; "
            f"{len(witness.deleted)} Nodes went with their instances; {cloud.server.journal.sequence} cloud calls",
            flush=True,
        )
    assert churn.done["remove_instance"] and witness.deleted, "the churn did what it should"
