# SPDX-License-Identifier: Apache-2.0
"""Leader migration (KEP-2436) with real processes: controllers move from an "old manager" to a new one.

The old manager is also a process of our runtime, with a main Lease of its own like kube-controller-manager.
"""

from __future__ import annotations

import contextlib
import datetime
import re
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from ccm.engine.client import KubeClient, NotFoundError
from ccm.engine.objects import Lease
from ccm_simcloud.testing import Simulator

from ..cluster import ApiServer
from .conftest import StartCcm
from .support import LEASES, PATIENT, Ccm, eventually, expire, get_lease
from .test_leadership import OFTEN

MIGRATION = "cloud-provider-extraction-migration"
DURATION = float(PATIENT["leader-elect-lease-duration"].removesuffix("s"))
MOVED = ("cloud-node-lifecycle-controller", "service-lb-controller", "node-route-controller")
OLD = {"leader_elect_resource_name": "old-manager", "controllers": ",".join(MOVED)}


@pytest.fixture(autouse=True)
async def no_leases_left(kube: KubeClient) -> AsyncIterator[None]:
    yield
    for name in ("old-manager", MIGRATION, "moving"):
        with contextlib.suppress(NotFoundError):
            await kube.delete(f"{LEASES}/{name}")


def config(folder: Path, **components: str) -> Path:
    """Write a LeaderMigrationConfiguration with the controllers' names of upstream's documentation; return its path."""
    path = folder / f"migration-{'-'.join(components.values())}.yaml"
    leaders = [{"name": name.replace("_", "-"), "component": component} for name, component in components.items()]
    head = {"apiVersion": "controllermanager.config.k8s.io/v1", "kind": "LeaderMigrationConfiguration"}
    path.write_text(yaml.safe_dump({**head, "leaderName": "moving", "controllerLeaders": leaders}))
    return path


def spans(process: Ccm) -> dict[str, list[tuple[float, float]]]:
    """Return when each controller ran, by name, from the process's log. Without an end in the log, it still runs. One
    that was stopped before its first step has no line of its own: it ended when the Lease was released."""
    found: dict[str, list[tuple[float, float]]] = {}
    for line in process.text.splitlines():
        if match := re.match(r"(\S+Z) .*? (controllers: |stopped: |released the Lease)(.+)", line):
            at = datetime.datetime.fromisoformat(match[1]).timestamp()
            if match[2] == "released the Lease":
                for runs in found.values():
                    runs[-1] = (runs[-1][0], min(runs[-1][1], at))
                continue
            for name in match[3].split(", "):
                if match[2] == "controllers: " and name != "none":
                    found.setdefault(name, []).append((at, float("inf")))
                elif name in found:
                    found[name][-1] = (found[name][-1][0], at)
    return found


def overlap(one: list[tuple[float, float]], other: list[tuple[float, float]]) -> bool:
    return any(a < d and c < b for a, b in one for c, d in other)


async def holds(kube: KubeClient, name: str) -> str:
    with contextlib.suppress(NotFoundError):
        return (await kube.get(f"{LEASES}/{name}", Lease)).spec.holder_identity or ""
    return ""


async def test_controllers_move_and_never_run_twice(kube: KubeClient, cloud: Simulator, start_ccm: StartCcm):
    """As in a rolling update, the new manager starts while the old one works, and takes over when the old one ends."""
    old = start_ccm(enable_leader_migration=True, **OLD, **OFTEN)
    await old.until_logged("holding the migration Lease")
    new = start_ccm(enable_leader_migration=True, **OFTEN)
    await new.leading()
    # The new manager leads, but the old one still runs the migrated controllers.
    assert list(spans(new)) == ["cloud-node-controller"]
    lease = await kube.get(f"{LEASES}/{MIGRATION}", Lease)
    assert lease.metadata.annotations["ccm.outoftree.dev/controllers"] == ",".join(MOVED)
    assert (await get_lease(kube)).metadata.annotations["ccm.outoftree.dev/controllers"] == "cloud-node-controller"
    assert await holds(kube, MIGRATION) == await holds(kube, "old-manager") != ""

    old.signal(signal.SIGTERM)
    await new.until_logged("holding the migration Lease")
    assert await old.wait() == 0
    before, after = spans(old), spans(new)
    for name in MOVED:
        assert not overlap(before[name], after[name])
        assert after[name][0][0] - before[name][-1][1] < DURATION
    assert await holds(kube, MIGRATION) == await holds(kube, "cloud-controller-manager") != ""
    assert await holds(kube, "old-manager") == ""


async def test_an_old_manager_that_dies_is_followed_when_its_lease_ends(
    kube: KubeClient, cloud: Simulator, start_ccm: StartCcm
):
    old = start_ccm(enable_leader_migration=True, **OLD, **OFTEN)
    await old.until_logged("holding the migration Lease")
    new = start_ccm(enable_leader_migration=True, **OFTEN)
    await new.leading()
    old.signal(signal.SIGKILL)
    await old.wait()
    changed = datetime.datetime.now(datetime.UTC).timestamp()
    await expire(kube, MIGRATION, seconds=3)
    await new.until_logged("holding the migration Lease")
    assert spans(new)["service-lb-controller"][0][0] - changed >= 3


