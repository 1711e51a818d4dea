# SPDX-License-Identifier: Apache-2.0
"""The real rulebook `drift` and the real `site.yml` heal what is broken in a migrated cluster, and leave a healthy
cluster alone.

By default, hosts and the programs in the cluster are simulated as in `make bench-collection`, with a real API server.
With `EDA_CLUSTER=1`, the cluster is one of the test bed: one control plane and two workers. A cool-down lasts 30
minutes, and a restart of ansible-rulebook forgets it, so each round has a rulebook of its own, with four drifts: two
workers that joined without the flag, a reverted control plane, and a stopped controller.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Protocol

import pytest

from bed import paths
from tools.bench_collection.__main__ import play
from tools.bench_collection.simulator import DAEMONSET, PODS, TAINT
from tools.packaging import environments

from ..integration.cluster import binaries
from .conftest import Rulebook
from .doubles import NOWHERE, STOP, Object, doubles

__all__ = ["doubles"]

#: How many drifts are injected, and how many seconds a healthy cluster is watched before the last round.
DRIFTS, HEALTHY = int(os.environ.get("EDA_DRIFTS", "4")), float(os.environ.get("EDA_HEALTHY_SECONDS", "30"))
#: Seconds between two reads of the cluster by the rulebook, and seconds until a drift counts as not healed, even on a
#: busy machine.
INTERVAL, PATIENCE = float(os.environ.get("EDA_INTERVAL", "15")), 400
#: Seconds that ansible-rulebook gets to start before the first drift of a round: its start must not count in the
#: figures.
START = 20
#: The header of each run of site.yml.
RUN = "PLAY [Validate the inventory]"
MANIFEST = "/etc/kubernetes/manifests/kube-controller-manager.yaml"


class World(Protocol):
    """A cluster that `site.yml` has migrated, and how to break it. A method returns when its effect can be seen."""

    inventory: Path
    kubeconfig: Path
    workers: list[str]

    async def get(self, path: str) -> Object:
        """Return the object at a path of the API, {} if there is none."""

    async def join_without_the_flag(self, worker: str) -> None:
        """Install a worker again without the flag, as a tool does that does not know of the flag."""

    async def revert_the_control_plane(self) -> None:
        """Write the control plane's manifest from before the migration, as a tool does that does not know of the
        migration.
        """

    async def stop_the_controller(self) -> None:
        """Let the controller's DaemonSet select only Nodes that do not exist."""

    async def has_the_flag(self, worker: str) -> bool: ...

    async def is_external(self) -> bool:
        """Return whether the control plane runs, and names no in-tree cloud."""


async def is_managed(world: World, worker: str) -> bool:
    spec = (await world.get(f"/api/v1/nodes/{worker}")).get("spec", {})
    tainted = any(taint["key"] == TAINT for taint in spec.get("taints") or [])
    return bool(spec.get("providerID")) and not tainted and await world.has_the_flag(worker)


async def runs(world: World) -> bool:
    found = await world.get(DAEMONSET)
    stopped = NOWHERE.items() <= found["spec"]["template"]["spec"]["nodeSelector"].items()
    observed = found["status"].get("observedGeneration") == found["metadata"]["generation"]
    return not stopped and observed and found["status"].get("numberReady") == 1


#: A title, a function that causes the drift, and one that returns whether the drift is healed.
Drift = tuple[str, Callable[[], Awaitable[None]], Callable[[], Awaitable[bool]]]


def a_round(world: World) -> list[Drift]:
    joined: list[Drift] = [
        (
            f"{worker} joined without the flag",
            lambda worker=worker: world.join_without_the_flag(worker),
            lambda worker=worker: is_managed(world, worker),
        )
        for worker in world.workers
    ]
    reverted: Drift = ("the control plane was reverted", world.revert_the_control_plane, world.is_external)
    return [*joined, reverted, ("the controller was stopped", world.stop_the_controller, lambda: runs(world))]


# -- a cluster of the bed ----------------------------------------------------------------------------------------------


