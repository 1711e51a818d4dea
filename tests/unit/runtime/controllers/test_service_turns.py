# SPDX-License-Identifier: Apache-2.0
"""The order of work for many Services: changes by users do not wait behind updates for a joining Node."""

import asyncio

from ..gateway.virtual import in_virtual_time, now
from .services_harness import Cluster, until

LIMITS = {"calls_per_second": 20.0, "burst": 40, "concurrency": 20}
MANY = [f"s{number}" for number in range(1000)]


async def busy(c):
    """Serve 1,000 Services, then add a Node, so that updates for 50 s are queued."""
    c.add_node("n0")
    for number, name in enumerate(MANY):
        c.add_service(name, port=number + 1)
    c.serve()
    await c.served(*MANY)
    await asyncio.sleep(30)
    c.cloud.calls.clear()
    c.add_node("n1")
    await until(lambda: c.cloud.count("update") > 40)


@in_virtual_time
async def test_a_new_service_does_not_wait_behind_the_updates_of_a_node():
    async with Cluster(**LIMITS) as c:
        await busy(c)
        began = now()
        c.add_service("new")
        await c.served("new")
        assert now() - began < 5
        await until(lambda: c.cloud.count("update") == len(MANY))
        assert now() - began < 60
        assert c.cloud.hosts("s999") == ["n0", "n1"]


@in_virtual_time
async def test_neither_does_a_changed_or_a_deleted_one():
    async with Cluster(**LIMITS) as c:
        await busy(c)
        began = now()
        c.api.change("services", "shop/s998", {"spec": {"loadBalancerSourceRanges": ["192.0.2.0/24"]}})
        c.api.delete_service("s999")
        await until(lambda: c.cloud.count("ensure", name="s998") and c.cloud.count("delete", name="s999"))
        assert now() - began < 5
        await until(lambda: c.cloud.count("update") == len(MANY) - 2)
        assert c.cloud.count("update", name="s998") == 0, "its ensure wrote the Nodes, too"


@in_virtual_time
async def test_updates_go_on_while_new_services_keep_coming():
    async with Cluster(**LIMITS) as c:
        await busy(c)
        before = c.cloud.count("update")
        for number in range(60 * 20):
            c.add_service(f"new{number}")
            await asyncio.sleep(0.05)
        assert c.cloud.count("update") - before >= 60 * 20 / 4 * 0.9


@in_virtual_time
async def test_nor_does_one_without_an_address_after_a_restart_beside_changed_nodes():
    """The leader stopped after it created the load balancer. The next leader must also update the backends of all other
    Services."""
    async with Cluster(**LIMITS) as c:
        await busy(c)
        await c.stop()
        c.add_node("n2")
        c.api.change("services", "shop/s999", {"status": {"loadBalancer": None}})
        c.cloud.calls.clear()
        began = now()
        c.serve()
        await c.served("s999")
        assert now() - began < 5
        await until(lambda: c.cloud.count("ensure", "update") >= len(MANY))
        assert now() - began < 60
