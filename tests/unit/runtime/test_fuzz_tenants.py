# SPDX-License-Identifier: Apache-2.0
"""Services that users write to harm others, from the wire to the cloud: their text is only ever data.

Only typed exceptions are raised, no callback holds the event loop, a Service changes only its own load balancer, and a
healthy Service beside the hostile ones is served. FUZZ_EXAMPLES makes the tests search longer (`fuzzing.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import logging
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccm.cloud import Backend, CloudError, LoadBalancerSpec
from ccm.controllers.services import service_rules
from ccm.controllers.services.allocations import ServiceAllocations
from ccm.controllers.services.class_rules import UNDECLARED
from ccm.controllers.shared import cache_rules
from ccm.controllers.shared.limits import PORTS, SOURCE_RANGES
from ccm.controllers.shared.rule_error import RuleError
from ccm.engine.objects import UNREADABLE, Service, decoder
from ccm.manager.logs import MESSAGE_LIMIT
from ccm.providers import sim, static
from ccm.providers.sim import load_balancer_rules as sim_rules
from ccm.providers.static.settings import Settings

from . import loop_watch
from .controllers.services_harness import Balancers, Cluster, until
from .fuzzing import bounded
from .gateway.virtual import VirtualLoop
from .hostile import LARGEST_SERVICES, SERVICE
from .loop_watch import LoopWatch, watched

pytestmark = pytest.mark.threat("tenant-cannot-stop-the-controller")

STATIC = """
cluster: c
load_balancer_addresses: ["192.0.2.1-192.0.2.200"]
machines: [{name: healthy, addresses: [{type: InternalIP, address: 10.0.0.1}]}]
"""
BACKENDS = (Backend("healthy", "sim://north/i-000000000001"),)


def decoded(document: dict[str, Any], name: str = "hostile") -> Service | None:
    """Return the Service as the informer keeps it; None if it cannot be decoded."""
    meta = {"name": name, "namespace": "shop", "uid": f"uid-of-{name}", "resourceVersion": "1"}
    wire = json.dumps({**document, "metadata": {**document["metadata"], **meta}}).encode()
    try:
        return cache_rules.kept_service(decoder(Service).decode(wire))
    except UNREADABLE:
        return None


def quick(what: Any, *args: Any) -> Any:
    """Return the answer of `what`, or the typed error that it raises."""
    return loop_watch.quick(functools.partial(what, *args), (RuleError, CloudError))


def judge(service: Service) -> None:
    """Run the rules that decide about a single Service."""
    quick(service_rules.needs_update, service, service, UNDECLARED)
    quick(service_rules.needs_cleanup, service)
    quick(service_rules.same_ingress, service.status.load_balancer.ingress, [])
    spec = quick(service_rules.load_balancer_spec, service, "kubernetes")
    if isinstance(spec, RuleError):
        assert len(str(spec)) < 1000, "a message is short"
        return
    assert isinstance(spec, LoadBalancerSpec)
    assert (spec.cluster, spec.uid) == ("kubernetes", "uid-of-hostile")
    assert len(spec.ports) <= PORTS and len(spec.source_ranges) <= SOURCE_RANGES
    for passes_through in (False, True):
        quick(sim_rules.check_supported, spec, passes_through)
        quick(on_sim(passes_through).fingerprint, spec, BACKENDS)
    provider = static.StaticLoadBalancers(Settings.parse(STATIC, "cloud.conf"))
    provider.use_allocations(ServiceAllocations())
    quick(provider.fingerprint, spec, BACKENDS)
    with contextlib.suppress(CloudError):
        asyncio.run(provider.ensure(spec, BACKENDS))


@bounded(100)
@given(SERVICE)
def test_the_rules_answer_or_say_what_is_wrong(document: dict[str, Any]) -> None:
    if (service := decoded(document)) is not None:
        judge(service)


@pytest.mark.parametrize("document", LARGEST_SERVICES.values(), ids=LARGEST_SERVICES)
def test_the_rules_bear_the_largest_services(document: dict[str, Any]) -> None:
    service = decoded(document)
    assert service is not None
    judge(service)


def on_sim(passes_through: bool) -> sim.SimLoadBalancers:
    """Return the load balancers of the provider `sim`, with just enough of its API for fingerprints."""
    api: Any = SimpleNamespace(passes_through=passes_through)
    return sim.SimLoadBalancers(api)


class Own(Balancers):
    """Load balancers that record in `strays` each write that is not the Service's own.

    They do not raise AssertionError, because the controller would take that for a provider's bug.
    """

    def __init__(self, cluster: Cluster) -> None:
        super().__init__()
        self._cluster = cluster
        self.strays: list[str] = []
        self.fingerprints = on_sim(False)

    def fingerprint(self, spec: LoadBalancerSpec, backends: Any) -> str:
        return self.fingerprints.fingerprint(spec, backends)

    def _write(self, spec: LoadBalancerSpec, backends: Any) -> Any:
        service = self._cluster.api.objects["services"][f"{spec.namespace}/{spec.name}"]
        name = ("a" + service["metadata"]["uid"].replace("-", ""))[:32]
        if (spec.cluster, spec.uid, spec.default_name) != ("kubernetes", service["metadata"]["uid"], name):
            self.strays.append(repr(spec))
        sim_rules.check_supported(spec)
        return super()._write(spec, backends)


async def serve_beside(documents: list[dict[str, Any]], watch: LoopWatch) -> None:
    """Serve healthy Services, older and newer than hostile ones, while every task of the controller keeps running."""
    async with Cluster() as c:
        watch.excuse(c.api, "_send", "_carried_out", "put")
        c.cloud = Own(c)
        c.gateway.cloud.load_balancers = c.cloud
        c.add_node("healthy")
        c.add_service("before")
        for number, document in enumerate(documents):
            put(c, number, document)
        c.serve()
        await c.served("before")
        tasks = set(c._tasks)
        for number, document in enumerate(documents):  # a change, and another Service of the same name
            put(c, number, {**document, "spec": {**document["spec"], "externalIPs": ["192.0.2.77"]}})
        c.add_service("after", port=81)
        await c.served("after")
        for number in range(len(documents)):
            c.api.remove("services", f"shop/hostile-{number}")
        c.add_service("last", port=82)
        await c.served("last")
        assert not any(task.done() for task in tasks)
        assert c.cloud.strays == []
        await until(lambda: c.cloud.hosts("last") == ["healthy"])
        for event in c.api.events:
            assert event["message"].isprintable() and len(event["message"].encode()) <= 1024


def put(c: Cluster, number: int, document: dict[str, Any]) -> None:
    meta = {"name": f"hostile-{number}", "namespace": "shop", "uid": f"uid-of-hostile-{number}"}
    c.api.put("services", {**document, "metadata": {**document["metadata"], **meta}})


def run(work: Any) -> None:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(work)


@bounded(25)
@given(st.lists(SERVICE, min_size=1, max_size=8))
def test_a_healthy_service_is_served_beside(documents: list[dict[str, Any]]) -> None:
    # A real informer keeps the last known state of an object that cannot be decoded; the harness's list refuses it.
    documents = [document for document in documents if decoded(document) is not None]
    watched(lambda watch: run(serve_beside(documents, watch)))


@pytest.mark.parametrize("document", LARGEST_SERVICES.values(), ids=LARGEST_SERVICES)
def test_a_healthy_service_is_served_beside_the_largest(document: dict[str, Any], caplog: Any) -> None:
    caplog.set_level(logging.INFO)
    watched(lambda watch: run(serve_beside([document], watch)))
    # Controllers may log messages longer than a line; test_logs covers how a line is cut.
    assert all(len(record.getMessage()) < 3 * MESSAGE_LIMIT for record in caplog.records)


def test_the_watch_sees_what_takes_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """The watch notices a callback that runs too many lines, also on a fast machine."""
    monkeypatch.setattr(loop_watch, "SUSPECT", 0.0)

    async def work(lines: int) -> None:
        await asyncio.sleep(0)
        for _ in range(lines):
            pass

    with pytest.raises(AssertionError, match=r"work.*took the event loop for [0-9,]+ lines"):
        watched(lambda watch: run(work(loop_watch.MOST)))
    watched(lambda watch: run(work(10)))
    with pytest.raises(AssertionError, match="lines"):
        loop_watch.quick(lambda: [None for _ in range(loop_watch.MOST)], ValueError)
    monkeypatch.setattr(loop_watch, "HOPELESS", 0.0)
    with pytest.raises(AssertionError, match="CPU"):
        watched(lambda watch: run(work(10)))
    with pytest.raises(AssertionError, match="CPU"):
        loop_watch.quick(lambda: None, ValueError)
