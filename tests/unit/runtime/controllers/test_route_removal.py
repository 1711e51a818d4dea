# SPDX-License-Identifier: Apache-2.0
"""A route that no Node claims is deleted only after a read of a Node or of the route's instance. Routes of deleted
Nodes go a few at a time.
"""

import asyncio

import msgspec
import pytest
from prometheus_client import REGISTRY

from ccm.cloud import Transient
from ccm.controllers.nodes.node_lifecycle_rules import Safety
from ccm.controllers.shared.orphan_rules import GRACE
from ccm.engine.api_errors import UnavailableError

from ..gateway.virtual import in_virtual_time
from .services_harness import Cluster, until

NUMBER = 12
WINDOW = Safety().window


def cidr(number):
    return f"10.120.{number}.0/24"


async def routed(cluster, number=NUMBER):
    """Start a controller and wait until `number` Nodes have a route each. Returns the controller."""
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
    """A leader that just started cannot know the Nodes of existing routes."""

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
async def test_a_route_that_leads_to_no_instance_goes_at_once():
    async with Cluster() as c:
        c.routes.add("10.120.50.0/24", "gone")
        c.add_node("n0", cidr(0))
        c.route()
        await until(lambda: c.routes.table() == {(cidr(0), "n0")}, 5)
        assert unclaimed() == 0


@in_virtual_time
async def test_two_short_listings_at_the_start_delete_no_route():
    """The same Nodes and instances are missing from both first lists. Only a read of an instance is proof."""
    async with Cluster() as c:
        for number in range(NUMBER):
            c.add_node(f"n{number}", cidr(number))
            c.routes.add(cidr(number), f"n{number}")
        c.api.wrong_lists["nodes"] = [list(c.api.objects["nodes"].values())[2:]]
        c.machines.missing = {"fake://n0", "fake://n1"}
        c.route()
        await asyncio.sleep(3600)
        assert c.routes.count("delete") == 0 and unclaimed() == 2
        reads = c.machines.calls.count("get fake://n0")
        c.machines.hide("n0")
        await until(lambda: len(c.routes.routes) == NUMBER - 1, 60)
        assert (cidr(0), "n0") not in c.routes.table() and c.machines.calls.count("get fake://n0") == reads + 1


@pytest.mark.parametrize("is_listed", [True, False])
@pytest.mark.parametrize("exists", [True, False])
def test_routes_of_the_nodes_of_another_cloud_with_the_same_project_stay(is_listed, exists):
    """Two clouds reach one project, so each lists the routes of the other one's Nodes. Such a route goes only if its
    Node does not exist."""

    @in_virtual_time
    async def run():
        async with Cluster() as c:
            await routed(c)
            for number in (50, 51):
                c.machines.put(f"b{number}", "10.0.9.9")
                if not is_listed:
                    c.machines.hide(f"b{number}")
                if exists:
                    c.add_node(f"b{number}", cidr(number), provider_id=f"other://b{number}")
                c.routes.add(cidr(number), f"b{number}")
            await asyncio.sleep(3600)
            assert (c.routes.count("delete") == 0) is exists

    run()


@in_virtual_time
async def test_an_instance_that_is_not_known_for_sure_keeps_its_route():
    async with Cluster() as c:
        await routed(c)
        c.routes.add("10.120.50.0/24", "gone")
        c.machines.error = Transient("down")
        await asyncio.sleep(600)
        assert c.routes.count("delete") == 0
        c.machines.error = None
        await until(lambda: len(c.routes.routes) == NUMBER, 120)


@pytest.mark.parametrize(("number", "deleted"), [(1, 1), (2, 2), (3, 0), (8, 0)])
def test_many_living_instances_without_a_node_keep_their_routes(number, deleted):
    """After a restore of etcd, a new leader sees running machines without Nodes."""

    @in_virtual_time
    async def run():
        async with Cluster() as c:
            for each in range(NUMBER):
                if each < number:
                    c.machines.put(f"n{each}", f"10.0.0.{each}")
                else:
                    c.add_node(f"n{each}", cidr(each))
                c.routes.add(cidr(each), f"n{each}")
            c.route()
            await asyncio.sleep(1800)
            assert c.routes.count("delete") == deleted and unclaimed() == number - deleted

    run()


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
        for when in range(0, 900, 10):
            await asyncio.sleep(10)
            left[when] = len(c.routes.routes)
        assert (left[0], left[890]) == (27, 20)
        assert all(left[when] - left.get(when + int(WINDOW) - 20, 20) <= 3 for when in left)


@in_virtual_time
async def test_a_node_that_a_read_finds_keeps_its_route():
    async with Cluster() as c:
        await routed(c)
        kept = c.api.objects["nodes"]["n0"]
        c.api.remove("nodes", "n0")
        c.api.objects["nodes"]["n0"] = kept  # the watch does not show this
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
    """The watch wrongly reported the Node deleted, and meanwhile another Node has its CIDR."""
    async with Cluster() as c:
        await routed(c)
        kept = c.api.objects["nodes"]["n0"]
        c.api.remove("nodes", "n0")
        c.api.objects["nodes"]["n0"] = kept
        c.add_node("new", cidr(0))
        await asyncio.sleep(GRACE)
        assert (cidr(0), "n0") in c.routes.table() and (c.routes.count("delete"), c.routes.count("create")) == (0, 12)
        assert set(c.api.told("FailedToCreateRoute", "new")) == {"pod CIDR 10.120.0.0/24 is still routed to fake://n0"}


@in_virtual_time
async def test_a_node_that_lost_its_provider_id_keeps_its_route():
    """etcd was restored from a snapshot from before the Node's initialisation."""
    async with Cluster() as c:
        await routed(c)
        c.machines.put("n0", "10.0.0.1")
        c.api.change("nodes", "n0", {"spec": {"providerID": None}})
        await asyncio.sleep(GRACE)
        assert c.routes.count("delete") == 0


@in_virtual_time
async def test_a_node_that_was_created_again_keeps_its_route():
    """A read shows the new Node before the watch does."""
    async with Cluster() as c:
        await routed(c)
        again = c.api.objects["nodes"]["n0"]
        c.api.remove("nodes", "n0")
        c.api.objects["nodes"]["n0"] = {**again, "metadata": {**again["metadata"], "uid": "another"}}
        await asyncio.sleep(GRACE)
        assert c.routes.count("delete") == 0


@in_virtual_time
async def test_a_node_with_an_alias_of_the_instance_keeps_a_route_that_nobody_knows():
    """The Node is missing from a new leader's cache, so the controller reads it by every name of the instance."""
    async with Cluster() as c:
        await routed(c, 1)
        c.machines.put("i-0abc", aliases=("n9",))
        c.routes.add(cidr(9), "i-0abc")
        node = {"metadata": {"name": "n9", "uid": "u9"}, "spec": {"providerID": "fake://i-0abc", "podCIDRs": [cidr(9)]}}
        asked, read = [], c.api.get

        async def get(path, type, **more):
            asked.append(path)
            return msgspec.convert(node, type) if path.endswith("/n9") else await read(path, type, **more)

        c.api.get = get
        await asyncio.sleep(GRACE + 600)
        assert "/api/v1/nodes/n9" in asked
        assert cidr(9) in {route.destination for route in c.routes.routes.values()}
