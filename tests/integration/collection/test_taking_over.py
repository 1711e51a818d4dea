# SPDX-License-Identifier: Apache-2.0
"""The plays that replace another controller by the new one, against a real API server.

`Workloads` replaces kubelets and kube-controller-manager: it writes the Pods, the counts and the Leases that they and
the controllers would write, and records who led.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import datetime
from collections.abc import AsyncIterator
from typing import Any

import pytest

from ccm.engine.client import ApiError, KubeClient, NotFoundError

from ..runtime.support import eventually
from .ansible import Run
from .test_ccm_takeover import APPS, NOTE, PODS, body
from .test_layouts import HOSTS, Cluster, cluster
from .test_runs import LOOK, plays, run

pytestmark = pytest.mark.timeout(900)  # several plays in each test; each takes seconds on an idle machine

__all__ = ["cluster"]

OLD, NEW = "acme", "cloud-controller-manager"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
ROLL_OUT = plays("site", "Roll out the controller")
GO_BACK = plays(
    "rollback", "Detect", "Plan the rollback", "Restore the cluster's configuration", "Remove the controller"
)
BAD_IMAGE = "localhost/there-is-none:1"


class Workloads:
    """Stand-in for kubelets and kube-controller-manager. `leaders`: who held a Lease, in order. `both`: whether
    both controllers ever led at the same time, with two Leases."""

    def __init__(self, kube: KubeClient, old_lease: str) -> None:
        self._kube, self._old_lease, self.shared = kube, old_lease, old_lease == NEW
        self.leaders: list[str] = []
        self.both = False

    async def play(self) -> None:
        while True:
            with contextlib.suppress(ApiError):
                await self._turn()
            await asyncio.sleep(0.1)

    async def _turn(self) -> None:
        old = await self._get(f"{APPS}/deployments/{OLD}")
        new = await self._get(f"{APPS}/daemonsets/{NEW}")
        wanted = old["spec"]["replicas"] if old else 0
        await self._pod(f"{OLD}-5d9f-1", "ReplicaSet", f"{OLD}-5d9f", wanted > 0)
        image = new["spec"]["template"]["spec"]["containers"][0]["image"] if new else ""
        leaves = bool(new and new["metadata"].get("deletionTimestamp"))
        await self._pod(f"{NEW}-1", "DaemonSet", NEW, new is not None and not leaves, ready=image != BAD_IMAGE)
        if leaves:  # the garbage collector's part of a deletion in the foreground
            await self._kube.patch(f"{APPS}/daemonsets/{NEW}", {"metadata": {"finalizers": None}})
            new = None
        if old:
            status = {"observedGeneration": old["metadata"]["generation"], "replicas": wanted, "readyReplicas": wanted}
            await self._kube.patch(f"{APPS}/deployments/{OLD}/status", {"status": status})
        if new:
            good = int(image != BAD_IMAGE)
            counts = dict.fromkeys(("desiredNumberScheduled", "currentNumberScheduled", "updatedNumberScheduled"), 1)
            counts |= {
                "numberMisscheduled": 0,
                "numberReady": good,
                "observedGeneration": new["metadata"]["generation"],
            }
            await self._kube.patch(f"{APPS}/daemonsets/{NEW}/status", {"status": counts})
        if old and wanted:
            await self._hold(self._old_lease, f"{OLD}-5d9f-1_a")
        if new and image != BAD_IMAGE and not (wanted and self._old_lease == NEW):
            self.both = self.both or bool(wanted)
            await self._hold(NEW, f"{NEW}-1_b")

    async def ended(self) -> bool:
        return not any([await self._get(f"{PODS}/{name}") for name in (f"{OLD}-5d9f-1", f"{NEW}-1")])

    async def _get(self, path: str) -> dict[str, Any] | None:
        try:
            return await self._kube.get(path, dict)
        except NotFoundError:
            return None

    async def _pod(self, name: str, kind: str, owner: str, wanted: bool, ready: bool = True) -> None:
        exists = await self._get(f"{PODS}/{name}")
        if wanted and not exists:
            made_by = {"apiVersion": "apps/v1", "kind": kind, "name": owner, "uid": "0", "controller": True}
            labels = {"app.kubernetes.io/name": owner}
            meta = {"name": name, "labels": labels, "ownerReferences": [made_by]}
            spec = {"containers": [{"name": "main", "image": "x"}]}
            await self._kube.create(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
            status: dict[str, Any] = {"conditions": [{"type": "Ready", "status": "True" if ready else "False"}]}
            if not ready:
                waiting = {"waiting": {"reason": "ErrImageNeverPull", "message": "no such image"}}
                entry = {"name": "main", "image": "x", "imageID": "", "ready": False, "restartCount": 0}
                status["containerStatuses"] = [entry | {"state": waiting}]
            await self._kube.patch(f"{PODS}/{name}/status", {"status": status})
        elif exists and not wanted:
            await self._kube.delete(f"{PODS}/{name}")

    async def _hold(self, name: str, holder: str) -> None:
        now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = {"holderIdentity": holder, "renewTime": now, "leaseDurationSeconds": 15}
        if await self._get(f"{LEASES}/{name}"):
            await self._kube.patch(f"{LEASES}/{name}", {"spec": spec})
        else:
            body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}, "spec": spec}
            await self._kube.create(LEASES, body)
        if self.leaders[-1:] != [holder]:
            self.leaders.append(holder)


@pytest.fixture(params=[NEW, OLD], ids=["one-lease", "two-leases"])
async def workloads(request: pytest.FixtureRequest, kube: KubeClient, cluster: Cluster) -> AsyncIterator[Workloads]:
    cluster.add("kubeadm-cp", HOSTS["kubeadm-cp"])
    made = body("Deployment", OLD, replicas=2)
    made["spec"]["template"]["spec"]["containers"][0]["args"] = [f"--leader-elect-resource-name={request.param}"]
    await kube.create(f"{APPS}/deployments", made)
    played = Workloads(kube, request.param)
    task = asyncio.create_task(played.play())
    yield played
    await kube.delete(f"{APPS}/deployments/{OLD}")
    for path in (f"{APPS}/daemonsets/{NEW}", f"{LEASES}/{OLD}", f"{LEASES}/{NEW}"):
        with contextlib.suppress(NotFoundError):
            await kube.delete(path)
    await eventually(played.ended, what="their Pods go")
    task.cancel()


async def go(cluster: Cluster, books: list[dict[str, Any]], **variables: Any) -> Run:
    return await run(cluster, books, **{"ccm_install_takeover": "adopt", "ccm_runtime_health_timeout": 60} | variables)


async def test_the_new_one_takes_the_place_of_the_old_one_and_gives_it_back(
    cluster: Cluster, workloads: Workloads, kube: KubeClient
) -> None:
    refused = await run(cluster, LOOK)
    assert refused.status != 0 and f"Deployment kube-system/{OLD} (acme:1" in refused.failures[-1]

    done = await go(cluster, LOOK + ROLL_OUT)
    assert done.status == 0, done.output[-4000:]
    old = await kube.get(f"{APPS}/deployments/{OLD}", dict)
    assert old["spec"]["replicas"] == 0 and old["metadata"]["annotations"][NOTE] == '{"replicas": 2}'
    assert workloads.leaders[-1] == f"{NEW}-1_b" and not workloads.both
    again = await go(cluster, LOOK + ROLL_OUT)
    assert again.status == 0, again.failures
    assert [name for name, result in again.named.items() if result.get("changed")] == [], again.named

    back = await run(cluster, GO_BACK)
    assert back.status == 0, back.output[-4000:]
    old = await kube.get(f"{APPS}/deployments/{OLD}", dict)
    assert old["spec"]["replicas"] == 2 and NOTE not in old["metadata"].get("annotations", {})
    with pytest.raises(NotFoundError):
        await kube.get(f"{APPS}/daemonsets/{NEW}", dict)
    assert workloads.leaders[-1] == f"{OLD}-5d9f-1_a" and not workloads.both


async def test_one_that_does_not_come_up_leaves_the_old_one_running(
    cluster: Cluster, workloads: Workloads, kube: KubeClient
) -> None:
    broken = {"ccm_runtime_image": BAD_IMAGE, "ccm_runtime_health_timeout": 3, "ccm_install_takeover": "adopt"}
    failed = await run(cluster, LOOK + ROLL_OUT, **broken)
    assert failed.status != 0 and "ErrImageNeverPull" in failed.failures[-1]
    assert f"The run resumed the other cloud-controller-manager: {OLD}. Nothing else was changed" in failed.failures[-1]
    old = await kube.get(f"{APPS}/deployments/{OLD}", dict)
    assert old["spec"]["replicas"] == 2 and NOTE not in old["metadata"].get("annotations", {})
    with pytest.raises(NotFoundError):
        await kube.get(f"{APPS}/daemonsets/{NEW}", dict)
    assert set(workloads.leaders) == {f"{OLD}-5d9f-1_a"} and not workloads.both


BROKEN = {"ccm_runtime_image": BAD_IMAGE, "ccm_runtime_health_timeout": 3}
PAUSED = {"metadata": {"annotations": {NOTE: '{"replicas": 2}'}}, "spec": {"replicas": 0}}
RESUMED = f"The run resumed the other cloud-controller-manager: {OLD}. Nothing else was changed"


@pytest.mark.parametrize("workloads", [pytest.param(OLD, id="two-leases")], indirect=True)
async def test_what_a_killed_run_paused_comes_back_if_the_new_one_does_not_come_up(
    cluster: Cluster, workloads: Workloads, kube: KubeClient
) -> None:
    await comes_back(cluster, kube)
    assert set(workloads.leaders) == {f"{OLD}-5d9f-1_a"}


async def comes_back(cluster: Cluster, kube: KubeClient) -> None:
    await kube.patch(f"{APPS}/deployments/{OLD}", PAUSED)
    failed = await go(cluster, LOOK + ROLL_OUT, **BROKEN)
    assert failed.status != 0 and RESUMED in failed.failures[-1]
    old = await kube.get(f"{APPS}/deployments/{OLD}", dict)
    assert old["spec"]["replicas"] == 2 and NOTE not in old["metadata"].get("annotations", {})
    with pytest.raises(NotFoundError):
        await kube.get(f"{APPS}/daemonsets/{NEW}", dict)


async def test_after_a_killed_run_the_paused_one_comes_back_if_the_new_one_never_led(
    cluster: Cluster, workloads: Workloads, kube: KubeClient
) -> None:
    await comes_back(cluster, kube)

    # This run is killed when the new controller's DaemonSet exists.
    killed = copy.deepcopy(ROLL_OUT)
    del killed[0]["tasks"][0]["rescue"]
    assert (await go(cluster, LOOK + killed, **BROKEN)).status != 0
    await kube.patch(f"{APPS}/deployments/{OLD}", PAUSED)
    failed = await go(cluster, LOOK + ROLL_OUT, **BROKEN)
    old = await kube.get(f"{APPS}/deployments/{OLD}", dict)
    if workloads.shared:  # The shared Lease was renewed after the pause, perhaps by the new controller.
        assert f"stays paused: {OLD}. A rollback removes the new one" in failed.failures[-1]
        assert old["spec"]["replicas"] == 0 and await kube.get(f"{APPS}/daemonsets/{NEW}", dict)
    else:
        assert RESUMED in failed.failures[-1] and old["spec"]["replicas"] == 2
        with pytest.raises(NotFoundError):
            await kube.get(f"{APPS}/daemonsets/{NEW}", dict)
    assert set(workloads.leaders) == {f"{OLD}-5d9f-1_a"}