class Bed:
    """One control plane and two workers of kubeadm in containers, with a simulated cloud."""

    NAME = "eda"

    def __init__(self, inventory: Path) -> None:
        """`inventory`: an empty folder. ansible-rulebook copies what it names, so the variables are in it, too."""
        folder = paths.of_bed(self.NAME)
        shutil.copy(folder / "inventory.yml", inventory)
        shutil.copytree(folder / "group_vars", inventory / "group_vars")
        self.inventory, self.kubeconfig = inventory, folder / "kubeconfig"
        self._plane = f"{self.NAME}-control-plane-1"
        self.workers = [f"{self.NAME}-worker-1", f"{self.NAME}-worker-2"]

    async def _run(self, *command: str) -> str:
        done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 0 or "NotFound" in done.stderr, done.stderr
        return str(done.stdout)

    async def _exec(self, machine: str, script: str) -> str:
        return await self._run("podman", "exec", machine, "sh", "-ec", script)

    async def _kubectl(self, *words: str) -> str:
        return await self._run(str(binaries() / "kubectl"), "--kubeconfig", str(self.kubeconfig), *words)

    async def get(self, path: str) -> Object:
        found: Object = json.loads(await self._kubectl("get", "--raw", path) or "{}")
        return found

    async def join_without_the_flag(self, worker: str) -> None:
        files = "$(grep -ls -e --cloud-provider=external /etc/default/kubelet /var/lib/kubelet/kubeadm-flags.env)"
        await self._exec(worker, f"sed -i s/--cloud-provider=external// {files}")
        await self._kubectl("delete", "node", worker)
        await self._exec(worker, "systemctl restart kubelet")
        assert not await self.has_the_flag(worker)

    async def has_the_flag(self, worker: str) -> bool:
        shown = await self._exec(worker, "ps -ww -C kubelet -o args= || true")  # fails while none runs
        return "--cloud-provider=external" in shown

    async def revert_the_control_plane(self) -> None:
        """Kubernetes has no code of that cloud any more, so kube-controller-manager crashes until it is restored."""
        added = r"s/^\( *\)- kube-controller-manager$/&\n\1- --cloud-provider=openstack/"
        edit = f"sed -e /--cloud-provider=/d -e '{added}' {MANIFEST} > /etc/kubernetes/new"
        await self._exec(self._plane, f"{edit} && mv /etc/kubernetes/new {MANIFEST}")
        assert not await self.is_external()

    async def is_external(self) -> bool:
        if "openstack" in await self._exec(self._plane, f"cat {MANIFEST}"):
            return False
        pod = await self.get(f"{PODS}/kube-controller-manager-{self._plane}")
        conditions = {each["type"]: each["status"] for each in pod.get("status", {}).get("conditions", [])}
        return conditions.get("Ready") == "True" and "openstack" not in json.dumps(pod["spec"])

    async def stop_the_controller(self) -> None:
        words = ("patch", "daemonset", "cloud-controller-manager", "--namespace=kube-system")
        await self._kubectl(*words, "--patch", json.dumps(STOP))


@pytest.fixture
async def bed(tmp_path: Path) -> AsyncIterator[Bed]:
    program = [str(environments.BUILD / "venv/bin/python"), "-m", "bed"]
    variables = os.environ | {"PYTHONPATH": str(environments.REPOSITORY / "tools/bed")}

    async def run(*words: str) -> None:
        command = [*program, *words, "--name", Bed.NAME]
        await asyncio.to_thread(subprocess.run, command, env=variables, check=True, timeout=1800)

    await run("down")
    try:
        await run("up", "--leftovers")
        inventory = tmp_path / "inventory"
        inventory.mkdir()
        yield Bed(inventory)
    finally:
        await run("down")


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> World:
    found: World = request.getfixturevalue("bed" if os.environ.get("EDA_CLUSTER") else "doubles")
    return found


@pytest.fixture
async def world(cluster: World, environment: Path, tmp_path: Path) -> World:
    """A cluster that `site.yml` has migrated."""
    log = tmp_path / "site.log"
    done = await play(environment / "bin", environments.REPOSITORY, "site", cluster.inventory, {}, 10, log)
    assert done["status"] == 0, log.read_text()[-4000:]
    return cluster


async def until(what: Callable[[], Awaitable[bool]], rulebook: Rulebook) -> float:
    """Wait until `what` is true; return the seconds. Fails after PATIENCE, or if the rulebook ends."""
    begun = time.monotonic()
    while not await what():
        assert rulebook.is_alive() and time.monotonic() < begun + PATIENCE, rulebook.said[-6000:]
        await asyncio.sleep(0.5)
    return time.monotonic() - begun


@pytest.mark.timeout(10800)
async def test_drifts_are_healed_and_a_healthy_cluster_starts_nothing(
    world: World, start: Callable[..., Rulebook]
) -> None:
    """Each round of drifts has a rulebook of its own. That of the last round first watches the healthy cluster, and
    must start nothing; it then heals the drifts, which proves that it watched."""
    variables = {"ccm_eda_kubeconfig": str(world.kubeconfig), "ccm_eda_interval": INTERVAL, "ccm_eda_heal": True}
    drifts = [drift for _ in range(0, DRIFTS, 4) for drift in a_round(world)][:DRIFTS]
    rounds = [drifts[first : first + 4] for first in range(0, DRIFTS, 4)]
    took: list[float] = []
    for number, drifts in enumerate(rounds, 1):
        rulebook = start("drift", inventory=world.inventory, installed=environments.BUILD / "collections", **variables)
        await asyncio.sleep(HEALTHY if number == len(rounds) else START)
        assert rulebook.is_alive() and RUN not in rulebook.said, rulebook.said[-6000:]
        for done, (what, breaks, is_healed) in enumerate(drifts):

            async def ended(rulebook: Rulebook = rulebook, done: int = done) -> bool:
                return rulebook.said.count("PLAY RECAP") > done

            await breaks()
            took.append(await until(is_healed, rulebook))
            print(f"{len(took)}: {what}, healed after {took[-1]:.0f} s", flush=True)
            await until(ended, rulebook)
            assert rulebook.said.count(RUN) == done + 1, rulebook.said[-6000:]
        rulebook.stop()
    assert len(took) == DRIFTS
    print(f"{DRIFTS} drifts healed, the slowest after {max(took):.0f} s; 0 runs in {HEALTHY:.0f} s without a drift")
