# SPDX-License-Identifier: Apache-2.0
"""`ccm status` without `--url` calls the controller's Pods through ports that the API server forwards.

The API server is real; the kubelet behind it is a stand-in. molecule/default does the same on a cluster.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from ccm.commands.status import status
from ccm.engine.client import KubeClient
from tests.ports import free_port
from tools.docs.commands import ROOT, commands

from ..cluster import ApiServer
from ..kubelet import Kubelet, running_kubelet
from .conftest import StartCcm
from .support import NODES, Ccm, ask, eventually, node_body, rights

PODS = "/api/v1/namespaces/kube-system/pods"
PAGE = "docs/how-to/status.md"
LABELS = {"app.kubernetes.io/name": "cloud-controller-manager"}
AddPod = Callable[..., Awaitable[None]]


def role_of_the_page() -> list[dict[str, Any]]:
    """Return the rules of the ClusterRole that the page shows."""
    text = re.search(r"```yaml\n(.*?)```", (ROOT / PAGE).read_text(), re.DOTALL)
    assert text is not None
    rules: list[dict[str, Any]] = yaml.safe_load(text[1])["rules"]
    return rules


@pytest.fixture(scope="module")
def apiserver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """Yield an API server for this file alone, with an audit log."""
    server = ApiServer(tmp_path_factory.mktemp("audited"), audit=True)
    yield server
    server.close()


@pytest.fixture
async def kubelet(apiserver: ApiServer, kube: KubeClient, tmp_path: Path) -> AsyncIterator[Kubelet]:
    """Run the kubelet of the Node `here`."""
    async with running_kubelet(apiserver.authority, tmp_path) as found:
        await kube.create(NODES, node_body("here", tainted=False))
        addresses = [{"type": "InternalIP", "address": "127.0.0.1"}]
        status = {"addresses": addresses, "daemonEndpoints": {"kubeletEndpoint": {"Port": found.port}}}
        await kube.patch(f"{NODES}/here/status", {"status": status}, strategic=True)
        yield found


@pytest.fixture
async def add_pod(kube: KubeClient, kubelet: Kubelet) -> AsyncIterator[AddPod]:
    """Yield a function that creates Pods of the controller on the Node `here`. All are deleted at the end."""
    created = []

    async def add(name: str, port: int, *, phase: str = "Running", **annotations: str) -> None:
        meta = {"name": name, "namespace": "kube-system", "labels": LABELS, "annotations": annotations}
        spec = {
            "nodeName": "here",
            "hostname": socket.gethostname().partition(".")[0],
            "containers": [{"name": "ccm", "image": "ccm", "args": ["--cloud-provider=sim", f"--secure-port={port}"]}],
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 0,
        }
        await kube.create(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
        created.append(name)
        await kube.patch(f"{PODS}/{name}/status", {"status": {"phase": phase}}, strategic=True)

    yield add
    for name in created:
        await kube.delete(f"{PODS}/{name}")


@pytest.fixture
async def leader(start_ccm: StartCcm, admin_token: str) -> Ccm:
    """Start a leader that listens on 127.0.0.1, as the collection rolls it out."""
    ccm = start_ccm(controllers="service")
    await ccm.leading()

    async def quiet() -> bool:
        answered, text = await ccm.get("/statusz?format=json", admin_token)
        return answered == 200 and not json.loads(text)["process"]["problems"]

    await eventually(quiet)
    return ccm


def with_token(apiserver: ApiServer, folder: Path, token: str) -> str:
    """Return the flag of a kubeconfig with only this token."""
    config = json.loads(apiserver.kubeconfig().read_text())
    config["users"][0]["user"] = {"token": token}
    (folder / "token.kubeconfig").write_text(json.dumps(config))
    return f"--kubeconfig={folder / 'token.kubeconfig'}"


async def test_it_asks_every_pod_with_a_client_certificate(
    leader: Ccm, add_pod: AddPod, kubelet: Kubelet, apiserver: ApiServer
):
    """The leader answers. Nothing serves the other Pod's port, and the reason contains the kubelet's error."""
    mine, port = f"--kubeconfig={apiserver.kubeconfig()}", free_port()
    answered, out, _ = await ask("status", mine)
    assert answered == 2 and "no Pod in kube-system has the labels" in out
    await add_pod("ccm-a", leader.port)
    shown = commands(PAGE)[0].split()
    assert shown == ["ccm", "status"]
    answered, out, err = await ask(*shown[1:], mine)
    assert (answered, err) == (0, ""), out
    assert "leads: it holds the Lease kube-system/cloud-controller-manager" in out and "CLOUD CALLS" in out
    await add_pod("ccm-b", port)
    answered, out, _ = await ask("status", mine, "--output=json")
    found = json.loads(out)
    assert [each["pod"] for each in found["replicas"]] == ["ccm-a", "ccm-b"]
    (process,) = found["processes"]
    assert process["process"]["role"] == "leader" and found["led"] is True
    (unasked,) = found["unasked"]
    assert (answered, unasked["question"]) == (2, "read /statusz of the Pod ccm-b")
    assert f"cannot connect to port {port} on the Pod's loopback address" in unasked["why"]
    assert "--secure-port, --bind-address" in unasked["why"] and "failed to connect to localhost" in unasked["why"]
    assert set(kubelet.forwarded) == {f"kube-system/ccm-a:{leader.port}", f"kube-system/ccm-b:{port}"}


async def test_the_role_of_the_page_is_enough_for_a_token(
    leader: Ccm, add_pod: AddPod, apiserver: ApiServer, kube: KubeClient, tmp_path: Path
):
    """The rights to forward ports and to read /statusz are also needed: without one, the output names it."""
    await add_pod("ccm-a", leader.port)
    apiserver.kubectl("create", "serviceaccount", "reader")
    token = apiserver.kubectl("create", "token", "reader").strip()
    mine, user = with_token(apiserver, tmp_path, token), "system:serviceaccount:default:reader"
    rules = role_of_the_page()
    (forward,) = (rule for rule in rules if rule.get("resources") == ["pods/portforward"])
    (page,) = (rule for rule in rules if "nonResourceURLs" in rule)
    others = [rule for rule in rules if rule not in (forward, page)]
    assert sorted(forward["verbs"]) == ["create", "get"]
    where = "pods/portforward in namespace kube-system"
    try:
        async with rights(kube, user, rules):
            answered, out, err = await ask("status", mine)
            assert (answered, err) == (0, ""), out
        for verbs, missing in (([], f"grant get {where} and create {where}"), (["get"], f"grant create {where}")):
            async with rights(kube, user, [*others, page, {**forward, "verbs": verbs or ["watch"]}]):
                answered, out, _ = await ask("status", mine)
                assert answered == 2 and f"ccm-a: a right is missing: {missing}" in out
        # Another user calls, because the process caches for ten seconds what it has allowed.
        stranger = f"--kubeconfig={apiserver.kubeconfig('stranger', ())}"
        async with rights(kube, "stranger", [*others, forward]):
            answered, out, _ = await ask("status", stranger)
            assert answered == 2 and "the process answers 403: user 'stranger' may not get the nonResourceURL" in out
    finally:
        apiserver.kubectl("delete", "serviceaccount", "reader")
    assert token not in out
    # The command changes no object: a forwarded port is `create` or `get` of a subresource, and no review is stored.
    requests = apiserver.audited(user)
    assert {(each["verb"], each["requestURI"]) for each in requests if "objectRef" not in each} <= {("get", "/version")}
    objects = [(each["verb"], each["objectRef"]) for each in requests if "objectRef" in each]
    asked = {(verb, about["resource"], about.get("subresource", "")) for verb, about in objects}
    forwarded = {("create", "pods", "portforward"), ("get", "pods", "portforward")}
    reads = {("get", "leases", ""), ("list", "pods", "")}
    assert reads < asked and asked & forwarded
    assert asked <= {*reads, *forwarded, ("create", "selfsubjectaccessreviews", "")}


async def test_a_certificate_is_verified_if_a_ca_is_named(leader: Ccm, add_pod: AddPod, apiserver: ApiServer):
    await add_pod("ccm-a", leader.port)
    mine = (f"--kubeconfig={apiserver.kubeconfig()}", f"--url-ca-file={apiserver.ca_file}")
    answered, out, _ = await ask("status", *mine)
    assert answered == 2 and "is not valid for localhost by --url-ca-file" in out


async def test_no_credentials_go_to_an_object_that_a_kubelet_can_create(
    leader: Ccm, add_pod: AddPod, kubelet: Kubelet, apiserver: ApiServer
):
    """A hostile kubelet would create a mirror Pod with the controller's labels, and collect tokens."""
    await add_pod("ccm-a", leader.port, **{"kubernetes.io/config.mirror": "5ca1ab1e"})
    await add_pod("ccm-b", leader.port, phase="Pending")
    answered, out, _ = await ask("status", f"--kubeconfig={apiserver.kubeconfig()}")
    assert answered == 2 and kubelet.forwarded == []
    assert "ccm-a: it is a static Pod" in out and "ccm-b: it is Pending, so no process answers" in out


