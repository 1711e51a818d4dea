# SPDX-License-Identifier: Apache-2.0
"""The traffic check with a real API server, the runtime and the simulated cloud: it passes, names what fails, and
leaves nothing behind."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from ccm.engine.client import KubeClient
from ccm_simcloud.testing import Simulator, running_simulator

from ..cluster import ApiServer
from ..runtime.conftest import StartCcm
from ..runtime.support import DEADLINE
from .ansible import call, task
from .test_layouts import HOSTS, Cluster, cluster
from .traffic_world import NAMESPACE, World, pool, running_world

__all__ = ["cluster"]


#: Seconds that the check may wait. It stops earlier if it is certain that something never comes, so it needs all of
#: `PATIENT` only on a busy machine. A slow cloud reports no error: there the check waits for all of `SLOW`.
PATIENT, SLOW = 300, 60
#: The image and its Python are only names: the tests' kubelet runs commands with its own Python.
COMMON = {"image": "localhost/check:1", "python": "python3"}
CONFIG: dict[str, Any] = {"projects": [{"name": "demo", "token": "demo-token", "region": "north"}]}


@pytest.fixture
def settings() -> dict[str, Any]:
    """Return further settings of the cloud."""
    return {}


@pytest.fixture
async def cloud(settings: dict[str, Any]) -> AsyncIterator[Simulator]:
    project = CONFIG["projects"][0] | {"load_balancer_addresses": pool()}
    async with running_simulator(CONFIG | {"projects": [project]} | settings, fabric=True) as simulator:
        yield simulator


@pytest.fixture
async def world(apiserver: ApiServer, cloud: Simulator, kube: KubeClient, tmp_path: Path) -> AsyncIterator[World]:
    async with running_world(apiserver, cloud, tmp_path, ["w-1", "w-2", "w-3", "w-4"]) as found:
        yield found


async def check(world: World, limit: int, **options: Any) -> dict[str, Any]:
    values = COMMON | {"wait_timeout": limit, "request_timeout": 5.0} | options
    (result,) = await call(str(world.apiserver.kubeconfig()), task("ccm_load_balancer_check", **values))
    return result


def leaves_nothing(world: World) -> None:
    assert world.apiserver.kubectl("get", "namespace", NAMESPACE, "--ignore-not-found") == ""
    assert not world.cloud.project().load_balancers.rows
    assert world.servers == {}


async def test_a_cluster_that_works_passes_and_is_left_as_it_was(world: World, start_ccm: StartCcm):
    await start_ccm().leading()
    before = json.loads(world.apiserver.kubectl("get", "nodes", "-o", "json"))["items"]
    result = await check(world, PATIENT, request_timeout=30.0)
    assert result.get("ok") and not result["changed"], result
    states = {item["name"]: item["state"] for item in result["checks"]}
    assert set(states.values()) == {"ok"}, "\n".join(result["lines"])
    requests = result["requests"]
    assert requests["outside"]["answered"] == requests["outside"]["asked"] == 40
    assert requests["pod from Pods"]["asked"] == 4 * 3 * 3 and requests["outside"]["median_ms"] > 0
    leaves_nothing(world)
    after = json.loads(world.apiserver.kubectl("get", "nodes", "-o", "json"))["items"]
    assert [item["metadata"]["uid"] for item in after] == [item["metadata"]["uid"] for item in before]
    (foretold,) = await call(str(world.apiserver.kubeconfig()), task("ccm_load_balancer_check", **COMMON, check=True))
    assert foretold["ok"] and not foretold["changed"] and "4 Node(s)" in foretold["lines"][1]


@pytest.mark.parametrize(
    ("broken", "cause", "text"),
    [
        ("routes", "no-route", "w-2 to w-3 (timeout)"),
        ("security-group", "security-group", "although w-1...w-4 answer(s) Pods at the node port"),
        ("ports", "wrong-port", ":80 refuses connections"),
        ("health", "health-port", "w-1, w-2 did not answer: their health port"),
        ("targets", "missing-nodes", "w-3, w-4"),
        ("address", "stale-address", "another server answers"),
    ],
)
async def test_what_breaks_in_the_network_is_named(
    world: World, start_ccm: StartCcm, broken: str, cause: str, text: str
):
    world.broken.add(broken)
    await start_ccm().leading()
    result = await check(world, PATIENT)
    assert not result["ok"] and result["cause"] == cause, "\n".join(result["lines"])
    assert text in " ".join(result["message"]), result["message"]
    leaves_nothing(world)


@pytest.mark.parametrize("settings", [{"limits": {"load_balancers": 0}}], ids=["quota"])
async def test_a_quota_is_named(world: World, start_ccm: StartCcm):
    await start_ccm().leading()
    result = await check(world, PATIENT)
    assert result["cause"] == "quota", result["lines"]
    leaves_nothing(world)


@pytest.mark.parametrize("settings", [{"timing": {"load_balancer_create": 3600.0}}], ids=["slow"])
async def test_a_slow_cloud_is_named(world: World, start_ccm: StartCcm):
    """The cloud needs an hour for a load balancer. The cloud's clock jumps by this hour once the check has deleted its
    Service, because the cloud deletes a load balancer only when it is ready."""
    await start_ccm().leading()
    checking = asyncio.create_task(check(world, SLOW))
    while not world.service.get("metadata", {}).get("deletionTimestamp") and not checking.done():
        await asyncio.sleep(0.1)
    world.cloud.advance(3600)
    result = await checking
    assert result["cause"] == "slow-cloud", result["lines"]
    leaves_nothing(world)


async def test_a_dead_controller_is_named_although_the_limit_would_allow_a_wait_of_an_hour(world: World):
    result = await check(world, 3600)
    assert result["cause"] == "dead-controller", result["lines"]
    leaves_nothing(world)


async def test_without_an_image_it_says_that_nothing_was_asked(world: World, start_ccm: StartCcm):
    world.broken.add("image")
    await start_ccm().leading()
    result = await check(world, PATIENT)
    assert result["cause"] == "no-image" and "ErrImagePull: no such image" in result["message"][0]
    leaves_nothing(world)


async def test_a_namespace_that_is_there_and_a_missing_image_are_refused_before_the_first_change(world: World):
    kubeconfig = str(world.apiserver.kubeconfig())
    (refused,) = await call(kubeconfig, task("ccm_load_balancer_check", **COMMON, check_namespace="kube-public"))
    assert refused["failed"] and "kube-public already exists, and is not this check's own" in refused["msg"]
    (refused,) = await call(kubeconfig, task("ccm_load_balancer_check"))
    assert refused["failed"] and "there is no image for the Pods" in refused["msg"]
    assert world.apiserver.kubectl("get", "namespace", "kube-public", "-o=name").strip() == "namespace/kube-public"


async def test_a_class_of_somebody_else_is_named(world: World, start_ccm: StartCcm):
    """An admission policy sets another class on every Service, as a webhook could; the check names the class."""
    path = "/apis/admissionregistration.k8s.io/v1"
    patch = {"expression": 'Object{spec: Object.spec{loadBalancerClass: "example.com/other"}}'}
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["services"]}
    spec = {
        "matchConstraints": {"resourceRules": [rule]},
        "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": patch}],
        "reinvocationPolicy": "Never",
        "failurePolicy": "Fail",
    }
    for kind, plural, body in (
        ("MutatingAdmissionPolicy", "mutatingadmissionpolicies", spec),
        ("MutatingAdmissionPolicyBinding", "mutatingadmissionpolicybindings", {"policyName": "class"}),
    ):
        created = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": "class"}}
        assert await world.call("POST", f"{path}/{plural}", created | {"spec": body})
    try:
        await in_force(world)
        await start_ccm().leading()
        result = await check(world, PATIENT)
    finally:
        for plural in ("mutatingadmissionpolicybindings", "mutatingadmissionpolicies"):
            await world.call("DELETE", f"{path}/{plural}/class")
    assert result["cause"] == "foreign-class" and "example.com/other" in result["message"][0], result["lines"]
    leaves_nothing(world)


@contextlib.asynccontextmanager
async def rolled_out(world: World, *flags: str, options: dict[str, Any] | None = None) -> AsyncIterator[None]:
    """Create the runtime's DaemonSet as the role does, with these flags. Nothing starts its Pods here.

    `options`: the content of its `--config` file, which is in a ConfigMap.
    """
    path, maps = "/apis/apps/v1/namespaces/kube-system/daemonsets", "/api/v1/namespaces/kube-system/configmaps"
    labels = {"app.kubernetes.io/name": "cloud-controller-manager", "app.kubernetes.io/managed-by": "outoftree.ccm"}
    mount = {"name": "options", "mountPath": "/etc/ccm/options"}
    arguments = [*flags, "--config=/etc/ccm/options/options.yaml"]
    container = {"name": "cloud-controller-manager", "image": "localhost/check:1", "args": arguments}
    volumes = [{"name": "options", "configMap": {"name": "ccm-options"}}]
    pod = {"containers": [container | {"volumeMounts": [mount]}], "volumes": volumes}
    meta = {"name": "cloud-controller-manager", "labels": labels}
    spec = {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod}}
    text = "".join(f"  {name}: {json.dumps(value)}\n" for name, value in (options or {}).items())
    data = {"options.yaml": f"kind: CloudControllerManagerConfiguration\nOutOfTree:\n{text}"}
    assert await world.call("POST", maps, {"metadata": {"name": "ccm-options"}, "data": data})
    assert await world.call(
        "POST", path, {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": meta, "spec": spec}
    )
    try:
        yield
    finally:
        await world.call("DELETE", f"{path}/cloud-controller-manager")
        await world.call("DELETE", f"{maps}/ccm-options")


async def test_a_controller_that_serves_only_its_own_class_is_asked_with_that_class(world: World, start_ccm: StartCcm):
    """The check's Service gets that class. One of the controller's two options is in its file, the other is a flag."""
    flags = {"load-balancer-class": "example.com/own", "default-load-balancer-provider": "none"}
    await start_ccm(**flags).leading()
    options = {"load-balancer-class": ["example.com/own"]}
    async with rolled_out(world, "--default-load-balancer-provider=none", options=options):
        result = await check(world, PATIENT, request_timeout=30.0)
    assert result.get("ok") and {item["state"] for item in result["checks"]} == {"ok"}, "\n".join(result["lines"])
    leaves_nothing(world)


async def test_a_controller_without_load_balancers_is_reported_and_the_rest_is_asked(world: World, start_ccm: StartCcm):
    """kube-proxy has not written the Service's rules when Pods ask for the first time."""
    world.broken.add("late-proxy")
    await start_ccm(controllers="cloud-node").leading()
    async with rolled_out(world, "--controllers=cloud-node"):
        result = await check(world, 3600, request_timeout=30.0)
    states = {item["name"]: item["state"] for item in result["checks"]}
    assert result["ok"] and states["address"] == states["outside"] == "not asked", result["lines"]
    assert states["pod-network"] == states["inside"] == states["removal"] == "ok", result["lines"]
    assert "it runs cloud-node-controller" in " ".join(item["detail"] for item in result["checks"])
    leaves_nothing(world)


