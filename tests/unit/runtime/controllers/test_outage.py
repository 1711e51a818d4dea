# SPDX-License-Identifier: Apache-2.0
"""During an outage of the cloud, waiting objects are tried rarely. Soon after its end, all of them are served."""

import random

import pytest

from ccm.cloud import Transient
from ccm.controllers.services.service import ServiceController
from ccm.gateway.breaker import BREAKER_THRESHOLD, TRIES_PER_SECOND

from ..gateway.virtual import in_virtual_time, now
from .services_harness import Cluster, until

DOWN = Transient("503")


def bodies(cluster, count):
    for number in range(count):
        cluster.add_service(f"s{number}", port=8000 + number)


@pytest.mark.parametrize("hang", [0.01, 30.0])
@pytest.mark.parametrize("count", [3, 300])
def test_services_that_wait_for_the_end_of_an_outage_look_seldom_and_are_served_soon_after_it(monkeypatch, hang, count):
    random.seed(count)
    looks, sync = [], ServiceController._sync

    async def counted(self, key):
        looks.append(key)
        await sync(self, key)

    monkeypatch.setattr(ServiceController, "_sync", counted)

    @in_virtual_time
    async def run():
        async with Cluster(deadline=60.0) as c:
            await c.begin()  # until the first Service is served, nothing is written
            c.cloud.fault = lambda verb, spec: DOWN
            c.cloud.latency = dict.fromkeys(("ensure", "list", "get"), hang)
            bodies(c, count)
            end = now() + 300.0
            await until(lambda: now() > end, 400.0)
            assert count < len(looks) < 2 * count + 100 + TRIES_PER_SECOND * 300.0
            assert 3 < c.cloud.count("ensure") < 60
            c.cloud.fault, c.cloud.latency = lambda verb, spec: None, {}
            names = [f"s{number}" for number in range(count)]
            # Fewer than five failures are not an outage, so there are no probes, and each Service waits for its own
            # back-off.
            bound = 90.0 if count >= BREAKER_THRESHOLD else 300.0
            await until(lambda: all(c.api.ingress(name) for name in names), bound)

    run()


@in_virtual_time
async def test_load_balancers_that_are_behind_the_nodes_look_no_more_often(monkeypatch):
    """A load balancer with outdated backends is retried every half minute, but not while an outage holds calls back."""
    looks, sync = [], ServiceController._sync

    async def counted(self, key):
        looks.append(key)
        await sync(self, key)

    monkeypatch.setattr(ServiceController, "_sync", counted)
    async with Cluster() as c:
        c.add_node("n0")
        bodies(c, 300)
        c.serve()
        names = [f"s{number}" for number in range(300)]
        await until(lambda: all(c.api.ingress(name) for name in names), 90.0)
        c.cloud.fault = lambda verb, spec: DOWN
        for name in names:
            c.api.change("services", f"shop/{name}", {"spec": {"sessionAffinity": "ClientIP"}})
        c.add_node("n1")
        looks.clear()
        start = now()
        await until(lambda: now() > start + 300.0, 400.0)
        assert len(looks) < 3 * 300 + TRIES_PER_SECOND * 300.0
        c.cloud.fault = lambda verb, spec: None
        await until(lambda: all(c.cloud.hosts(name) == ["n0", "n1"] for name in names), 90.0)
