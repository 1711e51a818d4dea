# SPDX-License-Identifier: Apache-2.0
"""ccm_runtime_volume_webhook in plays: a real API server calls a real process, with the role's certificate."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from ccm.providers.sim.volumes import CSI_DRIVER
from ccm_simcloud.model import VolumeBody
from ccm_simcloud.testing import Simulator, running_simulator
from tests.ports import free_port

from ..cluster import ApiServer
from ..runtime.support import Ccm
from .ansible import Run, playbook

pytestmark = [pytest.mark.timeout(600), pytest.mark.long]

SECRET, HOOK = "cloud-controller-manager-webhook-self-signed", "cloud-controller-manager-volumes"
FAIL = {"ccm_runtime_volume_webhook_failure_policy": "Fail"}
BODY: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "PersistentVolume",
    "metadata": {"name": "of-the-play"},
    "spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}},
}


async def tasks(apiserver: ApiServer, port: int, *names: str, arguments: tuple[str, ...] = (), **changed: Any) -> Run:
    """Run these task files of the role, as a rollout does."""
    given = {
        "ccm_install_kubeconfig": str(apiserver.kubeconfig()),
        "ccm_runtime_cloud_provider": "sim",
        "ccm_runtime_volume_webhook": True,
        "ccm_runtime_health_timeout": 20,
        "__ccm_runtime_webhook_port": port,
        **changed,
    }
    steps = [
        {"ansible.builtin.include_role": {"name": "outoftree.ccm.ccm_runtime", "tasks_from": each}} for each in names
    ]
    play = {"hosts": "localhost", "connection": "local", "gather_facts": False, "tasks": steps}
    return await playbook("/dev/stdin", "-e", json.dumps(given), *arguments, stdin=json.dumps([play]), seconds=180)


def changes(run: Run) -> list[Any]:
    return [result for result in run if result.get("changed")]


def data(apiserver: ApiServer) -> dict[str, str]:
    found = json.loads(apiserver.kubectl("-n", "kube-system", "get", "secret", SECRET, "-o", "json"))
    return dict(found["data"])


def bundle(apiserver: ApiServer) -> str:
    found = json.loads(apiserver.kubectl("get", "mutatingwebhookconfiguration", HOOK, "-o", "json"))
    return str(found["webhooks"][0]["clientConfig"]["caBundle"])


def there(apiserver: ApiServer) -> list[str]:
    """Return which of the role's two objects exist."""
    found = []
    for kind, name in (("mutatingwebhookconfiguration", HOOK), ("secret", SECRET)):
        found += apiserver.kubectl("-n", "kube-system", "get", kind, name, "--ignore-not-found", "-o", "name").split()
    return found


@pytest.fixture
async def cloud() -> AsyncIterator[Simulator]:
    async with running_simulator({"projects": [{"name": "demo", "token": "demo-token", "region": "north"}]}) as made:
        yield made


@pytest.fixture
def left(apiserver: ApiServer) -> Iterator[None]:
    """Remove the applied objects after the test."""
    yield
    apiserver.kubectl("delete", "mutatingwebhookconfiguration", HOOK, "--ignore-not-found")
    apiserver.kubectl("-n", "kube-system", "delete", "secret", SECRET, "--ignore-not-found")
    apiserver.kubectl("delete", "persistentvolume", BODY["metadata"]["name"], "--ignore-not-found", "--wait=false")


def serve(apiserver: ApiServer, cloud: Simulator, folder: Path, port: int) -> Ccm:
    """Start the runtime with the Secret's certificate and key, which are in `folder`."""
    (folder / "cloud.conf").write_text(cloud.conf())
    flags = {"cloud-provider": "sim", "cloud-config": folder / "cloud.conf", "kubeconfig": apiserver.kubeconfig()}
    flags |= {"webhooks": "persistentvolume-label", "feature-gates": "CloudControllerManagerWebhook=true"}
    flags |= {"webhook-tls-cert-file": folder / "tls.crt", "webhook-tls-private-key-file": folder / "tls.key"}
    flags |= {"webhook-secure-port": port, "secure-port": 0, "leader-elect-resource-name": "of-the-play"}
    flags["configure-cloud-routes"] = "false"
    return Ccm([f"--{name}={value}" for name, value in flags.items()], folder / "ccm.log", port)


