# SPDX-License-Identifier: Apache-2.0
"""A Node is drained as its Pods' budgets allow, and deleted on request; if the drain fails, it is uncordoned again."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from ..cluster import ApiServer
from .ansible import call, task

NODE = "agent-1"


class Agent:
    """A Node with Pods, and the parts of its kubelet and of kube-controller-manager that a drain needs."""

    def __init__(self, apiserver: ApiServer) -> None:
        self.apiserver = apiserver
        self.create(
            {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}, "spec": {"providerID": f"k3s://{NODE}"}}
        )
        self.uid = self.node()["metadata"]["uid"]

    def create(self, body: dict[str, Any]) -> None:
        self.apiserver.kubectl("create", "-f", "-", input=json.dumps(body))

    def node(self) -> dict[str, Any]:
        found = self.apiserver.kubectl("get", "node", NODE, "--ignore-not-found", "-o", "json")
        return json.loads(found) if found.strip() else {}

    def pod(self, name: str, owner: str = "") -> None:
        kinds = {"ReplicaSet": "apps/v1", "DaemonSet": "apps/v1"}
        owners = (
            [{"apiVersion": kinds[owner], "kind": owner, "name": "x", "uid": "x", "controller": True}] if owner else []
        )
        meta = {"name": name, "namespace": "default", "labels": {"app": name}, "ownerReferences": owners}
        self.create({"apiVersion": "v1", "kind": "Pod", "metadata": meta,
                     "spec": {"nodeName": NODE, "containers": [{"name": "c", "image": "i"}]}})  # fmt: skip
        self.status("pod", name, {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]})

    def budget(self, app: str, allowed: int, name: str = "") -> None:
        name = name or app
        if not self.apiserver.kubectl("get", "pdb", name, "--ignore-not-found"):
            meta = {"name": name, "namespace": "default"}
            spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": app}}}
            self.create({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": meta, "spec": spec})
        counts = {"currentHealthy": 1 + allowed, "desiredHealthy": 1, "expectedPods": 1 + allowed}
        self.status("pdb", name, {"observedGeneration": 1, "disruptionsAllowed": allowed} | counts)

    def status(self, kind: str, name: str, status: dict[str, Any]) -> None:
        body = json.dumps({"status": status})
        self.apiserver.kubectl("patch", kind, name, "--subresource=status", "--type=merge", "-p", body)

    def pods(self) -> dict[str, Any]:
        found = json.loads(self.apiserver.kubectl("get", "pods", "-o", "json"))["items"]
        return {pod["metadata"]["name"]: pod["metadata"] for pod in found}

    async def kubelet(self) -> None:
        """Remove Pods that are being deleted, and allow one disruption once the Node is cordoned."""
        while True:
            for name, meta in (await asyncio.to_thread(self.pods)).items():
                if "deletionTimestamp" in meta:
                    await asyncio.to_thread(
                        self.apiserver.kubectl, "delete", "pod", name, "--grace-period=0", "--force"
                    )
            if self.node().get("spec", {}).get("unschedulable"):
                self.budget("web", 1)
            await asyncio.sleep(0.5)


@pytest.fixture
def agent(apiserver: ApiServer) -> Any:
    for kind in ("pods", "pdb"):
        apiserver.kubectl("delete", kind, "--all", "--grace-period=0", "--force")
    apiserver.kubectl("delete", "nodes", "--all")
    yield Agent(apiserver)
    for kind in ("pods", "pdb"):
        apiserver.kubectl("delete", kind, "--all", "--grace-period=0", "--force")
    apiserver.kubectl("delete", "nodes", "--all")


async def test_budgets_are_honoured_and_a_node_that_cannot_be_drained_is_given_back(agent: Agent, kubeconfig: str):
    agent.pod("web", "ReplicaSet")
    agent.pod("daemon", "DaemonSet")
    agent.pod("lonely")
    agent.budget("web", 0)
    before = agent.node()["metadata"]["resourceVersion"]
    refused, foretold = await call(
        kubeconfig,
        task("ccm_node_drain", name=NODE, state="deleted"),
        task("ccm_node_drain", name=NODE, state="deleted", force=True, check=True),
    )
    assert refused["failed"] and "default/lonely has no controller that would create it again" in refused["msg"]
    assert "ccm_install_reregister_force" in refused["msg"]
    assert foretold["changed"] and foretold["evicted"] == ["default/lonely", "default/web"]
    assert agent.node()["metadata"]["resourceVersion"] == before
    agent.apiserver.kubectl("delete", "pod", "lonely", "--grace-period=0", "--force")
    (held,) = await call(kubeconfig, task("ccm_node_drain", name=NODE, state="deleted", wait_timeout=3))
    assert held["failed"] and "disruption budget" in held["msg"] and "default/web" in held["msg"], held
    assert "it accepts Pods again" in held["msg"] and "unschedulable" not in agent.node()["spec"]
    assert set(agent.pods()) == {"web", "daemon"}
    async with asyncio.TaskGroup() as parts:  # an error of the kubelet ends the test, not only the kubelet
        kubelet = parts.create_task(agent.kubelet())
        done, again = await call(
            kubeconfig,
            task("ccm_node_drain", name=NODE, state="deleted", wait_timeout=300),
            task("ccm_node_drain", name=NODE, state="deleted"),
        )
        kubelet.cancel()
    assert done["changed"] and done["evicted"] == ["default/web"], done
    assert set(agent.pods()) == {"daemon"} and agent.node() == {}
    assert not again["changed"]


async def test_an_error_of_the_api_server_is_retried_and_reported(agent: Agent, kubeconfig: str):
    agent.pod("web", "ReplicaSet")
    agent.budget("web", 1)
    agent.budget("web", 1, name="web-too")
    (held,) = await call(kubeconfig, task("ccm_node_drain", name=NODE, state="deleted", wait_timeout=3))
    assert held["failed"] and "default/web" in held["msg"] and "more than one PodDisruptionBudget" in held["msg"], held
    assert "could not be drained within 3 s" in held["msg"] and "it accepts Pods again" in held["msg"]
    assert "unschedulable" not in agent.node()["spec"]


async def test_a_drained_node_stays_cordoned_and_is_not_deleted(agent: Agent, kubeconfig: str):
    first, second = await call(kubeconfig, task("ccm_node_drain", name=NODE), task("ccm_node_drain", name=NODE))
    assert first["changed"] and not second["changed"]
    assert agent.node()["spec"]["unschedulable"] and agent.node()["metadata"]["uid"] == agent.uid
