# SPDX-License-Identifier: Apache-2.0
"""Traces by OTLP over HTTP: what a collector receives, and what an unreachable or hanging collector costs."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from ccm.engine.client import KubeClient
from ccm_simcloud.testing import Simulator
from tests.listening import listening
from tests.ports import free_port

from ..cluster import ApiServer
from .conftest import StartCcm
from .support import NODES, SERVICES, eventually, get_lease, get_service, initialised, node_body

#: A header with a credential as the environment variable has it, and its value as the collector gets it.
HEADERS, HEADER = "authorization=Bearer%20for-the-collector", "Bearer for-the-collector"
ADDRESSES = [{"type": "InternalIP", "address": "10.0.0.7"}]


@dataclass
class Collector:
    """A collector and what it received. `answer`: awaited before it answers a request."""

    url: str = ""
    bodies: list[bytes] = field(default_factory=list)
    headers: list[str] = field(default_factory=list)
    answer: Callable[[], Any] = lambda: asyncio.sleep(0)

    @property
    def spans(self) -> list[Span]:
        requests = [ExportTraceServiceRequest.FromString(body) for body in self.bodies]
        return [
            span
            for request in requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    @property
    def resource(self) -> dict[str, str]:
        request = ExportTraceServiceRequest.FromString(self.bodies[0])
        return {each.key: each.value.string_value for each in request.resource_spans[0].resource.attributes}

    def find(self, name: str, **attributes: str) -> list[Span]:
        return [span for span in self.spans if span.name == name and attributes.items() <= seen(span).items()]

    def below(self, parent: Span) -> list[Span]:
        return [span for span in self.spans if span.parent_span_id == parent.span_id]


def seen(span: Span) -> dict[str, Any]:
    return {each.key: each.value.string_value or each.value.int_value for each in span.attributes}


def service_body(name: str) -> dict[str, Any]:
    ports = [{"name": "http", "port": 80, "protocol": "TCP"}]
    spec = {"type": "LoadBalancer", "selector": {"app": name}, "ports": ports}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}


@pytest.fixture
async def collector(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Collector]:
    """Run a collector to which every `ccm` process of the test quickly sends its traces."""
    found = Collector()

    async def take(request: web.Request) -> web.Response:
        found.headers.append(request.headers.get("Authorization", ""))
        found.bodies.append(await request.read())
        await found.answer()
        return web.Response(content_type="application/x-protobuf")

    async with listening(web.post("/v1/traces", take)) as found.url:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", found.url)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", HEADERS)
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "200")
        yield found


async def has_ingress(kube: KubeClient, name: str) -> bool:
    return bool((await get_service(kube, name)).status.load_balancer.ingress)


def one_that_has(collector: Collector, child: str, parents: list[Span]) -> Span:
    """Return the only span of several that has a child with this name."""
    (found,) = [span for span in parents if child in {each.name for each in collector.below(span)}]
    return found


async def test_the_way_of_a_node_and_of_a_service(
    apiserver: ApiServer, kube: KubeClient, cloud: Simulator, start_ccm: StartCcm, collector: Collector
):
    cloud.add_instance("traced", addresses=ADDRESSES)
    ccm = start_ccm(v=4)
    await ccm.leading()
    await kube.create(NODES, node_body("traced", number=1))
    await eventually(lambda: initialised(kube, "traced"))
    await kube.create(SERVICES, service_body("traced-web"))
    await eventually(lambda: has_ingress(kube, "traced-web"))
    await ccm.stop()

    assert collector.resource["service.name"] == "cloud-controller-manager"
    node = one_that_has(collector, "PUT", collector.find("Nodes", queue="Nodes", object="traced"))
    writes = [span for span in collector.below(node) if span.name == "PUT"]
    paths = [seen(span)["url.path"] for span in writes]
    assert paths == ["/api/v1/nodes/traced/status", "/api/v1/nodes/traced"]
    assert {seen(span)["http.response.status_code"] for span in writes} == {200}
    assert {span.kind for span in writes} == {Span.SPAN_KIND_CLIENT}
    (call,) = [span for span in collector.below(node) if span.name.startswith("instances.")]
    assert call.trace_id == node.trace_id and seen(call)["result"] == "success"
    assert re.search(rf'request="{seen(call)["request"]}"', ccm.text), "the number of the call is that of the log"

    service = one_that_has(
        collector, "load_balancers.ensure", collector.find("service", queue="service", object="default/traced-web")
    )
    assert {"PATCH", "load_balancers.ensure"} <= {span.name for span in collector.below(service)}
    assert service.trace_id != node.trace_id and not service.parent_span_id

    received = b"".join(collector.bodies)
    assert b"traced-web" in received
    assert not [secret for secret in ("demo-token", apiserver.token, HEADER) if secret.encode() in received]
    assert set(collector.headers) == {HEADER} and HEADER not in ccm.text
    assert not [span for span in collector.spans if "/leases/" in str(seen(span).get("url.path"))]


async def test_a_call_that_fails_is_an_error(
    kube: KubeClient, cloud: Simulator, start_ccm: StartCcm, collector: Collector
):
    cloud.add_instance("failing", addresses=ADDRESSES)
    ccm = start_ccm()
    await ccm.leading()
    cloud.fault(action="status", status=500, match={"operation": "instances.*"})
    await kube.create(NODES, node_body("failing", number=1))

    async def failed() -> list[Span]:
        return collector.find("Nodes", object="failing")

    node = (await eventually(failed))[0]
    assert node.status.code == Status.STATUS_CODE_ERROR and "500" in node.status.message
    assert seen(node)["error.type"] == "Transient"
    (call,) = [span for span in collector.below(node) if span.name.startswith("instances.")]
    assert call.status.code == Status.STATUS_CODE_ERROR and "500" in call.status.message
    assert (seen(call)["error.type"], seen(call)["result"]) == ("Transient", "Transient")


@pytest.mark.long
@pytest.mark.parametrize("how", ["away", "hangs"])
async def test_a_collector_that_takes_nothing_costs_traces_only(
    how: str,
    kube: KubeClient,
    cloud: Simulator,
    start_ccm: StartCcm,
    collector: Collector,
    monkeypatch: pytest.MonkeyPatch,
):
    collector.answer = lambda: asyncio.sleep(600)
    if how == "away":
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{free_port()}")
    names = [f"{how}-{number}" for number in range(3)]
    ccm = start_ccm(v=4)
    await ccm.leading()
    for name in names:
        cloud.add_instance(name, addresses=ADDRESSES)
        await kube.create(NODES, node_body(name))
    await eventually(lambda: initialised(kube, *names))
    if how == "hangs":
        await eventually(lambda: asyncio.sleep(0, collector.bodies))
    else:
        await ccm.until_logged("WARNING.*traces: Transient error")
    ccm.process.terminate()
    assert await ccm.wait() == 0
    assert not (await get_lease(kube)).spec.holder_identity
    assert ccm.text.index("released the Lease") < ccm.text.index("sending the last traces")
    about_traces = [line for line in ccm.text.splitlines() if "traces: " in line]
    assert len(about_traces) <= 1
    assert "opentelemetry" not in ccm.text and "/v1/traces HTTP" not in ccm.text


async def test_without_an_endpoint_opentelemetry_is_not_imported(
    start_ccm: StartCcm, collector: Collector, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT")
    program = "import sys; from ccm.cli import main; main(); print('imported:', 'opentelemetry' in sys.modules)"
    ccm = start_ccm(program=("-c", program))
    await ccm.leading()
    await ccm.stop()
    assert "imported: False" in ccm.text
    assert collector.bodies == []
