# SPDX-License-Identifier: Apache-2.0
"""Kubelets get certificates for the names and addresses that the cloud has; kube-controller-manager signs them."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ipaddress
import subprocess
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from ccm.engine.client import KubeClient
from ccm.engine.objects import PartialObject
from ccm_simcloud.model import Address, InstancePatch
from ccm_simcloud.testing import Simulator

from ..cluster import ApiServer, Authority, binaries, key_pem
from .conftest import StartCcm
from .support import NODES, event_messages, eventually, initialised, node_body, rights

REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
ON = {"controllers": "*,kubelet-serving-csr"}
USAGES = ("digital signature", "server auth")
EVENT = "ServingCertificateNotApproved"
RULES = Path(__file__).parents[3] / "roles/ccm_runtime/vars/main/controllers.yml"


@pytest.fixture(scope="module")
def signer(apiserver: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Authority]:
    """Run kube-controller-manager with only its signer, which signs approved requests."""
    folder = tmp_path_factory.mktemp("signer")
    authority = Authority(folder)
    key = folder / "ca.key"
    key.touch(mode=0o600)
    key.write_bytes(key_pem(authority._key))
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [
                binaries() / "kube-controller-manager",
                f"--kubeconfig={apiserver.kubeconfig()}",
                "--controllers=certificatesigningrequest-signing-controller",
                f"--cluster-signing-cert-file={authority.file}",
                f"--cluster-signing-key-file={key}",
                "--leader-elect=false",
                "--secure-port=0",
            ],
            stdout=log,
            stderr=log,
        )
    yield authority
    process.kill()
    process.wait()
    print((folder / "log").read_text()[-3000:])


@pytest.fixture
async def no_requests(kube: KubeClient) -> AsyncIterator[None]:
    """Delete all requests after the test, because the API server is shared."""
    yield
    found, _ = await kube.list(REQUESTS, PartialObject)
    for each in found:
        await kube.delete(f"{REQUESTS}/{each.metadata.name}")


def pem(node: str, names: Sequence[str | x509.GeneralName], *extensions: x509.ExtensionType) -> bytes:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = [
        x509.NameAttribute(NameOID.ORGANIZATION_NAME, "system:nodes"),
        x509.NameAttribute(NameOID.COMMON_NAME, f"system:node:{node}"),
    ]
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name(subject))
    builder = builder.add_extension(x509.SubjectAlternativeName([_san(name) for name in names]), critical=False)
    for extension in extensions:
        builder = builder.add_extension(extension, critical=False)
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def _san(name: str | x509.GeneralName) -> x509.GeneralName:
    if isinstance(name, x509.GeneralName):
        return name
    with contextlib.suppress(ValueError):
        return x509.IPAddress(ipaddress.ip_address(name))
    return x509.DNSName(name)


class Kubelet:
    """A requester: the kubelet of a Node, or another user."""

    def __init__(self, client: KubeClient) -> None:
        self.client = client

    async def ask(self, name: str, content: bytes, usages: Sequence[str] = USAGES) -> None:
        spec = {
            "signerName": "kubernetes.io/kubelet-serving",
            "request": base64.b64encode(content).decode(),
            "usages": list(usages),
        }
        body = {
            "apiVersion": "certificates.k8s.io/v1",
            "kind": "CertificateSigningRequest",
            "metadata": {"name": name},
            "spec": spec,
        }
        await self.client.create(REQUESTS, body)


@contextlib.asynccontextmanager
async def as_user(apiserver: ApiServer, user: str, *groups: str) -> AsyncIterator[Kubelet]:
    path = await asyncio.to_thread(apiserver.kubeconfig, user, groups)
    client = KubeClient.from_config(kubeconfig=str(path))
    yield Kubelet(client)
    await client.close()


def kubelet(apiserver: ApiServer, node: str) -> contextlib.AbstractAsyncContextManager[Kubelet]:
    return as_user(apiserver, f"system:node:{node}", "system:nodes")


def machine(cloud: Simulator, name: str, *ips: str) -> Any:
    return cloud.add_instance(name, addresses=[{"type": "InternalIP", "address": ip} for ip in ips])


async def conditions(kube: KubeClient, name: str) -> list[str]:
    status = (await kube.get(f"{REQUESTS}/{name}", dict)).get("status", {})
    return [each["type"] for each in status.get("conditions", [])]


async def approved(kube: KubeClient, name: str) -> bool:
    return await conditions(kube, name) == ["Approved"]


async def certificate(kube: KubeClient, name: str) -> x509.Certificate:
    async def issued() -> str:
        return str((await kube.get(f"{REQUESTS}/{name}", dict)).get("status", {}).get("certificate", ""))

    return x509.load_pem_x509_certificate(base64.b64decode(await eventually(issued)))


async def registered(kube: KubeClient, *names: str) -> None:
    for name in names:
        await kube.create(NODES, node_body(name))
    await eventually(lambda: initialised(kube, *names))


async def test_a_node_gets_its_certificate(
    apiserver: ApiServer, kube: KubeClient, cloud: Simulator, start_ccm: StartCcm, signer: Authority, no_requests: None
):
    machine(cloud, "good", "10.0.0.1", "fd00::1")
    ccm = start_ccm(**ON)
    await ccm.leading()
    await registered(kube, "good")
    async with kubelet(apiserver, "good") as node:
        await node.ask("good-1", pem("good", ["good", "10.0.0.1", "fd00::1"]))
        found = await certificate(kube, "good-1")
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["good"]
    assert [str(ip) for ip in names.get_values_for_type(x509.IPAddress)] == ["10.0.0.1", "fd00::1"]
    assert found.issuer == x509.load_pem_x509_certificate(signer.file.read_bytes()).subject
    status, metrics = await ccm.get("/metrics", apiserver.token)
    assert status == 200 and "ccm_serving_certificate_requests_approved_total 1.0" in metrics


async def test_forged_requests_wait_and_the_node_says_why(
    apiserver: ApiServer, kube: KubeClient, cloud: Simulator, start_ccm: StartCcm, no_requests: None
):
    machine(cloud, "victim", "10.0.0.1")
    machine(cloud, "rogue", "10.0.0.2")
    former = machine(cloud, "replaced", "10.0.0.3")
    ccm = start_ccm(**ON)
    await ccm.leading()
    await registered(kube, "victim", "rogue", "replaced")
    cloud.project().delete_instance(former.id)
    machine(cloud, "replaced", "10.0.0.3")
    forged = {
        "other-name": (pem("rogue", ["victim"]), USAGES, "'victim'"),
        "extra-ip": (pem("rogue", ["rogue", "10.0.0.2", "192.0.2.9"]), USAGES, "asks for 192.0.2.9, and the cloud"),
        "address-of-another": (pem("rogue", ["10.0.0.1"]), USAGES, "asks for 10.0.0.1"),
        "wildcard": (pem("rogue", ["*"]), USAGES, "'*'"),
        "usage": (pem("rogue", ["rogue"]), (*USAGES, "client auth"), "its key usages"),
        "other-node": (pem("victim", ["victim"]), USAGES, "is not its requester"),
        "ca": (pem("rogue", ["rogue"], x509.BasicConstraints(True, None)), USAGES, "BasicConstraints"),
        "uri": (pem("rogue", ["rogue", x509.UniformResourceIdentifier("spiffe://x")]), USAGES, "UniformResource"),
        "thousands": (pem("rogue", [f"rogue-{n}" for n in range(5000)]), USAGES, "larger than"),
    }
    async with (
        kubelet(apiserver, "rogue") as rogue,
        kubelet(apiserver, "replaced") as new,
        as_user(apiserver, "mallory", "system:masters") as mallory,
    ):
        for name, (content, usages, _) in forged.items():
            await rogue.ask(f"forged-{name}", content, usages)
        await new.ask("forged-replaced", pem("replaced", ["replaced", "10.0.0.3"]))
        await mallory.ask("forged-user", pem("victim", ["victim", "10.0.0.1"]))
        # An honest request follows: it is approved, so all forged ones were judged before.
        await eventually(lambda: told(kube, "rogue", "forged-thousands"))
        await rogue.ask("honest", pem("rogue", ["rogue", "10.0.0.2"]))
        await eventually(lambda: approved(kube, "honest"))
    for name, (_, _, says) in forged.items():
        assert says in await eventually(lambda name=name: told(kube, "rogue", f"forged-{name}")), name
        assert await conditions(kube, f"forged-{name}") == []
    assert "replaced" in await eventually(lambda: told(kube, "replaced", "forged-replaced"))
    assert "'mallory' is not a kubelet" in await eventually(lambda: told(kube, "victim", "forged-user"))
    assert await conditions(kube, "forged-replaced") == await conditions(kube, "forged-user") == []
    _, metrics = await ccm.get("/metrics", apiserver.token)
    assert 'ccm_serving_certificate_requests_waiting{reason="Names"} 4.0' in metrics
    assert 'ccm_serving_certificate_requests_waiting{reason="Instance"} 1.0' in metrics


async def told(kube: KubeClient, node: str, request: str) -> str:
    """Return the Event about a request, "" while there is none."""
    return "".join(each for each in await event_messages(kube, EVENT, node) if f"Request {request} " in each)


async def test_a_change_of_an_address_is_followed(
    apiserver: ApiServer, kube: KubeClient, cloud: Simulator, start_ccm: StartCcm, no_requests: None
):
    instance = machine(cloud, "moving", "10.0.0.5")
    await start_ccm(**ON, node_status_update_frequency="2s").leading()
    await registered(kube, "moving")
    async with kubelet(apiserver, "moving") as node:
        await node.ask("moving-1", pem("moving", ["moving", "10.0.0.6"]))
        await eventually(lambda: told(kube, "moving", "moving-1"))
        patch = InstancePatch(addresses=(Address("InternalIP", "10.0.0.6"),))
        cloud.project().change_instance(instance.id, patch)
        await eventually(lambda: approved(kube, "moving-1"))
        await node.ask("moving-2", pem("moving", ["moving", "10.0.0.5"]))
        assert "asks for 10.0.0.5" in await eventually(lambda: told(kube, "moving", "moving-2"))


async def test_nothing_is_approved_while_the_cloud_is_away_or_ambiguous(
    apiserver: ApiServer, kube: KubeClient, cloud: Simulator, start_ccm: StartCcm, no_requests: None
):
    machine(cloud, "away", "10.0.0.7")
    await start_ccm(**ON).leading()
    await registered(kube, "away")
    cloud.fault(action="status", status=503, match={"operation": "instances.*"})
    async with kubelet(apiserver, "away") as node:
        await node.ask("away-1", pem("away", ["away", "10.0.0.7"]))
        await eventually(lambda: told(kube, "away", "away-1"))
        assert await conditions(kube, "away-1") == []
        cloud.clear_faults()
        await eventually(lambda: approved(kube, "away-1"))
        machine(cloud, "away", "10.0.0.8")
        await node.ask("away-2", pem("away", ["away", "10.0.0.7"]))
        assert "2 instances are named 'away'" in await eventually(lambda: told(kube, "away", "away-2"))


async def test_it_is_off_unless_named(
    apiserver: ApiServer, kube: KubeClient, cloud: Simulator, start_ccm: StartCcm, no_requests: None
):
    machine(cloud, "unasked", "10.0.0.9")
    ccm = start_ccm()
    await ccm.leading()
    await registered(kube, "unasked")
    async with kubelet(apiserver, "unasked") as node:
        await node.ask("unasked-1", pem("unasked", ["unasked"]))
        await asyncio.sleep(1.5)
    assert await conditions(kube, "unasked-1") == []
    assert await event_messages(kube, EVENT, "unasked") == []


async def test_the_rights_that_the_role_grants_are_enough_and_needed(
    apiserver: ApiServer, kube: KubeClient, cloud: Simulator, start_ccm: StartCcm, no_requests: None
):
    granted = yaml.safe_load(RULES.read_text())
    (spec,) = [each for each in granted["__ccm_runtime_controller_specs"] if each["alias"] == "kubelet-serving-csr"]
    leases = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["*"]}
    maps = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}
    machine(cloud, "granted", "10.0.0.10")
    async with (
        rights(kube, "ccm-csr", [*granted["__ccm_runtime_rules"], leases, maps, *spec["rules"]]),
        rights(kube, "ccm-no-csr", [*granted["__ccm_runtime_rules"], leases, maps]),
    ):
        without = start_ccm(**ON, kubeconfig=await asyncio.to_thread(apiserver.kubeconfig, "ccm-no-csr", []))
        assert await without.wait() != 0
        assert "approve signers.certificates.k8s.io" in without.text
        await start_ccm(**ON, kubeconfig=await asyncio.to_thread(apiserver.kubeconfig, "ccm-csr", [])).leading()
        await registered(kube, "granted")
        async with kubelet(apiserver, "granted") as node:
            await node.ask("granted-1", pem("granted", ["granted"]))
            await eventually(lambda: approved(kube, "granted-1"))