async def test_what_does_not_answer_is_named(
    add_pod: AddPod, apiserver: ApiServer, kube: KubeClient, monkeypatch: pytest.MonkeyPatch
):
    """The output names a silent port, a port without TLS, and a kubelet that the API server cannot reach."""
    mine = f"--kubeconfig={apiserver.kubeconfig()}"

    async def answer_plainly(reader: Any, writer: Any) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    plain = await asyncio.start_server(answer_plainly, "127.0.0.1", 0)
    await add_pod("ccm-b", plain.sockets[0].getsockname()[1])
    monkeypatch.setattr(status, "PATIENCE", 300.0)
    answered, out, err = await ask("status", mine)
    plain.close()
    assert (answered, err) == (2, "")
    assert "does not answer with TLS, so it is not the controller's (--secure-port)" in out
    with socket.create_server(("127.0.0.1", 0)) as silent:
        await add_pod("ccm-a", silent.getsockname()[1])
        monkeypatch.setattr(status, "PATIENCE", 2.0)
        answered, out, err = await ask("status", mine)
    assert (answered, err) == (2, "")
    assert "ccm-a: /statusz?format=json of port" in out and "no answer within 2 s" in out
    nowhere = {"status": {"daemonEndpoints": {"kubeletEndpoint": {"Port": free_port()}}}}
    await kube.patch(f"{NODES}/here/status", nowhere, strategic=True)
    answered, out, err = await ask("status", mine)
    assert (answered, err) == (2, "") and "error dialing backend" in out and "connection refused" in out
