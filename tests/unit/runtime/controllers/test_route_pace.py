# SPDX-License-Identifier: Apache-2.0
"""What many Nodes cost the route controller: listings of the cloud, and time of the event loop."""

import asyncio

import pytest

from ccm.controllers.routes import route_rules as rules

from ..gateway.virtual import in_virtual_time, now
from ..loop_watch import watched
from .services_harness import Cluster, until

CREATED = {"type": "NetworkUnavailable", "status": "False", "reason": "RouteCreated"}


def cidr(number):
    return f"10.120.{number // 16}.{number % 16 * 16}/28"


@pytest.mark.parametrize(("took", "expected"), [(0.0, 1.0), (0.05, 1.0), (0.3, 3.0), (1.0, 10.0), (60.0, 10.0)])
def test_spacing(took, expected):
    assert rules.spacing(took) == pytest.approx(expected)


@pytest.mark.parametrize(("latency", "most"), [(0.01, 102), (0.3, 36), (3.0, 13)])
def test_nodes_that_join_one_after_the_other_do_not_cost_a_listing_each(latency, most):
    @in_virtual_time
    async def run():
        async with Cluster() as c:
            c.routes.latency = latency
            c.route(period=3600.0)
            await until(lambda: c.routes.count("list") == 1)
            await asyncio.sleep(60)
            for number in range(200):
                c.add_node(f"n{number}", f"10.120.{number}.0/24")
                await asyncio.sleep(0.5)
            joined = now()
            await until(lambda: len(c.routes.routes) == 200)
            assert now() - joined <= 10 + 3 * latency + 1
            assert c.routes.count("list") <= most

    run()


@in_virtual_time
async def test_a_node_that_joins_alone_is_routed_at_once():
    async with Cluster() as c:
        c.routes.latency = 0.1
        c.route(period=3600.0)
        await asyncio.sleep(60)
        began = now()
        c.add_node("n0", "10.120.0.0/24")
        await until(lambda: c.routes.routes)
        assert now() - began < 1


def test_a_pass_over_many_nodes_lets_the_event_loop_turn():
    """In one piece, a pass over 50,000 Nodes would block the loop for seconds."""

    @in_virtual_time
    async def passes(watch):
        async with Cluster() as c:
            for number in range(4000):
                c.add_node(f"n{number}", cidr(number), conditions=[CREATED])
                c.routes.add(cidr(number), f"n{number}")
            c.route(period=30.0, node_prefix={4: 28, 6: 64})
            await until(lambda: c.routes.count("list") == 1)
            await asyncio.sleep(1)
            made = []
            asyncio.get_running_loop().set_task_factory(
                lambda loop, coro, **options: made.append(coro) or asyncio.Task(coro, loop=loop, **options)
            )
            watch.rests = False
            await asyncio.sleep(40)
            assert c.routes.count("list") == 2 and len(made) < 50
            assert c.api.patches == [] and c.routes.count("create") == c.routes.count("delete") == 0

    def one_pass(watch):
        watch.rests = True  # not measured: Nodes are added
        passes(watch)

    watched(one_pass)


@in_virtual_time
async def test_a_condition_that_somebody_else_wrote_meanwhile_is_not_written_again():
    async with Cluster() as c:
        c.api.latency = 5.0
        for number in range(30):  # more Nodes than are written at a time
            c.add_node(f"n{number}", f"10.120.{number}.0/24")
            c.routes.add(f"10.120.{number}.0/24", f"n{number}")
        c.route(period=3600.0)
        await until(lambda: len(c.api.patches) == 20)
        for number in range(30):
            if not any(f"/nodes/n{number}/" in path for path, _ in c.api.patches):
                c.api.change("nodes", f"n{number}", {"status": {"conditions": [CREATED]}})
        await asyncio.sleep(60)
        assert len(c.api.patches) == 20
