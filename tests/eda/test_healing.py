# SPDX-License-Identifier: Apache-2.0
"""The real rulebook `drift` and the real `site.yml` heal what is broken in a migrated cluster, and leave a healthy
cluster alone.

By default, hosts and the programs in the cluster are simulated as in `make bench-collection`, with a real API server.
With `EDA_CLUSTER=1`, the cluster is one of the test bed: one control plane and two workers. A cool-down lasts 30
minutes, and a restart of ansible-rulebook forgets it, so each round has a rulebook of its own, with five drifts: two
workers that joined without the flag, a reverted control plane, a stopped controller, and a held deletion. The last one
is answered by a report, because only a person confirms that a machine is gone.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import time
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import NamedTuple, Protocol

import pytest

from bed import paths
from tools.bench_collection.__main__ import play
from tools.bench_collection.simulator import DAEMONSET, PODS, TAINT
from tools.packaging import environments

from ..integration.cluster import binaries
from .conftest import Rulebook
from .doubles import NOWHERE, STOP, Object, doubles

__all__ = ["doubles"]

#: How many drifts are injected, and how many seconds a healthy cluster is watched after them.
DRIFTS, HEALTHY = int(os.environ.get("EDA_DRIFTS", "5")), float(os.environ.get("EDA_HEALTHY_SECONDS", "30"))
#: Seconds until a drift counts as not healed, even on a busy machine.
PATIENCE = 400
#: Seconds that ansible-rulebook gets to start before the first drift of a round: its start must not count in the
#: figures.
START = 20
#: The header of each run of site.yml or verify.yml, the end of one, and the words after which ansible-rulebook prints a
#: failed run again.
RUN, END, AGAIN = "PLAY [Validate the inventory]", "PLAY RECAP", "run_playbook - ERROR"
MANIFEST = "/etc/kubernetes/manifests/kube-controller-manager.yaml"


class World(Protocol):
    """A cluster that `site.yml` has migrated, and how to break it. A method returns when its effect can be seen."""

    inventory: Path
    kubeconfig: Path
    workers: list[str]

    async def get(self, path: str) -> Object:
        """Return the object at a path of the API, {} if there is none."""

    async def join_without_the_flag(self, worker: str) -> None:
        """Install a worker again without the flag, as a tool that does not know the flag would."""

    async def revert_the_control_plane(self) -> None:
        """Write the control plane's manifest from before the migration, as a tool that does not know of the migration
        would.
        """

    async def stop_the_controller(self) -> None:
        """Let the controller's DaemonSet select only Nodes that do not exist."""

    async def hold_a_deletion(self, worker: str) -> None:
        """Stop the worker's kubelet while the cloud does not answer, until an Event says that the Node is kept."""

    async def let_it_go(self, worker: str) -> None:
        """End what `hold_a_deletion` did, and wait until the Node is Ready."""

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


async def nothing() -> None:
    """The `after` of a drift that a playbook heals."""


class Drift(NamedTuple):
    """A drift of a migrated cluster: what causes it, and how to see that a playbook has healed or reported it.

    `is_healed` gets what the last playbook has printed. `after` undoes what playbooks only report: a held deletion.
    """

    title: str
    breaks: Callable[[], Awaitable[None]]
    is_healed: Callable[[str], Awaitable[bool]]
    after: Callable[[], Awaitable[None]] = nothing


def a_round(world: World) -> list[Drift]:
    def joined(worker: str) -> Drift:
        title = f"{worker} joined without the flag"
        return Drift(title, lambda: world.join_without_the_flag(worker), lambda _: is_managed(world, worker))

    async def is_reported(output: str) -> bool:
        return re.search(r"FAIL\s+deletions\s", output) is not None

    held = world.workers[0]
    return [
        *map(joined, world.workers),
        Drift("the control plane was reverted", world.revert_the_control_plane, lambda _: world.is_external()),
        Drift("the controller was stopped", world.stop_the_controller, lambda _: runs(world)),
        Drift(
            f"the deletion of {held} was held",
            lambda: world.hold_a_deletion(held),
            is_reported,
            lambda: world.let_it_go(held),
        ),
    ]


# -- a cluster of the bed ----------------------------------------------------------------------------------------------


