# SPDX-License-Identifier: Apache-2.0
"""node-ipam-controller under failures: whatever the API server does, no two Nodes get the same range."""

from __future__ import annotations

import asyncio
import ipaddress
import random

import pytest

from ccm.controllers.pod_cidrs.node_ipam import NodeIpamController, NodeIpamOptions
from ccm.controllers.shared.pod_network_rules import PodNetwork
from ccm.engine.api_errors import UnavailableError

from ..gateway.virtual import in_virtual_time
from .nodes_harness import Cluster, until

NETWORK = PodNetwork([ipaddress.ip_network("10.0.0.0/24")], {4: 28})


def controller(c: Cluster) -> NodeIpamController:
    return NodeIpamController(c.context, NodeIpamOptions(NETWORK))


def cidrs(c: Cluster) -> dict[str, str]:
    found = {name: node["spec"].get("podCIDRs") for name, node in c.api.nodes.items()}
    return {name: each[0] for name, each in found.items() if each}


@in_virtual_time
async def test_each_node_costs_one_write():
    async with Cluster() as c:
        c.run(controller(c))
        for number in range(10):
            c.api.add(f"n{number}")
        await until(lambda: len(cidrs(c)) == 10)
        assert len(set(cidrs(c).values())) == 10
        assert c.api.count("PATCH") == 10


@pytest.mark.parametrize("seed", range(20))
@in_virtual_time
async def test_lost_answers_and_deleted_nodes_give_no_range_to_two(seed: int):
    """Nearly half of the writes fail, before or after they take effect. Nodes are created and deleted repeatedly."""
    dice = random.Random(seed)

    def failure(verb: str, path: str) -> Exception | None:
        broken = verb == "PATCH" and "/nodes/" in path and dice.random() < 0.25
        return UnavailableError(503, "", "broken") if broken else None

    async with Cluster() as c:
        c.api.fault = c.api.after = failure
        c.run(controller(c))
        for step in range(60):
            name = f"n{dice.randrange(14)}"
            if name in c.api.nodes:
                c.api.remove(name)
            else:
                c.api.add(name)
            have = list(cidrs(c).values())
            assert len(set(have)) == len(have), (step, cidrs(c))
            await asyncio.sleep(dice.choice((0.0, 0.015, 0.5)))
        c.api.fault = c.api.after = lambda verb, path: None
        await until(lambda: cidrs(c).keys() == c.api.nodes.keys(), 400)
        assert len(set(cidrs(c).values())) == len(c.api.nodes)


@in_virtual_time
async def test_nothing_is_assigned_before_the_first_look_for_another_allocator_is_answered():
    async with Cluster() as c:
        answers, whole = False, c.api.list

        async def listing(path, *arguments, **more):
            if path.endswith("/pods") and not answers:
                raise UnavailableError(503, "", "down")
            return await whole(path, *arguments, **more)

        c.api.list = listing
        c.run(controller(c))
        c.api.add("n1")
        await asyncio.sleep(120)
        assert not cidrs(c)
        answers = True
        await until(lambda: cidrs(c), 30)


@in_virtual_time
async def test_a_new_leader_reads_what_its_cache_does_not_show_yet():
    async with Cluster() as c:
        send, c.api._send = c.api._send, lambda kind, line: None  # the watch lags
        c.api.add("old", podCIDR="10.0.0.0/28", podCIDRs=["10.0.0.0/28"])
        c.api._send = send
        c.run(controller(c))
        c.api.add("new")
        await until(lambda: "new" in cidrs(c))
        assert cidrs(c)["new"] == "10.0.0.16/28" and c.nodes.get("old") is None


@in_virtual_time
async def test_a_node_without_a_range_is_told_and_served_later():
    async with Cluster() as c:
        c.run(controller(c))
        for number in range(17):
            c.api.add(f"n{number:02}")
        await until(lambda: c.api.told("CIDRNotAvailable") and len(cidrs(c)) == 16)
        (waiting,) = c.api.nodes.keys() - cidrs(c).keys()
        assert "10.0.0.0/24" in c.api.told("CIDRNotAvailable", waiting)[0]
        gone = next(name for name in cidrs(c))
        freed = cidrs(c)[gone]
        c.api.remove(gone)
        await until(lambda: waiting in cidrs(c), 5)
        assert cidrs(c)[waiting] == freed
