# SPDX-License-Identifier: Apache-2.0
"""A real API server calls the webhook persistentvolume-label of real processes about PersistentVolumes."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import ssl
import subprocess
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from ccm.controllers.volumes.volume_webhook import DEADLINE
from ccm.engine.client import ApiError, KubeClient
from ccm.providers.sim.volumes import CSI_DRIVER
from ccm_simcloud.model import VolumeBody
from ccm_simcloud.testing import Simulator
from tests.ports import free_port
from tools.docs.commands import ROOT, command

from ..cluster import ApiServer
from ..shell import shell
from .conftest import StartCcm
from .support import VOLUMES, Ccm, ask, eventually, rights
from .test_volumes import REGION, ZONE, labels, volume_body

HOOKS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
PATH = "/persistentvolume-label"
PAGE = "docs/how-to/webhooks.md"


def on_the_page(kind: str) -> dict[str, Any]:
    """Return the object of this kind from the page."""
    text = (ROOT / PAGE).read_text()
    blocks = re.findall(r"^ *```yaml\n(.*?)^ *```$", text, re.MULTILINE | re.DOTALL)
    (found,) = [each for each in map(yaml.safe_load, blocks) if each["kind"] == kind]
    return dict(found)


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def start(start_ccm: StartCcm, apiserver: ApiServer, tmp_path: Path, port: int) -> Callable[..., Ccm]:
    """Return a function that starts a process, which serves the webhook with a certificate of the test's authority."""

    certificate(apiserver, tmp_path)

    def run(**flags: Any) -> Ccm:
        given = {"webhooks": "persistentvolume-label", "feature-gates": "CloudControllerManagerWebhook=true"}
        given |= {"webhook-cert-dir": tmp_path, "webhook-secure-port": port}
        return start_ccm(**given, **flags)

    return run


def certificate(apiserver: ApiServer, folder: Path) -> bytes:
    cert, key = apiserver.authority.issue("webhook", hosts=["127.0.0.1"])
    (folder / "cloud-controller-manager-webhook.key").write_bytes(key)
    (folder / "cloud-controller-manager-webhook.crt").write_bytes(cert)
    return cert


@pytest.fixture
async def configure(kube: KubeClient, apiserver: ApiServer, port: int) -> AsyncIterator[Callable[..., Any]]:
    """Yield a function that lets the API server call the webhook, with a failure policy."""

    async def apply(policy: str) -> None:
        configuration = on_the_page("MutatingWebhookConfiguration")
        (hook,) = configuration["webhooks"]
        hook["clientConfig"] = {
            "caBundle": base64.b64encode(apiserver.ca_file.read_bytes()).decode(),
            "url": hook["clientConfig"]["url"].replace("10260", str(port)),
        }
        hook["failurePolicy"] = policy
        await kube.create(HOOKS, configuration)

    yield apply
    await kube.delete(f"{HOOKS}/{on_the_page('MutatingWebhookConfiguration')['metadata']['name']}")


async def answers(kube: KubeClient) -> bool:
    """Return whether the API server reaches the webhook. The API server needs a moment to know its webhooks."""
    try:
        shown = await kube.ask(f"{VOLUMES}?dryRun=All", on_the_page("PersistentVolume"), dict)
    except ApiError:
        return False
    return bool(shown["metadata"]["annotations"]["ccm.outoftree.dev/volume-webhook"] == "answered")


async def created(kube: KubeClient, name: str, handle: str, **more: Any) -> dict[str, Any]:
    """Create a volume, and return it as the API server answers."""
    return await kube.ask(VOLUMES, volume_body(name, handle, **more), dict)


