# SPDX-License-Identifier: Apache-2.0
"""An API server that restarts, is slow, throttles or sends unreadable objects; a leader that is frozen or loses its
Lease."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from ccm.engine.client import KubeClient
from ccm_simcloud.testing import Simulator

from ..cluster import ApiServer
from ..engine.conftest import FaultProxy
from ..runtime.support import NODES, SERVICES, eventually, get_lease, get_service, initialised, node_body, set_ready
from .audit import Witness, passes
from .churn import Churn
from .conftest import FAST, StartCcm

#: For a leader that is frozen until its Lease expires: long enough not to expire earlier on a busy machine.
LEASE = {"leader_elect_lease_duration": "20s", "leader_elect_renew_deadline": "18s"}
#: The program that forgets an object a few seconds after a list first lacks it.
IMPATIENT = (str(Path(__file__).with_name("impatient_ccm.py")),)


@pytest.fixture
async def proxy(apiserver: ApiServer) -> AsyncIterator[FaultProxy]:
    proxy = FaultProxy(apiserver)
    await proxy.start()
    yield proxy
    proxy.fault = None
    await proxy.stop()


async def test_restarts_under_churn(
    apiserver: ApiServer, kube: KubeClient, cloud: Simulator, witness: Witness, start_ccm: StartCcm
):
    ccm = start_ccm(program=IMPATIENT, **FAST)
    await ccm.leading()
    churn = Churn(kube, cloud, witness, seed=2, nodes=10, services=5)
    await churn.begin()
    for _ in range(2):
        for _ in range(20):
            await churn.step()
        await asyncio.to_thread(apiserver.stop)
        await asyncio.to_thread(apiserver.start)
    await churn.rest()
    await passes(kube, cloud, witness)
    assert ccm.process.poll() is None


async def test_it_is_waited_for_at_start(
    apiserver: ApiServer, kube: KubeClient, cloud: Simulator, witness: Witness, start_ccm: StartCcm
):
    """The runtime waits for the API server. Upstream gives up after 10 s (W29)."""
    kubeconfig = apiserver.kubeconfig()
    await asyncio.to_thread(apiserver.stop)
    try:
        ccm = start_ccm(kubeconfig=kubeconfig, kube_api_wait="5m")
        await ccm.until_logged("does not answer, waiting up to 300 s")
    finally:
        await asyncio.to_thread(apiserver.start)
    await ccm.leading()


async def slow(request: web.Request) -> web.StreamResponse | None:
    await asyncio.sleep(0.4)
    return None


class Throttled:
    """Refuses every second request if it is a write, with the answer of API priority and fairness."""

    def __init__(self) -> None:
        self.refused, self._odd = 0, False

    async def __call__(self, request: web.Request) -> web.StreamResponse | None:
        self._odd = not self._odd
        if request.method == "GET" or self._odd:
            return None
        self.refused += 1
        return web.Response(status=429, text="Too many requests, please try again later.", headers={"Retry-After": "1"})


class Flaky:
    """Loses every third answer to a write, after the API server has carried out the write."""

    def __init__(self, proxy: FaultProxy) -> None:
        self._proxy, self.lost, self._count = proxy, 0, 0

    async def __call__(self, request: web.Request) -> web.StreamResponse | None:
        if request.method == "GET":
            return None
        self._count += 1
        if self._count % 3:
            return None
        self._proxy.fault = None
        try:
            await self._proxy._handle(request)
        finally:
            self._proxy.fault = self
        self.lost += 1
        assert request.transport is not None
        request.transport.abort()
        return web.Response()


@pytest.mark.parametrize("kind", ["slow", "throttled", "answers-lost"])
async def test_all_is_right_in_the_end_although_it_is(
    kind: str, apiserver: ApiServer, kube: KubeClient, cloud: Simulator, witness: Witness, proxy: FaultProxy,
    start_ccm: StartCcm,
):  # fmt: skip
    through = apiserver.kubeconfig(f"through-{kind}", server=proxy.url)
    ccm = start_ccm(program=IMPATIENT, kubeconfig=through, **FAST)
    await ccm.leading()
    fault: Any = {"slow": slow, "throttled": Throttled(), "answers-lost": Flaky(proxy)}[kind]
    proxy.fault = fault
    churn = Churn(kube, cloud, witness, seed=3, nodes=8, services=4)
    await churn.begin()
    await churn.changes(40)
    await churn.rest()
    await passes(kube, cloud, witness)
    assert kind == "slow" or getattr(fault, "refused", 0) + getattr(fault, "lost", 0) > 3
    assert ccm.process.poll() is None


async def test_objects_that_cannot_be_read_stop_no_other(
    apiserver: ApiServer, kube: KubeClient, cloud: Simulator, witness: Witness, proxy: FaultProxy, start_ccm: StartCcm,
    admin_token: str,
):  # fmt: skip
    """Other objects are still served, and a Service that becomes unreadable keeps its load balancer."""

    created = asyncio.Event()
    expired: list[str] = []

    async def spoil(request: web.Request) -> web.StreamResponse | None:
        """End each kind's first watch with 410, so that the runtime lists again. In listings, make objects named bad-…
        unreadable: their labels become a list."""
        if request.method != "GET" or request.path not in ("/api/v1/nodes", "/api/v1/services"):
            return None
        if "watch" in request.query:
            if request.path in expired:
                return None
            await created.wait()
            expired.append(request.path)
            return web.json_response({"kind": "Status", "code": 410, "reason": "Expired"}, status=410)
        listing = await kube.get(request.path, dict, params=dict(request.query))
        for item in listing["items"]:
            if item["metadata"]["name"].startswith("bad-"):
                item["metadata"]["labels"] = ["spoilt"]
        return web.json_response(listing)

    cloud.add_instances(3, prefix="good-")
    cloud.add_instances(1, prefix="bad-")
    service = {"spec": {"type": "LoadBalancer", "ports": [{"port": 80}], "selector": {"a": "b"}}}
    ccm = start_ccm(kubeconfig=apiserver.kubeconfig("through-spoilt", server=proxy.url), **FAST)
    await ccm.leading()
    await kube.create(SERVICES, {**service, "metadata": {"name": "bad-1"}})

    async def served(name: str) -> bool:
        return bool((await get_service(kube, name)).status.load_balancer.ingress)

    await eventually(lambda: served("bad-1"))
    proxy.fault = spoil
    proxy.cut()
    await kube.create(NODES, node_body("bad-0"))
    created.set()
    await ccm.until_logged("bad-0 cannot be decoded")
    await ccm.until_logged("default/bad-1 cannot be decoded")
    for number in range(3):
        await kube.create(NODES, node_body(f"good-{number}"))
    await kube.create(SERVICES, {**service, "metadata": {"name": "good"}})
    await eventually(lambda: initialised(kube, "good-0", "good-1", "good-2"))
    await eventually(lambda: served("good"))
    assert cloud.calls("load_balancers.delete") == 0
    assert 'ccm_cached_objects{name="nodes"}' in (await ccm.get("/metrics", admin_token))[1]


async def test_a_leader_that_is_frozen_stops_when_it_wakes_and_does_no_harm(
    kube: KubeClient, cloud: Simulator, witness: Witness, start_ccm: StartCcm
):
    """The leader is frozen like a process on a machine that swaps, or that its hypervisor pauses."""
    leader = start_ccm(**FAST, **LEASE)
    await leader.leading()
    churn = Churn(kube, cloud, witness, seed=4, nodes=8, services=5)
    await churn.begin()
    standby = start_ccm(**FAST)
    await standby.until_logged("the cloud accepts the credentials")
    for _ in range(10):
        await churn.step()
    leader.signal(signal.SIGSTOP)
    await standby.leading()
    await churn.changes(20)
    leader.signal(signal.SIGCONT)
    assert await leader.wait() == 1 and "leadership is lost" in leader.text
    await churn.rest()
    await passes(kube, cloud, witness)
    assert standby.process.poll() is None


async def test_a_robbed_leader_ends_and_comes_back_when_the_thief_is_silent(
    kube: KubeClient, cloud: Simulator, witness: Witness, start_ccm: StartCcm
):
    leader = start_ccm(**FAST)
    await leader.leading()
    cloud.add_instances(1, prefix="robbed-")
    lease = await get_lease(kube)
    path = f"/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/{lease.metadata.name}"
    await kube.patch(path, {"spec": {"holderIdentity": "a-thief", "leaseDurationSeconds": 2}})
    assert await leader.wait() == 1
    again = start_ccm(**FAST)
    await again.leading()
    await kube.create(NODES, node_body("robbed-0"))
    await eventually(lambda: initialised(kube, "robbed-0"))
    await set_ready(kube, "robbed-0", "True")
    await passes(kube, cloud, witness)