async def test_who_runs_what_is_what_the_configuration_says(
    kube: KubeClient, cloud: Simulator, start_ccm: StartCcm, tmp_path: Path
):
    """C15 with processes: a manager runs no controllers of another component. It takes the migration Lease only if some
    of the migrated controllers are its own."""
    theirs = config(tmp_path, route="kube-controller-manager", service="kube-controller-manager")
    old = start_ccm(enable_leader_migration=True, leader_migration_config=theirs, **OFTEN)
    await old.leading()
    assert set(spans(old)) == {"cloud-node-controller", "cloud-node-lifecycle-controller"}
    assert "not run here because of the leader migration: service-lb-controller, node-route-controller" in old.text
    assert await holds(kube, "moving") == ""
    await old.stop()

    ours = config(tmp_path, route_controller="cloud-controller-manager", service="*")
    new = start_ccm(enable_leader_migration=True, leader_migration_config=ours, **OFTEN)
    await new.until_logged("holding the migration Lease moving")
    assert set(spans(new)) == {*spans(old), "service-lb-controller", "node-route-controller"}
    assert await holds(kube, "moving") != ""


@pytest.mark.parametrize("name", ["cloud-controller-manager", MIGRATION])
async def test_losing_either_lease_ends_the_process(name: str, kube: KubeClient, cloud: Simulator, start_ccm: StartCcm):
    ccm = start_ccm(enable_leader_migration=True, **OFTEN)
    await ccm.until_logged("holding the migration Lease")
    await kube.patch(f"{LEASES}/{name}", {"spec": {"holderIdentity": "a-thief"}})
    assert await ccm.wait() == 1
    assert re.search(rf"leadership is lost.*{name}", ccm.text)
    assert "Traceback" not in ccm.text
    other = MIGRATION if name != MIGRATION else "cloud-controller-manager"
    assert (await holds(kube, name), await holds(kube, other)) == ("a-thief", "")


async def test_both_leases_are_told(kube: KubeClient, cloud: Simulator, start_ccm: StartCcm, admin_token: str):
    ccm = start_ccm(enable_leader_migration=True, **OFTEN)
    await ccm.until_logged("holding the migration Lease")
    metrics = (await ccm.get("/metrics", admin_token))[1]
    for name in ("cloud-controller-manager", MIGRATION):
        assert f'leader_election_master_status{{name="{name}"}} 1.0' in metrics
    assert "[+]leaderElection ok" in (await ccm.get("/healthz?verbose"))[1]


async def test_churn_of_many_managers(kube: KubeClient, cloud: Simulator, start_ccm: StartCcm):
    """Two old and two new managers are started, stopped and killed: two never run the same controller at one time."""
    processes: list[Ccm] = []
    for number in range(4):
        more: dict[str, Any] = OLD if number % 2 == 0 else {}
        processes.append(start_ccm(enable_leader_migration=True, **more, **OFTEN))
    alive = list(processes)

    async def led() -> bool:
        return any("migration Lease" in process.text for process in alive)

    for end in (signal.SIGTERM, signal.SIGKILL, signal.SIGTERM):
        holder: list[Ccm] = []

        async def found(holder: list[Ccm] = holder) -> bool:
            holder[:] = [process for process in alive if "holding the migration Lease" in process.text]
            return bool(holder)

        await eventually(found, what="somebody holds the migration Lease")
        [current] = holder

        async def works(current: Ccm = current) -> bool:
            return "service-lb-controller" in spans(current)

        await eventually(works)
        if end == signal.SIGKILL:
            identity = await holds(kube, MIGRATION)
            killed_at = datetime.datetime.now(datetime.UTC).timestamp()
            current.signal(end)
            await current.wait()
            # Only its own: a living leader that loses a second to a busy machine would lose a shortened Lease, too.
            own = [name for name in ("old-manager", "cloud-controller-manager") if await holds(kube, name) == identity]
            await expire(kube, MIGRATION, *own)
            # A killed process logs no end.
            with current.log.open("a") as log:
                stamp = datetime.datetime.fromtimestamp(killed_at, datetime.UTC).isoformat().replace("+00:00", "Z")
                ended = ", ".join([*MOVED, "cloud-node-controller"])
                log.write(f"{stamp} INFO ccm.manager.running_controllers: stopped: {ended}\n")
        else:
            current.signal(end)
            assert await current.wait() == 0
        alive.remove(current)
    for number, one in enumerate(processes):
        for other in processes[number + 1 :]:
            for name in MOVED:
                assert not overlap(spans(one).get(name, []), spans(other).get(name, [])), (
                    name,
                    spans(one),
                    spans(other),
                )
    assert sum(1 for process in processes if spans(process).get("service-lb-controller")) >= 3


async def test_the_rights_to_the_migration_lease_are_checked_at_start(
    start_ccm: StartCcm, apiserver: ApiServer, kube: KubeClient
):
    process = start_ccm(kubeconfig=apiserver.kubeconfig("nobody-special", ()), enable_leader_migration=True)
    assert await process.wait() == 1
    assert "get configmaps in namespace kube-system" in process.text
    assert "extension-apiserver-authentication-reader" in process.text