async def test_a_volume_is_right_when_it_is_created_by_a_leader_and_by_a_standby(
    kube: KubeClient, cloud: Simulator, start: Callable[..., Ccm], configure: Any, apiserver: ApiServer,
    tmp_path: Path, port: int,
):  # fmt: skip
    disk = cloud.project().create_volume(VolumeBody("disk", "north-b"))
    first = start(controllers="*,-pvlabel")
    await first.leading()
    await configure("Fail")
    await eventually(lambda: answers(kube))
    (tmp_path / "check.yaml").write_text(yaml.safe_dump(on_the_page("PersistentVolume")))
    assert "volume-webhook: answered" in await shell(command(PAGE, "kubectl create"), tmp_path, apiserver)
    volume = await created(kube, "hooked", disk.id, labels={"team": "a"})
    assert volume["metadata"]["labels"] == {"team": "a", ZONE: "north-b", REGION: "north"}
    (term,) = volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
    assert {each["key"]: each["values"] for each in term["matchExpressions"]} == {ZONE: ["north-b"], REGION: ["north"]}
    assert cloud.calls("volumes.get") == 1

    for name, handle, more in (
        ("provisioned", disk.id, {"annotations": {"pv.kubernetes.io/provisioned-by": CSI_DRIVER}}),
        ("of-others", "vol-1", {"driver": "ebs.csi.example"}),
        ("labelled", disk.id, {"labels": {ZONE: "mine", REGION: "mine"}}),
    ):
        assert (await created(kube, name, handle, **more))["metadata"].get("labels", {}) == more.get("labels", {})
    assert cloud.calls("volumes.get") == 1

    await first.stop()
    await start(webhook_secure_port=0).leading()
    standby = start()
    await eventually(lambda: answers(kube))
    assert "leading; controllers" not in standby.text
    assert (await created(kube, "by-a-standby", disk.id))["metadata"]["labels"][ZONE] == "north-b"

    # A renewed certificate needs no restart: the API server's next connection gets it.
    renewed = ssl.PEM_cert_to_DER_cert(certificate(apiserver, tmp_path).decode())
    assert await served(port) == renewed
    assert (await created(kube, "renewed", disk.id))["metadata"]["labels"][ZONE] == "north-b"