class Bed:
    """One control plane and two workers of kubeadm in containers, with a simulated cloud."""

    NAME = "eda"

    def __init__(self, inventory: Path) -> None:
        """`inventory`: an empty folder. ansible-rulebook copies only that folder, so the variables are in it, too."""
        folder = paths.of_bed(self.NAME)
        shutil.copy(folder / "inventory.yml", inventory)
        shutil.copytree(folder / "group_vars", inventory / "group_vars")
        self.inventory, self.kubeconfig = inventory, folder / "kubeconfig"
        self._endpoint = json.loads((folder / "state.json").read_text())["cloud_endpoint"]
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
        """Name a cloud of which Kubernetes has no code any more, so that kube-controller-manager crashes."""
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

    async def hold_a_deletion(self, worker: str) -> None:
        before = await self._holds(worker)
        await self._cloud("POST", [{"action": "status", "status": 500, "match": {"operation": "instances.*"}}])
        await self._exec(worker, "systemctl stop kubelet")
        await reaches(lambda: self._holds_more(worker, before))

    async def _holds(self, worker: str) -> str:
        """Return the versions of the Events that say why the Node is kept."""
        selector = f"reason=DeletionHeld,involvedObject.name={worker}"
        path = "{.items[*].metadata.resourceVersion}"
        return await self._kubectl("get", "events", "--field-selector", selector, "--output", f"jsonpath={path}")

    async def _holds_more(self, worker: str, before: str) -> bool:
        return await self._holds(worker) not in ("", before)

    async def let_it_go(self, worker: str) -> None:
        await self._cloud("DELETE")
        await self._exec(worker, "systemctl start kubelet")
        await reaches(lambda: self._is_ready(worker))

    async def _is_ready(self, worker: str) -> bool:
        node = await self.get(f"/api/v1/nodes/{worker}")
        return any(each["type"] == "Ready" and each["status"] == "True" for each in node["status"]["conditions"])

    async def _cloud(self, method: str, faults: object = None) -> None:
        data = None if faults is None else json.dumps(faults).encode()
        url, kind = f"{self._endpoint}/admin/faults", {"Content-Type": "application/json"}
        request = urllib.request.Request(url, data, kind, method=method)
        await asyncio.to_thread(lambda: urllib.request.urlopen(request, timeout=60).close())

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
    """Migrate the cluster by `site.yml`, and return it."""
    log = tmp_path / "site.log"
    done = await play(environment / "bin", environments.REPOSITORY, "site", cluster.inventory, {}, 10, log)
    assert done["status"] == 0, log.read_text()[-4000:]
    return cluster


async def reaches(what: Callable[[], Awaitable[bool]], rulebook: Rulebook | None = None) -> float:
    """Wait until `what` is true; return the seconds. Fails after PATIENCE, or if the rulebook ends."""
    begun = time.monotonic()
    while not await what():
        said = rulebook.said[-6000:] if rulebook else ""
        assert rulebook is None or rulebook.is_alive(), said
        assert time.monotonic() < begun + PATIENCE, said
        await asyncio.sleep(0.5)
    return time.monotonic() - begun


def times(word: str, rulebook: Rulebook) -> int:
    return rulebook.said.count(word) - rulebook.said.count(AGAIN)


async def answered(number: int, drift: Drift, rulebook: Rulebook) -> tuple[float, float, float]:
    """Cause the drift. Return the seconds from then until its playbook starts, until it is healed, and until the
    playbook ends. `number`: how many runs there are with this one."""

    async def begins() -> bool:
        return times(RUN, rulebook) >= number

    async def ends() -> bool:
        return times(END, rulebook) >= number

    await drift.breaks()
    begun = await reaches(begins, rulebook)
    healed = begun + await reaches(lambda: drift.is_healed(rulebook.said.rpartition(RUN)[2]), rulebook)
    ended = healed + await reaches(ends, rulebook)
    await drift.after()
    return begun, healed, ended


@pytest.mark.timeout(14400)
async def test_drifts_are_healed_and_a_healthy_cluster_starts_nothing(
    world: World, start: Callable[..., Rulebook]
) -> None:
    """Each round of drifts has a rulebook of its own. Another one then watches the healthy cluster, and must start
    nothing; it heals one more drift at the end, which proves that it watched."""
    variables = {"ccm_eda_kubeconfig": str(world.kubeconfig), "ccm_eda_heal": True}
    size = len(a_round(world))
    drifts = [drift for _ in range(0, DRIFTS, size) for drift in a_round(world)][:DRIFTS]
    rounds = [(START, drifts[first : first + size]) for first in range(0, DRIFTS, size)]
    took: list[float] = []
    for seconds, drifts in [*rounds, (HEALTHY, a_round(world)[:1])]:
        rulebook = start("drift", inventory=world.inventory, installed=environments.BUILD / "collections", **variables)
        await asyncio.sleep(seconds)
        assert rulebook.is_alive() and RUN not in rulebook.said, rulebook.said[-6000:]
        print(f"{seconds:.0f} s without a drift, 0 runs", flush=True)
        for number, drift in enumerate(drifts, 1):
            begun, healed, ended = await answered(number, drift, rulebook)
            took.append(healed)
            words = f"after {healed:.0f} s; its playbook ran from second {begun:.0f} to {ended:.0f}"
            print(f"{len(took)}: {drift.title}, answered {words}", flush=True)
            assert times(RUN, rulebook) == number, rulebook.said[-6000:]
        rulebook.stop()
    slowest = max(took[:DRIFTS])
    print(f"{DRIFTS} drifts answered, the slowest after {slowest:.0f} s; 0 runs in {HEALTHY:.0f} s", flush=True)
