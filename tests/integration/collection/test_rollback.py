# SPDX-License-Identifier: Apache-2.0
"""The whole rollback.yml. It names hosts that it does not restore; while there are some, the controller stays."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
from collections.abc import AsyncIterator
from typing import Any

import pytest

from ccm.engine.client import ApiError, KubeClient, NotFoundError

from .ansible import Run
from .test_ccm_takeover import APPS, body
from .test_layouts import HOSTS, Cluster, cluster, forget_copies, play

pytestmark = pytest.mark.timeout(900)  # several plays in each test; each takes seconds on an idle machine

__all__ = ["cluster"]

NAME = "cloud-controller-manager"
DAEMONSET = f"{APPS}/daemonsets/{NAME}"
ENV = "/var/lib/kubelet/kubeadm-flags.env"


@pytest.fixture
async def migrated(cluster: Cluster, kube: KubeClient) -> AsyncIterator[dict[str, dict[str, bytes]]]:
    """Create a cluster with two migrated workers and a controller; yield the workers' files from before."""
    cluster.add("kubeadm-cp", HOSTS["kubeadm-cp"])
    before = {name: cluster.add(name, HOSTS["kubeadm-worker"]).files() for name in ("w-1", "w-2")}
    made = body("DaemonSet", NAME)
    made["metadata"]["labels"] = {"app.kubernetes.io/managed-by": "outoftree.ccm"}
    await kube.create(f"{APPS}/daemonsets", made)
    books = [*play("all", "detect/host"), *play("kubeadm-cp", "plan/migration"), *play("kube_node", "apply/kubelet")]
    done = await cluster.play("/dev/stdin", stdin=json.dumps(books))
    assert done.status == 0, done.output[-4000:]

    async def collect() -> None:
        """Do the garbage collector's part of a foreground deletion."""
        while True:
            with contextlib.suppress(ApiError):
                if (await kube.get(DAEMONSET, dict))["metadata"].get("deletionTimestamp"):
                    await kube.patch(DAEMONSET, {"metadata": {"finalizers": None}})
            await asyncio.sleep(0.1)

    task = asyncio.create_task(collect())
    yield before
    with contextlib.suppress(NotFoundError):
        await kube.delete(DAEMONSET)
    task.cancel()


async def back(cluster: Cluster, *arguments: str, **variables: Any) -> Run:
    return await cluster.play("playbooks/rollback.yml", *arguments, **variables)


def files(cluster: Cluster) -> dict[str, dict[str, bytes]]:
    return {name: cluster.machines[name].files() for name in ("w-1", "w-2")}


async def there(kube: KubeClient) -> bool:
    try:
        return not (await kube.get(DAEMONSET, dict))["metadata"].get("deletionTimestamp")
    except NotFoundError:
        return False


async def test_a_rollback_takes_nothing_away_before_every_host_is_restored(
    cluster: Cluster, kube: KubeClient, migrated: dict[str, dict[str, bytes]]
) -> None:
    state = cluster.machines["w-2"].folder / "var/lib/outoftree-ccm"
    shutil.move(state, state.with_name("elsewhere"))
    forget_copies(cluster.apiserver)
    after = files(cluster)
    lost = await back(cluster)
    assert lost.status != 0 and "Nothing was changed, and the controller still runs." in lost.failures[-1]
    assert "w-2: its kubelet has --cloud-provider=external" in lost.failures[-1] and "w-1" not in lost.failures[-1]
    assert files(cluster) == after and await there(kube)
    shutil.move(state.with_name("elsewhere"), state)

    # While one worker is left out, the controller stays; the other worker is restored.
    part = await back(cluster, "--limit", "all:localhost:!w-2")
    assert part.status != 0
    assert any("w-2: --limit excludes the host" in message for message in part.failures), part.failures
    assert "The controller is still installed." in part.failures[-1] and await there(kube)
    assert "Every file that the migration changed has its original content" not in part.output
    assert files(cluster) == {"w-1": migrated["w-1"], "w-2": after["w-2"]}

    # A failing host ends the run with a summary, and the controller stays.
    cluster.machines["w-2"].refuse("restart")
    failed = await back(cluster)
    assert failed.status != 0 and "The controller is still installed." in failed.failures[-1] and await there(kube)
    assert any("HOST " in str(result.get("msg")) and "SECONDS" in result["msg"] for result in failed)
    cluster.machines["w-2"].refuse()

    # A flag that somebody else set stays, and check mode shows the whole result.
    path = cluster.machines["w-2"].folder / ENV.lstrip("/")
    path.write_bytes(path.read_bytes().replace(b'external"', b'external --v=4"'))
    shown = await back(cluster, "--check", "--diff")
    table = next(str(result["msg"]) for result in shown if "why 1: " in str(result.get("msg")))
    assert "flags: the file was changed after the migration" in table and ENV in table, table
    assert shown.status == 0 and await there(kube) and b"external --v=4" in path.read_bytes(), shown.failures
    done = await back(cluster)
    assert done.status == 0, done.output[-4000:]
    expected = migrated["w-2"][ENV].rstrip(b'"\n') + b' --v=4"\n'
    assert files(cluster)["w-2"][ENV] == expected and not await there(kube)
    assert "These files were changed after the migration" in done.output
    assert "runs only its node controller" not in done.output  # the controller is removed
    again = await back(cluster)
    assert again.status == 0 and not any(result.get("changed") for result in again), again.output[-3000:]