async def served(port: int) -> bytes:
    """Return the certificate that the port serves, in DER."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    found: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    return found


async def test_without_an_answer_of_the_cloud_the_volume_is_created_with_a_warning_and_labelled_later(
    kube: KubeClient, cloud: Simulator, start: Callable[..., Ccm], configure: Any, apiserver: ApiServer
):
    disk = cloud.project().create_volume(VolumeBody("disk", "north-a"))
    await start(controllers="*,pvlabel").leading()
    await configure("Fail")
    await eventually(lambda: answers(kube))
    cloud.fault(action="status", status=500, match={"operation": "volumes.*"})
    text = json.dumps(volume_body("silent", disk.id))
    with pytest.raises(subprocess.CalledProcessError) as warned:
        await asyncio.to_thread(apiserver.kubectl, "create", "--warnings-as-errors", "-f", "-", input=text)
    assert "Warning: zone and region of the volume are unknown" in warned.value.stderr
    assert ZONE not in await labels(kube, "silent")
    cloud.clear_faults()
    await eventually(lambda: has_zone(kube, "silent"))


async def has_zone(kube: KubeClient, name: str) -> bool:
    return ZONE in await labels(kube, name)


@pytest.mark.long  # it waits for the deadline
async def test_a_hanging_cloud_is_waited_for_less_than_the_api_server_waits(
    kube: KubeClient, cloud: Simulator, start: Callable[..., Ccm], configure: Any
):
    disk = cloud.project().create_volume(VolumeBody("disk", "north-a"))
    await start().leading()
    await configure("Fail")
    await eventually(lambda: answers(kube))
    cloud.fault(action="delay", seconds=60, match={"operation": "volumes.*"})
    event_loop = asyncio.get_running_loop()
    before = event_loop.time()
    volume = await created(kube, "hanging", disk.id)
    assert "labels" not in volume["metadata"]
    assert event_loop.time() - before >= DEADLINE


async def test_with_ignore_a_volume_is_created_while_the_webhook_is_down_and_with_fail_it_is_not(
    kube: KubeClient, cloud: Simulator, start: Callable[..., Ccm], configure: Any, apiserver: ApiServer
):
    disk = cloud.project().create_volume(VolumeBody("disk", "north-b"))
    process = start(controllers="*,pvlabel")
    await process.leading()
    await configure("Fail")
    await eventually(lambda: answers(kube))
    await process.stop()
    with pytest.raises(ApiError, match=r"failed calling webhook .volumes\.ccm\.outoftree\.dev"):
        await created(kube, "refused", disk.id)
    patch = [{"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Ignore"}]
    configuration = "mutatingwebhookconfiguration/cloud-controller-manager-volumes"
    await asyncio.to_thread(apiserver.kubectl, "patch", configuration, "--type=json", "-p", json.dumps(patch))

    async def ignored() -> bool:
        try:
            await created(kube, "ignored", disk.id)
        except ApiError:
            return False
        return True

    await eventually(ignored)
    assert await labels(kube, "ignored") == {}
    await start(controllers="*,pvlabel").leading()
    await eventually(lambda: has_zone(kube, "ignored"))


@pytest.mark.threat("tenant-cannot-stop-the-controller")
async def test_what_no_api_server_sends_is_refused_or_left_alone(
    start: Callable[..., Ccm], cloud: Simulator, port: int
):
    """Everybody on the host can reach the port, so the webhook must cope with any request."""
    process = start()
    await process.leading()
    kind = {"group": "", "version": "v1", "kind": "PersistentVolume"}
    body = volume_body("x", "v-000000000001")

    def review(**request: Any) -> dict[str, Any]:
        asked = {"uid": "u", "kind": kind, "operation": "CREATE", "object": body} | request
        return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": asked}

    absurd = body | {"spec": {"csi": {"driver": CSI_DRIVER, "volumeHandle": "../../" + "v" * 1_000_000}}}
    cases: list[tuple[Any, int, str]] = [
        (b"{", 400, "invalid AdmissionReview"),
        (b"[" * 100_000, 400, "invalid AdmissionReview"),
        (b" " * (9 * 1024 * 1024), 400, "larger than"),
        (review(operation="DELETE", object=None, oldObject=body), 200, '"allowed":true'),
        (review(operation="UPDATE", oldObject=body), 200, '"allowed":true'),
        (review(kind=kind | {"kind": "Pod"}), 200, '"allowed":true'),
        (review(object={"spec": {"csi": 7}}), 200, '"allowed":true'),
        (review(object=absurd), 200, "(1000045 characters); persistentvolume-label-controller"),
    ]
    # One connection per request: the controller closes it after a body that is too large, perhaps after its answer.
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)) as session:
        for given, status, said in cases:
            data = given if isinstance(given, bytes) else json.dumps(given).encode()
            headers = {"Content-Type": "application/json"}
            url = f"https://127.0.0.1:{port}{PATH}"
            async with session.post(url, data=data, headers=headers, ssl=False) as response:
                text = await response.text()
                assert (response.status, said in text, len(text) < 1000) == (status, True, True), text[:500]
    assert cloud.calls("volumes.*") == 0
    assert process.process.poll() is None and "Traceback" not in process.text


async def test_ccm_doctor_says_whether_the_api_server_asks_it(kube: KubeClient, configure: Any, apiserver: ApiServer):
    """`ccm doctor` also reports until when the API server trusts the certificate. It reports on webhooks only if the
    controller's Pods serve some."""
    pods = "/api/v1/namespaces/kube-system/pods"
    container = {"name": "ccm", "image": "outoftree-ccm:1", "args": ["--webhooks=persistentvolume-label"]}
    spec = {"containers": [container], "automountServiceAccountToken": False}
    mine = f"--kubeconfig={apiserver.kubeconfig()}"
    assert "\nwebhooks " not in (await ask("doctor", mine))[1]
    await kube.create(pods, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "ccm-webhook"}, "spec": spec})
    try:
        assert "no MutatingWebhookConfiguration has one whose name ends in" in (await ask("doctor", mine))[1]
        await configure("Ignore")
        _, out, err = await ask("doctor", mine)
        assert err == "" and "the API server asks volumes.ccm.outoftree.dev of MutatingWebhookConfiguration" in out
        assert "without an answer: Ignore" in out
        assert "the certificate by which the API server trusts volumes.ccm.outoftree.dev" in out
        few = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]
        async with rights(kube, "few", few):
            status, out, _ = await ask("doctor", f"--kubeconfig={apiserver.kubeconfig('few', ())}")
        assert status == 2 and "\nwebhooks " not in out
        assert 'cannot list resource "mutatingwebhookconfigurations"' in out
    finally:
        await kube.delete(f"{pods}/ccm-webhook")
