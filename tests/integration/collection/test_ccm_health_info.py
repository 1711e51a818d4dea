# SPDX-License-Identifier: Apache-2.0
"""The verdict on a controller, from the objects in the cluster and from the runtime's own Lease."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from ccm.engine.client import KubeClient, NotFoundError
from ccm_simcloud.testing import Simulator

from ..runtime.conftest import StartCcm
from ..runtime.support import NODES, eventually, get_lease, initialised, node_body
from .ansible import call, task

SYSTEM = "kube-system"
DAEMONSETS = "/apis/apps/v1/namespaces/{}/daemonsets"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/{}/leases"
PODS = "/api/v1/namespaces/{}/pods"
COMPLETE = {"desiredNumberScheduled": 1, "numberReady": 1, "updatedNumberScheduled": 1, "observedGeneration": 1}
NOTES = {"cloud-provider": "sim", "controllers": "cloud-node-controller", "last-cloud-success": "2026-01-01T00:00:00Z"}


class Rollout:
    """DaemonSets, Pods and Leases as they would be in a cluster where controllers and kubelets run."""

    def __init__(self, kube: KubeClient) -> None:
        self._kube = kube
        self._made: list[str] = []

    async def create(self, collection: str, name: str, body: dict[str, Any]) -> str:
        metadata = {"name": name} | body.pop("metadata", {})
        await self._kube.create(collection, {**body, "metadata": metadata})
        self._made.append(f"{collection}/{name}")
        return self._made[-1]

    async def daemonset(self, name: str, **status: int) -> None:
        container = {"name": "ccm", "image": "localhost/outoftree-ccm:0.1.0"}
        template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container]}}
        body = {"apiVersion": "apps/v1", "kind": "DaemonSet"}
        body |= {"spec": {"selector": {"matchLabels": {"app": name}}, "template": template}}
        path = await self.create(DAEMONSETS.format(SYSTEM), name, body)
        counts = {"currentNumberScheduled": 0, "numberMisscheduled": 0, "desiredNumberScheduled": 0, "numberReady": 0}
        await self._kube.patch(f"{path}/status", {"status": counts | status})

    async def pod(self, name: str, app: str, node: str, *, waiting: str = "") -> None:
        container = {"name": "ccm", "image": "localhost/outoftree-ccm:0.1.0"}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": {"app": app}}}
        # No kubelet stops the Pod: without a grace period, the deletion is complete when the call returns.
        body |= {"spec": {"nodeName": node, "terminationGracePeriodSeconds": 0, "containers": [container]}}
        path = await self.create(PODS.format(SYSTEM), name, body)
        status: dict[str, Any] = {"conditions": [{"type": "Ready", "status": "False" if waiting else "True"}]}
        if waiting:
            state = {"waiting": {"reason": "CrashLoopBackOff", "message": waiting}}
            entry = {"name": "ccm", "image": "", "imageID": "", "ready": False, "restartCount": 4, "state": state}
            status["containerStatuses"] = [entry]
        await self._kube.patch(f"{path}/status", {"status": status})

    async def lease(self, name: str, holder: str, *, renewed: float = 0.0, notes: dict[str, str] | None = None) -> None:
        """Create a Lease that was renewed `renewed` seconds ago and lasts four minutes."""
        when = time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime(time.time() - renewed))
        annotations = {f"ccm.outoftree.dev/{key}": value for key, value in (notes or {}).items()}
        body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"annotations": annotations}}
        body |= {"spec": {"holderIdentity": holder, "renewTime": when, "leaseDurationSeconds": 240}}
        await self.create(LEASES.format(SYSTEM), name, body)

    async def remove(self) -> None:
        for path in self._made:
            with contextlib.suppress(NotFoundError):
                await self._kube.delete(path)


@pytest.fixture
async def rollout(kube: KubeClient) -> AsyncIterator[Rollout]:
    made = Rollout(kube)
    yield made
    await made.remove()


async def test_each_ill_has_its_reason(rollout: Rollout, kubeconfig: str):
    ready = ("well", "no-node", "stale", "no-lease", "stranger", "wrong", "noted")
    for name in ready:
        await rollout.daemonset(name, **COMPLETE | ({"desiredNumberScheduled": 0} if name == "no-node" else {}))
    await rollout.daemonset("half", **COMPLETE | {"desiredNumberScheduled": 2, "numberReady": 1})
    await rollout.pod("half-1", "half", "cp-1")
    await rollout.pod("half-2", "half", "cp-2", waiting="back-off 40s")
    await rollout.pod("stranger-1", "stranger", "cp-1")
    for name in ("well", "no-node", "half"):
        await rollout.lease(name, "cp-1_6f1a")
    await rollout.lease("stale", "cp-1_6f1a", renewed=300)
    await rollout.lease("stranger", "elsewhere_77")
    await rollout.lease("wrong", "cp-1_6f1a", notes={key: NOTES[key] for key in ("cloud-provider", "controllers")})
    await rollout.lease("noted", "cp-1_6f1a", notes=NOTES)

    both = ["cloud-node-controller", "service-lb-controller"]
    calls: list[tuple[dict[str, Any], list[str]]] = [
        ({"name": "well"}, []),
        ({"name": "nowhere"}, ["there is no DaemonSet", "nobody holds the Lease"]),
        ({"name": "no-node"}, ["has 0 Pods"]),
        ({"name": "half"}, ["1 of 2 Pods run", "1 of 2 Pods are Ready", "Pod half-2 on cp-2 is not Ready: CrashLoop"]),
        ({"name": "stale"}, ["cp-1_6f1a holds the Lease, but has not renewed it for 3"]),
        ({"name": "no-lease"}, ["nobody holds the Lease"]),
        ({"name": "stranger"}, ["elsewhere_77 holds the Lease, but is none of the Pods"]),
        ({"name": "wrong", "controllers": both}, ["does not run service-lb-controller", "no call to the cloud has"]),
        ({"name": "noted", "max_cloud_age": 60}, ["the last successful call to the cloud was"]),
    ]
    waits = task("ccm_health_info", name="no-node", lease="no-node", wait=True, wait_timeout=0)
    looks = (task("ccm_health_info", lease=arguments["name"], **arguments) for arguments, _ in calls)
    run = await call(kubeconfig, *looks, waits)
    *verdicts, timed_out = run
    for (arguments, expected), verdict in zip(calls, verdicts, strict=True):
        assert not verdict.get("failed"), (arguments, verdict)
        assert verdict["healthy"] is (not expected), (arguments, verdict["reasons"])
        assert len(verdict["reasons"]) == len(expected), (arguments, verdict["reasons"])
        for wanted, said in zip(expected, verdict["reasons"], strict=True):
            assert wanted in said, (arguments, verdict["reasons"])
    assert timed_out["failed"]
    assert "not healthy after 0 s: the DaemonSet has 0 Pods" in timed_out["msg"]
    assert timed_out["daemonset"]["desired"] == 0


async def test_a_leading_runtime_is_healthy_until_it_ends(
    kube: KubeClient, cloud: Simulator, start_ccm: StartCcm, rollout: Rollout, kubeconfig: str
):
    cloud.add_instance("first", addresses=[{"type": "InternalIP", "address": "10.0.0.6"}])
    ccm = start_ccm(controllers="cloud-node-controller")
    await ccm.leading()
    holder = (await get_lease(kube)).spec.holder_identity
    assert holder
    await rollout.daemonset("cloud-controller-manager", **COMPLETE)
    await rollout.pod("ccm-1", "cloud-controller-manager", holder.rsplit("_", 1)[0])
    await kube.create(NODES, node_body("first"))
    await eventually(lambda: initialised(kube, "first"))

    wanted = ["cloud-node-controller"]
    (leading,) = await call(
        kubeconfig, task("ccm_health_info", controllers=wanted, max_cloud_age=3600, wait=True, wait_timeout=300)
    )
    assert not leading.get("failed"), leading
    assert leading["healthy"] and leading["reasons"] == []
    assert leading["lease"]["holder"] == holder and leading["lease"]["held"]
    assert leading["lease"]["annotations"]["cloud-provider"] == "sim"
    assert leading["last_cloud_success_age"] < 3600

    assert leading["held"] == {}

    about = {"kind": "Node", "name": "first", "uid": "a-uid"}
    for reason in ("DeletionHeld", "Other"):
        event = {"reason": reason, "type": "Warning", "message": f"for {reason}", "involvedObject": about}
        await rollout.create("/api/v1/namespaces/default/events", reason.lower(), event)
    await ccm.stop()
    ended, other = await call(
        kubeconfig, task("ccm_health_info", controllers=wanted), task("ccm_health_info", notes=False)
    )
    assert ended["held"] == other["held"] == {"a-uid": "for DeletionHeld"}
    assert not ended["healthy"] and "no controller leads, because nobody holds the Lease" in ended["reasons"]
