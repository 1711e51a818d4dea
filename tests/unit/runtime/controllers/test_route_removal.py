# SPDX-License-Identifier: Apache-2.0
"""A route goes when a read of its Node says that it is gone, or that it does not want the route; few go at a time."""

import asyncio

import pytest
from prometheus_client import REGISTRY

from ccm.controllers.orphan_rules import GRACE
from ccm.engine.errors import UnavailableError

from ..cloud.virtual import in_virtual_time
from .services_harness import Cluster, until

NUMBER = 12


def cidr(number):
    return f"10.120.{number}.0/24"


async def routed(cluster, number=NUMBER):
    """A controller at work, with a route for each of so many Nodes."""
    for each in range(number):
        cluster.add_node(f"n{each}", cidr(each))
    controller = cluster.route()
    await until(lambda: len(cluster.routes.routes) == number)
    await asyncio.sleep(5)
    return controller


def unclaimed():
    return REGISTRY.get_sample_value("ccm_routes_unclaimed")


@pytest.mark.parametrize("left", [0, 3, NUMBER // 2])
@pytest.mark.parametrize("restored", [False, True], ids=["wrong", "restored"])
def test_a_list_without_most_nodes_deletes_no_route(left, restored):
    @in_virtual_time
    async def run():
        async with Cluster() as c:
            await routed(c)
            nodes = c.api.objects["nodes"]
            if restored:
                for name in list(nodes)[left:]:
                    del nodes[name]
            else:
                c.api.wrong_lists["nodes"] = [list(nodes.values())[:left]]
            c.api.expire()
            await asyncio.sleep(3600)
            assert c.routes.count("delete") == 0 and len(c.routes.routes) == NUMBER

    run()


@pytest.mark.parametrize("left", [0, 3])
def test_a_first_list_without_most_nodes_deletes_no_route(left):
    """A new leader, or a first one: it cannot know the Nodes of the routes that it finds."""

    @in_virtual_time
    async def run():
        async with Cluster() as c:
            for number in range(NUMBER):
                c.add_node(f"n{number}", cidr(number))
                c.routes.add(cidr(number), f"n{number}")
            c.api.wrong_lists["nodes"] = [list(c.api.objects["nodes"].values())[:left]]
            c.route()
            await asyncio.sleep(3600)
            assert c.routes.count("delete") == 0 and unclaimed() == NUMBER - left

    run()


@in_virtual_time
async def test_few_routes_without_a_node_go_after_the_grace():
    async with Cluster() as c:
        c.routes.add("10.120.50.0/24", "gone")
        c.add_node("n0", cidr(0))
        c.route()
        await asyncio.sleep(GRACE - 30)
        assert c.routes.count("delete") == 0 and unclaimed() == 1
        await until(lambda: c.routes.table() == {(cidr(0), "n0")}, GRACE)
        assert unclaimed() == 0


@in_virtual_time
async def test_the_route_of_a_deleted_node_goes_at_once():
    async with Cluster() as c:
        await routed(c)
        c.api.remove("nodes", "n0")
        await until(lambda: (cidr(0), "n0") not in c.routes.table(), 2)
        assert c.api.reads == ["/api/v1/nodes/n0"]


@in_virtual_time
async def test_routes_of_deleted_nodes_go_at_a_bounded_rate():
    async with Cluster() as c:
        await routed(c, 30)
        for number in range(10):
            c.api.remove("nodes", f"n{number}")
        left = {}
        for when in range(0, 1500, 10):
            await asyncio.sleep(10)
            left[when] = len(c.routes.routes)
        assert (left[0], left[1490]) == (27, 20)
        assert all(left[when] - left.get(when + GRACE - 20, 20) <= 3 for when in left)


@in_virtual_time
async def test_a_node_that_a_read_finds_keeps_its_route():
    async with Cluster() as c:
        await routed(c)
        kept = c.api.objects["nodes"]["n0"]
        c.api.remove("nodes", "n0")
        c.api.objects["nodes"]["n0"] = kept  # which the watch does not tell
        await asyncio.sleep(5 * GRACE)
        assert c.routes.count("delete") == 0 and unclaimed() == 1


@in_virtual_time
async def test_while_the_api_server_does_not_say_routes_stay():
    async with Cluster() as c:
        await routed(c)
        down = [True]
        c.api.fault = lambda path, patch: UnavailableError(0, "Timeout", "no answer") if down and not patch else None
        c.api.remove("nodes", "n0")
        await asyncio.sleep(500)
        assert c.routes.count("delete") == 0
        down.clear()
        await until(lambda: (cidr(0), "n0") not in c.routes.table(), 120)


@in_virtual_time
async def test_a_cidr_that_moves_to_another_node_moves_at_once():
    async with Cluster() as c:
        await routed(c, 30)
        for number in range(8):
            c.api.remove("nodes", f"n{number}")
            c.add_node(f"new{number}", cidr(number))
        await until(lambda: {(cidr(each), f"new{each}") for each in range(8)} <= c.routes.table(), 20)


@in_virtual_time
async def test_a_cidr_whose_holder_lives_does_not_move():
    """The watch told that the Node went, and it did not; meanwhile another one has its CIDR."""
    async with Cluster() as c:
        await routed(c)
        kept = c.api.objects["nodes"]["n0"]
        c.api.remove("nodes", "n0")
        c.api.objects["nodes"]["n0"] = kept
        c.add_node("new", cidr(0))
        await asyncio.sleep(GRACE)
        assert (cidr(0), "n0") in c.routes.table() and (c.routes.count("delete"), c.routes.count("create")) == (0, 12)
        assert set(c.api.told("FailedToCreateRoute", "new")) == {"pod CIDR 10.120.0.0/24 is still routed to fake://n0"}
