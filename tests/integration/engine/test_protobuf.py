# SPDX-License-Identifier: Apache-2.0
"""Protobuf with a real API server: an object read in protobuf equals the same object read in JSON, and a write to a
Node leaves all unchanged fields byte for byte as they were.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import uuid
from typing import Any

import pytest
from msgspec.structs import replace

from ccm.controllers.nodes.node_rules import Plan
from ccm.controllers.nodes.node_writes import NodeWrites
from ccm.controllers.serving_certificates.signing_requests import SigningRequest
from ccm.controllers.shared.cache_rules import kept_node
from ccm.engine.api_errors import ApiError, ConflictError, GoneError, InvalidError, NotFoundError, UnavailableError
from ccm.engine.catching_up import newest_version
from ccm.engine.client import KubeClient
from ccm.engine.encodings import read, read_event
from ccm.engine.informer import Informer
from ccm.engine.objects import Lease, Node, PartialObject, PersistentVolume, Service

from ..cluster import ApiServer
from .conftest import eventually, running

NODES, SERVICES = "/api/v1/nodes", "/api/v1/namespaces/default/services"
VOLUMES = "/api/v1/persistentvolumes"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
AT = "2026-11-01T12:34:56Z"


def node(**spec: Any) -> dict[str, Any]:
    conditions = [
        {
            "type": kind,
            "status": "True",
            "reason": "R",
            "message": "größer 💾",
            "lastHeartbeatTime": AT,
            "lastTransitionTime": at,
        }
        for kind, at in (("MemoryPressure", AT), ("Ready", AT), ("NetworkUnavailable", None))
    ]
    addresses = [{"type": "InternalIP", "address": "192.0.2.1"}, {"type": "InternalIP", "address": "2001:db8::1"}]
    return {
        "metadata": {
            "labels": {"a": "", "example.com/pool": "blue", "same": "value"},
            "annotations": {"long": "ü" * 1000, "empty": "", "same": "value"},
            "finalizers": ["example.com/one", "example.com/two"],
        },
        "spec": spec,
        "status": {"addresses": addresses, "conditions": conditions, "nodeInfo": {"systemUUID": "abc"}},
    }


TAINTS = [
    {"key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule"},
    {"key": "example.com/t", "effect": "NoExecute", "timeAdded": AT},
]
SERVICE_SPEC = {
    "type": "LoadBalancer",
    "loadBalancerClass": "example.com/ours",
    "loadBalancerSourceRanges": ["192.0.2.0/24"],
    "externalIPs": ["198.51.100.7"],
    "externalTrafficPolicy": "Local",
    "internalTrafficPolicy": "Cluster",
    "sessionAffinity": "ClientIP",
    "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 77}},
    "allocateLoadBalancerNodePorts": True,
    "publishNotReadyAddresses": True,
    "ports": [
        {"name": "a", "port": 80, "targetPort": "named", "appProtocol": "http"},
        {"name": "b", "port": 81, "targetPort": 8081, "protocol": "UDP"},
        {"name": "c", "port": 82},
    ],
}
AFFINITY = {
    "required": {
        "nodeSelectorTerms": [
            {
                "matchExpressions": [
                    {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["a", "b"]},
                    {"key": "x", "operator": "Exists"},
                ],
                "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}],
            },
        ]
    }
}


def volume(**source: Any) -> dict[str, Any]:
    return {"spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], **source}}


BODIES: list[tuple[str, str, type[Any], dict[str, Any]]] = [
    ("plain Node", NODES, Node, {}),
    ("waiting Node", NODES, Node, node(taints=TAINTS, podCIDR="10.1.0.0/24", podCIDRs=["10.1.0.0/24"])),
    ("Node", NODES, Node, node(providerID="sim://north/x", unschedulable=True)),
    ("Service", SERVICES, Service, {"spec": SERVICE_SPEC}),
    ("plain Service", SERVICES, Service, {"spec": {"ports": [{"port": 80}]}}),
    ("CSI volume", VOLUMES, PersistentVolume, volume(csi={"driver": "d", "volumeHandle": "h"}, nodeAffinity=AFFINITY)),
    ("Cinder volume", VOLUMES, PersistentVolume, volume(cinder={"volumeID": "v"})),
    ("vSphere volume", VOLUMES, PersistentVolume, volume(vsphereVolume={"volumePath": "[a] b.vmdk"})),
    ("AWS volume", VOLUMES, PersistentVolume, volume(awsElasticBlockStore={"volumeID": "aws://a/vol-1"})),
    ("plain Lease", LEASES, Lease, {}),
    ("released Lease", LEASES, Lease, {"spec": {"holderIdentity": "", "leaseDurationSeconds": 1}}),
    (
        "Lease",
        LEASES,
        Lease,
        {
            "spec": {
                "holderIdentity": "me",
                "leaseDurationSeconds": 15,
                "leaseTransitions": 3,
                "acquireTime": "2026-11-01T12:34:56.000007Z",
                "renewTime": "2026-11-01T12:34:56.789000Z",
            }
        },
    ),
]


def comparable(obj: Any) -> Any:
    """Return an object without what depends on its encoding: a Node in protobuf has its bytes and fewer conditions."""
    return replace(kept_node(obj), as_read=None) if isinstance(obj, Node) else obj


@pytest.fixture
async def in_json(apiserver: ApiServer) -> Any:
    client = KubeClient.from_config(kubeconfig=str(apiserver.kubeconfig()))
    client.protobuf = False
    yield client
    await client.close()


async def created(kube: KubeClient, path: str, body: dict[str, Any]) -> str:
    name = f"protobuf-{uuid.uuid4().hex[:8]}"
    kinds = {Node: "Node", Service: "Service", PersistentVolume: "PersistentVolume", Lease: "Lease"}
    kind = next(kinds[type_] for _, where, type_, _ in BODIES if where == path)
    group = "coordination.k8s.io/v1" if kind == "Lease" else "v1"
    metadata = {**body.get("metadata", {}), "name": name}
    await kube.create(path, {"apiVersion": group, "kind": kind, **body, "metadata": metadata})
    return name


@pytest.mark.parametrize(("path", "type_", "body"), [each[1:] for each in BODIES], ids=[each[0] for each in BODIES])
async def test_an_object_is_the_same(
    kube: KubeClient, in_json: KubeClient, path: str, type_: type[Any], body: dict[str, Any]
) -> None:
    name = await created(kube, path, body)
    ours, theirs = await kube.get(f"{path}/{name}", type_), await in_json.get(f"{path}/{name}", type_)
    assert ours.metadata.name == name and comparable(ours) == comparable(theirs)
    assert (await kube.get(f"{path}/{name}", PartialObject)) == PartialObject(ours.metadata)


async def test_a_kubelets_request_is_the_same(kube: KubeClient, in_json: KubeClient) -> None:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import Encoding

    subject = x509.Name.from_rfc4514_string("CN=system:node:x,O=system:nodes")
    builder = x509.CertificateSigningRequestBuilder().subject_name(subject)
    request = builder.sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256()).public_bytes(Encoding.PEM)
    spec = {
        "signerName": "kubernetes.io/kubelet-serving",
        "request": base64.b64encode(request).decode(),
        "usages": ["digital signature", "server auth"],
    }
    name = f"protobuf-{uuid.uuid4().hex[:8]}"
    head = {"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest"}
    await kube.create(REQUESTS, {**head, "metadata": {"name": name}, "spec": spec})
    ours = await kube.get(f"{REQUESTS}/{name}", SigningRequest)
    assert ours == await in_json.get(f"{REQUESTS}/{name}", SigningRequest)
    assert ours.spec.request == request


@pytest.mark.parametrize("page", [0, 2])
@pytest.mark.parametrize("type_", [Node, Service, PersistentVolume, PartialObject])
async def test_a_list_is_the_same(kube: KubeClient, in_json: KubeClient, type_: type[Any], page: int) -> None:
    path = {Service: SERVICES, PersistentVolume: VOLUMES}.get(type_, NODES)
    for _, where, _, body in BODIES:
        if where == path:
            await created(kube, path, body)
    ours, version = await kube.list(path, type_, page=page)
    theirs, _ = await in_json.list(path, type_, page=page)
    assert len(ours) >= 3 and version
    assert [comparable(each) for each in ours] == [comparable(each) for each in theirs]


async def test_it_is_protobuf_that_travels(kube: KubeClient) -> None:
    await created(kube, NODES, {})
    assert (await kube._request("GET", NODES, accept="application/vnd.kubernetes.protobuf")).startswith(b"k8s\0")
    _, version = await kube.list(NODES, Node)
    name = await created(kube, NODES, {})
    async with kube.watch(NODES, {"resourceVersion": version}, read_timeout=30.0, type=Node) as frames:
        frame = await anext(frames)
    assert frame.startswith(b"\n")
    event = await read_event(frame)
    assert event.type == "ADDED" and read(Node, event.object).metadata.name == name


@pytest.mark.parametrize("path", [NODES, SERVICES, LEASES])
async def test_the_newest_version_of_a_kind(kube: KubeClient, in_json: KubeClient, path: str) -> None:
    _, version = await in_json.list(path, PartialObject)
    assert int(await newest_version(kube, path, {}, version)) >= int(version)
    with pytest.raises(GoneError):
        await newest_version(kube, path, {}, "9" * 18)


async def test_errors_are_the_same(kube: KubeClient, in_json: KubeClient) -> None:
    name = await created(kube, NODES, {})
    path = f"{NODES}/{name}"
    wrong = {"metadata": {"resourceVersion": "1"}}
    invalid = {"metadata": {"labels": {"a b": "c"}}}

    async def fails(client: KubeClient, kind: type[ApiError], how: Any) -> tuple[Any, ...]:
        with pytest.raises(kind) as failed:
            await how(client)
        assert type(failed.value) is kind
        return failed.value.status, failed.value.reason, failed.value.message

    async def watched(client: KubeClient) -> None:
        async with client.watch(NODES, {"resourceVersion": "no"}, read_timeout=5.0, type=Node):
            pass

    for kind, how in (
        (NotFoundError, lambda client: client.get(f"{NODES}/none", Node)),
        (ConflictError, lambda client: client.patch(path, wrong)),
        (InvalidError, lambda client: client.patch(path, invalid)),
        (UnavailableError, watched),
    ):
        assert await fails(kube, kind, how) == await fails(in_json, kind, how)


async def test_an_informer_follows(kube: KubeClient, in_json: KubeClient) -> None:
    informer = Informer(kube, NODES, Node, name="nodes", keep=kept_node)
    seen: list[tuple[str, str]] = []
    informer.add_handler(
        lambda old, new: seen.append((old.metadata.name if old else "", new.metadata.name if new else ""))
    )
    async with running(informer.run()):
        await informer.wait_synced()
        name = await created(in_json, NODES, node(taints=TAINTS))
        await eventually(lambda: informer.get(name))
        await in_json.patch(f"{NODES}/{name}", {"metadata": {"labels": {"new": "label"}, "finalizers": None}})
        await eventually(lambda: informer.get(name).metadata.labels.get("new"))  # type: ignore[union-attr]
        assert replace(informer.get(name), as_read=None) == comparable(await in_json.get(f"{NODES}/{name}", Node))
        await in_json.delete(f"{NODES}/{name}")
        await eventually(lambda: informer.get(name) is None)
    assert [each for each in seen if name in each] == [("", name), (name, name), (name, "")]


async def test_a_kind_of_others_is_json(kube: KubeClient) -> None:
    """Types without a protobuf message here, and resources that the server encodes as JSON only, are read as JSON."""
    found, _ = await kube.list("/api/v1/namespaces", dict)
    assert {"default", "kube-system"} <= {each["metadata"]["name"] for each in found}
    name = f"x{uuid.uuid4().hex[:6]}"
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{name}s.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Cluster",
            "names": {"plural": f"{name}s", "kind": name.title()},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
        },
    }
    await kube.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
    path = f"/apis/example.com/v1/{name}s"

    async def served() -> bool:
        with contextlib.suppress(ApiError):
            await kube.list(path, PartialObject)
            return True
        return False

    for _ in range(100):
        if await served():
            break
        await asyncio.sleep(0.2)
    made = await kube.create(path, {"apiVersion": "example.com/v1", "kind": name.title(), "metadata": {"name": "a"}})
    patched = await kube.patch(f"{path}/a", {"metadata": {"labels": {"a": "b"}}})
    assert patched.uid == made.uid and patched.labels == {"a": "b"}
    assert (await kube.get(f"{path}/a", PartialObject)).metadata == patched
    assert [each.metadata.name for each in (await kube.list(path, PartialObject))[0]] == ["a"]


# A Node is initialised by changing its own bytes

ADDRESSES = {
    "status": {
        "addresses": [
            {"type": "InternalIP", "address": "192.0.2.9"},
            {"type": "InternalIP", "address": "2001:db8::9"},
            {"type": "Hostname", "address": "h"},
        ]
    }
}
REST = {
    "metadata": {"labels": {"topology.kubernetes.io/zone": "z", "same": "other"}},
    "spec": {
        "providerID": "sim://north/9",
        "taints": [{"key": "example.com/t", "effect": "NoExecute", "timeAdded": AT}],
    },
}


async def initialised(kube: KubeClient, node: Node) -> None:
    path = f"{NODES}/{node.metadata.name}"
    assert node.as_read is not None
    data = await kube.replace(f"{path}/status", Node, node.as_read.data, ADDRESSES)
    assert await kube.replace(path, Node, data, REST, last=True) == b""


def full() -> dict[str, Any]:
    """Return a Node with many fields that the runtime does not know."""
    body = node(taints=TAINTS, podCIDR="10.1.0.0/24", podCIDRs=["10.1.0.0/24"])
    body["status"] |= {
        "capacity": {"cpu": "8", "memory": "32Gi", "example.com/gpu": "2"},
        "allocatable": {"cpu": "7500m"},
        "images": [
            {"names": [f"registry.example/app@sha256:{number:064x}"], "sizeBytes": number} for number in range(9)
        ],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
        "volumesInUse": ["kubernetes.io/csi/x"],
        "features": {"supplementalGroupsPolicy": True},  # since Kubernetes 1.31
        "runtimeHandlers": [{"name": "", "features": {"userNamespaces": True}}],  # since 1.30
    }
    return body


async def test_all_that_is_not_changed_stays_byte_for_byte(kube: KubeClient, in_json: KubeClient) -> None:
    by_put, by_patch = await created(kube, NODES, full()), await created(kube, NODES, full())
    await initialised(kube, await kube.get(f"{NODES}/{by_put}", Node))
    status = {"status": {"addresses": [{"$patch": "replace"}, *ADDRESSES["status"]["addresses"]]}}
    await in_json.patch(f"{NODES}/{by_patch}/status", status, strategic=True)
    await in_json.patch(f"{NODES}/{by_patch}", REST)
    ours, theirs = [await in_json.get(f"{NODES}/{name}", dict) for name in (by_put, by_patch)]
    managers = [
        {(each["manager"], each.get("subresource")) for each in it["metadata"].pop("managedFields")}
        for it in (ours, theirs)
    ]
    for document in (ours, theirs):
        for name in ("name", "uid", "resourceVersion", "creationTimestamp"):
            document["metadata"].pop(name)
    assert ours == theirs
    assert ours["status"]["features"] and ours["status"]["runtimeHandlers"]
    assert {subresource for _, subresource in managers[0]} == {None, "status"}


@pytest.mark.parametrize("between", [False, True], ids=["before", "between the writes"])
async def test_what_others_wrote_meanwhile_is_a_conflict(kube: KubeClient, in_json: KubeClient, between: bool) -> None:
    name = await created(kube, NODES, full())
    path = f"{NODES}/{name}"
    waiting = await kube.get(path, Node)
    assert waiting.as_read is not None
    data = waiting.as_read.data
    if between:
        data = await kube.replace(f"{path}/status", Node, data, ADDRESSES)
    await in_json.patch(path, {"metadata": {"labels": {"others": "write"}}})
    with pytest.raises(ConflictError):
        await (
            kube.replace(path, Node, data, REST) if between else kube.replace(f"{path}/status", Node, data, ADDRESSES)
        )
    await initialised(kube, await kube.get(path, Node))
    after = await in_json.get(path, Node)
    assert after.metadata.labels["others"] == "write" and after.spec.provider_id == "sim://north/9"
    assert [taint.key for taint in after.spec.taints] == ["example.com/t"]


async def test_a_successor_of_the_same_name_is_never_written(kube: KubeClient) -> None:
    name = await created(kube, NODES, {})
    waiting = await kube.get(f"{NODES}/{name}", Node)
    await kube.delete(f"{NODES}/{name}")
    assert waiting.as_read is not None
    with pytest.raises(NotFoundError):
        await kube.replace(f"{NODES}/{name}", Node, waiting.as_read.data, REST)
    await kube.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
    with pytest.raises(ConflictError):
        await kube.replace(f"{NODES}/{name}", Node, waiting.as_read.data, REST)


async def test_without_the_verb_update_nodes_are_patched(kube: KubeClient, apiserver: ApiServer) -> None:
    role = f"patches-{uuid.uuid4().hex[:6]}"
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    head = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": role}}
    rules = [{"apiGroups": [""], "resources": ["nodes", "nodes/status"], "verbs": ["get", "patch"]}]
    await kube.create(f"{rbac}/clusterroles", {**head, "kind": "ClusterRole", "rules": rules})
    subject = {"kind": "User", "name": role, "apiGroup": "rbac.authorization.k8s.io"}
    ref = {"kind": "ClusterRole", "name": role, "apiGroup": "rbac.authorization.k8s.io"}
    await kube.create(
        f"{rbac}/clusterrolebindings", {**head, "kind": "ClusterRoleBinding", "subjects": [subject], "roleRef": ref}
    )
    limited = KubeClient.from_config(kubeconfig=str(apiserver.kubeconfig(role, ())))
    try:
        names = [await created(kube, NODES, full()) for _ in range(2)]
        writes = NodeWrites(limited)
        for name in names:
            await writes.write(await kube.get(f"{NODES}/{name}", Node), Plan(ADDRESSES, REST), "initialisation")
            assert (await kube.get(f"{NODES}/{name}", Node)).spec.provider_id == "sim://north/9"
        assert not writes._may_replace
    finally:
        await limited.close()
