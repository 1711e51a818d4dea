# SPDX-License-Identifier: Apache-2.0
"""The example of a ValidatingAdmissionPolicy in docs/providers, on a real kube-apiserver."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from ccm.engine.api_errors import ApiError
from ccm.engine.client import KubeClient, NotFoundError
from ccm.providers.openstack.annotations import PREFIX, TABLE

from .runtime.support import DEADLINE

EXAMPLE = Path(__file__).resolve().parents[2] / "docs/providers/openstack-admission-policy.yml"
KINDS = "/apis/admissionregistration.k8s.io/v1"
PLURALS = {
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
}
NAMESPACES = "/api/v1/namespaces"
LABEL = {"ccm.outoftree.dev/openstack-resources": "allowed"}


def service(name: str, prefixed: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    annotations = {f"{PREFIX}{key}": value for key, value in (prefixed or {}).items()}
    ports = [{"port": 80, "protocol": "TCP"}]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"type": "LoadBalancer", "ports": ports, **spec},
    }


@pytest.fixture
async def policy(kube: KubeClient) -> AsyncIterator[None]:
    """Create the policy and the namespaces `plain` and `trusted`, and wait until the policy is in force."""
    documents = list(yaml.safe_load_all(EXAMPLE.read_text()))
    for name, labels in (("plain", {}), ("trusted", LABEL)):
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
        with contextlib.suppress(ApiError):
            await kube.create(NAMESPACES, body)
    await kube.create(f"{NAMESPACES}/plain/services", service("before", {"network-id": "n", "class": "fast"}))
    paths = []
    for document in documents:
        path = f"{KINDS}/{PLURALS[document['kind']]}"
        await kube.create(path, document)
        paths.append(f"{path}/{document['metadata']['name']}")
    async with asyncio.timeout(DEADLINE):
        while True:  # it takes the API server a moment
            try:
                await kube.create(f"{NAMESPACES}/plain/services", service("probe", {"port-id": "p"}))
            except ApiError:
                break
            await kube.delete(f"{NAMESPACES}/plain/services/probe")
            await asyncio.sleep(0.2)
    yield
    for path in paths:
        await kube.delete(path)
    for namespace in ("plain", "trusted"):
        for name in ("before", "own", "named", "probe"):
            with contextlib.suppress(NotFoundError):
                await kube.delete(f"{NAMESPACES}/{namespace}/services/{name}")


@pytest.mark.threat("tenant-own-load-balancers-only")
async def test_the_policy_refuses_and_admits_by_namespace(kube: KubeClient, policy: None) -> None:
    plain, trusted = f"{NAMESPACES}/plain/services", f"{NAMESPACES}/trusted/services"
    for said in ({"network-id": "n"}, {"load-balancer-id": "l"}, {"hostname": "a", "default-tls-container-ref": "u"}):
        with pytest.raises(ApiError, match=r"namespace plain may not use .*(network-id|load-balancer-id|tls)"):
            await kube.create(plain, service("named", said))
    with pytest.raises(ApiError, match=r"spec\.loadBalancerIP"):
        await kube.create(plain, service("named", loadBalancerIP="192.0.2.1"))
    await kube.create(plain, service("own", {"hostname": "a.example.com", "connection-limit": "5", "class": "fast"}))
    await kube.create(trusted, service("named", {"network-id": "n"}, loadBalancerIP="192.0.2.1"))

    # Existing objects stay and can be changed: the policy judges only annotations that a request adds or changes.
    labels = {"metadata": {"labels": {"a": "b"}, "annotations": {f"{PREFIX}hostname": "b.example.com"}}}
    await kube.patch(f"{plain}/before", labels)
    for change in ({f"{PREFIX}network-id": "other"}, {f"{PREFIX}subnet-id": "s"}):
        with pytest.raises(ApiError, match="may not use"):
            await kube.patch(f"{plain}/before", {"metadata": {"annotations": change}})
    await kube.patch(f"{plain}/before", {"metadata": {"annotations": {f"{PREFIX}network-id": None}}})


def test_its_list_is_the_controllers_default() -> None:
    (policy, _) = yaml.safe_load_all(EXAMPLE.read_text())
    (listed,) = [each["expression"] for each in policy["spec"]["variables"] if each["name"] == "harmless"]
    default = {each.name for each in TABLE if not each.names_another and each.key.startswith(PREFIX)}
    assert set(re.findall(r"'([^']+)'", listed)) == default - {"load-balancer-id"}