async def in_force(world: World) -> None:
    """Wait until the admission policy is in force, which takes the API server a moment."""
    path = "/api/v1/namespaces/default/services"
    spec = {"type": "LoadBalancer", "ports": [{"port": 80}]}
    probe = {"apiVersion": "v1", "kind": "Service", "metadata": {"generateName": "probe-"}, "spec": spec}
    async with asyncio.timeout(DEADLINE):
        while True:
            made = await world.call("POST", path, probe)
            await world.call("DELETE", f"{path}/{made['metadata']['name']}")
            if made["spec"].get("loadBalancerClass"):
                return
            await asyncio.sleep(0.2)


async def test_the_playbook_fails_with_the_cause_and_hands_the_result_on(
    apiserver: ApiServer, cloud: Simulator, cluster: Cluster, tmp_path: Path
):
    """No controller leads here, so the check fails; the playbook reports the cause and passes the result on."""
    cluster.add("kubeadm-cp", HOSTS["kubeadm-cp"])
    (tmp_path / "kubelet").mkdir()
    details = {"image": "localhost/check:1"}
    values = {"ccm_install_verify_active_details": details, "ccm_install_services_timeout": PATIENT}
    async with running_world(apiserver, cloud, tmp_path / "kubelet", ["kubeadm-cp", "w-2"]) as world:
        run = await cluster.play("playbooks/verify_active.yml", **values)
        leaves_nothing(world)
    assert run.status != 0 and "Traceback" not in run.output
    assert run.failures[-1].startswith("address: no cloud-controller-manager is at work"), run.failures
    assert "Next: Run outoftree.ccm.verify" in run.failures[-1] and run.failures[-1].endswith(".verify_active")
    shown = run.output[run.output.index('"custom_stats"') :]
    assert '"verdict": "failed"' in shown and "dead-controller" in shown
