# SPDX-License-Identifier: Apache-2.0
"""The API server may be wrong: what lists and watches lack costs no load balancer, no member and no route.

A wrong list is one that lacks what is there. A restored etcd is one in which reads lack it, too.
"""

import asyncio

import pytest

from ..cloud.virtual import in_virtual_time
from .services_harness import Cluster, until


def populate(cluster, services=10, nodes=6):
    for number in range(nodes):
        cluster.add_node(f"n{number}", f"10.120.{number}.0/24")
    for number in range(services):
        cluster.add_service(f"s{number}", port=100 + number)
    return [f"s{number}" for number in range(services)]


def list_wrongly(cluster, kind, left):
    """The next list of this kind has only the first `left` objects."""
    cluster.api.wrong_lists[kind] = [list(cluster.api.objects[kind].values())[:left]]
    cluster.api.expire()


@pytest.mark.parametrize("left", [0, 2])
@pytest.mark.parametrize("restored", [False, True], ids=["wrong", "restored"])
def test_a_list_without_most_services_deletes_no_load_balancer(left, restored):
    @in_virtual_time
    async def run():
        async with Cluster() as c:
            names = populate(c)
            c.serve(audit_period=0.0)
            await c.served(*names)
            if restored:
                lost = {key: c.api.objects["services"].pop(key) for key in list(c.api.objects["services"])[left:]}
            else:
                list_wrongly(c, "services", left)
            c.api.expire()
            await asyncio.sleep(3600)
            assert len(c.cloud.made) == len(names) and c.cloud.count("delete") == 0
            if restored:
                c.api.objects["services"] |= lost
                c.api.expire()
            await asyncio.sleep(100)
            writes = c.cloud.count("ensure", "update")
            c.api.delete_service("s9")  # and all goes on
            c.add_node("n9")
            await until(lambda: "uid-of-s9" not in c.cloud.made and len(c.cloud.hosts("s8")) == 7)
            assert c.cloud.count("delete") == 1 and c.cloud.count("ensure", "update") - writes in (9, 10)

    run()


@pytest.mark.parametrize("left", [0, 1, 3, 5])
def test_a_list_without_nodes_takes_no_member_from_a_load_balancer(left):
    @in_virtual_time
    async def run():
        async with Cluster() as c:
            names = populate(c)
            c.serve()
            await c.served(*names)
            await until(lambda: len(c.cloud.hosts("s0")) == 6)
            updates = c.cloud.count("update", "ensure")
            list_wrongly(c, "nodes", left)
            await asyncio.sleep(600)
            assert c.cloud.count("update", "ensure") == updates
            assert all(len(c.cloud.hosts(name)) == 6 for name in names)

    run()


@in_virtual_time
async def test_a_node_that_went_while_nobody_watched_is_no_member():
    async with Cluster() as c:
        (name,) = populate(c, services=1)
        c.serve()
        await c.served(name)
        await until(lambda: len(c.cloud.hosts(name)) == 6)
        del c.api.objects["nodes"]["n5"]
        c.api.expire()
        await until(lambda: len(c.cloud.hosts(name)) == 5)