async def test_the_webhook_comes_and_goes_with_its_variable(
    apiserver: ApiServer, cloud: Simulator, tmp_path: Path, left: None
):
    port, disk = free_port(), cloud.project().create_volume(VolumeBody("disk", "north-b"))
    run = await tasks(apiserver, port, "rollout/webhook_certificate.yml", arguments=("--check", "--diff"))
    assert run.status == 0 and there(apiserver) == [], run.output
    run = await tasks(apiserver, port, "rollout/webhook_certificate.yml")
    assert run.status == 0, run.output
    made = data(apiserver)
    assert made["tls.key"] not in run.output and "PRIVATE KEY" not in run.output

    for name in ("tls.crt", "tls.key"):
        (tmp_path / name).write_bytes(base64.b64decode(made[name]))
    process = serve(apiserver, cloud, tmp_path, port)
    try:
        await process.until_logged("webhooks: persistentvolume-label")
        run = await tasks(apiserver, port, "rollout/webhook_certificate.yml", "rollout/volume_webhook.yml", **FAIL)
        assert run.status == 0, run.output
        assert bundle(apiserver) == made["ca.crt"]
        spec = BODY["spec"] | {"csi": {"driver": CSI_DRIVER, "volumeHandle": disk.id}}
        text = json.dumps(BODY | {"spec": spec})
        # In a thread: the cloud answers in this event loop.
        shown = await asyncio.to_thread(apiserver.kubectl, "create", "-f", "-", "-o", "json", input=text)
        assert json.loads(shown)["metadata"]["labels"]["topology.kubernetes.io/zone"] == "north-b"
        again = await tasks(apiserver, port, "rollout/webhook_certificate.yml", "rollout/volume_webhook.yml", **FAIL)
        assert again.status == 0 and changes(again) == [] and data(apiserver) == made

        # An unusable certificate is replaced, and the API server trusts the new one before it is served.
        apiserver.kubectl("-n", "kube-system", "patch", "secret", SECRET, "-p", '{"data":{"ca.crt":"eA=="}}')
        run = await tasks(apiserver, port, "rollout/webhook_certificate.yml", **FAIL)
        assert run.status == 0, run.output
        renewed = data(apiserver)
        assert renewed["tls.crt"] != made["tls.crt"] and bundle(apiserver) == renewed["ca.crt"]
    finally:
        await process.stop()

    last = data(apiserver)["tls.key"]
    for mode in ("--check", "--diff"):
        off = await tasks(apiserver, port, "rollout/webhook_removal.yml", arguments=(mode, "--diff", "-vvv"))
        assert off.status == 0 and changes(off) and last not in off.output, off.output
    assert there(apiserver) == []


async def test_a_webhook_that_does_not_answer_is_removed_and_that_is_said(apiserver: ApiServer, left: None):
    names = ("rollout/webhook_certificate.yml", "rollout/volume_webhook.yml")
    run = await tasks(apiserver, free_port(), *names, ccm_runtime_health_timeout=4)
    assert run.status != 0 and "The API server does not reach the webhook" in run.failures[-1], run.output
    assert there(apiserver) == []


async def test_what_cannot_work_is_refused(apiserver: ApiServer, left: None):
    own = {"ccm_runtime_volume_webhook_ca_bundle": "-----BEGIN CERTIFICATE-----\n"}
    run = await tasks(apiserver, 1, "rollout/webhook_certificate.yml", **own)
    (message,) = run.failures
    assert "kube-system has no Secret cloud-controller-manager-webhook with tls.crt and tls.key" in message
    run = await tasks(apiserver, 1, "validate/settings.yml", ccm_runtime_command=["/vendor"])
    assert "another vendor's controller" in run.failures[0]
    assert there(apiserver) == []
