# SPDX-License-Identifier: Apache-2.0
"""The same mistake in many namespaces looks like an outage. A new Service then soon proves that there is none."""

import random
from statistics import median

import pytest

from ccm.cloud import Transient
from ccm.gateway.newcomers import EVERY

from ..gateway.virtual import in_virtual_time, now
from .services_harness import Cluster, until

DOWN = Transient("500 about it")
pytestmark = pytest.mark.threat("tenant-cannot-stop-the-controller")


def put(cluster, namespace, name):
    meta = {"name": name, "namespace": namespace, "uid": f"{namespace}-{name}", "annotations": {}}
    ports = [{"name": "http", "protocol": "TCP", "port": 80, "nodePort": 30080}]
    cluster.api.put("services", {"metadata": meta, "spec": {"type": "LoadBalancer", "ports": ports}, "status": {}})


def of_each(count):
    return [f"t{number}" for number in range(count)]


def begin(cluster, namespaces, verbs=("ensure", "get")):
    """Start the service controller with a Service named `bad-N` in each namespace. Their calls to the cloud fail."""
    cluster.cloud.fault = lambda verb, spec: DOWN if verb in verbs and spec.name.startswith("bad") else None
    for number, namespace in enumerate(namespaces):
        put(cluster, namespace, f"bad-{number}")
    cluster.serve()


async def rest(seconds):
    end = now() + seconds
    await until(lambda: now() >= end, seconds + 60.0)


async def served(cluster, namespace, name="web"):
    """Create a Service and return the seconds until it has a load balancer."""
    start = now()
    put(cluster, namespace, name)
    await until(lambda: f"{namespace}-{name}" in cluster.cloud.made, 600.0)
    return now() - start


MANY = [
    pytest.param(of_each(100), id="a-hundred-namespaces"),
    pytest.param(["one"] * 50 + of_each(50), id="one-and-fifty-others"),
    pytest.param(of_each(10) * 10, id="ten-of-ten-each"),
    pytest.param(["one"] * 95 + of_each(5), id="nearly-all-of-one"),
]


@pytest.mark.parametrize("namespaces", MANY)
def test_a_new_service_of_another_namespace_is_served_at_once(namespaces):
    waits = []

    @in_virtual_time
    async def run(after):
        async with Cluster() as c:
            c.add_node("n0")
            begin(c, namespaces)
            await rest(after)
            for number in range(5):
                waits.append(await served(c, f"fine{number}"))
                await rest(random.uniform(0.0, 40.0))

    for seed in range(2):
        random.seed(seed)
        run(random.uniform(20.0, 400.0))
    assert median(waits) <= 2.0 and max(waits) <= 10.0, waits


@pytest.mark.parametrize("count", [2, 20])
def test_new_services_that_come_together_are_all_served(count):
    @in_virtual_time
    async def run():
        random.seed(count)
        async with Cluster() as c:
            c.add_node("n0")
            begin(c, of_each(100))
            await rest(300.0)
            for number in range(count):
                put(c, f"fine{number}", "web")
            await until(lambda: sum("fine" in uid for uid in c.cloud.made) == count, 10.0)

    run()


@in_virtual_time
async def test_a_new_failing_service_first_costs_no_more_than_a_turn():
    random.seed(3)
    async with Cluster() as c:
        c.add_node("n0")
        begin(c, of_each(100))
        await rest(300.0)
        put(c, "late", "bad")
        assert await served(c, "fine") <= 10.0


@in_virtual_time
async def test_many_new_failing_services_of_one_namespace_leave_a_turn_to_others():
    random.seed(4)
    async with Cluster() as c:
        c.add_node("n0")
        begin(c, of_each(100))
        await rest(300.0)
        for number in range(50):
            put(c, "late", f"bad-{number}")
        assert await served(c, "fine") <= 15.0


@pytest.mark.parametrize("change", ["nodes", "delete"])
def test_who_was_served_before_is_new_again(change):
    """While load balancers of other Services fail, that of a served Service still follows the Nodes, and can be
    deleted.
    """

    @in_virtual_time
    async def run():
        random.seed(5)
        async with Cluster() as c:
            c.add_node("n0")
            c.cloud.fault = lambda verb, spec: None
            put(c, "shop", "web")
            begin(c, of_each(100))
            await until(lambda: "shop-web" in c.cloud.made, 600.0)
            await rest(300.0)
            if change == "nodes":
                c.add_node("n1")
                await until(lambda: c.cloud.hosts("web") == ["n0", "n1"], 15.0)
            else:
                c.api.delete_service("web")
                await until(lambda: "shop-web" not in c.cloud.made, 15.0)

    run()


@pytest.mark.parametrize("every", [300.0, 1.0])
def test_new_services_in_an_outage_cost_few_calls(every):
    """New Services cause at most one call per turn, whoever creates them."""

    @in_virtual_time
    async def run():
        random.seed(7)
        async with Cluster() as c:
            await c.begin()
            c.cloud.fault = lambda verb, spec: DOWN
            for number in range(100):
                put(c, f"t{number}", "web")
            for number in range(int(300 / every)):
                put(c, f"new{number}", "web")
                await rest(every)
            assert 10 < c.cloud.count("ensure") < (36 if every == 300.0 else 36 + 300.0 / EVERY)

    run()
