# SPDX-License-Identifier: Apache-2.0
"""Events on a real API server, which may forget an event or refuse it."""

from __future__ import annotations

import asyncio
import json
import uuid

import pytest

from ccm.engine.client import KubeClient
from ccm.engine.events import EventRecorder
from ccm.engine.objects import Node, ObjectMeta, Service

from ..cluster import ApiServer
from .conftest import running


@pytest.fixture
def name() -> str:
    return f"events-{uuid.uuid4().hex[:8]}"


async def test_kubectl_describe_shows_them_and_counts(kube: KubeClient, apiserver: ApiServer, name: str) -> None:
    await kube.create("/api/v1/nodes", {"metadata": {"name": name}})
    node = await kube.get(f"/api/v1/nodes/{name}", Node)
    recorder = EventRecorder(kube, "cloud-node-controller", host="h")
    async with running(recorder.run()):
        for _ in range(3):
            recorder.event(node, "Warning", "AddressesNotUpdated", "the cloud does not answer")
            await recorder.flush(5)
    text = await asyncio.to_thread(apiserver.kubectl, "describe", "node", name)
    line = next(line for line in text.splitlines() if "AddressesNotUpdated" in line)
    assert "Warning" in line and "x3 over" in line and "cloud-node-controller" in line
    assert "the cloud does not answer" in line
    await kube.delete(f"/api/v1/nodes/{name}")


async def test_an_event_about_a_namespaced_object(kube: KubeClient, apiserver: ApiServer, name: str) -> None:
    recorder = EventRecorder(kube, "service-controller")
    service = Service(metadata=ObjectMeta(name=name, namespace="kube-system", uid=str(uuid.uuid4())))
    recorder.event(service, "Normal", "EnsuredLoadBalancer", "Ensured load balancer " + "ü" * 2000)
    await recorder.flush(5)
    selector = f"--field-selector=involvedObject.name={name}"
    text = await asyncio.to_thread(apiserver.kubectl, "-n", "kube-system", "get", "events", selector, "-o", "json")
    (event,) = json.loads(text)["items"]
    assert event["involvedObject"]["uid"] == service.metadata.uid and event["count"] == 1
    assert event["message"].endswith("...")


async def test_an_event_that_the_server_forgot(kube: KubeClient, apiserver: ApiServer, name: str) -> None:
    recorder = EventRecorder(kube, "x")
    service = Service(metadata=ObjectMeta(name=name, namespace="default"))
    recorder.event(service, "Normal", "R", "m")
    await recorder.flush(5)
    await asyncio.to_thread(apiserver.kubectl, "delete", "events", f"--field-selector=involvedObject.name={name}")
    recorder.event(service, "Normal", "R", "m")
    await recorder.flush(5)
    selector = f"--field-selector=involvedObject.name={name}"
    text = await asyncio.to_thread(apiserver.kubectl, "get", "events", selector, "-o", "json")
    assert [event["count"] for event in json.loads(text)["items"]] == [1]


async def test_a_namespace_that_is_not_there_drops_the_event_and_nothing_else(
    kube: KubeClient, apiserver: ApiServer, name: str
) -> None:
    recorder = EventRecorder(kube, "x")
    recorder.event(Service(metadata=ObjectMeta(name=name, namespace="no-such")), "Normal", "R", "m")
    recorder.event(Service(metadata=ObjectMeta(name=name, namespace="default")), "Normal", "R", "m")
    await recorder.flush(5)
    selector = f"--field-selector=involvedObject.name={name}"
    text = await asyncio.to_thread(apiserver.kubectl, "get", "events", "-A", selector, "-o", "json")
    assert [event["metadata"]["namespace"] for event in json.loads(text)["items"]] == ["default"]
