# SPDX-License-Identifier: Apache-2.0
"""The client on a real API server: the server answers as the unit tests assume."""

from __future__ import annotations

import asyncio
import base64
import uuid

import pytest
from aiohttp import web

from ccm.engine.api_credentials import Access, Pem
from ccm.engine.api_errors import (
    ConflictError,
    ForbiddenError,
    GoneError,
    InvalidError,
    NotFoundError,
    UnauthorizedError,
    UnavailableError,
)
from ccm.engine.client import KubeClient
from ccm.engine.objects import Node, PartialObject, Service

from ..cluster import ApiServer
from .conftest import FaultProxy

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"


def config_map(name: str, **labels: str) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": labels}}


@pytest.fixture
def name() -> str:
    return f"client-{uuid.uuid4().hex[:8]}"


async def test_a_life(kube: KubeClient, name: str) -> None:
    path = f"{CONFIGMAPS}/{name}"
    created = await kube.create(CONFIGMAPS, config_map(name))
    assert created.name == name and created.uid and created.resource_version
    with pytest.raises(ConflictError):
        await kube.create(CONFIGMAPS, config_map(name))
    patched = await kube.patch(path, {"metadata": {"labels": {"a": "b"}, "resourceVersion": created.resource_version}})
    assert patched.labels == {"a": "b"}
    with pytest.raises(ConflictError):
        await kube.patch(path, {"metadata": {"labels": {"a": "c"}, "resourceVersion": created.resource_version}})
    assert (await kube.get(path, PartialObject)).metadata == patched
    with pytest.raises(ConflictError):
        await kube.delete(path, uid=str(uuid.uuid4()))
    await kube.delete(path, uid=created.uid, resource_version=patched.resource_version)
    with pytest.raises(NotFoundError):
        await kube.get(path, PartialObject)
    with pytest.raises(NotFoundError):
        await kube.delete(path)


async def test_a_node_and_a_strategic_patch(kube: KubeClient, name: str) -> None:
    taint = {"key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule"}
    await kube.create("/api/v1/nodes", {"metadata": {"name": name}, "spec": {"taints": [taint]}})
    path = f"/api/v1/nodes/{name}"
    await kube.patch(
        f"{path}/status", {"status": {"addresses": [{"type": "Hostname", "address": name}]}}, strategic=True
    )
    await kube.patch(
        f"{path}/status", {"status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]}}, strategic=True
    )
    node = await kube.get(path, Node)
    assert {address.type for address in node.status.addresses} == {"Hostname", "InternalIP"}, "merged by type"
    assert taint["key"] in [entry.key for entry in node.spec.taints]
    await kube.delete(path)


async def test_a_service_as_the_server_defaults_it(kube: KubeClient, name: str) -> None:
    ports = [{"port": 80, "targetPort": "web"}]
    collection = "/api/v1/namespaces/default/services"
    await kube.create(
        collection,
        {"metadata": {"name": name}, "spec": {"type": "LoadBalancer", "ports": ports, "selector": {"a": "b"}}},
    )
    service = await kube.get(f"{collection}/{name}", Service)
    assert service.spec.ports[0].target_port == "web" and service.spec.ports[0].node_port >= 30000
    assert service.spec.allocate_load_balancer_node_ports is True and service.spec.ip_families == ["IPv4"]
    assert service.spec.external_traffic_policy == "Cluster" and service.spec.cluster_ip.startswith("10.96.")
    await kube.delete(f"{collection}/{name}")


async def test_errors_of_the_server(apiserver: ApiServer, kube: KubeClient, name: str) -> None:
    with pytest.raises(InvalidError):
        await kube.create(CONFIGMAPS, config_map("Not_A_Name"))
    with pytest.raises(UnavailableError, match="an intermediary answered"):
        await kube.get("/apis/no.such.group/v1/things", PartialObject)
    nobody = KubeClient.from_config(kubeconfig=str(apiserver.kubeconfig(f"user-{name}", ["nobodies"])))
    with pytest.raises(ForbiddenError, match=rf'User "user-{name}" cannot get resource "nodes"'):
        await nobody.get("/api/v1/nodes/x", Node)
    await nobody.close()
    wrong = KubeClient(Access(apiserver.url, ca=Pem(file=apiserver.ca_file), token="wrong"))
    with pytest.raises(UnauthorizedError):
        await wrong.get("/api/v1/nodes/x", Node)
    await wrong.close()


async def test_tls_is_verified(apiserver: ApiServer) -> None:
    for access, fits in [
        (Access(apiserver.url, token=apiserver.token), False),  # only the machine's own authorities are trusted
        (Access(apiserver.url, token=apiserver.token, insecure=True), True),
        (Access(apiserver.url, token=apiserver.token, ca=Pem(file=apiserver.ca_file)), True),
        (Access(apiserver.url, token=apiserver.token, ca=Pem(file=apiserver.ca_file), server_name="other"), False),
        (
            Access(
                apiserver.url,
                token=apiserver.token,
                ca=Pem(file=apiserver.ca_file),
                server_name="kubernetes.default.svc",
            ),
            True,
        ),
    ]:
        client = KubeClient(access)
        if fits:
            await client.get("/version", PartialObject)
        else:
            with pytest.raises(UnavailableError, match=r"(?i)certificate"):
                await client.get("/version", PartialObject)
        await client.close()


async def test_a_list_in_pages(kube: KubeClient, name: str) -> None:
    for number in range(5):
        await kube.create(CONFIGMAPS, config_map(f"{name}-{number}", set=name))
    items, version = await kube.list(CONFIGMAPS, PartialObject, page=2, params={"labelSelector": f"set={name}"})
    assert [item.metadata.name for item in items] == [f"{name}-{number}" for number in range(5)] and version


async def test_an_expired_continue_token(
    apiserver: ApiServer, proxy: FaultProxy, through: KubeClient, name: str
) -> None:
    """A real server refuses a continue token with a revision from before the compaction and the server's own start."""
    for number in range(4):
        await through.create(CONFIGMAPS, config_map(f"{name}-{number}", set=name))
    await asyncio.to_thread(apiserver.compact)
    await asyncio.to_thread(apiserver.stop)  # otherwise it would still answer from its cache
    await asyncio.to_thread(apiserver.start)
    token = base64.urlsafe_b64encode(b'{"v":"meta.k8s.io/v1","rv":2,"start":"x\\u0000"}').decode().rstrip("=")
    with pytest.raises(GoneError):
        await through.get(CONFIGMAPS, PartialObject, params={"limit": "2", "continue": token})

    async def swap(request: web.Request) -> web.StreamResponse | None:
        if request.query.get("continue", token) == token:
            return None
        return await proxy._handle(request.clone(rel_url=request.rel_url.update_query({"continue": token})))

    proxy.fault = swap
    proxy.requests.clear()
    items, _ = await through.list(CONFIGMAPS, PartialObject, page=2, params={"labelSelector": f"set={name}"})
    assert [item.metadata.name for item in items] == [f"{name}-{number}" for number in range(4)]
    assert proxy.count("GET", "limit=") == 3 and proxy.count("GET") == 4, "page, token, swapped token; all in one"


async def test_a_wrong_server_is_named() -> None:
    client = KubeClient(Access("https://127.0.0.1:1", token="secret"))
    with pytest.raises(UnavailableError, match=r"127\.0\.0\.1:1") as caught:
        await client.get("/version", PartialObject)
    assert "secret" not in str(caught.value)
    await client.close()
